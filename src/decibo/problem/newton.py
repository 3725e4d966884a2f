r"""The exact answer of the averaged problem: pure functions of flat vectors, for use in compiled
loops.

    (1)  0 = mean_i g_y(x, y*)                     Newton: y+ = y + t p,  H p = -mean_i g_y
    (2)  H v = mean_i f_y(x, y*)                    H = mean_i H_i(x, y*)
    (3)  grad Phi = mean_i f_x(x, y*) - mean_i J_i v                      [paper, eq. hypergradient]

Steps are halved until |mean g_y| falls, not until g falls: near y* the value of g is all rounding
while its gradient still is not. The last digits are reached when a full step no longer halves the
gradient.

Up to DENSE inner variables H is formed and factored (Cholesky: it must be positive definite);
beyond, linear systems are solved by conjugate gradients, which need products with H only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from decibo.parallel.collectives import average, is_spread
from decibo.problem.problem import Functions, Oracle
from decibo.programs import jitted
from decibo.pytree import Tree, Vector

STEPS = 100  # of Newton, at most
HALVINGS = 40  # of one step, at most
DENSE = 256  # inner variables up to which the Hessian is formed
PRODUCTS = 10_000  # with the Hessian in one solve by conjugate gradients, at most

# some devices round products to save time
precise = partial(jax.default_matmul_precision, "highest")
Solve = Callable[[Vector, float], tuple[Vector, jax.Array]]
Values = TypeVar("Values")


class Exact(NamedTuple):
    """y*(x), Phi(x) and grad Phi(x); all NaN unless `converged`."""

    y: Vector
    phi: jax.Array
    grad: Vector
    converged: jax.Array


class Point(NamedTuple):
    """A guess of y*, the mean gradient there, and how large the agents' own values and gradients
    are."""

    y: Vector
    gradient: Vector
    value_size: jax.Array
    gradient_size: jax.Array


class InnerSolve(NamedTuple):
    """The state of the inner solve."""

    point: Point
    solved: jax.Array  # the last linear system was positive definite and was solved
    small: jax.Array  # the last Newton step was within rounding of nothing
    steps: jax.Array
    done: jax.Array

    @property
    def converged(self) -> jax.Array:
        """Whether `point.y` is y*(x) to the last digits that the type allows."""
        return self.solved & self.small & self.done


def newton(
    functions: Functions, data: Tree, x: Vector, y_guess: Vector, dense: int | None = None
) -> InnerSolve:
    """(1) from a guess, or from the closed form if there is one: a wrong formula costs time, never
    truth."""

    def at(y: Vector) -> Point:
        def one(d: Tree) -> tuple[jax.Array, Vector]:
            oracle = Oracle(functions, d)
            if functions.inner_gradient is not None:
                return oracle.inner_value(x, y), oracle.inner(x, y)[1]
            return jax.value_and_grad(oracle.inner_value, argnums=1)(x, y)

        with precise():
            values, gradients = jax.vmap(one)(data)
        return Point(
            y,
            average(gradients),
            average(jnp.abs(values)),
            average(jnp.linalg.norm(gradients, axis=1)),
        )

    def body(s: InnerSolve) -> InnerSolve:
        now = s.point
        p, solved = linear_solver(functions, data, x, now.y, dense)(-now.gradient, 1e-3)  # (1)
        small = _is_small(now, p)
        after, fell = _halve(at, now, p, small)
        better = solved & (norm(after.gradient) < norm(now.gradient))
        point = jax.tree.map(lambda new, old: jnp.where(better, new, old), after, now)
        return InnerSolve(point, solved, small, s.steps + 1, ~solved | ~fell)

    # The closed form needs the data of all agents, and they may be elsewhere.
    guess = (
        y_guess
        if functions.inner_solution is None or is_spread()
        else closed_form(functions, data, x)
    )
    false = jnp.array(False)
    start = InnerSolve(
        at(jnp.where(jnp.isfinite(guess), guess, 0)), false, false, jnp.array(0), false
    )
    return jax.lax.while_loop(lambda s: ~s.done & (s.steps < STEPS), body, start)


def closed_form(functions: Functions, data: Tree, x: Vector) -> Vector:
    """y*(x) by the problem's own formula."""
    assert functions.inner_solution is not None
    return functions.y.ravel(functions.inner_solution(functions.x.unravel(x), data))


def solve_inner(
    functions: Functions, data: Tree, x: Vector, y_guess: Vector
) -> tuple[Vector, jax.Array]:
    """(y*(x), whether it converged); the first is meaningless without the second."""
    inner = newton(functions, data, x, y_guess)
    return inner.point.y, inner.converged


def hypergradient(
    functions: Functions, data: Tree, x: Vector, y: Vector, dense: int | None = None
) -> tuple[jax.Array, Vector]:
    """(Phi, grad Phi) at x, given y = y*(x); the gradient is NaN if the inner Hessian is not
    definite."""
    phi = mean(functions, data, lambda oracle: oracle.outer_value(x, y))
    f_x, f_y = mean(functions, data, lambda oracle: oracle.outer(x, y))
    v, solved = linear_solver(functions, data, x, y, dense)(f_y, eps(y) ** 0.75)  # (2)
    grad = f_x - mean(functions, data, lambda oracle: oracle.products(x, y, v)[0])  # (3)
    return phi, jnp.where(solved, grad, jnp.nan)


@jitted()  # traced once for all programs that measure the same problem
def exact(functions: Functions, data: Tree, x: Vector, y_guess: Vector) -> Exact:
    """y*(x), Phi(x) and grad Phi(x) together; NaN rather than a wrong number."""
    y, converged = solve_inner(functions, data, x, y_guess)
    phi, grad = hypergradient(functions, data, x, y)
    sound = converged & jnp.isfinite(phi) & jnp.all(jnp.isfinite(grad))
    y, phi, grad = (jnp.where(sound, value, jnp.nan) for value in (y, phi, grad))
    return Exact(y, phi, grad, sound)


def _halve(
    at: Callable[[Vector], Point], now: Point, p: Vector, small: jax.Array
) -> tuple[Point, jax.Array]:
    """The first of p, p/2, p/4, ... that lowers the gradient, and whether there is one."""
    # Small steps may be mere rounding: few tries, and more must be gained than rounding would.
    tries = jnp.where(small, 3, HALVINGS)
    share = jnp.where(small, 0.5, 0.25).astype(p.dtype)

    def fell(point: Point, t: jax.Array) -> jax.Array:
        return norm(point.gradient) <= (1 - share * t) * norm(now.gradient)

    def shorter(state: tuple[Point, jax.Array, jax.Array]) -> tuple[Point, jax.Array, jax.Array]:
        _, t, k = state
        return at(now.y + t / 2 * p), t / 2, k + 1

    start = (now, jnp.full((), 2, p.dtype), jnp.array(0))
    point, t, _ = jax.lax.while_loop(lambda s: ~fell(s[0], s[1]) & (s[2] < tries), shorter, start)
    return point, fell(point, t) & jnp.any(p != 0)


def _is_small(now: Point, p: Vector) -> jax.Array:
    """Whether p changes y*, the value of g, or the agents' gradients, by no more than rounding
    may."""
    rounding = eps(p)
    in_y = norm(p) <= rounding**0.5 * norm(now.y)
    in_value = -dot(now.gradient, p) <= rounding * now.value_size
    in_gradient = norm(now.gradient) <= 8 * rounding * now.gradient_size
    return in_y | in_value | in_gradient


def mean(functions: Functions, data: Tree, evaluate: Callable[[Oracle], Values]) -> Values:
    """The mean over agents of whatever `evaluate` takes from one agent's oracle."""
    with precise():
        values = jax.vmap(lambda d: evaluate(Oracle(functions, d)))(data)
    return jax.tree.map(average, values)


def mean_hessian(functions: Functions, data: Tree, x: Vector, y: Vector) -> jax.Array:
    """mean_i H_i as a matrix, a block of columns at a time."""

    def column(v: Vector) -> Vector:
        return mean(functions, data, lambda oracle: oracle.products(x, y, v)[1])

    eye = jnp.eye(y.size, dtype=y.dtype)
    return jax.vmap(column)(eye) if y.size <= 32 else jax.lax.map(column, eye, batch_size=32)


def conjugate_gradient(
    product: Callable[[Vector], Vector], b: Vector, tolerance: float
) -> tuple[Vector, jax.Array]:
    """Solve H v = b by products with H; the flag is False if H is not positive definite or PRODUCTS
    are not enough.

    JAX's own cg does not say whether it met a direction of negative curvature, and Newton must
    know.
    """

    def unfinished(state: tuple) -> jax.Array:
        _, residual, _, k, positive = state
        return positive & (k < PRODUCTS) & (norm(residual) > tolerance * norm(b))

    def body(state: tuple) -> tuple:
        v, residual, p, k, _ = state
        product_p = product(p)
        curvature = dot(p, product_p)
        a = dot(residual, residual) / curvature
        after = residual - a * product_p
        p_next = after + dot(after, after) / dot(residual, residual) * p
        return v + a * p, after, p_next, k + 1, curvature > 0

    state = (jnp.zeros_like(b), b, b, jnp.array(0), jnp.array(True))
    v, _, _, _, positive = jax.lax.while_loop(unfinished, body, state)
    # The residual that was carried along drifts from the true one; what counts is the true one.
    left = norm(product(v) - b)
    return v, positive & (left <= 2 * max(tolerance, eps(b) ** 0.5) * norm(b))


def linear_solver(
    functions: Functions, data: Tree, x: Vector, y: Vector, dense: int | None = None
) -> Solve:
    """A function (b, tolerance) -> (v, solved) for H v = b with H = mean_i H_i(x, y)."""
    if y.size > (DENSE if dense is None else dense):
        return lambda b, tolerance: conjugate_gradient(
            lambda v: mean(functions, data, lambda oracle: oracle.products(x, y, v)[1]),
            b,
            tolerance,
        )
    # NaN if not positive definite
    factor = jnp.linalg.cholesky(mean_hessian(functions, data, x, y))

    def solve(b: Vector, tolerance: float) -> tuple[Vector, jax.Array]:
        v = jax.scipy.linalg.cho_solve((factor, True), b)
        return v, jnp.all(jnp.isfinite(v))

    return solve


def norm(v: Vector) -> jax.Array:
    """The Euclidean norm."""
    return jnp.sqrt(dot(v, v))


def dot(v: Vector, w: Vector) -> jax.Array:
    """v'w in full precision everywhere."""
    return jnp.sum(v * w)


def eps(v: Vector) -> float:
    """The relative rounding error of v's type."""
    return float(jnp.finfo(v.dtype).eps)
