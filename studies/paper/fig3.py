"""Figure 3: agents of equal size with unequal labels, in three degrees.                [paper,
section VI-B, iii]"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

import decibo
from decibo.report.figures import new_figure
from studies.paper.datasets import (
    AGENTS,
    SAMPLES,
    describe,
    first_step,
    is_mnist,
    pixels,
    regression,
)
from studies.paper.experiment import (
    Claim,
    Progress,
    Result,
    Size,
    judge,
    or_never,
    ordered,
    seed_by_seed,
    tally,
)
from studies.paper.fig2 import SETTINGS, accuracies, paths
from studies.paper.plotting import COLOURS, bands
from studies.paper.tables import Table, across, block, columns, groups, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# share of positives, first to last agent
DEGREES = {"low": (0.5, 0.5), "medium": (0.25, 0.75), "high": (0.02, 0.98)}
STEPS = 200


def ratios(degree: str) -> np.ndarray:
    """The share of positives of every agent."""
    return np.linspace(*DEGREES[degree], AGENTS)


def make(data: decibo.data.Dataset, seed: int, samples: int, degree: str) -> decibo.Problem:
    """The problem with this degree of heterogeneity."""
    return regression(data, seed, samples, split="by_label", ratios=ratios(degree))


def run(data: decibo.data.Dataset, size: Size, progress: Progress) -> Result:
    """Three degrees, several seeds of split, network and start."""
    seeds = size.seed_range(10, 3)
    steps = size.pick(STEPS, STEPS, 40)
    samples = size.pick(SAMPLES, SAMPLES, 200)
    level = 0.97 if is_mnist(data) else 0.9
    one_seed = lambda seed: [curve(data, seed, samples, degree, steps) for degree in DEGREES]
    curves = join(seed_by_seed(seeds, one_seed, progress, after=1))
    shares, unequal = distribution(data, seeds[0], samples)
    progress(1.0)
    summary = outcome(curves, level)
    return Result(
        name="fig3",
        title="Figure 3: heterogeneity of the agents",
        data=describe(data),
        tables={"samples": shares, "heterogeneity": unequal, "curves": curves, "outcome": summary},
        claims=claims(summary, unequal, level),
        settings={
            "share_of_positives": {
                name: f"{low:g} to {high:g}" for name, (low, high) in DEGREES.items()
            },
            "network": "Erdos-Renyi 0.7, Metropolis weights, drawn anew for each seed",
            "AHEAD": SETTINGS,
            "steps": steps,
            "samples": f"{samples} training, {samples} validation",
            "features": pixels(data),
            "start": "x0 = 0; every agent's own y0 and z0 from N(0, 1)",
            "precision": "float32",
            "seeds": list(seeds),
        },
        notes=("b_f^2 and b_g^2 are measured at x0 and y*(x0) of the first seed, in float64.",),
    )


def curve(data: decibo.data.Dataset, seed: int, samples: int, degree: str, steps: int) -> Table:
    """The curve of one degree and seed."""
    network = decibo.networks.erdos_renyi(AGENTS, 0.7, seed=seed)
    step, Y = paths(make(data, seed, samples, degree), network, seed, steps, every=2)
    return block({"degree": degree, "seed": seed}, step=step, **accuracies(data, Y[0]))


def distribution(data: decibo.data.Dataset, seed: int, samples: int) -> tuple[Table, Table]:
    """Samples of either label of every agent, and the measured heterogeneity."""
    shares = []
    spreads = []
    for degree in DEGREES:
        with jax.enable_x64(True):
            problem = make(data, seed, samples, degree)
            measured = decibo.heterogeneity(problem)
        spreads.append({"degree": degree, "b_f2": measured.b_f2, "b_g2": measured.b_g2})
        training = problem.data["training"]
        labels = np.asarray(training["labels"])
        weights = np.asarray(training["weights"])
        positive, negative = (
            (weights * (labels * sign > 0)).sum(axis=1).astype(int) for sign in (1, -1)
        )
        shares.append(
            block({"degree": degree}, agent=np.arange(AGENTS), positive=positive, negative=negative)
        )
    return join(shares), columns(spreads)


def outcome(curves: Table, level: float) -> Table:
    """Final accuracy and steps to the level, for each degree and seed."""
    rows = [
        {"degree": degree, "seed": seed, "level": level}
        | {
            f"final_{name}": float(np.mean(part[name][-5:]))
            for name in ("accuracy", "own_accuracy")
        }
        | {
            f"steps_{name}": first_step(part["step"], part[name], level)
            for name in ("accuracy", "own_accuracy")
        }
        for (degree, seed), part in groups(curves, "degree", "seed")
    ]
    return columns(rows)


def claims(summary: Table, unequal: Table, level: float) -> tuple[Claim, ...]:
    """Less heterogeneity, higher speed and accuracy."""
    f = unequal["b_f2"]
    g = unequal["b_g2"]
    measured = "; ".join(
        f"{d}: b_f^2 {p:.3g}, b_g^2 {q:.3g}"
        for d, p, q in zip(unequal["degree"], f, g, strict=True)
    )
    degrees = Claim(
        "the three splits differ in heterogeneity",
        measured,
        judge(bool((np.diff(f) > 0).all() and (np.diff(g) > 0).all())),
    )
    return (
        degrees,
        *(_speed(summary, name, level) for name in ("accuracy", "own_accuracy")),
        *(_final(summary, name) for name in ("accuracy", "own_accuracy")),
    )


WHOSE = {"accuracy": "mean of y_i", "own_accuracy": "agents' own y_i"}


def _speed(summary: Table, name: str, level: float) -> Claim:
    steps = across(summary, f"steps_{name}", "degree", DEGREES)
    grow = [ordered(row) for row in steps]
    medians = ", ".join(or_never(value) for value in np.median(steps, axis=0))
    return Claim(
        f"less heterogeneity: fewer steps to accuracy {level:g} ({WHOSE[name]})",
        f"medians for low, medium, high: {medians} steps; in this order for {tally(grow)}",
        judge(*grow),
    )


def _final(summary: Table, name: str) -> Claim:
    last = across(summary, f"final_{name}", "degree", DEGREES)
    finite = [row if np.isfinite(row).all() else None for row in last]
    fall = [None if row is None else ordered(-row) for row in finite]
    ends = [None if row is None else bool(row[0] > row[2]) for row in finite]
    medians = ", ".join(f"{value:.4f}" for value in np.median(last, axis=0))
    return Claim(
        f"less heterogeneity: higher final accuracy ({WHOSE[name]})",
        f"medians for low, medium, high: {medians}; in this order for {tally(fall)}, low above high"
        f" for {tally(ends)}",
        judge(*fall),
    )


def draw(result: Result) -> Figure:
    """The samples of every agent, and accuracy against steps."""
    figure = new_figure(9.0, 3.6)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    bars = left.subplots(3, 1, sharex=True)
    unequal = result.tables["heterogeneity"]
    for k, ((degree,), part) in enumerate(groups(result.tables["samples"], "degree")):
        bars[k].bar(part["agent"] + 1, part["positive"], color=COLOURS[0], label="digit 1")
        bars[k].bar(
            part["agent"] + 1,
            part["negative"],
            bottom=part["positive"],
            color=COLOURS[4],
            label="digit 3",
        )
        title = f"{degree}: $b_f^2$ = {unequal['b_f2'][k]:.3g}, $b_g^2$ = {unequal['b_g2'][k]:.3g}"
        bars[k].set_title(("(a) " if k == 0 else "") + title, loc="left", fontsize=8.5)
        bars[k].grid(False)
    bars[0].legend(ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.12), borderaxespad=0)
    bars[1].set_ylabel("training samples")
    bars[2].set(xlabel="agent", xticks=range(1, 11))
    axes = right.subplots(1, 2, sharey=True)
    label = lambda degree: f"{degree} heterogeneity"
    for ax, name in zip(axes, ("accuracy", "own_accuracy"), strict=True):
        bands(
            ax, result.tables["curves"], "degree", "step", name, label=label, lines=("-", "--", ":")
        )
        ax.set(xlabel="step", ylim=(0.8, 1.0), xlim=(0, None))
    axes[0].set_ylabel("test accuracy")
    axes[0].legend(loc="lower right")
    axes[0].set_title("(b) mean of the agents", loc="left")
    axes[1].set_title("(c) agents' own", loc="left")
    return figure
