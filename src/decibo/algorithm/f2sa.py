r"""F2SA on one agent: first gradients only, an inner loop, and a penalty that grows.

T times      (1)  z <- z - gamma g_y(x, z)
             (2)  y <- y - beta (f_y(x, y) + lam g_y(x, y))
then         (3)  x+ = x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, z)))
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
    z: Vector


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes, and the length of the loop, which is part of the program."""

    alpha: Schedule
    beta: Schedule | None
    gamma: Schedule
    lam: Schedule
    T: int = field(metadata={"static": True})


@method
def f2sa(*, alpha: Rate, beta: Rate | None = None, gamma: Rate, lam: Rate, T: int = 10) -> Algorithm:
    """F2SA (Kwon, Kwon, Wright & Nowak 2023), centralised, with full gradients; S.

    alpha, beta, gamma are the steps of x, y and z (beta = gamma/lam unless given), T the length of the inner loop.
    lam grows in the paper: give `growing(...)` or `polynomial(...)`.
    Costs T + 1 gradients of f and 2T + 2 of g, sends nothing. Lands at the bias O(1/lam) of the penalty:
    |grad Phi| 1.4e-1, 1.6e-2, 1.6e-3 at lam = 10, 100, 1000 on a quadratic.
    """
    settings = Settings(
        schedule("alpha", alpha),
        None if beta is None else schedule("beta", beta),
        schedule("gamma", gamma),
        schedule("lam", lam),
        integer("T", T),
    )
    return Algorithm(Partial(_init), Partial(_step, settings), Partial(_view), centralised=True)


def _init(oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    return State(start["x"], start["y"], start.get("z", start["y"]))


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    x, dtype = state.x, state.y.dtype
    gamma, lam = jnp.asarray(at.gamma(k), dtype), jnp.asarray(at.lam(k), dtype)
    beta = gamma / lam if at.beta is None else jnp.asarray(at.beta(k), dtype)

    def once(carry: tuple[Vector, Vector], _: None) -> tuple[tuple[Vector, Vector], None]:
        y, z = carry
        z = z - gamma * oracle.inner(x, z)[1]  # (1)
        y = y - beta * (oracle.outer(x, y)[1] + lam * oracle.inner(x, y)[1])  # (2)
        return (y, z), None

    (y, z), _ = lax.scan(once, (state.y, state.z), length=at.T)
    f_x, g_x, h_x = oracle.outer(x, y)[0], oracle.inner(x, y)[0], oracle.inner(x, z)[0]
    return State(x - at.alpha(k) * (f_x + lam * (g_x - h_x)), y, z)  # (3)


def _view(state: State) -> dict[str, Vector]:
    return state._asdict()
