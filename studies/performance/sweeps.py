"""A sweep of 64 settings against 64 calls of solve, compilation included.

python -m studies.performance.sweeps [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import decibo
from decibo.run.sweep import sweep
from studies.performance import growth
from studies.performance.cases import logistic
from studies.performance.timing import Row, ratio, run_alone

GROUP = "sweep"
POINTS = 64


def cases(quick: bool) -> dict[str, tuple[Any, ...]]:
    """Problem, network, method, steps, values of alpha, target."""
    exact = decibo.ahead_exact(alpha=0.01, gamma=0.1)
    ahead = decibo.ahead(alpha=1e-4, beta=5e-4, gamma=2e-2, lam=10.0)
    digits = decibo.problems.logistic_hyperparameters(loss="mean", scale=16.0)
    large = 1000 if quick else 100_000
    few = 5 if quick else 20
    return {
        "small: the paper's example": (
            decibo.problems.synthetic(),
            decibo.ring(10),
            ahead,
            2000,
            (1e-5, 5e-4),
            ">= 4",
        ),
        "small: quadratic": (
            decibo.problems.quadratic(),
            decibo.ring(10),
            exact,
            2000,
            (1e-3, 5e-2),
            ">= 4",
        ),
        "small: quadratic, longer": (
            decibo.problems.quadratic(),
            decibo.ring(10),
            exact,
            20_000,
            (1e-3, 5e-2),
            ">= 4",
        ),
        "digits, 10 agents": (
            digits,
            decibo.ring(10),
            exact,
            50 if quick else 500,
            (1e-2, 1.0),
            ">= 1",
        ),
        "large: logistic 10 x 400 x 784": (
            logistic().problem,
            decibo.ring(10),
            ahead,
            few,
            (1e-5, 1e-4),
            ">= 1",
        ),
        f"large: ring of {large:,}": (
            growth.problem(large, 16),
            decibo.ring(large),
            ahead,
            few,
            (1e-5, 1e-4),
            ">= 1",
        ),
    }


def compared(
    problem: Any, network: Any, method: Any, steps: int, alphas: list[float]
) -> tuple[float, float, Any]:
    """Seconds one after another, seconds of the sweep, and the sweep; each compiles afresh."""
    options = {"steps": steps, "every": steps, "measures": ["outer"], "progress": False}
    jax.clear_caches()
    begun = time.perf_counter()
    runs = [
        decibo.solve(problem, network, method.replace(alpha=alpha), **options) for alpha in alphas
    ]
    between = time.perf_counter()
    jax.clear_caches()
    again = time.perf_counter()
    swept = sweep(problem, network, method, {"alpha": alphas}, **options)
    end = time.perf_counter()
    last = np.array([run.history["outer"][-1] for run in runs])
    np.testing.assert_allclose(swept.history["outer"][:, -1], last, rtol=1e-3)
    return between - begun, end - again, swept


def rows(quick: bool) -> Iterator[Row]:
    points = 8 if quick else POINTS
    for label, (problem, network, method, steps, span, target) in cases(quick).items():
        alphas = np.geomspace(*span, points).tolist()
        results = [
            compared(problem, network, method, steps, alphas)
            for _ in range(1 if quick else 2 if label.startswith("large") else 3)
        ]
        note = f"{steps} steps; batches of {results[-1][2].batches[0]}"
        what = f"{label}: {points} runs one after another / sweep"
        yield ratio(
            GROUP, what, [each[0] for each in results], [each[1] for each in results], target, note
        )


if __name__ == "__main__":
    run_alone(rows)
