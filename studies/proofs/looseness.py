"""Theorem B against the truth: its lemma at 1,000 random states, and its largest alpha against the
largest stable one.

    python -m studies.proofs.looseness             everything, about a minute
    python -m studies.proofs.looseness lemma       or one part of it

lemma     (I1) to (I5) at random states of random non-quadratic problems
alpha     random quadratics with convex Phi and exact constants
library   ready-made problems, with the constants that `decibo.theory.check` uses

Networks are paths, rings and Erdos-Renyi graphs of 1 to 6 agents. What Theorem B claims is
asserted. The problems in numpy are those of the tests.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import decibo  # noqa: E402
from decibo.theory import ahead_exact_steps, constants  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from helpers.bent import Bent, lemma5, random_state  # noqa: E402
from theory.test_exact import NETWORKS, convex_quadratic, spectral_radius  # noqa: E402

STATES = 1000
QUADRATICS = 300
FACTOR = 1.05  # to which the largest stable alpha is found


def lemma() -> None:
    """Largest left over right of the five inequalities; (I5) as the largest excess, relative to its
    terms."""
    rng = np.random.default_rng(1)
    worst = dict.fromkeys(("I1", "I2", "I3", "I4"), 0.0)
    excess = -np.inf
    for seed in range(STATES):
        network = NETWORKS[rng.integers(len(NETWORKS))]
        options = {"beta": rng.choice([0.0, 0.1, 0.2]), "cond": rng.choice([1.0, 3.0])}
        world = Bent(seed, m=network.agents, coupling=rng.choice([0.1, 1.0]), **options)
        c = world.constants()
        lam = 10 ** rng.uniform(-0.5, 3)
        gamma = rng.choice([0.05, 0.5, 0.95]) * 2 / c.L_yy
        steps = ahead_exact_steps(c, network, alpha=10 ** rng.uniform(-4, 0) / c.L_Phi, gamma=gamma)
        size = 10 ** rng.uniform(-3, 0.5)
        s, C = random_state(world, c, lam, steps.alpha, gamma, seed, size, bool(rng.random() < 0.5))
        rows, rounding = lemma5(world, network.W, steps, s, C, lam)
        for name, (left, right) in rows.items():
            assert left <= right + rounding, (seed, name)
        for name in worst:
            left, right = rows[name]
            if left > 1e3 * rounding:
                worst[name] = max(worst[name], left / right)
        left, right = rows["I5"]
        excess = max(excess, left - right)
    shown = ", ".join(f"{name} {ratio:.4f}" for name, ratio in worst.items())
    print(
        f"{STATES} random states, none violated. Largest left/right: {shown}; I5 largest excess"
        f" {excess:.0e}"
    )


def alpha() -> None:
    """Stable at the largest alpha that Theorem B admits; and how much larger the largest stable
    alpha is."""
    rng = np.random.default_rng(5)
    ratios: dict[str, list[float]] = {"one agent": [], "networks": []}
    worst = 0.0
    for seed in range(QUADRATICS):
        small = [network for network in NETWORKS if network.agents <= 4]
        network = NETWORKS[0] if seed % 2 else small[rng.integers(1, len(small))]
        draw = (
            rng.choice([1.0, 2.0, 10.0]),
            rng.choice([0.1, 1.0]),
            rng.choice([0.1, 1.0]),
            rng.choice([0.0, 0.1, 1.0]),
        )
        world, c = convex_quadratic(seed, network.agents, *draw)
        steps = ahead_exact_steps(
            c, network, gamma=rng.choice([0.1, 0.5, 0.99]) * 2 / c.L_yy, alpha=1.0
        )
        most = steps.largest_alpha
        assert replace(steps, alpha=most).holds
        worst = max(worst, spectral_radius(world, network.W, most, steps.gamma) - 1)
        low, high = most, most * 1e5
        while high / low > FACTOR:
            middle = np.sqrt(low * high)
            stable = spectral_radius(world, network.W, middle, steps.gamma) <= 1 + 1e-9
            low, high = (middle, high) if stable else (low, middle)
        ratios["one agent" if network.agents == 1 else "networks"].append(low / most)
    assert worst < 1e-7
    print(
        f"{QUADRATICS} random quadratics at the largest alpha of Theorem B: spectral radius - 1 at"
        f" most {worst:.0e}"
    )
    for name, values in ratios.items():
        least, median, largest = np.quantile(values, [0, 0.5, 1])
        print(
            f"  {name}: largest stable alpha over it: least {least:.1f}, median {median:.1f}, most"
            f" {largest:.0f}"
        )


def library() -> None:
    """The alpha of the rule, and by which power of 2 it may grow until |grad Phi| has not fallen
    after 3,000 steps."""
    problems = {
        "quadratic": decibo.problems.quadratic(),
        "quadratic, bend=0.2": decibo.problems.quadratic(bend=0.2),
        "quadratic, condition=100": decibo.problems.quadratic(condition=100.0),
        "synthetic": decibo.problems.synthetic(),
    }
    for name, problem in problems.items():
        for network in (decibo.ring(10), decibo.networks.erdos_renyi(10, 0.7, seed=1)):
            steps = ahead_exact_steps(constants(problem), network)
            best = steps.alpha
            for size in steps.alpha * 2.0 ** np.arange(1, 40):
                method = decibo.ahead_exact(alpha=size, gamma=steps.gamma)
                end = decibo.solve(
                    problem, network, method, steps=3000, every=3000, measures=["stationarity"]
                )
                values = end.history["stationarity"]
                if end.status != "done" or not values[-1] <= values[0]:
                    break
                best = size
            rule = f"gamma {steps.gamma:.1e} alpha {steps.alpha:.1e}"
            print(
                f"  {name:26s} {network.name:12s} {rule}   stable up to {best / steps.alpha:6.0f}"
                " times that"
            )


SECTIONS = {"lemma": lemma, "alpha": alpha, "library": library}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or SECTIONS:
        SECTIONS[wanted]()
