"""The conditions a network must meet, checked on construction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import InputError, short

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array, sparray

# A weight matrix is rejected if a sum or a pair is off by more; float32 input is, and drifts over many steps.
TOLERANCE = 1e-10


def square(name: str, matrix: ArrayLike | sparray) -> csr_array:
    """The matrix, dense or sparse, as a scipy csr_array of finite float64 numbers."""
    from scipy.sparse import csr_array, issparse

    if not issparse(matrix):
        try:
            matrix = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{name} must be a matrix of numbers, but it is {short(repr(matrix))}.", "Pass a 2-D array."
            ) from error
    shape = tuple(matrix.shape)  # pyright: ignore[reportAttributeAccessIssue]  (of an array or a sparse array)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise InputError(
            f"{name} must be square, with one row and one column for each agent, but its shape is {shape}."
        )
    result = csr_array(matrix, dtype=np.float64, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    if not np.isfinite(result.data).all():
        i, j = _first(result, ~np.isfinite(result.data))
        raise InputError(f"{name} must be finite, but {name}[{i}, {j}] = {result[i, j]}.")
    return result


def nonnegative(name: str, matrix: csr_array) -> None:
    """No weight is negative; a weight of -1e-17 is rounding and becomes 0."""
    if (matrix.data < -TOLERANCE).any():
        i, j = _first(matrix, matrix.data < -TOLERANCE)
        raise InputError(
            f"Weights must not be negative, but {name}[{i}, {j}] = {matrix[i, j]:.6g}.",
            "Use weights='metropolis', or move W towards the identity: I - t (I - W) with a smaller t.",
        )
    if (matrix.data < 0).any():
        np.maximum(matrix.data, 0, out=matrix.data)
        matrix.eliminate_zeros()


def symmetric(name: str, matrix: csr_array) -> None:
    """Both agents of a link give it the same weight."""
    gap = abs(matrix - matrix.T).tocoo()
    if gap.nnz and gap.data.max() > TOLERANCE:
        worst = int(gap.data.argmax())
        i = int(gap.row[worst])
        j = int(gap.col[worst])
        raise InputError(
            f"{name} must be symmetric, since agents of a network exchange both ways, but "
            f"{name}[{i}, {j}] = {matrix[i, j]:.6g} and {name}[{j}, {i}] = {matrix[j, i]:.6g}.",
            "Use (W + W.T)/2 against rounding; for one-way links use from_digraph or from_push_pull.",
        )


def stochastic(name: str, matrix: csr_array, axis: int) -> None:
    """Rows (axis 1) or columns (axis 0) sum to one."""
    sums = np.asarray(matrix.sum(axis=axis)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > TOLERANCE:
        line = "row" if axis == 1 else "column"
        raise InputError(
            f"Every {line} of {name} must sum to 1, to {TOLERANCE:g}, but {line} {worst} of {name} sums to "
            f"{sums[worst]:.12g}.",
            f"Set {name}[i, i] to 1 minus the other weights of its {line}, in float64.",
        )


def connected(name: str, matrix: csr_array) -> None:
    """Every agent reaches every other (along the arrows if the matrix is not symmetric)."""
    from scipy.sparse.csgraph import connected_components

    number, member = connected_components(matrix, directed=True, connection="strong")
    if number > 1:
        sizes = np.bincount(member)
        smallest = np.flatnonzero(member == sizes.argmin())
        raise InputError(
            f"Every agent must be reachable from every other, but {name} has {number} components; the smallest has "
            f"{_listed(smallest)}.",
            "Add links between the components, or use the largest component alone.",
        )


def aperiodic(name: str, matrix: csr_array) -> None:
    """Mixing settles: not all self-weights are zero, or else some cycle has odd length."""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    if matrix.shape[0] == 1 or matrix.diagonal().any():
        return
    # A connected graph is bipartite exactly if its double cover falls into two parts.
    double = block_array([[None, matrix], [matrix.T, None]], format="csr")
    if connected_components(double, directed=False)[0] > 1:
        raise InputError(
            f"rho must be below 1, but {name} has no self-weight and its links form a bipartite graph, so that rho is "
            "1: the two halves would oscillate and never reach consensus.",
            "Use (I + W)/2, or weights='metropolis'.",
        )


def on_links(name: str, matrix: csr_array, links: np.ndarray, agents: int) -> None:
    """The matrix has one row for each agent, and no weight at (i, j) where `links` has no row (i, j)."""
    if matrix.shape[0] != agents:
        raise InputError(
            f"{name} must have one row for each of the {agents} nodes of the graph, but it has {matrix.shape[0]}.",
            "Order its rows as list(graph.nodes).",
        )
    coo = matrix.tocoo()
    foreign = (coo.row != coo.col) & ~np.isin(coo.row.astype(np.int64) * agents + coo.col, links @ [agents, 1])
    if foreign.any():
        i = int(coo.row[foreign][0])
        j = int(coo.col[foreign][0])
        raise InputError(
            f"{name}[{i}, {j}] = {matrix[i, j]:.6g}, but the graph has no link between agents {i} and {j}, and agents "
            "exchange with their neighbours only.",
            "Set the weight to zero, or add the link to the graph.",
        )


def _first(matrix: csr_array, where: np.ndarray) -> tuple[int, int]:
    """Row and column of the first stored entry for which `where` holds."""
    entry = int(np.flatnonzero(where)[0])
    return int(np.searchsorted(matrix.indptr, entry, side="right")) - 1, int(matrix.indices[entry])


def _listed(agents: np.ndarray) -> str:
    listed = ", ".join(str(int(agent)) for agent in agents[:10])
    more = f", ... ({len(agents)} in all)" if len(agents) > 10 else ""
    return f"agent{'s' if len(agents) > 1 else ''} {listed}{more}"
