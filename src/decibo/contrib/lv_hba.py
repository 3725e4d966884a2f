r"""LV-HBA on one agent: descent on the Moreau-envelope penalty; the inner level may be non-convex.

    (1)  t+ = P_y(t - gamma (g_y(x, t) + (t - y)/g1))              t follows the proximal point of y
    (2)  x+ = P_x(x - alpha (f_x(x, y)/c + g_x(x, y) - g_x(x, t+)))
    (3)  y+ = P_y(y - beta (f_y(x, y)/c + g_y(x, y) - (y - t+)/g1))

P_x and P_y are projections (the identity unless given); c grows slowly.
"""

from __future__ import annotations

from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, Settings, Theory, by_name, method
from decibo.algorithm.direction import Moreau
from decibo.algorithm.prox import Projection, Prox, as_prox
from decibo.algorithm.schedules import Rate, Weight, polynomial
from decibo.capabilities import ALONE
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


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

    Without projections it is MEHA's direction; `moreau` is that direction on a network.

    Cost: 1 + 3 gradients; sends nothing.
    Lands: O(1/c) from the solution, which falls as slowly as c grows: |grad Phi| 2.7e-1, 3.4e-2,
    3.5e-3 at c = 10, 100, 1000 on a quadratic.
    """
    maps = as_prox("x", prox_x), as_prox("y", prox_y)
    rates = {
        "alpha": alpha,
        "beta": beta,
        "gamma": gamma,
        "c": polynomial(1.0, 0.3) if c is None else c,
        "proximity": proximity,
    }
    step = by_name(_step, rates, prox_x=maps[0], prox_y=maps[1])
    return Algorithm(Partial(_init, *maps), step, needs=ALONE, theory=Theory("1/c"))


def _init(prox_x: Prox, prox_y: Prox, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> Moreau:
    y = prox_y(start["y"], 0.0)
    return Moreau(prox_x(start["x"], 0.0), y, prox_y(start["t"], 0.0) if "t" in start else y)


def _step(oracle: Oracle, mix: Mix, s: Moreau, p: Settings) -> Moreau:
    g1 = p.proximity
    t = p.prox_y(s.t - p.gamma * (oracle.inner(s.x, s.t).y + (s.t - s.y) / g1), p.gamma)  # (1)
    f, g, g_t = oracle.outer(s.x, s.y), oracle.inner(s.x, s.y), oracle.inner(s.x, t)
    x = p.prox_x(s.x - p.alpha * (f.x / p.c + g.x - g_t.x), p.alpha)  # (2)
    y = p.prox_y(s.y - p.beta * (f.y / p.c + g.y - (s.y - t) / g1), p.beta)  # (3)
    return Moreau(x, y, t)
