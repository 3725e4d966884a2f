"""Where the agents are: together on one device, or in blocks on several.

A run on several devices has the same number of rows on each. Agents come in blocks of nearly equal
size, and where a block is short its last agent is repeated: a clone sees the same data, neighbours
and random numbers, so it stays equal to the original bit for bit, and counts for nothing in an
average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from decibo.errors import InputError
from decibo.pytree import Tree
from decibo.validate import integer

if TYPE_CHECKING:
    from jaxtyping import Int

DEVICES = "devices"  # the name of the axis of devices
SPLIT = PartitionSpec(DEVICES)  # each device has its own part
EVERYWHERE = PartitionSpec()  # all devices have the same


@dataclass(frozen=True)
class Placement:
    """`count` agents in blocks, one block for each device of a mesh."""

    mesh: Mesh
    count: int

    @cached_property
    def sizes(self) -> Int[np.ndarray, " devices"]:
        """How many agents each device has."""
        share, remainder = divmod(self.count, self.mesh.size)
        return share + (np.arange(self.mesh.size) < remainder)

    @cached_property
    def agents(self) -> Int[np.ndarray, "devices rows"]:
        """Which agent a row is; at the end of short blocks the last one is repeated."""
        first = np.cumsum(self.sizes) - self.sizes
        return first[:, None] + np.minimum(np.arange(self.sizes.max()), self.sizes[:, None] - 1)

    @cached_property
    def rows(self) -> Int[np.ndarray, " agents"]:
        """The row of each agent, counted over all devices."""
        block = self.sizes.max()
        return np.concatenate([d * block + np.arange(size) for d, size in enumerate(self.sizes)])

    def own(self, process: int) -> Int[np.ndarray, " agents"]:
        """The agents of a process."""
        devices = [
            d for d, device in enumerate(self.mesh.devices.flat) if device.process_index == process
        ]
        return np.unique(self.agents[devices])

    @cached_property
    def names(self) -> dict[int, str]:
        """The agents of each process, in words."""
        blocks = {process: self.own(process) for process in range(jax.process_count())}
        return {process: _span(agents) for process, agents in blocks.items()}

    def split(self, rows: Tree, agents: np.ndarray) -> Tree:
        """Rows of this process's agents, laid out over the devices."""
        block = int(self.sizes.max())

        def put(leaf: jax.Array | np.ndarray) -> jax.Array:
            # Through the host: a process's devices may have no direct way to each other.
            host = np.asarray(leaf)
            parts = [host[np.searchsorted(agents, self.agents[d])] for d, _ in self._local]
            return self._assemble((block * self.mesh.size, *host.shape[1:]), SPLIT, parts)

        return jax.tree.map(put, rows)

    def split_devices(self, tree: Tree) -> Tree:
        """Arrays with a leading axis of devices, each device given its own part."""
        put = lambda leaf: self._assemble(
            np.shape(leaf), SPLIT, [np.asarray(leaf)[d : d + 1] for d, _ in self._local]
        )
        return jax.tree.map(put, tree)

    def everywhere(self, tree: Tree) -> Tree:
        """The same arrays on all devices."""
        put = lambda leaf: self._assemble(
            np.shape(leaf), EVERYWHERE, [np.asarray(leaf)] * len(self._local)
        )
        return jax.tree.map(put, tree)

    @property
    def _local(self) -> list[tuple[int, Any]]:
        process = jax.process_index()
        return [
            (d, device)
            for d, device in enumerate(self.mesh.devices.flat)
            if device.process_index == process
        ]

    def _assemble(
        self, shape: tuple[int, ...], spec: PartitionSpec, parts: list[np.ndarray]
    ) -> jax.Array:
        """One array from the parts of this process's devices."""
        arrays = [
            jax.device_put(part, device)
            for part, (_, device) in zip(parts, self._local, strict=True)
        ]
        return jax.make_array_from_single_device_arrays(
            shape, NamedSharding(self.mesh, spec), arrays
        )


def place_agents(agents: int, devices: int | None = None) -> Placement | None:
    """Where to put the agents, on at most so many devices; None if one device does for all.

    Every process gets agents, and every process the same number of devices, as many as there are
    agents for.
    """
    processes = jax.process_count()
    local = jax.local_device_count()
    if processes > agents:
        raise InputError(
            f"There are {processes} processes for {agents} agents, but every process needs at least"
            " one agent.",
            f"Start at most {agents} processes.",
        )
    if devices is not None:
        devices = integer("devices", devices)
        if devices < processes or devices > jax.device_count():
            raise InputError(
                f"devices must be between {processes} and {jax.device_count()}, but it is"
                f" {devices}: each of the {processes} processes uses at least one of the"
                f" {jax.device_count()} devices.",
                "Leave it out to use all.",
            )
        local = min(local, devices // processes)
    per_process = min(local, agents // processes)
    if per_process * processes == 1:
        return None
    used = [
        device
        for p in range(processes)
        for device in jax.local_devices(process_index=p)[:per_process]
    ]
    return Placement(Mesh(np.array(used), (DEVICES,)), agents)


def _span(agents: np.ndarray) -> str:
    return f"agents {agents[0]} to {agents[-1]}" if len(agents) > 1 else f"agent {agents[0]}"
