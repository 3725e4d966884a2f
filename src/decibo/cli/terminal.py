"""Outcomes on the terminal: readable at 80 columns, no colours when piped; with --json only JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 80
# What a reader looks for first.
FIRST = ("stationarity", "direction_norm", "phi", "distance_x", "inner_error", "consensus_x", "outer", "gap")
COLOURS = {"done": "green", "converged": "green", "diverged": "red", "interrupted": "yellow", "failed": "red"}


def console() -> Console:
    """The terminal as it is; a pipe is 80 columns wide and has no colours."""
    found = Console(highlight=False)
    return (
        found if found.is_terminal else Console(width=WIDTH, color_system=None, highlight=False, force_terminal=False)
    )


def draw(what: Any) -> None:
    """Print it without the blanks that fill its lines and without empty lines around it."""
    screen = console()
    with screen.capture() as drawn:
        screen.print(what)
    print("\n".join(line.rstrip() for line in drawn.get().strip("\n").split("\n")))


def say(*lines: str) -> None:
    """Text, wrapped between words."""
    for line in lines:
        draw(Text(line))


def path_of(path: Path) -> str:
    """A path as short as it can be written from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> None:
    """A table whose first `left` columns are text and whose other ones are numbers."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for k, name in enumerate(head):
        drawn.add_column(name, justify="left" if k < left else "right", overflow="fold", no_wrap=k >= left)
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    draw(drawn)
    print()


def _cell(value: Any) -> Text:
    text = value if isinstance(value, str) else number(value)
    return Text(text, style=COLOURS.get(text, ""))


def number(value: Any) -> str:
    """A number in a few characters."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if np.ndim(value):
        return f"{np.size(value)} numbers"
    size = abs(float(value))
    return f"{float(value):.2e}" if size and not 1e-2 <= size < 1e5 else f"{float(value):.4g}"


def amount(count: float) -> str:
    """Bytes in a unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def ordered(names: Iterable[str]) -> list[str]:
    """Measures, those that are looked for first in front."""
    found = [name for name in names if name != "step"]
    return [name for name in FIRST if name in found] + [name for name in found if name not in FIRST]


def as_json(value: Any) -> None:
    """Print JSON and nothing else; numbers that are not finite become null, since JSON has no word for them."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):
        return plain(np.asarray(value).tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
