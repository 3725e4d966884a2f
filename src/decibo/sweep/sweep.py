"""sweep: a grid of settings and seeds as lanes of one compiled program, in batches that fit into memory.

Settings that are numbers of the method (step sizes, lam) share a program; those that change the program (the length of
an inner loop, a function of the step) get one each.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.cli import cache
from decibo.execute import loop
from decibo.execute.checks import check_fit, check_kinds
from decibo.execute.prepare import finite_at_start, flat_solution, startable, variables_of
from decibo.execute.progress import Report, reporter
from decibo.execute.segments import LONGEST, cut
from decibo.execute.solution import Status
from decibo.execute.start import Start, starting_rows
from decibo.measure.measures import resolve
from decibo.network import DirectedNetwork, Network
from decibo.problem.problem import Problem
from decibo.sweep.batches import batch_size
from decibo.sweep.grid import Point, points
from decibo.sweep.lanes import Lanes, run, stack, take
from decibo.sweep.result import Sweep
from decibo.validate import positive_int


class Plan(NamedTuple):
    """Segments of every lane: how many steps, and whether a record follows."""

    steps: np.ndarray
    record: np.ndarray


def sweep(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    seeds: Iterable[int] | None = None,
    steps: int = 1000,
    every: int | None = None,
    measures: Iterable[Any] | Mapping[str, Any] | None = None,
    start: Start | Any = None,
    progress: bool | Report | None = None,
) -> Sweep:
    """Run `method` with every combination of settings in `grid` and every seed; each lane is the run `solve` makes.

    grid      settings of the method and their values, {"alpha": [0.1, 0.2], "gamma": [0.1, 0.3]} for all four pairs,
              or a list of dictionaries for exactly these; {} if only the seeds differ
    seeds     one lane for each setting and seed; without, the seed is 0
    start     as in `solve`, or a function of the seed such as `decibo.random_start`
    steps, every, measures, progress   as in `solve`; progress counts the steps of all lanes

    A lane that stops being finite is marked as diverged, and its records from there on are NaN.
    """
    check_kinds(problem, network, method)
    steps = positive_int("steps", steps)
    every = max(1, steps // 100) if every is None else positive_int("every", every)
    lanes = points(method, grid, seeds)
    for lane in lanes:
        check_fit(problem, network, lane.method)
    cache.enable()
    plan = Plan(*cut(steps, every, LONGEST, np.zeros(1)))
    return _Sweeping(problem, network, method, lanes, plan, measures, start).go(reporter(progress))


class _Sweeping:
    """One call of sweep."""

    def __init__(
        self,
        problem: Problem,
        network: Network | DirectedNetwork,
        method: Algorithm,
        lanes: list[Point],
        plan: Plan,
        measures: Any,
        start: Any,
    ):
        self.begun = time.perf_counter()
        self.problem, self.network, self.method, self.lanes, self.plan = problem, network, method, lanes, plan
        self.data, self.mixing = problem.local(range(network.agents)), network.mixing()
        self.known = {name: flat_solution(problem, name, tree) for name, tree in (problem.solution or {}).items()}
        variables = variables_of(problem.functions, self.data, lanes[0].method.core)
        names = startable(method, variables)
        self.starts = _starts(problem, network.agents, start, names, {lane.seed for lane in lanes})
        for rows in self.starts.values():
            finite_at_start(problem.functions, self.data, rows, np.arange(network.agents))
        chosen = resolve(measures, variables, self.known, has_direction=method.direction is not None)
        self.program = loop.Program(problem.functions, chosen, ())
        self.rows: dict[str, np.ndarray] = {}
        self.finite = np.zeros((len(lanes), int(plan.record.sum())), bool)
        self.sizes: list[int] = []

    def go(self, report: Report) -> Sweep:
        """Batch after batch; what an interruption leaves is kept."""
        total, ended = int(self.plan.steps.sum()), np.zeros(len(self.lanes), bool)
        try:
            for places in self._batches(report):
                ended[places] = True
                done = int(ended.sum())
                report(total * done, total * len(self.lanes), self._latest(done))
        except KeyboardInterrupt:
            pass
        status = [
            Status.interrupted if not over else Status.done if finite else Status.diverged
            for over, finite in zip(ended, self.finite[:, -1], strict=True)
        ]
        return Sweep(
            settings=tuple(lane.settings for lane in self.lanes),
            seeds=tuple(lane.seed for lane in self.lanes),
            status=tuple(status),
            history={"step": np.cumsum(self.plan.steps)[self.plan.record], **self.rows},
            steps=total,
            method=self.method.name,
            network=repr(self.network),
            batches=tuple(self.sizes),
            seconds=time.perf_counter() - self.begun,
        )

    def _batches(self, report: Report) -> Iterator[np.ndarray]:
        """Run all batches of all programs; yield the places of the lanes that are done."""
        total, earlier = int(self.plan.steps.sum()), 0
        for group in _alike(self.lanes):
            lanes = self._stacked(group)
            size = batch_size(self.program, lanes, len(group), self.data, total)
            for at in range(0, len(group), size):
                some = np.arange(at, at + size).clip(max=len(group) - 1)  # the last batch padded: one program
                places = np.array(group)[some]
                fresh = len(np.unique(places))

                def told(done: int, finite: np.ndarray, before: int = earlier, lanes: int = fresh) -> None:
                    if done < total:
                        report(total * before + done * lanes, total * len(self.lanes), self._latest(before))

                rows, finite = run(self.program, take(lanes, some), *self.plan, report=told)
                self._keep(places, rows, finite)
                self.sizes.append(size)
                earlier += fresh
                yield np.unique(places)

    def _stacked(self, group: list[int]) -> Lanes:
        """The lanes of one program; seeds and starts are shared if all are the same."""
        points = [self.lanes[place] for place in group]
        several = len({point.seed for point in points}) > 1
        own = ("core", "key") if several else ("core",)
        keys = [jax.random.key(point.seed) for point in points]
        world = loop.World(
            stack([point.method.core for point in points]),
            self.mixing,
            self.data,
            jnp.stack(keys) if several else keys[0],
            self.known,
            {},
        )
        starts = [self.starts[point.seed] for point in points]
        if all(rows is starts[0] for rows in starts):
            return Lanes(world, starts[0], own)
        return Lanes(world, stack(starts), (*own, "start"))

    def _keep(self, places: np.ndarray, rows: dict[str, np.ndarray], finite: np.ndarray) -> None:
        for name, row in rows.items():
            whole = (len(self.lanes), self.finite.shape[1], *row.shape[2:])
            kind = row.dtype if np.issubdtype(row.dtype, np.inexact) else np.float64
            self.rows.setdefault(name, np.full(whole, np.nan, kind))[places, : row.shape[1]] = row
        recorded = np.logical_and.accumulate(finite, axis=1)[:, self.plan.record[: finite.shape[1]]]
        self.finite[places, : recorded.shape[1]] = recorded

    def _latest(self, done: int) -> dict[str, int]:
        return {"lanes": len(self.lanes), "done": done}


def _starts(problem: Problem, m: int, start: Any, names: tuple[str, ...], seeds: set[int]) -> dict[int, Any]:
    """Starting rows for each seed."""
    if not callable(start):
        rows = starting_rows(problem, m, start, names)
        return dict.fromkeys(seeds, rows)
    made: Any = start
    return {seed: starting_rows(problem, m, made(seed), names) for seed in seeds}


def _alike(lanes: list[Point]) -> list[list[int]]:
    """Places of lanes that differ in numbers only, and so can share a program."""
    kinds: dict[Any, list[int]] = {}
    for place, lane in enumerate(lanes):
        leaves, kind = jax.tree.flatten(lane.method.core)
        kinds.setdefault((kind, *map(_type, leaves)), []).append(place)
    return list(kinds.values())


def _type(leaf: Any) -> tuple[Any, ...]:
    array = jnp.asarray(leaf)
    return array.shape, array.dtype, array.weak_type
