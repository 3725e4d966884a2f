"""What an experiment returns: every number it draws, the paper's claims with verdicts, and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import numpy as np

from decibo.validate import positive_int

T = TypeVar("T")
Value = str | int | float | np.generic
Table = Mapping[str, np.ndarray]  # columns of equal length
Progress = Callable[[float], None]  # called with the share that is done


class Verdict(StrEnum):
    """Whether a claim holds."""

    holds = "holds"
    fails = "does not hold"
    open = "undecided"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what was measured, and the verdict; `note` gives the reason where it is known."""

    paper: str
    measured: str
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True, eq=False)
class Result:
    """An experiment that was run.

    tables    name -> columns; figures are drawn from these alone; a table called "seconds" holds wall times
    settings  everything needed to run it again
    notes     sentences for the reader: choices that the paper leaves open, surprises
    """

    name: str
    title: str
    data: str
    tables: dict[str, Table]
    claims: tuple[Claim, ...]
    settings: dict[str, object]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A result, the folder it was written to, and how long it took."""

    result: Result
    folder: Path
    seconds: float


@dataclass(frozen=True)
class Size:
    """How much to compute: the full experiment or a quick version of it, and over how many seeds."""

    quick: bool = False
    seeds: int | None = None
    tiny: bool = field(default=False, repr=False)  # smaller still, for tests

    def __post_init__(self) -> None:
        if self.seeds is not None:
            positive_int("seeds", self.seeds)

    def pick(self, full: T, quick: T, tiny: T | None = None) -> T:
        """The one of these values that belongs to this size."""
        if self.tiny and tiny is not None:
            return tiny
        return quick if self.quick or self.tiny else full

    def seed_range(self, full: int, quick: int) -> range:
        """The seeds to run."""
        return range(self.seeds if self.seeds is not None else self.pick(full, quick))


def quiet(share: float) -> None:
    """Report no progress."""


def judge(holds: bool | None) -> Verdict:
    """The verdict of a test; None means that the test could not decide."""
    if holds is None:
        return Verdict.open
    return Verdict.holds if holds else Verdict.fails


def judge_seeds(answers: Sequence[bool | None], share: float = 0.8) -> Verdict:
    """Holds if it does for at least this share of the seeds, fails if for at most 1 - share, undecided in between.

    Seeds for which the test could not decide (None) are left out; if they are more than half, so is the claim.
    """
    decided = [answer for answer in answers if answer is not None]
    if not decided or 2 * len(decided) < len(answers):
        return Verdict.open
    part = sum(decided) / len(decided)
    if part >= share:
        return Verdict.holds
    return Verdict.fails if part <= 1 - share + 1e-12 else Verdict.open


def tally(answers: Sequence[bool | None]) -> str:
    """For instance '4 of 5 seeds'."""
    decided = [answer for answer in answers if answer is not None]
    undecided = len(answers) - len(decided)
    seeds = "seed" if len(decided) == 1 else "seeds"
    return f"{sum(decided)} of {len(decided)} {seeds}" + (f" ({undecided} undecided)" if undecided else "")


def columns(rows: Sequence[Mapping[str, Value]]) -> Table:
    """A table from rows that all have the same keys."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def join(parts: Sequence[Table]) -> Table:
    """Tables with the same columns, one below the other."""
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}


def block(fixed: Mapping[str, Value], **series: np.ndarray) -> Table:
    """A table of series of one length, with the same values of `fixed` in every row."""
    length = len(next(iter(series.values())))
    constant = {name: np.full(length, value) for name, value in fixed.items()}
    return constant | {name: np.asarray(values) for name, values in series.items()}


def select(table: Table, **values: Value) -> Table:
    """The rows of a table in which these columns have these values."""
    mask = np.all([table[name] == value for name, value in values.items()], axis=0)
    return {name: column[mask] for name, column in table.items()}


def groups(table: Table, *by: str) -> Iterator[tuple[tuple, Table]]:
    """Parts of a table with equal values in these columns, in order of appearance."""
    keys = list(zip(*(table[name].tolist() for name in by), strict=True))
    for key in dict.fromkeys(keys):
        mask = np.array([other == key for other in keys])
        yield key, {name: values[mask] for name, values in table.items()}
