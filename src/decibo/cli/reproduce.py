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
from decibo.execute.progress import Line
from decibo.paper import command

COLOURS = {"holds": "green", "fails": "red", "open": "yellow"}


def reproduce(
    name: str, out: Path, data: Path | None, quick: bool, seeds: int | None, docs: Path | None, as_json: bool
) -> Exit:
    """Run one experiment or all, write their folders, and show which claims of the paper hold."""
    results = command.reproduce(name, out, data, quick=quick, seeds=seeds, docs=docs, watch=_watch)
    if as_json:
        print(json.dumps(command.as_json(results), indent=2))
    else:
        _show(results)
    return Exit.RAN


@contextmanager
def _watch(name: str) -> Iterator[Callable[[float], None]]:
    """The live line of a run, for the share of an experiment that is done."""
    with Line(name) if sys.stderr.isatty() else nullcontext() as view:
        yield lambda share: None if view is None else view(round(100 * share), 100, {})


def _show(results: Sequence[command.Done]) -> None:
    for one in results:
        print()
        terminal.draw(Text(one.result.title, style="bold"))
        terminal.say(f"data: {one.result.data}")
        terminal.draw(_claims(one))
        terminal.say(*(f"* {note}" for note in one.result.notes))
        print(f"{one.seconds:.0f} s, written to {terminal.path_of(one.folder)}")


def _claims(one: command.Done) -> Table:
    table = Table(box=box.SQUARE, show_lines=True)
    table.add_column("the paper says", ratio=3)
    table.add_column("measured", ratio=4)
    table.add_column("verdict", width=14)
    for claim in one.result.claims:
        measured = claim.measured + (f" ({claim.note})" if claim.note else "")
        verdict = Text(str(claim.verdict), style=COLOURS[claim.verdict.name])
        table.add_row(Text(claim.paper), Text(measured), verdict)
    return table
