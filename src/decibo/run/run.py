"""The one host loop: a fold over chunks of steps, RunState -> RunState, and what looks on.

A stepper makes steps: a compiled program (compiled.py), a batch of runs of a sweep (batching.py).
Whatever looks at a run or may end it looks after every chunk, in this order: the user's callbacks,
progress, checkpoints. That a target is reached and that numbers stop being finite the steppers say
themselves, since a compiled program sees it at the very step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from decibo.errors import InputError, short_repr
from decibo.parallel.processes import share
from decibo.parallel.signals import GracefulStop
from decibo.run.checkpoint import Checkpointer, RunState
from decibo.run.progress import Line, Report
from decibo.run.solution import Status

LONGEST = 1000  # the most steps of an interval, so that the host can look in between


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
        if at_records and self._begins(state):
            return 0
        periods = [self.every] if at_records else []
        if self.saves is not None:
            periods.append(self.saves)
        last = [self.steps] if state.step < self.steps else []
        return min([*last, *(period * (state.step // period + 1) for period in periods)])

    def ends(self, state: RunState, until: int, count: int) -> np.ndarray:
        """The steps at which the next intervals end, at most `count`, and none beyond `until`.

        Records are taken at step 0, at every multiple of `every` and at the end.
        """
        periods = [self.every, LONGEST] if self.every > LONGEST else [self.every]
        numbers = 1 + np.arange(count)
        following = [period * (state.step // period + numbers) for period in periods]
        first = [0] if self._begins(state) else []
        ends = np.unique(np.concatenate([*following, [until], first])).astype(int)
        return ends[ends <= until][:count]

    def recorded(self, ends: np.ndarray) -> np.ndarray:
        """Whether there is a record at the end of these intervals."""
        return (ends % self.every == 0) | (ends == self.steps)

    @staticmethod
    def _begins(state: RunState) -> bool:
        return not state.step and not len(state.history["step"])


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
        """Let go of what is open."""
        ...


Look = Callable[[RunState, Ended | None], Ended | None]


def run(
    stepper: Stepper, plan: Plan, state: RunState, looks: Sequence[Look], at_records: bool
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
                for look in looks:
                    found = look(state, ended)
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
            looks[-1](state, ended)
    finally:
        stepper.close()
    return state, ended or Ended(Status.done)


def is_gone(state: Any) -> bool:
    """Whether a chunk that was interrupted has used up the state before it."""
    return any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(state))


# What looks at a run ------------------------------------------------------------------------------


class Callbacks:
    """Hands every record to the callbacks of the user, and ends the run if one of them asks for it,
    in whatever process.

    A callback is a function (step, measures) or an object with any of start(plan), record(step,
    measures) and end(solution).
    """

    def __init__(self, callbacks: object):
        if not isinstance(callbacks, list | tuple):
            raise InputError(
                f"callbacks must be a list of functions or objects, but it is"
                f" {short_repr(callbacks)}.",
                "Pass callbacks=[callback].",
            )
        for callback in callbacks:
            parts = [hasattr(callback, name) for name in ("start", "record", "end")]
            if isinstance(callback, type) or not (callable(callback) or any(parts)):
                raise InputError(
                    "A callback must be a function (step, measures), or an object with any of"
                    f" start(plan), record(step, measures), end(solution), but one is"
                    f" {short_repr(callback)}.",
                    "Make one of the class." if isinstance(callback, type) else "",
                )
        self.all: tuple[Any, ...] = tuple(callbacks)
        self.seen = 0  # records

    def __len__(self) -> int:
        return len(self.all)

    def start(self, plan: Plan) -> None:
        """Before the first step."""
        self.seen = len(plan.history.get("step", ()))
        for callback in self.all:
            if hasattr(callback, "start"):
                callback.start(plan)

    def look(self, state: RunState, ended: Ended | None) -> Ended | None:
        """Hand over the new records."""
        votes = []
        for place in range(self.seen, len(state.history["step"])):
            row = {name: values[place] for name, values in state.history.items()}
            step = int(row.pop("step"))
            for callback in self.all:
                record = getattr(callback, "record", callback)
                vote = record(step, row) if callable(record) else None
                if not isinstance(vote, bool | np.bool_ | str | None):
                    raise InputError(
                        "A callback must return True or a reason to end the run, or else None, but"
                        f" {_name(callback)} returned {short_repr(vote)}."
                    )
                if vote:
                    said = f": {vote.rstrip('.')}" if isinstance(vote, str) else ""
                    votes.append(f"Stopped by {_name(callback)} at step {step}{said}.")
        self.seen = len(state.history["step"])
        if jax.process_count() > 1:  # all of them are here, after the same chunk
            votes = [vote for process in share(votes) for vote in process]
        return Ended(Status.stopped, votes[0]) if votes and ended is None else None

    def end(self, solution: object) -> None:
        """After the run, however it ended."""
        for callback in self.all:
            if hasattr(callback, "end"):
                callback.end(solution)


def _name(callback: object) -> str:
    return getattr(callback, "__name__", type(callback).__name__)


def reporting(report: Report, plan: Plan) -> Look:
    """Progress after every chunk."""

    def look(state: RunState, ended: Ended | None) -> None:
        if ended is None or ended.status is not Status.diverged:
            latest = {name: row[-1] for name, row in state.history.items() if len(row)}
            latest.pop("step", None)
            report(min(state.step, plan.steps), plan.steps, latest)

    return look


def saving(
    checkpointer: Checkpointer, plan: Plan, whole: Callable[[RunState], RunState] = lambda s: s
) -> Look:
    """A checkpoint where one is due, and where a run ends, unless its numbers are not finite.

    whole   adds what only a checkpoint has
    """
    saved = plan.step or -1

    def look(state: RunState, ended: Ended | None) -> None:
        nonlocal saved
        if ended is not None and ended.status is Status.diverged:
            return
        over = ended is not None or state.step == plan.steps
        due = over or state.step % checkpointer.every == 0
        if due and state.step > saved and len(state.history["step"]):
            checkpointer.save(whole(state))
            saved = state.step

    return look


def watched(progress: bool | Report | None) -> AbstractContextManager[Report | None]:
    """What to call between chunks: the function that was passed, or a line if it is wanted and
    somebody watches."""
    if callable(progress):
        return nullcontext(progress)
    if not isinstance(progress, bool | None):
        raise InputError(
            "progress must be True, False or a function (step, steps, latest measures), but it is "
            f"{short_repr(progress)}."
        )
    return Line() if (sys.stderr.isatty() if progress is None else progress) else nullcontext(None)
