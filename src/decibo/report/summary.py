"""What histories show: which measure matters, what a step costs, and when a measure has fallen far
enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from decibo.errors import CorruptedFileError, InputError, warn
from decibo.formatting import MINUS
from decibo.runs.folder import RunRecord, read_run

# of a run, finished or not
TRACES = ("run.json", "history.csv", "history.parquet", "solution.npz", "checkpoint")
AXES = ("step", "work", "bytes", "seconds")  # what a curve can be drawn against
TARGETS = (1e-2, 1e-4, 1e-6, 1e-8)  # of the value at the start
ERRORS = ("stationarity", "distance_x", "inner_error", "distance_y")  # they vanish at the solution
PREFERRED = (*ERRORS, "phi", "outer")
# a method's own estimate, small wherever it rests: methods cannot be compared by it
LAST = ("direction_norm",)
SYMBOLS = {
    "stationarity": "|∇Φ|²",
    "distance_x": "|x - x*|²",
    "distance_y": "|y - y*|²",
    "inner_error": "|y - y*(x)|²",
    "phi": "Φ(x)",
    "outer": "mean f(x, y)",
    "inner": "mean g(x, y)",
    "outer_local": "mean f at each agent's own point",
    "inner_local": "mean g at each agent's own point",
    "gap": "mean g(x, y) - g(x, z)",
}

Folders = str | Path | Iterable[str | Path]


def load(folders: Folders) -> list[RunRecord]:
    """The runs in these folders; a folder that is not a run but holds runs, or folders of runs,
    stands for all of them, labels in the order in which they ran.

    Damaged and unfinished ones are left out with a warning, unless there is no other.
    """
    return load_all(folders)[0]


def load_all(folders: Folders) -> tuple[list[RunRecord], list[str]]:
    """The runs in these folders, and a sentence about each folder that was left out."""
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    if not given:
        raise InputError("There must be at least one run, but no folder was passed.")
    runs, errors = [], []
    for folder in given:
        found = []
        for path in _run_folders(Path(folder)):
            try:
                found.append(read_run(path))
            except (InputError, CorruptedFileError) as error:
                errors.append(error)
        begun: dict[str, str] = {}
        for run in sorted(found, key=lambda run: run.finished):
            begun.setdefault(run.label, run.finished)
        runs += sorted(found, key=lambda run: begun[run.label])
    if not runs:
        raise errors[0]
    left_out = [f"Left out: {error}" for error in errors]
    for sentence in left_out:
        warn(sentence)
    return runs, left_out


def _run_folders(folder: Path) -> list[Path]:
    """The folder, if it is a run; otherwise the runs in it, and in folders in it, such as one for
    each seed."""
    number = lambda part: (int(part), "") if part.isdigit() else (-1, part)
    order = lambda path: [number(part) for part in re.split(r"(\d+)", path.name)]  # 9 before 10
    inside = lambda place: sorted((path for path in place.iterdir() if path.is_dir()), key=order)
    begun = lambda place: any((place / name).exists() for name in TRACES)
    if folder.is_dir() and not (folder / "run.json").exists():
        parts = [[path] if begun(path) else filter(begun, inside(path)) for path in inside(folder)]
        if found := [run for part in parts for run in part]:
            return found
    return [folder]


def all_measures(runs: Sequence[RunRecord]) -> list[str]:
    """Every measure that some run recorded: first those that show whether a run went well."""
    names = list(dict.fromkeys(name for run in runs for name in run.measures))
    rank = lambda name: [*PREFERRED, name].index(name) + (name in LAST)
    return sorted(names, key=rank)


def main_measure(runs: Sequence[RunRecord]) -> str | None:
    """The measure to judge the runs by: the best one that all have, otherwise the best one that any
    has."""
    names = all_measures(runs)
    shared = [name for name in names if all(name in run.measures for run in runs)]
    return next(iter(shared or names), None)


def vanishes(measure: str) -> bool:
    """Whether a measure goes to zero when a run goes well."""
    return measure in ERRORS or measure == "gap" or measure.startswith("consensus_")


def is_maximised(measure: str) -> bool:
    """Whether a measure is better the larger it is: a share of right answers, by its name."""
    return measure.startswith(("accuracy", "correct"))


def symbols(measure: str) -> str:
    """What a measure is, in symbols; empty for a user's own."""
    if measure.startswith("consensus_"):
        return f"Σ|{measure.removeprefix('consensus_')}ᵢ {MINUS} mean|²"
    return SYMBOLS.get(measure, "").replace(" - ", f" {MINUS} ")


def is_logarithmic(runs: Sequence[RunRecord], measure: str) -> bool:
    """Whether a logarithmic scale suits a measure: more than two decades, and negative by rounding
    at most."""
    parts = [run.history[measure].astype(float) for run in runs if measure in run.history]
    values = np.concatenate([part[np.isfinite(part)] for part in parts] or [np.zeros(0)])
    positive = values[values > 0]
    return bool(
        positive.size
        and (values.min() >= 0 or (vanishes(measure) and 2 * positive.size > values.size))
        and positive.max() > 100 * positive.min()
    )


def starts_positive(run: RunRecord, measure: str) -> bool:
    """Whether a measure can be compared with its start."""
    values = run.history.get(measure, np.zeros(0))
    return bool(len(values) and np.isfinite(values[0]) and values[0] > 0)


def steps_to_targets(
    run: RunRecord, measure: str, targets: Iterable[float] = TARGETS
) -> list[int | None]:
    """The first recorded step at which the measure is at or below each fraction of its value at the
    start."""
    if not starts_positive(run, measure):
        return [None for _ in targets]
    values = run.history[measure].astype(float)
    hits = [np.flatnonzero(values <= target * values[0]) for target in targets]
    return [int(run.history["step"][hit[0]]) if len(hit) else None for hit in hits]


def cost_per_step(run: RunRecord) -> dict[str, float | None]:
    """What a step of all agents costs on every axis; seconds are None where they are not known."""
    return {
        "step": 1,
        "work": run.cost["work"] * run.cost["agents"],
        "gradients": run.cost["gradients"] * run.cost["agents"],
        "bytes": run.cost["bytes"] * run.cost["links"],
        "seconds": run.seconds / run.steps if run.steps > 0 and run.seconds > 0 else None,
    }


def spent(run: RunRecord) -> dict[str, float]:
    """What all agents computed and all links carried in the whole run."""
    step = cost_per_step(run)
    return {name: (step[name] or 0) * run.steps for name in ("gradients", "work", "bytes")}


def last_value(run: RunRecord, measure: str) -> float | None:
    """The last recorded value."""
    values = run.history.get(measure)
    return float(values[-1]) if values is not None and len(values) else None
