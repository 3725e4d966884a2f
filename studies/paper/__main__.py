"""The paper's figures and tables, claim by claim.

python -m studies.paper fig1
python -m studies.paper all --quick
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from decibo.cli import cache, terminal
from decibo.cli.app import Json, main
from decibo.cli.errors import Exit
from decibo.run.observers import Line
from studies.paper import suite
from studies.paper.experiment import Outcome, Verdict

COLOURS = {Verdict.holds: "green", Verdict.fails: "red", Verdict.open: "yellow"}

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="fig1, fig2, table1, fig3, fig4, rates, minimax, remarks, future or all",
            metavar="EXPERIMENT",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for figures, CSV and JSON.")] = Path(
        "out/reproduction"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Folder with mnist.npz, a9a; default $DECIBO_DATA.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds and steps: minutes for all.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds, instead of the default.")
    ] = None,
    as_json: Json = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Also write paper.md, paper.json and figures here: studies/results."),
    ] = None,
) -> int:
    """Run the paper's figures and tables, claim by claim."""
    cache.enable()
    outcomes = suite.reproduce(
        experiment, out, data, quick=quick, seeds=seeds, results=results, watch=_watch
    )
    if as_json:
        print(json.dumps(suite.as_json(outcomes), indent=2))
    else:
        for outcome in outcomes:
            _show(outcome)
    return Exit.RAN


@contextmanager
def _watch(name: str) -> Iterator[Callable[[float], None]]:
    """The live line of a run, for the share of an experiment that is done."""
    with Line(name) if sys.stderr.isatty() else nullcontext() as view:
        yield lambda share: None if view is None else view(round(100 * share), 100, {})


def _show(outcome: Outcome) -> None:
    result = outcome.result
    table = Table(box=box.SQUARE, show_lines=True)
    table.add_column("the paper says", ratio=3)
    table.add_column("measured", ratio=4)
    table.add_column("verdict", width=14)
    for claim in result.claims:
        verdict = Text(str(claim.verdict), style=COLOURS[claim.verdict])
        table.add_row(Text(claim.paper), Text(claim.finding), verdict)
    print()
    terminal.draw(Text(result.title, style="bold"))
    terminal.say(f"data: {result.data}")
    terminal.draw(table)
    terminal.say(*(f"* {note}" for note in result.notes))
    print(f"{outcome.seconds:.0f} s, written to {terminal.path_of(outcome.folder)}")


if __name__ == "__main__":
    main(commands=app, name="python -m studies.paper")
