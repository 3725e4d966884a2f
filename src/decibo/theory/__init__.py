"""The paper's theory as functions: constants, step-size rules, bounds, potential, rates. Loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decibo.theory.bounds import Bound, bound
    from decibo.theory.constant import Constants
    from decibo.theory.corollaries import Rule, corollary1, corollary2
    from decibo.theory.estimate import constants
    from decibo.theory.lyapunov import Potential, potential
    from decibo.theory.steps import Theorem1, theorem1

_WHERE = {
    "Constants": "constant",
    "constants": "estimate",
    "Theorem1": "steps",
    "theorem1": "steps",
    "Rule": "corollaries",
    "corollary1": "corollaries",
    "corollary2": "corollaries",
    "Bound": "bounds",
    "bound": "bounds",
    "Potential": "lyapunov",
    "potential": "lyapunov",
}

__all__ = [
    "Bound",
    "Constants",
    "Potential",
    "Rule",
    "Theorem1",
    "bound",
    "constants",
    "corollary1",
    "corollary2",
    "potential",
    "theorem1",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'decibo.theory' has no attribute {name!r}")
    return getattr(import_module(f"decibo.theory.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
