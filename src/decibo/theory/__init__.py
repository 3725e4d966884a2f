"""The theory of the paper as functions: constants, step-size rules, bounds, the potential, and a check of settings."""

from decibo.theory.check import check
from decibo.theory.constants import Constants
from decibo.theory.corollaries import Rule, corollary1, corollary2
from decibo.theory.estimate import constants
from decibo.theory.potential import Potential, potential
from decibo.theory.theorem1 import Bound, Theorem1, bound, theorem1

__all__ = [
    "Bound",
    "Constants",
    "Potential",
    "Rule",
    "Theorem1",
    "bound",
    "check",
    "constants",
    "corollary1",
    "corollary2",
    "potential",
    "theorem1",
]
