r"""Projections and proximal maps: prox(s, h) = argmin over u of  h r(u) + |u - s|^2 / 2.

    box         r = 0 inside [low, high], infinite outside                     (1)  clip
    ball        r = 0 within the radius                                        (2)  s min(1, radius/|s|)
    simplex     r = 0 where u >= 0 and sum u = total                           (3)  max(s - theta, 0)
    l1          r = weight sum |u|                                             (4)  sign(s) max(|s| - h weight, 0)

All work on the flat vector of a variable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial

from decibo.errors import InputError
from decibo.pytree import Vector

__all__ = ["ball", "box", "l1", "simplex"]

Prox = Callable[[Vector, Any], Vector]


def box(low: float | Any = -np.inf, high: float | Any = np.inf) -> Prox:
    """Projection on low <= u <= high, numbers or vectors."""
    if np.any(np.asarray(low) > np.asarray(high)):
        raise InputError(f"box({low}, {high})", "low must not be above high", "Exchange them.")
    return Partial(_box, low, high)


def ball(radius: float) -> Prox:
    """Projection on |u| <= radius."""
    return Partial(_ball, _positive("radius", radius))


def simplex(total: float = 1.0) -> Prox:
    """Projection on u >= 0, sum u = total."""
    return Partial(_simplex, _positive("total", total))


def l1(weight: float) -> Prox:
    """Soft thresholding: the proximal map of weight * sum |u|."""
    return Partial(_l1, _positive("weight", weight))


def as_prox(name: str, given: Any) -> Prox:
    """A proximal map from what a user gives: None, one of the above, or a function of the vector (a projection)."""
    if given is None:
        return Partial(_identity)
    if isinstance(given, Partial):
        return given
    if not callable(given):
        raise InputError(
            f"prox of {name} = {given!r}", "it must be a function of the flat vector", "Give prox.box(0, 1)."
        )
    function: Any = given
    return Partial(_Projection(name, function))


@dataclass(frozen=True)
class _Projection:
    """A user's projection, which must give back a vector like the one it gets."""

    name: str
    function: Callable[[Vector], Vector]

    def __call__(self, s: Vector, h: Any) -> Vector:
        new = jnp.asarray(self.function(s))
        if new.shape != s.shape:
            raise InputError(
                f"the projection of {self.name} turns shape {s.shape} into {new.shape}",
                "a projection must keep the shape of its vector",
                "Work on the flat vector of the variable.",
            )
        return new.astype(s.dtype)


def _identity(s: Vector, h: Any) -> Vector:
    return s


def _box(low: Any, high: Any, s: Vector, h: Any) -> Vector:
    return jnp.clip(s, low, high).astype(s.dtype)  # (1)


def _ball(radius: Any, s: Vector, h: Any) -> Vector:
    norm = jnp.linalg.norm(s)
    return s * jnp.where(norm > radius, radius / jnp.where(norm > 0, norm, 1), 1).astype(s.dtype)  # (2)


def _simplex(total: Any, s: Vector, h: Any) -> Vector:
    largest = jnp.sort(s)[::-1]
    excess = (jnp.cumsum(largest) - total) / jnp.arange(1, s.size + 1, dtype=s.dtype)
    count = jnp.sum(largest > excess)
    return jnp.maximum(s - excess[count - 1], 0).astype(s.dtype)  # (3)


def _l1(weight: Any, s: Vector, h: Any) -> Vector:
    return (jnp.sign(s) * jnp.maximum(jnp.abs(s) - h * weight, 0)).astype(s.dtype)  # (4)


def _positive(name: str, value: Any) -> Any:
    if isinstance(value, Tracer):
        return value
    if not (np.ndim(value) == 0 and np.isfinite(value) and value > 0):
        raise InputError(f"{name} = {value!r}", "it must be a positive number", f"Give {name}=1.0, for example.")
    return float(value)
