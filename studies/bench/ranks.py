r"""Ranks: which method needs how much to reach a target, on every axis, and how certain that is.

An instance is a task, a network, a seed and a target. On each axis (steps, gradients, ..., seconds)

    (1)  cost_s = the cost of the first record of method s at or below the target; infinite if
         there is none
    (2)  rank_s = 1 + how many are strictly below it, plus half of the others that equal it; those
         that never get there share the last ranks
    (3)  profile_s(t) = the share of instances with cost_s <= t min over all methods of the cost
         [Dolan & More 2002]

Ranks are averaged over all instances that every method ran. Their confidence is that of a bootstrap
that draws tasks on networks and then seeds, with replacement: this benchmark does not distinguish
two methods whose intervals overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from decibo.run.repeat import Band, Course, band
from studies.bench import sceptic
from studies.bench.storage import AXES, Result, Run
from studies.bench.tasks import TASKS

DRAWS = 1000
LEVEL = 0.9  # of the confidence intervals
WITHIN = 1.05  # costs that differ by less are a tie: records are a few steps apart


class Instance(NamedTuple):
    """A task on a network, with a seed and a target."""

    task: str
    network: str
    seed: int
    target: float


@dataclass(frozen=True, eq=False)
class Costs:
    """(1) for all methods and instances: axis -> array (instances, methods)."""

    methods: tuple[str, ...]
    instances: tuple[Instance, ...]
    by_axis: dict[str, np.ndarray]

    def of(self, axis: str, method: str) -> np.ndarray:
        """The costs of one method, instance by instance."""
        return self.by_axis[axis][:, self.methods.index(method)]

    def solved(self) -> dict[str, float]:
        """The share of instances that each method solves."""
        shares = np.isfinite(self.by_axis["steps"]).mean(axis=0)
        return dict(zip(self.methods, map(float, shares), strict=True))


class Standing(NamedTuple):
    """A method on one axis: its mean rank with confidence, how often it was best, what it
    solved."""

    method: str
    rank: float
    low: float
    high: float
    best: float
    solved: float
    median: float  # cost relative to the best, over the instances that it solved

    def overlaps(self, other: Standing) -> bool:
        """Whether the intervals of two methods overlap."""
        return self.high >= other.low and other.high >= self.low


def costs(results: Sequence[Result], scenarios: Sequence[tuple[str, str]] | None = None) -> Costs:
    """(1), on all tasks and networks that every method ran, or on those that are given."""
    names = tuple(dict.fromkeys(result.method for result in results))
    by_scenario: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        by_scenario.setdefault(result.scenario, {})[result.method] = result
    if scenarios is None:
        scenarios = [where for where, each in by_scenario.items() if len(each) == len(names)]
    instances = []
    rows: dict[str, list[list[float]]] = {axis: [] for axis in AXES}
    for scenario in scenarios:
        here = by_scenario[scenario]
        rule = next(iter(here.values())).rule
        same_task = [result for result in results if result.task == scenario[0]]
        for k, seed in enumerate(run.seed for run in next(iter(here.values())).runs):
            runs = {name: result.runs[k] for name, result in here.items()}
            lowest = lowest_phi(same_task, k)
            for target in rule.targets:
                instances.append(Instance(*scenario, seed, target))
                steps = {
                    name: first_step(run, rule.judged, target, lowest) for name, run in runs.items()
                }
                for axis in AXES:
                    # steps that are infinite stay so, also where a step costs nothing
                    cost = [
                        steps[name] * runs[name].price[axis]
                        if np.isfinite(steps.get(name, np.inf))
                        else np.inf
                        for name in names
                    ]
                    rows[axis].append(cost)
    shape = (len(instances), len(names))
    arrays = {axis: np.array(each, float).reshape(shape) for axis, each in rows.items()}
    return Costs(names, tuple(instances), arrays)


def lowest_phi(results: Sequence[Result], k: int) -> float:
    """The least Phi of the k-th run's problem by an exact solver, or else the lowest that any
    method reached in it."""
    task = TASKS.get(results[0].task) if results else None
    if task is not None and task.exact:
        return _least(task.name, results[0].runs[k].seed)
    values = [result.runs[k].history["phi"] for result in results if result.runs[k].sound]
    return min((float(each.min()) for each in values), default=np.nan)


@cache
def _least(task: str, seed: int) -> float:
    return sceptic.least_of(TASKS[task].make, seed)


def relative(run: Run, judged: str, lowest: float) -> np.ndarray:
    """What is judged, as a fraction of its value at the start."""
    values = run.history[judged]
    if judged == "phi":
        values = np.maximum(values - lowest, 0.0)
    return values / max(float(values[0]), 1e-300)


def first_step(run: Run, judged: str, target: float, lowest: float) -> float:
    """The step of the first record at or below the target; infinite for a run that ends
    diverged."""
    if not run.sound:
        return np.inf
    below = np.flatnonzero(relative(run, judged, lowest) <= target)
    return float(run.history["step"][below[0]]) if len(below) else np.inf


def ranked(cost: np.ndarray) -> np.ndarray:
    """(2) for each row; costs within a factor of WITHIN are equal, and so are infinite ones."""
    mine = cost[:, :, None]
    others = cost[:, None, :]
    with np.errstate(invalid="ignore"):
        less = others * WITHIN < mine
        more = mine * WITHIN < others
    equal = ~less & ~more
    return 1 + less.sum(axis=2) + (equal.sum(axis=2) - 1) / 2


def standings(found: Costs, axis: str, seed: int = 0) -> list[Standing]:
    """The rank table of one axis, best first."""
    cost = found.by_axis[axis]
    if not len(cost):
        return []
    ranks = ranked(cost)
    low, high = _bootstrap(found, ranks, seed)
    solved = np.isfinite(cost)
    best = cost.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(solved, cost / np.where(best > 0, best, 1.0), np.nan)
    shares = ((cost <= best * WITHIN) & solved).mean(axis=0)
    rows = []
    for k, name in enumerate(found.methods):
        median = float(np.nanmedian(ratio[:, k])) if solved[:, k].any() else np.inf
        numbers = (ranks[:, k].mean(), low[k], high[k], shares[k], solved[:, k].mean())
        rows.append(Standing(name, *map(float, numbers), median))
    return sorted(rows, key=lambda row: row.rank)


def _bootstrap(found: Costs, ranks: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the confidence intervals: tasks on networks are drawn, then seeds in each."""
    rng = np.random.default_rng((seed, 41))
    groups: dict[tuple[str, str], dict[int, list[int]]] = {}
    for k, one in enumerate(found.instances):
        groups.setdefault((one.task, one.network), {}).setdefault(one.seed, []).append(k)
    # for each task on a network: (seeds, methods), the mean over targets
    means = [
        np.stack([ranks[rows].mean(axis=0) for rows in seeds.values()]) for seeds in groups.values()
    ]
    drawn = np.zeros((DRAWS, ranks.shape[1]))
    for row in drawn:
        for k in rng.integers(len(means), size=len(means)):
            row += means[k][rng.integers(len(means[k]), size=len(means[k]))].mean(axis=0)
    ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.quantile(drawn / len(means), ends, axis=0)
    return low, high


def profile(found: Costs, axis: str, factors: np.ndarray) -> np.ndarray:
    """(3): (factors, methods); instances that no method solves count for none."""
    cost = found.by_axis[axis]
    best = cost.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        within = (cost[None] <= factors[:, None, None] * best) & np.isfinite(cost)
    return within.mean(axis=1)


def curve(results: Sequence[Result], result: Result, axis: str) -> tuple[np.ndarray, Band]:
    """What is judged, relative to the start, over the seeds of a result: median and quartiles,
    against an axis."""
    same = [each for each in results if each.task == result.task]
    courses = []
    for k, run in enumerate(result.runs):
        values = relative(run, result.rule.judged, lowest_phi(same, k))
        courses.append(Course(run.history["step"], values, run.status))
    found = band(courses)
    return found.step * float(np.median([run.price[axis] for run in result.runs])), found
