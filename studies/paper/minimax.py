"""Corollary 2's setting, g = -f, on a real data set: the area under the ROC curve. [section III-C]

The problem is the saddle form of the area (decibo.problems.minimax("auc")), with unequal shares of
positives. The paper's method is compared with descent ascent (dgda), with gt_gda, and with its own
direction under gradient tracking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.problems.minimax import minimax_auc
from decibo.report.figures import letter, new_figure
from studies.paper.datasets import describe, subsample
from studies.paper.experiment import (
    Claim,
    Progress,
    Result,
    Size,
    judge,
    paragraphs,
    record,
    seed_by_seed,
    tally,
)
from studies.paper.plotting import COLOURS, LINES, bands
from studies.paper.tables import Table, block, columns, groups, join, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENTS = 10
ALPHA = 0.03  # tracking needs alpha and gamma this small
GAMMA = 0.09
RIDGE = 0.1
FIRST = {"alpha": 0.5, "gamma": 1.5}  # Corollary 2's steps at K = 1


def method(lam: float, alpha: float = ALPHA, gamma: float = GAMMA) -> decibo.Algorithm:
    """AHEAD's minimax case with matched steps of y and z."""
    return decibo.methods.ahead_minimax(alpha=alpha, beta=gamma / lam, gamma=gamma, lam=lam)


METHODS = {
    "AHEAD, lam = 2": method(2.0),
    "dgda": decibo.methods.dgda(alpha=ALPHA, beta=GAMMA),
    "gt_gda": decibo.methods.gt_gda(alpha=ALPHA, beta=GAMMA),
    "AHEAD with tracking": decibo.compose(
        decibo.direction.minimax_penalty(2.0),
        decibo.consensus.tracking(),
        x=ALPHA,
        y=GAMMA / 2,
        z=GAMMA,
    ),
}


def stationarity(s: decibo.Snapshot) -> jax.Array:
    """|grad Phi(xbar)|^2, cheap enough for every step: f is quadratic in its one y, so one Newton
    step finds y*(x)."""
    unravel = s.functions.x.unravel

    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(lambda d: s.functions.outer(unravel(x), y, d))(s.data))

    x = s.mean("x")
    zero = jnp.zeros(())
    slope_y = jax.grad(f, argnums=1)
    best = -slope_y(x, zero) / jax.grad(slope_y, argnums=1)(x, zero)
    return jnp.sum(jax.grad(f)(x, best) ** 2)


def mean_x(s: decibo.Snapshot) -> jax.Array:
    """xbar."""
    return s.mean("x")


def make(data: decibo.data.Dataset, seed: int) -> tuple[decibo.Problem, decibo.Network]:
    """Agents of equal size whose shares of positives range from 0.2 to 1.8 times the mean, and
    their network."""
    share = float((data.labels > 0).mean())
    ratios = np.linspace(0.2, 1.8, AGENTS) * min(share, 0.5)
    problem = minimax_auc(data, AGENTS, ridge=RIDGE, split="by_label", ratios=ratios, seed=seed)
    return problem, decibo.networks.erdos_renyi(AGENTS, 0.7, seed=seed)


NOTES = """\
|grad Phi|^2 is exact, and R(K) is its mean over every step.

With alpha = 0.1 and gamma = 0.3 the methods with gradient tracking diverge and the others do not;
with a ridge of 0.01, 1,000 steps are too few for any method to settle. Hence these step sizes and
this ridge.
"""


def run(data: decibo.data.Dataset, size: Size, progress: Progress) -> Result:
    """Paths of all methods over seeds; R(K) under Corollary 2's rule."""
    origin = describe(data)
    data = subsample(data, size.pick(6000, 3000, 300))
    seeds = size.seed_range(5, 2)
    steps = size.pick(3000, 1000, 100)
    Ks = size.pick([30, 100, 300, 1000, 3000], [30, 100, 300], [10, 30])
    curves = join(seed_by_seed(seeds, lambda seed: one_seed(data, seed, steps), progress, after=1))
    rate = corollary2(data, Ks)
    progress(1.0)
    return Result(
        name="minimax",
        title="Corollary 2: the minimax case on real data",
        data=f"{origin}; {len(data.labels)} samples used",
        tables={"curves": curves, "rate": rate},
        claims=claims(curves, rate, same_as_dgda(data)),
        settings={
            "problem": f"area under the ROC curve, square-loss saddle form, ridge {RIDGE:g}",
            "network": "Erdos-Renyi 0.7, 10 agents, Metropolis weights",
            "split": "agents of equal size, shares of positives from 0.2 to 1.8 times the mean",
            "steps": steps,
            "alpha": ALPHA,
            "gamma": GAMMA,
            "Corollary 2": (
                "lam = 2, alpha = {alpha:g} K^(-1/3), gamma = lam beta = {gamma:g} K^(-1/3)".format(
                    **FIRST
                )
            ),
            "precision": "float64",
            "seeds": list(seeds),
        },
        notes=paragraphs(NOTES),
    )


def one_seed(data: decibo.data.Dataset, seed: int, steps: int) -> list[Table]:
    """Stationarity and test area of every method."""
    problem, network = make(data, seed)
    measures = [("stationarity", stationarity), ("x", mean_x)]
    every = max(1, steps // 50)
    parts = []
    for name, entry in METHODS.items():
        history = record(
            problem, network, entry, steps=steps, every=every, measures=measures
        ).history
        areas = np.array([area(data, x) for x in history["x"][0]])
        fixed = {"method": name, "seed": seed}
        parts.append(
            block(fixed, step=history["step"], stationarity=history["stationarity"][0], auc=areas)
        )
    return parts


def area(data: decibo.data.Dataset, x: np.ndarray) -> float:
    """The area under the ROC curve of the test samples, ties counted half; x is (a, c, w)."""
    scores = data.test_features @ x[2:]
    positive = data.test_labels > 0
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(positive.sum())
    negatives = int((~positive).sum())
    return float(
        (ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    )


def corollary2(data: decibo.data.Dataset, Ks: list[int], seed: int = 0) -> Table:
    """R(K), a run for each K with steps proportional to K^(-1/3)."""
    problem, network = make(data, seed)
    rows = []
    for K in Ks:
        alpha = FIRST["alpha"] * K ** (-1 / 3)
        gamma = FIRST["gamma"] * K ** (-1 / 3)
        by = method(2.0, alpha, gamma)
        runs = record(problem, network, by, steps=K, measures=[("s", stationarity)])
        rows.append(
            {"K": K, "R": float(np.mean(runs.history["s"][0][:-1])), "alpha": alpha, "gamma": gamma}
        )
    return columns(rows)


def same_as_dgda(data: decibo.data.Dataset) -> float:
    """The largest difference of xbar between lam = 1, beta = gamma, y0 = z0 and descent ascent,
    over 50 steps."""
    problem, network = make(data, 0)
    ours, theirs = (
        record(problem, network, by, steps=50, every=10, measures=[("x", mean_x)]).history["x"]
        for by in (method(1.0), METHODS["dgda"])
    )
    return float(np.abs(ours - theirs).max())


def slope(rate: Table) -> float:
    """Of log R over log K, by least squares."""
    return float(np.polyfit(np.log(rate["K"]), np.log(rate["R"]), 1)[0])


def claims(curves: Table, rate: Table, difference: float) -> tuple[Claim, ...]:
    """The corollary's rate, its reduction to descent ascent, the missing penalty error, and the
    floor."""
    last = {name: _ends(curves, name) for name in METHODS}
    exact = [
        vanishes(*pair)
        for pair in zip(last["AHEAD with tracking"], last["AHEAD, lam = 2"], strict=True)
    ]
    overall = slope(rate)
    late = slope({name: values[-2:] for name, values in rate.items()})
    listed = ", ".join(f"{name} {np.median(values[:, 1]):.1e}" for name, values in last.items())
    return (
        Claim(
            "with lam = 1, beta = gamma and y0 = z0 it is distributed gradient descent ascent",
            f"xbar differs by at most {difference:.1e} in 50 steps",
            judge(difference < 1e-10),
        ),
        Claim(
            "Corollary 2: R(K) falls like K^(-2/3) or faster",
            f"slope {overall:+.3f} for K from {rate['K'][0]} to {rate['K'][-1]}, {late:+.3f}"
            " between the last two",
            judge(True if late <= -2 / 3 + 0.02 else (False if late > -1 / 3 else None)),
            "a statement about large K: while slow directions still contribute, slopes stay"
            " above it",
        ),
        Claim(
            "no penalty error for finite lam: what is left is heterogeneity",
            f"with gradient tracking the floor vanishes for {tally(exact)}; |grad Phi|^2 at the"
            f" end: {listed}",
            judge(*exact),
        ),
    )


def vanishes(tracked: np.ndarray, plain: np.ndarray) -> bool | None:
    """Whether the last of one is far below the last of the other; None if neither has settled."""
    if tracked[1] < 0.01 * plain[1]:
        return True
    return None if tracked[1] < 0.9 * tracked[0] else False


def _ends(curves: Table, name: str) -> np.ndarray:
    """Stationarity before the last tenth and at the end, for each seed."""
    values = [part["stationarity"] for _, part in groups(select(curves, method=name), "seed")]
    return np.array([(row[-1 - len(row) // 10], row[-1]) for row in values])


def draw(result: Result) -> Figure:
    """Stationarity and area against steps; R(K)."""
    figure = new_figure(9.6, 3.1)
    axes = figure.subplots(1, 3)
    table = result.tables["curves"]
    rate = result.tables["rate"]
    bands(axes[0], table, "method", "step", "stationarity", lines=LINES, positive=True)
    bands(axes[1], table, "method", "step", "auc", lines=LINES)
    axes[0].set(yscale="log", xlabel="step", ylabel=r"$|\nabla\Phi(\bar x)|^2$")
    best = float(np.nanmax(table["auc"]))
    axes[1].set(xlabel="step", ylabel="test AUC", ylim=(best - 0.06, best + 0.005))
    axes[1].legend(loc="lower right")
    axes[2].loglog(rate["K"], rate["R"], "o-", color=COLOURS[0], label="AHEAD, lam = 2")
    axes[2].loglog(
        rate["K"], rate["R"][-1] * (rate["K"] / rate["K"][-1]) ** (-2 / 3), "k:", label="slope -2/3"
    )
    axes[2].set(xlabel="K", ylabel="R(K)")
    axes[2].legend()
    letter(axes, ["stationarity", "area under the ROC curve", "Corollary 2"])
    return figure
