r"""The paper's synthetic example: ten agents, scalars x and y.               [paper, section VI-A]

(1)  f_i(x, y) = (a_i y - b_i)^2 / 2
(2)  g_i(x, y) = (c_i x + d_i y - e_i)^2 / 2
(3)  y*(x) = mean_i d_i (e_i - c_i x) / mean_i d_i^2 = 3 - x,    x* = 0.25,  y* = 2.75
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from decibo.problem.problem import Problem


def _outer(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return (d["a"] * y - d["b"]) ** 2 / 2  # (1)


def _inner(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return (d["c"] * x + d["d"] * y - d["e"]) ** 2 / 2  # (2)


def _inner_solution(x: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return jnp.mean(d["d"] * (d["e"] - d["c"] * x)) / jnp.mean(d["d"] ** 2)  # (3)


def synthetic() -> Problem:
    """The paper's first example: ten agents, every constant as printed, starting at x = y = 0."""
    half = np.repeat([2.0, 4.0], 5)
    data = {
        "a": np.full(10, 2.0),
        "b": np.arange(1.0, 11.0),
        "c": half,
        "d": half,
        "e": np.full(10, 10.0),
    }
    known = {"inner_solution": _inner_solution, "solution": {"x": 0.25, "y": 2.75}}
    constants = {"mu_g": 4.0, "L_f1": 4.0, "L_g1": 32.0, "L_g2": 0.0}
    return Problem(_outer, _inner, data, 0.0, 0.0, **known, name="synthetic", constants=constants)
