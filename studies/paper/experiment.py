"""What an experiment returns: tables with every number it draws, the paper's claims with verdicts,
and its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import numpy as np

import decibo
from decibo.measure.measures import Measures
from decibo.run.start import Start
from decibo.validate import integer
from studies.paper.tables import Table

T = TypeVar("T")
Progress = Callable[[float], None]  # called with the share that is done


class Verdict(StrEnum):
    """Whether a claim holds."""

    holds = "holds"
    fails = "does not hold"
    open = "undecided"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what was measured, and the verdict; `note` gives the reason where
    it is known."""

    paper: str
    measured: str
    verdict: Verdict
    note: str = ""

    @property
    def finding(self) -> str:
        """What was measured, with the reason in parentheses."""
        return self.measured + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, eq=False)
class Result:
    """An experiment that was run.

    tables    name -> columns; figures are drawn from these alone; a table called "seconds" holds
              wall times
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
    """How much to compute: the full experiment or a quick version of it, and over how many
    seeds."""

    quick: bool = False
    seeds: int | None = None
    tiny: bool = field(default=False, repr=False)  # smaller still, for tests

    def __post_init__(self) -> None:
        if self.seeds is not None:
            integer("seeds", self.seeds)

    def pick(self, full: T, quick: T, tiny: T | None = None) -> T:
        """The one of these values that belongs to this size."""
        if self.tiny and tiny is not None:
            return tiny
        return quick if self.quick or self.tiny else full

    def seed_range(self, full: int, quick: int) -> range:
        """The seeds to run."""
        return range(self.seeds if self.seeds is not None else self.pick(full, quick))


def paragraphs(text: str) -> tuple[str, ...]:
    """Notes from a text with a blank line between any two."""
    return tuple(" ".join(part.split()) for part in text.split("\n\n"))


def quiet(share: float) -> None:
    """Report no progress."""


def judge(*answers: bool | None, share: float = 0.8) -> Verdict:
    """The verdict of a test, with one answer for each seed, or a single one.

    It holds if it does for at least this share of the seeds, fails if for at most 1 - share, and is
    undecided in between. Seeds for which the test could not decide (None) are left out; if they are
    more than half, so is the claim.
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
    return f"{sum(decided)} of {len(decided)} {seeds}" + (
        f" ({undecided} undecided)" if undecided else ""
    )


def true_for(paper: str, answers: Sequence[bool | None], more: str = "", note: str = "") -> Claim:
    """A claim that is true for some seeds; `more` is added to how many they are."""
    return Claim(paper, f"true for {tally(answers)}{more}", judge(*answers), note)


def ordered(row: np.ndarray) -> bool | None:
    """Whether numbers never fall and the last is above the first; None if none of them is
    finite."""
    return None if np.isinf(row).all() else bool((row[:-1] <= row[1:]).all() and row[0] < row[-1])


def or_never(value: float, form: str = ".0f") -> str:
    """Steps or seconds in words; infinitely many are never."""
    return f"{value:{form}}" if np.isfinite(value) else "never"


def seed_by_seed(
    seeds: range, work: Callable[[int], Sequence[T]], progress: Progress, after: int = 0
) -> list[T]:
    """What `work` returns for each seed, in one list; `after` is how many parts as long as a seed's
    will follow."""
    parts: list[T] = []
    for done, seed in enumerate(seeds, start=1):
        parts += work(seed)
        progress(done / (len(seeds) + after))
    return parts


def record(
    problem: decibo.Problem,
    network: decibo.Network | Sequence[decibo.Network],
    method: decibo.Algorithm | Sequence[decibo.Algorithm],
    *,
    steps: int,
    measures: Measures,
    every: int = 1,
    start: Start | Sequence[Start] = None,
) -> decibo.Sweep:
    """Run each case once and silently; seeds of experiments are those of problems, networks and
    starts."""
    return decibo.sweep(
        problem,
        network,
        method,
        steps=steps,
        every=every,
        measures=measures,
        start=start,
        seeds=[0],
        progress=False,
    )
