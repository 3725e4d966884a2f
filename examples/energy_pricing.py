"""Electricity prices for a day: utilities set prices, households respond.

Ten districts agree on the prices of 24 hours (outer level). Households shift and lower their
consumption in response (inner level). Each district keeps the habits of its households and its
costs to itself. Everything is quadratic, so the best prices are known and the answers can be
checked. What a sceptic would do without a bilevel method, if the districts told him what they earn:
try prices, wait until all households have responded, and follow the differences.

    python examples/energy_pricing.py [--quick]
"""

import sys
from contextlib import suppress

import numpy as np
from scipy.optimize import minimize

import decibo

STEPS = 300 if "--quick" in sys.argv else 2000


RESPONSE = 10  # gradients until households have responded, by conjugate gradients


def search(problem, responses):
    """The best of the prices that a quasi-Newton method with differences has tried."""
    reference = decibo.reference(problem)
    tried = []

    def phi(prices):
        if len(tried) == responses:
            raise StopIteration
        tried.append((float(reference.phi(prices)), *prices))
        return tried[-1][0]

    # Phi is quadratic: central differences of any length are exact but for rounding.
    options = {"finite_diff_rel_step": 1.0}
    with suppress(StopIteration):
        minimize(phi, problem.x0, method="BFGS", jac="3-point", tol=1e-12, options=options)
    return np.array(min(tried)[1:])


def main():
    problem = decibo.problems.stackelberg_pricing(agents=10, hours=24)
    network = decibo.networks.small_world(10, 4, 0.3, seed=0)
    print(problem.name, "on", network)
    for method in (
        decibo.ahead(alpha=0.1, gamma=0.1, lam=20.0),
        decibo.ahead_exact(alpha=0.1, gamma=0.1, lam=20.0),
    ):
        solution = decibo.solve(
            problem, network, method, steps=STEPS, measures=["distance_x", "distance_y"]
        )
        error = solution.history["distance_x"][-1] ** 0.5
        sent = solution.cost.bytes_total / 1e6
        print(
            f"{method.name:12s} distance to the best prices {error:.1e} after {STEPS} steps and"
            f" {sent:.0f} MB"
        )

    responses = 3 * STEPS // RESPONSE  # as many gradients
    error = np.linalg.norm(search(problem, responses) - problem.solution["x"])
    print(f"a search     distance to the best prices {error:.0e} after {responses} responses")

    before = decibo.reference(problem).y(problem.x0)  # consumption if power were free
    print("\nhour   price   consumption (if free)")
    for hour in range(0, 24, 3):
        demand = float(solution.y[hour])
        free = float(before[hour])
        print(
            f"{hour:4d}   {float(solution.x[hour]):5.2f}   {demand:5.2f} ({free:4.2f})  "
            f" {'#' * round(10 * demand)}"
        )
    print(
        "Look at: at the same cost ahead stops short of the best prices since districts differ,"
        " and a search takes too many responses; ahead_exact finds them."
    )


if __name__ == "__main__":
    main()
