"""decibo reproduce: the paper's figures and tables, claim by claim."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.run.progress import Line
from studies.paper import suite
from studies.paper.result import Outcome, Result, Verdict

COLOURS = {Verdict.holds: "green", Verdict.fails: "red", Verdict.open: "yellow"}


def reproduce(
    name: str,
    out: Path,
    data: Path | None,
    quick: bool,
    seeds: int | None,
    docs: Path | None,
    as_json: bool,
) -> Exit:
    """Run one experiment or all, write their folders, and show which claims of the paper hold."""
    outcomes = suite.reproduce(name, out, data, quick=quick, seeds=seeds, docs=docs, watch=_watch)
    if as_json:
        print(json.dumps(suite.as_json(outcomes), indent=2))
    else:
        _show(outcomes)
    return Exit.RAN


@contextmanager
def _watch(name: str) -> Iterator[Callable[[float], None]]:
    """The live line of a run, for the share of an experiment that is done."""
    with Line(name) if sys.stderr.isatty() else nullcontext() as view:
        yield lambda share: None if view is None else view(round(100 * share), 100, {})


def _show(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        print()
        terminal.draw(Text(outcome.result.title, style="bold"))
        terminal.say(f"data: {outcome.result.data}")
        terminal.draw(_claims(outcome.result))
        terminal.say(*(f"* {note}" for note in outcome.result.notes))
        print(f"{outcome.seconds:.0f} s, written to {terminal.path_of(outcome.folder)}")


def _claims(result: Result) -> Table:
    table = Table(box=box.SQUARE, show_lines=True)
    table.add_column("the paper says", ratio=3)
    table.add_column("measured", ratio=4)
    table.add_column("verdict", width=14)
    for claim in result.claims:
        verdict = Text(str(claim.verdict), style=COLOURS[claim.verdict])
        table.add_row(Text(claim.paper), Text(claim.finding), verdict)
    return table
