"""What is read off histories: which measure matters, and when it has fallen far enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decibo.errors import InputError
from decibo.formatting import MINUS
from decibo.runs.folder import RunRecord, is_run, read_run

TARGETS = (1e-2, 1e-4, 1e-6, 1e-8)  # of the value at the start
ERRORS = ("stationarity", "distance_x", "inner_error", "distance_y")  # they vanish at the solution
PREFERRED = (*ERRORS, "phi", "outer")
AXES = ("step", "gradients", "bytes", "seconds")
WORDS = {
    "stationarity": "|∇Φ|²",
    "distance_x": "|x - x*|²",
    "distance_y": "|y - y*|²",
    "inner_error": "|y - y*(x)|²",
    "phi": "Φ(x)",
    "outer": "mean f",
    "inner": "mean g",
    "gap": "mean g(x, y) - g(x, z)",
}


def load(folders: Any) -> list[RunRecord]:
    """The runs in these folders; a folder that only holds runs stands for all of them, by name."""
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    found = [place for folder in given for place in _runs(Path(folder))]
    if not found:
        raise InputError("no folders", "there must be at least one run", "Give the folder of a run.")
    return [read_run(place) for place in found]


def names(runs: Sequence[RunRecord]) -> list[str]:
    """The labels, made different where two runs have the same."""
    labels = [run.label.strip() or run.folder.name for run in runs]
    taken: set[str] = set()
    for k, label in enumerate(labels):
        count = 2
        while labels[k] in taken:
            labels[k], count = f"{label} ({count})", count + 1
        taken.add(labels[k])
    return labels


def all_measures(runs: Sequence[RunRecord]) -> list[str]:
    """Every measure that some run recorded: first those that say whether a run went well."""
    found = dict.fromkeys(name for run in runs for name in run.measures)
    first = [name for name in PREFERRED if name in found]
    return first + [name for name in found if name not in first]


def main_measure(runs: Sequence[RunRecord]) -> str | None:
    """The measure to judge the runs by: the best one that all have, otherwise that any has."""
    found = all_measures(runs)
    shared = [name for name in found if all(name in run.measures for run in runs)]
    return next(iter(shared or found), None)


def vanishes(name: str) -> bool:
    """Whether a measure goes to zero when a run goes well."""
    return name in ERRORS or name == "gap" or name.startswith("consensus_")


def words(name: str) -> str:
    """What a measure is, in symbols; empty for a user's own."""
    if name.startswith("consensus_"):
        return f"Σ|{name.removeprefix('consensus_')}ᵢ {MINUS} mean|²"
    return WORDS.get(name, "").replace(" - ", f" {MINUS} ")


def logarithmic(runs: Sequence[RunRecord], name: str) -> bool:
    """Whether a logarithmic scale suits a measure: more than two decades, and negative by rounding at most."""
    parts = [run.history[name].astype(float) for run in runs if name in run.history]
    values = np.concatenate([part[np.isfinite(part)] for part in parts] or [np.zeros(0)])
    positive = values[values > 0]
    return bool(
        positive.size
        and (values.min() >= 0 or (vanishes(name) and 2 * positive.size > values.size))
        and positive.max() > 100 * positive.min()
    )


def reached(run: RunRecord, measure: str, targets: Iterable[float] = TARGETS) -> list[int | None]:
    """The first recorded step at which the measure is at or below each fraction of its value at the start."""
    values = run.history.get(measure, np.zeros(0)).astype(float)
    if not len(values) or not (np.isfinite(values[0]) and values[0] > 0):
        return [None for _ in targets]
    hits = [np.flatnonzero(values <= target * values[0]) for target in targets]
    return [int(run.history["step"][hit[0]]) if len(hit) else None for hit in hits]


def per_step(run: RunRecord) -> dict[str, float | None]:
    """What a step of all agents costs on every axis; seconds are None where they are not known."""
    cost = run.cost
    seconds = run.seconds / run.steps if run.steps > 0 and run.seconds > 0 else None
    gradients, sent = cost["gradients"] * cost["agents"], cost["bytes"] * cost["links"]
    return {"step": 1, "gradients": gradients, "bytes": sent, "seconds": seconds}


def last(run: RunRecord, measure: str) -> float | None:
    """The last recorded value."""
    values = run.history.get(measure)
    return float(values[-1]) if values is not None and len(values) else None


def _runs(folder: Path) -> list[Path]:
    if folder.is_dir() and not (folder / "run.json").exists():
        inner = sorted(each for each in folder.iterdir() if each.is_dir() and is_run(each))
        if inner:
            return inner
    return [folder]
