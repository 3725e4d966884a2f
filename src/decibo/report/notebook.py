"""What a notebook shows of a problem, a network, a method and results: a small table, the network
as a drawing, and a line for each measure.

Text, lines and frames take the colour of the notebook's own text, so that all of it is readable in
light and dark. Everything from a user is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.formatting import format_setting, listed, typeset_number
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.problem.reference import Reference
from decibo.report.group import with_spread
from decibo.report.network_svg import network_svg
from decibo.run.repeat import Band, Repeats
from decibo.run.solution import Solution
from decibo.run.sweep import Sweep
from decibo.runs.folder import describe_network

ROWS = 12  # of a sweep; the best ones first
WIDTH, HEIGHT = 140.0, 24.0  # of the line of a measure
STYLE = """<style>
.decibo {display: flex; flex-wrap: wrap; gap: 1.5em; align-items: start; color: inherit}
.decibo table {border-collapse: collapse; margin: 0; color: inherit}
.decibo th, .decibo td {text-align: left !important; padding: 2px 10px 2px 0 !important;
  border: 0; border-bottom: 1px solid rgba(128, 128, 128, .35); background: none !important}
.decibo td:last-child {font-variant-numeric: tabular-nums}
.decibo .network {width: 190px; height: 190px}
.decibo .network line {stroke: currentColor; opacity: .55}
.decibo .network polygon {fill: currentColor; opacity: .7}
.decibo .network circle {fill: #2878b5}
.decibo .network text {fill: #fff; text-anchor: middle}
.decibo .network text.name {fill: currentColor}
.decibo polyline {fill: none; stroke: #2878b5; stroke-width: 1.6}
.decibo .band {fill: #2878b5; opacity: .3}
</style>"""

Shown = Problem | Network | DirectedNetwork | Algorithm | Solution | Repeats | Sweep | Reference


def html(shown: Shown) -> str:
    """The representation of any of these."""
    title = drawing = ""
    head: Sequence[str] = ()
    rows: Iterable[Sequence[str]]
    match shown:
        case Problem() | Reference():
            layouts = shown.functions.x, shown.functions.y
            sizes = [("numbers in x and y", " and ".join(f"{each.size:,}" for each in layouts))]
            if isinstance(shown, Reference):
                rows = [("reference", "y*(x), Phi(x), grad Phi(x)"), *sizes]
            else:
                agents = "as many as the network has" if shown.agents is None else shown.agents
                rows = [("problem", shown.name), ("agents", f"{agents}"), *sizes]
                rows += [("minibatches", "yes")] if shown.sample is not None else []
                rows += [("known solution", listed(sorted(shown.known)))] if shown.known else []
        case Network() | DirectedNetwork():
            record = describe_network(shown)
            rows = [("network", record["name"]), ("agents", f"{record['agents']:,}")]
            rows += [("links", f"{record['links']:,}{' directed' if record['directed'] else ''}")]
            rows += [("rho", f"{record['rho']:.4g}")] if record["rho"] is not None else []
            drawing = network_svg(record)
        case Algorithm():
            rows = [("method", shown.name)]
            rows += [
                (name, format_setting(value))
                for name, value in shown.settings.items()
                if value is not None
            ]
        case Solution():
            head = ("measure", "", "last")
            rows = [
                (name, _line(Band(shown.history["step"], row, row, row)), typeset_number(row[-1]))
                for name, row in shown.history.items()
                if name != "step" and np.ndim(row) == 1 and len(row)
            ]
            ended = f"{shown.status} after {shown.steps:,} steps of {shown.method.name}"
            title = _titled(f"{ended}. {shown.message}")
        case Repeats():
            head = ("measure", "median", "last")
            rows = [
                (name, _line(shown.band(name)), with_spread(shown.spread(name)))
                for name in shown.scalars
            ]
            counts = [f"{count} {status}" for status, count in Counter(shown.status).items()]
            title = _titled(f"{len(shown)} seeds of {shown.method.name}: {listed(counts)}")
        case Sweep():
            table = shown.ranked
            head = list(table[0])
            rows = [[format_setting(row[name], 4) for name in head] for row in table[:ROWS]]
            hidden = f", {ROWS} of them shown" if len(table) > ROWS else ""
            title = _titled(f"{len(table)} runs of {shown.method} on {shown.network}{hidden}")
    texts = lambda cells, tag: "".join(f"<{tag}>{_safe(cell)}</{tag}>" for cell in cells)
    body = "".join(f"<tr>{texts(cells, 'td')}</tr>" for cells in rows)
    top = f"<thead><tr>{texts(head, 'th')}</tr></thead>" if head else ""
    table_html = f"<table>{top}<tbody>{body}</tbody></table>"
    return f'{STYLE}<div class="decibo"><div>{title}{table_html}</div>{drawing}</div>'


def _titled(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _safe(cell: str) -> str:
    """A cell of text; only drawings of this module come as they are."""
    return cell if cell.startswith('<svg class="line"') else escape(cell)


def _line(band: Band) -> str:
    """The course of a measure, on a logarithmic scale if it is never negative."""
    rows = np.stack([band.low, band.median, band.high]).astype(float)
    if not (rows < 0).any():
        rows = np.log10(np.where(rows > 0, rows, np.nan))
    finite = np.isfinite(rows).all(axis=0)
    rows = rows[:, finite]
    step = np.asarray(band.step, float)[finite]
    if rows.shape[1] < 2:
        return ""
    low = rows.min()
    high = rows.max()
    across = WIDTH * (step - step[0]) / (step[-1] - step[0])
    up = 2 + (HEIGHT - 4) * (high - rows) / ((high - low) or 1.0)
    joined = lambda xs, ys: " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    around = joined(np.r_[across, across[::-1]], np.r_[up[0], up[2][::-1]])
    return (
        f'<svg class="line" width="{WIDTH:g}" height="{HEIGHT:g}"><polygon class="band"'
        f' points="{around}"/><polyline points="{joined(across, up[1])}"/></svg>'
    )
