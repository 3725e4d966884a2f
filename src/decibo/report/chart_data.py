"""What the page's script draws: curves, thinned to what a screen can show, and the exact steps to targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from decibo.formatting import Json
from decibo.report.figures import DASHES, LIGHT, line_style
from decibo.report.summary import (
    AXES,
    TARGETS,
    all_measures,
    cost_per_step,
    is_logarithmic,
    starts_positive,
    steps_to_targets,
    symbols,
    vanishes,
)
from decibo.runs.folder import RunRecord

POINTS = 2000  # of a curve
PAPER = {"ink": "#1c2128", "soft": "#57606c", "line": "#c9ced6", "grid": "#e6e9ee", "panel": "#ffffff"}


def chart_data(runs: Sequence[RunRecord], labels: Sequence[str], measure: str | None) -> dict[str, Json]:
    """Everything the script draws, as JSON can hold it."""
    names = all_measures(runs)
    return {
        "measures": [{"name": name, "words": symbols(name), "log": is_logarithmic(runs, name)} for name in names],
        "measure": measure,
        "target": _target_measure(runs, names, measure),
        "targets": list(TARGETS),
        "paper": {**PAPER, **{f"c{k}": colour for k, colour in enumerate(LIGHT)}},
        "runs": [_run(k, run, label) for k, (run, label) in enumerate(zip(runs, labels, strict=True))],
        "dashes": list(DASHES),
    }


def thinned(count: int, most: int = POINTS) -> np.ndarray:
    """Which of so many records to draw: all, or some that are spread evenly on a linear and on a logarithmic axis."""
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most * 3 // 4)
    log = np.geomspace(1, count, most // 4) - 1
    return np.unique(np.concatenate([even, log]).round().astype(int))


def _run(k: int, run: RunRecord, label: str) -> dict[str, Json]:
    colour, dash = line_style(k)
    records = thinned(len(run.history["step"]))
    return {
        "label": label,
        "colour": colour,
        "dash": dash,
        "sound": run.sound,
        "per": {axis: price for axis, price in cost_per_step(run).items() if axis in AXES},
        "step": run.history["step"][records].tolist(),
        "values": {name: [_rounded(value) for value in run.history[name][records].tolist()] for name in run.measures},
        "reach": {name: list(steps_to_targets(run, name)) for name in run.measures},
        "zero": [name for name in run.measures if not starts_positive(run, name)],
    }


def _rounded(value: float) -> float | None:
    """Six digits are more than a screen shows."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _target_measure(runs: Sequence[RunRecord], names: Sequence[str], measure: str | None) -> str | None:
    """The measure of the table: the main one if it can be compared with its start, otherwise the first that can."""
    comparable = [name for name in names if any(name in run.measures and starts_positive(run, name) for run in runs)]
    suitable = [name for name in comparable if vanishes(name)] or comparable
    return measure if measure in suitable else next(iter(suitable), measure)
