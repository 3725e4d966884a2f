r"""V-PBGD on one agent: gradient descent on the value-function penalty, x and y together.

T times      (1)  w <- w - gamma g_y(x, w)                         w goes on from the step before
then         (2)  x+ = x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, w)))
             (3)  y+ = y - alpha (f_y(x, y) + lam g_y(x, y))
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
    w: Vector  # follows y*(x)


@method(provenance=READ)
def v_pbgd(*, alpha: Rate, gamma: Rate, lam: Rate, T: int = 1) -> Algorithm:
    """V-PBGD (Shen & Chen 2023), centralised, with full gradients.

    alpha   step size of x and y, at most about 1/(lam L_g)
    gamma   step size of w
    lam     penalty, the paper's gamma, which is ramped up there: `decibo.schedules.growing(...)` or
            `polynomial(...)`, with an alpha that falls
    T       steps of w

    Cost: 1 + (T + 2) gradients; sends nothing.
    Lands: O(1/lam) from the solution, the bias of the penalty.
    """
    step = Partial(_step, alpha, gamma, lam, T)
    return Algorithm(Partial(_init), step, centralised=True, bias="1/lam", products=False)


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    return State(start["x"], start["y"], start.get("w", start["y"]))


def _step(
    alpha: Schedule,
    gamma: Schedule,
    lam: Schedule,
    T: int,
    oracle: Oracle,
    mix: Mix,
    state: State,
    k: jax.Array,
    key: jax.Array,
) -> State:
    x, y, w = state
    h = jnp.asarray(gamma(k), y.dtype)
    w, _ = lax.scan(lambda w, _: (w - h * oracle.inner(x, w)[1], None), w, length=T)  # (1)
    f_x, f_y = oracle.outer(x, y)
    g_x, g_y = oracle.inner(x, y)
    h_x, _ = oracle.inner(x, w)
    return State(
        x - alpha(k) * (f_x + lam(k) * (g_x - h_x)),  # (2)
        y - alpha(k) * (f_y + lam(k) * g_y),  # (3)
        w,
    )
