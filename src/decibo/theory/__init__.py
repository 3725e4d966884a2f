"""Theorems as functions: the paper's and ours, with constants, steps, bounds, and a check
of settings."""

from decibo.theory.check import check
from decibo.theory.constants import Constants
from decibo.theory.estimate import constants
from decibo.theory.exact import (
    ExactBound,
    ExactSteps,
    FineConstants,
    StartErrors,
    ahead_exact_steps,
    fine_constants,
    start_errors,
)
from decibo.theory.theorem1 import Bound, Theorem1, bound, theorem1

__all__ = [
    "Bound",
    "Constants",
    "ExactBound",
    "ExactSteps",
    "FineConstants",
    "StartErrors",
    "Theorem1",
    "ahead_exact_steps",
    "bound",
    "check",
    "constants",
    "fine_constants",
    "start_errors",
    "theorem1",
]
