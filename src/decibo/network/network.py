"""A network: agents, their links and the weights W with which they listen to each other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from decibo.errors import InputError
from decibo.network import checks
from decibo.network.kernels import choose_mixing
from decibo.network.mixing import Mixing
from decibo.network.shifts import Shifts, find_shifts
from decibo.network.spectrum import DENSE_LIMIT, Ends, ends
from decibo.network.weights import rescale

if TYPE_CHECKING:
    import networkx

# A dense W of more agents would take over 3 GB.
W_LIMIT = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Agents 0..m-1 and a symmetric, doubly stochastic matrix of weights; checked when made.

    weights   scipy csr_array (any square matrix is taken): weights[i, j] is what i gives to j's message
    labels    what the agents were called in the graph they came from; agent i is labels[i]
    shape     the shape in which agents stand, such as (rows, columns) of a torus; (m,) unless given
    """

    weights: Any
    name: str = "network"
    labels: tuple[Any, ...] | None = None
    shape: tuple[int, ...] | None = None
    directed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        weights = checks.square("W", self.weights)
        checks.nonnegative("W", weights)
        checks.symmetric("W", weights)
        checks.stochastic("W", weights, axis=1)
        checks.connected(self.name, weights)
        checks.aperiodic("W", weights)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "shape", self.shape or (weights.shape[0],))

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.weights.shape[0]

    @property
    def W(self) -> np.ndarray:
        """The weights as a dense array."""
        return dense(self.weights, "W", "weights")

    @cached_property
    def edges(self) -> np.ndarray:
        """The links as rows (i, j) with i < j; what an agent gives itself is no link."""
        from scipy.sparse import triu

        upper = triu(self.weights, k=1).tocoo()
        return np.stack([upper.row, upper.col], axis=1).astype(np.int64)

    @cached_property
    def degrees(self) -> np.ndarray:
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
        """What W is made of if every agent sees the same (ring, torus, hypercube, ...), otherwise None."""
        return find_shifts(self.weights, self.shape or (self.agents,))

    @property
    def circulant(self) -> Shifts | None:
        """Offsets and weights if every row of W is the first one shifted, otherwise None."""
        if self.shape == (self.agents,):
            return self.shifts
        return find_shifts(self.weights, (self.agents,))

    @cached_property
    def ends(self) -> Ends:
        """The smallest and largest eigenvalue of W, apart from the 1 of the constant vector."""
        return ends(self.weights, self.shifts)

    @property
    def rho(self) -> float:
        """||W - 11'/m||_2^2: what one mix leaves of the (squared) disagreement."""
        return self.ends.rho

    @property
    def gap(self) -> float:
        """1 - rho."""
        return 1 - self.rho

    def with_rho(self, rho: float | None) -> Network:
        """The network with W moved towards or away from the identity to have this rho; None keeps it."""
        if rho is None:
            return self
        weights = rescale(self.weights, rho, self.shape or (self.agents,))
        return dataclasses.replace(self, weights=weights)

    def mixing(self, kind: str | None = None) -> Mixing:
        """How S -> W S is computed: "dense", "circulant", "sparse" or, by default, what is fastest."""
        return choose_mixing(self.weights, lambda: self.circulant, kind)

    def __repr__(self) -> str:
        known = "ends" in self.__dict__ or self.agents <= DENSE_LIMIT // 4
        rho = f", rho={self.rho:.4g}" if known else ""
        return f"Network({self.name}, m={self.agents}, edges={len(self.edges)}{rho})"


def entries(matrix: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The entries at these places; scipy answers no places with a sparse array."""
    return np.asarray(matrix[rows, columns]) if len(rows) else np.zeros(0)


def dense(matrix: Any, name: str, sparse_name: str) -> np.ndarray:
    """The matrix as a dense array, unless that would fill the memory."""
    m = matrix.shape[0]
    if m > W_LIMIT:
        raise InputError(
            f"{name} of {m} agents",
            f"a dense {name} is made for at most {W_LIMIT} agents",
            f"Use .{sparse_name}, the sparse matrix.",
        )
    return matrix.toarray()
