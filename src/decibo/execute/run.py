"""A run on the host: a fold over chunks of steps, RunState -> RunState, and the solution at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.automatic.controller import Agents, RunState
from decibo.errors import InputError
from decibo.execute import diagnose, loop
from decibo.execute.checkpoint import Checkpointer
from decibo.execute.loop import INTERVALS, Chunk, Inputs, Program, Progress
from decibo.execute.progress import Line, Report
from decibo.execute.solution import DivergedError, Solution, Status
from decibo.measure.cost import Cost
from decibo.measure.measures import as_trees
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.parallel.placement import Placement
from decibo.parallel.processes import GracefulStop
from decibo.problem.problem import Problem
from decibo.pytree import Tree

SECONDS = 0.5  # how long a chunk should take: often enough for progress, too seldom to be felt
LONGEST = 1000  # the most steps of an interval, so that the host can look in between


@dataclass(frozen=True, eq=False)
class Setup:
    """What a run was given, checked and placed on its devices; nothing of it changes during the run.

    start   the starting rows of all agents
    cost    what one step costs one agent
    """

    problem: Problem
    network: Network | DirectedNetwork
    method: Algorithm
    steps: int
    every: int
    program: Program
    inputs: Inputs
    start: dict[str, jax.Array]
    cost: Cost
    targets: dict[str, float]
    checkpointer: Checkpointer | None

    @property
    def placement(self) -> Placement | None:
        """Where the agents are; None if all are on one device."""
        return self.program.placement

    @property
    def agents(self) -> Agents:
        """The agents as a controller sees them."""
        direction = self.inputs.core.direction
        if direction is None:
            raise InputError(f"{self.method.name} carries a controller, which needs a method with a direction.")
        return Agents(self.program.functions, self.placement, self.inputs.data, direction)

    def method_of(self, run: RunState) -> Algorithm:
        """The method with the settings in use."""
        return self.method.replace(**run.settings) if run.settings else self.method

    def inputs_of(self, run: RunState) -> Inputs:
        """The inputs of the compiled program with the settings in use."""
        return self.inputs._replace(core=self.method_of(run).core) if run.settings else self.inputs


def begin(setup: Setup) -> RunState:
    """The state before the first step."""
    history = {"step": np.zeros(0, int)} | {name: np.zeros(0) for name, _ in setup.program.measures}
    run = RunState(0, loop.begin(setup.program, setup.inputs, setup.start), {}, history)
    controller = setup.method.controller
    return run if controller is None else controller.init(setup.agents, run, setup.steps)


def finish(setup: Setup, run: RunState, report: Report | None, throw: bool) -> Solution:
    """Run chunk after chunk until the steps are done, a target is reached or the numbers stop being finite."""
    controller = setup.method.controller
    begun = time.perf_counter() - run.seconds
    pace = Pace(setup.placement)
    status = Status.done
    saved = run.step if run.step else -1  # the step of the last checkpoint
    try:
        with GracefulStop() as stop:
            while run.step < setup.steps and status is Status.done:
                ends = _boundaries(setup, run, pace.count)
                chunk = _chunk(setup, run.step, ends)
                inputs = setup.inputs_of(run)
                votes = pace.votes(stop.requested)
                end = loop.advance(setup.program, inputs, run.agents, np.int32(run.step), chunk, votes)
                stopping = pace.after(int(end.interval), end.votes, stop.requested)
                run = run._replace(seconds=time.perf_counter() - begun)
                if not end.alive:
                    again = _after_failure(setup, run, chunk, ends, end)
                    if again is None:
                        return _diverged(setup, run, chunk, ends, end, throw)
                    run = again
                    continue
                run = _after(setup, run, chunk, ends, end)
                if report is not None:
                    report(run.step, setup.steps, _latest(run))
                if end.reached:
                    status = Status.converged
                elif stopping and run.step < setup.steps:
                    status = Status.interrupted
                if setup.checkpointer and _due(setup, run, status) and run.step > saved:
                    setup.checkpointer.save(run)
                    saved = run.step
    except KeyboardInterrupt:
        if jax.process_count() > 1:  # what is left to do needs the others, and they are elsewhere
            raise
        status = Status.interrupted
        if setup.checkpointer and run.step > max(saved, 0):
            setup.checkpointer.save(run)
    note = controller.summary(run) if controller else _growth(setup, run)
    run = run._replace(seconds=time.perf_counter() - begun)
    return _solution(setup, run, status, f"{_message(setup, run, status)} {note}".rstrip())


def watched(progress: bool | Report | None) -> AbstractContextManager[Report | None]:
    """What to call between chunks: the function that was passed, or a line if it is wanted and somebody watches."""
    if callable(progress):
        return nullcontext(progress)
    return Line() if (sys.stderr.isatty() if progress is None else progress) else nullcontext(None)


def _after(setup: Setup, run: RunState, chunk: Chunk, ends: np.ndarray, end: Progress) -> RunState:
    """The state after a chunk: its records, its last state, and what the controller makes of them."""
    run = _recorded(run, ends[: int(end.interval)], chunk, end)._replace(step=int(end.k), agents=end.state)
    controller = setup.method.controller
    if controller is None or end.reached or run.step % controller.interval(run):
        return run
    return controller.update(setup.agents, run)


def _after_failure(setup: Setup, run: RunState, chunk: Chunk, ends: np.ndarray, end: Progress) -> RunState | None:
    """The state to continue from after a number stopped being finite, if the controller has one."""
    controller = setup.method.controller
    if controller is None:
        return None
    run = _recorded(run, ends[: int(end.interval) - 1], chunk, end)  # without the interval that failed
    return controller.on_nonfinite(setup.agents, run._replace(step=int(end.k)))


def _boundaries(setup: Setup, run: RunState, count: int) -> np.ndarray:
    """The steps at which the next intervals end, at most `count`, and none beyond the next stop of the host.

    Records are taken at step 0, at every multiple of `every` and at the end.
    """
    periods = [setup.every, LONGEST] if setup.every > LONGEST else [setup.every]
    stops = []
    if setup.checkpointer:
        stops.append(setup.checkpointer.every)
    if setup.method.controller:
        stops.append(setup.method.controller.interval(run))
    following = [period * (run.step // period + 1 + np.arange(count)) for period in (*periods, *stops)]
    first = [0] if not len(run.history["step"]) and not run.step else []
    ends = np.unique(np.concatenate([*following, [setup.steps], first])).astype(int)
    limit = min([setup.steps, *(period * (run.step // period + 1) for period in stops)])
    return ends[ends <= limit][:count]


def _chunk(setup: Setup, step: int, ends: np.ndarray) -> Chunk:
    """The intervals that end there, as the compiled program takes them."""
    return Chunk.of(np.diff(ends, prepend=step), (ends % setup.every == 0) | (ends == setup.steps))


def _recorded(run: RunState, ends: np.ndarray, chunk: Chunk, end: Progress) -> RunState:
    """With the records of the intervals that end there."""
    marked = np.flatnonzero(chunk.record[: len(ends)])
    if not len(marked):
        return run
    rows = {"step": ends[marked]} | {name: np.asarray(row)[marked] for name, row in jax.device_get(end.rows).items()}
    joined = {name: np.concatenate([old, rows[name]]) if len(old) else rows[name] for name, old in run.history.items()}
    return run._replace(history=joined)


def _due(setup: Setup, run: RunState, status: Status) -> bool:
    """Whether a checkpoint is to be written here."""
    every = setup.checkpointer.every if setup.checkpointer else setup.steps
    return status is not Status.done or run.step == setup.steps or run.step % every == 0


class Pace:
    """How many intervals to run at a time, and when to stop on request: the same answer in all processes.

    Processes of one run must call the compiled program alike, but each has its own clock and receives its own signals.
    So each votes with every chunk how long the last one took and whether it was asked to stop, and all get the maximum.
    """

    def __init__(self, placement: Placement | None):
        self.placement = placement
        self.several = placement is not None and jax.process_count() > 1
        self.count = 1
        self.begun = 0.0
        self.last = (1, 0.0)  # intervals and seconds of the last chunk

    def votes(self, requested: str | None) -> jax.Array | None:
        """The votes of this process for the next chunk: (asked to stop?, seconds of the last chunk)."""
        self.begun = time.perf_counter()
        if self.placement is None:
            return None
        row = np.array([requested is not None, self.last[1]], np.float32)
        return self.placement.split_devices(np.tile(row, (self.placement.mesh.size, 1)))

    def after(self, intervals: int, votes: jax.Array, requested: str | None) -> bool:
        """Choose the next count; returns whether to stop."""
        took = time.perf_counter() - self.begun
        count, seconds = self.last if self.several else (intervals, took)  # what is agreed on is a chunk old
        seconds = float(votes[1]) if self.several else seconds
        self.count = int(np.clip(count * min(8.0, SECONDS / max(seconds, 1e-6)), 1, INTERVALS))
        self.last = (intervals, took)
        return bool(votes[0] > 0) if self.several else requested is not None


def _latest(run: RunState) -> dict[str, np.ndarray]:
    return {name: row[-1] for name, row in run.history.items() if name != "step" and len(row)}


def _growth(setup: Setup, run: RunState) -> str:
    """A warning, if the numbers are on their way to overflow."""
    largest = float(loop.largest(run.agents))
    first = float(loop.largest(setup.start)) if largest > diagnose.GROWN else 0.0
    if largest <= diagnose.GROWN * (1 + first):
        return ""
    return f"But the largest number has grown from {first:.1g} to {largest:.1g}: lower the step sizes."


def _diverged(setup: Setup, run: RunState, chunk: Chunk, ends: np.ndarray, end: Progress, throw: bool) -> Solution:
    """Keep the records and the state before the first number that is not finite, and say what to change."""
    inputs = setup.inputs_of(run)
    good, step = diagnose.last_finite(setup.program, inputs, run.agents, run.step, int(end.k))
    run = _recorded(run, ends[ends <= step], chunk, end)._replace(step=step, agents=good)
    advice = diagnose.explain(setup.program, inputs, setup.method_of(run), setup.start, step + 1)
    message = f"The state stopped being finite at step {step + 1} of {setup.steps}. {advice}"
    solution = _solution(setup, run, Status.diverged, message)
    if throw:
        raise DivergedError(solution)
    return solution


def _solution(setup: Setup, run: RunState, status: Status, message: str) -> Solution:
    functions = setup.program.functions
    method = setup.method_of(run)
    rows: Mapping[str, jax.Array] = loop.rows_of(setup.program, setup.inputs_of(run), run.agents)
    if setup.placement:
        rows = {name: jnp.asarray(np.asarray(row)) for name, row in rows.items()}  # here, for this process alone
    links = len(setup.network.edges) * (1 if setup.network.directed else 2)
    state: Tree = run.agents if setup.placement is None else None
    return Solution(
        x=functions.x.unravel(jnp.mean(rows["x"], axis=0)),
        y=functions.y.unravel(jnp.mean(rows[method.answer], axis=0)),
        agents=as_trees(functions, rows),
        history=run.history,
        cost=replace(setup.cost, agents=setup.network.agents, links=links, steps=run.step, seconds=run.seconds),
        status=status,
        message=message,
        steps=run.step,
        method=method,
        network=setup.network,
        state=state,
    )


def _message(setup: Setup, run: RunState, status: Status) -> str:
    if status is Status.converged:
        targets = " and ".join(f"{name} <= {value:g}" for name, value in setup.targets.items())
        return f"Reached {targets} at step {run.step}."
    if status is Status.interrupted:
        return f"Interrupted at step {run.step} of {setup.steps}; everything up to there is kept."
    return f"All {setup.steps} steps done."
