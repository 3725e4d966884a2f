"""What the page's script gets: curves thinned to what a screen can show, and what targets took, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from decibo.report.palette import DASH, LIGHT, look
from decibo.report.summary import TARGETS, all_measures, logarithmic, per_step, reached, vanishes, words
from decibo.runs.folder import RunRecord

POINTS = 2000  # of a curve
PAPER = {"ink": "#1c2128", "soft": "#57606c", "line": "#c9ced6", "grid": "#e6e9ee", "panel": "#ffffff"}


def payload(runs: Sequence[RunRecord], labels: Sequence[str], measure: str | None) -> dict[str, Any]:
    """Everything the script draws, as JSON can hold it."""
    shown = all_measures(runs)
    paper = PAPER | {f"c{k}": colour for k, colour in enumerate(LIGHT)}
    measures = [{"name": name, "words": words(name), "log": logarithmic(runs, name)} for name in shown]
    return {
        "measures": measures,
        "measure": measure,
        "target": _target(runs, shown, measure),
        "targets": list(TARGETS),
        "paper": paper,
        "runs": [_run(k, run, label) for k, (run, label) in enumerate(zip(runs, labels, strict=True))],
        "dashes": list(DASH),
    }


def thinned(count: int, most: int = POINTS) -> np.ndarray:
    """Which of so many records to draw: all, or some that lie evenly on a linear and on a logarithmic axis."""
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most * 3 // 4)
    log = np.geomspace(1, count, most // 4) - 1
    return np.unique(np.concatenate([even, log]).round().astype(int))


def _run(k: int, run: RunRecord, label: str) -> dict[str, Any]:
    colour, dash = look(k)
    kept = thinned(len(run.history["step"]))
    return {
        "label": label,
        "colour": colour,
        "dash": dash,
        "status": run.status,
        "per": per_step(run),
        "step": run.history["step"][kept].tolist(),
        "values": {name: [_short(value) for value in run.history[name][kept].tolist()] for name in run.measures},
        "reach": {name: reached(run, name) for name in run.measures},
        "zero": [name for name in run.measures if not _starts(run, name)],
    }


def _short(value: Any) -> float | None:
    """Six digits are more than a screen shows."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _starts(run: RunRecord, name: str) -> bool:
    values = run.history[name]
    return bool(len(values) and np.isfinite(values[0]) and values[0] > 0)


def _target(runs: Sequence[RunRecord], shown: Sequence[str], measure: str | None) -> str | None:
    """The measure of the table: the main one if it can be compared with its start, otherwise the first that can."""
    fit = [name for name in shown if any(name in run.measures and _starts(run, name) for run in runs)]
    good = [name for name in fit if vanishes(name)] or fit
    return measure if measure in good else next(iter(good), measure)
