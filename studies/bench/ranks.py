r"""Ranks: who needs how much to reach a target, on every axis, and how sure that is.

An instance is a task, a network, a seed and a target. On each axis (steps, gradients, ..., seconds)

    (1)  cost_s = the cost of the first record of entrant s at or below the target; infinite if
         there is none
    (2)  rank_s = 1 + how many are strictly below it, plus half of the others that equal it; those
         that never get there share the last ranks
    (3)  profile_s(t) = the share of instances with cost_s <= t min over all entrants of the cost   [Dolan & More 2002]

Ranks are averaged over all instances in which everybody took part. Their confidence is that of a
bootstrap that draws places (task and network) and then seeds, with replacement: two entrants whose
intervals overlap are not told apart by this benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decibo.run.seeds import Band, Course, band
from studies.bench.results import AXES, Cell, Run

DRAWS = 1000
LEVEL = 0.9  # of the confidence intervals
WITHIN = 1.05  # costs that differ by less are a tie: records are a few steps apart


class Instance(NamedTuple):
    """One question that every entrant answers."""

    task: str
    network: str
    seed: int
    target: float


@dataclass(frozen=True, eq=False)
class Costs:
    """(1) for all entrants and instances: axis -> array (instances, entrants)."""

    entrants: tuple[str, ...]
    instances: tuple[Instance, ...]
    by_axis: dict[str, np.ndarray]

    def solved(self) -> np.ndarray:
        """The share of instances that each entrant solves."""
        return np.isfinite(self.by_axis["steps"]).mean(axis=0)


class Standing(NamedTuple):
    """An entrant on one axis: its mean rank with confidence, how often it was best, what it
    solved."""

    entrant: str
    rank: float
    low: float
    high: float
    best: float
    solved: float
    median: float  # cost relative to the best, over the instances that it solved


def costs(cells: Sequence[Cell], places: Sequence[tuple[str, str]] | None = None) -> Costs:
    """(1); only places in which every entrant took part, or those that are given."""
    names = tuple(dict.fromkeys(cell.method for cell in cells))
    by_place: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        by_place.setdefault(cell.place, {})[cell.method] = cell
    wanted = (
        places
        if places is not None
        else [place for place, each in by_place.items() if len(each) == len(names)]
    )
    instances = []
    rows: dict[str, list[list[float]]] = {axis: [] for axis in AXES}
    for place in wanted:
        here = by_place[place]
        for k, seed in enumerate(run.seed for run in next(iter(here.values())).runs):
            runs = {name: cell.runs[k] for name, cell in here.items()}
            lowest = lowest_phi([cell for cell in cells if cell.task == place[0]], k)
            rule = next(iter(here.values())).rule
            for target in rule.targets:
                instances.append(Instance(*place, seed, target))
                steps = {
                    name: first_step(run, rule.judged, target, lowest) for name, run in runs.items()
                }
                for axis in AXES:
                    each = [_cost(steps, runs, name, axis) for name in names]
                    rows[axis].append(each)
    shape = (len(instances), len(names))
    return Costs(
        names,
        tuple(instances),
        {axis: np.array(each, float).reshape(shape) for axis, each in rows.items()},
    )


def _cost(steps: dict[str, float], runs: dict[str, Run], name: str, axis: str) -> float:
    if name not in steps or not np.isfinite(steps[name]):
        return np.inf
    return steps[name] * runs[name].price[axis]


def lowest_phi(cells: Sequence[Cell], place: int) -> float:
    """The lowest Phi that anybody reached with the seed at this place."""
    values = [cell.runs[place].history["phi"] for cell in cells if cell.runs[place].sound]
    return min((float(each.min()) for each in values), default=np.nan)


def relative(run: Run, judged: str, lowest: float) -> np.ndarray:
    """What is judged, as a fraction of its value at the start."""
    values = run.history[judged]
    if judged == "phi":
        values = np.maximum(values - lowest, 0.0)
    return values / max(float(values[0]), 1e-300)


def first_step(run: Run, judged: str, target: float, lowest: float) -> float:
    """The step of the first record at or below the target; a run that ends diverged never got
    there."""
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
    best = cost.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(np.isfinite(cost), cost / np.where(best > 0, best, 1.0), np.nan)
    winners = (cost <= best * WITHIN) & np.isfinite(cost)
    rows = [
        Standing(
            name,
            float(ranks[:, k].mean()),
            float(low[k]),
            float(high[k]),
            float(winners[:, k].mean()),
            float(np.isfinite(cost[:, k]).mean()),
            float(np.nanmedian(ratio[:, k])) if np.isfinite(cost[:, k]).any() else np.inf,
        )
        for k, name in enumerate(found.entrants)
    ]
    return sorted(rows, key=lambda row: row.rank)


def _bootstrap(found: Costs, ranks: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the confidence intervals: places are drawn, then seeds in each."""
    rng = np.random.default_rng((seed, 41))
    places = list(dict.fromkeys((one.task, one.network) for one in found.instances))
    sums: list[np.ndarray] = []  # for each place: (seeds, entrants), the mean over targets
    for place in places:
        rows = [k for k, one in enumerate(found.instances) if (one.task, one.network) == place]
        seeds = list(dict.fromkeys(found.instances[k].seed for k in rows))
        each = [[k for k in rows if found.instances[k].seed == seed] for seed in seeds]
        sums.append(np.stack([ranks[group].mean(axis=0) for group in each]))
    means = np.empty((DRAWS, ranks.shape[1]))
    for draw in range(DRAWS):
        total = np.zeros(ranks.shape[1])
        for k in rng.integers(len(places), size=len(places)):
            total += sums[k][rng.integers(len(sums[k]), size=len(sums[k]))].mean(axis=0)
        means[draw] = total / len(places)
    return np.quantile(means, (1 - LEVEL) / 2, axis=0), np.quantile(means, (1 + LEVEL) / 2, axis=0)


def profile(found: Costs, axis: str, factors: np.ndarray) -> np.ndarray:
    """(3): (factors, entrants); instances that nobody solves count for nobody."""
    cost = found.by_axis[axis]
    best = cost.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        within = (cost[None] <= factors[:, None, None] * best) & np.isfinite(cost)
    return within.mean(axis=1)


def curve(cells: Sequence[Cell], cell: Cell, axis: str) -> tuple[np.ndarray, Band]:
    """The judged measure of a cell, relative to the start, over its seeds: median and quartiles,
    against an axis."""
    same = [each for each in cells if each.task == cell.task]
    courses = []
    for k, run in enumerate(cell.runs):
        values = relative(run, cell.rule.judged, lowest_phi(same, k))
        courses.append(Course(run.history["step"], values, run.status))
    found = band(courses)
    price = float(np.median([run.price[axis] for run in cell.runs]))
    return found.step * price, found


def told_apart(first: Standing, second: Standing) -> bool:
    """Whether the intervals of two entrants do not overlap."""
    return first.high < second.low or second.high < first.low
