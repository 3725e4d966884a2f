r"""How curved the two levels are, as each agent sees them alone, and how far the inner level lags behind.

Every agent estimates with its own f_i, g_i at its own (x, y), by products with second derivatives only:

    (1)  L_g   = largest eigenvalue of H                                       power iteration
    (2)  v     = H^-1 f_y
    (3)  y'    = -H^-1 J^T u                                                   how y*(x) moves when x moves by u
    (4)  v'    = -H^-1 d(H v - f_y)/dt                                         along (u, y')
    (5)  P u   = d(f_x - J v)/dt                                               along (u, y', v'):  P = Hessian of Phi
    (6)  L_Phi = largest eigenvalue of P in size                               power iteration

How far the inner level lags behind, with v = lam (z - y)/2 and averages over the agents:

    (7)  r     = mean (d_y + d_z)/2,   s = mean lam (d_z - d_y)/2              what is left of g_y = 0 and H v = f_y
    (8)  y'    = -H^-1 r,   v' = -H^-1 (s + d(H v - f_y)/dt)                   a Newton step; along y'
    (9)  lag   = |mean d(f_x - J v)/dt| / |mean d_x|                           along (y', v')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from decibo.automatic.controller import Variables
from decibo.measure.measures import Direction
from decibo.parallel.collectives import average
from decibo.problem.problem import Functions, Oracle
from decibo.pytree import Tree, Vector

SOLVES = 20  # products in one approximate solve


class Curvature(NamedTuple):
    """Largest curvature of the inner objective in y, and of Phi in x, with the directions where they were found."""

    inner: jax.Array
    outer: jax.Array
    along_y: Vector
    along_x: Vector


Directions = Sequence[jax.Array]  # of all agents, in y and in x: where power iterations begin


def guess(X: jax.Array, Y: jax.Array) -> Directions:
    """Directions to begin with: random, the same for all agents."""
    draw = lambda key, rows: jnp.broadcast_to(
        jax.random.normal(jax.random.key(key), rows.shape[1:], rows.dtype), rows.shape
    )
    return draw(0, Y), draw(1, X)


@partial(jax.jit, static_argnames="functions")
def local_curvature(
    functions: Functions, data: Tree, X: jax.Array, Y: jax.Array, along: Directions, powers: int | jax.Array
) -> Curvature:
    """Every agent's own estimate at its own point, by power iterations from these directions."""
    one = lambda d, x, y, along_y, along_x: _one(Oracle(functions, d), x, y, along_y, along_x, powers)
    return jax.vmap(one)(data, X, Y, *along)


def _one(oracle: Oracle, x: Vector, y: Vector, along_y: Vector, along_x: Vector, powers: int | jax.Array) -> Curvature:
    H = lambda v: oracle.hessian(x, y, v)
    solve = _solver(oracle, x, y)
    v = solve(oracle.outer(x, y)[1])  # (2)

    def P(u: Vector) -> Vector:
        y_dot = -solve(jax.jvp(lambda x: oracle.inner(x, y)[1], (x,), (u,))[1])  # (3)
        residual = lambda x, y: oracle.hessian(x, y, v) - oracle.outer(x, y)[1]
        v_dot = -solve(jax.jvp(residual, (x, y), (u, y_dot))[1])  # (4)
        gradient = lambda x, y, v: oracle.outer(x, y)[0] - oracle.jacobian(x, y, v)
        return jax.jvp(gradient, (x, y, v), (u, y_dot, v_dot))[1]  # (5)

    inner, along_y = _largest(H, along_y, powers)  # (1)
    outer, along_x = _largest(P, along_x, powers)  # (6)
    return Curvature(inner, outer, along_y, along_x)


@partial(jax.jit, static_argnames="functions")
def lag(functions: Functions, data: Tree, at: Variables, direction: Direction, lam: float | jax.Array) -> jax.Array:
    """(9): by how much d_x would change, relatively, if y and z were where they are going."""
    along = jax.vmap(lambda d, here: direction.at(Oracle(functions, d), here, jnp.int32(0)))(data, at)
    r = average(along.y + along.z) / 2  # (7)
    s = lam * average(along.z - along.y) / 2

    def one(d: Tree, here: Variables) -> Vector:
        oracle = Oracle(functions, d)
        x = here.x
        y = (here.y + here.z) / 2
        v = lam * (here.z - here.y) / 2
        solve = _solver(oracle, x, y)
        y_dot = -solve(r)
        residual = lambda y: oracle.hessian(x, y, v) - oracle.outer(x, y)[1]
        v_dot = -solve(s + jax.jvp(residual, (y,), (y_dot,))[1])  # (8)
        gradient = lambda y, v: oracle.outer(x, y)[0] - oracle.jacobian(x, y, v)
        return jax.jvp(gradient, (y, v), (y_dot, v_dot))[1]

    size = lambda rows: jnp.linalg.norm(average(rows))
    return size(jax.vmap(one)(data, at)) / size(along.x)  # (9)


def _solver(oracle: Oracle, x: Vector, y: Vector) -> Callable[[Vector], Vector]:
    """b -> H^-1 b, roughly."""
    H = jax.jit(lambda v: oracle.hessian(x, y, v))  # jit, so that each is traced once however often it is called
    return jax.jit(lambda b: jax.scipy.sparse.linalg.cg(H, b, maxiter=SOLVES, tol=1e-3)[0])


def _largest(product: Callable[[Vector], Vector], start: Vector, powers: int | jax.Array) -> tuple[jax.Array, Vector]:
    """The largest eigenvalue in size, from below, and a direction close to its eigenvector."""

    def once(_: int, carry: tuple[jax.Array, Vector]) -> tuple[jax.Array, Vector]:
        v = carry[1] / jnp.maximum(jnp.linalg.norm(carry[1]), jnp.finfo(start.dtype).tiny)
        image = product(v)
        size = jnp.linalg.norm(image)
        return size, jnp.where(jnp.isfinite(size) & (size > 0), image, start)

    return jax.lax.fori_loop(0, powers, once, (jnp.zeros((), start.dtype), start))
