"""The command line: parse, call, print. The work is done in decibo.cli.

decibo demo
decibo run problem.toml --set run.steps=500
decibo compare problem.toml -a ahead_exact -a 'ahead[alpha=0.05,gamma=0.1,lam=20]'
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

try:
    import rich  # noqa: F401
    import typer
except ImportError:
    print("decibo: the command line needs typer and rich. pip install 'decibo[cli]'", file=sys.stderr)
    sys.exit(2)

from decibo.cli import exits

CODES = "\n".join(f"  {code:>3}  {words}" for code, words in exits.MEANING.items())
ABOUT = f"""Decentralised bilevel optimisation: agents solve a two-level problem together.

\b
A first look:
  decibo demo                              ten silos tune a classifier
  decibo list algorithms                   what there is, with its settings
  decibo run problem.toml                  solve what a file describes
  decibo compare problem.toml -a ahead_exact -a 'ahead[lam=20]'

\b
Exit status:
{CODES}

--debug shows the traceback of an error. --json, on every command, prints
only JSON on standard output.
"""

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=ABOUT,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _kinds(incomplete: str) -> list[str]:
    from decibo.cli.list import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def _methods(incomplete: str) -> list[str]:
    from decibo.cli.registry import methods

    return [name for name in methods().factories if name.startswith(incomplete)]


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The configuration; docs/command-line.md.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change the configuration: run.steps=500.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where to write; default out/NAME.")]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]


def _version(wanted: bool) -> None:
    if wanted:
        from decibo.cli.doctor import version_line

        print(version_line())
        raise typer.Exit()


@app.callback()
def _commands(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write.")] = Path("out/demo"),
    as_json: Json = False,
) -> int:
    """Let ten silos tune a classifier together.

    On embedded data. It ends with a table and the path of a page to open.
    """
    from decibo.cli.demo import main as run

    return run(out, as_json)


@app.command()
def run(
    config: ConfigFile,
    sets: Sets = None,
    out: Out = None,
    checkpoint: Annotated[bool, typer.Option("--checkpoint", help="Keep checkpoints, for decibo resume.")] = False,
    as_json: Json = False,
) -> int:
    """Solve what a configuration describes.

    \b
    Examples:
      decibo run problem.toml
      decibo run problem.toml --set run.steps=500 --set method.lam=20
      decibo run problem.toml --out out/first --checkpoint
    """
    from decibo.cli.run import run as start

    return start(config, sets or (), out, checkpoint, as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder with checkpoints.")],
    steps: Annotated[int | None, typer.Option(help="Go on to this many steps in all.")] = None,
    as_json: Json = False,
) -> int:
    """Go on with a run from its last checkpoint.

    \b
    Example:
      decibo resume out/problem
    """
    from decibo.cli.run import resume as go_on

    return go_on(folder, steps, as_json)


@app.command()
def compare(
    config: ConfigFile,
    methods: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", metavar="METHOD", help="name[setting=value,...]", autocompletion=_methods),
    ] = None,
    sets: Sets = None,
    out: Out = None,
    as_json: Json = False,
) -> int:
    """Run several methods on the same problem and network.

    Without -a the methods are those of [compare] in the configuration.

    \b
    Example:
      decibo compare problem.toml -a ahead_exact \\
          -a 'ahead[alpha=0.05,gamma=0.1,lam=20]'
    """
    from decibo.cli.compare import compare as start

    return start(config, sets or (), methods or (), out, as_json)


@app.command()
def sweep(
    config: ConfigFile,
    grid: Annotated[
        list[str] | None, typer.Option("--grid", "-g", metavar="SETTING=VALUES", help="alpha=0.05,0.1,0.2")
    ] = None,
    sets: Sets = None,
    out: Out = None,
    as_json: Json = False,
) -> int:
    """Run one method with many settings at once.

    Without -g the lists are those of [sweep] in the configuration.

    \b
    Example:
      decibo sweep problem.toml -g alpha=0.02,0.05,0.1 -g gamma=0.05,0.1
    """
    from decibo.cli.sweep import sweep as start

    return start(config, sets or (), grid or (), out, as_json)


@app.command()
def check(config: ConfigFile, sets: Sets = None, as_json: Json = False) -> int:
    """Say what the theory promises, without running.

    \b
    Example:
      decibo check problem.toml --set method.lam=100
    """
    from decibo.cli.check import check as start

    return start(config, sets or (), as_json)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders of them.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Also write figures as PNG and PDF.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also print a LaTeX table.")] = False,
    measure: Annotated[str | None, typer.Option(help="The measure of the LaTeX table.")] = None,
    axis: Annotated[str, typer.Option(help="Its currency: step, gradients, bytes or seconds.")] = "step",
    as_json: Json = False,
) -> int:
    """Write one page about runs, for any browser.

    \b
    Examples:
      decibo report out/problem-compare
      decibo report out/first out/second --figures --latex
    """
    from decibo.cli.report import report as write

    return write(folders, out, figures, latex, measure, axis, as_json)


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="algorithms, problems, networks, measures", autocompletion=_kinds)
    ],
    as_json: Json = False,
) -> int:
    """Show algorithms, problems, networks or measures."""
    from decibo.cli.list import listing

    return listing(kind, as_json)


@app.command()
def doctor(as_json: Json = False) -> int:
    """Show versions, devices, MPI, data and extras."""
    from decibo.cli.doctor import doctor as look

    return look(as_json)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="run CONFIG.toml, or python SCRIPT.py.")],
    processes: Annotated[int, typer.Option("--processes", "-n", help="How many processes.")] = 2,
    restarts: Annotated[int, typer.Option(help="How often to start again after a loss.")] = 0,
    heartbeat: Annotated[float, typer.Option(help="Seconds of silence until one is lost.")] = 30.0,
    host: Annotated[str, typer.Option(help="The address on which they talk.")] = "127.0.0.1",
) -> int:
    """Start several processes that solve together.

    \b
    Examples:
      decibo launch -n 4 run problem.toml
      decibo launch -n 4 --restarts 3 run problem.toml --checkpoint
      decibo launch -n 2 python my_script.py
    """
    from decibo.parallel.launch import launch as start

    return start(command, processes, restarts=restarts, heartbeat=heartbeat, host=host)


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
) -> int:
    """Run the paper's figures and tables, claim by claim."""
    from decibo.paper import command, show

    results = command.reproduce(experiment, out, data, quick=quick, seeds=seeds, docs=docs, watch=show.Bar)
    if as_json:
        print(json.dumps(command.as_json(results), indent=2))
    else:
        show.results(results, out)
    return exits.RAN


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point. Returns after a good run, and otherwise leaves with the exit status of exits.MEANING."""
    code = call(sys.argv[1:] if argv is None else argv)
    if code:
        sys.exit(code)


def call(argv: Sequence[str]) -> int:
    """Carry out one command line; whatever goes wrong is one message and an exit status."""
    own = argv[: argv.index("launch")] if "launch" in argv else argv  # what follows belongs to the command it starts
    words = [word for word in own if word != "--debug"] + list(argv[len(own) :])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _note
        try:
            code = app(words, prog_name="decibo", standalone_mode=False)
            return code if isinstance(code, int) else exits.RAN
        except typer.Exit as stop:
            return stop.exit_code
        except SystemExit as stop:  # how typer ends when nobody reads the output any more
            if isinstance(stop.__context__, OSError):
                return exits.RAN
            raise
        except typer.Abort:
            return _failed(KeyboardInterrupt(), own)
        except (Exception, KeyboardInterrupt) as error:
            return _failed(error, own)


def _failed(error: BaseException, argv: Sequence[str]) -> int:
    from decibo.cli.errors import tell

    return tell(error, "--debug" in argv, "--json" in argv)


def _note(message: Any, *_: Any, **__: Any) -> None:
    print("decibo: note: " + " ".join(str(message).split()), file=sys.stderr)
