"""Results on the terminal: readable at 80 columns, without colours when piped; with --json only
JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from decibo.run.solution import Solution

WIDTH = 80
# What a reader looks for first.
FIRST = ("stationarity", "phi", "outer", "distance_x", "inner_error", "consensus_x", "gap")
COLOURS = {
    "done": "green",
    "converged": "green",
    "stopped": "green",
    "diverged": "red",
    "interrupted": "yellow",
    "failed": "red",
}


def width() -> int:
    """The columns of the terminal; a pipe has 80."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def say(*lines: str) -> None:
    """Print text, wrapped between words."""
    for line in lines:
        for text in line.split("\n"):
            print("\n".join(textwrap.wrap(text, width(), break_on_hyphens=False)))


def path_of(path: str | Path) -> str:
    """A path as short as it can be written from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def draw(what: RenderableType) -> None:
    """Print it without trailing blanks and without empty lines around it."""
    from rich.console import Console

    screen = Console(highlight=False)
    if not screen.is_terminal:
        screen = Console(width=WIDTH, color_system=None, highlight=False, force_terminal=False)
    with screen.capture() as drawn:
        screen.print(what)
    print("\n".join(line.rstrip() for line in drawn.get().strip("\n").split("\n")))


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1, gap: int = 2
) -> None:
    """A table whose first `left` columns are text and whose other ones are numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from decibo.formatting import format_number

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0))
    for k, name in enumerate(head):
        drawn.add_column(
            name, justify="left" if k < left else "right", overflow="fold", no_wrap=k >= left
        )
    for row in rows:
        texts = [value if isinstance(value, str) else format_number(value) for value in row]
        drawn.add_row(*(Text(text, style=COLOURS.get(text, "")) for text in texts))
    draw(drawn)
    print()


def ordered(names: Iterable[str]) -> list[str]:
    """Measures, with those that are looked for first in front."""
    from decibo.report.summary import LAST

    measures = [name for name in names if name != "step"]
    others = sorted((name for name in measures if name not in FIRST), key=lambda name: name in LAST)
    return [name for name in FIRST if name in measures] + others


def print_json(value: object) -> None:
    """Print JSON and nothing else; numbers that are not finite become null, since JSON has no word
    for them."""
    from decibo.formatting import to_json

    print_plain_json(to_json(value))


def print_plain_json(value: object) -> None:
    """The same for texts, lists and dictionaries, which need no conversion."""
    print(json.dumps(value, indent=2, allow_nan=False))


def run_as_dict(solution: Solution, folder: Path | None) -> dict[str, object]:
    """What --json prints for a run."""
    cost = solution.cost
    totals = ("work", "gradients_total", "work_total", "bytes_total")
    history = solution.history
    return {
        "status": str(solution.status),
        "message": solution.message,
        "steps": solution.steps,
        "seconds": cost.seconds,
        "method": repr(solution.method),
        "network": repr(solution.network),
        "last": {name: history[name][-1] for name in ordered(history) if len(history[name])},
        "cost": {**asdict(cost), **{name: getattr(cost, name) for name in totals}},
        "folder": None if folder is None else str(folder),
    }


def show_run(solution: Solution) -> None:
    """A table of measures, with the first and the last record."""
    from decibo.formatting import format_bytes, format_seconds

    history = solution.history
    cost = solution.cost
    names = [name for name in ordered(history) if len(history[name])]
    rows = [(name, history[name][0], history[name][-1]) for name in names]
    steps = history["step"]
    table(("measure", "start", f"step {int(steps[-1]):,}" if len(steps) else "end"), rows)
    products = f"{cost.products_total:,} products with second derivatives"
    computed = f"{cost.gradients_total:,.0f} gradients{f' and {products}' if cost.products else ''}"
    say(
        solution.message,
        f"{format_seconds(cost.seconds)} of steps, {format_seconds(cost.compiling)} of compiling, "
        f"{format_seconds(cost.measuring)} of measures; "
        f"{computed}, {format_bytes(cost.bytes_total)} sent.",
    )
