r"""Weights on the links of a graph: rules for them, the conditions they must meet, and how fast
they mix.

    metropolis        w_ij = 1/(1 + max(d_i, d_j))        needs nothing but the neighbours' degrees
    lazy_metropolis   half of that: (I + W)/2             no negative eigenvalue
    max_degree        w_ij = 1/(1 + d_max)
    best_constant     w_ij = 2/(l_2 + l_max)              least rho of all constant weights [Xiao &
                                                          Boyd 2004]

with l_2 and l_max the extreme eigenvalues of the Laplacian; best_constant is capped at 1/d_max so
that no self-weight is negative. Self-weights w_ii = 1 - sum_j w_ij make rows and columns sum to
one.

    rho = ||W - 11'/m||_2^2 = max(low^2, high^2)     what one mix leaves of the squared disagreement

low and high are the smallest and the largest eigenvalue of W, the 1 of the constant vector left
out. Networks on which every agent sees the same (ring, torus, hypercube, ...) are made of shifts,
and a Fourier transform gives their eigenvalues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from decibo.errors import InputError, short

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array, sparray


Shape = tuple[int, ...]


RULES = ("metropolis", "lazy_metropolis", "max_degree", "best_constant")


def weigh(agents: int, edges: np.ndarray, rule: str, shape: Shape) -> csr_array:
    """The weight matrix that a rule gives to the links (i, j), i < j."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InputError(
            f"weights must be one of {', '.join(RULES)}, but it is {short(repr(rule))}.",
            "A matrix goes to from_weights(W).",
        )
    degrees = np.bincount(edges.ravel(), minlength=agents)
    most = degrees.max()
    metropolis = 1 / (1 + degrees[edges].max(axis=1, initial=0))
    if rule == "metropolis":
        return _assemble(agents, edges, metropolis)
    if rule == "lazy_metropolis":
        return _assemble(agents, edges, metropolis / 2)
    W = _assemble(agents, edges, 1 / (1 + most))
    if rule == "max_degree" or agents == 1:
        return W
    # The Laplacian is (1 + d_max)(I - W) with W of max_degree: no other eigenvalue code is needed.
    low, high = spectrum_of(W, find_shifts(W, shape))
    return _assemble(agents, edges, min(2 / ((1 + most) * (2 - low - high)), 1 / most))


def _assemble(agents: int, edges: np.ndarray, values: np.ndarray | float) -> csr_array:
    """W from the weights of the links; the self-weights are what is left of 1."""
    from scipy.sparse import csr_array

    i, j = edges.T
    values = np.broadcast_to(np.asarray(values, dtype=np.float64), len(edges))
    own = 1 - np.bincount(i, values, minlength=agents) - np.bincount(j, values, minlength=agents)
    diagonal = np.arange(agents)
    rows = np.concatenate([i, j, diagonal])
    columns = np.concatenate([j, i, diagonal])
    return csr_array(
        (np.concatenate([values, values, own]), (rows, columns)), shape=(agents, agents)
    )


def rescale(weights: csr_array, target: float, shape: Shape) -> csr_array:
    r"""W_t = I - t (I - W) with rho(W_t) = target.

    The eigenvalues become 1 - t (1 - l), so sqrt(rho) falls as 1 - t a, a = 1 - high, until the
    lower end takes over at t = 2/(a + b), b = 1 - low, or a self-weight reaches zero.
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
        raise InputError(
            f"rho must be 0 for a single agent, but it is {target:g}.", "Leave rho out."
        )
    if target < least - slack:
        raise InputError(
            f"rho = {target:g} cannot be reached: this graph with these weights reaches rho in"
            f" [{least:.6g}, 1).",
            "Choose rho in that interval, other weights (best_constant reaches lowest on regular"
            " graphs) or a denser graph.",
        )


# A weight matrix is rejected if a sum or a pair is off by more; float32 input is, and drifts over
# many steps.
TOLERANCE = 1e-10


def check_square(name: str, matrix: ArrayLike | sparray) -> csr_array:
    """The matrix, dense or sparse, as a scipy csr_array of finite float64 numbers."""
    from scipy.sparse import csr_array, issparse

    if not issparse(matrix):
        try:
            matrix = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{name} must be a matrix of numbers, but it is {short(repr(matrix))}.",
                "Pass a 2-D array.",
            ) from error
    shape = tuple(matrix.shape)  # pyright: ignore[reportAttributeAccessIssue]  (of an array or a sparse array)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise InputError(
            f"{name} must be square, with one row and one column for each agent, but its shape is"
            f" {shape}."
        )
    # A copy, since what follows works in place.
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
            "Use weights='metropolis', or move W towards the identity: I - t (I - W) with a"
            " smaller t.",
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
            f"{name} must be symmetric, since agents of a network exchange both ways, but"
            f" {name}[{i}, {j}] = {matrix[i, j]:.6g} and {name}[{j}, {i}] = {matrix[j, i]:.6g}"
            f" differ by {gap.data[worst]:.2g}.",
            "Use (W + W.T)/2 against rounding; for one-way links use from_digraph or"
            " from_push_pull.",
        )


def check_stochastic(name: str, matrix: csr_array, axis: int) -> None:
    """Rows (axis 1) or columns (axis 0) sum to one."""
    sums = np.asarray(matrix.sum(axis=axis)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > TOLERANCE:
        line = "row" if axis == 1 else "column"
        raise InputError(
            f"Every {line} of {name} must sum to 1, to {TOLERANCE:g}, but {line} {worst} of {name}"
            f" sums to {sums[worst]:.12g}.",
            f"Set {name}[i, i] to 1 minus the other weights of its {line}, in float64.",
        )


def check_doubly_stochastic(name: str, matrix: ArrayLike | sparray) -> csr_array:
    """The matrix, if it is square, symmetric and without negative entries, and its rows (and
    columns) sum to one."""
    result = check_square(name, matrix)
    check_nonnegative(name, result)
    check_symmetric(name, result)
    check_stochastic(name, result, axis=1)
    return result


def check_connected(name: str, matrix: csr_array) -> None:
    """Every agent reaches every other (along the arrows if the matrix is not symmetric)."""
    from scipy.sparse.csgraph import connected_components

    number, member = connected_components(matrix, directed=True, connection="strong")
    if number > 1:
        sizes = np.bincount(member)
        smallest = np.flatnonzero(member == sizes.argmin())
        raise InputError(
            f"Every agent must be reachable from every other, but {name} has {number} components;"
            f" the smallest has {_listed(smallest)}.",
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
            f"rho must be below 1, but {name} has no self-weight and its links form a bipartite"
            " graph, so that rho is 1: the two halves would oscillate and never reach consensus.",
            "Use (I + W)/2, or weights='metropolis'.",
        )


def check_on_links(
    name: str, weights: ArrayLike | sparray, links: np.ndarray, agents: int
) -> csr_array:
    """The matrix, if it has one row for each agent, and no weight at (i, j) where `links` has no
    row (i, j)."""
    matrix = check_square(name, weights)
    if matrix.shape[0] != agents:
        raise InputError(
            f"{name} must have one row for each of the {agents} nodes of the graph, but it has"
            f" {matrix.shape[0]}.",
            "Order its rows as list(graph.nodes).",
        )
    coo = matrix.tocoo()
    foreign = (coo.row != coo.col) & ~np.isin(
        coo.row.astype(np.int64) * agents + coo.col, links @ [agents, 1]
    )
    if foreign.any():
        i = int(coo.row[foreign][0])
        j = int(coo.col[foreign][0])
        raise InputError(
            f"{name}[{i}, {j}] = {matrix[i, j]:.6g}, but the graph has no link between agents {i}"
            f" and {j}, and agents exchange with their neighbours only.",
            "Set the weight to zero, or add the link to the graph.",
        )
    return matrix


def _first(matrix: csr_array, where: np.ndarray) -> tuple[int, int]:
    """Row and column of the first stored entry for which `where` holds."""
    entry = int(np.flatnonzero(where)[0])
    return int(np.searchsorted(matrix.indptr, entry, side="right")) - 1, int(matrix.indices[entry])


def _listed(agents: np.ndarray) -> str:
    listed = ", ".join(str(int(agent)) for agent in agents[:10])
    more = f", ... ({len(agents)} in all)" if len(agents) > 10 else ""
    return f"agent{'s' if len(agents) > 1 else ''} {listed}{more}"


# Up to here all eigenvalues are computed: about a second at the limit.
DENSE_LIMIT = 2000


@dataclass(frozen=True)
class Shifts:
    """Agent a receives from agent a + offset with that weight; on a torus both are points of
    `shape`."""

    shape: tuple[int, ...]
    # as numbers of agents: a point (r, c) of shape (R, C) is agent r C + c
    offsets: tuple[int, ...]
    weights: tuple[float, ...]


def find_shifts(weights: csr_array, shape: tuple[int, ...]) -> Shifts | None:
    """The shifts that W is made of, or None if W is not invariant under the shifts of `shape`."""
    agents = weights.shape[0]
    degree = weights.indptr[1]
    if (np.diff(weights.indptr) != degree).any():
        return None
    offsets = _offsets(weights.indices.reshape(agents, degree).astype(np.int64), shape)
    order = np.argsort(offsets, axis=1)
    offsets = np.take_along_axis(offsets, order, axis=1)
    values = np.take_along_axis(weights.data.reshape(agents, degree), order, axis=1)
    if (offsets != offsets[0]).any() or np.abs(values - values[0]).max() > 1e-14:
        return None
    return Shifts(shape, tuple(offsets[0].tolist()), tuple(values[0].tolist()))


def _offsets(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Where each neighbour is relative to the agent of the row, one dimension of the shape at a
    time."""
    rows = np.arange(len(columns))[:, None]
    offsets = np.zeros_like(columns)
    stride = 1
    for size in reversed(shape):
        offsets += (columns // stride - rows // stride) % size * stride
        stride *= size
    return offsets


class Spectrum(NamedTuple):
    """The smallest and largest eigenvalue of W, the eigenvalue 1 of the constant vector left
    out."""

    low: float
    high: float


def width_of(weights: csr_array, shifts: Shifts | None) -> int:
    """The largest distance between two agents; of many agents that see different things, at most
    twice that."""
    from scipy.sparse.csgraph import shortest_path

    few = weights.shape[0] <= DENSE_LIMIT
    distances = shortest_path(weights, unweighted=True, indices=None if few else [0])
    return max(1, int(distances.max())) * (1 if few or shifts is not None else 2)


def spectrum_of(weights: csr_array, shifts: Shifts | None) -> Spectrum:
    """By Fourier transform, dense or by Lanczos, whichever is exact and affordable."""
    if weights.shape[0] == 1:
        return Spectrum(0.0, 0.0)
    if shifts is not None:
        return fourier_spectrum(shifts)
    return dense_spectrum(weights) if weights.shape[0] <= DENSE_LIMIT else lanczos_spectrum(weights)


def fourier_spectrum(shifts: Shifts) -> Spectrum:
    """Exact for any size, if W is made of shifts."""
    row = np.zeros(math.prod(shifts.shape))
    row[list(shifts.offsets)] = shifts.weights
    # the first belongs to the constant vector
    values = np.real(np.fft.fftn(row.reshape(shifts.shape)).ravel()[1:])
    return Spectrum(float(values.min()), float(values.max()))


def dense_spectrum(weights: csr_array) -> Spectrum:
    """All eigenvalues; the largest is the 1 of the constant vector."""
    values = np.linalg.eigvalsh(weights.toarray())
    return Spectrum(float(values[0]), float(values[-2]))


def lanczos_spectrum(weights: csr_array) -> Spectrum:
    """Both by Lanczos on the sparse matrix."""
    from scipy.sparse.linalg import LinearOperator

    def deflated(vector: np.ndarray) -> np.ndarray:
        # the constant vector becomes -1 and leaves the upper end
        return weights @ vector - 2 * vector.mean()

    upper = LinearOperator(weights.shape, matvec=deflated, dtype=np.float64)  # type: ignore[call-arg]
    high = _extreme(upper, "LA", tolerance=1e-8)
    if high is None:
        high = _close_to_one(weights)
    low = _extreme(weights, "SA", tolerance=1e-8)
    if low is None:  # crowded, as the upper end then is too: that one is near 1 and decides rho
        low = _extreme(weights, "SA", tolerance=1e-3)
    if low is None:
        low = 2 * float(weights.diagonal().min()) - 1  # Gershgorin's bound
    return Spectrum(low, high)


def _extreme(operator: Any, which: str, tolerance: float) -> float | None:
    """One end of the spectrum, or None if that takes too long; its error is about the tolerance
    squared."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    try:
        values = eigsh(
            operator,
            k=1,
            which=which,
            tol=tolerance,  # pyright: ignore[reportArgumentType]
            maxiter=40,
            ncv=min(40, len(start)),
            v0=start,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return None
    return float(values[0])


def _close_to_one(weights: csr_array) -> float:
    """The second largest eigenvalue where Lanczos is slow: large grids and paths, whose factors are
    small."""
    from scipy.sparse.linalg import eigsh

    start = np.random.default_rng(0).standard_normal(weights.shape[0])
    values = eigsh(
        weights.tocsc(), k=2, sigma=1 + 1e-9, which="LM", v0=start, return_eigenvectors=False
    )
    return float(min(values))
