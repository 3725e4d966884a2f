"""Prices of one party for others who respond, beside a search on the price: a simulation.

    python -m studies.uses.incentives        # --quick: one draw

A grid operator sets the prices x of 24 hours. Eight districts respond with their consumption y_i:

    inner   mean over i of  a_i |y_i - u_i|^2 / 2 + s_i y_i' L y_i / 2 + sum (y_i - u_i)^4 / 50 + x'y_i
                            + |sum_j y_j|^2 / 16                       the line that all load
    outer   the operator's alone: mean over hours of e^(mean load) + x^2 / 10

What they want (u), how much they mind (a) and how they shift (s) is known to each district only.
Since all load the line, no district can answer a price alone: an answer takes rounds of gradients,
whoever searches. `ahead_exact()` as it comes, 1,000 steps on a ring; searches get as many rounds,
start each answer from the last one, and stop it when gradients fall below 1e-3 (5 to 60 rounds):
ONE price (golden section), and all 24 (L-BFGS on differences). "by model" fits a linear response to
25 answers and optimises against it, over and over. Shown: what is left of the gap between no price
and the best prices, which L-BFGS finds with exact answers. Draws 20 to 24; the fourth power was made
smaller on draw 0, where answers took too many rounds.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize, minimize_scalar

import decibo
from studies.uses.more import DRAWS, show

HOURS, OWNERS, STEPS = 24, 8, 1000


def outer(x, y, d):
    return d["operator"] * (jnp.mean(jnp.exp(jnp.mean(y, axis=0)) + x**2 / 10))


def inner(x, y, d):
    own = y[d["number"]]
    missed = own - d["wanted"]
    shifted = jnp.sum((missed - jnp.roll(missed, 1)) ** 2)
    line = jnp.sum(jnp.sum(y, axis=0) ** 2) / 16
    return (
        d["minds"] @ missed**2 / 2
        + d["shifts"] * shifted / 2
        + 0.02 * jnp.sum(missed**4)
        + x @ own
        + line
    )


def problem(seed):
    random = np.random.default_rng((seed, 15))
    hour = np.arange(HOURS)
    bump = lambda at, width: np.exp(-(((hour - at + 12) % 24 - 12) ** 2) / width)
    each = lambda: random.uniform(0.5, 1.5, OWNERS)[:, None]
    wanted = 1 + each() * bump(8 + random.integers(-2, 3), 6) + 2 * each() * bump(19, 8)
    data = {
        "number": np.arange(OWNERS),
        "operator": OWNERS * (np.arange(OWNERS) == 0.0),
        "wanted": wanted + 0.1 * random.normal(size=wanted.shape),
        "minds": np.exp(random.normal(0, 0.5, (OWNERS, HOURS))),
        "shifts": np.exp(random.normal(0, 0.5, OWNERS)),
    }
    y0 = np.zeros((OWNERS, HOURS))
    return decibo.Problem(outer, inner, data, np.zeros(HOURS), y0, name="incentives")


class Market:
    """What an operator sees who posts prices: the cost once all have settled; rounds are counted."""

    def __init__(self, problem, budget):
        mean = lambda f: lambda x, y: jnp.mean(jax.vmap(f, (None, None, 0))(x, y, problem.data))
        self.cost = jax.jit(mean(outer))
        self.slope = jax.jit(jax.grad(mean(inner), argnums=1))
        self.y, self.left, self.best = jnp.asarray(problem.y0), budget, (np.inf, problem.x0)

    def __call__(self, x):
        """By accelerated gradients with restarts, from the last answer."""
        x = jnp.asarray(x)
        y = before = self.y
        pace = 1.0
        while self.left > 0:
            ahead = y + (pace - 1) / (pace + 2) * (y - before)
            d = self.slope(x, ahead)
            self.left -= 1
            before, y = y, ahead - 0.2 * d
            pace = 1.0 if jnp.vdot(d, y - before) > 0 else pace + 1
            if jnp.max(jnp.abs(d)) < 1e-3:
                break
        else:
            raise StopIteration
        self.y = y
        self.best = min(self.best, (float(self.cost(x, y)), np.asarray(x)), key=lambda row: row[0])
        return float(self.cost(x, y))


def searches(problem, budget):
    """The best prices of each search, by its own account."""

    def one(post):
        minimize_scalar(lambda a: post(np.full(HOURS, a)), bounds=(0, 2), method="bounded")

    def differences(post):
        minimize(post, np.full(HOURS, 0.5), method="L-BFGS-B", options={"eps": 1e-2})

    def by_model(post):
        x = np.full(HOURS, 0.5)
        while True:
            post(x)
            y = np.asarray(post.y)
            slopes = []
            for e in 0.1 * np.eye(HOURS):
                post(x + e)
                slopes.append((np.asarray(post.y) - y) / 0.1)
            load, bend = y.mean(axis=0), np.mean(slopes, axis=1)
            told = lambda v, x=x, load=load, bend=bend: np.mean(
                np.exp(load + (v - x) @ bend) + v**2 / 10
            )
            x = minimize(told, x, bounds=[(a - 0.5, a + 0.5) for a in x]).x

    found = {}
    for search in (one, differences, by_model):
        post = Market(problem, budget)
        with suppress(StopIteration):
            search(post)
        found[search.__name__.replace("_", " ")] = post.best[1]
    return found


def judged(seed):
    made = problem(seed)
    exact = decibo.reference(made)
    rows = {}
    phi = lambda x: float(exact.phi(jnp.asarray(x)))
    told = lambda x: (phi(x), np.asarray(exact.at(jnp.asarray(x)).grad, float))
    best = minimize(
        told,
        np.full(HOURS, 0.5),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-8},
    ).fun
    first = phi(made.x0)
    for steps in (STEPS // 5, STEPS):
        run = decibo.solve(made, decibo.ring(OWNERS), steps=steps, measures=[], progress=False)
        rounds = round(run.cost.gradients * steps)
        found = searches(made, rounds) | {"ahead_exact": np.asarray(run.x)}
        rows[f"{rounds} rounds"] = {k: (phi(x) - best) / (first - best) for k, x in found.items()}
    return rows


def main():
    jax.config.update("jax_enable_x64", True)
    draws = list(DRAWS)[: 1 if "--quick" in sys.argv else 5]
    show([judged(seed) for seed in draws])


if __name__ == "__main__":
    main()
