r"""Linear systems with the averaged inner Hessian, formed or by products.

    (1)  H v = b,    H = mean_i H_i(x, y)

Up to DENSE inner variables H is formed and factored (Cholesky: it must be positive definite); beyond, (1) is
solved by conjugate gradients, which need products with H only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from decibo.parallel.collectives import average
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions
from decibo.pytree import Tree, Vector

DENSE = 256
PRODUCTS = 10_000  # at most, in one solve by conjugate gradients

precise = partial(jax.default_matmul_precision, "highest")  # some devices round products to save time
Solve = Callable[[Vector, float], tuple[Vector, jax.Array]]


def mean(functions: Functions, data: Tree, evaluate: Callable[[Oracle], Any]) -> Any:
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


def conjugate_gradient(product: Callable[[Vector], Vector], b: Vector, tolerance: float) -> tuple[Vector, jax.Array]:
    """Solve H v = b by products with H; the flag is False if H is not positive definite or time runs out."""

    def going(state: tuple) -> jax.Array:
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

    state = jnp.zeros_like(b), b, b, jnp.array(0), jnp.array(True)
    v, _, _, _, positive = jax.lax.while_loop(going, body, state)
    # The residual that was carried along drifts from the true one; what counts is the true one.
    left = norm(product(v) - b)
    return v, positive & (left <= 2 * max(tolerance, eps(b) ** 0.5) * norm(b))


def linear_solver(functions: Functions, data: Tree, x: Vector, y: Vector, dense: int | None = None) -> Solve:
    """A function (b, tolerance) -> (v, solved) for H v = b with H = mean_i H_i(x, y)."""
    if y.size > (DENSE if dense is None else dense):
        return lambda b, tolerance: conjugate_gradient(
            lambda v: mean(functions, data, lambda oracle: oracle.products(x, y, v)[1]), b, tolerance
        )
    factor = jnp.linalg.cholesky(mean_hessian(functions, data, x, y))  # NaN if not positive definite

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
