r"""DSBO with the Jacobian-Hessian-inverse product (JHIP): the network solves for a whole matrix.

    T times      (1)  y <- W y - beta g_y(x, y)
    then         (2)  S = H Z - J',   D = S                          Z: r x n, from the step before; D anew
    N times      (3)  Z <- W Z - gamma D
                 (4)  S' = H Z - J',   D <- W D + S' - S,   S <- S'
    then         (5)  x+ = W x - alpha (f_x(x, y) - Z' f_y(x, y))

Z approaches mean(H)^-1 mean(J)', so that Z' f_y needs no further exchange. H, J and f_y are taken
at the old x and the new y. H is never formed, its products are; J' (the size of Z) is, from r
products with unit vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import RECALLED, RUN, Algorithm, method
from decibo.algorithm.ma_dsbo import inner_loop
from decibo.algorithm.schedules import Rate, Schedule
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


class State(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    y: Vector
    Zt: jax.Array  # Z', n x r: its rows are what H is applied to


@method(provenance=f"{RECALLED} {RUN}")
def dsbo_jhip(*, alpha: Rate, beta: Rate, gamma: Rate, T: int = 20, N: int = 80) -> Algorithm:
    """DSBO (Chen, Huang & Ma 2022) with its JHIP oracle, with full gradients.

    There is no moving average: that is what MA-DSBO added.

    alpha, beta, gamma   step sizes of x, y and the matrix
    T, N                 lengths of the loops for y and the matrix

    Cost: 1 + T gradients, n (N + 1) products with H and r with J; sends n + T r + 2 N n r numbers
    in T + N + 1 messages. Lands: O(beta) + O(alpha) from the solution if the agents differ: |grad
    Phi| 2.5e-2 at steps .05, 3.6e-3 at .005 (heterogeneous quadratic, ring of 10).
    """
    return Algorithm(
        Partial(_init), Partial(_step, alpha, beta, gamma, T, N), Partial(_view), products=True
    )


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    x = start["x"]
    y = start["y"]
    return State(x, y, jnp.zeros((x.size, y.size), y.dtype))


def _step(
    alpha: Schedule,
    beta: Schedule,
    gamma: Schedule,
    T: int,
    N: int,
    oracle: Oracle,
    mix: Mix,
    state: State,
    k: jax.Array,
    key: jax.Array,
) -> State:
    x = state.x
    y = inner_loop(oracle, mix, x, state.y, beta(k), T)  # (1)
    f_x, f_y = oracle.outer(x, y)
    h = jnp.asarray(gamma(k), y.dtype)
    # lax.map and not vmap: a loop of n products uses the memory of one, and is counted as n
    J = lax.map(lambda e: oracle.jacobian(x, y, e), jnp.eye(y.size, dtype=y.dtype)).T.astype(
        y.dtype
    )
    residual = lambda Zt: lax.map(lambda z: oracle.hessian(x, y, z), Zt) - J
    S = residual(state.Zt)  # (2)

    def once(carry: tuple[jax.Array, ...], _: None) -> tuple[tuple[jax.Array, ...], None]:
        Zt, S, D = carry
        wz, wd = mix((Zt, D))
        Zt = wz - h * D  # (3)
        new = residual(Zt)
        return (Zt, new, wd + new - S), None  # (4)

    (Zt, _, _), _ = lax.scan(once, (state.Zt, S, S), length=N)
    return State(mix(x) - alpha(k) * (f_x - Zt @ f_y), y, Zt)  # (5)


def _view(state: State) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y}
