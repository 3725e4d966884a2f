"""Averages, sums and maxima over all agents, whether they are on one device or spread over several.

Inside `across` an array has rows for the agents of one device only; these functions take the others into account.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax import lax

from decibo.parallel.placement import DEVICES, Placement

_place: ContextVar[Placement | None] = ContextVar("place", default=None)


@contextmanager
def spread(place: Placement | None) -> Iterator[None]:
    """What is traced inside belongs to one device of the place."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def is_spread() -> bool:
    """Whether the agents are on several devices, so that an array has only a block of them."""
    return _place.get() is not None


def average(rows: jax.Array) -> jax.Array:
    """The mean over all agents of an array with one row for each agent here."""
    place = _place.get()
    return jnp.mean(rows, axis=0) if place is None else total(rows) / place.count


def total(rows: jax.Array) -> jax.Array:
    """The sum over all agents."""
    place = _place.get()
    if place is None:
        return jnp.sum(rows, axis=0)
    real = jnp.arange(rows.shape[0]) < jnp.asarray(place.sizes)[lax.axis_index(DEVICES)]
    kept = jnp.where(real.reshape(-1, *(1,) * (rows.ndim - 1)), rows, jnp.zeros((), rows.dtype))
    return lax.psum(jnp.sum(kept, axis=0), DEVICES)


def highest(value: jax.Array) -> jax.Array:
    """The largest value of any device."""
    return lax.pmax(value, DEVICES) if is_spread() else value


def everyone(flag: jax.Array) -> jax.Array:
    """Whether it holds on every device."""
    return lax.pmin(flag.astype(jnp.int32), DEVICES) > 0 if is_spread() else flag


def gathered(rows: jax.Array) -> jax.Array:
    """One row for each of all agents, on every device."""
    place = _place.get()
    return rows if place is None else lax.all_gather(rows, DEVICES, tiled=True)[place.rows]


def numbers(count: int) -> jax.Array:
    """The numbers of the agents whose rows are here."""
    place = _place.get()
    return jnp.arange(count) if place is None else jnp.asarray(place.agents)[lax.axis_index(DEVICES)]
