"""Figures of runs for a paper, as PNG and PDF, by matplotlib; and the colours and lines of
everything that is drawn."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import InputError, missing
from decibo.files import atomic_write, check_own
from decibo.report.group import Group, caption, grouped
from decibo.report.network_svg import positions
from decibo.report.summary import (
    AXES,
    Folders,
    all_measures,
    is_logarithmic,
    load,
    main_measure,
    symbols,
)
from decibo.run.repeat import BANDS
from decibo.runs.folder import RunRecord
from decibo.validate import one_of, positive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

# Colours that the colour-blind can distinguish (after Okabe and Ito). Every line has its own dashes
# and markers too, so that lines that lie on each other can be told apart.
LIGHT = ("#0072B2", "#D55E00", "#009E73", "#B5518C", "#B87A00", "#2E9BD6", "#3A3F47")
DARK = ("#5CB3F0", "#FF8A4C", "#3FD0A4", "#E79AC4", "#F2B63D", "#9AD7F8", "#D5DAE1")
# in SVG, in matplotlib
DASHES = {"": "-", "7 4": (0, (5, 2)), "2 3": (0, (1.2, 1.5)), "9 3 2 3": (0, (6, 2, 1.2, 2))}
MARKERS = "osD^vP"
GREY = "#8a94a3"
PANELS = 6  # measures on one figure
RATIO = 20  # of the costs of two runs, beyond which their axis is logarithmic
AXIS_LABELS = {
    "step": "steps",
    "work": "work, in gradients (all agents)",
    "bytes": "bytes sent (all links)",
    "seconds": "seconds of steps, divided equally among them",
}
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
MARK = b"Drawn by decibo"
MARKS = {
    "pdf": {"Creator": MARK.decode(), "CreationDate": None},
    "png": {"Software": MARK.decode()},
}
RUN_STYLE = STYLE | {"axes.axisbelow": True, "savefig.dpi": 200, "pdf.fonttype": 42}


def letter(axes: np.ndarray, titles: Sequence[str]) -> None:
    """Number the panels of a figure: (a), (b), ... before the titles."""
    for ax, mark, title in zip(axes.ravel(), "abcdefgh", titles, strict=False):
        ax.set_title(f"({mark}) {title}", loc="left")


def line_style(k: int) -> tuple[int, str]:
    """The number of the colour and the dashes, as SVG writes them, of line k."""
    return k % len(LIGHT), list(DASHES)[k % len(DASHES)]


def figures(
    folders: Folders,
    out_dir: str | Path,
    *,
    measures: Sequence[str] | None = None,
    band: str = "quartiles",
    size: tuple[float, float] = (3.6, 2.5),
    font: float | None = None,
    log: bool | None = None,
    order: Sequence[str] = (),
) -> list[Path]:
    """Write measures, costs and networks as PNG and PDF into a folder; returns the files.

    measures  which ones, the first being that of the costs; by default all, the most informative
              ones first
    band      of runs that differ in their seed only, a line is the median, and the band around it
              spans the "quartiles" (25 % to 75 %) or the "range" of the seeds. A seed that diverged
              counts as infinite from there on.
    size      width and height of a panel in inches
    font      size of the text in points
    log       whether horizontal axes are logarithmic; by default where one run costs more than
              RATIO times another one
    order     labels of the runs that come first
    """
    groups = grouped(load(folders), order)
    one_of("band", band, BANDS)
    runs = [run for group in groups for run in group.runs]
    recorded = all_measures(runs)
    main = main_measure(runs)
    shown = recorded if main is None else list(dict.fromkeys([main, *recorded]))
    if measures is not None:
        shown = [one_of("The recorded measure", name, recorded) for name in measures]
    folder = Path(out_dir)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Figures need a folder, but {folder} is a file.")
    if not all(0.5 <= inches <= 50 for inches in size):
        raise InputError(f"size must be two numbers of inches from 0.5 to 50, but it is {size}.")
    try:
        import matplotlib
    except ImportError as error:
        raise missing("matplotlib", "Drawing figures", "plot") from error
    points = RUN_STYLE["font.size"] if font is None else positive("font", font)
    smaller = {"axes.titlesize": points * 1.05, "legend.fontsize": points * 0.9}
    style = RUN_STYLE | smaller | {"font.size": points}
    written = []
    with matplotlib.rc_context(style), warnings.catch_warnings():  # type: ignore[arg-type]
        # a label in a script the font lacks
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        axes = [axis for axis in AXES if any(group.price(axis) for group in groups)]
        main_costs = [(name, axis) for name in shown[:1] for axis in axes]
        drawn = {
            "measures": _panels(
                groups, [(name, "step") for name in shown[:PANELS]], band, size, log
            ),
            "costs": _panels(groups, main_costs, band, size, log),
            "networks": _networks([group.first for group in groups]),
        }
        for name, figure in drawn.items():
            if figure is not None:
                written += [
                    atomic_write(check_own(folder / f"{name}.{kind}", MARK), saved(figure, kind))
                    for kind in ("png", "pdf")
                ]
    return written


def distinct_networks(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """The runs grouped by their network."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.network, sort_keys=True, default=str), []).append(run)
    return list(groups.values())


def _panels(
    groups: Sequence[Group],
    panels: Sequence[tuple[str, str]],
    band: str,
    size: tuple[float, float],
    log: bool | None,
) -> Figure | None:
    """A panel for each pair of a measure and an axis."""
    if not panels:
        return None
    labels = [_plain(group.legend) for group in groups]
    words = caption(groups, band)
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    # labels that fit beside each other
    width = columns * size[0] + 0.2
    beside = max(1, int(12 * width / (max(map(len, labels)) + 8)))
    legend = 0.2 * math.ceil(len(groups) / beside) + (0.3 if words else 0.1)
    figure = new_figure(width, rows * size[1] + legend)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[len(panels) :]:
        ax.remove()
    for ax, (measure, axis) in zip(axes, panels, strict=False):
        _curves(ax, groups, measure, axis, band, log)
    if len(panels) == 1:
        axes[0].set_title(_panel_title(panels[0][0]), loc="left")
    else:
        letter(axes[: len(panels)], [_panel_title(measure) for measure, _ in panels])
    title = {"title": words} if words else {}
    figure.legend(axes[0].get_lines(), labels, loc="outside lower center", ncols=beside, **title)
    return figure


def _curves(
    ax: Axes, groups: Sequence[Group], measure: str, axis: str, band: str, log: bool | None
) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter

    runs = [run for group in groups for run in group.runs]
    bottom, top = _range(groups, measure, band)
    ceiling = top + 1e3 * abs(top)  # what diverges leaves the figure, and needs no more of it
    vertical = is_logarithmic(runs, measure)
    # a band that reaches down to zero leaves the figure, too
    floor = bottom / 1e3 if vertical else -np.inf
    ends = []
    for k, group in enumerate(groups):
        colour, dash = line_style(k)
        price = group.price(axis)
        x = low = middle = high = np.zeros(0)
        if measure in group.measures and price is not None:
            curve = group.band(measure, band)
            x = curve.step * price
            # In a group, lost seeds count as infinite and leave at the top; a lost single run ends.
            parts = curve[1:]
            if not group.several:
                parts = [np.where(np.isfinite(part), part, np.nan) for part in parts]
            low, middle, high = (np.clip(part, floor, ceiling) for part in parts)
            middle = np.where(middle > floor, middle, np.nan)  # zero has no logarithm
            ends += [float(x[-1])] if len(x) and x[-1] > 0 else []
        # Six markers on a line; those of two lines that lie on each other are beside each other.
        every = max(1, len(x) // 6)
        marked = {"marker": MARKERS[k % len(MARKERS)], "markevery": (k * every // 4 % every, every)}
        line = {"color": LIGHT[colour], "linestyle": DASHES[dash], "markersize": 3.5}
        ax.plot(x, middle, zorder=2.5 + k / 1000, **line, **marked)
        if group.several:
            ax.fill_between(x, low, high, color=LIGHT[colour], alpha=0.2, linewidth=0)
    if vertical:
        ax.set_yscale("log")
        ax.set_ylim(bottom / 2, top * 2)
    elif top > bottom:
        ax.set_ylim(bottom - 0.05 * (top - bottom), top + 0.05 * (top - bottom))
    ax.set_xlabel(AXIS_LABELS[axis])
    if log or (log is None and len(ends) > 1 and max(ends) > RATIO * min(ends)):
        ax.set_xscale("log")
        return
    units: dict[str, Formatter] = {
        "bytes": EngFormatter("B"),
        "seconds": StrMethodFormatter("{x:g}"),
    }
    ax.xaxis.set_major_formatter(units.get(axis, EngFormatter(sep="")))
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=axis != "seconds", steps=[1, 2, 5, 10]))


def _range(groups: Sequence[Group], measure: str, band: str) -> tuple[float, float]:
    """What to show of a measure: all lines and bands, but of those that are no answer only what is
    within the others' range."""
    log = is_logarithmic([run for group in groups for run in group.runs], measure)
    parts: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for group in groups:
        curve = group.band(measure, band)[1:] if measure in group.measures else [np.zeros(0)]
        values = np.concatenate(curve)
        values = values[np.isfinite(values) & ((values > 0) | (not log))]
        parts[group.sound] += [values] if values.size else []
    shown = parts[True] or parts[False]
    starts = [float(part[0]) for part in parts[False]]
    top = max([float(part.max()) for part in shown] or [1.0])
    bottom = min([float(part.min()) for part in shown] or [0.1])
    return bottom, max([top, *starts]) * (10 if log and parts[True] and parts[False] else 1)


def _networks(runs: Sequence[RunRecord]) -> Figure | None:
    """Every network that is small enough to draw."""
    networks = [group[0].network for group in distinct_networks(runs)]
    placed = [(network, positions(network)) for network in networks]
    drawn = [(network, at * [1, -1]) for network, at in placed if at is not None][:PANELS]
    if not drawn:
        return None
    columns = min(3, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure = new_figure(2.7 * columns, 2.9 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.set_axis_off()
    arrow = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 6, "shrinkB": 7}
    for ax, (network, points) in zip(axes, drawn, strict=False):
        edges = network["edges"] or []
        heaviest = max((weight for _, _, weight in edges), default=1.0) or 1.0
        for i, j, weight in edges:
            width = {"linewidth": 0.4 + 1.2 * weight / heaviest}
            if network["directed"]:
                ax.annotate("", points[j], points[i], arrowprops=arrow | width)
            else:
                ax.plot(*points[[i, j]].T, color=GREY, zorder=1, **width)
        size = float(np.clip(1600 / network["agents"], 12, 160))
        ax.scatter(*points.T, s=size, color=LIGHT[0], edgecolors="white", linewidths=0.8, zorder=2)
        rho = "" if network["rho"] is None else rf", $\rho$ = {network['rho']:.3g}"
        ax.set_title(f"{_plain(network['name'])}: {network['agents']} agents{rho}")
        ax.set(aspect="equal", xlim=(-0.08, 1.08), ylim=(-1.08, 0.08))
    return figure


def _panel_title(measure: str) -> str:
    text = symbols(measure)
    return f"{_plain(measure)}   {text}" if text else _plain(measure)


def _plain(text: str) -> str:
    """Text that matplotlib shows as it is: no mathematics, no line breaks, not too long, never
    hidden."""
    clean = "".join(mark if mark.isprintable() else " " for mark in text)
    clean = clean if len(clean) <= 60 else clean[:57] + "..."
    return (" " if clean.startswith("_") else "") + clean.replace("$", r"\$")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that belongs to no window, so that the user's plots stay as
    they are."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def saved(figure: Figure, kind: str) -> bytes:
    """The figure as a PNG or PDF file, which is the same whenever it is drawn."""
    out = io.BytesIO()
    figure.savefig(out, format=kind, metadata=MARKS[kind])
    # it stays for the next kind: to find it takes as long as to draw
    figure.set_layout_engine("none")
    return out.getvalue()
