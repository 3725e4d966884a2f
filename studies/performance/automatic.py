"""Automatic step sizes against the best of a 13 x 4 grid, and whether they ever diverge.

    python -m studies.performance.automatic [--own] [--seeds 3] [--only text] [--jobs 1] [--moved]
    python -m studies.performance.automatic --time

Judged by |grad Phi(xbar)| at the end, by Newton's method in float64; the grid's best is the pair
(alpha from 1e-4 to 1e2 units of the problem, gamma L one of .01, .1, .5, 1) of `ahead_exact` with
lam = 100 whose gradient is smallest in the end. What is below 1e-9 of the start (1e-6 in float32)
counts as rounding. A run has diverged if it is not finite, or if the gradient is 30 times that of
the start and Phi far above it.

--own     problems that the rule was not chosen on, for --seeds seeds each
--moved   every constant of the rule times .7 and 1.3, one at a time, for a quarter of the steps;
          only who diverges is reported
--time    what finding the step sizes adds to the time of a step, both kinds of run interleaved

Grid and results are kept in studies/results/automatic.json; known rows of the grid are not computed
again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import decibo  # noqa: E402
from decibo.algorithm import automatic as rule  # noqa: E402
from decibo.problem.problem import Oracle  # noqa: E402
from decibo.run import loop  # noqa: E402
from decibo.run.solve import network_constants  # noqa: E402
from studies.performance.step_problems import CASES, OWN, Case  # noqa: E402

PART = 4  # of the steps, with constants moved
RESULTS = Path(__file__).parents[1] / "results" / "automatic.json"
ALPHAS, GAMMAS = np.logspace(-4, 2, 13), (0.01, 0.1, 0.5, 1.0)
MOVED = [
    "THETA",
    "SAFE",
    "FIRST",
    "PACE",
    "NOISE",
    "FALL",
    "LATE",
    "RECENT",
    "SETTLED",
    "LEAST",
    "START",
    "BRAKE",
    "ROUNDING",
    "CUT",
    "MOST",
    "AVERAGE",
    "BIG",
    "FAR",
]


def curvature(problem: decibo.Problem) -> float:
    """The largest curvature of any agent's inner level at the start."""
    x, y = problem.x_layout.ravel(problem.x0), problem.y_layout.ravel(problem.y0)
    hessian = lambda d: jax.hessian(lambda v: Oracle(problem.functions, d).inner_value(x, v))(y)
    return float(jnp.max(jnp.abs(jnp.linalg.eigvalsh(jax.vmap(hessian)(problem.data)))))


def judge(problem: decibo.Problem, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Phi and |grad Phi| at the rows of X, from y near y*; infinite where something is not
    finite."""
    wide = lambda a: a.astype(jnp.float64) if a.dtype == jnp.float32 else a
    data = jax.tree.map(lambda a: wide(jnp.asarray(a)), problem.data)
    mean = lambda value: (
        lambda x, y: jnp.mean(jax.vmap(lambda d: value(Oracle(problem.functions, d), x, y))(data))
    )
    f, g = mean(Oracle.outer_value), mean(Oracle.inner_value)
    g_y, hessian = jax.grad(g, 1), jax.hessian(g, 1)

    def newton(x, y):
        def step(_, y):
            s, now = jnp.linalg.solve(hessian(x, y), g_y(x, y)), jnp.linalg.norm(g_y(x, y))
            tries = y - 2.0 ** -jnp.arange(12.0)[:, None] * s
            size = jnp.linalg.norm(jax.vmap(g_y, (None, 0))(x, tries), axis=1)
            size = jnp.where(jnp.isfinite(size), size, jnp.inf)
            return jnp.where(jnp.min(size) < now, tries[jnp.argmin(size)], y)

        return jax.lax.fori_loop(0, 40, step, y)

    def one(x, y):
        y = newton(x, y)
        v = jnp.linalg.solve(hessian(x, y), jax.grad(f, 1)(x, y))
        return f(x, y), jnp.linalg.norm(jax.grad(f)(x, y) - jax.grad(lambda x: g_y(x, y) @ v)(x))

    sound = np.isfinite(X).all(1) & (np.abs(X) < 1e12).all(1)
    y0 = np.asarray(problem.y_layout.ravel(problem.y0), np.float64)
    near = (np.isfinite(Y) & (np.abs(Y) < 1e6)).all(1)
    phi, grad = map(
        np.asarray,
        jax.jit(jax.vmap(one))(
            np.where(sound[:, None], X, 0.0).astype(float), np.where(near[:, None], Y, y0)
        ),
    )
    lost = ~sound | ~np.isfinite(phi) | ~np.isfinite(grad)
    return np.where(lost, np.inf, phi), np.where(lost, np.inf, grad)


def ends(
    case: Case,
    methods: list[decibo.Algorithm],
    seed: int,
    part: int = 1,
    constants: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Phi and |grad Phi| after a quarter and after all steps, a column for each of the methods,
    which differ in numbers only; `part`: for so much less steps; `constants`: a row of those in
    MOVED for each of the methods."""
    problem, network = case.problem, case.network
    if problem.sample is not None:
        methods = [decibo.minibatch(method) for method in methods]
    stack = lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves])
    cores = jax.tree.map(stack, *[method.core for method in methods])
    program, start = loop.Program(problem.functions, ()), problem.start_rows(network.agents)
    stops = np.array([case.steps // part // 4, case.steps // part])
    kept = [getattr(rule, name) for name in MOVED]
    constants = np.tile(kept, (len(methods), 1)) if constants is None else constants

    @jax.jit
    def run(cores, mixing, data, stops, constants):
        def one(core, values):
            if part > 1:  # else they remain Python's numbers, as in every other run
                vars(rule).update(zip(MOVED, values, strict=True))
            reach = network_constants(network)
            inputs = loop.Inputs(core, mixing, data, jax.random.key(seed), {}, {}, reach)

            def until(state, ab):
                step = lambda k, s: loop.step(program, inputs, s, k)
                state = jax.lax.fori_loop(ab[0], ab[1], step, state)
                rows = jax.vmap(core.view)(state)
                return state, (jnp.mean(rows["x"], 0), jnp.mean(rows["y"], 0))

            between = jnp.stack([jnp.array([0, stops[0]]), stops])
            return jax.lax.scan(until, loop.begin(program, inputs, start), between)[1]

        return jax.vmap(one, axis_size=len(methods))(cores, constants)

    try:
        values = jnp.asarray(constants, start["x"].dtype)
        rows = run(cores, network.mixing(), problem.data, jnp.array(stops), values)
    finally:
        vars(rule).update(zip(MOVED, kept, strict=True))
    X, Y = (np.asarray(a, np.float64) for a in rows)
    phi, grad = judge(problem, X.reshape(-1, X.shape[-1]), Y.reshape(-1, Y.shape[-1]))
    return phi.reshape(-1, 2).T, grad.reshape(-1, 2).T


def flat(layout: Any, tree: Any) -> np.ndarray:
    return np.asarray(layout.ravel(tree), np.float64)[None]


def row(job: tuple[str, int | None, dict[str, Any] | None, bool]) -> tuple[str, dict[str, Any]]:
    """One problem: the grid, unless it is known, and the rule; or the rule with constants moved."""
    name, seed, known, moved = job
    case = CASES[name]() if seed is None else OWN[name](seed)
    problem, number = case.problem, seed or 0
    label = name if seed is None else f"{name}, seed {seed}"
    (phi0,), (grad0,) = judge(
        problem, flat(problem.x_layout, problem.x0), flat(problem.y_layout, problem.y0)
    )
    lost = lambda phi, grad: bool(
        not np.isfinite(grad) or (grad > 30 * grad0 and phi > phi0 + 10 * abs(phi0))
    )
    if moved:
        values = np.array([getattr(rule, name) for name in MOVED])
        tries = [(i, factor) for i in range(len(MOVED)) for factor in (0.7, 1.3)]
        rows = np.tile(values, (len(tries), 1))
        for place, (i, factor) in enumerate(tries):
            falls = MOVED[i] == "FALL"
            rows[place, i] = 1 - (1 - values[i]) * factor if falls else values[i] * factor
        phi, grad = ends(case, [decibo.ahead_exact()] * len(tries), number, PART, rows)
        gone = [
            f"{MOVED[i]} x {factor}"
            for (i, factor), *end in zip(tries, phi[1], grad[1], strict=True)
            if lost(*end)
        ]
        return label, {"diverged with": gone}
    result = known or {"start": float(grad0), "phi0": float(phi0)}
    if "best" not in result:
        L = case.L or curvature(problem)
        pairs = [(float(case.unit * a), g / L) for a in ALPHAS for g in GAMMAS]
        methods = [decibo.ahead_exact(alpha=a, gamma=g, lam=100.0) for a, g in pairs]
        phi, grad = ends(case, methods, number)
        place = int(np.argmin(grad[1]))
        result |= {
            "best": float(grad[1, place]),
            "best at a quarter": float(grad[0].min()),
            "alpha, gamma L": [pairs[place][0], pairs[place][1] * L],
            "phi of the best": float(phi[1, place]),
        }
    phi, grad = ends(case, [decibo.ahead_exact()], number)
    floor = max(grad0, 1e-3 * (grad0 == 0)) * (1e-6 if "float32" in name else 1e-9)
    ratio = lambda ours, best: float(max(ours, floor) / max(best, floor))
    return label, result | {
        "automatic": float(grad[1, 0]),
        "phi": float(phi[1, 0]),
        "ratio": ratio(grad[1, 0], result["best"]),
        "ratio at a quarter": ratio(grad[0, 0], result["best at a quarter"]),
        "diverged": lost(phi[1, 0], grad[1, 0]),
    }


def summary(rows: list[dict[str, Any]]) -> str:
    ratios, quarter = (np.array([r[n] for r in rows]) for n in ("ratio", "ratio at a quarter"))
    mean = np.exp(np.mean(np.log(np.clip(ratios, 1e-2, 1e4))))
    return (
        f"of {len(rows)}: diverged {sum(r['diverged'] for r in rows)}, within a factor 3"
        f" {np.sum(ratios <= 3)}, 10 {np.sum(ratios <= 10)}; geometric mean of the ratios (in"
        f" [1/100, 1e4]) {mean:.2g}; at a quarter of the steps within 3 {np.sum(quarter <= 3)}"
    )


def timed() -> None:
    """The time of a step without step sizes, as a multiple of that with them and of the probe, a
    gradient of g at every fourth step: the fastest of nine runs each, interleaved."""
    problems = {
        "logistic, 64 weights, 90 samples an agent": decibo.problems.logistic_hyperparameters(
            loss="mean", scale=16.0
        ),
        "hyper-cleaning, 640 weights, 90 samples": decibo.problems.hyper_cleaning(),
        "logistic, 1,000 weights, 1,000 samples": big(1000, 1000),
        "logistic, 4,000 weights, 2,000 samples": big(4000, 2000),
    }
    network = decibo.ring(10)
    for name, problem in problems.items():
        steps = 2000 if problem.y_layout.size < 1000 else 100
        found, given = (
            decibo.ahead_exact(),
            decibo.ahead_exact(alpha=1e-3, gamma=1e-3, momentum=0.9),
        )
        run = lambda by, p=problem, n=steps: decibo.solve(
            p, network, by, steps=n, every=n, measures=["consensus_x"]
        )
        for by in (found, given):
            run(by)  # compiles
        probes = probing(problem, steps // rule.PROBE)
        each = [(run(found).cost.seconds, run(given).cost.seconds, probes()) for _ in range(9)]
        found_, given_, probe = np.array(each).T
        print(
            f"{name:42}{np.min(given_) / steps * 1e6:10.0f} us a step with given steps, the"
            f" probe {np.min(probe) / np.min(given_):.2f} times that; found:"
            f" {np.min(found_) / np.min(given_):.2f} times that,"
            f" {np.min(found_) / (np.min(given_) + np.min(probe)):.2f} times both"
        )


def probing(problem: decibo.Problem, times: int) -> Callable[[], float]:
    """The seconds that so many gradients of g take, all agents at once and one after another."""
    rows = problem.start_rows(10)

    @jax.jit
    def run(data, x, y):
        one = lambda d, x, y: Oracle(problem.functions, d).inner(x, y).y
        at = lambda _, y: y - 1e-9 * jax.vmap(one)(data, x, y)
        return jax.lax.fori_loop(0, times, at, y)

    def seconds() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(run(problem.data, rows["x"], rows["y"]))
        return time.perf_counter() - begun

    seconds()  # compiles
    return seconds


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--moved", action="store_true")
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    if options.time:
        timed()
        return
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    cases = (
        [(n, s) for n in OWN for s in range(options.seeds)]
        if options.own
        else [(n, None) for n in CASES]
    )
    wanted = [(n, s) for n, s in cases if any(part in n for part in options.only.split(","))]
    label = lambda n, s: n if s is None else f"{n}, seed {s}"
    jobs = [(n, s, kept.get(label(n, s)), options.moved) for n, s in wanted]
    done = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        for name, result in pool.map(row, jobs):
            done.append(result)
            if options.moved:
                print(
                    f"{name:36}", ", ".join(result["diverged with"]) or "none diverged", flush=True
                )
                continue
            kept[name] = result
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
            word = "DIVERGED" if result["diverged"] else ""
            print(
                f"{name:36}{result['start']:9.1e}{result['best']:9.1e}{result['automatic']:9.1e}"
                f"{result['ratio']:9.2g}{result['ratio at a quarter']:9.2g} {word}",
                flush=True,
            )
    if not options.moved:
        print(summary(done))


if __name__ == "__main__":
    main()
