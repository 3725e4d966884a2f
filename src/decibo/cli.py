"""The command line: parse, call, print. Exit status 0 when it ran, 2 when something given was wrong.

decibo demo
decibo reproduce table1 --out out/reproduction
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

try:
    import rich  # noqa: F401
    import typer
except ImportError:
    print("decibo: the command line needs typer and rich. pip install 'decibo[cli]'", file=sys.stderr)
    sys.exit(2)

from decibo.errors import InputError

WRONG = 2  # the exit status for anything the user can mend

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Decentralised bilevel optimisation. Exit status: 0 it ran, 2 something given was wrong.",
)


@app.callback()
def _commands() -> None:
    """Decentralised bilevel optimisation. Exit status: 0 it ran, 2 something given was wrong."""


@app.command()
def demo() -> None:
    """Solve a problem on embedded data and show what happened."""
    from decibo.demo import main as run  # type: ignore[import-not-found]

    run()


@app.command()
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="fig1, fig2, table1, fig3, fig4, rates, minimax or all", metavar="EXPERIMENT")
    ],
    out: Annotated[Path, typer.Option(help="Folder for figures, CSV and JSON.")] = Path("out/reproduction"),
    data: Annotated[Path | None, typer.Option(help="Folder with mnist.npz, a9a; default $DECIBO_DATA.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and steps: minutes for all.")] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, instead of the default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    docs: Annotated[Path | None, typer.Option(help="Also write reproduction.md and its figures here.")] = None,
) -> None:
    """Run the paper's figures and tables, and say claim by claim what holds."""
    from decibo.experiment import command, show

    results = command.reproduce(experiment, out, data, quick=quick, seeds=seeds, docs=docs, watch=show.Bar)
    if as_json:
        print(json.dumps(command.as_json(results), indent=2))
    else:
        show.results(results, out)


def main() -> None:
    """The entry point: errors that the user can mend are one line."""
    try:
        app(standalone_mode=False)
    except InputError as error:
        _wrong(str(error))
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _wrong("interrupted")
    except OSError as error:
        _wrong(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    except Exception as error:
        if not hasattr(error, "format_message"):  # a mistake of ours, which deserves its traceback
            raise
        _wrong(error.format_message())  # type: ignore[attr-defined]


def _wrong(text: str) -> None:
    print("decibo: " + " ".join(text.split()), file=sys.stderr)
    sys.exit(WRONG)
