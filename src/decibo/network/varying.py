r"""Networks whose links come and go. The links that remain keep W symmetric and doubly stochastic:

    (1)  (W_k s)_i = s_i + sum_j a_ij(k) w_ij (s_j - s_i),     a_ij(k) = a_ji(k) is 1 if the link works at step k

failing    every link fails by itself with some probability
sleeping   every agent sleeps with some probability, and with it all its links
periodic   the networks of a list take turns; each may be disconnected, together they must not be
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.errors import InputError
from decibo.network import checks
from decibo.network.mixing import Mixing
from decibo.network.network import Network


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Varying(Mixing):
    """Neighbour lists with weights that depend on the step and on a key that all agents share."""

    agents: jax.Array  # (m,): the numbers of the agents
    neighbours: jax.Array  # (D, m); an agent with fewer hears itself
    places: jax.Array  # (D, m): where the neighbours are among the rows that are heard
    weights: jax.Array  # (T, D, m): T networks take turns
    links: jax.Array  # (D, m): the number of each link, the same at both ends
    rate: jax.Array  # how often a link fails or an agent sleeps
    what: str = field(metadata={"static": True})  # "links" or "agents"
    count: int = field(metadata={"static": True})  # of links, or of agents, in the whole network

    def heard(self, S: jax.Array, pool: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """W_k pool."""
        flat, pool = S.reshape(S.shape[0], -1), jnp.asarray(pool).reshape(pool.shape[0], -1)
        weights = (self.weights[k % self.weights.shape[0]] * self.alive(key)).astype(S.dtype)
        heard = lambda r: pool.at[self.places[r]].get(mode="promise_in_bounds")
        add = lambda r, mixed: mixed + weights[r][:, None] * (heard(r) - flat)
        return lax.fori_loop(0, self.neighbours.shape[0], add, flat).reshape(S.shape)  # (1)

    def alive(self, key: jax.Array) -> jax.Array:
        """Which of an agent's links work, (D, m)."""
        working = ~jax.random.bernoulli(key, self.rate, (self.count,))
        if self.what == "agents":
            return working[self.neighbours] & working[self.agents]
        return working[self.links]


@dataclass(frozen=True, eq=False, repr=False)
class VaryingNetwork(Network):
    """A network whose links come and go; W, rho and edges are those of all links together."""

    turns: tuple[Any, ...] = ()
    rate: float = 0.0
    what: str = "links"

    def mixing(self, kind: str | None = None) -> Mixing:
        """Follows the links, whatever the size."""
        return make_varying(self)


def failing(network: Network, probability: float) -> Network:
    """The network with every link failing by itself at every step with this probability."""
    return _unreliable(network, probability, "links", "failing links")


def sleeping(network: Network, probability: float) -> Network:
    """The network with every agent asleep at every step with this probability: it says and hears nothing.

    A sleeping agent still follows its own gradient.
    """
    return _unreliable(network, probability, "agents", "sleeping agents")


def periodic(networks: Sequence[Any]) -> Network:
    """Networks, or weight matrices, that take turns: the k-th step uses number k modulo their count.

    Matrices must be symmetric and doubly stochastic; all together must connect the agents, each alone need not.
    """
    if not networks:
        raise InputError(
            "periodic([])", "there must be at least one network", "Give [decibo.ring(8), decibo.networks.star(8)]."
        )
    turns = tuple(_checked(f"network {i}", each) for i, each in enumerate(networks))
    sizes = sorted({turn.shape[0] for turn in turns})
    if len(sizes) > 1:
        raise InputError(f"networks of {sizes} agents", "all must have the same agents", "Make them of equal size.")
    mean = sum(turns[1:], start=turns[0]) / len(turns)
    return VaryingNetwork(mean, f"{len(turns)} networks in turn", turns=turns)


def _unreliable(network: Network, probability: float, what: str, words: str) -> Network:
    if not isinstance(network, Network) or network.directed:
        raise InputError(f"{network!r}", "only undirected networks can have " + words, "Give a Network.")
    if not (np.isfinite(probability) and 0 <= probability < 1):
        raise InputError(
            f"probability = {probability!r}", "it must be at least 0 and below 1", "Give 0.3, for example."
        )
    turns = getattr(network, "turns", ()) or (network.weights,)
    name = f"{network.name} with {words}"
    return VaryingNetwork(
        network.weights, name, network.labels, network.shape, turns=turns, rate=float(probability), what=what
    )


def _checked(name: str, given: Any) -> Any:
    matrix = checks.square(name, given.weights if isinstance(given, Network) else given)
    checks.nonnegative(name, matrix)
    checks.symmetric(name, matrix)
    checks.stochastic(name, matrix, axis=1)
    return matrix


def make_varying(network: VaryingNetwork) -> Varying:
    """Its mixing, with the agents all in one place."""
    m, ends = network.agents, np.concatenate([network.edges, network.edges[:, ::-1]])
    number = np.tile(np.arange(len(network.edges), dtype=np.int32), 2)
    order = np.argsort(ends[:, 0], kind="stable")
    row, column, number = ends[order, 0], ends[order, 1], number[order]
    degrees = np.bincount(row, minlength=m)
    place = np.arange(len(row)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    slots = int(degrees.max(initial=0))
    neighbours, links = np.tile(np.arange(m, dtype=np.int32), (slots, 1)), np.zeros((slots, m), np.int32)
    weights = np.zeros((len(network.turns), slots, m))
    neighbours[place, row], links[place, row] = column, number
    for t, turn in enumerate(network.turns):
        weights[t, place, row] = np.asarray(turn[row, column]).ravel() if len(row) else 0.0
    arrays = [jnp.asarray(each) for each in (np.arange(m), neighbours, neighbours, weights, links, network.rate)]
    return Varying(*arrays, what=network.what, count=m if network.what == "agents" else len(network.edges))
