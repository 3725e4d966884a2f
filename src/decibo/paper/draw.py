"""One drawing for each experiment."""

from __future__ import annotations

from typing import Any

import numpy as np

from decibo.paper import draw_more
from decibo.paper.plotting import COLOURS, bands, over_seeds, spread
from decibo.paper.result import Result, groups
from decibo.report.figures import letter


def fig1(plt: Any, r: Result) -> Any:
    """Losses and gap; errors; trajectories on contours of both objectives."""
    figure, axes = plt.subplots(2, 2, figsize=(7.2, 6.0), layout="constrained")
    (a, b), (c, d) = axes
    table, paths = r.tables["curves"], r.tables["trajectories"]
    main = {name: values[table["method"] == "AHEAD"] for name, values in table.items()}
    exact = {name: values[table["method"] == "ahead_exact"] for name, values in table.items()}
    for name, label, colour in (("f", "f", 0), ("g", "g", 1), ("gap", "g(x, y) $-$ g(x, z)", 2)):
        _line(a, main, name, label, COLOURS[colour])
        _line(a, exact, name, None, COLOURS[colour], "--")
    a.set(xlim=(0, 400), xlabel="step", ylabel="value", ylim=(-15, 75))
    a.plot([], [], "k--", linewidth=1, label="ahead_exact")
    a.legend(loc="upper right")
    lines = (("distance_x", r"$|\bar x - x^*|^2$", 0), ("distance_y", r"$|\bar y - y^*|^2$", 5),
             ("consensus_x", "consensus error x", 1), ("consensus_y", "consensus error y", 4),
             ("consensus_z", "consensus error z", 3))  # fmt: skip
    for name, label, colour in lines:
        _line(b, main, name, label, COLOURS[colour], band=name == "distance_x")
        if name.startswith("distance"):
            _line(b, exact, name, None, COLOURS[colour], "--", band=False)
    b.plot([], [], "k--", linewidth=1, label="ahead_exact")
    b.set(yscale="log", ylim=(1e-12, 3e5), xlabel="step", ylabel="squared error")
    b.legend(ncols=2, loc="upper right", fontsize=7)
    for ax, which in ((c, "outer"), (d, "inner")):
        _trajectories(ax, paths, which)
    handles, labels = c.get_legend_handles_labels()
    c.legend(handles, labels, loc="upper right", fontsize=7)
    letter(axes, ["losses and constraint", "optimality gap and consensus", "paths on the outer objective",
                  "paths on the inner objective"])  # fmt: skip
    return figure


def _line(ax: Any, table: Any, name: str, label: str | None, colour: str, style: str = "-", band: bool = True) -> None:
    at, rows = over_seeds(table, "step", name)
    middle, low, high = spread(rows)
    ax.plot(at, middle, style, color=colour, label=label)
    if band:
        ax.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)


def _trajectories(ax: Any, paths: Any, which: str) -> None:
    ours = {name: values[paths["method"] == "AHEAD"] for name, values in paths.items()}
    theirs = {n: v[(paths["method"] == "ahead_exact") & (paths["agent"] == -1)] for n, v in paths.items()}
    both = [np.concatenate([ours[name], theirs[name]]) for name in ("x", "y")]
    span = [(values.min() - 0.4, values.max() + 0.4) for values in both]
    X, Y = np.meshgrid(np.linspace(*span[0], 120), np.linspace(*span[1], 120))
    b, c, e = np.arange(1.0, 11.0), np.repeat([2.0, 4.0], 5), 10.0
    if which == "outer":
        Z = np.mean([(2 * Y - one) ** 2 / 2 for one in b], axis=0)
    else:
        Z = np.mean([(one * (X + Y) - e) ** 2 / 2 for one in c], axis=0)
    ax.contour(X, Y, Z, levels=np.quantile(Z, np.linspace(0.02, 0.95, 12)), colors="0.7", linewidths=0.7)
    for (agent,), part in groups(ours, "agent"):
        mean = agent == -1
        ax.plot(part["x"], part["y"], color=COLOURS[1] if mean else COLOURS[0], linewidth=2 if mean else 0.7,
                alpha=1 if mean else 0.6, label="mean" if mean else ("agents" if agent == 0 else None))  # fmt: skip
    ax.plot(theirs["x"], theirs["y"], "--", color=COLOURS[2], label="mean, ahead_exact")
    ax.plot(0.25, 2.75, "k*", markersize=9, label="solution")
    ax.set(xlabel="x", ylabel="y", xlim=span[0], ylim=span[1])
    ax.grid(False)


def fig2(plt: Any, r: Result) -> Any:
    """Accuracy of the mean, of the agents, and the training loss."""
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.9), layout="constrained")
    names = ("accuracy", "own_accuracy", "training_loss")
    for ax, name in zip(axes, names, strict=True):
        bands(
            ax, r.tables["curves"], "rho", "step", name, label=lambda rho: rf"$\rho$ = {rho:g}", styles=("-", "--", ":")
        )
        ax.set(xlabel="step", xlim=(0, 80), ylabel="test accuracy" if "acc" in name else "training loss")
        if "acc" in name:
            top = float(np.nanmax(r.tables["curves"][name]))
            ax.set_ylim(top - 0.05, top + 0.005)
    axes[1].legend(loc="lower right")
    letter(axes, ["mean of the agents", "agents' own", "mean of the agents"])
    return figure


def table1(plt: Any, r: Result) -> Any:
    """Accuracy and consensus errors by column, beside what the paper prints."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.0), layout="constrained", width_ratios=(1, 1.35))
    table = r.tables["columns"]
    at = table["column"]
    runs = r.tables["runs"]
    axes[0].plot(runs["column"], runs["accuracy"], "o", color=COLOURS[0], alpha=0.45, markersize=4, label="each seed")
    axes[0].plot(at, table["accuracy"], "_", color=COLOURS[0], markersize=14, markeredgewidth=2, label="mean")
    axes[0].plot(at, table["printed_accuracy"], "D", color=COLOURS[1], markersize=4.5, label="printed")
    for column, lost, seeds in zip(at, table["diverged"], table["seeds"], strict=True):
        if lost:
            axes[0].text(column, 0.865, f"N.A.\n{lost} of {seeds}", ha="center", va="bottom", fontsize=7.5)
    axes[0].set(xlabel="column", ylabel="test accuracy", xticks=at, ylim=(0.86, 1.005))
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.28, 0.12), fontsize=7.5)
    for k, name in enumerate(("ce_x", "ce_y", "ce_z")):
        place = at + 0.22 * (k - 1)
        axes[1].plot(place, table[name], "o", color=COLOURS[k], label=f"{name[-1]}, measured")
        axes[1].plot(place, table[f"printed_{name}"], "D", color=COLOURS[k], markerfacecolor="none",
                     markersize=5, label=f"{name[-1]}, printed")  # fmt: skip
    axes[1].set(xlabel="column", ylabel="consensus error", xticks=at, yscale="log")
    axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    letter(axes, ["accuracy after 800 steps", "consensus errors, means over seeds"])
    return figure


def fig3(plt: Any, r: Result) -> Any:
    """The samples of every agent, and accuracy against steps."""
    figure = plt.figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.25))
    bars = left.subplots(3, 1, sharex=True)
    unequal = r.tables["heterogeneity"]
    for k, ((degree,), part) in enumerate(groups(r.tables["samples"], "degree")):
        bars[k].bar(part["agent"] + 1, part["positive"], color=COLOURS[0], label="digit 1")
        bars[k].bar(part["agent"] + 1, part["negative"], bottom=part["positive"], color=COLOURS[4], label="digit 3")
        text = f"{degree}: $b_f^2$ = {unequal['b_f2'][k]:.3g}, $b_g^2$ = {unequal['b_g2'][k]:.3g}"
        bars[k].set_title(("(a) " if k == 0 else "") + text, loc="left", fontsize=8.5)
        bars[k].grid(False)
    bars[0].legend(ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.12), borderaxespad=0)
    bars[1].set_ylabel("training samples")
    bars[2].set(xlabel="agent", xticks=range(1, 11))
    axes = right.subplots(1, 2, sharey=True)
    for ax, name in zip(axes, ("accuracy", "own_accuracy"), strict=True):
        bands(
            ax,
            r.tables["curves"],
            "degree",
            "step",
            name,
            label=lambda d: f"{d} heterogeneity",
            styles=("-", "--", ":"),
        )
        ax.set(xlabel="step", ylim=(0.8, 1.0), xlim=(0, None))
    axes[0].set_ylabel("test accuracy")
    axes[0].legend(loc="lower right")
    axes[0].set_title("(b) mean of the agents", loc="left")
    axes[1].set_title("(c) agents' own", loc="left")
    return figure


DRAWINGS = {
    "fig1": fig1,
    "fig2": fig2,
    "table1": table1,
    "fig3": fig3,
    "fig4": draw_more.fig4,
    "rates": draw_more.rates,
    "minimax": draw_more.minimax,
}
