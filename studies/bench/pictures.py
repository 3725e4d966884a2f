"""Pictures of a benchmark for a paper: performance profiles, and curves with bands
over the seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import missing
from decibo.report.figures import DASHES, LIGHT, RUN_STYLE, letter, line_style, new_figure, saved
from studies.bench.ranks import costs, curve, profile
from studies.bench.storage import UNITS, Result
from studies.bench.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROFILES = (
    "The share of all instances that a method solves within a factor of what the best one needs."
    " At 1, on the left, it is how often the method is the best; on the right, how much it solves"
    " at all."
)
CURVES = (
    "What each task is judged by, relative to the start, against gradient-equivalents of all"
    " agents: the median over the seeds, within the quartiles."
)
SHOWN = ("steps", "work", "bytes", "seconds")
MOST = 9  # panels of curves
FLOOR = 1e-14


def drawn(results: Sequence[Result]) -> dict[str, bytes]:
    """The pictures by name, as PNG; the same results give the same pictures."""
    try:
        import matplotlib
    except ImportError as error:
        raise missing("matplotlib", "Drawing a benchmark", "plot") from error
    names = list(dict.fromkeys(result.method for result in results))
    with matplotlib.rc_context(RUN_STYLE):  # type: ignore[arg-type]
        return {
            "profiles": saved(_profiles(results, names), "png"),
            "curves": saved(_curves(results, names), "png"),
        }


def _profiles(results: Sequence[Result], names: Sequence[str]) -> Figure:
    found = costs(results)
    factors = np.geomspace(1, 100, 200)
    figure = new_figure(9.0, 6.2)
    axes = figure.subplots(2, 2, sharey=True)
    letter(axes, [UNITS[axis] for axis in SHOWN])
    for ax, axis in zip(axes.ravel(), SHOWN, strict=True):
        shares = (
            profile(found, axis, factors)
            if found.instances
            else np.zeros((len(factors), len(names)))
        )
        for k, name in enumerate(found.methods):
            _line(ax, names.index(name), factors, shares[:, k], name)
        ax.set(xscale="log", xlim=(1, 100), ylim=(0, 1.02), xlabel="factor of the least")
    axes[0, 0].set_ylabel("share of instances")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _curves(results: Sequence[Result], names: Sequence[str]) -> Figure:
    scenarios = list(dict.fromkeys(result.scenario for result in results))
    kinds: dict[str, tuple[str, str]] = {}
    for scenario in scenarios:  # one of each kind
        kinds.setdefault(TASKS[scenario[0]].kind, scenario)
    chosen = list(kinds.values())[:MOST]
    columns = min(3, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(3.4 * columns, 2.9 * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False)
    letter(axes, [f"{task}, {network}" for task, network in chosen])
    for ax, scenario in zip(axes.ravel(), chosen, strict=False):
        lowest = [
            _band(ax, results, result, names.index(result.method))
            for result in results
            if result.scenario == scenario
        ]
        floor = FLOOR if TASKS[scenario[0]].judged != "phi" else 1e-5
        ax.set(
            yscale="log", xscale="log", xlabel=UNITS["work"], ylim=(max(floor, min(lowest) / 3), 20)
        )
    for ax in axes.ravel()[len(chosen) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("relative to the start")
    handles = {
        label: line
        for ax in axes.ravel()
        for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=5)
    return figure


def _band(ax: Axes, results: Sequence[Result], result: Result, k: int) -> float:
    """Draw a result; returns how low its median comes."""
    spent, found = curve(results, result, "work")
    above = lambda values: np.maximum(np.where(np.isfinite(values), values, np.nan), FLOOR / 10)
    _line(ax, k, spent, above(found.median), result.method)
    ax.fill_between(
        spent,
        above(found.low),
        above(found.high),
        color=LIGHT[line_style(k)[0]],
        alpha=0.15,
        linewidth=0,
    )
    return float(np.min(found.median, initial=1.0, where=np.isfinite(found.median)))


def _line(ax: Axes, k: int, x: np.ndarray, y: np.ndarray, label: str) -> None:
    colour, dash = line_style(k)
    ax.plot(x, y, color=LIGHT[colour], linestyle=DASHES[dash], label=label, linewidth=1.3)
