"""The networks of the page: each once, drawn, with what matters about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from decibo.formatting import MINUS
from decibo.report import network_svg as drawing
from decibo.report.html import spaced
from decibo.runs.folder import RunRecord


def networks(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Each network once, drawn, with what matters about it."""
    labels = dict(zip(map(id, runs), names, strict=True))
    return "".join(_network(same, [labels[id(run)] for run in same], len(runs)) for same in groups(runs))


def groups(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """The runs by their network."""
    found: dict[str, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(json.dumps(run.network, sort_keys=True, default=str), []).append(run)
    return list(found.values())


def _network(runs: Sequence[RunRecord], labels: Sequence[str], everything: int) -> str:
    network = runs[0].network
    picture = drawing.network_svg(network) or "<p>Too many agents or links to draw.</p>"
    facts = [("agents", f"{network['agents']:,}"), ("links", f"{network['links']:,}")]
    degrees = drawing.degrees(network)
    if degrees is not None and degrees.size:
        low, high = int(degrees.min()), int(degrees.max())
        facts.append(("neighbours", str(low) if low == high else f"{low} to {high}"))
    if network["rho"] is not None:
        facts += [("rho", f"{network['rho']:.4g}"), (f"1 {MINUS} rho", f"{1 - network['rho']:.4g}")]
    listed = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    kind = "Directed: arrows go to the agent that hears." if network["directed"] else ""
    used = "" if len(labels) == everything else "Used by " + ", ".join(labels) + "."
    said = "".join(f"<p>{escape(each)}</p>" for each in (kind, used) if each)
    told = f'<div><h3>{escape(spaced(network["name"]))}</h3><dl class="facts">{listed}</dl>{said}</div>'
    return f'<div class="net">{picture}{told}</div>'
