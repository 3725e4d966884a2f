"""What the page's script draws: curves, thinned to what a screen can show, and the exact steps to
targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from decibo.formatting import Json
from decibo.report.figures import DASHES, LIGHT, line_style
from decibo.report.group import Group, caption
from decibo.report.summary import (
    AXES,
    TARGETS,
    all_measures,
    is_logarithmic,
    steps_to_targets,
    symbols,
)

POINTS = 2000  # of a curve
INK = {"ink": "#1c2128", "soft": "#57606c"}
PAPER = INK | {"line": "#c9ced6", "grid": "#e6e9ee", "panel": "#ffffff"}


def chart_data(groups: Sequence[Group], measure: str | None) -> dict[str, Json]:
    """Everything the script draws, as JSON can hold it."""
    runs = [run for group in groups for run in group.runs]
    names = all_measures(runs)
    about = lambda name: {"name": name, "words": symbols(name), "log": is_logarithmic(runs, name)}
    lines: Any = [_line(k, group) for k, group in enumerate(groups)]
    # The measure of the table of targets: the main one if some run reached one, otherwise the first
    # with which one did.
    came = [name for name in names if any(line["reach"].get(name, [None])[0] for line in lines)]
    return {
        "measures": [about(name) for name in names],
        "measure": measure,
        "target": measure if measure in came else next(iter(came), None),
        "targets": list(TARGETS),
        "paper": {**PAPER, **{f"c{k}": colour for k, colour in enumerate(LIGHT)}},
        "runs": lines,
        "dashes": list(DASHES),
        "bands": caption(groups, "quartiles"),
    }


def thinned(count: int, most: int = POINTS) -> np.ndarray:
    """Which of so many records to draw: all, or some that are spread evenly on a linear and on a
    logarithmic axis."""
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most * 3 // 4)
    log = np.geomspace(1, count, most // 4) - 1
    return np.unique(np.concatenate([even, log]).round().astype(int))


def _line(k: int, group: Group) -> dict[str, Json]:
    """A group as the script draws it: its medians, and the quartiles around them if there are
    several seeds."""
    colour, dash = line_style(k)
    # The median over the seeds of the first step at each target; a seed that does not get there
    # never does.
    reach: dict[str, Json] = {}
    for name in group.measures:
        steps = [steps_to_targets(run, name) for run in group.runs]
        medians = np.median([[np.inf if s is None else s for s in row] for row in steps], axis=0)
        reach[name] = [step if math.isfinite(step) else None for step in medians.tolist()]
    bands = {name: group.band(name) for name in group.measures}
    step = next(iter(bands.values())).step if bands else group.first.history["step"]
    records = thinned(len(step))

    # Six digits are more than a screen shows.
    rounded = lambda value: float(f"{value:.6g}") if math.isfinite(value) else None

    def drawn(part: str) -> Json:
        rows = {name: getattr(each, part)[records] for name, each in bands.items()}
        return {name: list(map(rounded, row)) for name, row in rows.items()}

    return {
        "label": group.legend,
        "colour": colour,
        "dash": dash,
        "sound": group.sound,
        "seeds": len(group.runs),
        "lost": group.lost,
        "per": {axis: group.price(axis) for axis in AXES},
        "step": step[records].tolist(),
        "values": drawn("median"),
        "low": drawn("low") if group.several else {},
        "high": drawn("high") if group.several else {},
        "reach": reach,
        "zero": [name for name in group.measures if not group.reaches(name)],
    }
