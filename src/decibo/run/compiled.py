"""Steppers of one run: chunks of a compiled program, with minibatches from a stream, or with
gradients that the host computes in between."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import StreamError
from decibo.measure.cost import Cost, Seconds
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.parallel.placement import Placement
from decibo.parallel.processes import check_same
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.run import host_gradients, loop
from decibo.run.checkpoint import Checkpointer, RunState
from decibo.run.loop import Chunk, Inputs, Program, Progress
from decibo.run.prefetch import Feed, Source
from decibo.run.run import Ended, Plan, is_gone
from decibo.run.solution import Status
from decibo.run.timing import Clock, Pace


@dataclass(frozen=True, eq=False)
class Setup:
    """What a run was given, checked and placed on its devices; nothing of it changes during the
    run.

    start   the starting rows of all agents, on the host where there are several devices
    center  their mean x
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
    center: np.ndarray
    cost: Cost
    targets: dict[str, float]
    checkpointer: Checkpointer | None
    source: Source | None = None

    @property
    def placement(self) -> Placement | None:
        """Where the agents are; None if all are on one device."""
        return self.program.placement

    def rows(self) -> dict[str, jax.Array]:
        """The starting rows where their agents are."""
        if self.placement is None:
            return self.start
        return self.placement.split(self.start, np.arange(self.network.agents))


def begin(setup: Setup) -> RunState:
    """The state before the first step."""
    history = {"step": np.zeros(0, int)} | {name: np.zeros(0) for name, _ in setup.program.measures}
    return RunState(0, loop.begin(setup.program, setup.inputs, setup.rows()), history)


def missed(history: dict[str, np.ndarray], targets: dict[str, float]) -> bool:
    """Whether a record so far was above a target: what holds from the start on does not end a
    run."""
    rows = [np.asarray(history[name]) <= value for name, value in targets.items()]
    return any(not row.all() for row in rows)


class CompiledStepper:
    """Runs as many intervals at a time as take about half a second, the same number in all
    processes."""

    def __init__(self, setup: Setup, plan: Plan, clock: Clock):
        self.setup = setup
        self.plan = plan
        self.clock = clock
        self.pace = Pace(setup.placement)
        self.is_compiled = False

    def begin(self) -> RunState:
        return begin(self.setup)

    def inputs_at(self, step: int, until: int) -> tuple[Inputs, int, StreamError | None]:
        """The inputs of the next chunk, the step that they last for and, with several processes,
        why this one has none, of which it informs the others."""
        return self.setup.inputs, until, None

    def intervals_at_once(self, inputs: Inputs, state: Tree) -> int:
        """How many the next chunk should have; until steps have been timed alone, one."""
        return self.pace.count if self.pace.records.known else 1

    def call(
        self, inputs: Inputs, state: Tree, step: int, chunk: Chunk, votes: jax.Array | None
    ) -> Progress:
        """Run a chunk; a large state is changed in place."""
        advance = loop.advance_in_place if loop.is_large(state) else loop.advance
        return advance(self.setup.program, inputs, state, np.int32(step), chunk, votes)

    def advance(
        self, state: RunState, until: int, stop: str | None
    ) -> tuple[RunState, Ended | None]:
        pace, timed = self.pace, self.pace.records
        self.clock.lap()  # neither files nor callbacks are steps
        inputs, until, failure = self.inputs_at(state.step, until)
        if not self.is_compiled:
            state = self._compile(inputs, state)
            self.is_compiled = True

        # Now and then the last record is made in a call of its own, so that it can be timed.
        ends = self.plan.ends(state, until, self.intervals_at_once(inputs, state.agents))
        record = self.plan.recorded(ends)
        apart = bool(record[-1]) and pace.apart()
        record[-1] &= not apart
        chunk = Chunk.of(
            np.diff(ends, prepend=state.step),
            record,
            missed=missed(state.history, self.setup.targets),
        )

        votes = pace.votes(stop, failure is not None)
        end = self.call(inputs, state.agents, state.step, chunk, votes)
        intervals = int(end.interval)  # waits for the devices
        lap = self.clock.lap()
        steps = int(end.k) - state.step
        records = int(record[:intervals].sum())
        if records == 0 and steps:
            timed.timed_steps(lap, steps)
        before = state
        if end.alive:
            state = _recorded(state, ends[:intervals], record, end)
        seconds = state.seconds.plus(timed.separated(lap, steps, records))
        if apart and end.alive and not end.reached:
            only = Chunk.record_only(missed=bool(end.missed))
            last = self.call(inputs, end.state, int(end.k), only, votes)
            last.interval.block_until_ready()
            lap = self.clock.lap()
            timed.timed(lap)
            seconds = seconds.plus(timed.separated(lap, 0, 1))
            state = _recorded(state, ends[-1:], only.record, last)
            end = last._replace(interval=end.interval, votes=end.votes)
        state = state._replace(seconds=seconds)

        if pace.failed(end.votes):
            check_same({}, failure)
        stopping = pace.after(intervals, end.votes, stop)
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

    def _compile(self, inputs: Inputs, state: RunState) -> RunState:
        """The same state after the program has been compiled; also sees what a call takes that does
        nothing."""
        nothing = Chunk.of(np.zeros(0, np.int32), np.zeros(0, bool))
        self.pace.records.idle = math.inf
        for _ in range(5):  # the quickest call counts: others may have waited for the machine
            votes = self.pace.votes(None)
            end = self.call(inputs, state.agents, state.step, nothing, votes)
            end.interval.block_until_ready()
            lap = self.clock.lap()
            self.pace.records.idle = min(self.pace.records.idle, lap.steps)
            seconds = state.seconds.plus(Seconds(compiling=lap.compiling))
            state = state._replace(agents=end.state, seconds=seconds)
        return state

    def _diverged(
        self, inputs: Inputs, state: RunState, ends: np.ndarray, record: np.ndarray, end: Progress
    ) -> tuple[RunState, Ended]:
        """The records and the state before the first number that is not finite."""
        steps = self.plan.steps
        if not is_gone(state.agents):
            good, step = loop.last_finite(
                self.setup.program, inputs, state.agents, state.step, int(end.k)
            )
            state = _recorded(state, ends[ends <= step], record, end)
            reason = f"The state stopped being finite at step {step + 1} of {steps}."
            return state._replace(step=step, agents=good), Ended(
                Status.diverged, reason, failed=step + 1
            )
        last = [state.step, *ends[: int(end.interval) - 1].tolist()][-1]
        state = _recorded(state, ends[ends <= last], record, end)
        return state._replace(step=int(end.k), agents=end.state), Ended(
            Status.diverged,
            f"The state stopped being finite between steps {last} and {int(end.k)} of {steps}."
            " It is returned as it is: a state this large is changed in place, and only a"
            " checkpoint has the one before.",
        )


class StreamStepper(CompiledStepper):
    """The same with minibatches from the host: chunks end where a block of them does."""

    def __init__(self, setup: Setup, plan: Plan, clock: Clock, source: Source):
        super().__init__(setup, plan, clock)
        self.feed = Feed(source, setup.steps, setup.placement)

    def inputs_at(self, step: int, until: int) -> tuple[Inputs, int, StreamError | None]:
        inputs, failure = self.feed.at(step, self.setup.inputs)
        if failure is not None and jax.process_count() == 1:
            raise failure
        return inputs, min(until, self.feed.end), failure

    def close(self) -> None:
        self.feed.close()


class PiecesStepper(CompiledStepper):
    """The same where the host computes gradients: it makes the steps of one interval at a time, and
    the compiled program the record."""

    def intervals_at_once(self, inputs: Inputs, state: Tree) -> int:
        pieces = host_gradients.pieces_of(self.setup.program, inputs, state)
        return super().intervals_at_once(inputs, state) if pieces is None else 1

    def call(
        self, inputs: Inputs, state: Tree, step: int, chunk: Chunk, votes: jax.Array | None
    ) -> Progress:
        pieces = host_gradients.pieces_of(self.setup.program, inputs, state)
        if pieces is not None and chunk.length:
            count = int(chunk.steps[0])
            state = host_gradients.steps(pieces, inputs, state, step, count)
            step += count
            chunk = chunk._replace(steps=np.zeros_like(chunk.steps))
        return super().call(inputs, state, step, chunk, votes)


class StreamedPiecesStepper(StreamStepper, PiecesStepper):
    """Minibatches and gradients from the host."""


def stepper_of(setup: Setup, plan: Plan, clock: Clock) -> CompiledStepper:
    """What makes the steps of this run."""
    pieces = host_gradients.are_wanted(setup.program)
    if setup.source is not None:
        kind = StreamedPiecesStepper if pieces else StreamStepper
        return kind(setup, plan, clock, setup.source)
    return (PiecesStepper if pieces else CompiledStepper)(setup, plan, clock)


def _recorded(state: RunState, ends: np.ndarray, record: np.ndarray, end: Progress) -> RunState:
    """With the records of the intervals that end there."""
    marked = np.flatnonzero(record[: len(ends)])
    if not len(marked):
        return state
    rows = {"step": ends[marked]} | {
        name: np.asarray(row)[marked] for name, row in jax.device_get(end.rows).items()
    }
    joined = {
        name: np.concatenate([old, rows[name]]) if len(old) else rows[name]
        for name, old in state.history.items()
    }
    return state._replace(history=joined)
