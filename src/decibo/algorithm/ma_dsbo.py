r"""MA-DSBO: an inner loop for y, an inner loop for the linear system, a moving average for x.

    T times      (1)  y <- W y - beta g_y(x, y)
    then         (2)  s = H v - f_y(x, y),   t = s                   v from the step before, the tracker t anew
    N times      (3)  v <- W v - gamma t
                 (4)  s' = H v - f_y(x, y),   t <- W t + s' - s,   s <- s'
    then         (5)  x+ = W x - alpha u                             u of the step before, 0 at first
                 (6)  u+ = (1 - theta) u + theta (f_x(x, y) - J v)

H, J and f_y are taken at the old x and the new y. v solves mean(H) v = mean(f_y) up to what N steps leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.schedules import Rate, Schedule, schedule
from decibo.problem.oracle import Oracle
from decibo.pytree import Vector
from decibo.validate import integer


class State(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    y: Vector
    v: Vector  # of the linear system
    u: Vector  # moving average of the hypergradient


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes, and lengths of the loops, which are part of the program."""

    alpha: Schedule
    beta: Schedule
    gamma: Schedule
    theta: Schedule
    T: int = field(metadata={"static": True})
    N: int = field(metadata={"static": True})


@method
def ma_dsbo(*, alpha: Rate, beta: Rate, gamma: Rate, theta: Rate = 0.2, T: int = 20, N: int = 80) -> Algorithm:
    """MA-DSBO (Chen, Huang, Ma & Balasubramanian 2023), with full gradients; A, run.

    alpha, beta, gamma are the steps of x, y and v, theta the weight of the moving average, T and N the lengths of
    the loops for y and v.
    Costs 1 gradient of f, T of g, N + 1 products with H and one with J; sends n + (T + 2N) r numbers in T + N + 1
    messages. Lands O(beta) + O(alpha) off if the agents differ: |grad Phi| 2.9e-2 at steps .05,
    3.8e-3 at .005 with T = 100 (heterogeneous quadratic, ring of 10).
    """
    settings = Settings(
        schedule("alpha", alpha),
        schedule("beta", beta),
        schedule("gamma", gamma),
        schedule("theta", theta),
        integer("T", T),
        integer("N", N),
    )
    return Algorithm(Partial(_init), Partial(_step, settings), Partial(_view))


def _init(oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    x, y = start["x"], start["y"]
    return State(x, y, start.get("v", jnp.zeros_like(y)), jnp.zeros_like(x))


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    x, v, u = state.x, state.v, state.u
    alpha, theta = at.alpha(k), at.theta(k)
    y = inner_loop(oracle, mix, x, state.y, at.beta(k), at.T)
    f_x, f_y = oracle.outer(x, y)
    gamma = jnp.asarray(at.gamma(k), y.dtype)
    s = oracle.hessian(x, y, v) - f_y  # (2)

    def once(carry: tuple[Vector, Vector, Vector], _: None) -> tuple[Any, None]:
        v, s, t = carry
        wv, wt = mix((v, t))
        v = wv - gamma * t  # (3)
        new = oracle.hessian(x, y, v) - f_y
        return (v, new, wt + new - s), None  # (4)

    (v, _, _), _ = lax.scan(once, (v, s, s), length=at.N)
    h = f_x - oracle.jacobian(x, y, v)
    return State(mix(x) - alpha * u, y, v, (1 - theta) * u + theta * h)  # (5), (6)


def inner_loop(oracle: Oracle, mix: Any, x: Vector, y: Vector, beta: Any, T: int) -> Vector:
    """T times (1)."""
    beta = jnp.asarray(beta, y.dtype)

    def once(y: Vector, _: None) -> tuple[Vector, None]:
        return mix(y) - beta * oracle.inner(x, y)[1], None  # (1)

    return lax.scan(once, y, length=T)[0]


def _view(state: State) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y, "v": state.v}
