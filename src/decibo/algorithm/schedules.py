r"""Numbers that follow the step: rates, penalties that grow along a run, and steps that fall.

    growing      (1)  lam(k) = min(most, start factor^floor(k/every))
    polynomial   (2)  lam(k) = start (1 + k/delay)^power
    matched      (3)  beta(k) = gamma(k)/lam(k)

With a growing penalty the bias O(1/lam) keeps falling. Prefer stairs: lam (y - z) must settle again
whenever lam grows. After a stair it settles at a linear rate, so that the error falls by `factor`
with every stair, while on a slope that is never flat it lags behind by d log(lam)/dk over that
rate, and the error falls like 1/k at best. A stair must be long enough to settle on: `every` well
above 1/(gamma mu_g) and 1/(alpha mu_Phi). Inner steps must be matched, (3), or y becomes unstable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.tree_util import Partial

from decibo.errors import InputError, first_line
from decibo.validate import above, at_least, integer, positive

__all__ = ["growing", "polynomial"]

Step = int | jax.Array
Scalar = float | jax.Array
Schedule = Callable[[Step], Scalar]
Rate = float | Schedule  # what users pass for a step size or a penalty
Weight = Annotated[Rate, "no step size"]  # for what need not be lowered when a run diverges


def growing(start: float, *, factor: float = 2.0, every: int = 500, most: float = 1e6) -> Partial:
    """A staircase: `start`, times `factor` after every `every` steps, never above `most`.

    Rounding is multiplied by lam: useful values of `most` are 1e6 in double precision (1e4 for
    ahead_exact, whose bias is O(1/lam^2)) and 1e3 in single precision.
    """
    start = above("start", start, 0.0)
    return Partial(
        _growing,
        start,
        above("factor", factor, 1.0),
        integer("every", every),
        at_least("most", most, start),
    )


def polynomial(start: float, power: float, *, delay: float = 1.0) -> Partial:
    """The power law start (1 + k/delay)^power: a growing penalty or, with a negative power, a
    falling step size."""
    return Partial(
        _polynomial,
        above("start", start, 0.0),
        at_least("power", power, -math.inf),
        above("delay", delay, 0.0),
    )


def schedule(name: str, value: Rate) -> Schedule:
    """A rate as a function of the step, if it is positive; functions are checked at step 0."""
    if callable(value):
        try:
            first = value(0)
        except Exception as error:
            raise InputError(
                f"{name} must be a number or a function of the step, but {name}(0) raised"
                f" {type(error).__name__}: {first_line(error)}."
            ) from error
        unless_traced(positive, f"{name}(0)", first)
        return value if isinstance(value, Partial) else Partial(value)
    return Partial(constant, unless_traced(positive, name, value))


def constant(value: Scalar, k: Step) -> Scalar:
    """The same number at every step."""
    return value


def number(rate: Rate | None) -> Rate | None:
    """The number of a constant schedule; any other rate as it is."""
    return rate.args[0] if isinstance(rate, Partial) and rate.func is constant else rate


def matched(beta: Rate | None, gamma: Rate, lam: Rate) -> Schedule:
    """The step size of y: beta or, without one, gamma/lam, which lets alpha stay the same for every
    lam."""
    if beta is None:
        return Partial(_ratio, schedule("gamma", gamma), schedule("lam", lam))
    return schedule("beta", beta)


def _ratio(gamma: Schedule, lam: Schedule, k: Step) -> Scalar:
    return gamma(k) / lam(k)  # (3)


def _growing(start: Scalar, factor: Scalar, every: Step, most: Scalar, k: Step) -> Scalar:
    # the exponent stops growing where lam does: factor^stairs would overflow in a long run
    stairs = jnp.minimum(k // every, jnp.ceil(jnp.log(most / start) / jnp.log(factor)))
    return jnp.minimum(most, start * factor**stairs)  # (1)


def _polynomial(start: Scalar, power: Scalar, delay: Scalar, k: Step) -> Scalar:
    return start * (1 + k / delay) ** power  # (2)


def unless_traced(
    check: Callable[..., float], name: str, value: Scalar, *bounds: float, **more: bool
) -> Scalar:
    """The checked value; a sweep has checked its numbers before it traces a method with them."""
    return value if isinstance(value, Tracer) else check(name, value, *bounds, **more)
