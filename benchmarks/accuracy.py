"""Steps, gradients, bytes and seconds to a given accuracy, for the six best methods and AHEAD.

    python benchmarks/accuracy.py [--quick]

Every method gets the same budget for tuning: one `decibo.sweep` of 64 settings, 8 values of alpha times 8 of the inner
step. The settings that reach the deepest level in the fewest steps are taken. Levels are shares of |grad Phi(xbar)|^2
at the start. Gradients count products with second derivatives too; bytes are those of all links. The logistic problem
is the paper's on the bundled digits, split by label, with 0.0001 |x|^2 added to f: without it the exponents of useless
pixels go to infinity, and no method gets to 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from timing import Row, interleaved, per_step

import decibo
from decibo.problems.logistic import logistic_loss
from decibo.sweep.sweep import sweep

GROUP = "accuracy"
LEVELS = (1e-2, 1e-4, 1e-6, 1e-8)
TWICE = ("sparkle_gt", "sldbo")  # exact, and send two vectors for each variable


class Setting(NamedTuple):
    """A problem, a network, and the ranges of steps to try."""

    problem: Callable[[], Any]
    network: Any
    alphas: tuple[float, float]
    inners: tuple[float, float]
    steps: int
    every: int


def outer(x, y, d):
    return logistic_loss(y, d["validation"]) + 1e-4 * jnp.sum(x**2)


def logistic() -> decibo.Problem:
    digits = decibo.problems.logistic_hyperparameters(loss="mean", scale=16.0, split="by_label")
    return decibo.Problem(outer, digits.inner, digits.data, jnp.full_like(digits.x0, -6.0), digits.y0, name="logistic")


SETTINGS = {
    "quadratic": Setting(
        lambda: decibo.problems.quadratic(condition=10.0), decibo.ring(10), (3e-3, 1.0), (1e-2, 0.5), 2000, 4
    ),
    "logistic": Setting(logistic, decibo.ring(10), (30.0, 3000.0), (5e-2, 1.0), 1000, 20),
}


def methods(alpha: float = 0.01, inner: float = 0.1) -> dict[str, tuple[Any, Callable[[float, float], dict[str, Any]]]]:
    """Each method, and its settings for a pair of steps."""
    both = lambda a, h: {"alpha": a, "beta": h, "gamma": h}
    matched = lambda a, h: {"alpha": a, "gamma": h}
    penalised = lambda a, h: {"alpha": a, "beta": h / 100, "gamma": h}
    start = {"alpha": alpha, "beta": inner, "gamma": inner}
    return {
        "ahead_exact": (decibo.ahead_exact(alpha=alpha, gamma=inner, lam=100.0), matched),
        "sparkle_ed": (decibo.methods.sparkle_ed(**start), both),
        "sparkle_extra": (decibo.methods.sparkle_extra(**start), both),
        "sparkle_gt": (decibo.methods.sparkle_gt(**start), both),
        "sldbo": (decibo.methods.sldbo(**start), both),
        "dsgda_gt": (decibo.methods.dsgda_gt(alpha=alpha, beta=inner / 100, gamma=inner, lam=100.0), penalised),
        "ahead": (decibo.ahead(alpha=alpha, gamma=inner, lam=100.0), matched),
    }


def reached(steps: np.ndarray, values: np.ndarray) -> list[float]:
    """Steps after which the measure is and stays at each level, for each run: (runs, levels), infinite if never."""
    share = np.where(np.isfinite(values), values / values[:, :1], np.inf)
    worst = np.maximum.accumulate(share[:, ::-1], axis=1)[:, ::-1]  # from here on
    return [[steps[np.argmax(row <= level)] if (row <= level).any() else np.inf for level in LEVELS] for row in worst]


def best(times: np.ndarray) -> int:
    """The run that reaches the most levels, and the deepest of them first."""
    return int(np.lexsort((np.where(np.isfinite(times), times, 0).max(axis=1), -np.isfinite(times).sum(axis=1)))[0])


def one(label: str, at: Setting, quick: bool) -> Iterator[Row]:
    problem = at.problem()
    size = 2 if quick else 8
    steps = at.steps // (10 if quick else 1)
    pairs = [(a, h) for a in np.geomspace(*at.alphas, size) for h in np.geomspace(*at.inners, size)]
    tuned = {}
    counts = {}
    for name, (method, settings) in methods().items():
        grid = [settings(float(a), float(h)) for a, h in pairs]
        options = {"steps": steps, "every": at.every, "measures": ["stationarity"], "progress": False}
        runs = sweep(problem, at.network, method, grid, **options)
        times = np.array(reached(runs.history["step"], runs.history["stationarity"]))
        place = best(times)
        tuned[name] = method.replace(**runs.settings[place])
        counts[name] = times[place]
    yield from _table(label, problem, at, tuned, counts, 100 if quick else 1000)


def _table(label: str, problem: Any, at: Setting, tuned: Any, counts: Any, steps: int) -> Iterator[Row]:
    def run(method: Any, steps: int) -> Any:
        options = {"steps": steps, "every": steps, "measures": ["outer"], "progress": False}
        return lambda: decibo.solve(problem, at.network, method, **options).agents.x

    calls = {f"{name} {n}": run(method, n) for name, method in tuned.items() for n in (1, steps)}
    times = interleaved(calls, 5)
    sent = {}
    for name, method in tuned.items():
        cost = decibo.solve(problem, at.network, method, steps=1, progress=False, measures=["outer"]).cost
        second = float(np.median(per_step(times[f"{name} {steps}"], times[f"{name} 1"], steps)))
        for level, k in zip(LEVELS, counts[name], strict=True):
            what = f"{label}, {name}: steps to {level:g}"
            if not np.isfinite(k):
                yield Row(GROUP, what, None, "steps", note="not reached")
                continue
            sent[name, level] = k * cost.bytes * cost.links
            work = k * (cost.gradients + cost.products) * cost.agents
            spent = {"gradients": work, "bytes": sent[name, level], "seconds": k * second, "method": repr(method)}
            note = ", ".join(f"{value:.3g} {key}" for key, value in spent.items() if key != "method")
            yield Row(GROUP, what, float(k), "steps", note=note, extra=spent)
    if label == "quadratic":
        yield from _verdicts(label, sent)


def _verdicts(label: str, sent: dict[tuple[str, float], float]) -> Iterator[Row]:
    level = 1e-6
    for name, target in (("ahead_exact", ">= 1"), ("ahead", "<= 0")):
        yield Row(GROUP, f"{label}: {name} reaches {level:g}", float((name, level) in sent), "", target=target)
    for other in TWICE:
        if ("ahead_exact", level) in sent and (other, level) in sent:
            share = sent["ahead_exact", level] / sent[other, level]
            yield Row(GROUP, f"{label}: bytes to {level:g}, ahead_exact / {other}", share, target="<= 0.5")


def rows(quick: bool) -> Iterator[Row]:
    with jax.enable_x64(True):
        for label, at in SETTINGS.items():
            yield from one(label, at, quick)


if __name__ == "__main__":
    from all import run_alone

    run_alone(rows)
