"""How one agent mixes if the others are elsewhere: its row goes out, those of its neighbours come
in, and it sums up.

`SiloMix` is the `Mix` of a step of ONE agent, without the axis of agents that the simulation has;
every strategy, compression and network with fixed or changing links works as it stands. The sum is
made in the order of the agents,

    (1)  mix(s)_i = s_i + sum_j w_ij (s_j - s_i),      j over the neighbours in the order of their
                                                       numbers

so that it does not depend on who answers first. The simulation sums in an order that suits all
agents together: results agree to rounding, and every site's own are the same bits each time.

What goes out leaves the compiled program at `sent`, an equation at which the program is cut
(run/jaxpr_split.py) and the host has its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Jaxpr, JaxprEqn, Primitive

from decibo.network.directed import DirectedNetwork
from decibo.network.mixing import AgentMix, How, Mixing, Step, as_one
from decibo.network.network import AnyNetwork, Network
from decibo.network.sharded import mixing_of_one
from decibo.run.jaxpr_split import stops

if TYPE_CHECKING:
    from scipy.sparse import csr_array

T = TypeVar("T")
# what this site sends -> rows: the same, and what each neighbour sends
Exchange = Callable[[np.ndarray], np.ndarray]

# An equation with one vector in and rows out, the vector first. It has no meaning of its own.
sent = Primitive("decibo_sent")


@sent.def_abstract_eval
def _rows(vector: ShapedArray, *, rows: int) -> ShapedArray:
    return ShapedArray((rows, *vector.shape), vector.dtype)


def is_sent(equation: JaxprEqn) -> bool:
    return equation.primitive is sent


def messages(jaxpr: Jaxpr) -> list[int]:
    """How many numbers a program sends in each of its exchanges."""
    rows = [equation.invars[0].aval for _, equation in stops(jaxpr, is_sent)]
    return [int(np.prod(getattr(row, "shape", ()))) for row in rows]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SiteMixing(Mixing):
    """Send the own row, then mix it with what the neighbours send: so many rows together."""

    local: Mixing
    rows: int = field(metadata={"static": True})

    @property
    def fused(self) -> bool:
        return True  # one message for all that an agent sends

    def exchange(
        self, S: jax.Array, how: How, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        received = sent.bind(S[0], rows=self.rows)
        return self.local.combine(S, received, how, k, key)  # (1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SummedNeighbours(Mixing):
    """The mixing of an agent that receives a second row: by how much its neighbours together differ
    from it."""

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        return received[1:]


@dataclass(frozen=True, eq=False)
class SiloMix(AgentMix):
    """The `Mix` of step k for one agent whose neighbours are elsewhere; all agents share `key`."""

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        over = lambda mixing, tree: as_one(
            lambda row: mixing.exchange(row[None], how, self.k, self.key)[0], tree
        )
        return self.mixing.shared_out(tree, over)


def silo_mixing(network: AnyNetwork, agent: int, *, sums: bool = False) -> Mixing:
    """The mixing of one agent whose neighbours are elsewhere; with `sums` the host finds the sum
    over them."""
    if sums:
        return SiteMixing(SummedNeighbours(), 2)

    def exchange(network: AnyNetwork, weights: csr_array) -> SiteMixing:
        local, received = mixing_of_one(network, weights, agent)
        return SiteMixing(local, len(received))

    return network.made_of(exchange)


def neighbours_of(network: Network | DirectedNetwork, agent: int) -> list[int]:
    """The agents that an agent exchanges messages with, in the order of the rows it receives."""
    return [
        int(other)
        for other in np.unique(network.edges[(network.edges == agent).any(axis=1)])
        if other != agent
    ]
