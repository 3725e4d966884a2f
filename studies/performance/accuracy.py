"""Steps, gradients, bytes and seconds to a given accuracy, for the best methods, F2SA-2 on the
network, and AHEAD.

    python -m studies.performance.accuracy [--quick]

Every method gets the same budget for tuning, as many settings of as many steps: values of alpha
times values of the inner step times 3 of what else the method has: lam for penalties (10, 100,
1000), the weight of the moving average for SPARKLE (0.2, 0.5, 1; 1 is none), the ratio of the two
inner steps for SLDBO (1/3, 1, 3). The settings that reach the deepest level in the fewest steps are
taken. A method whose best step sizes lie at an edge of the grid is tuned once more beyond it, and a
row says so. Levels are shares of |grad Phi(xbar)|^2 at the start.

H v and J v come from one product, which counts once. Equivalents are gradients plus products times
what a product takes in units of a gradient of g, measured in the same run. Bytes are those of all
links. The logistic problem is the paper's on the bundled digits, split by label, with 0.0001 |x|^2
added to f: without it the exponents of useless pixels go to infinity, and no method gets to 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import consensus, direction
from decibo.algorithm.algorithm import method as named
from decibo.algorithm.schedules import Rate
from decibo.problem.problem import Oracle
from decibo.problems.logistic import logistic_loss
from decibo.run.sweep import sweep
from studies.performance.timing import Row, interleaved, per_step, ratio, run_alone

GROUP = "accuracy"
LEVELS = (1e-2, 1e-4, 1e-6, 1e-8)
TWICE = ("sparkle_gt", "sldbo")  # exact, and send two vectors for each variable
LAMS = (10.0, 100.0, 1000.0)
THETAS = (0.2, 0.5, 1.0)
RATIOS = (1 / 3, 1.0, 3.0)


class Setting(NamedTuple):
    """A problem, a network, and the ranges of step sizes to try, with how many values of each."""

    problem: Callable[[], Any]
    network: Any
    alphas: tuple[float, float, int]
    inners: tuple[float, float, int]
    steps: int
    every: int


class Entry(NamedTuple):
    """A method, its settings for alpha, the inner step and a third number, and the values of the
    third."""

    method: Any
    settings: Callable[[float, float, float], dict[str, Any]]
    third: tuple[float, ...]


def outer(x, y, d):
    return logistic_loss(y, d["validation"]) + 1e-4 * jnp.sum(x**2)


def logistic() -> decibo.Problem:
    digits = decibo.problems.logistic_hyperparameters(loss="mean", scale=16.0, split="by_label")
    return decibo.Problem(
        outer, digits.inner, digits.data, jnp.full_like(digits.x0, -6.0), digits.y0, name="logistic"
    )


SETTINGS = {
    "quadratic": Setting(
        lambda: decibo.problems.quadratic(condition=10.0),
        decibo.ring(10),
        (3e-3, 3.0, 10),
        (1e-2, 1.0, 8),
        1000,
        4,
    ),
    "logistic": Setting(logistic, decibo.ring(10), (100.0, 10_000.0, 6), (0.1, 2.0, 5), 200, 4),
}


@named(provenance="F2SA-2's penalty with exact diffusion, for comparison.")
def f2sa_2_ed(*, alpha: Rate, gamma: Rate, lam: Rate):
    """F2SA-2."""
    return decibo.compose(
        direction.penalty_p(lam), consensus.exact_diffusion(), x=alpha, y=gamma, z=gamma
    )


@named(provenance="A recipe of docs/how-to/algorithm.md.")
def penalty_tracking(*, alpha: Rate, beta: Rate, gamma: Rate, lam: Rate):
    """The penalty with gradient tracking."""
    return decibo.compose(direction.penalty(lam), consensus.tracking(), x=alpha, y=beta, z=gamma)


def entries() -> dict[str, Entry]:
    """The methods; the numbers they are made with here are replaced by those of the grid."""
    averaged = lambda a, h, theta: {"alpha": a, "beta": h, "gamma": h, "theta": theta}
    apart = lambda a, h, ratio: {"alpha": a, "beta": h, "gamma": ratio * h}
    matched = lambda a, h, lam: {"alpha": a, "gamma": h, "lam": lam}
    scaled = lambda a, h, lam: {"alpha": a, "beta": h / lam, "gamma": h, "lam": lam}
    first = (0.01, 0.1)
    make = lambda factory, settings, third: Entry(
        factory(**settings(*first, third[0])), settings, third
    )
    all_of = decibo.methods
    return {
        "ahead_exact": make(decibo.ahead_exact, matched, LAMS),
        "sparkle_ed": make(all_of.sparkle_ed, averaged, THETAS),
        "sparkle_extra": make(all_of.sparkle_extra, averaged, THETAS),
        "sparkle_gt": make(all_of.sparkle_gt, averaged, THETAS),
        "sldbo": make(all_of.sldbo, apart, RATIOS),
        "f2sa_2 x exact_diffusion": make(f2sa_2_ed, matched, LAMS),
        "penalty_tracking": make(penalty_tracking, scaled, LAMS),
        "ahead": make(decibo.ahead, matched, LAMS),
    }


def reached(steps: np.ndarray, values: np.ndarray) -> list[float]:
    """Steps after which the measure is and stays at each level, for each run: (runs, levels),
    infinite if never."""
    share = np.where(np.isfinite(values), values / values[:, :1], np.inf)
    worst = np.maximum.accumulate(share[:, ::-1], axis=1)[:, ::-1]  # from here on
    return [
        [steps[np.argmax(row <= level)] if (row <= level).any() else np.inf for level in LEVELS]
        for row in worst
    ]


def best(times: np.ndarray) -> int:
    """The run that reaches the most levels, and the deepest of them first."""
    return int(
        np.lexsort(
            (np.where(np.isfinite(times), times, 0).max(axis=1), -np.isfinite(times).sum(axis=1))
        )[0]
    )


class Tuned(NamedTuple):
    """The best setting of a method: the steps it takes to each level, the values chosen, how many
    were tried."""

    method: Any
    counts: np.ndarray
    values: tuple[float, float]
    tried: int
    widened: bool = False


def tune(
    problem: Any, at: Setting, entry: Entry, steps: int, alphas: np.ndarray, inners: np.ndarray
) -> Tuned:
    """The best of all combinations."""
    places = list(product(map(float, alphas), map(float, inners), entry.third))
    grid = [entry.settings(*place) for place in places]
    options = {"steps": steps, "every": at.every, "measures": ["stationarity"], "progress": False}
    runs = sweep(problem, at.network, entry.method, grid, **options)
    times = np.array(reached(runs.history["step"], runs.history["stationarity"]))
    place = best(times)
    return Tuned(
        entry.method.replace(**runs.settings[place]), times[place], places[place][:2], len(grid)
    )


def beyond(values: np.ndarray, chosen: float) -> np.ndarray:
    """Half as many values again, beyond the edge at which the chosen one lies; none if it lies
    inside."""
    more = (values[1] / values[0]) ** np.arange(1, len(values) // 2 + 1)
    return (
        values[-1] * more
        if chosen == values[-1]
        else values[0] / more
        if chosen == values[0]
        else values[:0]
    )


def tune_and_widen(
    problem: Any, at: Setting, entry: Entry, steps: int, alphas: Any, inners: Any
) -> Tuned:
    """Tuned, and once more beyond the edge if the best setting lies at one."""
    first = tune(problem, at, entry, steps, alphas, inners)
    more = beyond(alphas, first.values[0])
    less = beyond(inners, first.values[1])
    if not len(more) + len(less):
        return first
    second = tune(
        problem, at, entry, steps, more if len(more) else alphas, less if len(less) else inners
    )
    chosen = (first, second)[best(np.stack([first.counts, second.counts]))]
    return chosen._replace(tried=first.tried + second.tried, widened=True)


def one(label: str, at: Setting, quick: bool) -> Iterator[Row]:
    problem = at.problem()
    steps = at.steps // (10 if quick else 1)
    alphas, inners = (
        np.geomspace(low, high, 2 if quick else size) for low, high, size in (at.alphas, at.inners)
    )
    found = {
        name: tune_and_widen(problem, at, entry, steps, alphas, inners)
        for name, entry in entries().items()
    }
    more = "".join(f"; {name} {each.tried}" for name, each in found.items() if each.widened)
    settings = float(min(each.tried for each in found.values()))
    note = f"of {steps} steps for each method" + (
        f", beyond an edge of the grid{more}" if more else ""
    )
    yield Row(GROUP, f"{label}: settings tried", settings, "", note=note)
    price = price_of_a_product(label, problem)
    yield price
    tuned = {name: each.method for name, each in found.items()}
    counts = {name: each.counts for name, each in found.items()}
    yield from _table(
        label, problem, at, tuned, counts, float(price.value or 1.0), 100 if quick else 1000
    )


def price_of_a_product(label: str, problem: Any) -> Row:
    """The time of a joint product (J v, H v) over that of a gradient of g, all agents at once, many
    times in a row."""
    times = 1000
    x, y = (
        jnp.asarray(layout.ravel(tree))
        for layout, tree in ((problem.x_layout, problem.x0), (problem.y_layout, problem.y0))
    )

    def gradient(d: Any, v: Any) -> Any:
        g_x, g_y = Oracle(problem.functions, d).inner(x, y + v)
        return 1e-3 * g_y + 1e-9 * jnp.sum(g_x)

    def products(d: Any, v: Any) -> Any:
        # at a new point every time, as in a run
        Jv, Hv = Oracle(problem.functions, d).products(x, y + v, v)
        return 1e-3 * Hv + 1e-9 * jnp.sum(Jv)

    def repeated(function: Callable[..., Any]) -> Callable[[], Any]:
        once = lambda _, rows: jax.vmap(function)(problem.data, rows)
        run = jax.jit(lambda rows: jax.lax.fori_loop(0, times, once, rows))
        return lambda: run(jnp.ones((problem.agents, y.size), y.dtype))

    taken = interleaved({"gradient": repeated(gradient), "product": repeated(products)}, 9)
    return ratio(
        GROUP,
        f"{label}: time of H v and J v at once / of a gradient of g",
        taken["product"],
        taken["gradient"],
    )


def _table(
    label: str, problem: Any, at: Setting, tuned: Any, counts: Any, price: float, steps: int
) -> Iterator[Row]:
    def run(method: Any, steps: int) -> Any:
        options = {"steps": steps, "every": steps, "measures": ["outer"], "progress": False}
        return lambda: decibo.solve(problem, at.network, method, **options).agents.x

    calls = {f"{name} {n}": run(method, n) for name, method in tuned.items() for n in (1, steps)}
    times = interleaved(calls, 5)
    sent = {}
    for name, method in tuned.items():
        cost = decibo.solve(
            problem, at.network, method, steps=1, progress=False, measures=["outer"]
        ).cost
        second = float(np.median(per_step(times[f"{name} {steps}"], times[f"{name} 1"], steps)))
        for level, k in zip(LEVELS, counts[name], strict=True):
            what = f"{label}, {name}: steps to {level:g}"
            if not np.isfinite(k):
                yield Row(
                    GROUP, what, None, "steps", note="not reached", extra={"method": repr(method)}
                )
                continue
            sent[name, level] = k * cost.bytes * cost.links
            gradients = k * cost.gradients * cost.agents
            products = k * cost.calls * cost.agents
            spent = {
                "gradients": gradients,
                "products": products,
                "equivalents": gradients + price * products,
            }
            spent |= {"bytes": sent[name, level], "seconds": k * second, "method": repr(method)}
            note = ", ".join(
                f"{value:.3g} {key}" for key, value in spent.items() if key != "method"
            )
            yield Row(GROUP, what, float(k), "steps", note=note, extra=spent)
    if label == "quadratic":
        yield from _verdicts(label, sent, counts)


def _verdicts(
    label: str, sent: dict[tuple[str, float], float], counts: dict[str, np.ndarray]
) -> Iterator[Row]:
    level = 1e-6
    pair = counts["sparkle_ed"][-1], counts["ahead_exact"][-1]
    # for theta = 1 it is the same recursion, so sparkle_ed can do no worse
    if np.isfinite(pair).all():
        yield Row(
            GROUP,
            f"{label}: sparkle_ed / ahead_exact, steps until {LEVELS[-1]:g}",
            pair[0] / pair[1],
            target="<= 1",
        )
    for name, target in (("ahead_exact", ">= 1"), ("ahead", "<= 0")):
        yield Row(
            GROUP,
            f"{label}: {name} reaches {level:g}",
            float((name, level) in sent),
            "",
            target=target,
        )
    for other in TWICE:
        if ("ahead_exact", level) in sent and (other, level) in sent:
            share = sent["ahead_exact", level] / sent[other, level]
            yield Row(
                GROUP, f"{label}: bytes to {level:g}, ahead_exact / {other}", share, target="<= 0.5"
            )


def rows(quick: bool) -> Iterator[Row]:
    with jax.enable_x64(True):
        for label, at in SETTINGS.items():
            yield from one(label, at, quick)


if __name__ == "__main__":
    run_alone(rows)
