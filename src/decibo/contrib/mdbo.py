r"""MDBO: every agent solves its OWN linear system by a Neumann series; momentum and gradient
tracking.

    (1)  v   = eta sum_{j=0..N} (I - eta H)^j f_y(x, y)         the agent's own H
    (2)  d_x = f_x(x, y) - J v,   d_y = g_y(x, y)
    (3)  a+  = (1 - theta) a + theta d                          momentum of x and y, each with a
                                                                theta of its own; a starts at 0
    (4)  t+  = W t + a+ - a                                     gradient tracking of x and y
    (5)  s+  = s + weight (W s - s - h t+)

VRDBO is the same with STORM in place of (3): `decibo.with_estimator(mdbo(..., theta_x=None,
theta_y=None), decibo.estimator.storm(a))`. The authors' letters: weight is their eta and theta
c eta, for STORM a = c eta^2. In (1) they take one factor of the series after another up to a random
length, which in expectation is N/(N + 1) times the sum.

mean(J_i H_i^-1 f_y_i) is not mean(J) mean(H)^-1 mean(f_y): with unequal Hessians this is not the
hypergradient. The paper assumes that the agents' data are alike.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm import consensus
from decibo.algorithm.algorithm import READ, RUN, Algorithm, method, repeat
from decibo.algorithm.compose import compose
from decibo.algorithm.direction import Direction, Pair, single
from decibo.algorithm.rule import StepSize
from decibo.algorithm.schedules import Rate, Schedule, Step, Weight
from decibo.capabilities import Need
from decibo.problem.problem import Oracle


@method(
    provenance=(
        f"{READ} With full gradients, and the sum of the Neumann series in place of a random one of"
        f" its terms. {RUN}"
    )
)
def mdbo(
    *,
    alpha: StepSize,
    beta: StepSize,
    eta: Rate,
    theta_x: Weight | None = 0.2,
    theta_y: Weight | None = 0.2,
    weight: float = 1.0,
    N: int = 50,
) -> Algorithm:
    """MDBO (Gao, Gu & Thai 2023), with full gradients. For agents with nearly equal data ONLY.

    alpha, beta        step sizes of x and y
    eta                step of the Neumann series, at most 1/L_g
    theta_x, theta_y   weights of what is new in the momentum of x and y; None for no momentum
    weight             x and y make this part of each move; the authors' experiments have .1
    N                  length of the Neumann series

    Cost: 1 + 1 gradients, N products with H and one with J; sends 2n + 2r numbers.
    Lands: elsewhere if the agents' Hessians differ, whatever the steps: |grad Phi| 3.4e-1 on the
    heterogeneous quadratic, ring of 10, and 6e-8 (what the series leaves) if agents are equal.
    """
    # N is a Count, so that it is part of the program
    at = Partial(_at, eta, N)
    along = Direction(
        single().start,
        at,
        "local_neumann",
        Pair._fields,
        needs=frozenset({Need.SECOND_DERIVATIVES}),
    )
    agree = consensus.relaxed(consensus.tracking(), weight)
    thetas = {"x": theta_x, "y": theta_y}
    average = {name: theta for name, theta in thetas.items() if theta is not None}
    return compose(along, agree, average=average, x=alpha, y=beta)


def _at(eta: Schedule, N: int, oracle: Oracle, s: Pair, k: Step) -> Pair:
    """The hypergradient as an agent alone would estimate it, and g_y."""
    f, g = oracle.outer(s.x, s.y), oracle.inner(s.x, s.y)
    h = jnp.asarray(eta(k), s.y.dtype)
    # each pass adds one term to the series
    v = repeat(N, lambda v: v - h * (oracle.hessian(s.x, s.y, v) - f.y), h * f.y)  # (1)
    return Pair(x=f.x - oracle.jacobian(s.x, s.y, v), y=g.y)  # (2)
