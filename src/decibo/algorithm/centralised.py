r"""Methods for one agent: first gradients, inner loops, and a penalty. None of them mixes.

f2sa      a penalty that grows                             [F2SA: Kwon, Kwon, Wright & Nowak 2023]
    T times  (1)  z <- z - gamma g_y(x, z)
             (2)  y <- y - beta (f_y(x, y) + lam g_y(x, y))
    then     (3)  x+ = x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, z)))
f2sa_p    a bias of O(1/lam^p)                             [F2SA-p: Chen, Li, Chayti & Zhang 2026]
    T times  (4)  y_j <- y_j - gamma (g_y(x, y_j) + (j/lam) f_y(x, y_j))   j = 1, -1, ..., p/2, -p/2
    then     (5)  d  = sum_j a_j (j f_x(x, y_j) + lam g_x(x, y_j))         a_j: direction.py, (21)
             (6)  x+ = x - alpha d/|d|
v_pbgd    descent on the value-function penalty, x and y together     [V-PBGD: Shen & Chen 2023]
    T times  (7)  w <- w - gamma g_y(x, w)                      w goes on from the step before
    then     (8)  x+ = x - alpha (f_x(x, y) + lam (g_x(x, y) - g_x(x, w)))
             (9)  y+ = y - alpha (f_y(x, y) + lam g_y(x, y))
bome      a penalty chosen in every step                   [BOME: Liu, Ye, Wright, Stone & Liu 2022]
    T times  (10) e <- e - gamma g_y(x, e)                      e starts at y and is then held fixed
    with q(x, y) = g(x, y) - g(x, e):
             (11) grad q = (g_x(x, y) - g_x(x, e), g_y(x, y))
             (12) lam = max(eta |grad q|^2 - <grad f, grad q>, 0)/|grad q|^2
             (13) (x, y)+ = (x, y) - alpha (grad f + lam grad q)

(4) and (5) are the direction `penalty_p`; p = 2 is F2SA-2, the symmetric penalty as published.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, Settings, Theory, by_name, method, repeat
from decibo.algorithm.direction import Direction, Pair, Penalty, penalty_p
from decibo.algorithm.schedules import Rate, matched
from decibo.capabilities import ALONE
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector


@method(provenance=READ)
def f2sa(
    *, alpha: Rate, beta: Rate | None = None, gamma: Rate, lam: Rate, T: int = 10
) -> Algorithm:
    """F2SA (Kwon, Kwon, Wright & Nowak 2023), centralised, with full gradients.

    alpha, beta, gamma   step sizes of x, y and z; beta = gamma/lam unless given
    lam                  penalty, which grows in the paper: `decibo.schedules.growing(...)` or
                         `polynomial(...)`
    T                    length of the inner loop

    Cost: (T + 1) + (2T + 2) gradients; sends nothing.
    Lands: O(1/lam) from the solution, the bias of the penalty: |grad Phi| 1.4e-1, 1.6e-2, 1.6e-3 at
    lam = 10, 100, 1000 on a quadratic.
    """
    step = by_name(
        _f2sa, {"alpha": alpha, "beta": matched(beta, gamma, lam), "gamma": gamma, "lam": lam}, T=T
    )
    return Algorithm(Partial(_start_f2sa), step, needs=ALONE, theory=Theory("1/lam"))


def _start_f2sa(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> Penalty:
    return Penalty(start["x"], start["y"], start.get("z", start["y"]))


def _f2sa(oracle: Oracle, mix: Mix, s: Penalty, p: Settings) -> Penalty:
    x = s.x

    def once(s: Penalty) -> Penalty:
        z = s.z - p.gamma * oracle.inner(x, s.z).y  # (1)
        y = s.y - p.beta * (oracle.outer(x, s.y).y + p.lam * oracle.inner(x, s.y).y)  # (2)
        return Penalty(x, y, z)

    _, y, z = repeat(p.T, once, s)
    d = oracle.outer(x, y).x + p.lam * (oracle.inner(x, y).x - oracle.inner(x, z).x)
    return Penalty(x - p.alpha * d, y, z)  # (3)


@method(
    provenance=(
        f"{READ} The authors take minibatches, a new one for every y_j; here gradients are full."
    )
)
def f2sa_p(
    *, alpha: Rate, gamma: Rate, lam: Rate, p: int = 2, T: int = 10, normalised: bool = True
) -> Algorithm:
    """F2SA-p (Chen, Li, Chayti & Zhang 2026), centralised, with full gradients: F2SA with a
    difference of order p.

    alpha        step size of x: how far x moves if the step is normalised
    gamma        step size of all inner variables
    lam          penalty, the paper's 1/nu; g - (p/2) f/lam must be strongly convex in y
    p            order of the difference, even; 2 is F2SA-2
    T            length of the inner loop
    normalised   whether x moves by alpha whatever the size of the hypergradient, as in the paper

    Cost: p (T + 1) + p (T + 1) gradients; sends nothing.
    Lands: O(1/lam^p) from the solution, the bias of the difference; plus O(alpha) if the step is
    normalised.
    """
    along = penalty_p(lam, p)
    scaled = Partial(_unit) if normalised else Partial(_plain)
    step = by_name(_f2sa_p, {"alpha": alpha, "gamma": gamma}, along=along, T=T, scaled=scaled)
    return Algorithm(
        Partial(_start_f2sa_p, along),
        step,
        along.view,
        needs=ALONE,
        answer=along.answer,
        theory=Theory(along.bias),
    )


def _start_f2sa_p(along: Direction, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> Tree:
    return along.start(start)


def _f2sa_p(oracle: Oracle, mix: Mix, s: Tree, p: Settings) -> Tree:
    def once(s: Tree) -> Tree:
        d = p.along.at(oracle, s, p.k)
        return jax.tree.map(lambda s, d: s - p.gamma * d, s, d)._replace(x=s.x)  # (4)

    s = repeat(p.T, once, s)
    d = p.along.at(oracle, s, p.k).x  # (5)
    return s._replace(x=s.x - p.alpha * p.scaled(d))  # (6)


def _unit(d: Vector) -> Vector:
    return d / jnp.maximum(jnp.linalg.norm(d), jnp.finfo(d.dtype).tiny)


def _plain(d: Vector) -> Vector:
    return d


class ValueState(NamedTuple):
    """What the agent of V-PBGD keeps between two steps."""

    x: Vector
    y: Vector
    w: Vector  # follows y*(x)


@method(provenance=READ)
def v_pbgd(*, alpha: Rate, gamma: Rate, lam: Rate, T: int = 1) -> Algorithm:
    """V-PBGD (Shen & Chen 2023), centralised, with full gradients, as in the authors' code, where w
    goes on; in the paper it restarts at y in every step.

    alpha   step size of x and y, at most about 1/(lam L_g)
    gamma   step size of w
    lam     penalty, the paper's gamma, which is ramped up there: `decibo.schedules.growing(...)` or
            `polynomial(...)`, with an alpha that falls
    T       steps of w

    Cost: 1 + (T + 2) gradients; sends nothing.
    Lands: O(1/lam) from the solution, the bias of the penalty.
    """
    step = by_name(_v_pbgd, {"alpha": alpha, "gamma": gamma, "lam": lam}, T=T)
    return Algorithm(Partial(_start_v_pbgd), step, needs=ALONE, theory=Theory("1/lam"))


def _start_v_pbgd(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> ValueState:
    return ValueState(start["x"], start["y"], start.get("w", start["y"]))


def _v_pbgd(oracle: Oracle, mix: Mix, s: ValueState, p: Settings) -> ValueState:
    w = repeat(p.T, lambda w: w - p.gamma * oracle.inner(s.x, w).y, s.w)  # (7)
    f, g, g_w = oracle.outer(s.x, s.y), oracle.inner(s.x, s.y), oracle.inner(s.x, w)
    x = s.x - p.alpha * (f.x + p.lam * (g.x - g_w.x))  # (8)
    y = s.y - p.alpha * (f.y + p.lam * g.y)  # (9)
    return ValueState(x, y, w)


@method(provenance=READ)
def bome(*, alpha: Rate, gamma: Rate, eta: Rate = 0.5, T: int = 10) -> Algorithm:
    """BOME (Liu, Ye, Wright, Stone & Liu 2022), centralised, with full gradients.

    alpha   step size of x and y
    gamma   step size of the inner loop
    eta     how fast the inner gap must fall
    T       length of the inner loop, which must nearly solve the inner problem: (1 - gamma mu_g)^T
            of J v is missing

    Cost: 1 + (T + 1) gradients; sends nothing.
    Lands: in an O(alpha) neighbourhood of the solution, where it oscillates, since lam grows like
    1/|grad q|: |grad Phi| 1.4e-1, 1.5e-2, 1.8e-3 at alpha = .1, .01, .001 on a quadratic.
    """
    step = by_name(_bome, {"alpha": alpha, "gamma": gamma, "eta": eta}, T=T)
    return Algorithm(Partial(_start_bome), step, needs=ALONE)


def _start_bome(oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> Pair:
    return Pair(start["x"], start["y"])


def _bome(oracle: Oracle, mix: Mix, s: Pair, p: Settings) -> Pair:
    f, g = oracle.outer(s.x, s.y), oracle.inner(s.x, s.y)
    # the loop's first pass takes the gradient that (11) needs anyway
    e = repeat(p.T - 1, lambda e: e - p.gamma * oracle.inner(s.x, e).y, s.y - p.gamma * g.y)  # (10)
    q_x = g.x - oracle.inner(s.x, e).x  # (11)
    square = q_x @ q_x + g.y @ g.y
    excess = jnp.maximum(p.eta * square - (f.x @ q_x + f.y @ g.y), 0)
    lam = jnp.where(square > 0, excess / jnp.where(square > 0, square, 1), 0)  # (12)
    return Pair(s.x - p.alpha * (f.x + lam * q_x), s.y - p.alpha * (f.y + lam * g.y))  # (13)
