"""What the paper says, what was measured, and whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The three answers."""

    holds = "holds"
    fails = "does not hold"
    open = "cannot be told"


@dataclass(frozen=True)
class Claim:
    """One statement of the paper and its answer; `note` says why, where that is known."""

    paper: str
    measured: str
    verdict: Verdict
    note: str = ""


def judge(holds: bool | None) -> Verdict:
    """The verdict of a test; None means that it could not be made."""
    if holds is None:
        return Verdict.open
    return Verdict.holds if holds else Verdict.fails


def judge_seeds(found: Sequence[bool | None], share: float = 0.8) -> Verdict:
    """Holds if it does in at least this share of the seeds, fails if in at most 1 - share, open in between.

    Seeds in which the test could not be made (None) count for neither; if they are more than half, nothing is told.
    """
    told = [bool(one) for one in found if one is not None]
    if not told or 2 * len(told) < len(found):
        return Verdict.open
    part = sum(told) / len(told)
    if part >= share:
        return Verdict.holds
    return Verdict.fails if part <= 1 - share + 1e-12 else Verdict.open


def tally(found: Sequence[bool | None]) -> str:
    """For instance '4 of 5 seeds'."""
    told = [bool(one) for one in found if one is not None]
    left = len(found) - len(told)
    seeds = "seed" if len(told) == 1 else "seeds"
    return f"{sum(told)} of {len(told)} {seeds}" + (f" ({left} could not be told)" if left else "")
