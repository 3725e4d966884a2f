"""Results on the terminal: readable at 80 columns, without colours when piped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from decibo.paper.claims import Verdict
from decibo.paper.command import Done

COLOURS = {Verdict.holds: "green", Verdict.fails: "red", Verdict.open: "yellow"}


class Bar:
    """A progress bar on stderr, if somebody watches."""

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description:8}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task(name, total=1.0)

    def __enter__(self) -> Any:
        self.bar.start()
        return lambda done: self.bar.update(self.task, completed=done)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def results(done: Sequence[Done], out: Path) -> None:
    """A table claim by claim for each experiment."""
    console = Console()
    console = console if console.is_terminal else Console(width=80, color_system=None)
    for one in done:
        console.print(f"\n[bold]{one.result.title}[/bold]")
        console.print(f"data: {escape(one.result.data)}", highlight=False)
        console.print(_claims(one))
        for note in one.result.notes:
            console.print(f"* {escape(note)}", highlight=False)
        console.print(f"{one.seconds:.0f} s, written to {one.folder}", highlight=False, soft_wrap=True)


def _claims(one: Done) -> Table:
    table = Table(show_lines=True, expand=False)
    table.add_column("the paper says", ratio=3)
    table.add_column("measured", ratio=4)
    table.add_column("verdict", width=14)
    for claim in one.result.claims:
        measured = claim.measured + (f" ({claim.note})" if claim.note else "")
        colour = COLOURS[claim.verdict]
        table.add_row(escape(claim.paper), escape(measured), f"[{colour}]{claim.verdict}[/{colour}]")
    return table
