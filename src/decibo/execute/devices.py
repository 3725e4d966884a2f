"""On which devices a run's agents are: one if there is one, all of them in blocks otherwise."""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh

from decibo.agents import DEVICES, Place
from decibo.errors import InputError
from decibo.execute.checks import positive_integer


def place_for(m: int, devices: int | None = None) -> Place | None:
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
        devices = positive_integer("devices", devices)
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
    return Place(Mesh(np.array(chosen), (DEVICES,)), m)
