"""solve: check what was given, run the loop in stretches, put the answer together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.methods import ahead_exact
from decibo.errors import DivergedError, InputError
from decibo.execute import loop
from decibo.execute.advice import explain
from decibo.execute.automatic import Tuner
from decibo.execute.checks import check_fit, check_kinds, positive_integer
from decibo.execute.progress import Report, reporter
from decibo.execute.solution import Solution, Status
from decibo.execute.start import Start, starting_rows
from decibo.measure.cost import Cost, MarkedMix, step_cost
from decibo.measure.measures import answer, as_trees, resolve
from decibo.network import DirectedNetwork, Network
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions, Problem

SECONDS = 0.5  # how long a stretch should take: often enough for progress, too seldom to be felt
GROWN = 1e9  # times the start: finite, but hardly meant
LONGEST = 1000  # the most steps without the host being able to look


def solve(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm | None = None,
    *,
    steps: int = 1000,
    every: int | None = None,
    measures: Iterable[Any] | Mapping[str, Any] | None = None,
    start: Start = None,
    seed: int = 0,
    until: Mapping[str, float] | None = None,
    progress: bool | Report | None = None,
    throw: bool = False,
) -> Solution:
    """Let the agents of `network` solve `problem` together by `method`; without one, by `ahead_exact()`.

    steps     how many steps to do
    every     how many steps between two records of the history; by default about a hundred records
    measures  what to record: names (see decibo.measure), functions of a snapshot, "cheap" (default) or "all"
    start     stacked starting points {"x": ..., "y": ...}, or `random_start(seed)`; by default x0 and y0
    seed      for methods and networks that draw random numbers
    until     stop as converged once all these measures are at or below their values: {"stationarity": 1e-8}
    progress  a line on the terminal (default: if there is one), or a function (step, steps, latest measures)
    throw     raise DivergedError when the state stops being finite, instead of returning what there is
    """
    method = ahead_exact() if method is None else method
    check_kinds(problem, network, method)
    steps = positive_integer("steps", steps)
    every = max(1, steps // 100) if every is None else positive_integer("every", every)
    check_fit(problem, network, method)
    return Run(problem, network, method, steps, every, measures, start, seed, until).go(reporter(progress), throw)


class Run:
    """One call of solve: what the host keeps between stretches."""

    def __init__(
        self,
        problem: Problem,
        network: Network | DirectedNetwork,
        method: Algorithm,
        steps: int,
        every: int,
        measures: Any,
        start: Start,
        seed: int,
        until: Mapping[str, float] | None,
    ):
        self.begun = time.perf_counter()
        self.problem, self.network, self.method = problem, network, method
        self.steps, self.every = steps, every
        functions, data, m = problem.functions, problem.local(range(network.m)), network.m
        variables = _variables(functions, data, method.core)
        rows = starting_rows(problem, m, start, tuple(name for name in variables if name != "c"))
        known = {name: _flat(problem, name, tree) for name, tree in (problem.solution or {}).items()}
        chosen = resolve(measures, variables, known)
        self.targets = _targets(until, [name for name, _ in chosen])
        _finite_at_start(functions, data, rows)
        self.program = loop.Program(functions, chosen, tuple(self.targets))
        targets = {name: jnp.asarray(value) for name, value in self.targets.items()}
        self.world = loop.World(method.core, network.mixing(), data, jax.random.key(seed), known, targets)
        self.start = rows
        self.state = loop.begin(self.program, self.world, rows)
        self.cost = step_cost(functions, _one(data), _one(rows), method.core)
        self.tuner = Tuner(steps, _chosen(method)) if method.automatic else None
        if self.tuner:
            self.tuner.begin(self)
        self.history: dict[str, list[Any]] = {"step": []} | {name: [] for name, _ in chosen}
        self.k = 0

    def go(self, report: Report, throw: bool) -> Solution:
        """Run stretch after stretch until the steps are done, a target is reached or the state stops being finite."""
        lengths, marks = _plan(self.steps, self.every, self.tuner.look if self.tuner else LONGEST)
        done, count, status = 0, 1, Status.done
        try:
            while done < len(lengths):
                before = time.perf_counter()
                part = slice(done, done + count)
                stretch = _stretch(lengths[part], marks[part])
                end = loop.advance(self.program, self.world, self.state, jnp.int32(self.k), stretch)
                finite, reached, ran = bool(end.finite), bool(end.reached), int(end.segment)
                if not finite and self.tuner and not self.tuner.gave_up:
                    self.k, done = int(end.k), done + ran
                    self.tuner.fail(self, "a number stopped being finite")
                    continue
                if not finite:
                    return self._diverged(lengths[part][:ran], marks[part], end, throw)
                self._keep(lengths[part][:ran], marks[part], end)
                done += ran
                report(self.k, self.steps, self._latest())
                if reached:
                    status = Status.converged
                    break
                if self.tuner:
                    self.tuner.after(self)  # and one segment at a time
                else:
                    count = _next_count(count, time.perf_counter() - before)
        except KeyboardInterrupt:
            status = Status.interrupted
        told = self.tuner.report(self) if self.tuner else self._grown()
        return self._solution(status, _message(status, self.k, self.steps, self.targets) + told)

    def _latest(self) -> dict[str, Any]:
        return {name: row[-1] for name, row in self.history.items() if name != "step" and row}

    def _grown(self) -> str:
        """A warning, if the numbers are on their way to overflow."""
        largest, first = (float(loop.largest(tree)) for tree in (self.state, self.start))
        if largest <= GROWN * (1 + first):
            return ""
        return f" But the largest number has grown from {first:.1g} to {largest:.1g}: lower the step sizes."

    def _keep(self, lengths: np.ndarray, marks: np.ndarray, end: loop.Progress) -> None:
        """Take over the records of these segments, and the state at their end."""
        kept = np.flatnonzero(marks[: len(lengths)])
        self.history["step"].extend((self.k + np.cumsum(lengths))[kept])
        for name, row in jax.device_get(end.rows).items():
            self.history[name].extend(row[kept])
        self.k += int(lengths.sum())
        self.state = end.state

    def _diverged(self, lengths: np.ndarray, marks: np.ndarray, end: loop.Progress, throw: bool) -> Solution:
        """Keep the records and the state before the first number that is not finite, and say what to change."""
        first, limit = self.k, int(end.k)
        good, at, _ = loop.locate(self.program, self.world, self.state, jnp.int32(first), jnp.int32(limit))
        self._keep(lengths[first + np.cumsum(lengths) <= int(at)], marks, end)
        self.k, self.state = int(at), good
        advice = explain(self.program, self.world, self.method, self.start, int(at) + 1)
        message = f"The state stopped being finite at step {int(at) + 1} of {self.steps}. {advice}"
        solution = self._solution(Status.diverged, message)
        if throw:
            raise DivergedError(solution)
        return solution

    def _solution(self, status: Status, message: str) -> Solution:
        functions = self.problem.functions
        rows = loop.rows_of(self.program, self.world, self.state)
        mean = lambda name: jnp.mean(rows[name], axis=0)
        return Solution(
            x=functions.x.unravel(mean("x")),
            y=functions.y.unravel(mean(answer(rows))),
            agents=as_trees(functions, rows),
            history={name: np.asarray(values) for name, values in self.history.items()},
            cost=self._cost(),
            status=status,
            message=message,
            steps=self.k,
            method=repr(self.method),
            network=repr(self.network),
            state=self.state,
        )

    def _cost(self) -> Cost:
        seconds = time.perf_counter() - self.begun
        links = len(self.network.edges) * (1 if self.network.directed else 2)
        return replace(self.cost, agents=self.network.m, links=links, steps=self.k, seconds=seconds)


def _one(tree: Any) -> Any:
    """The shapes of one agent's part."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)


def _variables(functions: Functions, data: Any, core: Any) -> tuple[str, ...]:
    """The names of the method's variables, found without computing anything."""
    init, _, view = core
    start = {
        name: jax.ShapeDtypeStruct((size.size,), size.dtype) for name, size in (("x", functions.x), ("y", functions.y))
    }
    names = lambda d, start: view(init(Oracle(functions, d), MarkedMix(), start))
    return tuple(jax.eval_shape(names, _one(data), start))


def _chosen(method: Algorithm) -> dict[str, Any]:
    """The step sizes that an automatic method was given all the same."""
    given = {name: method.settings[name] for name in ("alpha", "gamma", "lam")}
    for name, value in given.items():
        if callable(value):
            raise InputError(
                f"{name} = a function of the step, with another step size left out",
                "automatic step sizes go with numbers only",
                "Give both alpha and gamma, or make it a number.",
            )
    return given


def _plan(steps: int, every: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Segments (steps, record?): a record at step 0, at every multiple of `every`, and at the end.

    Long ways between two records are cut, so that the host can look in between.
    """
    ends = np.append(np.arange(0, steps, every), steps)
    cuts = np.append(np.arange(0, steps, longest), steps) if every > longest else ends
    stops = np.union1d(ends, cuts)
    return np.diff(stops, prepend=0).astype(np.int32), np.isin(stops, ends)


def _stretch(steps: np.ndarray, record: np.ndarray) -> loop.Stretch:
    rest = (0, loop.SEGMENTS - len(steps))
    return loop.Stretch(jnp.asarray(np.pad(steps, rest)), jnp.asarray(np.pad(record, rest)), jnp.int32(len(steps)))


def _next_count(count: int, seconds: float) -> int:
    """How many segments to run next, so that a stretch takes about SECONDS."""
    return int(np.clip(count * min(8.0, SECONDS / max(seconds, 1e-6)), 1, loop.SEGMENTS))


def _message(status: Status, k: int, steps: int, targets: Mapping[str, float]) -> str:
    if status is Status.converged:
        named = " and ".join(f"{name} <= {value:g}" for name, value in targets.items())
        return f"Reached {named} at step {k}."
    if status is Status.interrupted:
        return f"Interrupted at step {k} of {steps}; everything up to there is kept."
    return f"All {steps} steps done."


def _flat(problem: Problem, name: str, tree: Any) -> jax.Array:
    layout = problem.x_layout if name == "x" else problem.y_layout
    return layout.ravel(jax.tree.map(jnp.asarray, tree))


def _targets(until: Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    targets = dict(until or {})
    for name, value in targets.items():
        if name not in names:
            raise InputError(
                f"until = {name!r}",
                f"only what is recorded can be waited for: {', '.join(names)}",
                "Add it to measures.",
            )
        if not np.isfinite(value):
            raise InputError(f"until[{name!r}] = {value!r}", "it must be a finite number", "Give 1e-8, for example.")
    return {name: float(value) for name, value in targets.items()}


def _finite_at_start(functions: Any, data: Any, rows: dict[str, jax.Array]) -> None:
    for name, row in zip(("outer", "inner"), loop.values(functions, data, rows["x"], rows["y"]), strict=True):
        bad = np.flatnonzero(~np.isfinite(np.asarray(row)))
        if bad.size:
            raise InputError(
                f"{name} of agent {bad[0]} is {float(row[bad[0]])} at the start ({bad.size} of {len(row)} agents)",
                "both objectives must be finite where a run starts",
                "Check the data of this agent for NaN, or start elsewhere with start=.",
            )
