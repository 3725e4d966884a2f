"""Networks from what you already have: a networkx graph, an adjacency matrix or a weight matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from decibo.errors import InputError
from decibo.network import checks
from decibo.network.graphs import METROPOLIS, from_edges
from decibo.network.network import Network
from decibo.validate import integer

if TYPE_CHECKING:
    import networkx


def from_graph(graph: networkx.Graph, W: Any = None, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """The network on a networkx graph; agent i is list(graph.nodes)[i], whatever the nodes are called.

    W, if given, must be zero where the graph has no link. Self-loops are ignored: all hear themselves anyway.
    """
    if graph.is_directed():
        raise InputError(f"{graph}", "a Network has links of both directions", "Use from_digraph.")
    labels = tuple(graph.nodes)
    integer("the number of nodes", len(labels))
    edges = node_pairs(graph, labels)
    name = graph.name or "graph"
    if W is None:
        return from_edges(name, len(labels), edges, weights, rho, labels=labels)
    matrix = checks.square("W", W)
    lacking("W", matrix, np.concatenate([edges, edges[:, ::-1]]), len(labels))
    return Network(matrix, name, labels).with_rho(rho)


def from_adjacency(A: Any, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """The network with a link wherever the symmetric matrix A of zeros and ones, dense or sparse, has a one.

    The diagonal is ignored: everybody hears itself anyway.
    """
    matrix = checks.square("A", A)
    if (matrix.data != 1).any():
        value = matrix.data[matrix.data != 1][0]
        raise InputError(
            f"A holds {value:.6g}",
            "an adjacency matrix holds zeros and ones",
            "Use from_weights(W) for weights.",
        )
    checks.symmetric("A", matrix)
    coo = matrix.tocoo()
    return from_edges("adjacency", matrix.shape[0], np.stack([coo.row, coo.col], axis=1), weights, rho)


def from_weights(W: Any, *, rho: float | None = None) -> Network:
    """The network with these weights: a symmetric, doubly stochastic matrix without negative entries."""
    return Network(W, "weights").with_rho(rho)


def node_pairs(graph: Any, labels: tuple[Any, ...]) -> np.ndarray:
    """The links of a networkx graph as rows of agents' numbers."""
    number = {label: i for i, label in enumerate(labels)}
    pairs = [(number[a], number[b]) for a, b in graph.edges()]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def lacking(name: str, matrix: Any, links: np.ndarray, m: int) -> None:
    """Refuse a matrix of the wrong size, or with a weight at (i, j) where `links` has no row (i, j)."""
    if matrix.shape[0] != m:
        raise InputError(
            f"{name} is {matrix.shape[0]} x {matrix.shape[0]}, the graph has {m} nodes",
            f"{name} must have one row for each node",
            "Order its rows as list(graph.nodes).",
        )
    coo = matrix.tocoo()
    foreign = (coo.row != coo.col) & ~np.isin(coo.row.astype(np.int64) * m + coo.col, links @ [m, 1])
    if foreign.any():
        i, j = int(coo.row[foreign][0]), int(coo.col[foreign][0])
        raise InputError(
            f"{name}[{i}, {j}] = {matrix[i, j]:.6g}, but the graph has no link between agents {i} and {j}",
            "agents hear only their neighbours",
            "Set the weight to zero, or add the link to the graph.",
        )
