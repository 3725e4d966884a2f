"""Random graphs: the same seed gives the same graph, and a draw that falls apart is drawn again."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from decibo.errors import InputError
from decibo.network.graphs import METROPOLIS, from_edges
from decibo.network.network import Network
from decibo.validate import integer

DRAWS = 100


def erdos_renyi(m: int, p: float, *, seed: int, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Every pair of agents linked with probability p."""
    m, p = integer("m", m), _share("p", p)
    starts = np.cumsum(np.arange(m - 1, -1, -1)) - np.arange(m - 1, -1, -1)  # pairs before those of agent i

    def draw(random: np.random.Generator) -> np.ndarray:
        pairs = m * (m - 1) // 2
        if not pairs:
            return np.zeros((0, 2), dtype=np.int64)
        chosen = random.choice(pairs, random.binomial(pairs, p), replace=False, shuffle=False)
        i = np.searchsorted(starts, chosen, side="right") - 1
        # The last agent has no pairs and so the same start as nobody's: ties go to the one before.
        i = np.minimum(i, m - 2)
        return np.stack([i, chosen - starts[i] + i + 1], axis=1)

    remedy = f"Below p = log(m)/m = {math.log(m) / m:.3g} it seldom is; raise p."
    return from_edges("erdos_renyi", m, _redraw(m, draw, seed, f"p = {p}", remedy), weights, rho)


def random_regular(m: int, degree: int, *, seed: int, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """A random graph in which every agent has `degree` neighbours; a million agents take seconds."""
    m, degree = integer("m", m), integer("degree", degree, least=0)
    if degree >= m or m * degree % 2:
        raise InputError(
            f"m = {m}, degree = {degree}",
            "degree must be below m and m * degree even",
            "Change one of them by one.",
        )

    def draw(random: np.random.Generator) -> np.ndarray:
        if 2 * degree < m:
            return _pairing(random, m, degree)
        absent, pairs = _pairing(random, m, m - 1 - degree), np.stack(np.triu_indices(m, k=1), axis=1)
        return pairs[~np.isin(_keys(m, pairs), _keys(m, absent))]  # dense: easier to say who is not linked

    return from_edges(
        "random_regular", m, _redraw(m, draw, seed, f"degree = {degree}", "Take degree >= 3."), weights, rho
    )


def small_world(
    m: int, neighbours: int, p: float, *, seed: int, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """Watts-Strogatz: a ring with links to the nearest `neighbours`, each rewired with probability p."""
    import networkx

    m, neighbours, p = integer("m", m), integer("neighbours", neighbours, least=2), _share("p", p)
    if neighbours % 2 or neighbours >= m:
        raise InputError(
            f"neighbours = {neighbours}",
            f"it must be even and below m = {m}",
            "Half of them sit on either side.",
        )

    def draw(random: np.random.Generator) -> np.ndarray:
        return _edges(networkx.watts_strogatz_graph(m, neighbours, p, seed=int(random.integers(2**31))))

    remedy = "Take more neighbours or a smaller p."
    return from_edges(
        "small_world", m, _redraw(m, draw, seed, f"neighbours = {neighbours}, p = {p}", remedy), weights, rho
    )


def geometric(m: int, radius: float, *, seed: int, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agents at random points of the unit square, linked if no further apart than `radius`."""
    from scipy.spatial import KDTree

    m = integer("m", m)
    if not isinstance(radius, Real) or not radius > 0:
        raise InputError(f"radius = {radius!r}", "radius must be a positive number", "The square has side 1.")

    def draw(random: np.random.Generator) -> np.ndarray:
        return KDTree(random.random((m, 2))).query_pairs(float(radius), output_type="ndarray")

    threshold = math.sqrt(math.log(m) / (math.pi * m))
    remedy = f"Below radius = sqrt(log(m)/(pi m)) = {threshold:.3g} it seldom is; raise it."
    return from_edges("geometric", m, _redraw(m, draw, seed, f"radius = {radius}", remedy), weights, rho)


def _pairing(random: np.random.Generator, m: int, degree: int) -> np.ndarray:
    """Every agent's `degree` ends of links paired at random; links to oneself and double ones are paired anew.

    Their expected number does not grow with m, so that a few rounds do [Bollobas 1980].
    """
    links = random.permutation(np.repeat(np.arange(m), degree)).reshape(-1, 2)
    bad = _faulty(m, links)
    while len(bad):
        some = np.union1d(bad, random.integers(len(links), size=len(bad) + 2))
        trial = links.copy()
        trial[some] = random.permutation(links[some].ravel()).reshape(-1, 2)
        worse = _faulty(m, trial)
        if len(worse) <= len(bad):
            links, bad = trial, worse
    return links


def _faulty(m: int, links: np.ndarray) -> np.ndarray:
    """Places of links to oneself, and of all but one of equal ones."""
    keys = _keys(m, links)
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(links), bool)
    again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return np.flatnonzero(again | (links[:, 0] == links[:, 1]))


def _keys(m: int, links: np.ndarray) -> np.ndarray:
    """One number for each link, whichever way it is written."""
    return links.min(axis=1) * m + links.max(axis=1)


def _redraw(
    m: int, draw: Callable[[np.random.Generator], np.ndarray], seed: int, value: str, remedy: str
) -> np.ndarray:
    """The links of the first connected draw."""
    random = np.random.default_rng(integer("seed", seed, least=0))
    for _ in range(DRAWS):
        edges = draw(random)
        if _is_connected(m, edges):
            return edges
    raise InputError(f"{value} with m = {m}", f"the graph must be connected, and {DRAWS} draws were not", remedy)


def _is_connected(m: int, edges: np.ndarray) -> bool:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(m, m))
    return connected_components(links, directed=False)[0] == 1


def _edges(graph: Any) -> np.ndarray:
    return np.array(graph.edges, dtype=np.int64).reshape(-1, 2)


def _share(name: str, value: float) -> float:
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise InputError(f"{name} = {value!r}", f"{name} is a probability", "Give a number from 0 to 1.")
    return float(value)
