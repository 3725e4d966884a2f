"""How a run ended, judged by its numbers: one rule for single runs, for batches and for every
method.

    diverged   the largest number of the state has grown GROWN times; or WORSE times, while what is
               to be minimised has not become smaller either. (A state that is not finite has
               diverged, too; the loop sees that itself.)
    failed     a measure is not a finite number at the last record

Growth is relative to 1 + the largest number at the start: a solution may be far from a start at
zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from decibo.formatting import listed
from decibo.run.solution import Status

GROWN = 1e9  # times the start: finite, but no answer
WORSE = 1e5  # times the start, where nothing has improved
# one of them falls in a run that works
MINIMISED = ("outer", "phi", "stationarity", "direction_norm", "distance_x")
STILL = "x has hardly moved"
SMALL = 1e-6  # a measure below this is no sign of trouble
ROUNDING = 1e-12  # of 1 + the largest number of a variable
SMALL_Y = 10_000  # numbers of y: beyond, whether y has moved is not looked at
MOVED = 1e-6  # of 1 + the largest number of x0: less than this is hardly a move


class Outcome(NamedTuple):
    """The status, if it is not what the loop says, and why; the note may also be about a run that
    is sound."""

    status: Status | None
    note: str


def judge(history: Mapping[str, np.ndarray], first: float, last: float) -> Outcome:
    """The outcome of a run from its records and the largest number of its state, at the start and
    at the end."""
    if grown(history, first, last):
        return Outcome(
            Status.diverged, f"The largest number has grown from {first:.1g} to {last:.1g}."
        )
    bad = {name: _bad_records(values) for name, values in history.items() if name != "step"}
    ended = [name for name, records in bad.items() if records[-1:].any()]
    if ended:
        since = {int(history["step"][_bad_since(bad[name])]) for name in ended}
        when = f"from step {min(since)} on" if min(since) else "from the start"
        are = "are not finite numbers" if len(ended) > 1 else "is not a finite number"
        return Outcome(Status.failed, f"{listed(ended)} {are} {when}.")
    some = {name: int(records.sum()) for name, records in bad.items() if records.any()}
    if not some:
        return Outcome(None, "")
    name, count = max(some.items(), key=lambda pair: pair[1])
    others = (
        f" (and {listed([each for each in some if each != name])} in some)" if len(some) > 1 else ""
    )
    return Outcome(
        None, f"{name} was not a finite number in {count} of {len(bad[name])} records{others}."
    )


def grown(history: Mapping[str, np.ndarray], first: float, last: float) -> bool:
    """Whether the numbers of a run grew without bound."""
    if not last <= GROWN * (1 + first):
        return True
    if last <= WORSE * (1 + first):
        return False
    rows = [
        history[name]
        for name in MINIMISED
        if name in history and len(history[name]) and history[name].ndim == 1
    ]
    return bool(rows) and not any(row[-1] < row[0] for row in rows)


def worsened(history: Mapping[str, np.ndarray]) -> bool:
    """Whether an objective ended far above its start: no growth without bound, but suspect."""
    rows = [history[name] for name in ("outer", "phi") if name in history and len(history[name])]
    return any(row[-1] > 10 * abs(row[0]) + SMALL for row in rows)


def hardly_moved(start: np.ndarray, end: np.ndarray) -> str:
    """A sentence, if x is where it was."""
    distance = float(np.max(np.abs(end - start)))
    if not distance <= MOVED * (1 + float(np.max(np.abs(start)))):
        return ""
    return f"{STILL}, by {distance:.1g} at most: if x0 is no solution, it needs larger steps."


def unmoved(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether a variable is where it was, but for rounding."""
    return start.shape == end.shape and bool(
        np.max(np.abs(end - start)) <= ROUNDING * (1 + np.max(np.abs(start)))
    )


def _bad_records(values: np.ndarray) -> np.ndarray:
    """Which records hold a number that is not finite."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.inexact):
        return np.zeros(len(array), bool)
    # axes and not -1, which cannot be found if there is no record
    return np.asarray(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))


def _bad_since(bad: np.ndarray) -> int:
    """The first record from which on all are bad."""
    good = np.flatnonzero(~bad)
    return int(good[-1]) + 1 if len(good) else 0
