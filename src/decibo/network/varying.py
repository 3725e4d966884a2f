r"""Networks whose links come and go. The links that remain keep W symmetric and doubly stochastic:

    (1)  (W_k s)_i = s_i + sum_j a_ij(k) w_ij (s_j - s_i),     a_ij(k) = a_ji(k) is 1 if the link
                                                               works at step k

failing    every link fails by itself with some probability
sleeping   every agent sleeps with some probability, and with it all its links
periodic   the networks of a list take turns; each may be disconnected, together they must not be
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.capabilities import PLAIN, Need, Needs
from decibo.errors import InputError, short
from decibo.network.mixing import Mixing, Step
from decibo.network.network import Network, check_plain
from decibo.network.weights import check_doubly_stochastic
from decibo.validate import fraction

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array, sparray

PATIENCE = 10


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Varying(Mixing):
    """Neighbour lists with weights that depend on the step and on a key that all agents share."""

    agents: jax.Array  # (agents,): their numbers
    neighbours: jax.Array  # (D, agents); an agent with fewer has itself
    places: jax.Array  # (D, agents): where the neighbours are among the rows that are received
    weights: jax.Array  # (T, D, agents): T networks take turns
    links: jax.Array  # (D, agents): the number of each link, the same for both agents
    rate: jax.Array  # how often a link fails or an agent sleeps
    unreliable: str = field(metadata={"static": True})  # "links" or "agents"
    count: int = field(metadata={"static": True})  # of links, or of agents, in the whole network

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """W_k - I times what was received."""
        assert k is not None
        assert key is not None
        if not len(self.neighbours):  # a single agent
            return jnp.zeros_like(S)
        flat = S.reshape(S.shape[0], -1)
        received = jnp.asarray(received).reshape(received.shape[0], -1)
        weights = (self.weights[k % self.weights.shape[0]] * self.alive(key)).astype(S.dtype)
        neighbour = lambda r: received[self.places[r]]
        add = lambda r, total: total + weights[r][:, None] * (neighbour(r) - flat)
        # (1)
        return lax.fori_loop(0, self.neighbours.shape[0], add, jnp.zeros_like(flat)).reshape(
            S.shape
        )

    def largest_of(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """The largest of the own row and of those that arrive at step k."""
        assert k is not None
        assert key is not None
        if not len(self.neighbours):  # a single agent
            return S
        arrives = (self.weights[k % self.weights.shape[0]] != 0) & self.alive(key)
        for r in range(self.neighbours.shape[0]):
            there = arrives[r].reshape(-1, *(1,) * (S.ndim - 1))
            S = jnp.where(there, jnp.maximum(S, received[self.places[r]]), S)
        return S

    def alive(self, key: jax.Array) -> jax.Array:
        """Which of an agent's links work, (D, agents)."""
        # For all links of the network at once, from a key that all agents share: both ends of a
        # link draw the same, also on different devices.
        working = ~jax.random.bernoulli(key, self.rate, (self.count,))
        if self.unreliable == "agents":
            return working[self.neighbours] & working[self.agents]
        return working[self.links]


@dataclass(frozen=True, eq=False, repr=False)
class VaryingNetwork(Network):
    """A network whose links change from step to step; W, rho and edges are those of all links
    together."""

    lacks: ClassVar[Needs] = frozenset({Need.FIXED_LINKS})
    turns: tuple[csr_array, ...] = ()
    rate: float = 0.0
    unreliable: str = "links"

    @cached_property
    def width(self) -> int:
        """How many exchanges are enough, almost surely, for the news of one agent to reach all
        others.

        A link that works with probability p at its turn is crossed once in 1/p turns; PATIENCE more
        crossings leave less than exp(-PATIENCE) of a chance that a path of links was slower than
        that.
        """
        works = (1 - self.rate) ** (2 if self.unreliable == "agents" else 1)
        crossings = super().width if works == 1 else 2 * (super().width + PATIENCE) / works
        return math.ceil(crossings) * len(self.turns)

    def single(self, weights: csr_array, kernel: str | None) -> Mixing:
        """Follows the links, whatever the size."""
        neighbours, links, slot, row = neighbour_slots(self)
        column = neighbours[slot, row]
        values = np.zeros((len(self.turns), *neighbours.shape))
        for t, turn in enumerate(self.turns):
            values[t, slot, row] = np.asarray(turn[row, column]).ravel() if len(row) else 0.0
        agents = np.arange(self.agents)
        arrays = agents, neighbours, neighbours, values, links, self.rate
        count = self.agents if self.unreliable == "agents" else len(self.edges)
        return Varying(*map(jnp.asarray, arrays), unreliable=self.unreliable, count=count)


def failing(network: Network, probability: float) -> VaryingNetwork:
    """The network in which every link fails independently at every step with this probability."""
    return _unreliable(network, probability, "links", "failing links")


def sleeping(network: Network, probability: float) -> VaryingNetwork:
    """The network with every agent asleep at every step with this probability: it sends and
    receives nothing.

    A sleeping agent still follows its own gradient.
    """
    return _unreliable(network, probability, "agents", "sleeping agents")


def periodic(networks: Sequence[Network | ArrayLike | sparray]) -> VaryingNetwork:
    """Networks, or weight matrices, that take turns: the k-th step uses number k modulo their
    count.

    Matrices must be symmetric and doubly stochastic; all together must connect the agents, each
    alone need not.
    """
    if not isinstance(networks, Sequence | None) or isinstance(networks, str):
        raise InputError(f"networks must be a list of networks, but it is {short(repr(networks))}.")
    if not networks:
        raise InputError(
            "periodic needs at least one network.",
            "Pass [decibo.ring(8), decibo.networks.star(8)].",
        )
    matrices = [
        network.weights if isinstance(network, Network) else network for network in networks
    ]
    turns = tuple(
        check_doubly_stochastic(f"network {i}", matrix) for i, matrix in enumerate(matrices)
    )
    sizes = sorted({turn.shape[0] for turn in turns})
    if len(sizes) > 1:
        raise InputError(
            f"All networks must have the same number of agents, but there are networks of {sizes}"
            " agents."
        )
    mean = sum(turns[1:], start=turns[0]) / len(turns)
    return VaryingNetwork(mean, f"{len(turns)} networks in turn", turns=turns)


def _unreliable(
    network: Network, probability: float, unreliable: str, words: str
) -> VaryingNetwork:
    check_plain(f"A network with {words}", network, PLAIN - {Need.FIXED_LINKS})
    if fraction("probability", probability) == 1:
        raise InputError("probability must be below 1, but it is 1.")
    turns = getattr(network, "turns", ()) or (network.weights,)
    return VaryingNetwork(
        network.weights,
        f"{network.name} with {words}",
        network.labels,
        network.shape,
        turns=turns,
        rate=float(probability),
        unreliable=unreliable,
    )


class Slots(NamedTuple):
    """The neighbours of all agents in slots, as many as the agent with most neighbours has.

    neighbours   (D, agents): who; an agent with fewer has itself
    links        (D, agents): the number of the link, the same for both agents
    slot, row    where in these each neighbour is, one entry for each link and direction
    """

    neighbours: np.ndarray
    links: np.ndarray
    slot: np.ndarray
    row: np.ndarray


def neighbour_slots(network: Network) -> Slots:
    """The neighbours of all agents."""
    agents = network.agents
    both_ways = np.concatenate([network.edges, network.edges[:, ::-1]])
    order = np.argsort(both_ways[:, 0], kind="stable")
    row, column = both_ways[order].T
    degrees = np.bincount(row, minlength=agents)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    slots = int(degrees.max(initial=0))
    neighbours = np.tile(np.arange(agents, dtype=np.int32), (slots, 1))
    neighbours[slot, row] = column
    links = np.zeros((slots, agents), np.int32)
    links[slot, row] = np.tile(np.arange(len(network.edges), dtype=np.int32), 2)[order]
    return Slots(neighbours, links, slot, row)
