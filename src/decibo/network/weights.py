r"""Weights on the links of a graph.

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
    from scipy.sparse import csr_array

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
