"""Tune the regularisation of a classifier across silos that keep their data.

Eight silos hold handwritten digits, 1 against 3, each with a different share of ones. Together they
fit one logistic regression (inner level) and choose one regularisation exponent for each pixel on
held-out digits (outer level).

    python examples/hyper_parameters.py [--quick]
"""

import sys
from functools import partial

import jax.numpy as jnp

import decibo

STEPS = 300 if "--quick" in sys.argv else 3000


def main():
    digits = decibo.data.digits(1, 3)
    make = partial(
        decibo.problems.logistic_hyperparameters, digits, 8, split="by_label", loss="mean"
    )
    problem = make(scaled=True, prior=4.0)  # quick to solve, and with a best answer
    network = decibo.ring(8)
    print(digits)
    print("heterogeneity:", decibo.heterogeneity(problem))
    exact = decibo.reference(make())  # uses all data: for evaluation, not for deployment
    print(f"Phi at the start: {float(exact.phi(problem.x0)):.4f}")
    accuracy = lambda y: float(
        decibo.problems.accuracy(y, digits.test_features, digits.test_labels)
    )
    one = min((jnp.full(64, float(e)) for e in range(-12, 3)), key=lambda x: float(exact.phi(x)))
    print("\none exponent for all pixels, the best of 15")
    print(f"  Phi {float(exact.phi(one)):.4f}, test accuracy {accuracy(exact.y(one)):.3f}")

    solution = decibo.solve(problem, network, steps=STEPS, measures=["consensus_y"])
    print("\none for each pixel, learned between silos")
    print(f"  Phi {float(exact.phi(solution.x)):.4f}, test accuracy {accuracy(solution.y):.3f}")
    print(f"  spread of y between silos {float(solution.history['consensus_y'][-1]):.1e}")

    x = solution.x.reshape(8, 8)
    print("\nLook at: Phi, the loss on held-out digits, of both. New digits are too few to differ.")
    print("Pixels by their regularisation e^x, from weak (.) to strong (#):")
    levels = jnp.clip(4 * (x - x.min()) / (x.max() - x.min() + 1e-12), 0, 3).astype(int)
    print("\n".join("  " + "".join(".-+#"[level] for level in row) for row in levels))


if __name__ == "__main__":
    main()
