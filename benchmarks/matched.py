"""The largest stable alpha against lam: matched inner steps (ahead_exact) and timescales apart
(AHEAD's directions).

    python benchmarks/matched.py

Ring of 10, gamma fixed for each problem. An alpha is stable if 2,000 steps stay finite, Phi(xbar)
never rises above its start (40 records) and the agents end closer together than they were at worst;
the largest is found by bisection on a grid of factor 1.25. Apart means exact diffusion along
AHEAD's penalty direction with gamma = 5 beta lam.
"""

from __future__ import annotations

import time

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import decibo  # noqa: E402
from decibo import consensus, direction  # noqa: E402

RING = decibo.ring(10)
STEPS = 2000
FACTOR = 1.25
PROBLEMS = {
    "quadratic, condition 10": (decibo.problems.quadratic(condition=10.0), 0.1),
    "logistic, digits by label, summed loss": (
        decibo.problems.logistic_hyperparameters(split="by_label"),
        0.02,
    ),
    # gamma beyond 1/L_g of the later part of the run: at this edge the answer is erratic
    "logistic, digits by label, mean loss, gamma too large": (
        decibo.problems.logistic_hyperparameters(loss="mean", scale=16.0, split="by_label"),
        0.2,
    ),
    "energy pricing": (decibo.problems.stackelberg_pricing(), 0.2),
}


def matched(lam: float, gamma: float):
    return lambda alpha: decibo.ahead_exact(alpha=alpha, gamma=gamma, lam=lam)


def apart(lam: float, gamma: float):
    return lambda alpha: decibo.compose(
        direction.penalty(lam), consensus.exact_diffusion(), x=alpha, y=gamma / (5 * lam), z=gamma
    )


def stable(problem: decibo.Problem, method: decibo.Algorithm) -> bool:
    options = {
        "steps": STEPS,
        "every": STEPS // 40,
        "measures": ["phi", "consensus_x"],
        "progress": False,
    }
    solution = decibo.solve(problem, RING, method, **options)
    phi = solution.history["phi"]
    apart = solution.history["consensus_x"]
    return solution.status == "done" and bool((phi[1:] <= phi[0]).all() and apart[-1] < apart.max())


def largest(problem: decibo.Problem, make) -> float:
    grid = 1e-6 * FACTOR ** np.arange(110)
    first = -1
    last = len(grid)
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (
            (middle, last) if stable(problem, make(float(grid[middle]))) else (first, middle)
        )
    return float(grid[first]) if first >= 0 else 0.0


def main() -> None:
    begun = time.perf_counter()
    lams = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
    for name, (problem, gamma) in PROBLEMS.items():
        print(f"{name}, gamma = {gamma:g}\n{'lam':>8}{'matched':>12}{'apart':>12}")
        rows = []
        for lam in lams:
            rows.append(
                (largest(problem, matched(lam, gamma)), largest(problem, apart(lam, gamma)))
            )
            text = "none" if rows[-1][1] == 0 else f"{rows[-1][1]:.3g}"
            print(f"{lam:8g}{rows[-1][0]:12.3g}{text:>12}", flush=True)
        alphas = [row[0] for row in rows]
        print(f"matched: largest over smallest {max(alphas) / min(alphas):.2f}\n")
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
