r"""MDBO: every agent solves its OWN linear system by a Neumann series; momentum and gradient
tracking.

    (1)  v   = eta sum_{j=0..N} (I - eta H)^j f_y(x, y)         the agent's own H
    (2)  d_x = f_x(x, y) - J v,   d_y = g_y(x, y)
    (3)  a+  = (1 - theta) a + theta d                          momentum, for x and y; a starts at 0
    (4)  t+  = W t + a+ - a;   s+ = W s - h t+                  gradient tracking of x and y

mean(J_i H_i^-1 f_y_i) is not mean(J) mean(H)^-1 mean(f_y): with unequal Hessians this is not the
hypergradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm import consensus
from decibo.algorithm.algorithm import RECALLED, RUN, Algorithm, method, repeat
from decibo.algorithm.compose import compose
from decibo.algorithm.direction import Direction, Pair
from decibo.algorithm.rule import StepSize
from decibo.algorithm.schedules import Rate, Schedule, Step, Weight
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


@method(provenance=f"{RECALLED} {RUN}")
def mdbo(
    *, alpha: StepSize, beta: StepSize, eta: Rate, theta: Weight = 0.2, N: int = 50
) -> Algorithm:
    """MDBO (Gao, Gu & Thai 2022), with full gradients. For agents with nearly equal data ONLY.

    alpha, beta   step sizes of x and y
    eta           step of the Neumann series, at most 1/L_g
    theta         weight of what is new in the momentum
    N             length of the Neumann series

    Cost: 1 + 1 gradients, N products with H and one with J; sends 2n + 2r numbers.
    Lands: elsewhere if the agents' Hessians differ, whatever the steps: |grad Phi| 3.4e-1 on the
    heterogeneous quadratic, ring of 10, and 6e-8 (what the series leaves) if agents are equal.
    """
    # N is a Count, so that it is part of the program
    along = Direction(
        Partial(_start), Partial(_at, eta, N), "local_neumann", Pair._fields, products=True
    )
    return compose(along, consensus.tracking(), average={"x": theta, "y": theta}, x=alpha, y=beta)


def _start(values: Mapping[str, Vector]) -> Pair:
    return Pair(values["x"], values["y"])


def _at(eta: Schedule, N: int, oracle: Oracle, s: Pair, k: Step) -> Pair:
    """The hypergradient as an agent alone would estimate it, and g_y."""
    f, g = oracle.outer(s.x, s.y), oracle.inner(s.x, s.y)
    h = jnp.asarray(eta(k), s.y.dtype)
    # each pass adds one term to the series
    v = repeat(N, lambda v: v - h * (oracle.hessian(s.x, s.y, v) - f.y), h * f.y)  # (1)
    return Pair(x=f.x - oracle.jacobian(s.x, s.y, v), y=g.y)  # (2)
