"""What a network must fulfil, checked when it is made."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from decibo.errors import InputError

# A weight matrix is refused if a sum or a pair is off by more; float32 input is, and drifts over many steps.
TOLERANCE = 1e-10


def count(name: str, value: Any, least: int = 1) -> int:
    """The value as a whole number that is at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise InputError(f"{name} = {value!r}", f"{name} must be a whole number, at least {least}", "Change it.")
    return number


def square(name: str, matrix: Any) -> Any:
    """The matrix, dense or sparse, as a scipy csr_array of finite float64 numbers."""
    from scipy.sparse import csr_array, issparse

    if not issparse(matrix):
        try:
            matrix = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{name} = {matrix!r:.60}", f"{name} must be a matrix of numbers", "Give a 2-D array."
            ) from error
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1:
        raise InputError(
            f"{name} has shape {tuple(matrix.shape)}",
            f"{name} must be square, one row and one column for each agent",
            "Give an (m, m) array with m >= 1.",
        )
    result = csr_array(matrix, dtype=np.float64, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    if not np.isfinite(result.data).all():
        i, j = _first(result, ~np.isfinite(result.data))
        raise InputError(f"{name}[{i}, {j}] = {result[i, j]}", f"{name} must be finite", "Mend this entry.")
    return result


def nonnegative(name: str, matrix: Any) -> None:
    """No weight is negative; a weight of -1e-17 is rounding and becomes 0."""
    if (matrix.data < -TOLERANCE).any():
        i, j = _first(matrix, matrix.data < -TOLERANCE)
        raise InputError(
            f"{name}[{i}, {j}] = {matrix[i, j]:.6g}",
            "weights must not be negative",
            "Use weights='metropolis', or move W towards the identity: I - t (I - W) with a smaller t.",
        )
    if (matrix.data < 0).any():
        np.maximum(matrix.data, 0, out=matrix.data)
        matrix.eliminate_zeros()


def symmetric(name: str, matrix: Any) -> None:
    """Both agents of a link give it the same weight."""
    gap = abs(matrix - matrix.T).tocoo()
    if gap.nnz and gap.data.max() > TOLERANCE:
        worst = int(gap.data.argmax())
        i, j = int(gap.row[worst]), int(gap.col[worst])
        raise InputError(
            f"{name}[{i}, {j}] = {matrix[i, j]:.6g} but {name}[{j}, {i}] = {matrix[j, i]:.6g}",
            f"{name} must be symmetric: agents of a network exchange both ways",
            "Use (W + W.T)/2 against rounding; for one-way links use from_digraph or from_push_pull.",
        )


def stochastic(name: str, matrix: Any, axis: int) -> None:
    """Rows (axis 1) or columns (axis 0) sum to one."""
    sums = np.asarray(matrix.sum(axis=axis)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > TOLERANCE:
        line = "row" if axis == 1 else "column"
        raise InputError(
            f"{line} {worst} of {name} sums to {sums[worst]:.12g}",
            f"every {line} of {name} must sum to 1, to {TOLERANCE:g}",
            f"Set {name}[i, i] to 1 minus the other weights of its {line}, in float64.",
        )


def connected(name: str, matrix: Any) -> None:
    """Every agent reaches every other (along the arrows if the matrix is not symmetric)."""
    from scipy.sparse.csgraph import connected_components

    number, member = connected_components(matrix, directed=True, connection="strong")
    if number > 1:
        sizes = np.bincount(member)
        smallest = np.flatnonzero(member == sizes.argmin())
        raise InputError(
            f"{name} has {number} components; the smallest holds {_few(smallest, 'agent')}",
            "every agent must be reachable from every other",
            "Add links between the components, or use the largest component alone.",
        )


def aperiodic(name: str, matrix: Any) -> None:
    """Mixing settles: not all self weights are zero, or else some cycle has odd length."""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    if matrix.shape[0] == 1 or matrix.diagonal().any():
        return
    # A connected graph is bipartite exactly if its double cover falls into two parts.
    double = block_array([[None, matrix], [matrix.T, None]], format="csr")
    if connected_components(double, directed=False)[0] > 1:
        raise InputError(
            f"{name} has no self weight and its links form a bipartite graph",
            "rho must be below 1, and here it is 1: two halves would swap for ever and never agree",
            "Use (I + W)/2, or weights='metropolis'.",
        )


def _first(matrix: Any, where: np.ndarray) -> tuple[int, int]:
    """Row and column of the first stored entry for which `where` holds."""
    entry = int(np.flatnonzero(where)[0])
    return int(np.searchsorted(matrix.indptr, entry, side="right")) - 1, int(matrix.indices[entry])


def _few(agents: np.ndarray, noun: str) -> str:
    listed = ", ".join(str(int(agent)) for agent in agents[:10])
    more = f", ... ({len(agents)} in all)" if len(agents) > 10 else ""
    return f"{noun}{'s' if len(agents) > 1 else ''} {listed}{more}"
