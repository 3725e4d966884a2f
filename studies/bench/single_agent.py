r"""The single-agent comparison: decibo's methods against the solvers of benchmark_bilevel, on the
problems of that benchmark.

    simulated   rank-one quadratics with the spectra of that benchmark's generator, y of 100 and x
                of 10 numbers, 32,000 + 1,280 samples (there 32,768 + 1,024); nothing to download
    ijcnn1      the penalty of each feature of a logistic regression, as there; its test file is not
                available, so the 49,990 training samples are divided into 24,960 to train and as
                many to validate

Every method is tuned with the same budget: 9 settings of PART of the passes each. For the public
solvers these are 3 step sizes times 3 ratios, among them what the benchmark's configuration files
give and what was best in short trials, which take larger steps; ours have 3 inner steps times 3
ratios or, with Adam on x, times 3 steps of it that fall like 1/sqrt(1 + k/1000). The setting with
the smallest Phi is run to the end; if that ends worse than its tuning did, the next best runs
instead, and the row says so. Two measures of equal cost:

    passes      gradient-equivalents, one pass being a gradient on all training samples: the same
                numbers in every run
    seconds     of CPU time, in one thread, without compiling

Phi* is known for the simulated setting, and found by L-BFGS with exact gradients, from the best end
of all, for ijcnn1. Gaps Phi - Phi* below 1e-13 are rounding and count as that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.optimize import minimize

from decibo.algorithm import consensus, direction, estimator, rule, schedules
from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.compose import compose
from decibo.formatting import typeset_number
from decibo.measure.cost import PRODUCT
from decibo.network.graphs import complete
from decibo.run import loop
from decibo.run.fingerprint import software
from decibo.run.solve import prepare
from studies.bench import material
from studies.bench.page import Block
from studies.bench.public_solvers import BATCH, PublicSolvers, Solver, Task, around
from studies.bench.storage import computed_once

FOLDER = "single_agent"
PASSES = 200
SECONDS = 2.0
PART = 0.1  # of the passes, for each setting that is tried
MARKS = (0.04, 0.2, 1.0)  # of the passes, where the gap is looked at
FLOOR = 1e-13


class Row(NamedTuple):
    """A method on a task: its tuned step and ratio, its gaps at the marks and after the seconds,
    its speed."""

    task: str
    method: str
    ours: bool
    setting: tuple[float, float]
    gaps: list[float]
    timed: float
    work: float  # of a step, in gradients on one batch
    micros: float  # of a step
    note: str = ""


KINDS = ("saga", "saga, adam", "Hessian-free, saga, adam")


def method_of(kind: str, h: float, ratio: float) -> Algorithm:
    """One of ours; the ratio of those with Adam is its first step."""
    exact = consensus.exact_diffusion()
    if kind == "saga":
        return compose(
            direction.implicit(), exact, estimator=estimator.saga(), x=h / ratio, y=h, v=h
        )
    adam = rule.adam(schedules.polynomial(ratio, -0.5, delay=1000.0))
    if kind == "saga, adam":
        strategies = {"x": consensus.tracking(), "y": exact, "v": exact}
        return compose(
            direction.implicit(), strategies, estimator=estimator.saga(), x=adam, y=h, v=h
        )
    strategies = {"x": consensus.tracking(), "y": exact, "z": exact}
    along = direction.symmetric_penalty(100.0)
    return compose(along, strategies, estimator=estimator.saga(), x=adam, y=h, z=h)


def ours(kind: str, task: Task) -> Solver:
    """decibo's compiled loop on one agent."""
    method = method_of(kind, 0.1, 1.0)
    setup = prepare(task.problem(), complete(1), method, steps=1, every=1, measures=["outer"])
    price = setup.cost.gradients + PRODUCT * setup.cost.calls  # each on one batch

    def start(h: float, ratio: float) -> Any:
        inputs = setup.inputs._replace(core=method_of(kind, h, ratio).core)
        return inputs, loop.begin(setup.program, inputs, setup.start), jnp.int32(0)

    def advance(at: Any, n: int) -> Any:
        inputs, state, k = at
        end = loop.advance(setup.program, inputs, state, k, loop.Chunk.silent(n))
        return inputs, end.state, end.k

    mean = lambda at: np.asarray(jax.vmap(at[0].core.view)(at[1])["x"]).mean(axis=0)
    settings = around(task.centres["ours" if kind == "saga" else "ours, adam"])
    return Solver(kind, settings, start, advance, mean, lambda steps: price * steps, True)


# The comparison


def phi(task: Task, x: np.ndarray) -> float:
    """Phi, infinite for what is lost."""
    value = task.phi(x) if np.isfinite(x).all() and np.abs(x).max() < 1e3 else np.inf
    return value if np.isfinite(value) else np.inf


def steps_for(solver: Solver, work: float) -> int:
    """The smallest number of steps with so much work."""
    high = 1
    while solver.work(high) < work:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if solver.work(middle) >= work else (middle, high)
    return high


def ends(
    solver: Solver, setting: tuple[float, float], steps: Sequence[int]
) -> tuple[list[np.ndarray], float]:
    """x after so many steps each, and the CPU seconds of all of them."""
    state = solver.start(*setting)
    found = []
    used = 0.0
    at = 0
    for count in steps:
        begun = time.process_time()
        state = jax.block_until_ready(solver.advance(state, count - at))
        used += time.process_time() - begun
        at = count
        found.append(solver.x(state))
    return found, used


def compare(task: Task, passes: float = PASSES, seconds: float = SECONDS) -> list[Row]:
    """A row for each method on one agent."""
    solvers = PublicSolvers(task).solvers() + [ours(kind, task) for kind in KINDS]
    whole = passes * len(jax.tree.leaves(task.train)[0]) / BATCH  # in gradients on one batch
    chosen: list[tuple[tuple[float, float], list[np.ndarray], float, str]] = []
    for solver in solvers:
        jax.block_until_ready(solver.advance(solver.start(*solver.settings[0]), 2))  # compiles
        steps = [steps_for(solver, mark * whole) for mark in MARKS]
        setting, points, used, note = _tuned(task, solver, steps_for(solver, PART * whole), steps)
        timed, _ = ends(solver, setting, [max(1, round(seconds * steps[-1] / used))])
        chosen.append((setting, [*points, *timed], used / steps[-1], note))
    values = np.array([[phi(task, x) for x in points] for _, points, _, _ in chosen])
    best = chosen[int(np.argmin(values.min(axis=1)))][1]
    lowest = min(task.lowest(min(best, key=lambda x: phi(task, x))), values.min())
    rows = []
    for solver, (setting, _, speed, note), found in zip(solvers, chosen, values, strict=True):
        gaps = np.maximum(found - lowest, FLOOR).tolist()
        price = solver.work(steps_for(solver, whole)) / steps_for(solver, whole)
        rows.append(
            Row(
                task.name,
                solver.name,
                solver.ours,
                setting,
                gaps[:-1],
                gaps[-1],
                price,
                1e6 * speed,
                note,
            )
        )
    return rows


def _tuned(
    task: Task, solver: Solver, short: int, steps: Sequence[int]
) -> tuple[tuple[float, float], list[np.ndarray], float, str]:
    """The best setting of short runs, or the next best: its x at the steps, its CPU seconds, and a
    note."""
    tried = [phi(task, ends(solver, setting, [short])[0][0]) for setting in solver.settings]
    order = np.argsort(tried, kind="stable")
    setting = solver.settings[int(order[0])]
    points, used = ends(solver, setting, steps)
    if phi(task, points[-1]) <= tried[int(order[0])]:
        return setting, points, used, ""
    setting = solver.settings[int(order[1])]
    return setting, *ends(solver, setting, steps), "second best of tuning"


def compute(out: Path, passes: float = PASSES, seconds: float = SECONDS) -> list[Row]:
    """The rows of all tasks whose data are available, computed once for a folder."""
    asked = {"software": software(), "about": [passes, seconds, PART, list(MARKS)]}
    for name, make in TASKS.items():
        if material.at_hand(name):
            rows = lambda make=make: {"rows": compare(make(), passes, seconds)}
            computed_once(out / FOLDER / f"{name}.json", asked, rows)
    return read(out)


def read(out: Path) -> list[Row]:
    """The rows in the folder."""
    paths = [out / FOLDER / f"{name}.json" for name in TASKS]
    files = [json.loads(path.read_text()) for path in paths if path.is_file()]
    return [Row(*each) for file in files for each in file["rows"]]


def block(rows: Sequence[Row], passes: float = PASSES, seconds: float = SECONDS) -> Block:
    """The section of the page."""
    shown = [typeset_number(mark * passes) for mark in MARKS]
    head = [
        "setting",
        "method",
        *(f"after {mark} passes" for mark in shown),
        f"after {seconds:g} s",
    ]
    lines = []
    for row in rows:
        gaps = [_gap(gap) for gap in (*row.gaps, row.timed)]
        price = [f"{row.work:.0f}", f"{row.micros:.0f}"]
        lines.append(
            [row.task, f"decibo: {row.method}" if row.ours else row.method, *gaps, *price, row.note]
        )
    sentences = [
        (
            "On one agent the others are the solvers of benchmark_bilevel, variance-reduced ones"
            f" among them. The table has Phi - Phi* at equal gradient-equivalents ({passes:g}"
            f" passes over the training samples) and at equal CPU time ({seconds:g} s of one"
            " thread); all were tuned with 9 settings of a tenth of the passes."
        ),
        *(
            _verdict(name, [row for row in rows if row.task == name])
            for name in dict.fromkeys(row.task for row in rows)
        ),
    ]
    heads = [*head, "gradients on a batch, a step", "microseconds", "note"]
    return Block("The single-agent comparison", sentences, heads, lines)


def _gap(value: float) -> str:
    return "below 1e-13" if value <= FLOOR else f"{value:.0e}"


def _verdict(name: str, rows: Sequence[Row]) -> str:
    """Who is ahead, and by how much."""
    parts = []
    for what, gap in (("work", lambda row: row.gaps[-1]), ("CPU time", lambda row: row.timed)):
        mine, theirs = (
            min((row for row in rows if row.ours is side), key=gap) for side in (True, False)
        )
        ratio = gap(mine) / gap(theirs)
        words = "the same gap as" if 0.5 <= ratio <= 2 else f"{ratio:.2g} times the gap of"
        parts.append(f"at equal {what} decibo's {mine.method} has {words} {theirs.method}")
    return f"{name}: {' and '.join(parts)}."


# The settings


def ijcnn1() -> Task:
    """Which regularisation of each feature of a logistic regression validates best."""
    samples = material.table("ijcnn1")
    X = np.concatenate([samples.features, samples.test_features]).astype(float)
    b = np.concatenate([samples.labels, samples.test_labels]).astype(float)
    order = np.random.default_rng(0).permutation(len(b))
    m = 24_960
    train, validation = ((X[part], b[part]) for part in (order[:m], order[m : 2 * m]))
    loss = lambda y, samples: jnp.mean(jax.nn.softplus(-samples[1] * (samples[0] @ y)))
    inner = lambda x, y, samples: loss(y, samples) + 0.5 * jnp.sum(jnp.exp(x) * y**2)
    outer = lambda x, y, samples: loss(y, samples)
    random = np.random.RandomState(2442)  # as in the benchmark's objective
    y0 = random.randn(22)
    x0 = np.log(random.rand(22))
    whole = [jax.tree.map(jnp.asarray, part) for part in (train, validation)]

    def solved(x: jax.Array) -> jax.Array:
        def newton(_: int, y: jax.Array) -> jax.Array:
            p = jax.nn.sigmoid(-whole[0][1] * (whole[0][0] @ y))
            H = (whole[0][0].T * (p * (1 - p))) @ whole[0][0] / m + jnp.diag(jnp.exp(x))
            return y - jnp.linalg.solve(H, jax.grad(inner, 1)(x, y, whole[0]))

        return lax.fori_loop(0, 8, newton, jnp.zeros(22))

    @jax.jit
    def value_and_grad(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = solved(x)
        v = jnp.linalg.solve(
            jax.hessian(inner, 1)(x, y, whole[0]), jax.grad(outer, 1)(x, y, whole[1])
        )
        return outer(x, y, whole[1]), -(jnp.exp(x) * y * v)

    def lowest(x: np.ndarray) -> float:
        value = lambda x: tuple(np.asarray(part, float) for part in value_and_grad(jnp.asarray(x)))
        options = {"maxiter": 300, "ftol": 1e-15, "gtol": 1e-9}
        return float(minimize(value, x, jac=True, method="L-BFGS-B", options=options).fun)

    usual = (0.5, 10**-0.5, 2.0)
    centres = dict.fromkeys(("SRBA", "SABA", "StocBiO", "ours"), usual)
    centres |= {"AmIGO": (0.25, 10**-1.5, 2.0), "SOBA": (0.125, 0.01, 4.0)}
    centres["ours, adam"] = (0.5, 0.01, 2.0)
    value = jax.jit(lambda x: outer(x, solved(x), whole[1]))
    exact = lambda x: float(value(jnp.asarray(x)))
    return Task("ijcnn1", inner, outer, train, validation, x0, y0, exact, lowest, centres)


def simulated() -> Task:
    """f and g are means of rank-one quadratics."""
    r, n = 100, 10
    random = np.random.RandomState(2442)

    def half(size: int, spectrum: np.ndarray) -> np.ndarray:
        U = np.linalg.svd(random.randn(size, 1))[0]
        return U @ np.diag(spectrum) @ U.T

    def samples(count: int) -> dict[str, np.ndarray]:
        """H_i = h h', C_i = p q' for the cross term, P_i = s s', and linear terms."""
        U, _, V = np.linalg.svd(random.randn(n, r))
        D = np.zeros((n, r))
        D[:, :n] = np.diag(np.logspace(-1, -1, n))  # mu = L_cross = 0.1
        X = random.randn(count, r)
        return {
            "h": random.randn(count, r) @ half(r, np.logspace(-0.5, 0, r)),
            "s": random.randn(count, n) @ half(n, np.r_[0, np.logspace(-0.5, 0, n - 1)]),
            "p": X @ (U @ D).T,
            "q": X @ V.T,
            "e": random.randn(count, r),
            "c": random.randn(count, n),
        }

    def value(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
        bilinear = (
            jnp.mean((d["p"] @ x) * (d["q"] @ y)) + jnp.mean(d["e"] @ y) + jnp.mean(d["c"] @ x)
        )
        return 0.5 * jnp.mean((d["h"] @ y) ** 2) + 0.5 * jnp.mean((d["s"] @ x) ** 2) + bilinear

    mean = lambda d, a, b: d[a].T @ d[b] / len(d[a])
    while True:  # until Phi is convex, as in the benchmark
        train, validation = samples(32_000), samples(1_280)
        S = -np.linalg.solve(mean(train, "h", "h"), mean(train, "q", "p"))  # y*(x) = S x + t
        t = -np.linalg.solve(mean(train, "h", "h"), train["e"].mean(axis=0))
        F, P, C = mean(validation, "h", "h"), mean(validation, "s", "s"), mean(validation, "p", "q")
        Q = S.T @ F @ S + P + C @ S + (C @ S).T
        if np.linalg.eigvalsh(Q)[0] > 1e-3:
            break
    e, c = validation["e"].mean(axis=0), validation["c"].mean(axis=0)

    def exact(x: np.ndarray) -> float:
        y = S @ x + t
        return float(0.5 * y @ F @ y + 0.5 * x @ P @ x + x @ C @ y + e @ y + c @ x)

    star = np.linalg.solve(Q, -(S.T @ F @ t + C @ t + S.T @ e + c))
    centres = dict.fromkeys(("SRBA", "SABA", "StocBiO", "ours"), (0.1, 1.0, 2.0))
    centres |= {"AmIGO": (0.02, 0.1, 2.0), "SOBA": (0.1, 0.1, 3.0), "ours, adam": (0.1, 0.1, 2.0)}
    x0, y0 = -2 * np.ones(n), np.zeros(r)
    lowest = lambda x: exact(star)
    return Task("simulated", value, value, train, validation, x0, y0, exact, lowest, centres)


TASKS: dict[str, Callable[[], Task]] = {"simulated": simulated, "ijcnn1": ijcnn1}
