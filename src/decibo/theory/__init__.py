"""Theorems as functions: the paper's and ours, with constants, step-size rules, bounds, and a check
of settings."""

from decibo.theory.check import check
from decibo.theory.constants import Constants
from decibo.theory.corollaries import StepRule, corollary1, corollary2
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
from decibo.theory.potential import Potential, potential
from decibo.theory.theorem1 import Bound, Theorem1, bound, theorem1

__all__ = [
    "Bound",
    "Constants",
    "ExactBound",
    "ExactSteps",
    "FineConstants",
    "Potential",
    "StartErrors",
    "StepRule",
    "Theorem1",
    "ahead_exact_steps",
    "bound",
    "check",
    "constants",
    "corollary1",
    "corollary2",
    "fine_constants",
    "potential",
    "start_errors",
    "theorem1",
]
