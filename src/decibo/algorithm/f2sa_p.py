r"""F2SA-p on one agent: first gradients only, an inner loop, and a hypergradient whose bias is
O(1/lam^p).

T times      (1)  y_j <- y_j - gamma (g_y(x, y_j) + (j/lam) f_y(x, y_j))         j = 1, -1, ..., p/2, -p/2
then         (2)  d  = sum_j a_j (j f_x(x, y_j) + lam g_x(x, y_j))               a_j: direction.penalty_p, (21)
             (3)  x+ = x - alpha d/|d|

(1) and (2) are the direction `penalty_p`. p = 2 is F2SA-2, the symmetric penalty as it was
published.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import READ, Algorithm, method
from decibo.algorithm.direction import Direction, penalty_p
from decibo.algorithm.schedules import Rate, Schedule
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector


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

    Cost: p (T + 1) + p (T + 1) gradients; sends nothing. Lands: O(1/lam^p) from the solution, the
    bias of the difference; plus O(alpha) if the step is normalised.
    """
    along = penalty_p(lam, p)
    scaled = Partial(_unit) if normalised else Partial(_plain)
    step = Partial(_step, alpha, gamma, along, T, scaled)
    return Algorithm(
        Partial(_init, along),
        step,
        along.view,
        centralised=True,
        answer=along.answer,
        bias=along.bias,
        products=along.products,
    )


def _init(along: Direction, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> Tree:
    return along.start(start)


def _step(
    alpha: Schedule,
    gamma: Schedule,
    along: Direction,
    T: int,
    scaled: Partial,
    oracle: Oracle,
    mix: Mix,
    state: Tree,
    k: jax.Array,
    key: jax.Array,
) -> Tree:
    h = jnp.asarray(gamma(k), state.y.dtype)

    def once(s: Tree, _: None) -> tuple[Tree, None]:
        d = along.at(oracle, s, k)
        return jax.tree.map(lambda s, d: s - h * d, s, d)._replace(x=s.x), None  # (1)

    s, _ = lax.scan(once, state, length=T)
    d = along.at(oracle, s, k).x  # (2)
    return s._replace(x=s.x - alpha(k) * scaled(d))  # (3)


def _unit(d: Vector) -> Vector:
    return d / jnp.maximum(jnp.linalg.norm(d), jnp.finfo(d.dtype).tiny)


def _plain(d: Vector) -> Vector:
    return d
