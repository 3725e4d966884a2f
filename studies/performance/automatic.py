"""Automatic step sizes against the best of a 10 x 10 grid, on every ready-made problem and on
thirteen made for this.

    python -m studies.performance.automatic [--seeds 3] [--steps 2000] [--jobs 1] [--json FILE]
        [problem ...]
    python -m studies.performance.automatic --time

Both run `ahead_exact` with lam = 100 for the same number of steps: without step sizes, and with
each of 10 values of alpha from 1e-5 to 1e4 times 10 of gamma from 0.01/L to 2/L, L the largest
curvature of an agent's inner level at the start. The grid's best is the one with the lowest true
Phi(xbar) in the end; a run that left all bounds does not count.

Judged by the gap Phi(xbar) - Phi*, or by |grad Phi(xbar)|^2 where the solution is known. Phi* is
the lowest value that anybody found: either run, or L-BFGS on the exact Phi from where the two
ended. What is below rounding counts as 0.

--time measures what finding the step sizes adds to the time of a step, both kinds of run
interleaved.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # jobs, not threads

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

import decibo  # noqa: E402
from decibo.problem.problem import Oracle  # noqa: E402
from decibo.run import loop  # noqa: E402
from decibo.run.solve import network_constants  # noqa: E402

LAM = 100.0
ALPHAS = np.logspace(-5, 4, 10)
GAMMAS = np.logspace(-2, np.log10(2.0), 10)  # times 1/L
WITHIN = 3.0
GAP = 1e-12  # of 1 + |Phi*|: what is below is rounding
SQUARE = 1e-20  # of |grad Phi|^2 at the start, or of 1


def rescaled(
    problem: decibo.Problem,
    f: float = 1.0,
    g: float = 1.0,
    x: np.ndarray | float = 1.0,
    y: np.ndarray | float = 1.0,
) -> decibo.Problem:
    """The same problem in other units."""
    outer, inner = problem.outer, problem.inner
    return replace(
        problem,
        outer=lambda a, b, d: f * outer(a * x, b * y, d),
        inner=lambda a, b, d: g * inner(a * x, b * y, d),
        inner_solution=None,
        solution=None,
        constants=None,
    )


def growing(seed: int) -> decibo.Problem:
    """x is the logarithm of a curvature, which grows some hundred times on the way to the
    solution."""
    b = np.random.default_rng(seed).normal(size=(10, 5))
    outer = lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2) + 1e-8 * jnp.sum(jnp.exp(x))
    inner = lambda x, y, d: 0.5 * jnp.sum(jnp.exp(x) * (y - d["b"]) ** 2) + 0.5 * jnp.sum(y**2)
    return decibo.Problem(
        outer, inner, {"b": b, "t": np.tile(b.mean(0), (10, 1))}, np.zeros(5), np.zeros(5)
    )


def wavy(seed: int) -> decibo.Problem:
    """A non-convex outer level."""
    problem = decibo.problems.quadratic(seed=seed)
    outer = problem.outer
    waves = lambda x, y, d: outer(x, y, d) + 0.3 * jnp.sum(jnp.cos(4 * x))
    return replace(problem, outer=waves, solution=None, constants=None)


def single(seed: int) -> decibo.Problem:
    """Everything in single precision."""
    problem = decibo.problems.quadratic(seed=seed)
    less = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)
    return decibo.Problem(
        problem.outer,
        problem.inner,
        less(problem.data),
        less(problem.x0),
        less(problem.y0),
        name="quadratic, float32",
    )


quadratic = decibo.problems.quadratic
logistic = decibo.problems.logistic_hyperparameters
READY: dict[str, Callable[[int], decibo.Problem]] = {
    "synthetic": lambda seed: decibo.problems.synthetic(),
    "quadratic": lambda seed: quadratic(seed=seed),
    "quadratic, bent": lambda seed: quadratic(seed=seed, bend=0.05, condition=10.0),
    "logistic, mean": lambda seed: logistic(loss="mean", scale=16.0, seed=seed, split="by_label"),
    "logistic, sum": lambda seed: logistic(seed=seed),
    "hyper-cleaning": lambda seed: decibo.problems.hyper_cleaning(
        decibo.data.digits(), training=50, validation=50, seed=seed
    ),
    "minimax, quadratic": lambda seed: decibo.problems.minimax("quadratic", seed=seed),
    "minimax, AUC": lambda seed: decibo.problems.minimax("auc", seed=seed),
    "minimax, perturbation": lambda seed: decibo.problems.minimax("perturbation", seed=seed),
    "pricing": lambda seed: decibo.problems.stackelberg_pricing(seed=seed),
}
MADE: dict[str, Callable[[int], decibo.Problem]] = {
    "x badly scaled": lambda seed: rescaled(quadratic(seed=seed), x=np.logspace(-2, 2, 3)),
    "y badly scaled": lambda seed: rescaled(quadratic(seed=seed), y=np.logspace(-1, 1, 4)),
    "both badly scaled": lambda seed: rescaled(
        quadratic(seed=seed), x=np.logspace(-2, 2, 3), y=np.logspace(-1, 1, 4)
    ),
    "condition 1e4": lambda seed: quadratic(seed=seed, condition=1e4),
    "f x 1e4": lambda seed: rescaled(quadratic(seed=seed), f=1e4),
    "f x 1e-4": lambda seed: rescaled(quadratic(seed=seed), f=1e-4),
    "g x 1e4": lambda seed: rescaled(quadratic(seed=seed), g=1e4),
    "g x 1e-4": lambda seed: rescaled(quadratic(seed=seed), g=1e-4),
    "path of 50": lambda seed: quadratic(agents=50, seed=seed),
    "growing curvature": growing,
    "float32": single,
    "non-convex": wavy,
    "minibatches": lambda seed: logistic(loss="mean", scale=16.0, seed=seed, batch=10),
}
PROBLEMS = READY | MADE
NETWORKS: dict[str, Callable[[int, int], decibo.Network]] = {
    "ring": lambda agents, seed: decibo.ring(agents),
    "star": lambda agents, seed: decibo.networks.star(agents),
    "erdos_renyi 0.4": lambda agents, seed: decibo.networks.erdos_renyi(agents, 0.4, seed=seed),
}


def curvature(problem: decibo.Problem) -> float:
    """The largest curvature of any agent's inner level at the start."""
    x, y = (layout.ravel(tree) for layout, tree in zip(*_layouts(problem), strict=True))
    oracle = lambda d: Oracle(problem.functions, d)
    hessian = jax.vmap(lambda d: jax.hessian(lambda v: oracle(d).inner_value(x, v))(y))(
        problem.data
    )
    return float(jnp.max(jnp.abs(jnp.linalg.eigvalsh(hessian))))


def _layouts(problem: decibo.Problem) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (problem.x_layout, problem.y_layout), (problem.x0, problem.y0)


def method(sampled: bool, **settings: float) -> decibo.Algorithm:
    """ahead_exact, on minibatches if the problem draws any."""
    exact = decibo.ahead_exact(lam=LAM, **settings)
    return decibo.minibatch(exact) if sampled else exact


def ends(
    problem: decibo.Problem, network: decibo.Network, methods: list[decibo.Algorithm], steps: int
) -> np.ndarray:
    """Where xbar ends, for methods that differ in numbers only; NaN for those that left all
    bounds."""
    cores = jax.tree.map(
        lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]),
        *[m.core for m in methods],
    )
    program = loop.Program(problem.functions, ())
    start = problem.start_rows(network.agents)
    reach = network_constants(network)

    @jax.jit
    def run(cores: Any, mixing: Any, data: Any) -> Any:
        def one(core: Any) -> Any:
            inputs = loop.Inputs(core, mixing, data, jax.random.key(0), {}, {}, reach)
            state = loop.begin(program, inputs, start)
            state = jax.lax.fori_loop(
                0, steps, lambda k, s: loop.step(program, inputs, s, k), state
            )
            rows = jax.vmap(core.view)(state)
            return jnp.mean(rows["x"], axis=0), jnp.max(jnp.abs(rows["y"]))

        return jax.vmap(one)(cores)

    X, largest = map(np.asarray, run(cores, network.mixing(), problem.data))
    lost = ~np.isfinite(X).all(axis=1) | ~(np.abs(X) < 1e8).all(axis=1) | ~(largest < 1e8)
    return np.where(lost[:, None], np.nan, X)


def case(job: tuple[str, str, int, int]) -> dict[str, Any]:
    """One problem on one network."""
    name, net, seed, steps = job
    begun = time.perf_counter()
    problem = PROBLEMS[name](seed)
    network = (
        decibo.networks.path(50) if name == "path of 50" else NETWORKS[net](problem.agents, seed)
    )
    sampled = problem.sample is not None
    L = curvature(problem)
    pairs = [(float(a), float(g / L)) for a in ALPHAS for g in GAMMAS]
    tried = ends(problem, network, [method(sampled, alpha=a, gamma=g) for a, g in pairs], steps)
    (ours,) = ends(problem, network, [method(sampled)], steps)
    layout = problem.x_layout
    exact = decibo.reference(problem)

    def judge(x: np.ndarray) -> tuple[float, np.ndarray]:
        at = exact.at(layout.unravel(jnp.asarray(x, layout.dtype)))
        return float(at.phi), np.asarray(layout.ravel(at.grad), np.float64)

    def phi_of(x: np.ndarray) -> float:
        try:
            value = judge(x)[0] if np.isfinite(x).all() else np.nan
        except Exception:
            return np.inf
        return value if np.isfinite(value) else np.inf

    phis = [phi_of(x) for x in tried]
    place = int(np.argmin(phis))
    best = tried[place]
    first = judge(np.asarray(layout.ravel(problem.x0)))
    mine = phi_of(ours)
    known = problem.solution is not None and not sampled
    row: dict[str, Any] = {
        "problem": name,
        "network": "path" if name == "path of 50" else net,
        "seed": seed,
    }
    row |= {
        "phi": mine,
        "grid_phi": phis[place],
        "alpha": pairs[place][0],
        "gamma L": pairs[place][1] * L,
    }
    squares = [
        float(np.sum(judge(x)[1] ** 2)) if np.isfinite(x).all() else np.inf for x in (ours, best)
    ]
    row |= {
        "square": squares[0],
        "grid_square": squares[1],
        "first_square": float(np.sum(first[1] ** 2)),
    }
    if known:
        floor = SQUARE * max(1.0, row["first_square"])
        gaps = squares
    else:
        lowest = min(
            [mine, phis[place], *(_lowest(judge, x) for x in (ours, best) if np.isfinite(x).all())]
        )
        gaps = [value - lowest for value in (mine, phis[place])]
        floor = (1e-6 if layout.dtype == jnp.float32 else GAP) * (1 + abs(lowest))
        row["lowest"] = lowest
    row |= {"judged": "grad^2" if known else "gap", "ours": gaps[0], "grid": gaps[1]}
    row["ratio"] = max(gaps[0], floor) / max(gaps[1], floor)
    row["diverged"] = not np.isfinite(mine)
    row["seconds"] = time.perf_counter() - begun
    return row


def _lowest(judge: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray) -> float:
    """The lowest Phi that L-BFGS finds from there."""
    try:
        found = minimize(
            judge, np.asarray(x, np.float64), jac=True, method="L-BFGS-B", options={"maxiter": 300}
        )
        return float(found.fun) if np.isfinite(found.fun) else np.inf
    except Exception:
        return np.inf


def timed() -> None:
    """The time of a step without step sizes, as a multiple of that with them."""
    problems = {
        "logistic, 64 weights, 90 samples an agent": logistic(loss="mean", scale=16.0),
        "hyper-cleaning, 640 weights, 90 samples": decibo.problems.hyper_cleaning(),
        "logistic, 1,000 weights, 1,000 samples": big(1000, 1000),
        "logistic, 4,000 weights, 2,000 samples": big(4000, 2000),
    }
    network = decibo.ring(10)
    for name, problem in problems.items():
        steps = 2000 if problem.y_layout.size < 1000 else 100
        found, given = (
            decibo.ahead_exact(),
            decibo.ahead_exact(alpha=1e-3, gamma=1e-3, momentum=0.8),
        )
        run = lambda by, p=problem, n=steps: decibo.solve(
            p, network, by, steps=n, every=n, measures=["consensus_x"]
        )
        for by in (found, given):
            run(by)  # compiles
        seconds = np.array([[run(by).cost.seconds for by in (found, given)] for _ in range(9)])
        ratio = np.median(seconds[:, 0] / seconds[:, 1])
        each = np.median(seconds[:, 1]) / steps * 1e6
        print(f"{name:42}{each:10.0f} us a step with given steps; found: {ratio:.2f} times that")


def big(weights: int, samples: int) -> decibo.Problem:
    """A penalised logistic regression of any size."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(10, samples, weights)) / np.sqrt(weights)
    data = {
        "a": features,
        "b": np.sign(features @ rng.normal(size=weights) + 0.1 * rng.normal(size=(10, samples))),
    }
    loss = lambda y, d: jnp.mean(jax.nn.softplus(-d["b"] * (d["a"] @ y)))
    inner = lambda x, y, d: loss(y, d) + 0.5 * jnp.exp(x) @ y**2 / weights
    return decibo.Problem(
        lambda x, y, d: loss(y, d), inner, data, np.zeros(weights), np.zeros(weights)
    )


def show(row: dict[str, Any]) -> str:
    """One line."""
    line = (
        f"{row['problem']:22}{row['network']:16}{row['seed']:4}"
        f" {row['judged']:7}{row['ours']:10.1e}"
    )
    return f"{line}{row['grid']:10.1e}{row['ratio']:10.2g}" + (
        "  DIVERGED" if row["diverged"] else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", help="also write the table here")
    parser.add_argument("--time", action="store_true", help="measure the time of a step instead")
    options = parser.parse_args()
    if options.time:
        timed()
        return
    jobs = [
        (name, net, seed, options.steps)
        for name in options.problems
        for net in (["ring"] if name == "path of 50" else NETWORKS)
        for seed in range(options.seeds)
    ]
    table = []
    print(
        f"{'problem':22}{'network':16}{'seed':>4}"
        f" {'judged':7}{'automatic':>10}{'grid':>10}{'ratio':>10}"
    )
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        for row in pool.map(case, jobs):
            table.append(row)
            print(show(row), flush=True)
            if options.json:
                with open(options.json, "w") as file:
                    json.dump(table, file, indent=1)
    within = sum(row["ratio"] <= WITHIN for row in table)
    ahead = sum(row["ratio"] < 1 / WITHIN for row in table)
    lost = sum(row["diverged"] for row in table)
    print(f"\nwithin {WITHIN:g} times of the grid's best: {within} of {len(table)}; ", end="")
    print(f"better by more than that: {ahead}; diverged: {lost}")


if __name__ == "__main__":
    main()
