r"""Directed networks for push-pull methods: a link j -> i means that i hears j, and not the reverse.

pull   A, rows sum to one:      a receiver averages what it hears, and agents come to agree
push   B, columns sum to one:   a sender splits what it says, and the sum over agents is kept
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from decibo.errors import InputError
from decibo.network import checks
from decibo.network.constructors import lacking, node_pairs
from decibo.network.kernels import choose_mixing
from decibo.network.mixing import Mixing
from decibo.network.network import dense, entries
from decibo.network.shifts import find_shifts
from decibo.validate import integer

if TYPE_CHECKING:
    import networkx


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PushPull(Mixing):
    """Two mixings: one for what is pulled, one for what is pushed."""

    pull: Mixing
    push: Mixing

    @property
    def whole(self) -> bool:
        """As its parts."""
        return self.pull.whole

    def stacked(self, S: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """A S."""
        return self.pull.stacked(S, k, key)

    def pushed(self, S: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """B S."""
        return self.push.stacked(S, k, key)


@dataclass(frozen=True, eq=False, repr=False)
class DirectedNetwork:
    """Agents 0..m-1 on a strongly connected digraph, a matrix to pull and one to push; checked when made."""

    pull: Any
    push: Any
    name: str = "directed network"
    labels: tuple[Any, ...] | None = None
    directed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field, name, axis in (("pull", "A", 1), ("push", "B", 0)):
            matrix = checks.square(name, getattr(self, field))
            checks.nonnegative(name, matrix)
            checks.stochastic(name, matrix, axis)
            _hears_itself(name, matrix)
            checks.connected(f"{self.name} ({name})", matrix)
            object.__setattr__(self, field, matrix)
        if self.pull.shape != self.push.shape:
            raise InputError(
                f"A is {self.pull.shape}, B is {self.push.shape}",
                "both matrices must have one row for each agent",
                "Make them from the same graph.",
            )

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.pull.shape[0]

    @property
    def A(self) -> np.ndarray:
        """The weights of receivers as a dense array."""
        return dense(self.pull, "A", "pull")

    @property
    def B(self) -> np.ndarray:
        """The weights of senders as a dense array."""
        return dense(self.push, "B", "push")

    @cached_property
    def edges(self) -> np.ndarray:
        """The links j -> i, pulled or pushed, as rows (j, i); what an agent tells itself is no link."""
        links = (self.pull + self.push).tocoo()
        other = links.row != links.col
        return np.stack([links.col[other], links.row[other]], axis=1).astype(np.int64)

    @cached_property
    def degrees(self) -> np.ndarray:
        """How many agents each agent hears."""
        return np.bincount(self.edges[:, 1], minlength=self.agents)

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """A networkx digraph with `pull` and `push` as attributes of the links."""
        import networkx

        graph = networkx.DiGraph(name=self.name)
        graph.add_nodes_from(range(self.agents))
        sender, receiver = self.edges.T
        pull, push = entries(self.pull, receiver, sender), entries(self.push, receiver, sender)
        for j, i, a, b in zip(sender, receiver, pull, push, strict=True):
            graph.add_edge(int(j), int(i), pull=float(a), push=float(b))
        return graph

    def mixing(self, kind: str | None = None) -> PushPull:
        """How S -> A S and S -> B S are computed; kinds as in Network.mixing."""
        shape = (self.agents,)
        return PushPull(
            choose_mixing(self.pull, lambda: find_shifts(self.pull, shape), kind),
            choose_mixing(self.push, lambda: find_shifts(self.push, shape), kind),
        )

    def __repr__(self) -> str:
        return f"DirectedNetwork({self.name}, m={self.agents}, edges={len(self.edges)})"


def directed_ring(m: int) -> DirectedNetwork:
    """Every agent hears the one before it."""
    m = integer("m", m)
    return _from_links("directed_ring", m, _ahead(m, [1]))


def directed_exponential(m: int) -> DirectedNetwork:
    """Agent i is heard by i + 1, i + 2, i + 4, ... (mod m)."""
    m = integer("m", m)
    return _from_links("directed_exponential", m, _ahead(m, [2**j for j in range((m - 1).bit_length())]))


def from_digraph(graph: networkx.DiGraph, A: Any = None, B: Any = None) -> DirectedNetwork:
    """The network on a networkx digraph; an arrow j -> i lets i hear j, and agent i is list(graph.nodes)[i].

    Agents share equally unless A or B is given: a_ij = 1/(1 + arrows into i), b_ij = 1/(1 + arrows out of j).
    """
    if not graph.is_directed():
        raise InputError(f"{graph}", "its links have no direction", "Use from_graph, or graph.to_directed().")
    labels = tuple(graph.nodes)
    m = integer("the number of nodes", len(labels))
    links = node_pairs(graph, labels)
    pull, push = _equal_shares(m, links)
    for name, matrix in (("A", A), ("B", B)):
        if matrix is not None:
            lacking(name, checks.square(name, matrix), links[:, ::-1], m)
    return DirectedNetwork(pull if A is None else A, push if B is None else B, graph.name or "digraph", labels)


def from_push_pull(A: Any, B: Any) -> DirectedNetwork:
    """The network with these weights: rows of A sum to one, columns of B sum to one."""
    return DirectedNetwork(A, B, "weights")


def _from_links(name: str, m: int, links: np.ndarray) -> DirectedNetwork:
    return DirectedNetwork(*_equal_shares(m, links), name)


def _equal_shares(m: int, links: np.ndarray) -> tuple[Any, Any]:
    """A and B in which every agent divides equally, from links (j, i); self-loops and repeats are dropped."""
    from scipy.sparse import csr_array, diags_array, eye_array

    links = links[links[:, 0] != links[:, 1]]
    hears = csr_array((np.ones(len(links)), (links[:, 1], links[:, 0])), shape=(m, m))
    hears.sum_duplicates()
    hears.data[:] = 1
    hears = (hears + eye_array(m)).tocsr()
    return diags_array(1 / hears.sum(axis=1)) @ hears, hears @ diags_array(1 / hears.sum(axis=0))


def _ahead(m: int, offsets: list[int]) -> np.ndarray:
    agents = np.arange(m)
    links = [np.stack([agents, (agents + offset) % m], axis=1) for offset in offsets]
    return np.concatenate([np.zeros((0, 2), int), *links])


def _hears_itself(name: str, matrix: Any) -> None:
    alone = np.flatnonzero(matrix.diagonal() <= 0)
    if len(alone):
        raise InputError(
            f"{name}[{alone[0]}, {alone[0]}] = 0",
            f"the diagonal of {name} must be positive, or agents may swap for ever and never agree",
            "Give every agent a weight for itself.",
        )
