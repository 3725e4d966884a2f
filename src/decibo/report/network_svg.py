"""A network as a drawing: positions by networkx, lines and circles in SVG."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

MOST = 400  # agents that can still be told apart
NAMED = 36  # agents whose names still fit into their circles
SIZE, MARGIN = 320.0, 26.0


def positions(network: dict[str, Any]) -> np.ndarray | None:
    """Where to draw each agent, in the unit square; None where there are too many agents or links."""
    m, edges = network["agents"], network["edges"]
    if edges is None or m > MOST:
        return None
    shape = network["shape"]
    if len(shape) == 2 and min(shape) > 1 and shape[0] * shape[1] == m:
        return _fit(np.stack(np.divmod(np.arange(m), shape[1])[::-1], axis=1))
    if m < 3 or _even(m, edges):
        turn = 2 * np.pi * np.arange(m) / max(m, 1) - np.pi / 2
        return _fit(np.stack([np.cos(turn), np.sin(turn)], axis=1))
    return _fit(_spread(m, edges))


def svg(network: dict[str, Any]) -> str:
    """The drawing; thicker lines weigh more, and arrows go to the agent that hears."""
    places = positions(network)
    if places is None:
        return ""
    at = MARGIN + places * (SIZE - 2 * MARGIN)
    m, directed = network["agents"], network["directed"]
    radius = float(np.clip(46 / np.sqrt(m), 3.5, 13))
    title = f"{network['name']}: {m} agents, {network['links']} links"
    parts = [f'<svg class="network" viewBox="0 0 {SIZE:g} {SIZE:g}" role="img" aria-label="{escape(title)}">']
    parts += [_line(at, edge, radius, directed, _widest(network)) for edge in network["edges"]]
    parts += [_agent(k, at[k], radius, _label(network, k), m <= NAMED) for k in range(m)]
    return "".join([*parts, "</svg>"])


def degrees(network: dict[str, Any]) -> np.ndarray | None:
    """How many neighbours each agent hears."""
    if network["edges"] is None:
        return None
    ends = np.array([edge[:2] for edge in network["edges"]], dtype=int).reshape(-1, 2)
    return np.bincount(ends[:, 1] if network["directed"] else ends.ravel(), minlength=network["agents"])


def _even(m: int, edges: list[list[Any]]) -> bool:
    """Whether all agents see the same when they stand in a circle: ring, exponential, complete graph."""
    links = {(i, j) for i, j, _ in edges} | {(j, i) for i, j, _ in edges}
    return all(((i + 1) % m, (j + 1) % m) in links for i, j in links)


def _spread(m: int, edges: list[list[Any]]) -> np.ndarray:
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(m))
    graph.add_edges_from((i, j) for i, j, _ in edges)
    if m <= 120 and networkx.is_connected(graph):
        found = networkx.kamada_kawai_layout(graph)
    else:
        found = networkx.spring_layout(graph, seed=0)
    return np.array([found[k] for k in range(m)])


def _fit(points: np.ndarray) -> np.ndarray:
    """The points in the unit square, with equal scales."""
    points = points.astype(float)
    width = np.ptp(points, axis=0)
    scale = float(width.max()) or 1.0
    return (points - points.min(axis=0) - width / 2) / scale + 0.5


def _widest(network: dict[str, Any]) -> float:
    return max((float(edge[2]) for edge in network["edges"]), default=1.0) or 1.0


def _line(at: np.ndarray, edge: list[Any], radius: float, directed: bool, widest: float) -> str:
    i, j, weight = edge
    start, end = at[i], at[j]
    along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9)
    width = 0.5 + 1.5 * weight / widest
    tip = end - along * (radius + 1)
    line = f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}"'
    words = f"{i} to {j}, weight {weight:.3g}" if directed else f"{i} and {j}, weight {weight:.3g}"
    line += f' stroke-width="{width:.2f}"><title>{words}</title></line>'
    return line + (_arrow(tip, along) if directed else "")


def _arrow(tip: np.ndarray, along: np.ndarray) -> str:
    across = np.array([-along[1], along[0]])
    corners = [tip, tip - 6 * along + 2.6 * across, tip - 6 * along - 2.6 * across]
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>'


def _agent(k: int, place: np.ndarray, radius: float, label: str, named: bool) -> str:
    x, y = place
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>agent {escape(label)}</title></circle>'
    size = min(11.0, radius * 1.05)
    text = f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em" font-size="{size:.1f}">{k}</text>' if named else ""
    return circle + text


def _label(network: dict[str, Any], k: int) -> str:
    labels = network.get("labels")
    name = str(labels[k]) if isinstance(labels, list) and k < len(labels) else str(k)
    return name if name == str(k) else f"{k} ({name})"
