"""Results on the terminal: readable at 80 columns, without colours when piped; with --json only
JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from decibo.formatting import format_bytes, format_number, format_seconds, to_json
from decibo.report.summary import LAST
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


def console() -> Console:
    """The terminal as it is; a pipe is 80 columns wide and has no colours."""
    screen = Console(highlight=False)
    if screen.is_terminal:
        return screen
    return Console(width=WIDTH, color_system=None, highlight=False, force_terminal=False)


def draw(what: RenderableType) -> None:
    """Print it without trailing blanks and without empty lines around it."""
    screen = console()
    with screen.capture() as drawn:
        screen.print(what)
    print("\n".join(line.rstrip() for line in drawn.get().strip("\n").split("\n")))


def say(*lines: str) -> None:
    """Print text, wrapped between words."""
    for line in lines:
        draw(Text(line))


def path_of(path: str | Path) -> str:
    """A path as short as it can be written from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def as_typed(sets: Iterable[str], trusted: Iterable[str]) -> str:
    """The options --set and --trust as they were typed, quoted where a shell would read
    brackets."""
    quoted = [f"'{text}'" if set(text) & set('[]{}" ') else text for text in sets]
    return "".join(
        [*(f" --set {text}" for text in quoted), *(f" --trust {name}" for name in trusted)]
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1, gap: int = 2
) -> None:
    """A table whose first `left` columns are text and whose other ones are numbers."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0))
    for k, name in enumerate(head):
        drawn.add_column(
            name, justify="left" if k < left else "right", overflow="fold", no_wrap=k >= left
        )
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    draw(drawn)
    print()


def _cell(value: object) -> Text:
    text = value if isinstance(value, str) else format_number(value)
    return Text(text, style=COLOURS.get(text, ""))


def ordered(names: Iterable[str]) -> list[str]:
    """Measures, with those that are looked for first in front."""
    measures = [name for name in names if name != "step"]
    others = sorted((name for name in measures if name not in FIRST), key=lambda name: name in LAST)
    return [name for name in FIRST if name in measures] + others


def print_json(value: object) -> None:
    """Print JSON and nothing else; numbers that are not finite become null, since JSON has no word
    for them."""
    print(json.dumps(to_json(value), indent=2, allow_nan=False))


# One run, and several


def last(solution: Solution) -> dict[str, object]:
    """The last record of every measure."""
    return {
        name: solution.history[name][-1]
        for name in ordered(solution.history)
        if len(solution.history[name])
    }


def run_as_dict(solution: Solution, folder: Path | None) -> dict[str, object]:
    """What --json prints for a run."""
    cost = solution.cost
    totals = {
        name: getattr(cost, name)
        for name in ("work", "gradients_total", "work_total", "bytes_total")
    }
    return {
        "status": str(solution.status),
        "message": solution.message,
        "steps": solution.steps,
        "seconds": cost.seconds,
        "method": repr(solution.method),
        "network": repr(solution.network),
        "last": last(solution),
        "cost": {**asdict(cost), **totals},
        "folder": None if folder is None else str(folder),
    }


def show_run(solution: Solution) -> None:
    """A table of measures, with the first and the last record."""
    history = solution.history
    rows = [
        (name, history[name][0], history[name][-1])
        for name in ordered(history)
        if len(history[name])
    ]
    steps = history["step"]
    table(("measure", "start", f"step {int(steps[-1]):,}" if len(steps) else "end"), rows)
    cost = solution.cost
    products = f"{cost.products_total:,} products with second derivatives"
    computed = f"{cost.gradients_total:,.0f} gradients{f' and {products}' if cost.products else ''}"
    say(
        solution.message,
        f"{format_seconds(cost.seconds)} of steps, {format_seconds(cost.compiling)} of compiling, "
        f"{format_seconds(cost.measuring)} of measures; "
        f"{computed}, {format_bytes(cost.bytes_total)} sent.",
    )
