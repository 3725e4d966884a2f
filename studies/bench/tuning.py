r"""Tuning: one budget for every method, on seeds that are not those of judging.

A budget is (rounds x settings) runs of the task's number of steps on each tuning seed. A round
tries `settings` points at once, in one compiled program:

    (1)  round 1: a Latin hypercube over the ranges of all hyper-parameters, on logarithmic scales
    (2)  round r: a Latin hypercube around the best so far, SHRINK times as wide as the one before
    (3)  where the best lies within MARGIN of the boundary of a range, the next round is not
         narrower there, and extends beyond it

(3) widens the range; the note of a result says so, and says if the best still lies at the boundary
of all that was tried. The score of a setting is the area under its curve, so that fast and exact
both count:

    (4)  the mean over records and tuning seeds of log10 max(|grad Phi|^2/|grad Phi(x0)|^2, 1e-12),
         or of Phi

A setting that diverges on one tuning seed is excluded. Methods without hyper-parameters are not
tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.run.solution import Status
from decibo.run.sweep import sweep
from studies.bench.judging import MEASURES, points
from studies.bench.methods import HyperParameter, Settings, TunableMethod
from studies.bench.tasks import Task

RECORDS = 8  # of a tuning run
SHRINK = 0.4
MARGIN = 0.05
FLOOR = 1e-12


@dataclass(frozen=True)
class Search:
    """How much is tried: rounds x settings runs on each of the seeds."""

    rounds: int
    settings: int
    seeds: tuple[int, ...]


@dataclass
class Window:
    """Where a search samples, in logarithms: its centre, its half width, and all that was tried."""

    centre: np.ndarray
    half: np.ndarray
    tried: list[tuple[np.ndarray, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> tuple[np.ndarray, float]:
        """The point with the lowest score; the earliest of equals."""
        return min(self.tried, key=lambda each: each[1])


@dataclass(frozen=True)
class Tuned:
    """What a search found: the settings, all that was tried, and notes for the reader."""

    settings: Settings
    score: float
    tried: list[dict[str, float]]
    notes: list[str]


def tune(
    task: Task,
    method: TunableMethod,
    networks: Mapping[str, Network],
    problems: Sequence[Problem],
    scales: Mapping[str, float],
    search: Search,
    steps: int,
    seed: int = 0,
) -> dict[str, Tuned]:
    """The best settings on each network; `problems` are those of the tuning seeds."""
    space = method.hyper_parameters
    if not space:
        return {name: Tuned({}, np.nan, [], ["not tuned"]) for name in networks}
    scale = np.array([scales[each.unit] for each in space])
    ends = np.log([[each.low, each.high] for each in space]) + np.log(scale)[:, None]
    caps = np.log([each.most for each in space] * scale)
    windows = {name: Window(ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2) for name in networks}
    rng = np.random.default_rng((seed, 29))
    for number in range(search.rounds):
        candidates = {
            name: np.minimum(_hypercube(rng, window, search.settings), caps)
            for name, window in windows.items()
        }
        scores = _scores(task, method, networks, problems, candidates, search, steps)
        for name, window in windows.items():
            window.tried += list(zip(candidates[name], scores[name], strict=True))
            if number + 1 < search.rounds:
                _narrow(window, ends, space)
    return {name: _tuned(window, caps, space) for name, window in windows.items()}


def _hypercube(rng: np.random.Generator, window: Window, count: int) -> np.ndarray:
    """(1), (2): one point in each of `count` slices of every hyper-parameter."""
    size = len(window.centre)
    slices = np.stack([rng.permutation(count) for _ in range(size)], axis=1)
    shares = (slices + rng.uniform(size=(count, size))) / count
    return window.centre + window.half * (2 * shares - 1)


def _narrow(window: Window, ends: np.ndarray, space: Sequence[HyperParameter]) -> None:
    """(2), (3): the window of the next round."""
    best, score = window.best
    half = window.half
    if not np.isfinite(score):
        # Everything diverged: smaller values are the likeliest remedy, of every hyper-parameter.
        window.centre = window.centre - half
        window.notes.append("everything diverged in one round; the next one tried smaller values")
        return
    share = (best - window.centre + half) / (2 * half)
    at_boundary = (share < MARGIN) | (share > 1 - MARGIN)
    beyond = (best - half < ends[:, 0] - 1e-9) | (best + half > ends[:, 1] + 1e-9)
    window.notes += [
        f"{each.name}: best at the boundary, range widened"
        for k, each in enumerate(space)
        if at_boundary[k] and beyond[k]
    ]
    window.half = np.where(at_boundary, half, SHRINK * half)
    window.centre = best


def _scores(
    task: Task,
    method: TunableMethod,
    networks: Mapping[str, Network],
    problems: Sequence[Problem],
    tried: Mapping[str, np.ndarray],
    search: Search,
    steps: int,
) -> dict[str, np.ndarray]:
    """(4) of all settings on all networks."""
    cases = [(name, row) for name in networks for row in tried[name]]
    made = [method.method(_values(method.hyper_parameters, row), task.sampled) for _, row in cases]
    total = np.zeros(len(cases))
    for problem, seed in zip(problems, search.seeds, strict=True):
        ran = sweep(
            problem,
            [networks[name] for name, _ in cases],
            made,
            steps=steps,
            every=max(1, steps // RECORDS),
            measures=MEASURES,
            seeds=[seed],
            progress=False,
        )
        if Status.interrupted in ran.status:
            raise KeyboardInterrupt
        lost = np.array([not status.sound for status in ran.status])
        X = np.where(lost[:, None, None], np.nan, ran.history["mean_x"])
        Y = ran.history["mean_y"]
        found = points(
            problem, X.reshape(-1, X.shape[-1]), Y.reshape(-1, Y.shape[-1]), task.trained
        )
        with np.errstate(invalid="ignore"):
            total += score(task.judged, found[task.judged].reshape(X.shape[:2]))
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


def _values(space: Sequence[HyperParameter], row: np.ndarray) -> Settings:
    # four digits: what tables show, and more than a search can resolve
    return {
        each.name: float(f"{np.exp(value):.4g}") for each, value in zip(space, row, strict=True)
    }


def _tuned(window: Window, caps: np.ndarray, space: Sequence[HyperParameter]) -> Tuned:
    best, score = window.best
    notes = list(dict.fromkeys(window.notes))
    rows = np.array([row for row, _ in window.tried])
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = MARGIN * (high - low)
    for k, each in enumerate(space):
        below = best[k] - low[k] < margin[k]
        if below or (high[k] - best[k] < margin[k] and best[k] < caps[k] - 1e-9):
            end = "lower" if below else "upper"
            notes.append(f"{each.name}: still at the {end} boundary of what was tried")
    if not np.isfinite(score):
        notes.append("every setting diverged")
    tried = [{**_values(space, row), "score": float(value)} for row, value in window.tried]
    return Tuned(_values(space, best), float(score), tried, notes)
