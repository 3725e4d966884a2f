"""Averages, sums and maxima over all agents where they are spread over several devices.

Inside `across` an array has rows for the agents of one device only; these functions take the others
into account. `average` and `total` are also for agents that are all on one device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from decibo.parallel.placement import DEVICES, Placement

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int, Shaped

Result = TypeVar("Result")

_placement: ContextVar[Placement | None] = ContextVar("placement", default=None)


def across(
    placement: Placement, function: Callable[..., Result], ins: Any, outs: Any
) -> Callable[..., Result]:
    """The function on every device of a placement, each with its own block of agents. `ins` and
    `outs` hold SPLIT or EVERYWHERE for each of its values."""

    def block(*arguments: Any) -> Result:
        token = _placement.set(placement)  # whatever is traced now belongs to one of its devices
        try:
            return function(*arguments)
        finally:
            _placement.reset(token)

    # Without the check, which takes what all_gather returns for different on each device, and so
    # refuses it where EVERYWHERE is promised.
    return jax.shard_map(block, mesh=placement.mesh, in_specs=ins, out_specs=outs, check_vma=False)


def is_spread() -> bool:
    """Whether the agents are on several devices, so that an array holds only a block of them."""
    return _placement.get() is not None


def average(rows: Float[Array, "agents ..."]) -> Float[Array, " ..."]:
    """The mean over all agents of an array with one row for each agent of this device."""
    placement = _placement.get()
    return jnp.mean(rows, axis=0) if placement is None else total(rows) / placement.count


def total(rows: Shaped[Array, "agents ..."]) -> Shaped[Array, " ..."]:
    """The sum over all agents."""
    placement = _placement.get()
    if placement is None:
        return jnp.sum(rows, axis=0)
    # The last row of a short block is repeated to give all blocks one shape; it counts once.
    is_agent = jnp.arange(rows.shape[0]) < jnp.asarray(placement.sizes)[lax.axis_index(DEVICES)]
    counted = jnp.where(
        is_agent.reshape(-1, *(1,) * (rows.ndim - 1)), rows, jnp.zeros((), rows.dtype)
    )
    return lax.psum(jnp.sum(counted, axis=0), DEVICES)


def maximum(value: Shaped[Array, " ..."]) -> Shaped[Array, " ..."]:
    """The largest value on any device."""
    return lax.pmax(value, DEVICES)


def all_true(flag: Bool[Array, " ..."]) -> Bool[Array, " ..."]:
    """Whether it holds on every device."""
    return lax.pmin(flag.astype(jnp.int32), DEVICES) > 0


def gather(rows: Shaped[Array, "block ..."]) -> Shaped[Array, "agents ..."]:
    """The rows of all agents, on every device."""
    placement = _placement.get()
    assert placement is not None
    return lax.all_gather(rows, DEVICES, tiled=True)[placement.rows]


def agent_numbers() -> Int[Array, " block"]:
    """The numbers of the agents whose rows are on this device."""
    placement = _placement.get()
    assert placement is not None
    return jnp.asarray(placement.agents)[lax.axis_index(DEVICES)]
