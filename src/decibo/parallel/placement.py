"""Where the agents are: together on one device, or in blocks on several.

A run on several devices has the same number of rows on each. Agents come in blocks of nearly equal size, and where
a block is short its last agent is repeated: a clone sees the same data, neighbours and random numbers, so it stays
equal to the original bit for bit, and counts for nothing in an average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from decibo.errors import InputError
from decibo.pytree import Tree
from decibo.validate import positive_int

DEVICES = "devices"  # the name of the axis of devices
SPLIT, EVERYWHERE = PartitionSpec(DEVICES), PartitionSpec()


@dataclass(frozen=True)
class Placement:
    """`count` agents in blocks, one block for each device of a mesh."""

    mesh: Mesh
    count: int

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many agents each device has."""
        share, more = divmod(self.count, self.mesh.size)
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


def place_for(m: int, devices: int | None = None) -> Placement | None:
    """Where to put m agents, on at most so many devices; None if one device does for all.

    Every process gets agents, and every process the same number of devices, as many as there are agents for.
    """
    processes, local = jax.process_count(), jax.local_device_count()
    if processes > m:
        raise InputError(
            f"{processes} processes for {m} agents",
            "every process needs at least one agent",
            f"Start at most {m} processes.",
        )
    if devices is not None:
        devices = positive_int("devices", devices)
        if devices < processes or devices > jax.device_count():
            raise InputError(
                f"devices = {devices}",
                f"there are {jax.device_count()} devices in {processes} processes, and each process uses at least one",
                "Leave it out to use all.",
            )
        local = min(local, devices // processes)
    each = min(local, m // processes)
    if each * processes == 1:
        return None
    chosen = [device for p in range(processes) for device in jax.local_devices(process_index=p)[:each]]
    return Placement(Mesh(np.array(chosen), (DEVICES,)), m)
