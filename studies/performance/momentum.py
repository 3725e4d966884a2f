"""What inner momentum and Chebyshev rounds are worth: |grad Phi|^2 after equal steps, each tuned
over the same grid.

    python -m studies.performance.momentum [--quick]

The outer level is that of `decibo.problems.quadratic`. The inner level has the mean Hessian Q
diag(l) Q', l spread evenly on a logarithmic scale from 1 to kappa = L_g. Every agent multiplies
each l_j by a factor of its own between 0.5 and 1.5, so that agents differ and kappa is exactly the
condition number.

(a)  kappa = 1000, ring of 10, 3,000 steps: ahead_exact with and without momentum
(b)  kappa = 100, path of 30, 1,000 steps: `networks.chebyshev(path, K)` for K = 1 and 4

Every run is the best of one grid of (alpha, gamma): alpha 0.003 to 1 by steps of sqrt(10), gamma
L_g/((1 + b)/(1 - b)) in 0.15, 0.3, 0.6, 1.2 for momentum b.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np

import decibo
from studies.performance.timing import Row, run_alone

ALPHAS = [float(alpha) for alpha in 10 ** np.arange(-2.5, 0.1, 0.5)]
SHARES = (0.15, 0.3, 0.6, 1.2)


def ill_conditioned(agents: int, kappa: float, r: int = 6, seed: int = 0) -> decibo.Problem:
    """The quadratic with an inner level of this condition number."""
    rng = np.random.default_rng(seed)
    base = decibo.problems.quadratic(agents, n=3, r=r, seed=seed)
    Q, _ = np.linalg.qr(rng.normal(size=(r, r)))
    spread = rng.uniform(-1, 1, size=(agents, r))
    spread = spread - spread.mean(axis=0)
    spread = 0.5 * spread / np.abs(spread).max()
    H = np.einsum("ij,aj,kj->aik", Q, kappa ** np.linspace(0, 1, r) * (1 + spread), Q)
    problem = replace(base, data={**base.data, "H": H}, solution=None, constants=None)
    eigenvalues = np.linalg.eigvalsh(H.mean(axis=0))
    assert np.isclose(eigenvalues[-1] / eigenvalues[0], kappa)
    return problem


def best(
    problem: decibo.Problem, kappa: float, network: decibo.Network, momentum: float, steps: int
) -> tuple[float, float, float]:
    """The smallest |grad Phi|^2 at the end over the grid, with its alpha and gamma."""
    grid = {
        "alpha": ALPHAS,
        "gamma": [share / kappa * (1 + momentum) / (1 - momentum) for share in SHARES],
    }
    method = decibo.ahead_exact(alpha=1.0, gamma=1.0, momentum=momentum)
    runs = decibo.sweep(
        problem,
        network,
        method,
        grid,
        steps=steps,
        every=steps,
        measures=["stationarity"],
        progress=False,
    )
    ends = [
        (float(value), settings["alpha"], settings["gamma"])
        for value, settings, status in zip(
            runs.history["stationarity"][:, -1], runs.settings, runs.status, strict=True
        )
        if status == "done" and np.isfinite(value)
    ]
    return min(ends)


def rows(quick: bool) -> Iterator[Row]:
    """(a) and (b); quick runs have a tenth of the steps."""
    short = 10 if quick else 1
    with jax.enable_x64(True):
        yield from with_momentum(short)
        yield from with_rounds(short)


def with_momentum(short: int) -> Iterator[Row]:
    problem = ill_conditioned(10, 1000.0)
    for momentum in (0.0, 0.7, 0.9, 0.97):
        value, alpha, gamma = best(problem, 1000.0, decibo.ring(10), momentum, 3000 // short)
        what = f"condition 1000, ring of 10, 3,000 steps, momentum {momentum:g}"
        note = f"alpha {alpha:.3g}, gamma {gamma:.3g}"
        yield Row(
            "momentum",
            what,
            value,
            "|grad|^2",
            target="<= 1e-20" if momentum == 0.9 else "",
            note=note,
        )


def with_rounds(short: int) -> Iterator[Row]:
    problem = ill_conditioned(30, 100.0)
    ends = {}
    for rounds in (1, 4):
        network = decibo.networks.chebyshev(decibo.networks.path(30), rounds)
        for momentum in (0.0, 0.7, 0.9):
            ends[rounds, momentum], alpha, gamma = best(
                problem, 100.0, network, momentum, 1000 // short
            )
            what = (
                f"condition 100, path of 30, 1,000 steps, {rounds} round{'s' * (rounds > 1)},"
                f" momentum {momentum:g}"
            )
            note = f"alpha {alpha:.3g}, gamma {gamma:.3g}"
            yield Row("momentum", what, ends[rounds, momentum], "|grad|^2", note=note)
    one, four = (min(value for (k, _), value in ends.items() if k == rounds) for rounds in (1, 4))
    yield Row(
        "momentum",
        "the same, best with one round over best with four",
        one / four,
        "x",
        target=">= 1e5",
    )


if __name__ == "__main__":
    run_alone(rows)
