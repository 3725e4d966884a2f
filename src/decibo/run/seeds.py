"""Runs that differ in their seed only, as one curve with a band and as one number with its
deviation.

    (1)  curve    at every recorded step the median over all seeds, within a band: the quartiles, so
                  that half of the
                  seeds are inside it, the deciles, or the range, so that all are
    (2)  number   mean and standard deviation (n - 1 in the denominator) of the last values

No seed is left out in silence. In a curve of something that is to become small, a seed that
diverged or failed counts as infinite from its last finite record on: it raises the median and the
band. A run that converged stays where it stopped; one that was interrupted ends the curve. The
number is that of the seeds that gave an answer, with their count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decibo.errors import InputError
from decibo.run.solution import Status
from decibo.validate import integer
from decibo.validate import seed as check_seed

BANDS = {"quartiles": (0.25, 0.75), "deciles": (0.1, 0.9), "range": (0.0, 1.0)}
MOST = 10_000  # seeds
SMALL = (
    "stationarity",
    "direction_norm",
    "distance_x",
    "distance_y",
    "inner_error",
    "gap",
    "phi",
    "outer",
    "inner",
)


class Course(NamedTuple):
    """One measure of one run: its value at each recorded step, and how the run ended."""

    step: np.ndarray
    values: np.ndarray
    status: str


class Band(NamedTuple):
    """(1): at each of these steps the lower end, the median and the upper end; infinite where seeds
    failed."""

    step: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Spread:
    """(2): of `count` values, those of the seeds that gave an answer; `of` is how many seeds there
    are."""

    mean: float
    deviation: float
    count: int
    of: int


def seed_numbers(seeds: object, first: int = 0) -> list[int]:
    """The seeds that a number of them, or a list, stands for."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        count = integer("seeds", seeds, most=MOST)
        return [check_seed(number, "A seed") for number in range(first, first + count)]
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InputError(
            f"seeds must be a number or a list of integers, but it is {seeds!r:.60}.",
            "Pass seeds=5.",
        )
    numbers = [check_seed(seed, "A seed") for seed in seeds]
    if not numbers:
        raise InputError(
            "seeds must hold at least one seed, but it is empty.", "Leave it out for the seed 0."
        )
    if len(set(numbers)) < len(numbers):
        raise InputError(f"seeds must not repeat a seed, but it is {numbers!r:.60}.")
    return numbers


def is_minimised(measure: str) -> bool:
    """Whether a measure is better the smaller it is: all built-in ones are; of a user's own nobody
    knows."""
    return measure.startswith(("consensus_", *SMALL))


def band(courses: Sequence[Course], kind: str = "quartiles", minimised: bool = True) -> Band:
    """(1). A measure that is not minimised has no worst value: there, lost seeds are missing from
    where they end."""
    longest = max(courses, key=lambda course: len(course.step)).step
    ends = [
        int(course.step[-1])
        for course in courses
        if course.status == Status.interrupted and len(course.step)
    ]
    step = longest[longest <= min(ends, default=longest[-1])] if len(longest) else longest
    rows = np.stack(
        [_followed(course, step, np.inf if minimised else np.nan) for course in courses]
    )
    low, high = BANDS[kind]
    return Band(step, *(_quantile(rows, q) for q in (low, 0.5, high)))


def spread(ends: Iterable[float | None], sound: Iterable[bool]) -> Spread:
    """(2)."""
    pairs = list(zip(ends, sound, strict=True))
    values = np.array(
        [end for end, fine in pairs if fine and end is not None and np.isfinite(end)], dtype=float
    )
    mean = float(values.mean()) if values.size else np.nan
    deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0 if values.size else np.nan
    return Spread(mean, deviation, int(values.size), len(pairs))


def _followed(course: Course, step: np.ndarray, worst: float) -> np.ndarray:
    """The values at these steps: those of the last record until then, and what becomes of a run
    after its end."""
    if not len(course.step):
        return np.full(len(step), worst)
    record = np.searchsorted(course.step, step, side="right") - 1
    values = np.asarray(course.values, dtype=float)[record.clip(min=0)]
    over = (step > course.step[-1]) & (course.status in (Status.diverged, Status.failed))
    return np.where(over | ~np.isfinite(values), worst, values)


def _quantile(rows: np.ndarray, q: float) -> np.ndarray:
    """Interpolated linearly between the sorted rows; infinite as soon as an infinite one takes
    part, NaN left out."""
    ordered = np.sort(rows, axis=0)  # NaN last
    count = np.sum(~np.isnan(rows), axis=0)
    place = q * np.maximum(count - 1, 0)
    below = np.floor(place).astype(int)
    weight = place - below
    lower = np.take_along_axis(ordered, below[None], axis=0)[0]
    upper = np.take_along_axis(ordered, np.ceil(place).astype(int)[None], axis=0)[0]
    with np.errstate(invalid="ignore"):
        between = lower + weight * (upper - lower)
    return np.where((weight == 0) | (lower == upper), lower, between)
