r"""MDBO: every agent solves its OWN linear system by a Neumann series; momentum and gradient tracking.

    (1)  v   = eta sum_{j=0..N} (I - eta H)^j f_y(x, y)                the agent's own H
    (2)  d_x = f_x(x, y) - J v,   d_y = g_y(x, y)
    (3)  a+  = (1 - theta) a + theta d                                 momentum, for x and y; a starts at 0
    (4)  t+  = W t + a+ - a;   s+ = W s - h t+                         gradient tracking of x and y

mean(J_i H_i^-1 f_y_i) is not mean(J) mean(H)^-1 mean(f_y): with unequal Hessians this is not the hypergradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm import consensus
from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.compose import compose
from decibo.algorithm.direction import Direction, Pair
from decibo.algorithm.schedules import Rate, Schedule, schedule
from decibo.problem.oracle import Oracle
from decibo.pytree import Vector
from decibo.validate import integer


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Series:
    """The step and the length of the Neumann series; the length is part of the program."""

    eta: Schedule
    N: int = field(metadata={"static": True})


@method
def mdbo(*, alpha: Rate, beta: Rate, eta: Rate, theta: Rate = 0.2, N: int = 50) -> Algorithm:
    """MDBO (Gao, Gu & Thai 2022), with full gradients; R, run. For agents with nearly equal data ONLY.

    alpha, beta are the steps of x and y, eta <= 1/L_g and N the step and the length of the Neumann series, theta
    the weight of what is new in the momentum. With unequal Hessians it lands elsewhere, whatever the
    steps: |grad Phi| 3.4e-1 on the heterogeneous quadratic, ring of 10, and 6e-8 (the series) if agents are equal.
    Costs 1 + 1 gradients, N products with H and one with J; sends 2n + 2r numbers.
    """
    momentum = schedule("theta", theta)
    return compose(
        local_neumann(eta, N),
        consensus.tracking(),
        average={"x": momentum, "y": momentum},
        x=schedule("alpha", alpha),
        y=schedule("beta", beta),
    )


def local_neumann(eta: Rate, N: int) -> Direction:
    """The hypergradient as an agent alone would estimate it, and g_y."""
    series = Series(schedule("eta", eta), integer("N", N))
    return Direction(Partial(_start), Partial(_at, series), "local_neumann", Pair._fields)


def _start(values: Any) -> Pair:
    return Pair(values["x"], values["y"])


def _at(series: Series, oracle: Oracle, s: Pair, k: Any) -> Pair:
    f_x, f_y = oracle.outer(s.x, s.y)
    _, g_y = oracle.inner(s.x, s.y)
    eta = jnp.asarray(series.eta(k), s.y.dtype)

    def term(v: Vector, _: None) -> tuple[Vector, None]:
        return v - eta * (oracle.hessian(s.x, s.y, v) - f_y), None  # adds one term to the series

    v, _ = lax.scan(term, eta * f_y, length=series.N)  # (1)
    return Pair(x=f_x - oracle.jacobian(s.x, s.y, v), y=g_y)  # (2)
