r"""LV-HBA on one agent: descent on the Moreau-envelope penalty; the inner level may be non-convex.

    (1)  t+ = P_y(t - gamma (g_y(x, t) + (t - y)/g1))                  t follows the proximal point of y
    (2)  x+ = P_x(x - alpha (f_x(x, y)/c + g_x(x, y) - g_x(x, t+)))
    (3)  y+ = P_y(y - beta (f_y(x, y)/c + g_y(x, y) - (y - t+)/g1))

P_x and P_y are projections (the identity unless given); c grows slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.prox import Prox, as_prox
from decibo.algorithm.schedules import Rate, Schedule, polynomial, schedule
from decibo.problem.oracle import Oracle
from decibo.pytree import Vector


class State(NamedTuple):
    """What the agent keeps between two steps."""

    x: Vector
    y: Vector
    t: Vector  # follows the proximal point of y


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes, the penalty, and the projections."""

    alpha: Schedule
    beta: Schedule
    gamma: Schedule
    c: Schedule
    proximity: Schedule
    prox_x: Prox
    prox_y: Prox


@method
def lv_hba(
    *,
    alpha: Rate,
    beta: Rate,
    gamma: Rate,
    c: Rate | None = None,
    proximity: float = 1.0,
    prox_x: Any = None,
    prox_y: Any = None,
) -> Algorithm:
    """LV-HBA (Yao, Yu, Zeng & Zhang 2024), centralised; without projections it is MEHA in one sweep; S.

    alpha, beta, gamma are the steps of x, y and t, proximity is g1. c is (k + 1)^0.3 unless given; MEHA takes
    c0 (k + 1)^0.25. Constraints that couple x and y are not covered: give projections of x and y.
    Costs 1 gradient of f and 3 of g, sends nothing. Lands at the bias O(1/c), which falls as slowly as c grows.
    |grad Phi| 2.7e-1, 3.4e-2, 3.5e-3 at c = 10, 100, 1000 on a quadratic.
    """
    settings = Settings(
        schedule("alpha", alpha),
        schedule("beta", beta),
        schedule("gamma", gamma),
        polynomial(1.0, 0.3) if c is None else schedule("c", c),
        schedule("proximity", proximity),
        as_prox("x", prox_x),
        as_prox("y", prox_y),
    )
    return Algorithm(Partial(_init, settings), Partial(_step, settings), Partial(_view), centralised=True)


def _init(at: Settings, oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    x, y = at.prox_x(start["x"], 0.0), at.prox_y(start["y"], 0.0)
    return State(x, y, at.prox_y(start["t"], 0.0) if "t" in start else y)


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    x, y, t = state
    c, g1, alpha, beta, gamma = at.c(k), at.proximity(k), at.alpha(k), at.beta(k), at.gamma(k)
    t = at.prox_y(t - gamma * (oracle.inner(x, t)[1] + (t - y) / g1), gamma)  # (1)
    f_x, f_y = oracle.outer(x, y)
    g_x, g_y = oracle.inner(x, y)
    h_x, _ = oracle.inner(x, t)
    return State(
        at.prox_x(x - alpha * (f_x / c + g_x - h_x), alpha),  # (2)
        at.prox_y(y - beta * (f_y / c + g_y - (y - t) / g1), beta),  # (3)
        t,
    )


def _view(state: State) -> dict[str, Vector]:
    return state._asdict()
