"""Networks from what you already have: a networkx graph, an adjacency matrix or a weight matrix."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import InputError
from decibo.network import checks
from decibo.network.graphs import METROPOLIS, from_edges
from decibo.network.network import Network
from decibo.validate import integer

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike
    from scipy.sparse import sparray


def from_graph(
    graph: networkx.Graph,
    W: ArrayLike | sparray | None = None,
    *,
    weights: str = METROPOLIS,
    rho: float | None = None,
) -> Network:
    """The network on a networkx graph; agent i is list(graph.nodes)[i], whatever the nodes are called.

    W, if passed, must be zero where the graph has no link. Self-loops are ignored, since they are implied.
    """
    if graph.is_directed():
        raise InputError(f"The links of a Network go in both directions, but {graph} is directed.", "Use from_digraph.")
    labels = tuple(graph.nodes)
    integer("the number of nodes", len(labels))
    edges = node_pairs(graph, labels)
    name = graph.name or "graph"
    if W is None:
        return from_edges(name, len(labels), edges, weights, rho, labels=labels)
    matrix = checks.square("W", W)
    checks.on_links("W", matrix, np.concatenate([edges, edges[:, ::-1]]), len(labels))
    return Network(matrix, name, labels).with_rho(rho)


def from_adjacency(A: ArrayLike | sparray, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """The network with a link wherever the symmetric matrix A of zeros and ones, dense or sparse, has a one.

    The diagonal is ignored, since self-loops are implied.
    """
    matrix = checks.square("A", A)
    if (matrix.data != 1).any():
        value = matrix.data[matrix.data != 1][0]
        raise InputError(
            f"An adjacency matrix has zeros and ones only, but A has an entry {value:.6g}.",
            "Use from_weights(W) for weights.",
        )
    checks.symmetric("A", matrix)
    coo = matrix.tocoo()
    return from_edges("adjacency", matrix.shape[0], np.stack([coo.row, coo.col], axis=1), weights, rho)


def from_weights(W: ArrayLike | sparray, *, rho: float | None = None) -> Network:
    """The network with these weights: a symmetric, doubly stochastic matrix without negative entries."""
    return Network(checks.square("W", W), "weights").with_rho(rho)


def node_pairs(graph: networkx.Graph, labels: tuple[Hashable, ...]) -> np.ndarray:
    """The links of a networkx graph as rows of agents' numbers."""
    number = {label: i for i, label in enumerate(labels)}
    pairs = [(number[a], number[b]) for a, b in graph.edges()]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
