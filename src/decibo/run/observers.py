"""What looks at a run after every chunk of steps: the callbacks of the user, a line on the
terminal, and checkpoints, which come last, so that what is saved has been judged.

The line is there while a run lasts that somebody watches:

    step 12400/50000  8120/s  0:04 left  |grad Phi| 3.1e-04  consensus_x 2.2e-09

It is written between chunks, about twice a second, and costs some microseconds.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import jax
import numpy as np

from decibo.errors import InputError, short_repr
from decibo.formatting import listed
from decibo.parallel.processes import share
from decibo.run.checkpoint import Checkpointer, RunState
from decibo.run.run import Ended, Observer, Plan
from decibo.run.solution import Status

Report = Callable[[int, int, Mapping[str, Any]], None]

PAUSE = 0.2  # seconds between two updates
PATIENCE = 1.0  # seconds before the first
# |grad Phi|, exact or estimated without second derivatives; the measures are its square.
SLOPES = {"stationarity": "|grad Phi|", "direction_norm": "|grad Phi| about"}


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
                    reason = f": {vote.rstrip('.')}" if isinstance(vote, str) else ""
                    votes.append(f"Stopped by {_name(callback)} at step {step}{reason}.")
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


def reporting(report: Report, plan: Plan) -> Observer:
    """Progress after every chunk."""

    def look(state: RunState, ended: Ended | None) -> None:
        if ended is None or ended.status is not Status.diverged:
            latest = {name: row[-1] for name, row in state.history.items() if len(row)}
            latest.pop("step", None)
            report(min(state.step, plan.steps), plan.steps, latest)

    return look


def saving(
    checkpointer: Checkpointer, plan: Plan, whole: Callable[[RunState], RunState] = lambda s: s
) -> Observer:
    """A checkpoint where one is due, and where a run ends, unless its numbers are not finite.

    whole   adds what only a checkpoint has
    """
    saved = plan.step or -1

    def look(state: RunState, ended: Ended | None) -> None:
        nonlocal saved
        if ended is not None and ended.status is Status.diverged:
            return
        over = ended is not None or state.step == plan.steps
        due = over or state.step % checkpointer.checkpoints.every == 0
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
            "progress must be True, False or a function (step, steps, latest measures), but it is"
            f" {short_repr(progress)}."
        )
    return Line() if (sys.stderr.isatty() if progress is None else progress) else nullcontext(None)


class Line:
    """Rewrites one line, at most five times a second, and only for runs longer than a second."""

    def __init__(self, noun: str = "step") -> None:
        self.noun = noun
        self.begun = time.perf_counter()
        self.shown = self.begun
        self.mark: tuple[float, int] | None = None  # the first report: compilation lies before it
        self.drawn = False
        self.at = (0, 0)  # the step, and how many there are

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wipe an unfinished line, so that the next thing printed starts at the left."""
        if self.drawn:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + " " * width + "\r", end="", file=sys.stderr, flush=True)
            self.drawn = False

    def __call__(self, step: int, steps: int, latest: Mapping[str, Any]) -> None:
        now = time.perf_counter()
        over = step >= steps
        self.mark = self.mark or (now, step)
        self.at = (step, steps)
        if now - self.begun < PATIENCE or (now - self.shown < PAUSE and not over):
            return
        self._draw(line(step, steps, self._rate(now, step), latest, self.noun), over)

    def waits(self, names: Sequence[str], seconds: float) -> None:
        """For whom a site waits, in place of the measures."""
        now = time.perf_counter()
        if seconds >= PATIENCE and now - self.shown >= PAUSE:
            step, steps = self.at
            made = [line(step, steps, self._rate(now, step), {}, self.noun)] if steps else []
            waiting = f"waiting for {listed(names)}, {seconds:.0f} s"
            self._draw("  ".join([*made, waiting]), over=False)

    def _draw(self, text: str, over: bool) -> None:
        self.shown = time.perf_counter()
        self.drawn = not over
        width = shutil.get_terminal_size().columns - 1
        print(
            "\r" + text[:width].ljust(width), end="\n" if over else "", file=sys.stderr, flush=True
        )

    def _rate(self, now: float, step: int) -> float:
        """Steps a second since the first report, or since the beginning while there is only one."""
        since, first = self.mark or (now, step)
        if step > first:
            return (step - first) / (now - since)
        return step / max(now - self.begun, 1e-9)


def line(step: int, steps: int, rate: float, latest: Mapping[str, Any], noun: str = "step") -> str:
    """The text: step, rate, time left, |grad Phi|, consensus error; other measures where these are
    not recorded."""
    parts = [f"{noun} {step}/{steps}", f"{rate:.0f}/s"]
    if rate > 0:
        minutes, seconds = divmod(round((steps - step) / rate), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}" if hours else f"{minutes}"
        parts.append(f"{clock}:{seconds:02} left")
    numbers = {name: float(row) for name, row in latest.items() if not getattr(row, "ndim", 0)}
    slope = next((name for name in SLOPES if name in numbers), None)
    shown = {} if slope is None else {SLOPES[slope]: math.sqrt(max(numbers[slope], 0.0))}
    shown |= {name: value for name, value in numbers.items() if name == "consensus_x"}
    shown = shown or dict(list(numbers.items())[:3])
    return "  ".join([*parts, *(f"{name} {value:.2g}" for name, value in shown.items())])
