"""How many segments to run at a time, and when to stop because somebody asked: the same answer in all processes.

Processes of one run must call the compiled program alike, but each has its own clock and hears its own signals.
So each says, with every stretch, how long the last one took and whether it was asked to stop, and all hear the
largest of what was said.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from decibo.execute.loop import SEGMENTS
from decibo.parallel.placement import Placement

SECONDS = 0.5  # how long a stretch should take: often enough for progress, too seldom to be felt


class Pace:
    """The number of segments of the next stretch, from the time that the last ones took."""

    def __init__(self, place: Placement | None):
        self.place, self.count = place, 1
        self.several = place is not None and jax.process_count() > 1
        self.before, self.ran, self.took = 0.0, 1, 0.0

    def say(self, asked: str | None) -> Any:
        """What this process tells the others with the next stretch: (asked to stop?, seconds of the last stretch)."""
        self.before = time.perf_counter()
        if self.place is None:
            return None
        said = np.tile(np.array([asked is not None, self.took], np.float32), (self.place.mesh.size, 1))
        return self.place.split_devices(said)

    def after(self, word: Any, asked: str | None, fixed: bool) -> bool:
        """Choose the next count, one if fixed; returns whether to stop."""
        took, now = time.perf_counter() - self.before, self.count
        stop = asked is not None
        if self.several:  # what is agreed on is a stretch old
            stop, agreed = bool(word[0] > 0), float(word[1])
            self._choose(self.ran, agreed, fixed)
        else:
            self._choose(now, took, fixed)
        self.ran, self.took = now, took
        return stop

    def _choose(self, count: int, seconds: float, fixed: bool) -> None:
        wanted = 1 if fixed else count * min(8.0, SECONDS / max(seconds, 1e-6))
        self.count = int(np.clip(wanted, 1, SEGMENTS))
