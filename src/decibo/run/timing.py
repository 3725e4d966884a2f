"""Where the time of a run goes, and how many intervals to run at a time.

Time is kept apart: steps, compiling, measures. What was compiling JAX says itself: it reports each
span as it ends, and spans lie inside each other, so their union counts. Steps and records are one
compiled program; to tell them apart, the record that ends a chunk is made in a call of its own now
and then, and so are the steps of the first intervals. Both are timed, and the time of other calls
is shared out in the same proportion.
"""

from __future__ import annotations

import math
import threading
import time

import jax
import numpy as np

from decibo.measure.cost import Seconds
from decibo.parallel.placement import Placement
from decibo.run.loop import INTERVALS

SECONDS = 0.5  # how long a chunk should take: often enough for progress, too seldom to be felt
APART = 8  # every so many chunks, the last record is timed
SAMPLES = 3  # so many times, the steps of an interval are timed
# seconds: records that take longer are always timed, since a call costs little beside them
LONG = 5e-4
COMPILING = "/jax/core/compile/"  # JAX's names of what it reports


class _Compiled(threading.local):
    """What this thread has spent on compiling: spans that have ended and do not overlap."""

    def __init__(self) -> None:
        self.total = 0.0
        # the latest spans, which a longer one may still cover
        self.open: list[tuple[float, float]] = []


_compiled = _Compiled()
_listening = threading.Event()


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if not event.startswith(COMPILING):
        return
    start = time.perf_counter() - duration_secs
    inside = [span for span in _compiled.open if span[0] >= start]
    before = [span for span in _compiled.open if span[0] < start]
    _compiled.open = [*before[-8:], (start, duration_secs)]
    _compiled.total += duration_secs - sum(length for _, length in inside)


class Clock:
    """A stopwatch whose laps say how much of them was compiling."""

    def __init__(self) -> None:
        if not _listening.is_set():  # once for all runs, and only when there is one
            jax.monitoring.register_event_duration_secs_listener(_listen)
            _listening.set()
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


class Records:
    """What a step and a record take, from those that are timed alone. Calls with both are shared
    out in proportion."""

    def __init__(self) -> None:
        self.chunks = 0
        self.samples = 0  # how often steps were timed
        self.step = math.inf
        self.each = 0.0
        self.idle = 0.0  # seconds of a call that does nothing

    def apart(self, each: float | None = None) -> bool:
        """Whether the last record of the next chunk is made in a call of its own; `each` as all
        processes know it."""
        self.chunks += 1
        return (
            not self.known
            or self.chunks % APART == 1
            or (self.each if each is None else each) > LONG
        )

    @property
    def known(self) -> bool:
        """Whether steps were timed often enough."""
        return self.samples >= SAMPLES

    def timed_steps(self, lap: Seconds, steps: int) -> None:
        """A call has made so many steps and no record; the quickest counts, since others waited for
        the machine."""
        self.samples += 1
        self.step = min(self.step, max(lap.steps - self.idle, 0.0) / steps)

    def timed(self, lap: Seconds) -> None:
        """A call has made one record."""
        self.each = max(lap.steps - self.idle, 0.0)

    def separated(self, lap: Seconds, steps: int, records: int) -> Seconds:
        """The time of a call with so many steps and records, shared out between the two."""
        made = records * self.each
        if steps and math.isinf(self.step):  # never timed alone
            measuring = min(made, lap.steps)
        else:
            both = made + (steps * self.step if steps else 0.0)
            measuring = lap.steps * (made / both) if both > 0 else 0.0
        return lap._replace(steps=lap.steps - measuring, measuring=lap.measuring + measuring)


class Pace:
    """How many intervals to run at a time, and when to stop on request: the same answer in all
    processes.

    Processes of one run must call the compiled program alike, but each has its own clock and
    receives its own signals. So each votes with every chunk how long the last one and a record took
    and whether it was asked to stop, and all get the maximum.
    """

    def __init__(self, placement: Placement | None):
        self.placement = placement
        self.several = placement is not None and jax.process_count() > 1
        self.count = 1
        self.begun = 0.0
        self.last = (1, 0.0)  # intervals and seconds of the last chunk
        self.records = Records()
        self.record = 0.0  # the seconds of a record on which all agree

    def votes(self, requested: str | None, failed: bool = False) -> jax.Array | None:
        """The votes of this process: (asked to stop?, seconds of the last chunk, those of a record,
        has it failed?)."""
        self.begun = time.perf_counter()
        if self.placement is None:
            return None
        row = np.array([requested is not None, self.last[1], self.records.each, failed], np.float32)
        return self.placement.split_devices(np.tile(row, (self.placement.mesh.size, 1)))

    def failed(self, votes: jax.Array) -> bool:
        """Whether a process had nothing to run the last chunk with."""
        return self.several and bool(votes[3] > 0)

    def apart(self) -> bool:
        """Whether the last record of the next chunk is timed."""
        return self.records.apart(self.record if self.several else None)

    def after(self, intervals: int, votes: jax.Array, requested: str | None) -> bool:
        """Choose the next count; returns whether to stop."""
        took = time.perf_counter() - self.begun
        # what is agreed on is a chunk old
        count, seconds = self.last if self.several else (intervals, took)
        seconds = float(votes[1]) if self.several else seconds
        self.record = float(votes[2]) if self.several else 0.0
        self.count = int(np.clip(count * min(8.0, SECONDS / max(seconds, 1e-6)), 1, INTERVALS))
        self.last = (intervals, took)
        return bool(votes[0] > 0) if self.several else requested is not None
