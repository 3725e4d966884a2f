"""Where the agents are: together on one device, or in blocks on several. Averages over all of them, either way.

A run on several devices has the same number of rows on each. Agents come in blocks of nearly equal size, and where
a block is short its last agent is repeated: a clone sees the same data, neighbours and random numbers, so it stays
equal to the original bit for bit, and counts for nothing in an average.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from decibo.layout import Tree

DEVICES = "devices"  # the name of the axis of devices
SPLIT, EVERYWHERE = PartitionSpec(DEVICES), PartitionSpec()


@dataclass(frozen=True)
class Place:
    """m agents in blocks, one block for each device of a mesh."""

    mesh: Mesh
    m: int

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many agents each device has."""
        share, more = divmod(self.m, self.mesh.size)
        return share + (np.arange(self.mesh.size) < more)

    @cached_property
    def agents(self) -> np.ndarray:
        """(devices, rows): which agent a row is; at the end of short blocks the last one repeated."""
        first = np.cumsum(self.sizes) - self.sizes
        return first[:, None] + np.minimum(np.arange(self.sizes.max()), self.sizes[:, None] - 1)

    @cached_property
    def rows(self) -> np.ndarray:
        """(m,): in which row of all devices together each agent is."""
        block = self.sizes.max()
        return np.concatenate([d * block + np.arange(size) for d, size in enumerate(self.sizes)])

    def own(self, process: int) -> np.ndarray:
        """The agents of a process."""
        mine = [agents for device, agents in zip(self._devices, self.agents, strict=True) if _of(device) == process]
        return np.unique(np.concatenate(mine)) if mine else np.zeros(0, int)

    def split(self, rows: Tree, agents: np.ndarray) -> Tree:
        """Rows of this process's agents, laid out over the devices."""
        sharding, block = NamedSharding(self.mesh, SPLIT), int(self.sizes.max())

        def put(leaf: Any) -> jax.Array:
            # Through the host: a process's devices may have no direct way to each other.
            host = np.asarray(leaf)
            parts = [jax.device_put(host[np.searchsorted(agents, self.agents[d])], device) for d, device in self._local]
            shape = (block * self.mesh.size, *host.shape[1:])
            return jax.make_array_from_single_device_arrays(shape, sharding, parts)

        return jax.tree.map(put, rows)

    def split_devices(self, tree: Tree) -> Tree:
        """Arrays with a leading axis of devices, each device given its own."""
        sharding = NamedSharding(self.mesh, SPLIT)
        put = lambda leaf: jax.make_array_from_single_device_arrays(
            leaf.shape, sharding, [jax.device_put(np.asarray(leaf)[d : d + 1], device) for d, device in self._local]
        )
        return jax.tree.map(put, tree)

    def everywhere(self, tree: Tree) -> Tree:
        """The same arrays on all devices."""
        sharding = NamedSharding(self.mesh, EVERYWHERE)
        put = lambda leaf: jax.make_array_from_single_device_arrays(
            np.shape(leaf), sharding, [jax.device_put(np.asarray(leaf), device) for _, device in self._local]
        )
        return jax.tree.map(put, tree)

    @property
    def _devices(self) -> list[Any]:
        return list(self.mesh.devices.flat)

    @property
    def _local(self) -> list[tuple[int, Any]]:
        here = jax.process_index()
        return [(d, device) for d, device in enumerate(self._devices) if _of(device) == here]


def _of(device: Any) -> int:
    return device.process_index


_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def spread(place: Place | None) -> Iterator[None]:
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
    return jnp.mean(rows, axis=0) if place is None else total(rows) / place.m


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
