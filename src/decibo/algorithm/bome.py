r"""BOME on one agent: a penalty that is chosen again in every step, so that the inner gap must
fall.

T times      (1)  e <- e - gamma g_y(x, e)                         e starts at y and is then held fixed
with q(x, y) = g(x, y) - g(x, e):
             (2)  grad q = (g_x(x, y) - g_x(x, e), g_y(x, y))
             (3)  lam = max(eta |grad q|^2 - <grad f, grad q>, 0) / |grad q|^2
             (4)  (x, y)+ = (x, y) - alpha (grad f + lam grad q)
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, method
from decibo.algorithm.schedules import Rate, Schedule
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


class State(NamedTuple):
    """What the agent keeps between two steps."""

    x: Vector
    y: Vector


@method(provenance=READ)
def bome(*, alpha: Rate, gamma: Rate, eta: Rate = 0.5, T: int = 10) -> Algorithm:
    """BOME (Liu, Ye, Wright, Stone & Liu 2022), centralised, with full gradients.

    alpha   step size of x and y
    gamma   step size of the inner loop
    eta     how fast the inner gap must fall
    T       length of the inner loop, which must nearly solve the inner problem: (1 - gamma mu_g)^T
            of J v is missing

    Cost: 1 + (T + 1) gradients; sends nothing. Lands: in an O(alpha) neighbourhood of the solution,
    where it oscillates, since lam grows like 1/|grad q|: |grad Phi| 1.4e-1, 1.5e-2, 1.8e-3 at alpha
    = .1, .01, .001 on a quadratic.
    """
    return Algorithm(
        Partial(_init), Partial(_step, alpha, gamma, eta, T), centralised=True, products=False
    )


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    return State(start["x"], start["y"])


def _step(
    alpha: Schedule,
    gamma: Schedule,
    eta: Schedule,
    T: int,
    oracle: Oracle,
    mix: Mix,
    state: State,
    k: jax.Array,
    key: jax.Array,
) -> State:
    x, y = state
    f_x, f_y = oracle.outer(x, y)
    g_x, g_y = oracle.inner(x, y)
    h = jnp.asarray(gamma(k), y.dtype)
    first = y - h * g_y  # the loop's first pass, with the gradient that (2) needs anyway
    e, _ = lax.scan(lambda e, _: (e - h * oracle.inner(x, e)[1], None), first, length=T - 1)  # (1)
    q_x = g_x - oracle.inner(x, e)[0]  # (2)
    q_y = g_y
    square = q_x @ q_x + q_y @ q_y
    excess = jnp.maximum(eta(k) * square - (f_x @ q_x + f_y @ q_y), 0)
    lam = jnp.where(square > 0, excess / jnp.where(square > 0, square, 1), 0)  # (3)
    return State(x - alpha(k) * (f_x + lam * q_x), y - alpha(k) * (f_y + lam * q_y))  # (4)
