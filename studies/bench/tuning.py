r"""Tuning: one budget for every method, on seeds that are not those of judging.

A budget is (rounds x settings) runs of the task's number of steps on each tuning seed. A round
tries `settings` points at once, in one compiled program:

    (1)  round 1: a Latin hypercube over the ranges of all dials, on logarithmic scales
    (2)  round r: a Latin hypercube around the best so far, SHRINK times as wide as the one before
    (3)  where the best lies in the outer EDGE of a range, the next round is not narrower there, and
         goes beyond it

(3) widens the range; the note that a result carries says so, and says if the best still lies at the
edge of all that was tried. The score of a setting is the area under its curve, so that fast and
exact both count:

    (4)  the mean over records and tuning seeds of log10 max(|grad Phi|^2/|grad Phi(x0)|^2, 1e-12),
         or of Phi

A setting that diverges on one tuning seed is out. Methods without dials are not tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.run.solution import Status
from decibo.run.sweep import sweep
from studies.bench.entrants import Dial, Entrant, Settings
from studies.bench.judging import MEASURES, points
from studies.bench.tasks import Task

RECORDS = 8  # of a tuning run
SHRINK = 0.4
EDGE = 0.05
FLOOR = 1e-12


@dataclass(frozen=True)
class Search:
    """How much is tried: rounds x settings runs on each of the seeds."""

    rounds: int
    settings: int
    seeds: tuple[int, ...]


@dataclass
class Box:
    """The window of one search, in logarithms: its middle, its half width, and all that was tried
    in it."""

    middle: np.ndarray
    half: np.ndarray
    tried: list[tuple[np.ndarray, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> tuple[np.ndarray, float]:
        """The point with the lowest score; the earliest of equals."""
        return min(self.tried, key=lambda each: each[1])


@dataclass(frozen=True)
class Tuned:
    """What a search found: the settings, all that was tried, and what is to be said about it."""

    settings: Settings
    score: float
    tried: list[dict[str, float]]
    notes: list[str]


def tune(
    task: Task,
    entrant: Entrant,
    networks: Mapping[str, Network],
    problems: Sequence[Problem],
    scales: Mapping[str, float],
    search: Search,
    steps: int,
    seed: int = 0,
) -> dict[str, Tuned]:
    """The best settings on each network; `problems` are those of the tuning seeds."""
    if not entrant.dials:
        return {name: Tuned({}, np.nan, [], ["not tuned"]) for name in networks}
    ends = np.log(
        [[dial.low * scales[dial.unit], dial.high * scales[dial.unit]] for dial in entrant.dials]
    )
    caps = np.log([dial.most * scales[dial.unit] for dial in entrant.dials])
    boxes = {name: Box(ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2) for name in networks}
    rng = np.random.default_rng((seed, 29))
    for number in range(search.rounds):
        asked = {
            name: np.minimum(_hypercube(rng, box, search.settings), caps)
            for name, box in boxes.items()
        }
        scores = _scores(task, entrant, networks, problems, asked, search, steps)
        for name, box in boxes.items():
            box.tried += list(zip(asked[name], scores[name], strict=True))
            if number + 1 < search.rounds:
                _narrow(box, ends, entrant.dials)
    return {name: _tuned(box, ends, caps, entrant.dials) for name, box in boxes.items()}


def _hypercube(rng: np.random.Generator, box: Box, count: int) -> np.ndarray:
    """(1), (2): one point in each of `count` slices of every dial."""
    size = len(box.middle)
    slices = np.stack([rng.permutation(count) for _ in range(size)], axis=1)
    places = (slices + rng.uniform(size=(count, size))) / count
    return box.middle + box.half * (2 * places - 1)


def _narrow(box: Box, ends: np.ndarray, dials: Sequence[Dial]) -> None:
    """(2), (3): the window of the next round."""
    best, score = box.best
    if not np.isfinite(score):  # everything diverged: look among smaller values of all dials
        box.middle = box.middle - box.half
        box.notes.append("everything diverged in one round; the next one tried smaller values")
        return
    low = box.middle - box.half
    width = 2 * box.half
    place = (best - low) / width
    beyond = (place < EDGE) | (place > 1 - EDGE)
    for k, dial in enumerate(dials):
        if not beyond[k]:
            continue
        if best[k] - box.half[k] < ends[k, 0] - 1e-9 or best[k] + box.half[k] > ends[k, 1] + 1e-9:
            box.notes.append(f"{dial.name}: best at the edge, range widened")
    box.half = np.where(beyond, box.half, SHRINK * box.half)
    box.middle = best


def _scores(
    task: Task,
    entrant: Entrant,
    networks: Mapping[str, Network],
    problems: Sequence[Problem],
    asked: Mapping[str, np.ndarray],
    search: Search,
    steps: int,
) -> dict[str, np.ndarray]:
    """(4) of all settings on all networks."""
    cases = [(name, row) for name in networks for row in asked[name]]
    methods = [entrant.method(_values(entrant.dials, row), task.sampled) for _, row in cases]
    every = max(1, steps // RECORDS)
    total = np.zeros(len(cases))
    for problem, seed in zip(problems, search.seeds, strict=True):
        ran = sweep(
            problem,
            [networks[name] for name, _ in cases],
            methods,
            steps=steps,
            every=every,
            measures=MEASURES,
            seeds=[seed],
            progress=False,
        )
        if Status.interrupted in ran.status:
            raise KeyboardInterrupt
        lost = np.array([not status.sound for status in ran.status])
        X = np.where(lost[:, None, None], np.nan, ran.history["mean_x"])
        Y = ran.history["mean_y"]
        judged = points(
            problem, X.reshape(-1, X.shape[-1]), Y.reshape(-1, Y.shape[-1]), task.trained
        )[task.judged]
        judged = judged.reshape(X.shape[:2])
        with np.errstate(invalid="ignore"):
            total += score(task.judged, judged)
    total = np.where(np.isfinite(total), total / len(problems), np.inf)
    return {
        name: total[[k for k, (other, _) in enumerate(cases) if other == name]] for name in networks
    }


def score(judged: str, values: np.ndarray) -> np.ndarray:
    """(4) for rows of values, the first of each being that at the start."""
    later = values[:, 1:]
    if judged == "stationarity":
        later = np.log10(np.maximum(later / values[:, :1], FLOOR))
    return later.mean(axis=1)


def _values(dials: Sequence[Dial], row: np.ndarray) -> Settings:
    """Settings with four digits, which is what tables show and all that a search can tell."""
    return {
        dial.name: float(f"{np.exp(value):.4g}") for dial, value in zip(dials, row, strict=True)
    }


def _tuned(box: Box, ends: np.ndarray, caps: np.ndarray, dials: Sequence[Dial]) -> Tuned:
    best, score = box.best
    notes = list(dict.fromkeys(box.notes))
    rows = np.array([row for row, _ in box.tried])
    span = rows.max(axis=0) - rows.min(axis=0)
    for k, dial in enumerate(dials):
        below = best[k] - rows[:, k].min() < EDGE * span[k]
        above = rows[:, k].max() - best[k] < EDGE * span[k] and best[k] < caps[k] - 1e-9
        if below or above:
            notes.append(
                f"{dial.name}: still at the {'lower' if below else 'upper'} edge of what was tried"
            )
    if not np.isfinite(score):
        notes.append("every setting diverged")
    tried = [{**_values(dials, row), "score": float(value)} for row, value in box.tried]
    return Tuned(_values(dials, best), float(score), tried, notes)
