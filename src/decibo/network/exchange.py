"""Mixing when the agents are in blocks on several devices: rows that cross a border are sent, then all is as before.

Works inside `jax.shard_map` over the axis DEVICES. Every array here has a leading axis of devices, of length 1 inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.network.directed import DirectedNetwork, PushPull
from decibo.network.kernels import links_of, make_dense, make_sparse, split_hubs, suits_dense
from decibo.network.mixing import Mixing
from decibo.network.network import Network
from decibo.network.plan import Pairs, Plan, make_plan
from decibo.network.varying import Varying, VaryingNetwork, make_varying
from decibo.parallel.placement import DEVICES, Placement


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Exchange(Mixing):
    """Send what crosses a border, then mix the block with what was heard."""

    local: Mixing
    sends: tuple[jax.Array, ...]
    parts: tuple[Pairs, ...] = field(metadata={"static": True})

    @property
    def whole(self) -> bool:
        """Yes: one message for all that an agent says."""
        return True

    def stacked(self, S: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """The rows of this device's block of W S."""
        local, sends = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), (self.local, self.sends))
        heard = [
            lax.ppermute(S.at[rows].get(mode="promise_in_bounds"), DEVICES, pairs)
            for rows, pairs in zip(sends, self.parts, strict=True)
        ]
        return local.heard(S, jnp.concatenate([S, *heard]), k, key)


def plans(network: Network | DirectedNetwork, place: Placement) -> list[Plan]:
    """What travels between devices in one exchange; for a directed network, when pulling and when pushing."""
    return [make_plan(weights, place.agents) for weights in _weights(network)]


def exchange(network: Network | DirectedNetwork, place: Placement) -> Mixing:
    """The network's mixing for agents in blocks; arrays have a leading axis of devices."""
    made = [_exchange(network, weights, make_plan(weights, place.agents), place) for weights in _weights(network)]
    return PushPull(*made) if len(made) == 2 else made[0]


def _weights(network: Network | DirectedNetwork) -> list[Any]:
    return [network.pull, network.push] if isinstance(network, DirectedNetwork) else [network.weights]


def _exchange(network: Network | DirectedNetwork, weights: Any, plan: Plan, place: Placement) -> Exchange:
    if isinstance(network, VaryingNetwork):
        local = _varying_blocks(make_varying(network), plan, place)
    else:
        local = _blocks([_block(weights, *rows) for rows in zip(place.agents, plan.pool, strict=True)])
    return Exchange(local, tuple(jnp.asarray(send) for send in plan.sends), plan.parts)


def _block(weights: Any, agents: np.ndarray, pool: np.ndarray) -> Any:
    """The rows of W for a block, with a column for each row of its pool; a clone hears what its original hears."""
    from scipy.sparse import csr_array

    rows = weights[agents].tocoo()
    column = _places(agents[rows.row], rows.col, rows.row, pool)
    return csr_array((rows.data, (rows.row, column)), shape=(len(agents), len(pool)))


def _places(hearer: Any, heard: np.ndarray, row: Any, pool: np.ndarray) -> np.ndarray:
    """Where in the pool those are who are heard; an agent hears itself in its own row, also if it is a clone."""
    known = np.flatnonzero(pool >= 0)[::-1]
    where = np.zeros(int(max(pool.max(), heard.max(initial=0))) + 1, int)
    where[pool[known]] = known  # backwards, so that of several places the first stays
    return np.where(heard == hearer, row, where[heard])


def _blocks(blocks: list[Any]) -> Mixing:
    """The mixings of all devices, of one kind and shape, stacked."""
    if all(suits_dense(block) for block in blocks):
        return _stacked([make_dense(block) for block in blocks])
    slots = max(split_hubs(links_of(block))[0] for block in blocks)
    hubs = [np.flatnonzero(links_of(block) > slots) for block in blocks]
    most = max(map(len, hubs))
    # Where a device has fewer hubs, other rows are computed as if they were.
    filled = [np.union1d(own, np.setdiff1d(np.arange(blocks[0].shape[0]), own)[: most - len(own)]) for own in hubs]
    return _stacked([make_sparse(block, slots, rows) for block, rows in zip(blocks, filled, strict=True)])


def _varying_blocks(whole: Varying, plan: Plan, place: Placement) -> Mixing:
    def block(agents: np.ndarray, pool: np.ndarray) -> Varying:
        of = lambda array: np.asarray(array)[..., agents]
        neighbours = of(whole.neighbours)
        places = _places(agents, neighbours, np.arange(len(agents)), pool)
        arrays = [jnp.asarray(each) for each in (agents, neighbours, places, of(whole.weights), of(whole.links))]
        return Varying(*arrays, rate=whole.rate, what=whole.what, count=whole.count)

    return _stacked([block(*rows) for rows in zip(place.agents, plan.pool, strict=True)])


def _stacked(mixings: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *mixings)
