r"""F2SA on one agent: first gradients only, an inner loop, and a penalty that grows.

T times      (1)  z <- z - gamma g_y(x, z)
             (2)  y <- y - beta (f_y(x, y) + lam g_y(x, y))
then         (3)  x+ = x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, z)))
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, method
from decibo.algorithm.schedules import Rate, Schedule, matched
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


class State(NamedTuple):
    """What the agent keeps between two steps."""

    x: Vector
    y: Vector
    z: Vector


@method(provenance=READ)
def f2sa(
    *, alpha: Rate, beta: Rate | None = None, gamma: Rate, lam: Rate, T: int = 10
) -> Algorithm:
    """F2SA (Kwon, Kwon, Wright & Nowak 2023), centralised, with full gradients.

    alpha, beta, gamma   step sizes of x, y and z; beta = gamma/lam unless given
    lam                  penalty, which grows in the paper: `decibo.schedules.growing(...)` or
                         `polynomial(...)`
    T                    length of the inner loop

    Cost: (T + 1) + (2T + 2) gradients; sends nothing.
    Lands: O(1/lam) from the solution, the bias of the penalty: |grad Phi| 1.4e-1, 1.6e-2, 1.6e-3 at
    lam = 10, 100, 1000 on a quadratic.
    """
    step = Partial(_step, alpha, matched(beta, gamma, lam), gamma, lam, T)
    return Algorithm(Partial(_init), step, centralised=True, bias="1/lam", products=False)


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    return State(start["x"], start["y"], start.get("z", start["y"]))


def _step(
    alpha: Schedule,
    beta: Schedule,
    gamma: Schedule,
    lam: Schedule,
    T: int,
    oracle: Oracle,
    mix: Mix,
    state: State,
    k: jax.Array,
    key: jax.Array,
) -> State:
    x = state.x
    h_y, h_z, penalty = (jnp.asarray(rate(k), state.y.dtype) for rate in (beta, gamma, lam))

    def once(carry: tuple[Vector, Vector], _: None) -> tuple[tuple[Vector, Vector], None]:
        y, z = carry
        z = z - h_z * oracle.inner(x, z)[1]  # (1)
        y = y - h_y * (oracle.outer(x, y)[1] + penalty * oracle.inner(x, y)[1])  # (2)
        return (y, z), None

    (y, z), _ = lax.scan(once, (state.y, state.z), length=T)
    f_x, _ = oracle.outer(x, y)
    g_x, _ = oracle.inner(x, y)
    h_x, _ = oracle.inner(x, z)
    return State(x - alpha(k) * (f_x + penalty * (g_x - h_x)), y, z)  # (3)
