r"""What the paper's remarks say beside its corollaries.                        [paper, section III]

(1)  complexity: O(n + r) a step, and O((n + r) eps^-3) until the mean of |grad Phi|^2 is eps;
     methods with Hessians: O(n^2 + n r) a step.   Counted: floating point operations of one
     agent's directions as the compiler states them, n = r growing, the samples fixed
(2)  tightness, g = -f: with steps that do not depend on K, alpha = O(kappa^-2), the mean is
     O(kappa^2/K) + a floor.   Measured: E(K) = R(K) - floor, its slope in K, and the power of
     kappa in K E(K)/(L_g1 (Phi(x0) - inf Phi)), which has no unit: at most 2
(3)  heterogeneity: b_g dominates b_f for large K.   Measured: by how much the place where
     |grad Phi|^2 settles rises if the agents' f, or their g, are ten times as far apart
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.problem.problem import Oracle
from decibo.problems.minimax import minimax_quadratic
from decibo.report.figures import letter, new_figure
from decibo.theory.estimate import constants
from studies.paper.experiment import Claim, Progress, Result, Size, judge, paragraphs, tally
from studies.paper.plotting import COLOURS
from studies.paper.rates import DISTANCE, SLACK, far_apart, path, settles
from studies.paper.tables import Table, columns, groups, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (250, 1000, 4000, 16_000)  # n = r
ROWS = 64  # samples of an agent
DIRECTIONS = {
    "AHEAD": decibo.direction.penalty(10.0),
    "ahead_exact": decibo.direction.symmetric_penalty(10.0),
    "with products of the Hessian": decibo.direction.implicit(),
}
CONDITIONS = (1.5, 3.0, 6.0, 12.0)
STEPS = {"alpha": 0.5, "beta": 0.25, "gamma": 0.5}  # times kappa^-2/L, 1/L and 1/L
NOTES = """\
A step of one agent in a regularised logistic regression, the paper's own experiment. Automatic
differentiation gives a product with a Hessian or a Jacobian for about the price of a gradient and
never forms the matrix; O(n^2 + n r) belongs to methods that do.

The total complexity is the operations of a step times the steps until R(K) is eps; the power of eps
is that of Corollary 1, measured in the experiment on rates.

With constant steps and a strongly convex Phi the sum of |grad Phi|^2 above the floor converges, so
that its mean falls like 1/K.
"""


def run(size: Size, progress: Progress) -> Result:
    """Operations by size; constant steps by K and kappa; what heterogeneity costs at two K."""
    sizes = size.pick(SIZES, SIZES[:3], SIZES[:2])
    seeds = size.seed_range(4, 2)
    Ks = size.pick((10_000, 100_000), (1_000, 10_000), (50, 500))
    operations = columns(
        [
            {"method": name, "size": n, "operations": flops(direction, n)}
            for n in sizes
            for name, direction in DIRECTIONS.items()
        ]
    )
    progress(0.1)
    K = size.pick(100_000, 30_000, 300)
    constant = columns([row for seed in seeds for row in constant_steps(seed, K)])
    progress(0.5)
    spread = columns([row for seed in seeds for row in heterogeneity(seed, Ks)])
    progress(1.0)
    return Result(
        name="remarks",
        title="Remarks: complexity, tightness, heterogeneity",
        data="random quadratic problems with known solution, and a synthetic logistic regression",
        tables={"operations": operations, "constant": constant, "spread": spread},
        claims=claims(operations, constant, spread),
        settings={
            "n = r": list(sizes),
            "samples of an agent": ROWS,
            "conditions": list(CONDITIONS),
            "constant steps": f"{STEPS} times kappa^-2/L, 1/L, 1/L; lam = 2",
            "K": {"constant steps": K, "heterogeneity": list(Ks)},
            "network": "ring of 6",
            "precision": "float64",
            "seeds": list(seeds),
        },
        notes=paragraphs(NOTES),
    )


def flops(direction: decibo.direction.Direction, n: int) -> float:
    """Floating point operations of one agent's directions, (1), in a compiled program."""
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=(1, ROWS, n)) / n**0.5, "b": np.sign(rng.normal(size=(1, ROWS)))}

    def outer(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean(jax.nn.softplus(-d["b"] * (d["a"] @ y)))

    def inner(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
        return outer(x, y, d) + jnp.exp(x) @ y**2 / 2

    problem = decibo.Problem(outer, inner, data, np.zeros(n), np.zeros(n))

    def directions(values: dict[str, jax.Array], d: dict[str, jax.Array]) -> object:
        return direction.at(Oracle(problem.functions, d), direction.start(values), 0)

    values = {name: jnp.zeros(n) for name in "xyz"}
    one = jax.tree.map(lambda rows: rows[0], problem.data)
    analysis = jax.jit(directions).lower(values, one).compile().cost_analysis()
    return float(analysis["flops"])


def constant_steps(seed: int, K: int) -> list[dict[str, float]]:
    """(2) for problems of growing condition: the slope of E up to K, and its size at K."""
    rows = []
    for condition in CONDITIONS:
        problem = minimax_quadratic(6, 2, 2, seed=seed, condition=condition)
        c = constants(problem, minimax=True)
        alpha = STEPS["alpha"] / (c.kappa**2 * c.L_g1)
        steps = {"alpha": alpha} | {s: STEPS[s] / c.L_g1 for s in ("beta", "gamma")}
        method = decibo.methods.ahead_minimax(**steps, lam=2.0)
        values = path(problem, decibo.ring(6), method, K, DISTANCE)
        floor = float(values[-K // 10 :].mean())
        exact = decibo.reference(problem)
        best = np.asarray(problem.solution["x"])
        fall = float(exact.phi(best + DISTANCE * best.size**-0.5) - exact.phi(best))
        excess = {k: float(values[:k].mean()) - floor for k in (K // 10, K)}
        rows.append(
            {"seed": seed, "kappa": c.kappa, "floor": floor}
            | {
                "slope": np.log10(excess[K] / excess[K // 10]),
                "cost": K * excess[K] / (fall * c.L_g1),
            }
        )
    return rows


def heterogeneity(seed: int, Ks: Iterable[int]) -> list[dict[str, float]]:
    """(3): where |grad Phi|^2 settles, plain and with f or g of the agents further apart."""
    problem = decibo.problems.quadratic(6, 2, 2, seed=seed, condition=2.0)
    cases = {"plain": problem, "b_f": far_apart(problem, "pq"), "b_g": far_apart(problem, "s")}
    ring = decibo.ring(6)
    return [
        {"seed": seed, "K": K} | {name: settles(case, ring, K) for name, case in cases.items()}
        for K in Ks
    ]


def claims(operations: Table, constant: Table, spread: Table) -> tuple[Claim, ...]:
    """Powers of n + r, of K and of kappa, and which heterogeneity costs more."""
    last = {name: part["operations"][-2:] for (name,), part in groups(operations, "method")}
    sizes = np.unique(operations["size"])[-2:]
    power = {n: float(np.diff(np.log(v))[0] / np.diff(np.log(sizes))[0]) for n, v in last.items()}
    ours, second = "AHEAD", "with products of the Hessian"
    ratio = float(last[second][1] / last[ours][1])
    by_seed = [part for _, part in groups(constant, "seed")]
    grows = [float(np.polyfit(np.log(p["kappa"]), np.log(p["cost"]), 1)[0]) for p in by_seed]
    steep = [bool(np.all(p["slope"] <= -1 + SLACK)) for p in by_seed]
    raised = {
        K: [float(np.median(p[name] - p["plain"])) for name in ("b_f", "b_g")]
        for (K,), p in groups(spread, "K")
    }
    largest = select(spread, K=int(spread["K"].max()))
    more = [bool(g > f) for f, g in zip(largest["b_f"], largest["b_g"], strict=True)]
    listed = ", ".join(f"{slope:+.2f}" for slope in grows)
    rises = "; ".join(f"at K = {K:,} by {f:.1e} and {g:.1e}" for K, (f, g) in raised.items())
    return (
        Claim(
            "a step of AHEAD costs O(n + r)",
            f"operations grow like (n + r)^{power[ours]:.2f}",
            judge(abs(power[ours] - 1) < SLACK),
        ),
        Claim(
            "a step of a method with Hessians costs O(n^2 + n r)",
            f"operations grow like (n + r)^{power[second]:.2f} and are {ratio:.2f} times AHEAD's",
            judge(power[second] > 1.5),
            "by automatic differentiation a product costs about as much as a gradient, so that"
            " what is saved is a constant factor",
        ),
        Claim(
            "minimax, steps that do not depend on K: the mean falls like 1/K to a neighbourhood",
            f"slope of R(K) less its floor {float(constant['slope'].max()):+.3f} or steeper, over"
            f" the last decade; true for {tally(steep)}",
            judge(*steep),
        ),
        Claim(
            "minimax, alpha = O(kappa^-2): the factor of 1/K is O(kappa^2)",
            f"powers of kappa {listed}",
            judge(*(slope <= 2 + 5 * SLACK for slope in grows)),
            f"for kappa from {constant['kappa'].min():.1f} to {constant['kappa'].max():.1f}",
        ),
        Claim(
            "b_g has a dominant impact on heterogeneity errors when K is large",
            f"ten times b_f and ten times b_g raise the error {rises} (medians); b_g by more for"
            f" {tally(more)}",
            judge(*more),
            "its bound falls more slowly, K^(-1/3) against K^(-2/3), but from a smaller constant",
        ),
    )


def draw(result: Result) -> Figure:
    """Operations against size, cost against kappa, and the rise by heterogeneity against K."""
    figure = new_figure(9.6, 3.1)
    axes = figure.subplots(1, 3)
    table = result.tables
    for k, ((name,), part) in enumerate(groups(table["operations"], "method")):
        # AHEAD and Hessian products cost the same: the first lies under the others
        style = {"color": COLOURS[k], "markersize": (9, 6, 5)[k], "label": name}
        axes[0].loglog(2 * part["size"], part["operations"], "os^"[k] + "-", **style)
    axes[0].set(xlabel="n + r", ylabel="operations of a step")
    axes[0].legend(fontsize=7)
    for k, (_, part) in enumerate(groups(table["constant"], "seed")):
        label = "each seed" if k == 0 else None
        axes[1].loglog(part["kappa"], part["cost"], "o-", color=COLOURS[0], alpha=0.6, label=label)
    kappa, cost = (np.sort(table["constant"][name]) for name in ("kappa", "cost"))
    axes[1].loglog(kappa, cost[0] * (kappa / kappa[0]) ** 2, "k:", label="slope 2")
    axes[1].set(xlabel=r"$\kappa$", ylabel=r"$K (R(K) - \mathrm{floor})/(L\, \Delta\Phi)$")
    axes[1].xaxis.set_minor_formatter("{x:g}")
    axes[1].xaxis.set_major_formatter("{x:g}")
    axes[1].legend(fontsize=7)
    spread = table["spread"]
    for k, name in enumerate(("b_f", "b_g")):
        rise = spread[name] - spread["plain"]
        style = {"color": COLOURS[k], "alpha": 0.7, "label": f"10 times ${name}$"}
        axes[2].loglog(spread["K"], rise, "os"[k], **style)
    axes[2].set(xlabel="K", ylabel="rise of the error")
    axes[2].legend(fontsize=7)
    letter(axes, ["complexity of a step", "constant steps", "heterogeneity"])
    return figure
