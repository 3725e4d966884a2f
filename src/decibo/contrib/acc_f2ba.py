r"""AccF2BA+ on one agent: the penalty with Nesterov's momentum on both levels; that of x is
restarted now and then.

T times      (1)  z <- z - gamma u_z,   u_z the rule `nesterov` along  g_y(x, z)
             (2)  y <- y - gamma u_y,   u_y the rule `nesterov` along  g_y(x, y) + f_y(x, y)/lam
then         (3)  d  = f_x(x, y) + lam (g_x(x, y) - g_x(x, z))
             (4)  x+ = x - alpha u_x,   u_x the rule `restarted` along d

The momentum of y and z stays from one step to the next. Two places differ from the authors' code.
There (2) takes the gradient of g at z, so that y - z is a sum of f_y/lam that the curvature of g
never enters, and (3) no hypergradient, however large lam is; (2) is as the paper of F2BA has it.
And there z starts from y at every step, so that lam (y - z) never settles unless T is large; here
it starts from where it was. (In the code f does not depend on x.)

On a network the rule `restarted` goes with gradient tracking, compose(penalty(lam), tracking(),
x=restarted(...), ...). That lands where the penalty leads although every agent restarts when it
likes: they need not agree on when to do so.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, Settings, Theory, by_name, method, repeat
from decibo.algorithm.rule import Rule, below_one, nesterov, restarted
from decibo.algorithm.schedules import Rate
from decibo.capabilities import ALONE
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector


class AccF2baState(NamedTuple):
    """What the agent keeps between two steps: its variables, and what their rules remember."""

    x: Vector
    y: Vector
    z: Vector
    past_x: Tree
    past_y: Tree
    past_z: Tree


@method(
    provenance=(
        f"{READ} It is that of the authors' code, AccF2BA, for one agent, with two changes, without"
        " which it would not land on the solution; the top of acc_f2ba.py says which. Of the paper"
        " the abstract was read."
    )
)
def acc_f2ba(
    *,
    alpha: Rate,
    gamma: Rate,
    lam: Rate,
    T: int = 10,
    momentum: float = 0.9,
    inner: float = 0.5,
    radius: float = 10.0,
    least: float = 0.1,
    shrink: float = 0.99,
) -> Algorithm:
    """AccF2BA+ (Chen & Zhang 2025), centralised, with full gradients: F2SA with momentum on both
    levels and restarts.

    alpha, gamma     step sizes of x, and of y and z; the learning rates of PyTorch are (1 -
                     momentum) times these
    lam              penalty
    T                length of the inner loop
    momentum         of x, at least 0 and below 1
    inner            momentum of y and z
    radius           x forgets its momentum once n moves with squares that sum to q have n q >
                     radius^2,
    least            or least^2, if that is more,
    shrink           where the radius is multiplied by this number at every restart

    Cost: (T + 1) + (2T + 2) gradients; sends nothing.
    Lands: O(1/lam) from the solution, the bias of the penalty, as `f2sa` does.
    """
    below_one("inner", inner)
    rules = (
        restarted(alpha, momentum, radius=radius, least=least, shrink=shrink),
        nesterov(gamma, inner),
    )
    step = by_name(_step, {"lam": lam}, outer=rules[0], inner=rules[1], T=T)
    return Algorithm(
        Partial(_init, *rules), step, Partial(_view), needs=ALONE, theory=Theory("1/lam")
    )


def _init(
    outer: Rule, inner: Rule, oracle: Oracle, mix: Mix, start: dict[str, Vector]
) -> AccF2baState:
    x = start["x"]
    y = start["y"]
    z = start.get("z", y)
    return AccF2baState(x, y, z, outer.start(x), inner.start(y), inner.start(z))


def _view(state: AccF2baState) -> dict[str, Vector]:
    return {"x": state.x, "y": state.y, "z": state.z}


def _step(oracle: Oracle, mix: Mix, state: AccF2baState, p: Settings) -> AccF2baState:
    x = state.x

    def moved(rule: Rule, past: Tree, s: Vector, d: Vector) -> tuple[Tree, Vector]:
        past, u, h = rule.step(past, s, d, p.k)
        return past, s - jnp.asarray(h, s.dtype) * u

    def once(now: tuple[Vector, Vector, Tree, Tree]) -> tuple[Vector, Vector, Tree, Tree]:
        y, z, past_y, past_z = now
        past_z, z = moved(p.inner, past_z, z, oracle.inner(x, z).y)  # (1)
        d = oracle.inner(x, y).y + oracle.outer(x, y).y / p.lam
        past_y, y = moved(p.inner, past_y, y, d)  # (2)
        return y, z, past_y, past_z

    y, z, past_y, past_z = repeat(p.T, once, (state.y, state.z, state.past_y, state.past_z))
    d = oracle.outer(x, y).x + p.lam * (oracle.inner(x, y).x - oracle.inner(x, z).x)  # (3)
    past_x, x = moved(p.outer, state.past_x, x, d)  # (4)
    return AccF2baState(x, y, z, past_x, past_y, past_z)
