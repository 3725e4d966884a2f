r"""Mixing when the agents are in blocks on several devices: rows that others need are sent, then
each block is mixed.

The plan of an exchange says who sends which rows to which device, in rounds in which every device
sends to one and receives from one:

    (1)  p sends agent j to q     if j is on p, q is another device, and some agent on q gives j a
                                  weight
    (2)  rounds                   a colouring of the links p -> q with as many colours as the
                                  busiest device has links
    (3)  parts                    within a round, pairs with more to send continue while the others
                                  are silent

By (1) a row crosses a border once, however many agents beyond it need it; by (3) nothing but such
rows travels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.capabilities import Need
from decibo.network.mixing import (
    How,
    Mixing,
    Step,
    links_of,
    make_dense,
    make_sparse,
    split_hubs,
    suits_dense,
)
from decibo.network.network import AnyNetwork
from decibo.network.varying import Varying
from decibo.parallel.placement import DEVICES, Placement

if TYPE_CHECKING:
    from jaxtyping import Int
    from scipy.sparse import csr_array

Pairs = tuple[tuple[int, int], ...]
M = TypeVar("M", bound=Mixing)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BlockExchange(Mixing):
    """Send the rows that cross a border, then mix the block with what was received.

    Works inside `jax.shard_map` over the axis DEVICES. Arrays have a leading axis of devices, of
    length 1 inside.
    """

    local: Mixing
    sends: tuple[jax.Array, ...]
    parts: tuple[Pairs, ...] = field(metadata={"static": True})

    @property
    def fused(self) -> bool:
        """One message for all that an agent sends."""
        return True

    def exchange(
        self, S: jax.Array, how: How, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The rows of this device's block."""
        local, received = self._received(S)
        return local.combine(S, received, how, k, key)

    def _received(self, S: jax.Array) -> tuple[Mixing, jax.Array]:
        """The mixing of this device, and its block with the rows that others sent."""
        local, sends = jax.tree.map(
            lambda leaf: leaf.reshape(leaf.shape[1:]), (self.local, self.sends)
        )
        # In a ppermute nobody may be a source or a target twice; who is no target gets zeros, which
        # no agent has a weight for.
        received = [
            lax.ppermute(S[rows], DEVICES, pairs)
            for rows, pairs in zip(sends, self.parts, strict=True)
        ]
        return local, jnp.concatenate([S, *received])


def sharded_mixing(network: AnyNetwork, placement: Placement) -> Mixing:
    """The network's mixing for agents in blocks; its arrays have a leading axis of devices."""

    def exchange(network: AnyNetwork, weights: csr_array) -> BlockExchange:
        plan = make_plan(weights, placement.agents)
        blocks = list(zip(placement.agents, plan.received, strict=True))
        if Need.FIXED_LINKS in network.gives:
            local = _blocks([_block(weights, *rows) for rows in blocks])
        else:
            whole = cast("Varying", network.mixing())
            local = _stacked([_varying_block(whole, *rows) for rows in blocks])
        return BlockExchange(local, tuple(jnp.asarray(send) for send in plan.sends), plan.parts)

    return network.made_of(exchange)


def _block(weights: csr_array, agents: np.ndarray, received: np.ndarray) -> csr_array:
    """The rows of W for a block, with a column for each row received; a clone receives what its
    original receives."""
    from scipy.sparse import csr_array

    rows = weights[agents].tocoo()
    column = _places(agents[rows.row], rows.col, rows.row, received)
    return csr_array((rows.data, (rows.row, column)), shape=(len(agents), len(received)))


def _places(
    receiver: np.ndarray, sender: np.ndarray, row: np.ndarray, received: np.ndarray
) -> np.ndarray:
    """Where senders are among the rows received; an agent is its own sender in its own row, even if
    it is a clone."""
    present = np.flatnonzero(received >= 0)[::-1]
    where = np.zeros(int(max(received.max(), sender.max(initial=0))) + 1, int)
    where[received[present]] = present  # backwards, so that of several places the first stays
    return np.where(sender == receiver, row, where[sender])


def _blocks(blocks: list[csr_array]) -> Mixing:
    """The mixings of all devices, with one kernel and shape, stacked."""
    if all(suits_dense(block) for block in blocks):
        return _stacked([make_dense(block) for block in blocks])
    slots = max(split_hubs(links_of(block))[0] for block in blocks)
    hubs = [np.flatnonzero(links_of(block) > slots) for block in blocks]
    most = max(map(len, hubs))
    # Where a device has fewer hubs, other rows are computed as if they were.
    filled = [
        np.union1d(own, np.setdiff1d(np.arange(blocks[0].shape[0]), own)[: most - len(own)])
        for own in hubs
    ]
    return _stacked(
        [make_sparse(block, slots, rows) for block, rows in zip(blocks, filled, strict=True)]
    )


def _varying_block(whole: Varying, agents: np.ndarray, received: np.ndarray) -> Varying:
    of = lambda array: np.asarray(array)[..., agents]
    neighbours = of(whole.neighbours)
    places = _places(agents, neighbours, np.arange(len(agents)), received)
    arrays = [
        jnp.asarray(array)
        for array in (agents, neighbours, places, of(whole.weights), of(whole.links))
    ]
    return Varying(*arrays, rate=whole.rate, unreliable=whole.unreliable, count=whole.count)


def mixing_of_one(network: AnyNetwork, weights: csr_array, agent: int) -> tuple[Mixing, np.ndarray]:
    """How one agent mixes its row with those that its neighbours send; and whose rows these are,
    its own first."""
    row = weights[[agent]].tocoo()
    received = np.concatenate([[agent], np.sort(row.col[row.col != agent])]).astype(int)
    if Need.FIXED_LINKS not in network.gives:
        whole = cast("Varying", network.mixing())
        return _varying_block(whole, np.array([agent]), received), received
    return make_dense(_block(weights, np.array([agent]), received)), received


def _stacked(mixings: list[M]) -> M:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *mixings)


@dataclass(frozen=True, eq=False)
class Transfers:
    """An exchange between devices.

    parts      for each transfer, the pairs (from, to) of devices taking part
    sends      for each transfer, (devices, width): which rows of its block a device sends
    received   the agent of each row that a device has at the end, its own block first; -1 for none
    """

    parts: tuple[Pairs, ...]
    sends: tuple[np.ndarray, ...]
    received: Int[np.ndarray, "devices rows"]


def make_plan(weights: csr_array, agents: Int[np.ndarray, "devices rows"]) -> Transfers:
    """The plan for agents laid out in blocks that receive with these weights."""
    devices = len(agents)
    needs = _needs(weights, agents)  # (1)
    parts: list[Pairs] = []
    sends: list[np.ndarray] = []
    received = [agents]
    for pairs in colour(list(needs)):  # (2)
        longest = max(len(needs[pair]) for pair in pairs)
        done = 0
        while done < longest:  # (3)
            active = tuple(pair for pair in pairs if len(needs[pair]) > done)
            width = min(len(needs[pair]) for pair in active) - done
            send = np.zeros((devices, width), np.int32)
            arriving = np.full((devices, width), -1)
            for p, q in active:
                arriving[q] = needs[p, q][done : done + width]
                send[p] = arriving[q] - agents[p, 0]
            parts.append(active)
            sends.append(send)
            received.append(arriving)
            done += width
    return Transfers(tuple(parts), tuple(sends), np.concatenate(received, axis=1))


def _needs(weights: csr_array, agents: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """For each pair (p, q) of devices the agents on p that some agent on q receives from, in
    order."""
    device = np.zeros(int(agents.max()) + 1, int)
    device[agents] = np.arange(len(agents))[:, None]
    links = weights.tocoo()
    crossing = device[links.row] != device[links.col]
    triples = np.stack([device[links.col], device[links.row], links.col], axis=1)[crossing]
    triples = np.unique(triples, axis=0)
    cuts = np.flatnonzero(np.any(np.diff(triples[:, :2], axis=0), axis=1)) + 1
    groups = np.split(triples, cuts) if len(triples) else []
    return {(int(group[0, 0]), int(group[0, 1])): group[:, 2] for group in groups}


def colour(links: list[tuple[int, int]]) -> list[Pairs]:
    """Links p -> q in the fewest rounds in which nobody sends or receives twice (König's
    theorem)."""
    target: dict[tuple[int, int], int] = {}  # (p, round) -> q
    source: dict[tuple[int, int], int] = {}  # (q, round) -> p
    free = lambda taken, device: next(r for r in range(len(links) + 1) if (device, r) not in taken)
    for p, q in links:
        a = free(target, p)
        b = free(source, q)
        # Make round a free for q too: along the path of links that alternate between rounds a and
        # b, swap the two.
        path: list[tuple[int, int, int]] = []
        end = q
        now = a
        while (end, now) in (source if len(path) % 2 == 0 else target):
            if len(path) % 2 == 0:
                path.append((source[end, now], end, now))
                end = source[end, now]
            else:
                path.append((end, target[end, now], now))
                end = target[end, now]
            now = b if now == a else a
        for sender, receiver, r in path:
            del target[sender, r], source[receiver, r]
        for sender, receiver, r in path:
            swapped = b if r == a else a
            target[sender, swapped] = receiver
            source[receiver, swapped] = sender
        target[p, a] = q
        source[q, a] = p
    rounds: dict[int, list[tuple[int, int]]] = {}
    for (p, r), q in target.items():
        rounds.setdefault(r, []).append((p, q))
    return [tuple(sorted(rounds[r])) for r in sorted(rounds)]
