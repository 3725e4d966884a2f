r"""Directed networks for push-pull methods: along a link j -> i agent i receives from j, and not
the reverse.

pull   A, rows sum to one:      a receiver averages what it receives, and agents reach consensus
push   B, columns sum to one:   a sender divides what it sends, and the sum over agents is kept
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import jax
import numpy as np

from decibo.capabilities import Need, Needs
from decibo.errors import InputError
from decibo.formatting import in_notebook
from decibo.network.graphs import check_graph, node_pairs, powers_of_two, shifted
from decibo.network.mixing import How, Mixing, Step
from decibo.network.network import AnyNetwork, Exchange, dense, entries
from decibo.network.weights import (
    check_connected,
    check_nonnegative,
    check_on_links,
    check_square,
    check_stochastic,
)
from decibo.validate import integer

if TYPE_CHECKING:
    from collections.abc import Hashable

    import networkx
    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array, sparray


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PushPull(Mixing):
    """Two mixings: one for what is pulled, one for what is pushed."""

    pull: Mixing
    push: Mixing

    @property
    def fused(self) -> bool:
        """As its parts."""
        return self.pull.fused

    def exchange(
        self, S: jax.Array, how: How, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """B S for a push, otherwise as A has it."""
        return (self.push if how is How.PUSH else self.pull).exchange(S, how, k, key)


@dataclass(frozen=True, eq=False, repr=False)
class DirectedNetwork(AnyNetwork):
    """Agents 0, 1, ... on a strongly connected digraph, a matrix to pull and one to push; checked
    on construction."""

    pull: csr_array
    push: csr_array
    name: str = "directed network"
    labels: tuple[Hashable, ...] | None = None
    directed: ClassVar[bool] = True
    lacks: ClassVar[Needs] = frozenset({Need.SYMMETRIC_WEIGHTS, Need.NETWORK_CONSTANTS})

    def __post_init__(self) -> None:
        for field, name, axis in (("pull", "A", 1), ("push", "B", 0)):
            matrix = check_square(name, getattr(self, field))
            check_nonnegative(name, matrix)
            check_stochastic(name, matrix, axis)
            _self_weights(name, matrix)
            check_connected(f"{self.name} ({name})", matrix)
            object.__setattr__(self, field, matrix)
        object.__setattr__(self, "agents", self.pull.shape[0])
        if self.pull.shape != self.push.shape:
            raise InputError(
                f"A and B must both have one row for each agent, but A is {self.pull.shape} and B"
                f" is {self.push.shape}."
            )

    @property
    def weights(self) -> csr_array:
        """Those of receivers, as of an undirected network."""
        return self.pull

    @property
    def A(self) -> Float[np.ndarray, "agents agents"]:
        """The weights of receivers as a dense array."""
        return dense(self.pull, "A", "pull")

    @property
    def B(self) -> Float[np.ndarray, "agents agents"]:
        """The weights of senders as a dense array."""
        return dense(self.push, "B", "push")

    @cached_property
    def edges(self) -> Int[np.ndarray, "edges 2"]:
        """The links j -> i, pulled or pushed, as rows (j, i); self-weights are not links."""
        links = (self.pull + self.push).tocoo()
        other = links.row != links.col
        return np.stack([links.col[other], links.row[other]], axis=1).astype(np.int64)

    @cached_property
    def degrees(self) -> Int[np.ndarray, " agents"]:
        """How many agents each agent receives from."""
        return np.bincount(self.edges[:, 1], minlength=self.agents)

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """A networkx digraph with `pull` and `push` as attributes of the links."""
        import networkx

        graph = networkx.DiGraph(name=self.name)
        graph.add_nodes_from(range(self.agents))
        sender, receiver = self.edges.T
        pull = entries(self.pull, receiver, sender)
        push = entries(self.push, receiver, sender)
        for j, i, a, b in zip(sender, receiver, pull, push, strict=True):
            graph.add_edge(int(j), int(i), pull=float(a), push=float(b))
        return graph

    def made_of(self, exchange: Exchange) -> PushPull:
        """How S -> A S and S -> B S are computed."""
        return PushPull(exchange(self, self.pull), exchange(self, self.push))

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        return f"DirectedNetwork({self.name}, agents={self.agents}, edges={len(self.edges)})"


def directed_ring(agents: int) -> DirectedNetwork:
    """Every agent receives from the one before it."""
    agents = integer("agents", agents)
    return DirectedNetwork(*_equal_shares(agents, shifted(agents, [1])), "directed_ring")


def directed_exponential(agents: int) -> DirectedNetwork:
    """Agent i sends to i + 1, i + 2, i + 4, ... (mod agents)."""
    agents = integer("agents", agents)
    return DirectedNetwork(
        *_equal_shares(agents, shifted(agents, powers_of_two(agents))), "directed_exponential"
    )


def from_digraph(
    graph: networkx.DiGraph,
    A: ArrayLike | sparray | None = None,
    B: ArrayLike | sparray | None = None,
) -> DirectedNetwork:
    """The network on a networkx digraph; an arrow j -> i lets i receive from j, and agent i is
    list(graph.nodes)[i].

    Agents share equally unless A or B is passed: a_ij = 1/(1 + arrows into i), b_ij = 1/(1 + arrows
    out of j).
    """
    check_graph(graph)
    if not graph.is_directed():
        raise InputError(
            f"A DirectedNetwork needs a directed graph, but the links of {graph} have no"
            " direction.",
            "Use from_graph, or graph.to_directed().",
        )
    labels = tuple(graph.nodes)
    agents = integer("the number of nodes", len(labels))
    links = node_pairs(graph, labels)
    pull, push = _equal_shares(agents, links)
    if A is not None:
        pull = check_on_links("A", A, links[:, ::-1], agents)
    if B is not None:
        push = check_on_links("B", B, links[:, ::-1], agents)
    return DirectedNetwork(pull, push, graph.name or "digraph", labels)


def from_push_pull(A: ArrayLike | sparray, B: ArrayLike | sparray) -> DirectedNetwork:
    """The network with these weights: rows of A sum to one, columns of B sum to one."""
    return DirectedNetwork(check_square("A", A), check_square("B", B), "weights")


def _equal_shares(agents: int, links: np.ndarray) -> tuple[csr_array, csr_array]:
    """A and B in which every agent divides equally, from links (j, i); self-loops and repeats are
    dropped."""
    from scipy.sparse import csr_array, diags_array, eye_array

    links = links[links[:, 0] != links[:, 1]]
    receives = csr_array((np.ones(len(links)), (links[:, 1], links[:, 0])), shape=(agents, agents))
    receives.sum_duplicates()
    receives.data[:] = 1
    receives = (receives + eye_array(agents)).tocsr()
    return diags_array(1 / receives.sum(axis=1)) @ receives, receives @ diags_array(
        1 / receives.sum(axis=0)
    )


def _self_weights(name: str, matrix: csr_array) -> None:
    lacking = np.flatnonzero(matrix.diagonal() <= 0)
    if len(lacking):
        raise InputError(
            f"The diagonal of {name} must be positive, but {name}[{lacking[0]}, {lacking[0]}] = 0:"
            " agents could swap their values for ever and never agree.",
            "Give every agent a weight for itself.",
        )
