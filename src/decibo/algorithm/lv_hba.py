r"""LV-HBA on one agent: descent on the Moreau-envelope penalty; the inner level may be non-convex.

    (1)  t+ = P_y(t - gamma (g_y(x, t) + (t - y)/g1))                  t follows the proximal point of y
    (2)  x+ = P_x(x - alpha (f_x(x, y)/c + g_x(x, y) - g_x(x, t+)))
    (3)  y+ = P_y(y - beta (f_y(x, y)/c + g_y(x, y) - (y - t+)/g1))

P_x and P_y are projections (the identity unless given); c grows slowly.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, method
from decibo.algorithm.prox import Projection, Prox, as_prox
from decibo.algorithm.schedules import Rate, Schedule, Weight, polynomial
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


class State(NamedTuple):
    """What the agent keeps between two steps."""

    x: Vector
    y: Vector
    t: Vector  # follows the proximal point of y


@method(provenance=READ)
def lv_hba(
    *,
    alpha: Rate,
    beta: Rate,
    gamma: Rate,
    c: Rate | None = None,
    proximity: Weight = 1.0,
    prox_x: Prox | Projection | None = None,
    prox_y: Prox | Projection | None = None,
) -> Algorithm:
    """LV-HBA (Yao, Yu, Zeng & Zhang 2024), centralised; the inner level may be non-convex.

    alpha, beta, gamma   step sizes of x, y and t
    c                    penalty, (k + 1)^0.3 unless given
    proximity            parameter of the Moreau envelope, g1
    prox_x, prox_y       projections of x and y; constraints that couple x and y are not covered

    Without projections it is MEHA's direction, one variable after another; `meha` is that direction
    on a network.

    Cost: 1 + 3 gradients; sends nothing. Lands: O(1/c) from the solution, which falls as slowly as
    c grows: |grad Phi| 2.7e-1, 3.4e-2, 3.5e-3 at c = 10, 100, 1000 on a quadratic.
    """
    maps = as_prox("x", prox_x), as_prox("y", prox_y)
    step = Partial(
        _step, alpha, beta, gamma, polynomial(1.0, 0.3) if c is None else c, proximity, *maps
    )
    return Algorithm(Partial(_init, *maps), step, centralised=True, bias="1/c", products=False)


def _init(prox_x: Prox, prox_y: Prox, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    y = prox_y(start["y"], 0.0)
    return State(prox_x(start["x"], 0.0), y, prox_y(start["t"], 0.0) if "t" in start else y)


def _step(
    alpha: Schedule,
    beta: Schedule,
    gamma: Schedule,
    c: Schedule,
    proximity: Schedule,
    prox_x: Prox,
    prox_y: Prox,
    oracle: Oracle,
    mix: Mix,
    state: State,
    k: jax.Array,
    key: jax.Array,
) -> State:
    x, y, t = state
    g1 = proximity(k)
    t = prox_y(t - gamma(k) * (oracle.inner(x, t)[1] + (t - y) / g1), gamma(k))  # (1)
    f_x, f_y = oracle.outer(x, y)
    g_x, g_y = oracle.inner(x, y)
    h_x, _ = oracle.inner(x, t)
    return State(
        prox_x(x - alpha(k) * (f_x / c(k) + g_x - h_x), alpha(k)),  # (2)
        prox_y(y - beta(k) * (f_y / c(k) + g_y - (y - t) / g1), beta(k)),  # (3)
        t,
    )
