r"""How curved the agents' objectives are at a point, by products with second and third derivatives.

    (1)  H v    = d/dt grad h(p + t v)                      one product costs about two gradients
    (2)  Lanczos: Q orthonormal in span(v, H v, H^2 v, ...);  extreme eigenvalues of Q H Q' -> those of H
    (3)  |D3 h| = max over |v| = 1 of |D3 h[v, v, v]|       power iteration v <- D3 h[v, v]/|.|, several starts

(3) is the Lipschitz constant of the Hessian at p, since the largest value of a symmetric form is reached with
all arguments equal. Up to DENSE variables (2) is replaced by the dense matrix and is exact; beyond, it lies
within the spectrum and (3) may miss the largest of several maxima: both are estimates from below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions
from decibo.pytree import Tree, Vector

DENSE, KRYLOV, STARTS, SWEEPS = 64, 48, 4, 30
Scalar = Callable[[Vector], jax.Array]


def product(h: Scalar, p: Vector, v: Vector) -> Vector:
    """(1)."""
    return jax.jvp(jax.grad(h), (p,), (v,))[1]


def extremes(h: Scalar, p: Vector, key: jax.Array) -> jax.Array:
    """The smallest and the largest eigenvalue of the Hessian of h at p."""
    if p.size <= DENSE:
        eigenvalues = jnp.linalg.eigvalsh(jax.vmap(lambda v: product(h, p, v))(jnp.eye(p.size, dtype=p.dtype)))
    else:
        eigenvalues = jnp.linalg.eigvalsh(_krylov(lambda v: product(h, p, v), p, key))  # (2)
    return jnp.stack([eigenvalues[0], eigenvalues[-1]])


def _krylov(apply: Callable[[Vector], Vector], p: Vector, key: jax.Array) -> jax.Array:
    """Q H Q' after KRYLOV products, with Q made orthogonal twice over."""
    start = jax.random.normal(key, p.shape, p.dtype)

    def one(i: Any, carry: tuple[jax.Array, jax.Array, Vector]) -> tuple[jax.Array, jax.Array, Vector]:
        Q, HQ, v = carry
        for _ in range(2):
            v = v - Q.T @ (Q @ v)
        v = v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(p.dtype).tiny)
        Hv = apply(v)
        return Q.at[i].set(v), HQ.at[i].set(Hv), Hv

    empty = jnp.zeros((KRYLOV, p.size), p.dtype)
    Q, HQ, _ = lax.fori_loop(0, KRYLOV, one, (empty, empty, start))
    T = Q @ HQ.T
    return (T + T.T) / 2


def third(h: Scalar, p: Vector, key: jax.Array) -> jax.Array:
    """|D3 h| at p."""

    def form(v: Vector) -> Vector:
        return jax.jvp(lambda q: product(h, q, v), (p,), (v,))[1]

    def sweep(v: Vector, _: Any) -> tuple[Vector, jax.Array]:
        w = form(v)
        size = jnp.linalg.norm(w)
        return jnp.where(size > 0, w / jnp.where(size > 0, size, 1), v), jnp.abs(v @ w)

    starts = jax.random.normal(key, (STARTS, p.size), p.dtype)
    starts = starts / jnp.linalg.norm(starts, axis=1, keepdims=True)
    return jnp.max(jax.vmap(lambda v: jnp.max(lax.scan(sweep, v, None, length=SWEEPS)[1]))(starts))  # (3)


def joined(h: Callable[[Vector, Vector], jax.Array], n: int) -> Scalar:
    """A function of (x, y) as a function of one vector."""
    return lambda p: h(p[:n], p[n:])


def agents(functions: Functions, data: Tree, x: Vector, y: Vector, key: jax.Array) -> dict[str, jax.Array]:
    """Every agent's extreme eigenvalues of f, of g and of g in y at (x, y), and a product with each Hessian."""
    p = jnp.concatenate([x, y.astype(x.dtype)])
    probe = jax.random.normal(jax.random.key(0), p.shape, p.dtype)  # the same at every point

    def one(d: Tree) -> dict[str, jax.Array]:
        oracle = Oracle(functions, d)
        f, g = joined(oracle.outer_value, x.size), joined(oracle.inner_value, x.size)
        return {
            "f": extremes(f, p, key),
            "g": extremes(g, p, key),
            "g_yy": extremes(lambda u: oracle.inner_value(x, u), y, key),
            "probe": jnp.concatenate([product(f, p, probe), product(g, p, probe)]),
        }

    return jax.vmap(one)(data)


def thirds(functions: Functions, data: Tree, x: Vector, y: Vector, key: jax.Array) -> jax.Array:
    """Every agent's |D3 g| at (x, y)."""
    p = jnp.concatenate([x, y.astype(x.dtype)])
    return jax.vmap(lambda d: third(joined(Oracle(functions, d).inner_value, x.size), p, key))(data)
