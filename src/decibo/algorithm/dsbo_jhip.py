r"""DSBO with the Jacobian-Hessian-inverse product (JHIP): the network solves for a whole matrix.

    T times      (1)  y <- W y - beta g_y(x, y)
    then         (2)  S = H Z - J',   D = S                          Z: r x n, from the step before; D anew
    N times      (3)  Z <- W Z - gamma D
                 (4)  S' = H Z - J',   D <- W D + S' - S,   S <- S'
    then         (5)  x+ = W x - alpha (f_x(x, y) - Z' f_y(x, y))

Z approaches mean(H)^-1 mean(J)', so that Z' f_y needs no further exchange. H, J and f_y are taken at the old x and
the new y. H is never formed, its products are; J' (the size of Z) is, from r products with unit vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.ma_dsbo import inner_loop
from decibo.algorithm.schedules import Rate, Schedule, schedule
from decibo.problem.oracle import Oracle
from decibo.pytree import Vector
from decibo.validate import integer


class State(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    y: Vector
    Zt: jax.Array  # Z', n x r: its rows are what H is applied to


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes, and lengths of the loops, which are part of the program."""

    alpha: Schedule
    beta: Schedule
    gamma: Schedule
    T: int = field(metadata={"static": True})
    N: int = field(metadata={"static": True})


@method
def dsbo_jhip(*, alpha: Rate, beta: Rate, gamma: Rate, T: int = 20, N: int = 80) -> Algorithm:
    """DSBO (Chen, Huang & Ma 2022) with its JHIP oracle, with full gradients; R, run.

    alpha, beta, gamma are the steps of x, y and the matrix, T and N the lengths of the loops for y and the matrix.
    There is no moving average: that is what MA-DSBO added.
    Costs 1 gradient of f, T of g, n (N + 1) products with H and r with J; sends n + T r + 2 N n r numbers in
    T + N + 1 messages. Lands O(beta) + O(alpha) off if the agents differ: |grad Phi| 2.5e-2 at steps .05,
    3.6e-3 at .005 (heterogeneous quadratic, ring of 10).
    """
    steps = schedule("alpha", alpha), schedule("beta", beta), schedule("gamma", gamma)
    return Algorithm(Partial(_init), Partial(_step, Settings(*steps, integer("T", T), integer("N", N))), Partial(_view))


def _init(oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    x, y = start["x"], start["y"]
    return State(x, y, jnp.zeros((x.size, y.size), y.dtype))


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    x = state.x
    y = inner_loop(oracle, mix, x, state.y, at.beta(k), at.T)  # (1)
    f_x, f_y = oracle.outer(x, y)
    gamma = jnp.asarray(at.gamma(k), y.dtype)
    # lax.map and not vmap: a loop of n products uses the memory of one, and is counted as n
    J = lax.map(lambda e: oracle.jacobian(x, y, e), jnp.eye(y.size, dtype=y.dtype)).T.astype(y.dtype)
    residual = lambda Zt: lax.map(lambda z: oracle.hessian(x, y, z), Zt) - J
    S = residual(state.Zt)  # (2)

    def once(carry: tuple[jax.Array, jax.Array, jax.Array], _: None) -> tuple[Any, None]:
        Zt, S, D = carry
        wz, wd = mix((Zt, D))
        Zt = wz - gamma * D  # (3)
        new = residual(Zt)
        return (Zt, new, wd + new - S), None  # (4)

    (Zt, _, _), _ = lax.scan(once, (state.Zt, S, S), length=at.N)
    return State(mix(x) - at.alpha(k) * (f_x - Zt @ f_y), y, Zt)  # (5)


def _view(state: State) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y}
