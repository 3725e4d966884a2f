r"""Weights on the links of a graph, and the conditions that every matrix of weights must meet.

    metropolis        w_ij = 1/(1 + max(d_i, d_j))        needs nothing but the neighbours' degrees
    lazy_metropolis   half of that: (I + W)/2             no negative eigenvalue
    max_degree        w_ij = 1/(1 + d_max)
    best_constant     w_ij = 2/(l_2 + l_max)              least rho of all constant weights [Xiao & Boyd 2004]

with l_2 and l_max the extreme eigenvalues of the Laplacian; best_constant is capped at 1/d_max so that no
self-weight is negative. Self-weights w_ii = 1 - sum_j w_ij make rows and columns sum to one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import InputError, short
from decibo.network.spectrum import find_shifts, spectrum_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array, sparray


Shape = tuple[int, ...]


def weigh(agents: int, edges: np.ndarray, rule: str, shape: Shape) -> csr_array:
    """The weight matrix that a rule gives to the links (i, j), i < j."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InputError(
            f"weights must be one of {', '.join(RULES)}, but it is {short(repr(rule))}.",
            "A matrix goes to from_weights(W).",
        )
    degrees = np.bincount(edges.ravel(), minlength=agents)
    return _assemble(agents, edges, RULES[rule](agents, edges, degrees, shape))


def _assemble(agents: int, edges: np.ndarray, values: np.ndarray | float) -> csr_array:
    """W from the weights of the links; the self-weights are what is left of 1."""
    from scipy.sparse import csr_array

    i, j = edges.T
    values = np.broadcast_to(np.asarray(values, dtype=np.float64), len(edges))
    own = 1 - np.bincount(i, values, minlength=agents) - np.bincount(j, values, minlength=agents)
    diagonal = np.arange(agents)
    rows = np.concatenate([i, j, diagonal])
    columns = np.concatenate([j, i, diagonal])
    return csr_array((np.concatenate([values, values, own]), (rows, columns)), shape=(agents, agents))


def _metropolis(agents: int, edges: np.ndarray, degrees: np.ndarray, shape: Shape) -> np.ndarray:
    return 1 / (1 + degrees[edges].max(axis=1, initial=0))


def _lazy_metropolis(agents: int, edges: np.ndarray, degrees: np.ndarray, shape: Shape) -> np.ndarray:
    return _metropolis(agents, edges, degrees, shape) / 2


def _max_degree(agents: int, edges: np.ndarray, degrees: np.ndarray, shape: Shape) -> float:
    return 1 / (1 + degrees.max())


def _best_constant(agents: int, edges: np.ndarray, degrees: np.ndarray, shape: Shape) -> float:
    if agents == 1:
        return 1.0
    # The Laplacian is (1 + d_max)(I - W) with W of max_degree: no other eigenvalue code is needed.
    W = _assemble(agents, edges, _max_degree(agents, edges, degrees, shape))
    low, high = spectrum_of(W, find_shifts(W, shape))
    laplacian_sum = (1 + degrees.max()) * (2 - low - high)
    return min(2 / laplacian_sum, 1 / degrees.max())


RULES: dict[str, Callable[[int, np.ndarray, np.ndarray, Shape], np.ndarray | float]] = {
    "metropolis": _metropolis,
    "lazy_metropolis": _lazy_metropolis,
    "max_degree": _max_degree,
    "best_constant": _best_constant,
}


def rescale(weights: csr_array, target: float, shape: Shape) -> csr_array:
    r"""W_t = I - t (I - W) with rho(W_t) = target.

    The eigenvalues become 1 - t (1 - l), so sqrt(rho) falls as 1 - t a, a = 1 - high, until the lower end
    takes over at t = 2/(a + b), b = 1 - low, or a self-weight reaches zero.
    """
    from scipy.sparse import eye_array

    low, high = spectrum_of(weights, find_shifts(weights, shape))
    a = 1 - high
    b = 1 - low
    own = weights.diagonal().min()
    longest = min(2 / (a + b), 1 / (1 - own)) if own < 1 else 0.0
    least = (1 - longest * a) ** 2 if longest else 0.0
    _reachable(target, least, lonely=own == 1)
    t = 1.0 if own == 1 else min((1 - math.sqrt(target)) / a, longest)
    scaled = (t * weights + (1 - t) * eye_array(weights.shape[0])).tocsr()
    scaled.data[np.abs(scaled.data) < 1e-15] = 0  # a self-weight that reaches zero, to rounding
    return scaled


def _reachable(target: float, least: float, lonely: bool) -> None:
    slack = 1e-9
    if not isinstance(target, Real) or not 0 <= target < 1:
        raise InputError(
            f"rho must be a number in [0, 1), but it is {short(repr(target))}.",
            "rho = ||W - 11'/m||^2; leave it out to keep the rule's own.",
        )
    if lonely and target > 0:
        raise InputError(f"rho must be 0 for a single agent, but it is {target:g}.", "Leave rho out.")
    if target < least - slack:
        raise InputError(
            f"rho = {target:g} cannot be reached: this graph with these weights reaches rho in [{least:.6g}, 1).",
            "Choose rho in that interval, other weights (best_constant reaches lowest on regular graphs) "
            "or a denser graph.",
        )


# A weight matrix is rejected if a sum or a pair is off by more; float32 input is, and drifts over many steps.
TOLERANCE = 1e-10


def check_square(name: str, matrix: ArrayLike | sparray) -> csr_array:
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


def check_nonnegative(name: str, matrix: csr_array) -> None:
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


def check_symmetric(name: str, matrix: csr_array) -> None:
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


def check_stochastic(name: str, matrix: csr_array, axis: int) -> None:
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


def check_connected(name: str, matrix: csr_array) -> None:
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


def check_aperiodic(name: str, matrix: csr_array) -> None:
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


def check_on_links(name: str, matrix: csr_array, links: np.ndarray, agents: int) -> None:
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
