"""Errors that give the value, the rule it breaks and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decibo.execute.solution import Solution


class InputError(ValueError):
    """Something given to decibo breaks a rule; nothing has been computed yet."""

    def __init__(self, value: str, rule: str, remedy: str):
        super().__init__(f"{value}: {rule}. {remedy}")
        self.value, self.rule, self.remedy = value, rule, remedy


class DivergedError(RuntimeError):
    """A run stopped being finite and was asked to raise; `solution` holds everything up to then."""

    def __init__(self, solution: Solution):
        super().__init__(solution.message)
        self.solution = solution


class LostError(RuntimeError):
    """Another process of a run on several processes is gone; what was computed is in the last checkpoint."""


class ConformanceError(AssertionError):
    """An algorithm failed `check_algorithm`; the message lists every check that failed."""


def first_line(error: BaseException) -> str:
    """The beginning of an error's message, or its kind if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def short(value: object) -> str:
    """A value in few words."""
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
