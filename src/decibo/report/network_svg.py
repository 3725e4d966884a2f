"""A network as a drawing: positions by networkx, lines and circles in SVG. Everything from a run is
escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from decibo.runs.folder import NetworkRecord

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DRAWN = 400  # agents that can still be distinguished
NAMED = 36  # agents whose names still fit into their circles
SIZE = 320.0
MARGIN = 26.0

Edge = tuple[int, int, float]


def positions(network: NetworkRecord) -> Float[np.ndarray, "agents 2"] | None:
    """Where to draw each agent, in the unit square; None where there are too many agents or
    links."""
    agents = network["agents"]
    edges = network["edges"]
    if edges is None or agents > DRAWN:
        return None
    shape = network["shape"]
    if len(shape) == 2 and min(shape) > 1 and shape[0] * shape[1] == agents:
        return _fit(np.stack(np.divmod(np.arange(agents), shape[1])[::-1], axis=1))
    if agents < 3 or _is_circulant(agents, edges):
        angle = 2 * np.pi * np.arange(agents) / max(agents, 1) - np.pi / 2
        return _fit(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return _fit(_layout(agents, edges))


def network_svg(network: NetworkRecord) -> str:
    """The drawing, or nothing where there is too much to draw; thicker lines weigh more, arrows go
    to the receiver."""
    unit = positions(network)
    edges = network["edges"]
    if unit is None or edges is None:
        return ""
    centres = MARGIN + unit * (SIZE - 2 * MARGIN)
    agents = network["agents"]
    radius = float(np.clip(46 / np.sqrt(agents), 3.5, 13))
    title = f"{network['name']}: {agents} agents, {network['links']} links"
    heaviest = max((float(weight) for _, _, weight in edges), default=1.0) or 1.0
    parts = [
        f'<svg class="network" viewBox="0 0 {SIZE:g} {SIZE:g}" role="img"'
        f' aria-label="{escape(title)}">'
    ]
    parts += [_line(centres, edge, radius, network["directed"], heaviest) for edge in edges]
    parts += [
        _agent(k, centres[k], radius, _label(network, k), agents <= NAMED) for k in range(agents)
    ]
    return "".join([*parts, "</svg>"])


def degrees(network: NetworkRecord) -> Int[np.ndarray, " agents"] | None:
    """How many neighbours each agent receives from; None where links are not listed."""
    if network["edges"] is None:
        return None
    ends = np.array([edge[:2] for edge in network["edges"]], dtype=int).reshape(-1, 2)
    return np.bincount(
        ends[:, 1] if network["directed"] else ends.ravel(), minlength=network["agents"]
    )


def _is_circulant(agents: int, edges: Sequence[Edge]) -> bool:
    """Whether the network looks the same from every place on a circle: ring, exponential, complete
    graph."""
    links = {(i, j) for i, j, _ in edges} | {(j, i) for i, j, _ in edges}
    return all(((i + 1) % agents, (j + 1) % agents) in links for i, j in links)


def _layout(agents: int, edges: Sequence[Edge]) -> np.ndarray:
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from((i, j) for i, j, _ in edges)
    if agents <= 120 and networkx.is_connected(graph):
        layout = networkx.kamada_kawai_layout(graph)
    else:
        layout = networkx.spring_layout(graph, seed=0)
    return np.array([layout[k] for k in range(agents)])


def _fit(points: np.ndarray) -> np.ndarray:
    """The points in the unit square, with equal scales."""
    points = points.astype(float)
    width = np.ptp(points, axis=0)
    scale = float(width.max()) or 1.0
    return (points - points.min(axis=0) - width / 2) / scale + 0.5


def _line(centres: np.ndarray, edge: Edge, radius: float, directed: bool, heaviest: float) -> str:
    i, j, weight = edge
    start = centres[i]
    end = centres[j]
    along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9)
    tip = end - along * (radius + 1)
    joint = "to" if directed else "and"
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}"'
        f' stroke-width="{0.5 + 1.5 * weight / heaviest:.2f}">'
        f"<title>{i} {joint} {j}, weight {weight:.3g}</title></line>"
        + (_arrow(tip, along) if directed else "")
    )


def _arrow(tip: np.ndarray, along: np.ndarray) -> str:
    across = np.array([-along[1], along[0]])
    corners = [tip, tip - 6 * along + 2.6 * across, tip - 6 * along - 2.6 * across]
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>'


def _agent(k: int, centre: np.ndarray, radius: float, label: str, named: bool) -> str:
    x, y = centre
    circle = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>agent'
        f" {escape(label)}</title></circle>"
    )
    size = min(11.0, radius * 1.05)
    text = (
        f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em" font-size="{size:.1f}">{k}</text>'
        if named
        else ""
    )
    return circle + text


def _label(network: NetworkRecord, k: int) -> str:
    labels = network.get("labels")
    name = str(labels[k]) if isinstance(labels, list) and k < len(labels) else str(k)
    return name if name == str(k) else f"{k} ({name})"
