r"""Penalties that grow along a run, so that the penalty's bias O(1/lam) goes on falling; and steps that fall.

    growing      (1)  lam(k) = min(most, start factor^floor(k/every))
    polynomial   (2)  lam(k) = start (1 + k/delay)^power

Prefer stairs. lam (y - z) must settle again whenever lam grows: after a stair it settles at a linear rate, so that the
error falls by `factor` with every stair, while on a slope that is never flat it lags behind by d log(lam)/dk over that
rate, and the error falls like 1/k at best. A stair must be long enough to settle on: `every` well above
1/(gamma mu_g) and 1/(alpha mu_Phi). Inner steps must be matched, beta = gamma/lam, or y becomes unstable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.core import Tracer
from jax.tree_util import Partial

from decibo.validate import above, at_least, integer, positive

Schedule = Callable[[Any], Any]
Rate = float | Schedule


def schedule(name: str, value: Any) -> Schedule:
    """A positive number, or a positive function of the step, as something to call with the step."""
    if callable(value):
        _positive(f"{name}(0)", value(0))
        return value if isinstance(value, Partial) else Partial(value)
    return Partial(constant, _positive(name, value))


def constant(value: Any, k: Any) -> Any:
    """The same number at every step."""
    return value


def _positive(name: str, value: Any) -> Any:
    return value if isinstance(value, Tracer) else positive(name, value)  # a sweep passes traced numbers


__all__ = ["growing", "polynomial"]


def growing(start: float, *, factor: float = 2.0, every: int = 500, most: float = 1e6) -> Partial:
    """A staircase: `start`, times `factor` after every `every` steps, never above `most`.

    Rounding is multiplied by lam: useful values of `most` are 1e6 in double precision (1e4 for ahead_exact, whose
    bias is O(1/lam^2)) and 1e3 in single precision.
    """
    start = above("start", start, 0.0)
    return Partial(
        _staircase,
        start,
        above("factor", factor, 1.0),
        integer("every", every),
        at_least("most", most, start),
    )


def polynomial(start: float, power: float, *, delay: float = 1.0) -> Partial:
    """The power law start (1 + k/delay)^power: a growing penalty or, with a negative power, a decreasing step size."""
    return Partial(
        _polynomial,
        above("start", start, 0.0),
        at_least("power", power, -math.inf),
        above("delay", delay, 0.0),
    )


def _staircase(start: Any, factor: Any, every: Any, most: Any, k: Any) -> Any:
    # the exponent stops growing where lam does: factor^stairs would overflow in a long run
    stairs = jnp.minimum(k // every, jnp.ceil(jnp.log(most / start) / jnp.log(factor)))
    return jnp.minimum(most, start * factor**stairs)  # (1)


def _polynomial(start: Any, power: Any, delay: Any, k: Any) -> Any:
    return start * (1 + k / delay) ** power  # (2)
