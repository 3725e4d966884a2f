"""Networks by name, and from what you already have: a graph, an adjacency matrix or a weight
matrix.

    ring(10), erdos_renyi(10, 0.7, seed=0, rho=0.644), torus(30, 40, weights="best_constant")

Random graphs take a `seed`: the same seed gives the same graph, and a draw that is not connected is
drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import InputError, short
from decibo.network.network import Network
from decibo.network.weights import check_on_links, check_square, check_symmetric, weigh
from decibo.validate import fraction, integer, positive

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike
    from scipy.sparse import sparray


METROPOLIS = "metropolis"
DRAWS = 100  # of a random graph, until one is connected


def ring(agents: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agents in a circle, each linked to the next one and the one before it."""
    agents = integer("agents", agents)
    return from_edges("ring", agents, shifted(agents, [1]), weights, rho)


def path(agents: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agents in a line: the slowest network to reach consensus."""
    line = np.arange(integer("agents", agents))
    return from_edges("path", agents, np.stack([line[:-1], line[1:]], axis=1), weights, rho)


def star(agents: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agent 0 linked to all others, which have no other link."""
    leaves = np.arange(1, integer("agents", agents))
    return from_edges(
        "star", agents, np.stack([np.zeros_like(leaves), leaves], axis=1), weights, rho
    )


def complete(agents: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """All agents linked to each other: W = 11'/m, consensus after one step."""
    return from_edges("complete", agents, _all_pairs(integer("agents", agents)), weights, rho)


def grid(
    rows: int, columns: int, *, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """A rectangle of agents, linked to the nearest four or fewer; (r, c) is agent r * columns +
    c."""
    places = np.arange(integer("rows", rows) * integer("columns", columns)).reshape(rows, columns)
    down = np.stack([places[:-1].ravel(), places[1:].ravel()], axis=1)
    right = np.stack([places[:, :-1].ravel(), places[:, 1:].ravel()], axis=1)
    return from_edges("grid", places.size, np.concatenate([down, right]), weights, rho)


def torus(
    rows: int, columns: int, *, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """A grid whose borders are joined: every agent has four neighbours."""
    shape = (integer("rows", rows), integer("columns", columns))
    places = np.arange(rows * columns).reshape(shape)
    edges = [
        np.stack([places.ravel(), np.roll(places, -1, axis).ravel()], axis=1) for axis in (0, 1)
    ]
    return from_edges("torus", places.size, np.concatenate(edges), weights, rho, shape)


def exponential(agents: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agent i linked to i + 2^j and i - 2^j (mod agents): few links, and consensus in about
    log(agents) steps."""
    agents = integer("agents", agents)
    return from_edges("exponential", agents, shifted(agents, powers_of_two(agents)), weights, rho)


def hypercube(k: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """2^k agents, linked if their numbers differ in one binary digit."""
    corners = np.arange(2 ** integer("k", k, least=0))
    edges = [np.stack([corners, corners ^ 2**bit], axis=1) for bit in range(k)]
    return from_edges(
        "hypercube", len(corners), np.concatenate([_no_links(), *edges]), weights, rho, (2,) * k
    )


def erdos_renyi(
    agents: int, p: float, *, seed: int, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """Every pair of agents linked with probability p."""
    agents = integer("agents", agents)
    p = fraction("p", p)
    later = np.arange(agents - 1, -1, -1)  # the pairs of agent i with later agents
    starts = np.cumsum(later) - later  # the pairs before those of agent i

    def draw(random: np.random.Generator) -> np.ndarray:
        pairs = agents * (agents - 1) // 2
        if not pairs:
            return _no_links()
        drawn = random.choice(pairs, random.binomial(pairs, p), replace=False, shuffle=False)
        i = np.searchsorted(starts, drawn, side="right") - 1
        # The last agent has no pairs and so the same start as nobody's: ties go to the one before.
        i = np.minimum(i, agents - 2)
        return np.stack([i, drawn - starts[i] + i + 1], axis=1)

    remedy = (
        f"Below p = log(agents)/agents = {math.log(agents) / agents:.3g} it seldom is; raise p."
    )
    return from_edges(
        "erdos_renyi", agents, _redraw(agents, draw, seed, f"p = {p:g}", remedy), weights, rho
    )


def random_regular(
    agents: int, degree: int, *, seed: int, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """A random graph in which every agent has `degree` neighbours; a million agents take
    seconds."""
    agents = integer("agents", agents)
    degree = integer("degree", degree, least=0)
    if degree >= agents or agents * degree % 2:
        raise InputError(
            "degree must be below agents and agents * degree must be even, but there are "
            f"agents = {agents} and degree = {degree}."
        )

    def draw(random: np.random.Generator) -> np.ndarray:
        if 2 * degree < agents:
            return _pairing(random, agents, degree)
        # dense: easier to say who is not linked
        absent = _pairing(random, agents, agents - 1 - degree)
        pairs = _all_pairs(agents)
        return pairs[~np.isin(_keys(agents, pairs), _keys(agents, absent))]

    edges = _redraw(agents, draw, seed, f"degree = {degree}", "Choose degree >= 3.")
    return from_edges("random_regular", agents, edges, weights, rho)


def small_world(
    agents: int,
    neighbours: int,
    p: float,
    *,
    seed: int,
    weights: str = METROPOLIS,
    rho: float | None = None,
) -> Network:
    """A Watts-Strogatz graph: a ring with links to the nearest `neighbours`, each rewired with
    probability p."""
    import networkx

    agents = integer("agents", agents)
    neighbours = integer("neighbours", neighbours, least=2)
    p = fraction("p", p)
    if neighbours % 2 or neighbours >= agents:
        raise InputError(
            f"neighbours must be even, half of them on either side, and below agents = {agents},"
            f" but it is {neighbours}."
        )

    def draw(random: np.random.Generator) -> np.ndarray:
        graph = networkx.watts_strogatz_graph(
            agents, neighbours, p, seed=int(random.integers(2**31))
        )
        return np.array(graph.edges, dtype=np.int64).reshape(-1, 2)

    remedy = "Choose more neighbours or a smaller p."
    edges = _redraw(agents, draw, seed, f"neighbours = {neighbours} and p = {p:g}", remedy)
    return from_edges("small_world", agents, edges, weights, rho)


def geometric(
    agents: int, radius: float, *, seed: int, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """Agents at random points of the unit square, linked if no further apart than `radius`."""
    from scipy.spatial import KDTree

    agents = integer("agents", agents)
    radius = positive("radius", radius)

    def draw(random: np.random.Generator) -> np.ndarray:
        return KDTree(random.random((agents, 2))).query_pairs(radius, output_type="ndarray")

    threshold = math.sqrt(math.log(agents) / (math.pi * agents))
    remedy = (
        f"Below radius = sqrt(log(agents)/(pi agents)) = {threshold:.3g} it seldom is; raise it."
    )
    return from_edges(
        "geometric",
        agents,
        _redraw(agents, draw, seed, f"radius = {radius:g}", remedy),
        weights,
        rho,
    )


def from_edges(
    name: str,
    agents: int,
    edges: np.ndarray,
    weights: str,
    rho: float | None,
    shape: tuple[int, ...] | None = None,
    labels: tuple[Hashable, ...] | None = None,
) -> Network:
    """A network from links (i, j) in any order; repeated ones count once and self-loops not at
    all."""
    edges = np.sort(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=1)
    edges = edges[edges[:, 0] < edges[:, 1]]
    edges = np.stack(np.divmod(np.unique(edges[:, 0] * agents + edges[:, 1]), agents), axis=1)
    return Network(weigh(agents, edges, weights, shape or (agents,)), name, labels, shape).with_rho(
        rho
    )


def shifted(agents: int, offsets: list[int]) -> np.ndarray:
    """Links of every agent a with a + offset (mod agents)."""
    circle = np.arange(agents)
    links = [np.stack([circle, (circle + offset) % agents], axis=1) for offset in offsets]
    return np.concatenate([_no_links(), *links])


def powers_of_two(agents: int) -> list[int]:
    """1, 2, 4, ... below the number of agents."""
    return [2**j for j in range((agents - 1).bit_length())]


def _no_links() -> np.ndarray:
    return np.zeros((0, 2), dtype=np.int64)


def _all_pairs(agents: int) -> np.ndarray:
    return np.stack(np.triu_indices(agents, k=1), axis=1)


def _pairing(random: np.random.Generator, agents: int, degree: int) -> np.ndarray:
    """Every agent's `degree` ends of links paired at random; self-loops and double links are paired
    again.

    Their expected number does not grow with the agents, so a few rounds are enough [Bollobas 1980].
    """
    links = random.permutation(np.repeat(np.arange(agents), degree)).reshape(-1, 2)
    bad = _faulty(agents, links)
    while len(bad):
        some = np.union1d(bad, random.integers(len(links), size=len(bad) + 2))
        trial = links.copy()
        trial[some] = random.permutation(links[some].ravel()).reshape(-1, 2)
        remaining = _faulty(agents, trial)
        if len(remaining) <= len(bad):
            links = trial
            bad = remaining
    return links


def _faulty(agents: int, links: np.ndarray) -> np.ndarray:
    """Where self-loops are, and all but one of equal links."""
    keys = _keys(agents, links)
    order = np.argsort(keys, kind="stable")
    repeated = np.zeros(len(links), bool)
    repeated[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return np.flatnonzero(repeated | (links[:, 0] == links[:, 1]))


def _keys(agents: int, links: np.ndarray) -> np.ndarray:
    """One number for each link, whichever way it is written."""
    return links.min(axis=1) * agents + links.max(axis=1)


def _redraw(
    agents: int,
    draw: Callable[[np.random.Generator], np.ndarray],
    seed: int,
    settings: str,
    remedy: str,
) -> np.ndarray:
    """The links of the first connected draw."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    random = np.random.default_rng(integer("seed", seed, least=0))
    for _ in range(DRAWS):
        edges = draw(random)
        links = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(agents, agents))
        if connected_components(links, directed=False)[0] == 1:
            return edges
    raise InputError(
        f"The graph must be connected, but none of {DRAWS} draws with agents = {agents} and"
        f" {settings} was.",
        remedy,
    )


def from_graph(
    graph: networkx.Graph,
    W: ArrayLike | sparray | None = None,
    *,
    weights: str = METROPOLIS,
    rho: float | None = None,
) -> Network:
    """The network on a networkx graph; agent i is list(graph.nodes)[i], whatever the nodes are
    called.

    W, if passed, must be zero where the graph has no link. Self-loops are ignored, since they are
    implied.
    """
    check_graph(graph)
    if graph.is_directed():
        raise InputError(
            f"The links of a Network go in both directions, but {graph} is directed.",
            "Use from_digraph.",
        )
    labels = tuple(graph.nodes)
    integer("the number of nodes", len(labels))
    edges = node_pairs(graph, labels)
    name = graph.name or "graph"
    if W is None:
        return from_edges(name, len(labels), edges, weights, rho, labels=labels)
    matrix = check_on_links("W", W, np.concatenate([edges, edges[:, ::-1]]), len(labels))
    return Network(matrix, name, labels).with_rho(rho)


def from_adjacency(
    A: ArrayLike | sparray, *, weights: str = METROPOLIS, rho: float | None = None
) -> Network:
    """The network with a link wherever the symmetric matrix A of zeros and ones, dense or sparse,
    has a one.

    The diagonal is ignored, since self-loops are implied.
    """
    matrix = check_square("A", A)
    if (matrix.data != 1).any():
        value = matrix.data[matrix.data != 1][0]
        raise InputError(
            f"An adjacency matrix has zeros and ones only, but A has an entry {value:.6g}.",
            "Use from_weights(W) for weights.",
        )
    check_symmetric("A", matrix)
    coo = matrix.tocoo()
    return from_edges(
        "adjacency", matrix.shape[0], np.stack([coo.row, coo.col], axis=1), weights, rho
    )


def from_weights(W: ArrayLike | sparray, *, rho: float | None = None) -> Network:
    """The network with these weights: a symmetric, doubly stochastic matrix without negative
    entries."""
    return Network(check_square("W", W), "weights").with_rho(rho)


def is_graph(value: object) -> bool:
    """Whether this is a graph of networkx."""
    return all(hasattr(value, name) for name in ("is_directed", "nodes", "edges"))


def check_graph(graph: object) -> None:
    """It must be a graph of networkx, which is loaded only where it is used."""
    if not is_graph(graph):
        raise InputError(
            f"graph must be a networkx graph, but it is {short(repr(graph))}.",
            "Use from_adjacency(A) or from_weights(W) for a matrix.",
        )


def node_pairs(graph: networkx.Graph, labels: tuple[Hashable, ...]) -> np.ndarray:
    """The links of a networkx graph as rows of agents' numbers."""
    number = {label: i for i, label in enumerate(labels)}
    pairs = [(number[a], number[b]) for a, b in graph.edges()]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
