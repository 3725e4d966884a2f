r"""MA-DSBO: an inner loop for y, an inner loop for the linear system, a moving average for x.

    T times      (1)  y <- W y - beta g_y(x, y)
    then         (2)  s = H v - f_y(x, y),   t = s        v = 0, or with `warm` that of before
    N times      (3)  v <- W v - gamma t
                 (4)  s' = H v - f_y(x, y),   t <- W t + s' - s,   s <- s'
    then         (5)  x+ = W x - alpha u                  u of the step before, 0 at first
                 (6)  u+ = (1 - theta) u + theta (f_x(x, y) - J v)

H, J and f_y are taken at the old x and the new y. v solves mean(H) v = mean(f_y) up to what N steps
leave.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, RUN, Algorithm, Settings, by_name, method, repeat
from decibo.algorithm.schedules import Rate, Weight
from decibo.capabilities import BY_DEFAULT, Need
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector
from decibo.validate import flag


class MaDsboState(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    y: Vector
    v: Vector  # of the linear system
    u: Vector  # moving average of the hypergradient


@method(
    provenance=(
        f"{READ} The authors draw a sample for every gradient and product. With `warm`, or a theta"
        f" of its own, the rule is not theirs. {RUN}"
    )
)
def ma_dsbo(
    *,
    alpha: Rate,
    beta: Rate,
    gamma: Rate,
    theta: Weight | None = None,
    T: int = 20,
    N: int = 80,
    warm: bool = False,
) -> Algorithm:
    """MA-DSBO (Chen, Huang, Ma & Balasubramanian 2023), with full gradients.

    alpha, beta, gamma   step sizes of x, y and v
    theta                weight of the new hypergradient in the moving average; alpha unless given,
                         which must then be at most 1
    T, N                 lengths of the loops for y and v
    warm                 whether v goes on from the step before, which helps where N is small

    Cost: 1 + T gradients, N + 1 products with H and one with J; sends n + (T + 2N) r numbers in T +
    N + 1 messages.
    Lands: O(beta) + O(alpha) from the solution if the agents differ: |grad Phi| 2.9e-2 at steps
    .05, 3.9e-3 at .005 with T = 100 (heterogeneous quadratic, ring of 10).
    """
    rates = {"alpha": alpha, "beta": beta, "gamma": gamma}
    rates["theta"] = alpha if theta is None else theta
    step = by_name(_step, rates, T=T, N=N, warm=flag("warm", warm))
    return Algorithm(
        Partial(_init), step, Partial(_view), needs=BY_DEFAULT | {Need.SECOND_DERIVATIVES}
    )


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> MaDsboState:
    x = start["x"]
    y = start["y"]
    return MaDsboState(x, y, start.get("v", jnp.zeros_like(y)), jnp.zeros_like(x))


def _step(oracle: Oracle, mix: Mix, state: MaDsboState, p: Settings) -> MaDsboState:
    x = state.x
    y = repeat(p.T, lambda y: mix(y) - p.beta * oracle.inner(x, y).y, state.y)  # (1)
    f = oracle.outer(x, y)
    v = jnp.where(p.warm, state.v, 0)
    s = oracle.hessian(x, y, v) - f.y  # (2)

    def once(now: tuple[Vector, Vector, Vector]) -> tuple[Vector, Vector, Vector]:
        v, s, t = now
        wv, wt = mix((v, t))
        v = wv - p.gamma * t  # (3)
        new = oracle.hessian(x, y, v) - f.y
        return v, new, wt + new - s  # (4)

    v, _, _ = repeat(p.N, once, (v, s, s))
    average = (1 - p.theta) * state.u + p.theta * (f.x - oracle.jacobian(x, y, v))  # (6)
    return MaDsboState(mix(x) - p.alpha * state.u, y, v, average)  # (5)


def _view(state: MaDsboState) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y, "v": state.v}
