"""Figures of runs for a paper, as PNG and PDF, by matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decibo.errors import InputError, missing
from decibo.files import atomic_write
from decibo.report.network_svg import positions
from decibo.report.palette import LIGHT, look
from decibo.report.summary import AXES, all_measures, load, logarithmic, main_measure, names, per_step, words
from decibo.runs.describe import NetworkRecord
from decibo.runs.folder import RunRecord

PANELS = 6  # measures on one figure
AXIS_WORDS = {
    "step": "steps",
    "gradients": "gradients (all agents)",
    "bytes": "bytes sent (all links)",
    "seconds": "seconds (shared out over steps)",
}
DASHES = {"": "-", "7 4": (0, (5, 2)), "2 3": (0, (1.2, 1.5)), "9 3 2 3": (0, (6, 2, 1.2, 2))}
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "savefig.dpi": 160,
    "svg.hashsalt": "decibo",
}
OWN = {"legend.frameon": False, "axes.axisbelow": True, "savefig.dpi": 200, "pdf.fonttype": 42}


def plotting() -> Any:
    """matplotlib.pyplot, drawing into files only."""
    try:
        import matplotlib
    except ImportError as error:
        raise missing("matplotlib", "Drawing figures", "plot") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def letter(axes: Any, titles: Sequence[str]) -> None:
    """Number the panels of a figure: (a), (b), ... before the titles."""
    for ax, mark, title in zip(np.ravel(axes), "abcdefgh", titles, strict=False):
        ax.set_title(f"({mark}) {title}", loc="left")


def figures(folders: str | Path | Sequence[str | Path], out_dir: str | Path) -> list[Path]:
    """Write measures, costs and networks as PNG and PDF into a folder; returns the files."""
    runs, folder = load(folders), Path(out_dir)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}", "it is a file", "Choose a folder for the figures.")
    plt, written = plotting(), []
    with plt.rc_context(STYLE | OWN), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # a label in a script the font lacks
        for name, draw in (("measures", _measures), ("costs", _costs), ("networks", _networks)):
            figure = draw(plt, runs)
            if figure is not None:
                written += [atomic_write(folder / f"{name}.{kind}", _saved(figure, kind)) for kind in ("png", "pdf")]
                plt.close(figure)
    return written


def _measures(plt: Any, runs: Sequence[RunRecord]) -> Any:
    """Every measure against the steps."""
    shown = all_measures(runs)[:PANELS]
    return _panels(plt, runs, [(name, "step") for name in shown], [_titled(name) for name in shown])


def _costs(plt: Any, runs: Sequence[RunRecord]) -> Any:
    """The main measure in every currency."""
    measure = main_measure(runs)
    axes = [axis for axis in AXES if any(per_step(run)[axis] for run in runs)]
    if measure is None:
        return None
    return _panels(plt, runs, [(measure, axis) for axis in axes], [_titled(measure) for _ in axes])


def _panels(plt: Any, runs: Sequence[RunRecord], what: list[tuple[str, str]], titles: list[str]) -> Any:
    if not what:
        return None
    columns, labels = min(2, len(what)), [_safe(name) for name in names(runs)]
    beside = max(1, columns * min(2, 60 // (max(map(len, labels)) + 8)))  # labels that fit beside each other
    rows, below = math.ceil(len(what) / columns), 0.2 * math.ceil(len(runs) / beside) + 0.1
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.6 * columns + 0.2, 2.5 * rows + below), layout="constrained", squeeze=False
    )
    for ax in axes.ravel()[len(what) :]:
        ax.remove()
    for ax, (measure, axis) in zip(axes.ravel(), what, strict=False):
        _curves(ax, runs, measure, axis)
    letter(axes.ravel()[: len(what)], titles)
    handles = axes[0, 0].get_lines()
    figure.legend(handles, labels, loc="outside lower center", ncols=beside)
    return figure


def _curves(ax: Any, runs: Sequence[RunRecord], measure: str, axis: str) -> None:
    bottom, top = _range(runs, measure)
    ceiling = top + 1e3 * abs(top)  # what diverges leaves the figure, and needs no more of it
    for k, run in enumerate(runs):
        colour, dash = look(k)
        price, values = per_step(run)[axis], run.history.get(measure)
        if values is None or price is None:
            x, y = np.zeros(0), np.zeros(0)
        else:
            x, y = run.history["step"] * price, np.where(np.isfinite(values), np.minimum(values, ceiling), np.nan)
        ax.plot(x, y, color=LIGHT[colour], linestyle=DASHES[dash])
    if logarithmic(runs, measure):
        ax.set_yscale("log")
        ax.set_ylim(bottom / 2, top * 2)
    elif top > bottom:
        ax.set_ylim(bottom - 0.05 * (top - bottom), top + 0.05 * (top - bottom))
    ax.set_xlabel(AXIS_WORDS[axis])
    ax.xaxis.set_major_formatter(_units(axis))
    ax.xaxis.set_major_locator(_places(axis))


def _units(axis: str) -> Any:
    from matplotlib.ticker import EngFormatter, StrMethodFormatter

    return {"bytes": EngFormatter("B"), "seconds": StrMethodFormatter("{x:g}")}.get(axis, EngFormatter(sep=""))


def _places(axis: str) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5, integer=axis != "seconds", steps=[1, 2, 5, 10])


def _range(runs: Sequence[RunRecord], measure: str) -> tuple[float, float]:
    """What to show of a measure: everything, but of runs that diverged only what is within the others' range."""
    log = logarithmic(runs, measure)
    calm = [run for run in runs if run.status != "diverged" and measure in run.history]
    wild = [run for run in runs if run.status == "diverged" and measure in run.history]
    parts = [_shown(run.history[measure], log) for run in calm or wild]
    top = max([float(part.max()) for part in parts if part.size], default=1.0)
    starts = [float(part[0]) for run in wild if (part := _shown(run.history[measure], log)).size]
    bottom = min([float(part.min()) for part in parts if part.size], default=0.1)
    return bottom, max([top, *starts]) * (10 if log and calm and wild else 1)


def _shown(values: np.ndarray, log: bool) -> np.ndarray:
    values = values[np.isfinite(values)].astype(float)
    return values[values > 0] if log else values


def _networks(plt: Any, runs: Sequence[RunRecord]) -> Any:
    found = {str(sorted(run.network.items(), key=str)): run.network for run in runs}
    drawn = [(network, at) for network in found.values() if (at := positions(network)) is not None][:PANELS]
    if not drawn:
        return None
    columns = min(3, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.7 * columns, 2.9 * rows), layout="constrained", squeeze=False)
    for ax in axes.ravel():
        ax.set_axis_off()
    for ax, (network, at) in zip(axes.ravel(), drawn, strict=False):
        _network(ax, network, at * [1, -1])
    return figure


def _network(ax: Any, network: NetworkRecord, at: np.ndarray) -> None:
    widest = max((edge[2] for edge in network["edges"] or []), default=1.0) or 1.0
    size = float(np.clip(1600 / network["agents"], 12, 160))
    for i, j, weight in network["edges"] or []:
        width = 0.4 + 1.2 * weight / widest
        if network["directed"]:
            arrow = {"arrowstyle": "-|>", "color": "#8a94a3", "linewidth": width, "shrinkA": 6, "shrinkB": 7}
            ax.annotate("", at[j], at[i], arrowprops=arrow)
        else:
            ax.plot(*at[[i, j]].T, color="#8a94a3", linewidth=width, zorder=1)
    ax.scatter(*at.T, s=size, color=LIGHT[0], edgecolors="white", linewidths=0.8, zorder=2)
    rho = "" if network["rho"] is None else rf", $\rho$ = {network['rho']:.3g}"
    ax.set_title(f"{_safe(network['name'])}: {network['agents']} agents{rho}")
    ax.set(aspect="equal", xlim=(-0.08, 1.08), ylim=(-1.08, 0.08))


def _titled(measure: str) -> str:
    said = words(measure)
    return f"{_safe(measure)}   {said}" if said else _safe(measure)


def _safe(text: str) -> str:
    """Text that matplotlib shows as it is: no mathematics, no line breaks, not too long, never hidden."""
    clean = "".join(mark if mark.isprintable() else " " for mark in text)
    clean = clean if len(clean) <= 60 else clean[:57] + "..."
    return (" " if clean.startswith("_") else "") + clean.replace("$", r"\$")


def _saved(figure: Any, kind: str) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format=kind, metadata={"CreationDate": None} if kind == "pdf" else {"Software": None})
    return out.getvalue()
