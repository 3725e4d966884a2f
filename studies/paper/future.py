"""What the paper leaves to future work, as decibo has it: a run for each.      [paper, conclusion]

A dynamic penalty parameter, and inner levels that are not convex, not smooth, stochastic or
constrained. Problems are small enough for their solution to be found on a grid, by functions of
their own that share nothing with the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import consensus, direction, prox, schedules
from decibo.report.figures import letter, new_figure
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
from studies.paper.plotting import bands
from studies.paper.tables import Table, block, groups, join, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENTS = 10
NEAR = 1e-2  # |xbar - x*| that counts as found, where x is about 1
TARGET = np.array([1.0, 0.3, -0.2, 0.2])  # of y, in the problems on a grid
GRID = np.linspace(-2, 3, 100_001)
NOTES = """\
A dynamic penalty: the paper's own direction with exact diffusion, lam = 10, and a staircase of
factors of 2 with matched steps of y and z, schedules.growing. For ahead_exact a fixed lam is
enough, since its steps do not depend on it.

Non-convex: g = (y^2 - 1)^2/4 - (x + a_i) y, a double well, started where g is concave in y. Both
find the better well, without a theorem; from the wrong well a gradient method stays there. The
method moreau is for inner levels without isolated minima.

Non-smooth and constrained: g = |y - x - a_i|^2/2 + |y|_1/2, or with y between -0.3 and 0.6; the
proximal map acts on y and z. Where the solution lies on a kink, Phi has one too, and the error is
O(1/lam).

Stochastic: one row of five of an agent's data in a step, all gradients of the step on it.
Extensions of the theorem are in studies/proofs/extensions.md; the other four have no theorem here.
"""


@dataclass(frozen=True)
class Item:
    """An extension: the paper's word for it, a problem for each seed, the runs by name, and what
    is recorded of them."""

    title: str
    make: Callable[[int], tuple[decibo.Problem, np.ndarray | None]]
    methods: dict[str, decibo.Algorithm]
    steps: int
    verdict: Callable[[dict[str, float]], bool]


def bent(seed: int) -> tuple[decibo.Problem, None]:
    """A quadratic with a wave, whose bias does not vanish."""
    return decibo.problems.quadratic(AGENTS, 2, 2, seed=seed, bend=0.3), None


def around(seed: int, size: int) -> np.ndarray:
    """What tells agents apart: numbers that average to zero."""
    a = np.random.default_rng(seed).normal(size=(AGENTS, size))
    return a - a.mean(axis=0)


def wells(seed: int) -> tuple[decibo.Problem, np.ndarray]:
    """An inner level with two minima."""
    a = 0.3 * around(seed, 1)

    def outer(x: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.sum((y - 1.2 - d) ** 2) / 2 + jnp.sum(x**2) / 20

    def inner(x: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.sum((y**2 - 1) ** 2 / 4 - (x + d) * y)

    # The better minimum of g in y for x > 0 is the largest root of y^3 - y = x.
    xs = GRID[GRID > 0]
    ys = np.ones_like(xs)
    for _ in range(60):
        ys = ys - (ys**3 - ys - xs) / (3 * ys**2 - 1)
    best = xs[np.argmin((ys - 1.2) ** 2 / 2 + xs**2 / 20)]
    return decibo.Problem(outer, inner, a, np.full(1, 0.1), np.zeros(1)), np.array([best])


def shifted(
    seed: int, follow: Callable[[np.ndarray], np.ndarray], start: float
) -> tuple[decibo.Problem, np.ndarray]:
    """y* = follow(x), for g = |y - x - a_i|^2/2 and what the proximal map adds."""

    def outer(x: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.sum((y - TARGET) ** 2) / 2 + jnp.sum((x - 0.5) ** 2) / 20

    def inner(x: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.sum((y - x - d) ** 2) / 2

    cost = (follow(GRID)[:, None] - TARGET) ** 2 / 2 + (GRID[:, None] - 0.5) ** 2 / 20
    x0 = np.full(TARGET.size, start)
    problem = decibo.Problem(outer, inner, around(seed, TARGET.size), x0, np.zeros_like(x0))
    return problem, GRID[np.argmin(cost, axis=0)]


def sampled(seed: int) -> tuple[decibo.Problem, None]:
    """Least squares with a scale of each feature, of which a step sees one row in five."""
    rng = np.random.default_rng(seed)
    truth = 1 + 0.3 * rng.normal(size=(AGENTS, 1, 3))
    rows = rng.normal(size=(AGENTS, 50, 3))
    data = {"a": rows, "b": (rows * truth).sum(2) + 0.3 * rng.normal(size=(AGENTS, 50))}

    def outer(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((d["a"] @ y - d["b"]) ** 2) / 2 + jnp.sum(x**2) / 20

    def inner(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((d["a"] @ (jnp.exp(x) * y) - d["b"]) ** 2) / 2 + jnp.sum(y**2) / 2

    def sample(d: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        chosen = jax.random.choice(key, 50, (10,))
        return {name: part[chosen] for name, part in d.items()}

    return decibo.Problem(outer, inner, data, np.zeros(3), np.zeros(3), sample=sample), None


def _penalty(lam: schedules.Rate) -> decibo.Algorithm:
    steps = {"x": 0.05, "y": schedules.matched(None, 0.1, lam), "z": 0.1}
    return decibo.compose(direction.penalty(lam), consensus.exact_diffusion(), **steps)


def _proximal(on_y: prox.Prox) -> decibo.Algorithm:
    maps = {"y": on_y, "z": on_y}
    steps = {"x": 0.1, "y": 0.2, "z": 0.2}
    return decibo.compose(
        direction.symmetric_penalty(100.0), consensus.exact_diffusion(), **steps, prox=maps
    )


def _noisy(share: float) -> decibo.Algorithm:
    return decibo.minibatch(decibo.ahead_exact(alpha=0.1 * share, gamma=0.2 * share))


SOFT = lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)
found = lambda ends: all(error <= NEAR for error in ends.values())
ITEMS = {
    "dynamic": Item(
        "a dynamic update scheme for the penalty parameter",
        bent,
        {"lam = 10": _penalty(10.0), "growing": _penalty(schedules.growing(10.0, every=500))},
        4000,
        lambda ends: ends["growing"] < ends["lam = 10"] / 50,
    ),
    "nonconvex": Item(
        "inner-level functions with nonconvexity",
        wells,
        {
            "AHEAD": decibo.ahead(alpha=0.005, beta=0.005, gamma=0.1, lam=10.0),
            "ahead_exact": decibo.ahead_exact(alpha=0.05, gamma=0.1),
        },
        8000,
        lambda ends: ends["ahead_exact"] <= NEAR,
    ),
    "nonsmooth": Item(
        "nonsmoothness",
        lambda seed: shifted(seed, SOFT, 2.0),
        {"prox.l1": _proximal(prox.l1(0.5))},
        4000,
        found,
    ),
    "stochastic": Item(
        "stochasticity",
        sampled,
        {"steps 0.1, 0.2": _noisy(1.0), "a quarter of them": _noisy(0.25)},
        4000,
        lambda ends: ends["a quarter of them"] < 0.6 * ends["steps 0.1, 0.2"],
    ),
    "constrained": Item(
        "constraints",
        lambda seed: shifted(seed, lambda x: np.clip(x, -0.3, 0.6), 0.0),
        {"prox.box": _proximal(prox.box(-0.3, 0.6))},
        4000,
        found,
    ),
}


def run(size: Size, progress: Progress) -> Result:
    """Every item over seeds: of the problem and of the network."""
    seeds = size.seed_range(5, 2)
    share = size.pick(1.0, 1.0, 0.05)
    table = join(seed_by_seed(seeds, lambda seed: one_seed(seed, share), progress))
    return Result(
        name="future",
        title="Future work",
        data="small problems whose solution is found on a grid (no data set)",
        tables={"curves": table},
        claims=claims(table),
        settings={
            "network": "Erdos-Renyi 0.7, 10 agents, drawn anew for each seed",
            "steps": {name: int(share * item.steps) for name, item in ITEMS.items()},
            "methods": {
                name: {key: repr(method) for key, method in item.methods.items()}
                for name, item in ITEMS.items()
            },
            "precision": "float64",
            "seeds": list(seeds),
        },
        notes=paragraphs(NOTES),
    )


def one_seed(seed: int, share: float) -> list[Table]:
    """Forty records of each run: |xbar - x*| where x* is known, else |grad Phi(xbar)|."""
    network = decibo.networks.erdos_renyi(AGENTS, 0.7, seed=seed)
    parts = []
    for name, item in ITEMS.items():
        problem, best = item.make(seed)
        steps = int(share * item.steps)
        measures = [("x", lambda s: s.mean("x"))]
        exact = decibo.reference(problem) if best is None else None
        for key, method in item.methods.items():
            history = record(
                problem, network, method, steps=steps, every=max(1, steps // 40), measures=measures
            ).history
            x = history["x"][0]
            errors = x - best if exact is None else np.stack([exact.grad(row) for row in x])
            error = np.linalg.norm(errors, axis=1)
            fixed = {"item": name, "method": key, "seed": seed}
            parts.append(block(fixed, step=history["step"], error=error))
    return parts


def claims(table: Table) -> tuple[Claim, ...]:
    """What each extension comes to, over the last quarter of its records."""
    judged = []
    for name, item in ITEMS.items():
        ends: dict[int, dict[str, float]] = {}
        for (key, seed), part in groups(select(table, item=name), "method", "seed"):
            tail = part["error"][-max(1, len(part["error"]) // 4) :]
            ends.setdefault(seed, {})[key] = float(np.sqrt(np.mean(tail**2)))
        answers = [bool(item.verdict(each)) for each in ends.values()]
        what = "|grad Phi|" if item.make(0)[1] is None else "|x - x*|"
        medians = ", ".join(
            f"{key} {np.median([each[key] for each in ends.values()]):.1e}" for key in item.methods
        )
        measured = f"{what} at the end: {medians} (medians); true for {tally(answers)}"
        judged.append(Claim(f"future work: {item.title}", measured, judge(*answers)))
    return tuple(judged)


def draw(result: Result) -> Figure:
    """The error along the runs of every item."""
    figure = new_figure(11.0, 2.8)
    axes = figure.subplots(1, len(ITEMS))
    for ax, name in zip(axes, ITEMS, strict=True):
        part = select(result.tables["curves"], item=name)
        bands(ax, part, "method", "step", "error", positive=True)
        ax.set(yscale="log", xlabel="step")
        ax.legend(fontsize=6.5)
    axes[0].set(ylabel="error")
    letter(axes, list(ITEMS))
    return figure
