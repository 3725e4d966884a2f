"""One call of solve: run the loop in stretches, keep what it recorded, put the answer together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from decibo.algorithm.algorithm import Algorithm
from decibo.automatic.controller import Tuner
from decibo.errors import DivergedError, InputError, LostError, first_line
from decibo.execute import loop
from decibo.execute.checkpointing import Keeper, describe
from decibo.execute.diagnose import explain
from decibo.execute.pace import Pace
from decibo.execute.prepare import (
    finite_at_start,
    flat_solution,
    given_steps,
    one_of,
    startable,
    targets_of,
    variables_of,
)
from decibo.execute.progress import Report
from decibo.execute.segments import LONGEST, cut, stretch
from decibo.execute.solution import Solution, Status
from decibo.execute.start import Start, starting_rows
from decibo.measure.cost import Cost, step_cost
from decibo.measure.measures import as_trees, resolve
from decibo.network import DirectedNetwork, Network
from decibo.network.exchange import exchange
from decibo.parallel.launch import report_agents
from decibo.parallel.placement import EVERYWHERE, Placement
from decibo.parallel.processes import check_same
from decibo.parallel.signals import GracefulStop
from decibo.problem.problem import Problem

GROWN = 1e9  # times the start: finite, but hardly meant


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
        place: Placement | None = None,
        keeper: Keeper | None = None,
    ):
        self.begun = time.perf_counter()
        self.problem, self.network, self.method = problem, network, method
        self.steps, self.every, self.place, self.keeper = steps, every, place, keeper
        several = jax.process_count() > 1
        agents = np.arange(network.agents) if place is None else place.own(jax.process_index())
        try:
            data, rows, known, chosen = self._checked(agents, measures, start, until)
        except InputError as error:
            if several:
                self._agree({}, error)
            raise
        report_agents(agents)
        fields = describe(problem, network, method, seed, chosen, rows) if several or keeper else {}
        if several:
            self._agree(fields)
        functions = problem.functions
        self.program = loop.Program(functions, chosen, tuple(self.targets), place)
        self.cost = step_cost(functions, one_of(data), one_of(rows), method.core)
        targets = {name: jnp.asarray(value) for name, value in self.targets.items()}
        if place is None:
            self.world = loop.World(method.core, network.mixing(), data, jax.random.key(seed), known, targets)
            self.start = rows
        else:
            self.world = _world(place, network, method, place.split(data, agents), seed, known, targets)
            self.start = place.split(rows, np.arange(network.agents))
        self.state = loop.begin(self.program, self.world, self.start)
        self.tuner = Tuner(steps, given_steps(method)) if method.automatic else None
        if self.tuner:
            self.tuner.begin(self)
        self.history: dict[str, list[Any]] = {"step": []} | {name: [] for name, _ in chosen}
        self.k = 0
        if keeper:
            keeper.begin(self, fields, agents, data)

    def _checked(
        self, agents: np.ndarray, measures: Any, start: Start, until: Mapping[str, float] | None
    ) -> tuple[Any, dict[str, jax.Array], dict[str, jax.Array], Any]:
        """The data of these agents, all starting points, the known solution and the measures."""
        problem, functions = self.problem, self.problem.functions
        data = problem.local(agents.tolist())
        variables = variables_of(functions, data, self.method.core)
        rows = starting_rows(problem, self.network.agents, start, startable(self.method, variables))
        known = {name: flat_solution(problem, name, tree) for name, tree in (problem.solution or {}).items()}
        chosen = resolve(measures, variables, known, has_direction=self.method.direction is not None)
        self.targets = targets_of(until, [name for name, _ in chosen])
        own = rows if self.place is None else {name: row[agents] for name, row in rows.items()}
        finite_at_start(functions, data, own, agents)
        return data, rows, known, chosen

    def _agree(self, fields: dict[str, str], failed: InputError | None = None) -> None:
        """Make sure that all processes were given the same. The fields' names must be the same even after a failure."""
        names = ("problem", "method", "network", "start", "seed", "measures")
        told = {name: fields.get(name, "") for name in names} | {"steps": self.steps, "every": self.every}
        keeper = self.keeper
        told |= {"checkpoint": keeper and (str(keeper.folder), keeper.every, keeper.resume)}
        check_same(told, failed)

    def go(self, report: Report, throw: bool) -> Solution:
        """Run stretch after stretch until the steps are done, a target is reached or the state stops being finite."""
        lengths, marks = self._segments()
        done, pace, status = 0, Pace(self.place), Status.done
        try:
            with GracefulStop() as stopper:
                while done < len(lengths) and status is Status.done:
                    part = slice(done, done + self._until_checkpoint(lengths[done : done + pace.count]))
                    todo = stretch(lengths[part], marks[part])
                    say = pace.say(stopper.requested)
                    end = loop.advance(self.program, self.world, self.state, np.int32(self.k), todo, say)
                    finite, reached, ran = bool(end.finite), bool(end.reached), int(end.segment)
                    stop = pace.after(end.word, stopper.requested, fixed=self.tuner is not None)
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
                    elif stop and done < len(lengths):
                        status = Status.interrupted
                    elif self.tuner and self.k % self.tuner.look == 0:
                        self.tuner.after(self)
                    if self.keeper:
                        self.keeper.after(self, end=done == len(lengths) or status is not Status.done)
        except KeyboardInterrupt:
            status = Status.interrupted
            if self.keeper and jax.process_count() == 1:
                self.keeper.after(self, end=True)
        except jax.errors.JaxRuntimeError as error:
            if jax.process_count() == 1:
                raise
            raise self._lost(error) from error
        told = self.tuner.report(self) if self.tuner else self._grown()
        return self._solution(status, _message(status, self.k, self.steps, self.targets) + told)

    def _segments(self) -> tuple[np.ndarray, np.ndarray]:
        """The segments that are still to be run."""
        looks = ([self.keeper.every] if self.keeper else []) + ([self.tuner.look] if self.tuner else [])
        cuts = [np.arange(0, self.steps, look) for look in looks]
        lengths, marks = cut(self.steps, self.every, LONGEST, np.concatenate([[self.k], *cuts]))
        left = np.cumsum(lengths) > self.k if self.k else np.full(len(lengths), True)
        return lengths[left], marks[left]

    def _until_checkpoint(self, lengths: np.ndarray) -> int:
        """How many of these segments to run before a checkpoint is due: at least one."""
        if not self.keeper:
            return len(lengths)
        return max(1, int(np.sum(self.k + np.cumsum(lengths) <= self.keeper.next(self.k))))

    @property
    def seconds(self) -> float:
        """The time since the run began, before interruptions included."""
        return time.perf_counter() - self.begun

    def _lost(self, error: Exception) -> LostError:
        """Another process is gone: say who is left here, and where to go on."""
        assert self.place is not None
        here = jax.process_index()
        others = [f"{p} (agents {_span(self.place.own(p))})" for p in range(jax.process_count()) if p != here]
        saved = f" The last checkpoint is of step {self.keeper.last}." if self.keeper and self.keeper.last >= 0 else ""
        return LostError(
            f"process {here} (agents {_span(self.place.own(here))}) lost contact with another process after step "
            f"{self.k} of {self.steps}: {first_line(error)}. The others are {', '.join(others)}.{saved}"
        )

    def _latest(self) -> dict[str, Any]:
        return {name: row[-1] for name, row in self.history.items() if name != "step" and row}

    def _grown(self) -> str:
        """A warning, if the numbers are on their way to overflow."""
        largest = float(loop.largest(self.state))
        first = float(loop.largest(self.start)) if largest > GROWN else 0.0
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
        good, at, _ = loop.locate(self.program, self.world, self.state, np.int32(first), np.int32(limit))
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
        if self.place:
            rows = {name: jnp.asarray(np.asarray(row)) for name, row in rows.items()}  # here, for this process alone
        mean = lambda name: jnp.mean(rows[name], axis=0)
        return Solution(
            x=functions.x.unravel(mean("x")),
            y=functions.y.unravel(mean(self.method.answer)),
            agents=as_trees(functions, rows),
            history={name: np.asarray(values) for name, values in self.history.items()},
            cost=self._cost(),
            status=status,
            message=message,
            steps=self.k,
            method=repr(self.method),
            network=repr(self.network),
            state=self.state if self.place is None else None,
        )

    def _cost(self) -> Cost:
        links = len(self.network.edges) * (1 if self.network.directed else 2)
        return replace(self.cost, agents=self.network.agents, links=links, steps=self.k, seconds=self.seconds)


def _span(agents: np.ndarray) -> str:
    return f"{agents[0]} to {agents[-1]}" if len(agents) > 1 else str(agents[0])


def _message(status: Status, k: int, steps: int, targets: Mapping[str, float]) -> str:
    if status is Status.converged:
        named = " and ".join(f"{name} <= {value:g}" for name, value in targets.items())
        return f"Reached {named} at step {k}."
    if status is Status.interrupted:
        return f"Interrupted at step {k} of {steps}; everything up to there is kept."
    return f"All {steps} steps done."


def _world(
    place: Placement,
    network: Network | DirectedNetwork,
    method: Algorithm,
    data: Any,
    seed: int,
    known: Any,
    targets: Any,
) -> loop.World:
    """The world of a run on several devices, every part where it belongs."""
    key = jax.jit(lambda: jax.random.key(seed), out_shardings=NamedSharding(place.mesh, EVERYWHERE))()
    mixing = place.split_devices(exchange(network, place))
    return loop.World(method.core, mixing, data, key, place.everywhere(known), place.everywhere(targets))
