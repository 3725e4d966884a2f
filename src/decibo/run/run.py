"""A run on the host: a fold over chunks of steps, RunState -> RunState, and the solution at its
end."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError, StreamError, short
from decibo.formatting import format_number
from decibo.measure.cost import Cost, Seconds
from decibo.measure.measures import SOLVED, as_trees
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.parallel.placement import Placement
from decibo.parallel.processes import check_same
from decibo.parallel.signals import GracefulStop
from decibo.problem.problem import Problem
from decibo.problem.reference import not_strongly_convex
from decibo.pytree import Tree
from decibo.run import diagnose, host_gradients, loop, outcome
from decibo.run.checkpoint import Checkpointer, RunState
from decibo.run.loop import Chunk, Inputs, Program, Progress
from decibo.run.prefetch import Feed, Source
from decibo.run.progress import Line, Report
from decibo.run.solution import DivergedError, Solution, Status
from decibo.run.timing import Clock, Pace

LONGEST = 1000  # the most steps of an interval, so that the host can look in between
PATIENCE = 5.0  # seconds: a run that took longer is not repeated to find out what to change
# bytes of all agents' states: beyond, a chunk changes them in place, and the state before is gone
LARGE = 1 << 28
MOREAU = "1/c"  # the bias of methods for inner levels that need not be convex


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


def finish(
    setup: Setup, run: RunState, report: Report | None, throw: bool, clock: Clock | None = None
) -> Solution:
    """Run chunk after chunk until the steps are done, a target is reached or the numbers stop being
    finite."""
    clock = Clock() if clock is None else clock
    pace = Pace(setup.placement)
    status = Status.done
    saved = run.step if run.step else -1  # the step of the last checkpoint
    feed = None if setup.source is None else Feed(setup.source, setup.steps, setup.placement)
    try:
        with GracefulStop() as stop:
            inputs, failure = _fed(setup, feed, run)
            run = _compiled(setup, inputs, run, pace, clock)
            while run.step < setup.steps and status is Status.done:
                inputs, failure = (inputs, failure) if failure else _fed(setup, feed, run)
                part = _next(setup, run, pace, feed)
                votes = pace.votes(stop.requested, failure is not None)
                end, run = _advance(setup, inputs, run, part, votes, pace, clock)
                if pace.failed(end.votes):
                    check_same({}, failure)
                stopping = pace.after(int(end.interval), end.votes, stop.requested)
                if not end.alive:
                    stop.pass_on()
                    return _diverged(setup, inputs, run, part, end, throw)
                run = run._replace(step=int(end.k), agents=end.state)
                if report is not None:
                    report(run.step, setup.steps, _latest(run))
                if end.reached:
                    status = Status.converged
                elif stopping and run.step < setup.steps:
                    status = Status.interrupted
                if setup.checkpointer and _due(setup, run, status) and run.step > saved:
                    setup.checkpointer.save(run)
                    saved = run.step
                clock.lap()  # neither files nor progress are steps
            if status is not Status.interrupted:
                stop.pass_on()  # too late for this run, but not for what comes after it
    except KeyboardInterrupt:
        # the others are elsewhere, or there is nothing to save
        if jax.process_count() > 1 or _is_gone(run.agents):
            raise
        status = Status.interrupted
        if setup.checkpointer and run.step > max(saved, 0):
            setup.checkpointer.save(run)
    finally:
        if feed is not None:
            feed.close()
    return _ended(setup, run, status, throw)


def watched(progress: bool | Report | None) -> AbstractContextManager[Report | None]:
    """What to call between chunks: the function that was passed, or a line if it is wanted and
    somebody watches."""
    if callable(progress):
        return nullcontext(progress)
    if not isinstance(progress, bool | None):
        raise InputError(
            "progress must be True, False or a function (step, steps, latest measures), but it is "
            f"{short(repr(progress))}."
        )
    return Line() if (sys.stderr.isatty() if progress is None else progress) else nullcontext(None)


def _fed(setup: Setup, feed: Feed | None, run: RunState) -> tuple[Inputs, StreamError | None]:
    """The inputs of the next chunk; with several processes also why this one has none, of which it
    tells the others."""
    if feed is None or run.step >= setup.steps:
        return setup.inputs, None
    inputs, failure = feed.at(run.step, setup.inputs)
    if failure is not None and jax.process_count() == 1:
        raise failure
    return inputs, failure


class Part(NamedTuple):
    """The next intervals: the steps at which they end, and whether the record of the last one is
    made apart."""

    ends: np.ndarray
    chunk: Chunk
    apart: bool


def _next(setup: Setup, run: RunState, pace: Pace, feed: Feed | None) -> Part:
    """The intervals to run next, as the compiled program takes them."""
    alone = (
        not pace.records.known
        or host_gradients.pieces_of(setup.program, setup.inputs, run.agents) is not None
    )
    ends = _boundaries(
        setup, run, 1 if alone else pace.count, setup.steps if feed is None else feed.end
    )
    record = (ends % setup.every == 0) | (ends == setup.steps)
    apart = bool(record[-1]) and pace.apart()
    if apart:
        record[-1] = False
    return Part(
        ends, Chunk.of(np.diff(ends, prepend=run.step), record, missed=_missed(setup, run)), apart
    )


def _advance(
    setup: Setup,
    inputs: Inputs,
    run: RunState,
    part: Part,
    votes: jax.Array | None,
    pace: Pace,
    clock: Clock,
) -> tuple[Progress, RunState]:
    """Run these intervals: where they ended, and the state with their records; its agents are still
    those before."""
    end = _call(setup, inputs, run.agents, run.step, part.chunk, votes)
    intervals = int(end.interval)
    lap = clock.lap()
    steps = int(end.k) - run.step
    records = int(part.chunk.record[:intervals].sum())
    if records == 0 and steps:
        pace.records.timed_steps(lap, steps)
    if end.alive:
        run = _recorded(run, part.ends[:intervals], part.chunk.record, end)
    seconds = run.seconds.plus(pace.records.separated(lap, steps, records))
    if part.apart and end.alive and not end.reached:
        only = Chunk.record_only(missed=bool(end.missed))
        last = _call(setup, inputs, end.state, int(end.k), only, votes)
        last.interval.block_until_ready()
        lap = clock.lap()
        pace.records.timed(lap)
        seconds = seconds.plus(pace.records.separated(lap, 0, 1))
        run = _recorded(run, part.ends[-1:], only.record, last)
        end = last._replace(interval=end.interval, votes=end.votes)
    return end, run._replace(seconds=seconds)


def _call(
    setup: Setup, inputs: Inputs, state: Tree, step: int, chunk: Chunk, votes: jax.Array | None
) -> Progress:
    """Run a chunk; a large state is changed in place. Steps that the host runs come before a chunk
    without steps."""
    pieces = host_gradients.pieces_of(setup.program, inputs, state)
    if pieces is not None and chunk.length:
        count = int(chunk.steps[0])
        state = host_gradients.steps(pieces, inputs, state, step, count)
        step += count
        chunk = chunk._replace(steps=np.zeros_like(chunk.steps))
    advance = loop.advance_in_place if _is_large(state) else loop.advance
    return advance(setup.program, inputs, state, np.int32(step), chunk, votes)


def _is_large(state: Tree) -> bool:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) > LARGE


def _is_gone(state: Tree) -> bool:
    """Whether a chunk that was interrupted has used it up."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def _compiled(setup: Setup, inputs: Inputs, run: RunState, pace: Pace, clock: Clock) -> RunState:
    """The same state after the program has been compiled; also sees what a call takes that does
    nothing."""
    nothing = Chunk.of(np.zeros(0, np.int32), np.zeros(0, bool))
    clock.lap()
    pace.records.idle = math.inf
    for _ in range(5):  # the quickest call counts: others may have waited for the machine
        votes = pace.votes(None)
        end = _call(setup, inputs, run.agents, run.step, nothing, votes)
        end.interval.block_until_ready()
        lap = clock.lap()
        pace.records.idle = min(pace.records.idle, lap.steps)
        run = run._replace(
            agents=end.state, seconds=run.seconds.plus(Seconds(compiling=lap.compiling))
        )
    return run


def _missed(setup: Setup, run: RunState) -> bool:
    """Whether a record so far was above a target: what holds from the start on does not end a
    run."""
    rows = [np.asarray(run.history[name]) <= value for name, value in setup.targets.items()]
    return any(not row.all() for row in rows)


def _boundaries(setup: Setup, run: RunState, count: int, block: int) -> np.ndarray:
    """The steps at which the next intervals end, at most `count`, and none beyond the next stop of
    the host.

    block   the end of the block of minibatches that is there

    Records are taken at step 0, at every multiple of `every` and at the end.
    """
    periods = [setup.every, LONGEST] if setup.every > LONGEST else [setup.every]
    stops = []
    if setup.checkpointer:
        stops.append(setup.checkpointer.every)
    following = [
        period * (run.step // period + 1 + np.arange(count)) for period in (*periods, *stops)
    ]
    first = [0] if not len(run.history["step"]) and not run.step else []
    ends = np.unique(np.concatenate([*following, [setup.steps, block], first])).astype(int)
    limit = min([setup.steps, block, *(period * (run.step // period + 1) for period in stops)])
    return ends[ends <= limit][:count]


def _recorded(run: RunState, ends: np.ndarray, record: np.ndarray, end: Progress) -> RunState:
    """With the records of the intervals that end there."""
    marked = np.flatnonzero(record[: len(ends)])
    if not len(marked):
        return run
    rows = {"step": ends[marked]} | {
        name: np.asarray(row)[marked] for name, row in jax.device_get(end.rows).items()
    }
    joined = {
        name: np.concatenate([old, rows[name]]) if len(old) else rows[name]
        for name, old in run.history.items()
    }
    return run._replace(history=joined)


def _due(setup: Setup, run: RunState, status: Status) -> bool:
    """Whether a checkpoint is to be written here."""
    every = setup.checkpointer.every if setup.checkpointer else setup.steps
    return status is not Status.done or run.step == setup.steps or run.step % every == 0


def _latest(run: RunState) -> dict[str, np.ndarray]:
    return {name: row[-1] for name, row in run.history.items() if name != "step" and len(row)}


def _ended(setup: Setup, run: RunState, status: Status, throw: bool) -> Solution:
    """The solution of a run whose state is finite: whether it is an answer, and if not, why."""
    last = float(loop.largest(run.agents))
    first = float(loop.largest(setup.start)) if last > outcome.WORSE else 0.0
    found, note = outcome.judge(run.history, first, last)
    solution = _solution(setup, run, status, "")
    moved = outcome.hardly_moved(
        setup.center, np.asarray(setup.program.functions.x.ravel(solution.x))
    )
    reasons = [note]
    if found is Status.diverged:
        reasons.append(_why_grown(setup, run))
    elif found is Status.failed:
        reasons.append(_why_failed(setup, run, solution))
    elif run.step:
        chooses = setup.method.chosen is not None
        suspect = (
            (chooses and bool(moved)) or outcome.worsened(run.history) or _kept_y(setup, solution)
        )
        flat = _flat_inner(setup, solution) if suspect else ""
        found = Status.failed if flat else None
        reasons += [moved, flat]
    reasons.append(_chosen(setup, run))
    if found is not None and status is not Status.interrupted:
        status = found
    message = " ".join(part for part in (_message(setup, run, status), *reasons) if part)
    solution = replace(solution, status=status, message=message)
    if throw and not status.sound:
        raise DivergedError(solution)
    return solution


def _chosen(setup: Setup, run: RunState) -> str:
    """Which step sizes the agents have come to, if they chose any."""
    if setup.method.chosen is None:
        return ""
    rows = loop.chosen_of(setup.program, setup.inputs, run.agents)
    found = {name: float(np.median(np.asarray(row))) for name, row in rows.items()}
    finite = [
        f"{name}={format_number(value)}" for name, value in found.items() if not np.isinf(value)
    ]
    unlimited = [name for name, value in found.items() if np.isinf(value)]
    sentences = [f"Step sizes found by the agents: {', '.join(finite)}."] if finite else []
    return " ".join(
        [*sentences, *(f"No curvature was seen that would limit {name}." for name in unlimited)]
    )


def _flat_inner(setup: Setup, end: Solution | None = None) -> str:
    """A sentence, if the inner level has no curvature at the start, or at the end; if data is
    spread, nobody knows."""
    if setup.placement or setup.method.bias == MOREAU:
        return ""
    functions = setup.program.functions
    if end is None:
        x, y = (jnp.mean(setup.start[name], axis=0) for name in ("x", "y"))
    else:
        x = functions.x.ravel(end.x)
        y = functions.y.ravel(end.y)
    where = "at the start" if end is None else "where the run ended"
    found = not_strongly_convex(functions, setup.inputs.data, x, y, where)
    return "" if found is None else str(found)


def _kept_y(setup: Setup, solution: Solution) -> bool:
    """Whether y, or z, is where it began, as if the inner level did not depend on it; looked at
    where that is cheap."""
    layout = setup.program.functions.y
    if setup.placement or setup.method.one_level or layout.size > outcome.SMALL_Y:
        return False
    start = np.asarray(setup.start["y"]).mean(axis=0)
    z = jax.tree.map(lambda rows: np.asarray(rows).mean(axis=0), getattr(solution.agents, "z", ()))
    ends = [[np.ravel(leaf) for leaf in jax.tree.leaves(tree)] for tree in (solution.y, z)]
    return any(outcome.unmoved(start, np.concatenate(leaves)) for leaves in ends if leaves)


def _why_grown(setup: Setup, run: RunState) -> str:
    """What to do about numbers that grew without bound."""
    flat = _flat_inner(setup)
    if flat:
        return flat
    if setup.method.chosen:
        return "No step sizes kept it bounded: is the outer objective bounded below?"
    if run.seconds.steps > PATIENCE:
        return "Lower the step sizes, or check that the outer objective is bounded below."
    return _explained(setup, setup.inputs, run, run.step)


def _why_failed(setup: Setup, run: RunState, solution: Solution) -> str:
    """Why a measure is not a finite number."""
    exact = any(not np.isfinite(run.history[name][-1]) for name in SOLVED if name in run.history)
    why = (
        ""
        if setup.placement or not exact
        else diagnose.unsolved_inner(setup.problem, setup.inputs, solution.x)
    )
    return why or "Check where the objectives and measures are defined."


def _diverged(
    setup: Setup, inputs: Inputs, run: RunState, part: Part, end: Progress, throw: bool
) -> Solution:
    """Keep the records and the state before the first number that is not finite, and say what to
    change."""
    if _is_gone(run.agents):
        return _lost(setup, run, part, end, throw)
    good, step = diagnose.last_finite(setup.program, inputs, run.agents, run.step, int(end.k))
    run = _recorded(run, part.ends[part.ends <= step], part.chunk.record, end)._replace(
        step=step, agents=good
    )
    advice = _flat_inner(setup) or _explained(setup, inputs, run, step + 1)
    message = f"The state stopped being finite at step {step + 1} of {setup.steps}. {advice}"
    solution = _solution(setup, run, Status.diverged, message)
    if throw:
        raise DivergedError(solution)
    return solution


def _lost(setup: Setup, run: RunState, part: Part, end: Progress, throw: bool) -> Solution:
    """A large state that stopped being finite, when that before is gone."""
    before = [run.step, *part.ends[: int(end.interval) - 1].tolist()][-1]
    run = _recorded(run, part.ends[part.ends <= before], part.chunk.record, end)
    run = run._replace(step=int(end.k), agents=end.state)
    message = (
        f"The state stopped being finite between steps {before} and {run.step} of {setup.steps}. It"
        " is returned as it is: a state this large is changed in place, and only a checkpoint has"
        " the one before. " + _bad_start(setup)
    )
    solution = _solution(setup, run, Status.diverged, message)
    if throw:
        raise DivergedError(solution)
    return solution


def _bad_start(setup: Setup) -> str:
    """Whether the objectives were finite where a large run started: they were not computed before
    it."""
    if setup.placement is None:
        start = setup.rows()
        key = setup.inputs.key if setup.method.stochastic and setup.source is None else None
        both = loop.values(setup.program.functions, setup.inputs.data, start["x"], start["y"], key)
        for name, row in zip(("outer", "inner"), map(np.asarray, both), strict=True):
            for agent in np.flatnonzero(~np.isfinite(row))[:1]:
                return (
                    f"Already at the start {name} of agent {agent} was {row[agent]}: check the data"
                    " of this agent."
                )
    return "Lower the step sizes."


def _explained(setup: Setup, inputs: Inputs, run: RunState, failed: int) -> str:
    """What to lower, found by trials from the same start; a stream does not begin anew for them."""
    if setup.source is not None or _is_large(run.agents):
        return "Lower the step sizes."
    return diagnose.explain(setup.program, inputs, setup.method, setup.rows(), failed)


def _solution(setup: Setup, run: RunState, status: Status, message: str) -> Solution:
    functions = setup.program.functions
    method = setup.method
    rows: Mapping[str, jax.Array] = loop.rows_of(setup.program, setup.inputs, run.agents)
    if setup.placement:
        # here, for this process alone
        rows = {name: jnp.asarray(np.asarray(row)) for name, row in rows.items()}
    links = len(setup.network.edges) * (1 if setup.network.directed else 2)
    state: Tree = run.agents if setup.placement is None else None
    return Solution(
        x=functions.x.unravel(jnp.mean(rows["x"], axis=0)),
        y=functions.y.unravel(jnp.mean(rows[method.answer], axis=0)),
        agents=as_trees(functions, rows),
        history=run.history,
        cost=replace(
            setup.cost,
            agents=setup.network.agents,
            links=links,
            steps=run.step,
            seconds=run.seconds.steps,
            compiling=run.seconds.compiling,
            measuring=run.seconds.measuring,
        ),
        status=status,
        message=message,
        steps=run.step,
        method=method,
        network=setup.network,
        state=state,
    )


def _message(setup: Setup, run: RunState, status: Status) -> str:
    targets = " and ".join(f"{name} <= {value:g}" for name, value in setup.targets.items())
    if status is Status.converged:
        return f"Reached {targets} at step {run.step}."
    if status is Status.interrupted:
        return f"Interrupted at step {run.step} of {setup.steps}; everything up to there is kept."
    if not status.sound:
        return f"No answer after {run.step} steps."
    held = bool(targets) and not _missed(setup, run)
    already = f" {targets} held from the start on, which does not end a run." if held else ""
    return f"All {setup.steps} steps done.{already}"
