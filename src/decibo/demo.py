"""The demo: ten silos tune the regularisation of a classifier together, and no image leaves its silo."""

from __future__ import annotations

from typing import Any


def main() -> None:
    """Solve it with AHEAD and with ahead_exact, and show where both come out."""
    import decibo

    dataset = decibo.data.digits()
    problem = decibo.logistic_hyperparameters(dataset, m=10, split="by_label", loss="mean", scale=16.0)
    network = decibo.erdos_renyi(10, 0.4, seed=0)
    spread = decibo.heterogeneity(problem)
    print("Handwritten digits, 1 against 3, over 10 silos with unequal shares of both.")
    print(f"{network!r}; heterogeneity b_f^2 = {spread.b_f2:.2g}, b_g^2 = {spread.b_g2:.2g}")
    print("x: one regularisation weight for each pixel. y: the classifier. Only x, y, z travel.\n")
    first = float(decibo.reference(problem).phi(problem.x0))
    print(f"{'':31}{'validation':>11}{'test':>10}{'consensus':>11}{'sent':>8}{'time':>8}")
    print(f"{'':31}{'loss':>11}{'accuracy':>10}{'error x':>11}{'':>8}{'':>8}")
    print(f"{'start':31}{first:11.4f}")
    message = ""
    for label, method in {
        "ahead, timescales apart": decibo.ahead(alpha=10.0, beta=0.001, gamma=0.1, lam=20.0),
        "ahead, matched inner steps": decibo.ahead(alpha=100.0, gamma=0.3, lam=20.0),
        "ahead_exact, automatic steps": None,
    }.items():
        solution = decibo.solve(problem, network, method, steps=2000, measures=["phi", "consensus_x"])
        message = solution.message
        _row(label, solution, decibo.accuracy(solution.y, dataset.test_features, dataset.test_labels))
    print(f"\n{message}")
    print("The step sizes of the first two were found by hand; ten times the alpha of the first diverges.")
    print("Next: docs/tutorial.md states a problem of your own, in fifteen lines.")


def _row(label: str, solution: Any, accuracy: Any) -> None:
    phi, apart = solution.history["phi"][-1], solution.history["consensus_x"][-1]
    sent = f"{solution.cost.bytes_total / 1e6:.0f} MB"
    print(f"{label:31}{phi:11.4f}{float(accuracy):10.3f}{apart:11.1e}{sent:>8}{solution.cost.seconds:6.1f} s")
