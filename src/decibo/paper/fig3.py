"""Figure 3: agents of equal size with unequal labels, in three degrees.                [paper, section VI-B, iii]"""

from __future__ import annotations

import jax
import numpy as np

from decibo.algorithm.methods import ahead
from decibo.data.dataset import Dataset
from decibo.execute.start import random_start
from decibo.network.graphs import erdos_renyi
from decibo.paper.claims import Claim, judge, judge_seeds, tally
from decibo.paper.classify import AGENTS, SAMPLES, accuracy, first_step, regression, smooth_scale
from decibo.paper.datasets import described, is_mnist
from decibo.paper.fig2 import SETTINGS, rows_y
from decibo.paper.result import Progress, Result, Size, Table, block, columns, groups, join, quiet
from decibo.paper.sweep import sweep
from decibo.problem.heterogeneity import heterogeneity
from decibo.problem.problem import Problem

DEGREES = {"low": (0.5, 0.5), "medium": (0.25, 0.75), "high": (0.02, 0.98)}  # share of positives, first to last agent
STEPS = 200


def ratios(degree: str) -> np.ndarray:
    """The share of positives of every agent."""
    return np.linspace(*DEGREES[degree], AGENTS)


def make(data: Dataset, seed: int, samples: int, degree: str) -> Problem:
    """The problem with this degree of heterogeneity."""
    return regression(data, seed, samples, scale=smooth_scale(data), split="by_label", ratios=ratios(degree))


def run(data: Dataset, size: Size, progress: Progress = quiet) -> Result:
    """Three degrees, several seeds of split, network and start."""
    seeds, steps, samples = size.some(10, 3), size.of(STEPS, STEPS, 40), size.of(SAMPLES, SAMPLES, 200)
    level = 0.97 if is_mnist(data) else 0.9
    parts = []
    for done, seed in enumerate(seeds):
        parts += [one(data, seed, samples, degree, steps) for degree in DEGREES]
        progress((done + 1) / (len(seeds) + 1))
    curves = join(parts)
    shares, unequal = distribution(data, seeds[0], samples)
    progress(1.0)
    summary = outcome(curves, level)
    return Result(
        name="fig3",
        title="Figure 3: heterogeneity of the agents",
        data=described(data),
        tables={"samples": shares, "heterogeneity": unequal, "curves": curves, "outcome": summary},
        claims=claims(summary, unequal, level),
        settings={
            "share_of_positives": {name: f"{low:g} to {high:g}" for name, (low, high) in DEGREES.items()},
            "network": "Erdos-Renyi 0.7, Metropolis weights, drawn anew for each seed",
            "AHEAD": SETTINGS,
            "steps": steps,
            "samples": f"{samples} training, {samples} validation",
            "features": f"pixels between 0 and 1, divided by {smooth_scale(data):g}",
            "start": "x0 = 0; every agent's own y0 and z0 from N(0, 1)",
            "precision": "float32",
            "seeds": list(seeds),
        },
        notes=("b_f^2 and b_g^2 are measured at x0 and y*(x0) of the first seed, in float64.",),
    )


def one(data: Dataset, seed: int, samples: int, degree: str, steps: int) -> Table:
    """The curve of one degree and seed."""
    seen = sweep(
        make(data, seed, samples, degree),
        erdos_renyi(AGENTS, 0.7, seed=seed),
        ahead(**SETTINGS),
        steps=steps,
        every=2,
        measures={"y": rows_y},
        start=random_start(seed, {"x": 0.0, "y": 1.0, "z": 1.0}),
    )
    Y = seen.rows["y"][0]
    right, own = accuracy(data, Y.mean(axis=1)), accuracy(data, Y).mean(axis=1)
    return block({"degree": degree, "seed": seed}, step=seen.steps, accuracy=right, own_accuracy=own)


def distribution(data: Dataset, seed: int, samples: int) -> tuple[Table, Table]:
    """Samples of either label of every agent, and the measured heterogeneity."""
    shares, unequal = [], []
    for degree in DEGREES:
        with jax.enable_x64(True):
            problem = make(data, seed, samples, degree)
            parts = heterogeneity(problem)
        unequal.append({"degree": degree, "b_f2": parts.b_f2, "b_g2": parts.b_g2})
        d = problem.data["training"]
        labels, weights = np.asarray(d["labels"]), np.asarray(d["weights"])
        up, down = ((weights * (labels * sign > 0)).sum(axis=1) for sign in (1, -1))
        shares.append(
            block({"degree": degree}, agent=np.arange(AGENTS), positive=up.astype(int), negative=down.astype(int))
        )
    return join(shares), columns(unequal)


def outcome(curves: Table, level: float) -> Table:
    """Final accuracy and steps to the level, for each degree and seed."""
    rows = [
        {"degree": degree, "seed": seed, "level": level}
        | {f"final_{name}": float(np.mean(part[name][-5:])) for name in ("accuracy", "own_accuracy")}
        | {f"steps_{name}": first_step(part["step"], part[name], level) for name in ("accuracy", "own_accuracy")}
        for (degree, seed), part in groups(curves, "degree", "seed")
    ]
    return columns(rows)


def claims(summary: Table, unequal: Table, level: float) -> tuple[Claim, ...]:
    """Less heterogeneity, higher speed and accuracy."""
    f, g = unequal["b_f2"], unequal["b_g2"]
    measured = "; ".join(f"{d}: b_f^2 {p:.3g}, b_g^2 {q:.3g}" for d, p, q in zip(unequal["degree"], f, g, strict=True))
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


WHOSE = {"accuracy": "of the mean of y_i", "own_accuracy": "of the agents' own y_i"}


def by_degree(summary: Table, name: str) -> np.ndarray:
    """(seeds, degrees)."""
    return np.stack([summary[name][summary["degree"] == degree] for degree in DEGREES], axis=1)


def _speed(summary: Table, name: str, level: float) -> Claim:
    steps = by_degree(summary, f"steps_{name}")
    found = [None if np.isinf(r).all() else bool(r[0] <= r[1] <= r[2] and r[0] < r[2]) for r in steps]
    shown = ", ".join(f"{v:.0f}" if np.isfinite(v) else "never" for v in np.median(steps, axis=0))
    return Claim(
        f"less heterogeneity, fewer steps to accuracy {level:g} {WHOSE[name]}",
        f"low, medium, high: medians {shown} steps; ordered in {tally(found)}",
        judge_seeds(found),
    )


def _final(summary: Table, name: str) -> Claim:
    last = by_degree(summary, f"final_{name}")
    found = [bool(r[0] >= r[1] >= r[2] and r[0] > r[2]) if np.isfinite(r).all() else None for r in last]
    ends = [bool(r[0] > r[2]) if np.isfinite(r).all() else None for r in last]
    shown = ", ".join(f"{v:.4f}" for v in np.median(last, axis=0))
    return Claim(
        f"less heterogeneity, higher final accuracy {WHOSE[name]}",
        f"low, medium, high: medians {shown}; ordered in {tally(found)}, low above high in {tally(ends)}",
        judge_seeds(found),
    )
