r"""Directions: which variables an agent keeps, and where it would go if it were alone.

f_x f_y g_x g_y are the agent's first gradients, H v and J v products with d2 g/dy dy and d2 g/dx
dy.

penalty             x, y, z                                  [AHEAD, eqs. alg-a to alg-c]
    (1)  d_z = g_y(x, z)                                   z follows y*(x)
    (2)  d_y = f_y(x, y) + lam g_y(x, y)                   y follows y*(x; lam)
    (3)  d_x = f_x(x, y) + lam (g_x(x, y) - g_x(x, z))     the penalised hypergradient
symmetric_penalty   x, y, z, with c = (y + z)/2              [F2SA-2 with f halfway between y and z]
    (4)  d_y = g_y(x, y) + f_y(x, c)/lam                   y sits on one side of y*(x)
    (5)  d_z = g_y(x, z) - f_y(x, c)/lam                   z on the other
    (6)  d_x = f_x(x, c) + (lam/2) (g_x(x, y) - g_x(x, z))
implicit            x, y, v                                  [SOBA: Dagreou et al. 2022]
    (7)  d_y = g_y(x, y)
    (8)  d_v = H v - f_y(x, y)                             v follows mean(H)^-1 mean(f_y)
    (9)  d_x = f_x(x, y) - J v
implicit with `difference` = e: products by two gradients instead of second derivatives
    (10) (J v, H v) ~ (grad g(x, y + s v) - grad g(x, y - s v)) / (2 s),   s = e / (e + |v|)
implicit with `ridge` = mu: that of g + (mu/2) |y|^2, whose inner level has a unique solution
    (23) d_y = g_y(x, y) + mu y,   d_v = H v + mu v - f_y(x, y)
minimax             x, y                                  [g = -f: Lin, Jin & Jordan 2020]
    (11) d_x = f_x(x, y),   d_y = -f_y(x, y)
minimax_penalty     x, y, z                               [AHEAD, eqs. minmax-z to minmax-x]
    (12) d_z = -f_y(x, z)
    (13) d_y = (1 - lam) f_y(x, y)
    (14) d_x = (1 - lam) f_x(x, y) + lam f_x(x, z)
moreau              x, y, t                               [MEHA: Liu et al. 2024; LV-HBA: Yao et al.
                                                          2024]
    (15) d_t = g_y(x, t) + (t - y)/g1
    (16) d_x = f_x(x, y)/c + g_x(x, y) - g_x(x, t)
    (17) d_y = f_y(x, y)/c + g_y(x, y) - (y - t)/g1        c grows slowly; the inner level may be
                                                           non-convex
single              x, with y carried along               [one level: only f counts]
    (18) d_x = f_x(x, y),   d_y = f_y(x, y)
penalty_p           x, y_j for j = 1, -1, ..., p/2, -p/2  [F2SA-p: Chen, Li, Chayti & Zhang 2026]
    (19) d_j = g_y(x, y_j) + (j/lam) f_y(x, y_j)           y_j follows argmin g + (j/lam) f
    (20) d_x = sum_j a_j (j f_x(x, y_j) + lam g_x(x, y_j)) a difference of order p in 1/lam
    (21) a_j = (-1)^(j+1) (p/2)!^2 / (j (p/2 - j)! (p/2 + j)!)
    (22) c   = sum_j j a_j y_j                             the same weights interpolate at 1/lam = 0
centred_penalty     x, c, w: the symmetric penalty with y = c + w/lam, z = c - w/lam
    (24) d_c = (g_y(x, y) + g_y(x, z))/2                   c follows y*(x)
    (25) d_w = (lam/2) (g_y(x, y) - g_y(x, z)) + f_y(x, c) w follows -H^-1 f_y
    (26) d_x = f_x(x, c) + (lam/2) (g_x(x, y) - g_x(x, z))
    (27) 1/lam = gap (the largest |c| so far)/|w|          where none is given: each agent its own
In code y_1 and y_-1 are y and z, y_2 and y_-2 are y2 and z2, and so on.

The symmetric penalty was published, under this name, as F2SA-2 by Chen, Li, Chayti & Zhang (ICLR
2026): (19) and (20) for p = 2. (4) to (6) differ from it in that f is taken once, at c:
studies/proofs/ahead_exact.md. (24) to (26) are (4) to (6) in other coordinates, c = (y + z)/2 and
w = lam (y - z)/2: in lockstep the same points, up to rounding. If c and w are of different age,
though, the error is theirs; if y and z are, it is lam times the difference of their ages.

At its solution w does not depend on lam, which only says how far apart the two gradients of g are
taken: 2 |w|/lam. With (27) that is 2 gap times the scale of y, whatever the units of f, g and y.
The error of a central difference over it is O(gap^2) by truncation and O(eps/gap) by rounding, so
gap = eps^(1/3); a scale seen along the run does not vanish where y* does.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.schedules import Rate, Scalar, Schedule, Step, schedule, unless_traced
from decibo.capabilities import Need, Needs
from decibo.errors import InputError
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector
from decibo.validate import integer, positive

__all__ = [
    "Centred",
    "Direction",
    "Implicit",
    "Moreau",
    "Pair",
    "Penalty",
    "centred_penalty",
    "implicit",
    "minimax",
    "minimax_penalty",
    "moreau",
    "penalty",
    "penalty_p",
    "single",
    "symmetric_penalty",
]


SINGLE = "single"  # the name of the direction without an inner level


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Direction:
    """A direction: `start(values)` creates the variables of an agent, `at(oracle, variables, k)` is
    where each goes.

    view     what an agent shows of its variables
    answer   the entry of the view that answers for y*(x)
    bias     how far a penalty keeps the fixed point from the solution: "1/lam", "1/lam^2", ...,
             "1/c", None if exact
    needs    products with second derivatives of g, if it is known to multiply with them

    Variables and directions are NamedTuples of one kind, with the fields `variables`.
    """

    start: Callable[[Mapping[str, Vector]], Tree]
    at: Callable[[Oracle, Tree, Step], Tree]
    name: str = field(metadata={"static": True})
    variables: tuple[str, ...] = field(metadata={"static": True})
    view: Callable[[Tree], dict[str, Vector]] = field(
        default_factory=lambda: Partial(_all_variables)
    )
    answer: str = field(default="y", metadata={"static": True})
    bias: str | None = field(default=None, metadata={"static": True})
    needs: Needs = field(default=frozenset(), metadata={"static": True})


class Penalty(NamedTuple):
    """The variables of the penalty directions."""

    x: Vector  # outer
    y: Vector  # inner, pulled by the outer objective
    z: Vector  # inner


class Centred(NamedTuple):
    """The variables of the centred penalty."""

    x: Vector  # outer
    c: Vector  # inner, halfway between y and z
    w: Vector  # lam times half their difference
    size: jax.Array  # the largest |c| so far, 1 if it starts at 0: it says what is close


class Implicit(NamedTuple):
    """The variables of the implicit direction."""

    x: Vector  # outer
    y: Vector  # inner
    v: Vector  # solution of the linear system


class Moreau(NamedTuple):
    """The variables of the Moreau direction."""

    x: Vector  # outer
    y: Vector  # inner
    t: Vector  # proximal point of y


class Pair(NamedTuple):
    """The variables of one-level and minimax directions."""

    x: Vector
    y: Vector


Products = Callable[[Oracle, Implicit], tuple[Vector, Vector]]
Weights = dict[int, float]  # a_j for every j


def penalty(lam: Rate) -> Direction:
    """AHEAD's direction: three first gradients, no second derivatives; its bias is O(1/lam)."""
    at = Partial(_penalty, schedule("lam", lam))
    return Direction(Partial(_start_penalty), at, "penalty", Penalty._fields, bias="1/lam")


def symmetric_penalty(lam: Rate) -> Direction:
    """F2SA-2's penalty with f halfway between y and z: 1 + 2 gradients, bias O(1/lam^2), zero if g
    is quadratic in y.

    y and z need the same step size.
    """
    at = Partial(_symmetric_penalty, schedule("lam", lam))
    view = Partial(_with_center)
    start = Partial(_start_penalty)
    return Direction(
        start, at, "symmetric_penalty", Penalty._fields, view, answer="c", bias="1/lam^2"
    )


def centred_penalty(lam: Rate | None = None) -> Direction:
    """The symmetric penalty with c and w in place of y and z, for messages that may be of different
    age.

    c and w need the same step size.

    lam   None: every agent has its own at every step, (27), so that y and z are close to each other
          in any units
    """
    at = Partial(_centred_penalty, None if lam is None else schedule("lam", lam))
    bias = "gap^2" if lam is None else "1/lam^2"
    return Direction(
        Partial(_start_centred),
        at,
        "centred_penalty",
        ("x", "c", "w"),
        Partial(_with_answer),
        answer="c",
        bias=bias,
    )


def penalty_p(lam: Rate, p: int = 2) -> Direction:
    """F2SA-p's direction: p points around y*(x), f at each of them, p + p gradients; bias
    O(1/lam^p).

    All points need the same step size: compose(penalty_p(lam, 4), ..., x=a, y=h, z=h, y2=h, z2=h).

    p   the order, an even number
    """
    weights = _central_difference(p)
    at = Partial(_penalty_p, schedule("lam", lam), weights)
    view = Partial(_with_interpolation, weights)
    names = _points(len(weights))._fields
    start = Partial(_start_penalty_p, weights)
    return Direction(start, at, "penalty_p", names, view, answer="c", bias=f"1/lam^{p}")


def implicit(difference: float | None = None, *, ridge: Rate | None = None) -> Direction:
    """The hypergradient by the implicit function theorem: no bias, with second derivatives.

    difference   None: exact products with second derivatives; a number e: their finite differences,
                 (10)
    ridge        for an inner level that is not strongly convex: mu of (23), normally a function of
                 the step that falls
    """
    products = Partial(_exact_products)
    if difference is not None:
        products = Partial(_differences, unless_traced(positive, "difference", difference))
    at = Partial(_implicit, products)
    if ridge is not None:
        at = Partial(_ridged, products, schedule("ridge", ridge))
    needs = frozenset({Need.SECOND_DERIVATIVES} if difference is None else ())
    return Direction(Partial(_start_implicit), at, "implicit", Implicit._fields, needs=needs)


def minimax() -> Direction:
    """Gradient descent ascent, for problems with g = -f; uses f only."""
    return Direction(Partial(_start_pair), Partial(_minimax), "minimax", Pair._fields)


def minimax_penalty(lam: Rate) -> Direction:
    """AHEAD's minimax case, for problems with g = -f; uses f only."""
    at = Partial(_minimax_penalty, schedule("lam", lam))
    return Direction(Partial(_start_penalty), at, "minimax_penalty", Penalty._fields, bias="1/lam")


def moreau(c: Rate, proximity: Rate = 1.0) -> Direction:
    """The gradient of the Moreau-envelope penalty; proximity is the g1 of (15) and (17)."""
    at = Partial(_moreau, schedule("c", c), schedule("proximity", proximity))
    return Direction(Partial(_start_moreau), at, "moreau", Moreau._fields, bias="1/c")


def single() -> Direction:
    """One level only: both x and y descend f. For checks, and for comparison with one-level
    libraries."""
    return Direction(Partial(_start_pair), Partial(_single), SINGLE, Pair._fields)


def _start_penalty(values: Mapping[str, Vector]) -> Penalty:
    return Penalty(values["x"], values["y"], values.get("z", values["y"]))


def _start_centred(values: Mapping[str, Vector]) -> Centred:
    c = values.get("c", values["y"])
    size = jnp.linalg.norm(c)
    size = jnp.where(size > 0, size, 1)
    return Centred(values["x"], c, values.get("w", jnp.zeros_like(c)), size)


def _start_implicit(values: Mapping[str, Vector]) -> Implicit:
    return Implicit(values["x"], values["y"], values.get("v", jnp.zeros_like(values["y"])))


def _start_moreau(values: Mapping[str, Vector]) -> Moreau:
    return Moreau(values["x"], values["y"], values.get("t", values["y"]))


def _start_pair(values: Mapping[str, Vector]) -> Pair:
    return Pair(values["x"], values["y"])


def _start_penalty_p(weights: Weights, values: Mapping[str, Vector]) -> Tree:
    kind = _points(len(weights))
    return kind(*(values.get(name, values["y"]) for name in kind._fields))


def _all_variables(v: Tree) -> dict[str, Vector]:
    return v._asdict()


def _with_answer(v: Centred) -> dict[str, Vector]:
    return {"x": v.x, "c": v.c, "w": v.w, "y": v.c}


def _with_center(v: Penalty) -> dict[str, Vector]:
    return v._asdict() | {"c": (v.y + v.z) / 2}


def _penalty(lam: Schedule, oracle: Oracle, v: Penalty, k: Step) -> Penalty:
    f_x, f_y = oracle.outer(v.x, v.y)
    g_x, g_y = oracle.inner(v.x, v.y)
    h_x, h_y = oracle.inner(v.x, v.z)
    return Penalty(
        z=h_y,  # (1)
        y=f_y + lam(k) * g_y,  # (2)
        x=f_x + lam(k) * (g_x - h_x),  # (3)
    )


def _symmetric_penalty(lam: Schedule, oracle: Oracle, v: Penalty, k: Step) -> Penalty:
    f_x, f_y = oracle.outer(v.x, (v.y + v.z) / 2)
    g_x, g_y = oracle.inner(v.x, v.y)
    h_x, h_y = oracle.inner(v.x, v.z)
    return Penalty(
        y=g_y + f_y / lam(k),  # (4)
        z=h_y - f_y / lam(k),  # (5)
        x=f_x + lam(k) / 2 * (g_x - h_x),  # (6)
    )


def _centred_penalty(lam: Schedule | None, oracle: Oracle, v: Centred, k: Step) -> Centred:
    if lam is None:
        length, far = jnp.linalg.norm(v.w), jnp.cbrt(jnp.finfo(v.c.dtype).eps) * v.size
        u, penalty = far * v.w / jnp.where(length > 0, length, 1), length / far  # (27)
    else:
        penalty = lam(k)
        u = v.w / penalty
    f_x, f_y = oracle.outer(v.x, v.c)
    g_x, g_y = oracle.inner(v.x, v.c + u)
    h_x, h_y = oracle.inner(v.x, v.c - u)
    return Centred(
        c=(g_y + h_y) / 2,  # (24)
        w=penalty / 2 * (g_y - h_y) + f_y,  # (25)
        x=f_x + penalty / 2 * (g_x - h_x),  # (26)
        size=jnp.maximum(v.size, jnp.linalg.norm(v.c)),
    )


def _penalty_p(lam: Schedule, weights: Weights, oracle: Oracle, v: Tree, k: Step) -> Tree:
    x = jnp.zeros_like(v.x)
    moves: dict[str, Vector] = {}
    for j, a in weights.items():
        y = getattr(v, _point(j))
        f_x, f_y = oracle.outer(v.x, y)
        g_x, g_y = oracle.inner(v.x, y)
        moves[_point(j)] = g_y + j / lam(k) * f_y  # (19)
        x = x + a * (j * f_x + lam(k) * g_x)  # (20)
    return type(v)(x=x, **moves)


def _central_difference(p: int) -> Weights:
    """The weights of the central difference of order p for a first derivative."""
    half, odd = divmod(integer("p", p, least=2), 2)
    if odd:
        raise InputError(
            f"p must be an even number, but it is {p}.",
            f"F2SA-p needs p + 1 points then: use {p + 1}.",
        )
    size = lambda j: (
        math.factorial(half) ** 2 / (math.factorial(half - j) * math.factorial(half + j))
    )
    return {j: (-1) ** (j + 1) * size(abs(j)) / j for j in range(-half, half + 1) if j}  # (21)


def _with_interpolation(weights: Weights, v: Tree) -> dict[str, Vector]:
    # (22)
    return v._asdict() | {"c": sum(j * a * getattr(v, _point(j)) for j, a in weights.items())}


def _point(j: int) -> str:
    """What y_j is called."""
    return ("y" if j > 0 else "z") + ("" if abs(j) == 1 else str(abs(j)))


@cache
def _points(p: int) -> Tree:
    """The NamedTuple of x and the p points."""
    return namedtuple(
        "PenaltyP", ["x", *(_point(j * sign) for j in range(1, p // 2 + 1) for sign in (1, -1))]
    )


def _implicit(products: Products, oracle: Oracle, s: Implicit, k: Step) -> Implicit:
    f_x, f_y = oracle.outer(s.x, s.y)
    _, g_y = oracle.inner(s.x, s.y)
    Jv, Hv = products(oracle, s)
    return Implicit(
        y=g_y,  # (7)
        v=Hv - f_y,  # (8)
        x=f_x - Jv,  # (9)
    )


def _ridged(products: Products, ridge: Schedule, oracle: Oracle, s: Implicit, k: Step) -> Implicit:
    d = _implicit(products, oracle, s, k)
    return d._replace(y=d.y + ridge(k) * s.y, v=d.v + ridge(k) * s.v)  # (23)


def _exact_products(oracle: Oracle, s: Implicit) -> tuple[Vector, Vector]:
    return oracle.products(s.x, s.y, s.v)


def _differences(e: Scalar, oracle: Oracle, s: Implicit) -> tuple[Vector, Vector]:
    size = e / (e + jnp.linalg.norm(s.v))
    ahead = oracle.inner(s.x, s.y + size * s.v)
    behind = oracle.inner(s.x, s.y - size * s.v)
    Jv, Hv = jax.tree.map(lambda a, b: (a - b) / (2 * size), ahead, behind)  # (10)
    return Jv, Hv


def _minimax(oracle: Oracle, v: Pair, k: Step) -> Pair:
    f_x, f_y = oracle.outer(v.x, v.y)
    return Pair(x=f_x, y=-f_y)  # (11)


def _minimax_penalty(lam: Schedule, oracle: Oracle, v: Penalty, k: Step) -> Penalty:
    f_x, f_y = oracle.outer(v.x, v.y)
    h_x, h_y = oracle.outer(v.x, v.z)
    return Penalty(
        z=-h_y,  # (12)
        y=(1 - lam(k)) * f_y,  # (13)
        x=(1 - lam(k)) * f_x + lam(k) * h_x,  # (14)
    )


def _moreau(c: Schedule, proximity: Schedule, oracle: Oracle, v: Moreau, k: Step) -> Moreau:
    f_x, f_y = oracle.outer(v.x, v.y)
    g_x, g_y = oracle.inner(v.x, v.y)
    h_x, h_y = oracle.inner(v.x, v.t)
    return Moreau(
        t=h_y + (v.t - v.y) / proximity(k),  # (15)
        x=f_x / c(k) + g_x - h_x,  # (16)
        y=f_y / c(k) + g_y - (v.y - v.t) / proximity(k),  # (17)
    )


def _single(oracle: Oracle, v: Pair, k: Step) -> Pair:
    f_x, f_y = oracle.outer(v.x, v.y)
    return Pair(x=f_x, y=f_y)  # (18)
