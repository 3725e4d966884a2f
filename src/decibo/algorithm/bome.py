r"""BOME on one agent: a penalty that is chosen anew in every step, so that the inner gap must fall.

T times      (1)  e <- e - gamma g_y(x, e)                         e starts at y and is then held fixed
with q(x, y) = g(x, y) - g(x, e):
             (2)  grad q = (g_x(x, y) - g_x(x, e), g_y(x, y))
             (3)  lam = max(eta |grad q|^2 - <grad f, grad q>, 0) / |grad q|^2
             (4)  (x, y)+ = (x, y) - alpha (grad f + lam grad q)
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
    """What the agent keeps between two steps."""

    x: Vector
    y: Vector


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes, and the length of the loop, which is part of the program."""

    alpha: Schedule
    gamma: Schedule
    eta: Schedule
    T: int = field(metadata={"static": True})


@method
def bome(*, alpha: Rate, gamma: Rate, eta: Rate = 0.5, T: int = 10) -> Algorithm:
    """BOME (Liu, Ye, Wright, Stone & Liu 2022), centralised, with full gradients; S.

    alpha is the step of x and y, gamma that of the inner loop of length T, eta how fast the gap must fall.
    Costs 1 gradient of f and T + 1 of g, sends nothing. lam grows like 1/|grad q|, so that with a constant
    step it lands O(alpha) off and rattles there: |grad Phi| 1.4e-1, 1.5e-2, 1.8e-3 at alpha = .1, .01, .001 on a
    quadratic. The loop must nearly solve the inner problem: (1 - gamma mu_g)^T of J v is missing.
    """
    settings = Settings(schedule("alpha", alpha), schedule("gamma", gamma), schedule("eta", eta), integer("T", T))
    return Algorithm(Partial(_init), Partial(_step, settings), Partial(_view), centralised=True)


def _init(oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    return State(start["x"], start["y"])


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    x, y = state
    f_x, f_y = oracle.outer(x, y)
    g_x, g_y = oracle.inner(x, y)
    gamma = jnp.asarray(at.gamma(k), y.dtype)
    first = y - gamma * g_y  # the loop's first pass, with the gradient that (2) needs anyway
    e, _ = lax.scan(lambda e, _: (e - gamma * oracle.inner(x, e)[1], None), first, length=at.T - 1)  # (1)
    q_x, q_y = g_x - oracle.inner(x, e)[0], g_y  # (2)
    square = q_x @ q_x + q_y @ q_y
    excess = jnp.maximum(at.eta(k) * square - (f_x @ q_x + f_y @ q_y), 0)
    lam = jnp.where(square > 0, excess / jnp.where(square > 0, square, 1), 0)  # (3)
    alpha = at.alpha(k)
    return State(x - alpha * (f_x + lam * q_x), y - alpha * (f_y + lam * q_y))  # (4)


def _view(state: State) -> dict[str, Vector]:
    return state._asdict()
