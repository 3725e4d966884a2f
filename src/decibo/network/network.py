"""A network: agents, their links and the weights W with which they listen to each other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np

from decibo.capabilities import ON_NETWORK, PLAIN, Need, Needs, require
from decibo.errors import InputError, short
from decibo.formatting import in_notebook
from decibo.network.mixing import Mixing, Reach, choose_mixing
from decibo.network.weights import (
    Shifts,
    Spectrum,
    check_aperiodic,
    check_connected,
    check_doubly_stochastic,
    find_shifts,
    rescale,
    spectrum_of,
    width_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    import networkx
    from jaxtyping import Float, Int
    from scipy.sparse import csr_array

W_LIMIT = 20_000  # a dense W of more agents would take over 3 GB
RHO_LIMIT = 500  # up to here rho is computed at once, and shown; beyond, when somebody asks for it


class Share(NamedTuple):
    """Variables that share a network: over all links, on average, `messages` for each that they
    exchange."""

    group: tuple[str, ...]
    messages: float


class Exchange(Protocol):
    """One exchange by these weights of a network: on one device, between blocks of agents, or
    between sites."""

    def __call__(self, network: AnyNetwork, weights: csr_array, /) -> Mixing: ...


class AnyNetwork:
    """What every kind of network answers. A new kind says what it lacks of what methods and
    runtimes may need, and how its mixing is made of single exchanges. Networks are the same if the
    fields of their dataclasses are."""

    lacks: ClassVar[Needs] = frozenset()
    directed: ClassVar[bool] = False
    name: str
    agents: int  # how many there are

    @property
    def gives(self) -> Needs:
        """What methods and runtimes have here."""
        return ON_NETWORK - self.lacks - (set() if self.agents == 1 else {Need.ONE_AGENT})

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """With a network for each variable, how much of the traffic each group has."""
        return ()

    def mixing(self, kernel: str | None = None) -> Mixing:
        """How S -> W S is computed: "dense", "circulant", "sparse" or, by default, whichever is
        fastest."""
        return self.made_of(lambda network, weights: network.single(weights, kernel))

    def made_of(self, exchange: Exchange) -> Mixing:
        """The mixing, made of single exchanges wherever the agents are."""
        raise NotImplementedError

    def single(self, weights: csr_array, kernel: str | None) -> Mixing:
        """A single exchange between agents on one device."""
        return choose_mixing(weights, lambda: find_shifts(weights, (self.agents,)), kernel)


@dataclass(frozen=True, eq=False, repr=False)
class Network(AnyNetwork):
    """Agents 0, 1, ... and a symmetric, doubly stochastic matrix of weights; checked on
    construction.

    weights   a scipy csr_array (any square matrix is accepted): weights[i, j] is the weight i gives
              to j's message
    labels    the names of the agents in the graph they came from; agent i is labels[i]
    shape     the shape in which agents are arranged, such as (rows, columns) of a torus; (agents,)
              by default
    """

    weights: csr_array
    name: str = "network"
    labels: tuple[Hashable, ...] | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        weights = check_doubly_stochastic("W", self.weights)
        check_connected(self.name, weights)
        check_aperiodic("W", weights)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "agents", weights.shape[0])
        object.__setattr__(self, "shape", self.shape or (weights.shape[0],))
        if self.agents <= RHO_LIMIT:
            _ = self.spectrum

    @property
    def W(self) -> Float[np.ndarray, "agents agents"]:
        """The weights as a dense array."""
        return dense(self.weights, "W", "weights")

    @cached_property
    def edges(self) -> Int[np.ndarray, "edges 2"]:
        """The links as rows (i, j) with i < j; self-weights are not links."""
        from scipy.sparse import triu

        upper = triu(self.weights, k=1).tocoo()
        return np.stack([upper.row, upper.col], axis=1).astype(np.int64)

    @cached_property
    def degrees(self) -> Int[np.ndarray, " agents"]:
        """How many neighbours each agent has."""
        return np.bincount(self.edges.ravel(), minlength=self.agents)

    @cached_property
    def graph(self) -> networkx.Graph:
        """A networkx graph with the weights as edge attributes."""
        import networkx

        graph = networkx.Graph(name=self.name)
        graph.add_nodes_from(range(self.agents))
        values = entries(self.weights, *self.edges.T)
        graph.add_weighted_edges_from(zip(*self.edges.T.tolist(), values.tolist(), strict=True))
        return graph

    @cached_property
    def shifts(self) -> Shifts | None:
        """The shifts that W is made of if every agent sees the same (ring, torus, hypercube, ...),
        otherwise None."""
        return find_shifts(self.weights, self.shape or (self.agents,))

    @property
    def circulant(self) -> Shifts | None:
        """Offsets and weights if every row of W is the first one shifted, otherwise None."""
        if self.shape == (self.agents,):
            return self.shifts
        return find_shifts(self.weights, (self.agents,))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The smallest and largest eigenvalue of W, apart from the 1 of the constant vector."""
        return spectrum_of(self.weights, self.shifts)

    @property
    def rho(self) -> float:
        """||W - 11'/m||_2^2: what one mix leaves of the (squared) disagreement."""
        return max(self.spectrum.low**2, self.spectrum.high**2)

    @property
    def gap(self) -> float:
        """1 - rho."""
        return 1 - self.rho

    @cached_property
    def width(self) -> int:
        """How many exchanges are enough for the news of one agent to reach all others."""
        return width_of(self.weights, self.shifts)

    @property
    def reach(self) -> Reach:
        """What every agent is told about the network before a run."""
        return Reach(self.width, 1 - self.spectrum.high)

    def with_rho(self, rho: float | None) -> Network:
        """The network with W moved towards or away from the identity to have this rho; None keeps
        it."""
        if rho is None:
            return self
        weights = rescale(self.weights, rho, self.shape or (self.agents,))
        return dataclasses.replace(self, weights=weights)

    def made_of(self, exchange: Exchange) -> Mixing:
        return exchange(self, self.weights)

    def single(self, weights: csr_array, kernel: str | None) -> Mixing:
        return choose_mixing(weights, lambda: self.circulant, kernel)

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        rho = f", rho={self.rho:.4g}" if "spectrum" in self.__dict__ else ""
        return f"Network({self.name}, agents={self.agents}, edges={len(self.edges)}{rho})"


def check_plain(
    who: str, network: object, needs: Collection[Need] = PLAIN, remedy: str = ""
) -> None:
    """Reject what a wrapper of a network cannot be around."""
    if not isinstance(network, AnyNetwork):
        raise InputError(f"{who} needs a decibo network, but this is {short(repr(network))}.")
    require(who, needs, network.gives, network, remedy)


def entries(matrix: csr_array, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The entries at these places; for no places at all scipy would return a sparse array."""
    return np.asarray(matrix[rows, columns]) if len(rows) else np.zeros(0)


def dense(matrix: csr_array, name: str, sparse_name: str) -> np.ndarray:
    """The matrix as a dense array, unless that would fill the memory."""
    agents = matrix.shape[0]
    if agents > W_LIMIT:
        raise InputError(
            f"{name} of {agents} agents is too large for a dense array; the limit is {W_LIMIT}"
            " agents.",
            f"Use .{sparse_name}, the sparse matrix.",
        )
    return matrix.toarray()
