"""A network as a drawing: positions by networkx, lines and circles in SVG. Everything from a run is
escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import short
from decibo.runs.folder import NetworkRecord

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DRAWN = 400  # agents that can still be distinguished
NAMED = 36  # agents whose names still fit into their circles
LABELLED = 12  # agents whose labels still fit below them
SIZE = 320.0
ROOM = 36.0  # for labels, on either side
MARGIN = 26.0


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
    # Networks that look the same from every place on a circle: ring, exponential, complete graph.
    links = {(i, j) for i, j, _ in edges} | {(j, i) for i, j, _ in edges}
    if agents < 3 or all(((i + 1) % agents, (j + 1) % agents) in links for i, j in links):
        angle = 2 * np.pi * np.arange(agents) / max(agents, 1) - np.pi / 2
        return _fit(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    import networkx

    graph = networkx.empty_graph(agents)
    graph.add_edges_from(edge[:2] for edge in edges)
    near = agents <= 120 and networkx.is_connected(graph)
    layout = networkx.kamada_kawai_layout(graph) if near else networkx.spring_layout(graph, seed=0)
    return _fit(np.array([layout[k] for k in range(agents)]))


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
    labels = network.get("labels") or []
    named = bool(labels) and agents <= LABELLED
    room = ROOM if named else 0.0
    box = f'viewBox="{-room:g} 0 {SIZE + 2 * room:g} {SIZE + room / 2:g}"'
    parts = [f'<svg class="network" {box} role="img" aria-label="{escape(title)}">']

    # A line ends at the edge of the receiver's circle, where the arrow's tip is.
    for i, j, weight in edges:
        along = (centres[j] - centres[i]) / max(float(np.hypot(*(centres[j] - centres[i]))), 1e-9)
        across = np.array([-along[1], along[0]])
        (x, y), tip = centres[i], centres[j] - along * (radius + 1)
        joint = "to" if network["directed"] else "and"
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}"'
            f' stroke-width="{0.5 + 1.5 * weight / heaviest:.2f}">'
            f"<title>{i} {joint} {j}, weight {weight:.3g}</title></line>"
        )
        if network["directed"]:
            corners = tip, tip - 6 * along + 2.6 * across, tip - 6 * along - 2.6 * across
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
            parts.append(f'<polygon points="{points}"/>')

    for k, (x, y) in enumerate(centres):
        own = str(labels[k]) if k < len(labels) else str(k)
        name = escape(own if own == str(k) else f"{k} ({own})")
        at = f'x="{x:.1f}" y="{y:.1f}" dy="0.35em" font-size="{min(11.0, radius * 1.05):.1f}"'
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
        parts.append(f"{circle}<title>agent {name}</title></circle>")
        parts += [f"<text {at}>{k}</text>"] if agents <= NAMED else []
        if named and own != str(k):
            below = f'x="{x:.1f}" y="{y + radius + 14:.1f}" font-size="14"'
            parts.append(f'<text class="name" {below}>{escape(short(own, 18))}</text>')
    return "".join([*parts, "</svg>"])


def degrees(network: NetworkRecord) -> Int[np.ndarray, " agents"] | None:
    """How many neighbours each agent receives from; None where links are not listed."""
    if network["edges"] is None:
        return None
    ends = np.array([edge[:2] for edge in network["edges"]], dtype=int).reshape(-1, 2)
    received = ends[:, 1] if network["directed"] else ends.ravel()
    return np.bincount(received, minlength=network["agents"])


def _fit(points: np.ndarray) -> np.ndarray:
    """The points in the unit square, with equal scales."""
    points = points.astype(float)
    width = np.ptp(points, axis=0)
    scale = float(width.max()) or 1.0
    return (points - points.min(axis=0) - width / 2) / scale + 0.5
