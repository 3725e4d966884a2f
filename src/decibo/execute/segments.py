"""A run cut into segments: some steps and, at the end of some, a record."""

from __future__ import annotations

import numpy as np

from decibo.execute import loop

LONGEST = 1000  # the most steps without the host being able to look
NOTHING = np.zeros(0, int)


def cut(steps: int, every: int, longest: int, more: np.ndarray = NOTHING) -> tuple[np.ndarray, np.ndarray]:
    """Segments (steps, record?): a record at step 0, at every multiple of `every`, and at the end.

    Long ways between two records are cut, so that the host can look in between, and so are those over `more` steps.
    """
    ends = np.append(np.arange(0, steps, every), steps)
    cuts = np.append(np.arange(0, steps, longest), steps) if every > longest else ends
    stops = np.union1d(ends, np.union1d(cuts, more[more <= steps]).astype(int))
    return np.diff(stops, prepend=0).astype(np.int32), np.isin(stops, ends)


def stretch(steps: np.ndarray, record: np.ndarray) -> loop.Stretch:
    """Segments as the compiled program takes them."""
    rest = (0, loop.SEGMENTS - len(steps))
    return loop.Stretch(np.pad(steps, rest), np.pad(record, rest), np.int32(len(steps)))  # type: ignore[arg-type]
