"""Drawings of the comparison in time, the rates and the minimax case."""

from __future__ import annotations

from typing import Any

import numpy as np

from decibo.paper.plotting import COLOURS, bands, over_seeds, spread
from decibo.paper.result import Result, groups
from decibo.report.figures import letter

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))


def fig4(plt: Any, r: Result) -> Any:
    """Accuracy and training loss against time, steps, gradients with products, and bytes."""
    figure, axes = plt.subplots(3, 4, figsize=(10.5, 6.6), layout="constrained", sharex="col", sharey="row")
    step = {name: np.median(part["seconds_per_step"]) for (name,), part in groups(r.tables["seconds"], "method")}
    curves = dict(r.tables["curves"])
    curves["seconds"] = curves["step"] * np.array([step[name] for name in curves["method"]])
    curves["megabytes"] = curves["bytes"] / 1e6
    xs = {"seconds": "seconds", "step": "steps", "work": "gradients + products", "megabytes": "megabytes sent"}
    ys = {"accuracy": "test accuracy", "training_loss": "training loss", "validation_loss": "validation loss"}
    for row, (y, ylabel) in zip(axes, ys.items(), strict=True):
        for ax, (x, xlabel) in zip(row, xs.items(), strict=True):
            for k, ((name,), part) in enumerate(groups(curves, "method")):
                at, values = over_seeds(part, x, y)
                middle, low, high = spread(values)
                start = 1 if at[0] == 0 else 0  # zero has no place on a logarithmic axis
                ax.plot(at[start:], middle[start:], linestyle=STYLES[k], color=COLOURS[k], label=name)
                ax.fill_between(at[start:], low[start:], high[start:], color=COLOURS[k], alpha=0.15, linewidth=0)
            ax.set_xscale("log")
            if y == list(ys)[-1]:
                ax.set_xlabel(xlabel)
        row[0].set_ylabel(ylabel)
    top = float(np.nanmax(curves["accuracy"]))
    axes[0, 0].set_ylim(top - 0.04, top + 0.003)
    for row, y in zip(axes[1:], ("training_loss", "validation_loss"), strict=True):
        row[0].set_yscale("log")
        row[0].set_ylim(0.9 * np.nanmin(curves[y]), 1.1 * curves[y][0])
        row[0].yaxis.set_major_formatter(plt.ScalarFormatter())
        row[0].yaxis.set_minor_formatter(plt.NullFormatter())
        row[0].set_yticks([0.05, 0.1, 0.2, 0.5])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def rates(plt: Any, r: Result) -> Any:
    """R(K) of both corollaries with the predicted slopes, and the slopes of other problems."""
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained")
    for ax, which, power in zip(axes, (1, 2), (-1 / 3, -2 / 3), strict=False):
        for k, ((name,), part) in enumerate(groups(r.tables["curves"], "curve")):
            if not name.startswith(f"Corollary {which}"):
                continue
            label = name.split(", ", 1)[1].replace("practical constants, ", "")
            ax.loglog(part["K"], part["R"], "os^"[k % 3] + "-", color=COLOURS[k % 3], markersize=4, label=label)
            if k % 3 == 0:
                guide = part["R"][0] * (part["K"] / part["K"][0]) ** power
                ax.loglog(part["K"], guide, "k:", label=f"slope {'-1/3' if which == 1 else '-2/3'}")
        ax.set(xlabel="K", ylabel="R(K)", ylim=(ax.get_ylim()[0] / 30, None))
        ax.legend(fontsize=6.5, loc="lower left")
    table = r.tables["ranges"]
    for k, ((start,), part) in enumerate(groups(table, "start")):
        axes[2].plot(np.full(len(part["slope"]), k), part["slope"], "o", color=COLOURS[k], alpha=0.7, label=start)
    axes[2].axhline(-1 / 3, color="k", linestyle=":", label="-1/3")
    axes[2].set(xticks=range(2), xticklabels=list(dict.fromkeys(table["start"].tolist())), xlim=(-0.5, 1.5))
    axes[2].set(xlabel="start", ylabel="slope")
    letter(axes, ["Corollary 1", "Corollary 2", "Corollary 1, other problems"])
    return figure


def minimax(plt: Any, r: Result) -> Any:
    """Stationarity and area against steps; R(K)."""
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.1), layout="constrained")
    table, rate = r.tables["curves"], r.tables["rate"]
    bands(axes[0], table, "method", "step", "stationarity", styles=("-", "--", "-.", ":"), positive=True)
    bands(axes[1], table, "method", "step", "auc", styles=("-", "--", "-.", ":"))
    axes[0].set(yscale="log", xlabel="step", ylabel=r"$|\nabla\Phi(\bar x)|^2$")
    best = float(np.nanmax(table["auc"]))
    axes[1].set(xlabel="step", ylabel="test AUC", ylim=(best - 0.06, best + 0.005))
    axes[1].legend(loc="lower right")
    axes[2].loglog(rate["K"], rate["R"], "o-", color=COLOURS[0], label="AHEAD, lam = 2")
    axes[2].loglog(rate["K"], rate["R"][-1] * (rate["K"] / rate["K"][-1]) ** (-2 / 3), "k:", label="slope -2/3")
    axes[2].set(xlabel="K", ylabel="R(K)")
    axes[2].legend()
    letter(axes, ["stationarity", "area under the ROC curve", "Corollary 2"])
    return figure
