r"""DSBO with the Jacobian-Hessian-inverse product (JHIP): the network solves for a whole matrix.

    T times      (1)  y <- W y - beta g_y(x, y)
    then         (2)  S = H Z - J',   D = S                   Z: r x n, from the step before; D anew
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

from decibo.algorithm.algorithm import RECALLED, RUN, Algorithm, Settings, by_name, method, repeat
from decibo.algorithm.ma_dsbo import inner_loop
from decibo.algorithm.schedules import Rate
from decibo.capabilities import BY_DEFAULT, Need
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


class JhipState(NamedTuple):
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
    in T + N + 1 messages.
    Lands: O(beta) + O(alpha) from the solution if the agents differ: |grad Phi| 2.5e-2 at steps
    .05, 3.6e-3 at .005 (heterogeneous quadratic, ring of 10).
    """
    step = by_name(_step, {"alpha": alpha, "beta": beta, "gamma": gamma}, T=T, N=N)
    return Algorithm(
        Partial(_init), step, Partial(_view), needs=BY_DEFAULT | {Need.SECOND_DERIVATIVES}
    )


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> JhipState:
    x = start["x"]
    y = start["y"]
    return JhipState(x, y, jnp.zeros((x.size, y.size), y.dtype))


def _step(oracle: Oracle, mix: Mix, state: JhipState, p: Settings) -> JhipState:
    x = state.x
    y = inner_loop(oracle, mix, x, state.y, p.beta, p.T)  # (1)
    f = oracle.outer(x, y)
    # lax.map and not vmap: a loop of n products uses the memory of one, and is counted as n
    J = lax.map(lambda e: oracle.jacobian(x, y, e), jnp.eye(y.size, dtype=y.dtype)).T.astype(
        y.dtype
    )
    residual = lambda Zt: lax.map(lambda z: oracle.hessian(x, y, z), Zt) - J
    S = residual(state.Zt)  # (2)

    def once(now: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        Zt, S, D = now
        wz, wd = mix((Zt, D))
        Zt = wz - p.gamma * D  # (3)
        new = residual(Zt)
        return Zt, new, wd + new - S  # (4)

    Zt, _, _ = repeat(p.N, once, (state.Zt, S, S))
    return JhipState(mix(x) - p.alpha * (f.x - Zt @ f.y), y, Zt)  # (5)


def _view(state: JhipState) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y}
