"""Meta-learning with a small neural network: shared features, a head that is fitted quickly.

Six schools each see a different part of a curve. The outer variable x holds the hidden layer of a
network, shared by all; the inner variable y is the linear head, fitted by ridge regression on
support points. x is judged by how well the fitted head does on query points. Both are pytrees. The
ridge makes the inner level strongly convex; the outer level is not convex. The example shows how
such a problem is written, not that it pays: with few images of each digit a head fitted on pixels
did better than one on shared features (studies/results/uses.md).

    python examples/meta_learning.py [--quick]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import decibo

STEPS = 300 if "--quick" in sys.argv else 3000
HIDDEN = 12


def network_output(x, y, points):
    hidden = jnp.tanh(points[:, None] * x["slope"] + x["offset"])
    return hidden @ y["weights"] + y["bias"]


def outer(x, y, d):
    """The error on query points, and a little decay of the hidden layer."""
    error = jnp.mean((network_output(x, y, d["query"]) - d["query_values"]) ** 2)
    return error + 1e-4 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x))


def inner(x, y, d):
    """The error on support points, and the ridge."""
    error = jnp.mean((network_output(x, y, d["support"]) - d["support_values"]) ** 2)
    return error + 0.01 * (jnp.sum(y["weights"] ** 2) + y["bias"] ** 2)


def schools(agents, random):
    """Noisy samples of one curve, for each school from its own part of it."""
    centre = np.linspace(-2, 2, agents)[:, None]
    curve = lambda p: np.sin(2 * p) + 0.3 * p
    support, query = (centre + random.uniform(-1.2, 1.2, (agents, 20)) for _ in range(2))
    noise = lambda: 0.05 * random.normal(size=(agents, 20))
    return {
        "support": support,
        "support_values": curve(support) + noise(),
        "query": query,
        "query_values": curve(query) + noise(),
    }


def main():
    random = np.random.default_rng(0)
    x0 = {"slope": random.normal(size=HIDDEN), "offset": random.normal(size=HIDDEN)}
    y0 = {"weights": np.zeros(HIDDEN), "bias": 0.0}
    problem = decibo.Problem(outer, inner, schools(6, random), x0, y0)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1, lam=30.0)
    solution = decibo.solve(
        problem,
        decibo.ring(6),
        method,
        steps=STEPS,
        every=STEPS // 5,
        measures=["phi", "consensus_x"],
    )
    phi = solution.history["phi"]
    print(f"{solution.status}: the query error of a head fitted on these features")
    for step, error in zip(solution.history["step"], phi, strict=True):
        print(f"  step {step:5d}   {error:.4f}")
    print("shapes of x:", {name: leaf.shape for name, leaf in solution.x.items()})
    print(f"disagreement of the schools over x: {solution.history['consensus_x'][-1]:.1e}")
    print(
        "Look at: the error falls although the outer level learns only the hidden layer, and each"
        " school"
    )
    print("sees only its own part of the curve.")


if __name__ == "__main__":
    main()
