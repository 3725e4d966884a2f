"""The one host loop: a fold over chunks of steps, RunState -> RunState, and what looks on.

A stepper makes steps: chunks of a compiled program (CompiledStepper, below), with minibatches from
a stream (prefetch.py) or gradients from the host (host_gradients.py), a batch of runs of a sweep
(batching.py), or one site among others (silo/). Whatever looks at a run or may end it is an
observer, called after every chunk (observers.py): the user's callbacks, progress, checkpoints. The
steppers report themselves that a target is reached, or that numbers stop being finite, since a
compiled program sees it at the very step.

Time is split into steps, compiling and measures. JAX reports each span of compiling as it ends, and
spans lie inside each other, so their union counts. Steps and records are one compiled program: now
and then the record that ends a chunk is made in a call of its own, and so are the steps of the
first intervals. Both are timed, and the time of other calls is split in the same proportion.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.measure.cost import Cost, Seconds
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.parallel.processes import check_same
from decibo.parallel.signals import GracefulStop
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.run import loop
from decibo.run.checkpoint import Checkpointer, RunState
from decibo.run.loop import INTERVALS, Chunk, Inputs, Program, Progress
from decibo.run.solution import Status

LONGEST = 1000  # the most steps of an interval, so that the host can look in between
SECONDS = 0.5  # how long a chunk should take: often enough for progress, too seldom to be felt
APART = 8  # every so many chunks, the last record is timed
SAMPLES = 3  # so many times, the steps of an interval are timed
COMPILING = "/jax/core/compile/"  # JAX's names of what it reports


class Ended(NamedTuple):
    """How a run ended before its last step, or at it.

    failed   the step at which a number was no longer finite, where that is known
    """

    status: Status
    reason: str = ""
    failed: int | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """What a run is about to do; `start(plan)` of a callback gets it.

    steps      the number of steps
    every      the number of steps between two records
    measures   the names of what is recorded
    step       where the run begins: 0, or the step of the checkpoint from which it resumes
    history    the records so far, if it resumes
    runs       the numbers of the runs of a sweep that are made together, whose measures come as
               arrays with an entry for each; None for a single run
    saves      the number of steps between two checkpoints
    on         whether the run goes on after `steps`, until its stepper says that it has ended: a
               site that does not wait helps slower ones
    """

    steps: int
    every: int
    measures: tuple[str, ...]
    step: int = 0
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    runs: tuple[int, ...] | None = None
    saves: int | None = None
    on: bool = False

    def next_stop(self, state: RunState, at_records: bool) -> int:
        """The step that must not be passed before the host has looked at the run."""
        if at_records and not len(state.history["step"]):
            return 0
        periods = ([self.every] if at_records else []) + ([self.saves] if self.saves else [])
        last = [self.steps] if state.step < self.steps else []
        return min([*last, *(period * (state.step // period + 1) for period in periods)])

    def intervals(self, state: RunState, until: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The steps at which the next intervals end, at most `count` and none beyond `until`, and
        whether there is a record: at step 0, at every multiple of `every` and at the end."""
        periods = [self.every, LONGEST] if self.every > LONGEST else [self.every]
        numbers = 1 + np.arange(count)
        following = [period * (state.step // period + numbers) for period in periods]
        first = [] if len(state.history["step"]) else [0]
        ends = np.unique(np.concatenate([*following, [until], first])).astype(int)
        ends = ends[ends <= until][:count]
        return ends, (ends % self.every == 0) | (ends == self.steps)


class Stepper(Protocol):
    """Makes the steps of a run; a state that it got is not used again."""

    def begin(self) -> RunState:
        """The state before the first step."""
        ...

    def advance(
        self, state: RunState, until: int, stop: str | None
    ) -> tuple[RunState, Ended | None]:
        """The state some steps later, with its records, at most at the step `until`; and how the
        run has ended, if it has.

        stop   the signal by which this process was asked to stop. Processes that must stop at the
               same step agree on it, so that the steppers answer it
        """
        ...

    def close(self) -> None:
        """After the last step."""
        ...


Observer = Callable[[RunState, Ended | None], Ended | None]


def run(
    stepper: Stepper, plan: Plan, state: RunState, observers: Sequence[Observer], at_records: bool
) -> tuple[RunState, Ended]:
    """Make steps until all are done or the run has ended, and look at it after every chunk.

    at_records   whether a chunk ends at every record: then a run that is ended there has the state
                 of that record
    """
    ended: Ended | None = None
    try:
        with GracefulStop() as stop:
            while ended is None and (state.step < plan.steps or plan.on):
                until = plan.next_stop(state, at_records)
                state, ended = stepper.advance(state, until, stop.requested)
                for observe in observers:
                    found = observe(state, ended)
                    ended = ended or found
            if ended is None or ended.status is not Status.interrupted:
                stop.pass_on()  # too late for this run, but not for what comes after it
    except KeyboardInterrupt:
        # The second Ctrl-C, in the middle of a chunk. The other processes are elsewhere, or the
        # chunk has used up the state before it: then there is nothing to return.
        if jax.process_count() > 1 or is_gone(state.agents):
            raise
        ended = Ended(Status.interrupted)
        if plan.saves is not None:  # the checkpoint, which comes last
            observers[-1](state, ended)
    finally:
        stepper.close()
    return state, ended or Ended(Status.done)


def is_gone(state: Any) -> bool:
    """Whether a chunk that was interrupted has used up the state before it."""
    return any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(state))


# The stepper of a single run ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Setup:
    """What a run was given, checked and placed on its devices; nothing of it changes during the
    run.

    start   the starting rows of all agents, on the host where there are several devices
    cost    what one step costs one agent
    source  where minibatches come from, if they are a stream
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
    source: Any = None  # a prefetch.Source

    def rows(self) -> dict[str, jax.Array]:
        """The starting rows where their agents are."""
        placement = self.program.placement
        if placement is None:
            return self.start
        return placement.split(self.start, np.arange(self.network.agents))


def begin(setup: Setup) -> RunState:
    """The state before the first step."""
    history = {"step": np.zeros(0, int)} | {name: np.zeros(0) for name, _ in setup.program.measures}
    return RunState(0, loop.begin(setup.program, setup.inputs, setup.rows()), history)


def missed(history: Mapping[str, np.ndarray], targets: Mapping[str, float]) -> bool:
    """Whether a record so far was above a target: what holds from the start on does not end a
    run."""
    return not all((history[name] <= value).all() for name, value in targets.items())


class CompiledStepper:
    """Makes chunks of steps in a compiled program: as many intervals at a time as take about half a
    second."""

    most = INTERVALS  # intervals at a time
    failure: Exception | None = None  # why this process has nothing to run the next chunk with

    def __init__(self, setup: Setup, plan: Plan, clock: Clock):
        self.setup = setup
        self.plan = plan
        self.clock = clock
        self.timing = Timing()
        self.count = 1  # intervals of the next chunk
        self.program: Callable[..., Progress] | None = None

    def begin(self) -> RunState:
        return begin(self.setup)

    def inputs_at(self, step: int, until: int) -> tuple[Inputs, int]:
        """The inputs of the next chunk, and the step that they last for."""
        return self.setup.inputs, until

    def call(
        self, inputs: Inputs, state: Tree, step: int, chunk: Chunk, votes: jax.Array | None = None
    ) -> Progress:
        """Run a chunk."""
        assert self.program is not None
        return self.program(self.setup.program, inputs, state, np.int32(step), chunk, votes)

    def agreed(self, end: Progress, took: float, stop: str | None) -> tuple[int, float, bool]:
        """How many intervals a chunk had, how long it took, and whether to stop."""
        return int(end.interval), took, stop is not None

    def advance(
        self, state: RunState, until: int, stop: str | None
    ) -> tuple[RunState, Ended | None]:
        self.clock.lap()  # neither files nor callbacks are steps
        inputs, until = self.inputs_at(state.step, until)
        if self.program is None:
            state = self.compile(inputs, state)

        # Until steps have been timed alone there is one interval at a time. Now and then the last
        # record is made in a call of its own, so that it can be timed.
        count = self.count if self.timing.samples >= SAMPLES else 1
        ends, record = self.plan.intervals(state, until, count)
        apart = bool(record[-1]) and self.timing.apart()
        record[-1] &= not apart
        above = missed(state.history, self.setup.targets)
        chunk = Chunk.of(np.diff(ends, prepend=state.step), record, missed=above)

        begun = time.perf_counter()
        end = self.call(inputs, state.agents, state.step, chunk)
        intervals = int(end.interval)  # waits for the devices
        lap = self.clock.lap()
        records = int(record[:intervals].sum())
        before = state
        if end.alive:
            state = _recorded(state, ends[:intervals], record, end)
        seconds = state.seconds.plus(self.timing.split(lap, int(end.k) - state.step, records))
        if apart and end.alive and not end.reached:
            only = Chunk.of(np.zeros(1, int), np.ones(1, bool), missed=bool(end.missed))
            last = self.call(inputs, end.state, int(end.k), only)
            last.interval.block_until_ready()
            seconds = seconds.plus(self.timing.split(self.clock.lap(), 0, 1))
            state = _recorded(state, ends[-1:], only.record, last)
            end = last._replace(interval=end.interval, votes=end.votes)
        state = state._replace(seconds=seconds)

        # The next chunk should take SECONDS, but not grow too fast.
        count, took, stopping = self.agreed(end, time.perf_counter() - begun, stop)
        growth = min(8.0, SECONDS / max(took, 1e-6))
        self.count = int(np.clip(count * growth, 1, self.most))

        if not end.alive:
            return self._diverged(inputs, before._replace(seconds=seconds), ends, record, end)
        state = state._replace(step=int(end.k), agents=end.state)
        if end.reached:
            return state, Ended(Status.converged)
        if stopping and state.step < self.plan.steps:
            return state, Ended(Status.interrupted)
        return state, None

    def close(self) -> None:
        pass

    def compile(self, inputs: Inputs, state: RunState) -> RunState:
        """The same state after the program has been compiled; also sees what a call takes that does
        nothing. A large state is changed in place."""
        large = loop.is_large(state.agents)
        self.program = loop.advance_in_place if large else loop.advance
        nothing = Chunk.of(np.zeros(0, int), np.zeros(0, bool))
        for _ in range(5):  # the quickest call counts: others may have waited for the machine
            end = self.call(inputs, state.agents, state.step, nothing)
            end.interval.block_until_ready()
            lap = self.clock.lap()
            self.timing.idle = min(self.timing.idle, lap.steps)
            seconds = state.seconds.plus(Seconds(compiling=lap.compiling))
            state = state._replace(agents=end.state, seconds=seconds)
        return state

    def _diverged(
        self, inputs: Inputs, state: RunState, ends: np.ndarray, record: np.ndarray, end: Progress
    ) -> tuple[RunState, Ended]:
        """The records and the state before the first number that is not finite."""
        steps = self.plan.steps
        k = int(end.k)
        if not is_gone(state.agents):
            good, step = loop.last_finite(self.setup.program, inputs, state.agents, state.step, k)
            state = _recorded(state, ends[ends <= step], record, end)
            reason = f"The state stopped being finite at step {step + 1} of {steps}."
            ended = Ended(Status.diverged, reason, failed=step + 1)
            return state._replace(step=step, agents=good), ended
        last = [state.step, *ends[: int(end.interval) - 1].tolist()][-1]
        state = _recorded(state, ends[ends <= last], record, end)
        reason = (
            f"The state stopped being finite between steps {last} and {k} of {steps}. It is"
            " returned as it is: a state this large is changed in place, and only a checkpoint has"
            " the one before."
        )
        return state._replace(step=k, agents=end.state), Ended(Status.diverged, reason)


class SpreadStepper(CompiledStepper):
    """The same on several devices, and the same chunks in all processes.

    Processes of one run must call the compiled program alike, but each has its own clock and
    receives its own signals. So each votes with every chunk how long the last one took and whether
    it was asked to stop, and all get the maximum.
    """

    last = (1, 0.0)  # intervals and seconds of the last chunk
    asked = False  # to stop

    def advance(
        self, state: RunState, until: int, stop: str | None
    ) -> tuple[RunState, Ended | None]:
        self.asked = stop is not None
        return super().advance(state, until, stop)

    def call(
        self, inputs: Inputs, state: Tree, step: int, chunk: Chunk, votes: jax.Array | None = None
    ) -> Progress:
        placement = self.setup.program.placement
        assert placement is not None
        row = [self.asked, self.last[1], self.failure is not None]
        rows = np.tile(np.array(row, np.float32), (placement.mesh.size, 1))
        return super().call(inputs, state, step, chunk, placement.split_devices(rows))

    def agreed(self, end: Progress, took: float, stop: str | None) -> tuple[int, float, bool]:
        if jax.process_count() == 1:
            return super().agreed(end, took, stop)
        asked, seconds, failed = map(float, end.votes)
        if failed:
            check_same({}, self.failure)  # raises, in all processes
        count = self.last[0]  # what is agreed on is a chunk old
        self.last = (int(end.interval), took)
        return count, seconds, asked > 0


def _recorded(state: RunState, ends: np.ndarray, record: np.ndarray, end: Progress) -> RunState:
    """With the records of the intervals that end there."""
    marked = np.flatnonzero(record[: len(ends)])
    if not len(marked):
        return state
    rows = {name: np.asarray(row)[marked] for name, row in jax.device_get(end.rows).items()}
    rows["step"] = ends[marked]
    join = lambda old, new: np.concatenate([old, new]) if len(old) else new
    return state._replace(history={n: join(old, rows[n]) for n, old in state.history.items()})


# Where the time goes ------------------------------------------------------------------------------


class _Compiled(threading.local):
    """What this thread has spent on compiling, and the latest spans, which a longer one may still
    cover."""

    total = 0.0
    spans: tuple[tuple[float, float], ...] = ()


_compiled = _Compiled()


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if event.startswith(COMPILING):
        start = time.perf_counter() - duration_secs
        covered = sum(length for begun, length in _compiled.spans if begun >= start)
        before = [span for span in _compiled.spans if span[0] < start]
        _compiled.spans = (*before[-8:], (start, duration_secs))
        _compiled.total += duration_secs - covered


# once for all runs, and only when there is one
_start_listening = cache(partial(jax.monitoring.register_event_duration_secs_listener, _listen))


class Clock:
    """A stopwatch whose laps say how much of them was compiling."""

    def __init__(self) -> None:
        _start_listening()
        self.begun = time.perf_counter()
        self.compiled = _compiled.total

    def lap(self) -> Seconds:
        """The time since the last lap, as steps and compiling."""
        now = time.perf_counter()
        compiling = min(_compiled.total - self.compiled, now - self.begun)
        lap = Seconds(steps=now - self.begun - compiling, compiling=compiling)
        self.begun = now
        self.compiled = _compiled.total
        return lap


class Timing:
    """What a step and a record take, from calls with only one of them; calls with both are shared
    out in proportion."""

    def __init__(self) -> None:
        self.chunks = 0
        self.samples = 0  # how often steps were timed alone
        self.step = math.inf  # seconds
        self.record = 0.0
        self.idle = math.inf  # seconds of a call that does nothing

    def apart(self) -> bool:
        """Whether the last record of the next chunk is made in a call of its own."""
        self.chunks += 1
        return self.samples < SAMPLES or self.chunks % APART == 1

    def split(self, lap: Seconds, steps: int, records: int) -> Seconds:
        """The time of a call with so many steps and records, as steps and measuring."""
        net = max(lap.steps - self.idle, 0.0)
        if steps and not records:  # the quickest counts: others waited for the machine
            self.samples += 1
            self.step = min(self.step, net / steps)
        if records and not steps:
            self.record = net / records
        made = records * self.record
        if steps and math.isinf(self.step):  # never timed alone
            measuring = min(made, lap.steps)
        else:
            both = made + (steps * self.step if steps else 0.0)
            measuring = lap.steps * (made / both) if both > 0 else 0.0
        return lap._replace(steps=lap.steps - measuring, measuring=lap.measuring + measuring)
