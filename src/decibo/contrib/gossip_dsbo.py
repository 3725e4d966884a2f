r"""Gossip-DSBO: agents gossip first and second derivatives, and solve the linear system each on its
own.

    (1)  v  = eta sum_{j=0..N} (I - eta A)^j b            Neumann series, A and b as gossiped so far
    (2)  x+ = W x - alpha (a - C v)
    (3)  y+ = W y - beta g_y(x, y)
    (4)  a+ = (1 - theta) W a + theta f_x(x, y),    b+ = (1 - theta) W b + theta f_y(x, y)
    (5)  C+ = (1 - theta) W C + theta J(x, y),      A+ = (1 - theta) W A + theta H(x, y)

a, b, C and A start at the agent's own derivatives.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import RECALLED, RUN, Algorithm, Settings, by_name, method
from decibo.algorithm.schedules import Rate, Weight
from decibo.capabilities import BY_DEFAULT, Need
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector


class Derivatives(NamedTuple):
    """What is gossiped."""

    a: Vector  # f_x
    b: Vector  # f_y
    C: jax.Array  # J, n x r
    A: jax.Array  # H, r x r


class GossipState(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    y: Vector
    gossip: Derivatives


@method(
    provenance=(
        f"{RECALLED} The authors gossip N Hessians, each from a sample of its own; with full"
        f" gradients they are equal, and one is gossiped here. {RUN}"
    )
)
def gossip_dsbo(*, alpha: Rate, beta: Rate, theta: Weight, eta: Rate, N: int = 50) -> Algorithm:
    """Gossip-DSBO (Yang, Zhang & Wang 2022), with full gradients.

    alpha, beta   step sizes of x and y
    theta         weight of what is new in the gossip
    eta           step of the Neumann series, at most 1/L_g
    N             length of the Neumann series

    Cost: 1 + 1 gradients, r products each with H and J; sends 2n + 2r + nr + r^2 numbers in one
    message (with the authors' N Hessians N r^2 in place of r^2).
    Lands: O(step) from the solution if the agents differ, plus what the series leaves; theta counts
    as a step: |grad Phi| 5.8e-3 at steps .02, 6.7e-4 at .002 (heterogeneous quadratic, ring of 10),
    3.4e-1 at theta = 1.
    """
    step = by_name(_step, {"alpha": alpha, "beta": beta, "theta": theta, "eta": eta}, N=N)
    return Algorithm(
        Partial(_init), step, Partial(_view), needs=BY_DEFAULT | {Need.SECOND_DERIVATIVES}
    )


def _init(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> GossipState:
    x, y = start["x"], start["y"]
    return GossipState(x, y, _derivatives(oracle, x, y))


def _step(oracle: Oracle, mix: Mix, state: GossipState, p: Settings) -> GossipState:
    x, y, (a, b, C, A) = state
    # v <- v - eta (A v - b) adds one term to the series
    v = lax.fori_loop(0, p.N, lambda _, v: v - p.eta * (A @ v - b), p.eta * b)  # (1)
    g = oracle.inner(x, y)
    new = _derivatives(oracle, x, y)
    wx, wy, received = mix((x, y, state.gossip))
    gossip = jax.tree.map(lambda w, d: (1 - p.theta) * w + p.theta * d, received, new)  # (4), (5)
    return GossipState(wx - p.alpha * (a - C @ v), wy - p.beta * g.y, gossip)  # (2), (3)


def _derivatives(oracle: Oracle, x: Vector, y: Vector) -> Derivatives:
    # lax.map and not vmap, so that r products are counted as r
    J, H = lax.map(lambda e: oracle.products(x, y, e), jnp.eye(y.size, dtype=y.dtype))
    return Derivatives(*oracle.outer(x, y), C=J.T, A=H)


def _view(state: GossipState) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y}
