"""Named graphs. All take `weights`, a rule of decibo.network.weights, and `rho`, to which W is then scaled.

ring(10), erdos_renyi(10, 0.7, seed=0, rho=0.644), torus(30, 40, weights="best_constant")
"""

from __future__ import annotations

import numpy as np

from decibo.network.network import Network
from decibo.network.weights import weigh
from decibo.validate import integer

METROPOLIS = "metropolis"


def ring(m: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agents in a circle, each linked with the next and the one before."""
    m = integer("m", m)
    return from_edges("ring", m, _shifted(m, [1]), weights, rho)


def path(m: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agents in a line: the slowest network to agree."""
    agents = np.arange(integer("m", m))
    return from_edges("path", m, np.stack([agents[:-1], agents[1:]], axis=1), weights, rho)


def star(m: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agent 0 linked with all others, which have no other link."""
    leaves = np.arange(1, integer("m", m))
    return from_edges("star", m, np.stack([np.zeros_like(leaves), leaves], axis=1), weights, rho)


def complete(m: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Everybody linked with everybody: W = 11'/m, agreement after one step."""
    edges = np.stack(np.triu_indices(integer("m", m), k=1), axis=1)
    return from_edges("complete", m, edges, weights, rho)


def grid(rows: int, columns: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """A rectangle of agents, linked with the nearest four or fewer; (r, c) is agent r * columns + c."""
    agents = np.arange(integer("rows", rows) * integer("columns", columns)).reshape(rows, columns)
    down = np.stack([agents[:-1].ravel(), agents[1:].ravel()], axis=1)
    right = np.stack([agents[:, :-1].ravel(), agents[:, 1:].ravel()], axis=1)
    return from_edges("grid", agents.size, np.concatenate([down, right]), weights, rho)


def torus(rows: int, columns: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """A grid whose borders are joined: every agent has four neighbours."""
    shape = integer("rows", rows), integer("columns", columns)
    agents = np.arange(rows * columns).reshape(shape)
    edges = [np.stack([agents.ravel(), np.roll(agents, -1, axis).ravel()], axis=1) for axis in (0, 1)]
    return from_edges("torus", agents.size, np.concatenate(edges), weights, rho, shape)


def exponential(m: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """Agent i linked with i + 2^j and i - 2^j (mod m): few links, and agreement in about log m steps."""
    m = integer("m", m)
    return from_edges("exponential", m, _shifted(m, [2**j for j in range((m - 1).bit_length())]), weights, rho)


def hypercube(k: int, *, weights: str = METROPOLIS, rho: float | None = None) -> Network:
    """2^k agents, linked if their numbers differ in one binary digit."""
    m = 2 ** integer("k", k, least=0)
    agents = np.arange(m)
    edges = [np.stack([agents, agents ^ 2**bit], axis=1) for bit in range(k)]
    return from_edges("hypercube", m, np.concatenate([np.zeros((0, 2), int), *edges]), weights, rho, (2,) * k)


def from_edges(
    name: str,
    m: int,
    edges: np.ndarray,
    weights: str,
    rho: float | None,
    shape: tuple[int, ...] | None = None,
    labels: tuple | None = None,
) -> Network:
    """A network from links (i, j) in any order; repeated ones count once and self-loops not at all."""
    edges = np.sort(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=1)
    edges = edges[edges[:, 0] < edges[:, 1]]
    edges = np.stack(np.divmod(np.unique(edges[:, 0] * m + edges[:, 1]), m), axis=1)
    return Network(weigh(m, edges, weights, shape or (m,)), name, labels, shape).with_rho(rho)


def _shifted(m: int, offsets: list[int]) -> np.ndarray:
    """Links of every agent a with a + offset (mod m)."""
    agents = np.arange(m)
    links = [np.stack([agents, (agents + offset) % m], axis=1) for offset in offsets]
    return np.concatenate([np.zeros((0, 2), int), *links])
