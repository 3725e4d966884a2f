"""What the page's script draws: curves, thinned to what a screen can show, and the exact steps to
targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from decibo.formatting import Json
from decibo.report.figures import DASHES, LIGHT, line_style
from decibo.report.group import Group, caption
from decibo.report.summary import (
    AXES,
    TARGETS,
    all_measures,
    is_logarithmic,
    starts_positive,
    steps_to_targets,
    symbols,
    vanishes,
)
from decibo.run.seeds import Course, band
from decibo.runs.folder import RunRecord

POINTS = 2000  # of a curve
PAPER = {
    "ink": "#1c2128",
    "soft": "#57606c",
    "line": "#c9ced6",
    "grid": "#e6e9ee",
    "panel": "#ffffff",
}


def chart_data(groups: Sequence[Group], measure: str | None) -> dict[str, Json]:
    """Everything the script draws, as JSON can hold it."""
    runs = [run for group in groups for run in group.runs]
    names = all_measures(runs)
    return {
        "measures": [
            {"name": name, "words": symbols(name), "log": is_logarithmic(runs, name)}
            for name in names
        ],
        "measure": measure,
        "target": _target_measure(runs, names, measure),
        "targets": list(TARGETS),
        "paper": {**PAPER, **{f"c{k}": colour for k, colour in enumerate(LIGHT)}},
        "runs": [_line(k, group) for k, group in enumerate(groups)],
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
    bands = {name: group.band(name) for name in group.measures}
    step = next(iter(bands.values())).step if bands else group.first.history["step"]
    records = thinned(len(step))

    def drawn(part: str) -> Json:
        return {
            name: [_rounded(value) for value in getattr(each, part)[records]]
            for name, each in bands.items()
        }

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
        "reach": {
            name: [_median_step(group, name, target) for target in TARGETS]
            for name in group.measures
        },
        "zero": [name for name in group.measures if not group.reaches(name)],
    }


def _median_step(group: Group, measure: str, target: float) -> float | None:
    """The median over the seeds of the first step at which the target is reached; a seed that does
    not, never does."""
    steps = [steps_to_targets(run, measure, [target])[0] for run in group.runs]
    course = lambda step: Course(
        np.zeros(1), np.array([np.inf if step is None else step], float), ""
    )
    median = float(band(list(map(course, steps)), "range").median[0])
    return median if math.isfinite(median) else None


def _rounded(value: float) -> float | None:
    """Six digits are more than a screen shows."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _target_measure(
    runs: Sequence[RunRecord], names: Sequence[str], measure: str | None
) -> str | None:
    """The measure of the table: the main one if it can be compared with its start, otherwise the
    first that can."""
    comparable = [
        name
        for name in names
        if any(name in run.measures and starts_positive(run, name) for run in runs)
    ]
    suitable = [name for name in comparable if vanishes(name)] or comparable
    return measure if measure in suitable else next(iter(suitable), measure)
