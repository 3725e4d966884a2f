r"""Projections and proximal maps: prox(s, h) = argmin over u of  h r(u) + |u - s|^2 / 2.

    box         r = 0 inside [low, high], infinite outside       (1)  clip
    ball        r = 0 within the radius                          (2)  s min(1, radius/|s|)
    simplex     r = 0 where u >= 0 and sum u = total             (3)  max(s - theta, 0)
    l1          r = weight sum |u|                               (4)  sign(s) max(|s| - h weight, 0)

All work on the flat vector of a variable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial

from decibo.algorithm.schedules import Scalar, unless_traced
from decibo.errors import InputError, short_repr
from decibo.pytree import Vector
from decibo.validate import positive

__all__ = ["ball", "box", "l1", "simplex"]

Prox = Callable[[Vector, Scalar], Vector]
Projection = Callable[[Vector], Vector]
Bound = float | np.ndarray | Vector


def box(low: Bound = -np.inf, high: Bound = np.inf) -> Prox:
    """Projection on low <= u <= high, numbers or vectors."""
    bounds = {"low": low, "high": high}
    for name, bound in bounds.items():
        _check_bound(name, bound)
    if not any(isinstance(bound, Tracer) for bound in bounds.values()) and np.any(
        np.asarray(low) > np.asarray(high)
    ):
        raise InputError(
            f"low must not be above high, but the box is [{low}, {high}].", "Swap the bounds."
        )
    return Partial(_box, low, high)


def ball(radius: float) -> Prox:
    """Projection on |u| <= radius."""
    return Partial(_ball, unless_traced(positive, "radius", radius))


def simplex(total: float = 1.0) -> Prox:
    """Projection on u >= 0, sum u = total."""
    return Partial(_simplex, unless_traced(positive, "total", total))


def l1(weight: float) -> Prox:
    """Soft thresholding: the proximal map of weight * sum |u|."""
    return Partial(_l1, unless_traced(positive, "weight", weight))


def as_prox(name: str, function: Prox | Projection | None) -> Prox:
    """A proximal map from what a user passes: None, one of the above, or a function of the vector
    (a projection)."""
    if function is None:
        return Partial(_identity)
    if isinstance(function, Partial):
        return function
    if not callable(function):
        raise InputError(
            f"The proximal map of {name} must be a function of the flat vector, but it is"
            f" {function!r}.",
            "Pass decibo.prox.box(0, 1), for example.",
        )
    return Partial(_Projection(name, function))  # type: ignore[arg-type]


def is_projection(prox: Prox) -> bool:
    """Whether a proximal map is the same for every step h."""
    known = _box, _ball, _simplex, _identity
    return isinstance(prox, Partial) and (prox.func in known or isinstance(prox.func, _Projection))


def suits(prox: Prox, sizes: str) -> bool:
    """Whether a proximal map may follow a move with such steps: "one", "entries" or "hidden", as a
    Rule says."""
    maps = {"entries": (_box, _l1, _identity), "hidden": (_box, _identity)}
    return sizes not in maps or (isinstance(prox, Partial) and prox.func in maps[sizes])


@dataclass(frozen=True)
class _Projection:
    """A user's projection, which must return a vector like the one it receives."""

    name: str
    function: Projection

    def __call__(self, s: Vector, h: Scalar) -> Vector:
        new = jnp.asarray(self.function(s))
        if new.shape != s.shape:
            raise InputError(
                f"A projection must keep the shape of its vector, but that of {self.name} turns"
                f" {s.shape} into {new.shape}.",
                "It works on the flat vector of the variable.",
            )
        return new.astype(s.dtype)


def _identity(s: Vector, h: Scalar) -> Vector:
    return s


def _box(low: Bound, high: Bound, s: Vector, h: Scalar) -> Vector:
    return jnp.clip(s, low, high).astype(s.dtype)  # (1)


def _ball(radius: Scalar, s: Vector, h: Scalar) -> Vector:
    norm = jnp.linalg.norm(s)
    # (2)
    return s * jnp.where(norm > radius, radius / jnp.where(norm > 0, norm, 1), 1).astype(s.dtype)


def _simplex(total: Scalar, s: Vector, h: Scalar) -> Vector:
    largest = jnp.sort(s)[::-1]
    excess = (jnp.cumsum(largest) - total) / jnp.arange(1, s.size + 1, dtype=s.dtype)
    count = jnp.sum(largest > excess)
    return jnp.maximum(s - excess[count - 1], 0).astype(s.dtype)  # (3)


def _l1(weight: Scalar, s: Vector, h: Scalar) -> Vector:
    return (jnp.sign(s) * jnp.maximum(jnp.abs(s) - h * weight, 0)).astype(s.dtype)  # (4)


def _check_bound(name: str, bound: Bound) -> None:
    """Reject what is neither a number nor a vector of numbers; NaN is none."""
    if isinstance(bound, Tracer):
        return
    values = np.asarray(bound)
    real = jnp.issubdtype(values.dtype, jnp.floating) or jnp.issubdtype(values.dtype, jnp.integer)
    if not real or not values.size or np.isnan(values).any():
        raise InputError(
            f"{name} must be a number or a vector of numbers, but it is {short_repr(bound)}."
        )


def _positive(name: str, value: Scalar) -> Scalar:
    return value if isinstance(value, Tracer) else positive(name, value)
