r"""Energy pricing, a Stackelberg game: utilities set prices, consumers respond.
                                                                               [paper, introduction]

x holds the prices of T hours, common to all districts; y the consumption of an average household in
these hours. District i knows the habits of its own households and the costs of its own power
station, and tells nobody.

    (1)  g_i(x, y) = (y - u_i)' D_i (y - u_i) / 2 + x'y           discomfort and the bill
         u_i  desired consumption;    D_i = diag(a_i) + shift_i L,  L the Laplacian of the hours:
         moving load to the next hour hurts less than doing without
    (2)  f_i(x, y) = -x'y + c_i'y + k_i |y|^2 / 2                 minus revenue, cost of generation
                     + target |x - t_i|^2 / 2 + smooth x'L x / 2  prices near the regulator's, and
                                                                  steady
    (3)  y*(x) = D^-1 (mean_i D_i u_i - x),   D = mean_i D_i

Everything is quadratic and Phi strongly convex, so x* and y* are known.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.problem.problem import Problem
from decibo.problems.quadratic import minimiser
from decibo.validate import above, at_least, integer

Data = dict[str, jax.Array]


def _unevenness(v: jax.Array) -> jax.Array:
    """v'L v: the squared differences between consecutive hours."""
    return jnp.sum((v[1:] - v[:-1]) ** 2)


def _inner(x: jax.Array, y: jax.Array, d: Data) -> jax.Array:
    missed = y - d["desired"]
    return d["comfort"] @ missed**2 / 2 + d["shift"] * _unevenness(missed) / 2 + x @ y  # (1)


def _outer(x: jax.Array, y: jax.Array, d: Data) -> jax.Array:
    profit = x @ y - d["cost"] @ y - d["congestion"] * y @ y / 2
    rules = d["target"] * jnp.sum((x - d["tariff"]) ** 2) / 2 + d["smooth"] * _unevenness(x) / 2
    return rules - profit  # (2)


def _matrices(d: Any) -> Any:
    """D_i, for arrays of numpy and of JAX."""
    differences = np.diff(np.eye(d["comfort"].shape[1]), axis=0)
    laplacian = differences.T @ differences
    return d["comfort"][:, None] * np.eye(len(laplacian)) + d["shift"][:, None, None] * laplacian


def _inner_solution(x: jax.Array, d: Data) -> jax.Array:
    D = _matrices(d)
    pull = jnp.mean(jnp.einsum("itu,iu->it", D, d["desired"]), axis=0)
    return jnp.linalg.solve(jnp.mean(D, axis=0), pull - x)  # (3)


def stackelberg_pricing(
    agents: int = 10,
    hours: int = 24,
    *,
    heterogeneity: float = 1.0,
    target: float = 0.5,
    smooth: float = 0.1,
    seed: int = 0,
) -> Problem:
    """Districts that share the prices of a day; they are equal with heterogeneity 0 and vary by a
    third with 1."""
    agents = integer("agents", agents)
    hours = integer("hours", hours, 2)
    unequal = at_least("heterogeneity", heterogeneity, 0.0)
    above("target", target, 0.0)
    at_least("smooth", smooth, 0.0)
    rng = np.random.default_rng((integer("seed", seed, least=0), 3))

    def vary(common: np.ndarray | float) -> np.ndarray:
        """Each district's own, always positive."""
        return common * np.exp(unequal * rng.uniform(-0.3, 0.3, size=(agents, *np.shape(common))))

    clock = 2 * np.pi * np.arange(hours) / hours
    data = {
        # a morning and an evening peak
        "desired": vary(3.0 - np.cos(clock) - 0.5 * np.cos(2 * clock)),
        "comfort": vary(np.full(hours, 1.0)),
        "shift": vary(0.2),
        "cost": vary(np.full(hours, 0.3)),
        "congestion": vary(0.3),
        "tariff": vary(np.full(hours, 1.0)),
        "target": np.full(agents, target),
        "smooth": np.full(agents, smooth),
    }
    # (1) and (2) in the letters of `decibo.problems.quadratic`, averaged over agents.
    eye, zero = np.eye(hours), np.zeros(hours)
    D = _matrices(data)
    laplacian = _matrices({"comfort": np.zeros((1, hours)), "shift": np.ones(1)})[0]
    means = {
        "P": target * eye + smooth * laplacian,
        "B": -eye,
        "A": data["congestion"].mean() * eye,
        "p": -target * data["tariff"].mean(axis=0),
        "q": data["cost"].mean(axis=0),
        "H": D.mean(axis=0),
        "J": eye,
        "s": -np.einsum("itu,iu->t", D, data["desired"]) / agents,
    }
    known = {"inner_solution": _inner_solution, "solution": minimiser(means)}
    return Problem(_outer, _inner, data, zero, zero, **known, name="Stackelberg pricing")
