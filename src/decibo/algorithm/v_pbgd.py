r"""V-PBGD on one agent: gradient descent on the value-function penalty, x and y together.

T times      (1)  w <- w - gamma g_y(x, w)                         w goes on from the step before
then         (2)  x+ = x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, w)))
             (3)  y+ = y - alpha (f_y(x, y) + lam g_y(x, y))
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
    w: Vector  # follows y*(x)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes, and the length of the loop, which is part of the program."""

    alpha: Schedule
    gamma: Schedule
    lam: Schedule
    T: int = field(metadata={"static": True})


@method
def v_pbgd(*, alpha: Rate, gamma: Rate, lam: Rate, T: int = 1) -> Algorithm:
    """V-PBGD (Shen & Chen 2023), centralised, with full gradients; S.

    alpha is the step of x and y, at most about 1/(lam L_g); gamma and T are step and number of steps of w. lam, the
    gamma of the paper, is ramped up there: give `growing(...)` or `polynomial(...)`, and an alpha that falls.
    Costs 1 gradient of f and T + 2 of g, sends nothing. Lands at the bias O(1/lam) of the penalty.
    """
    settings = Settings(schedule("alpha", alpha), schedule("gamma", gamma), schedule("lam", lam), integer("T", T))
    return Algorithm(Partial(_init), Partial(_step, settings), Partial(_view), centralised=True)


def _init(oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    return State(start["x"], start["y"], start.get("w", start["y"]))


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    x, y, w = state
    alpha, lam, gamma = at.alpha(k), at.lam(k), jnp.asarray(at.gamma(k), y.dtype)
    w, _ = lax.scan(lambda w, _: (w - gamma * oracle.inner(x, w)[1], None), w, length=at.T)  # (1)
    f_x, f_y = oracle.outer(x, y)
    g_x, g_y = oracle.inner(x, y)
    h_x, _ = oracle.inner(x, w)
    return State(
        x - alpha * (f_x + lam * (g_x - h_x)),  # (2)
        y - alpha * (f_y + lam * g_y),  # (3)
        w,
    )


def _view(state: State) -> dict[str, Vector]:
    return state._asdict()
