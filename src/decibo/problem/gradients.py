r"""Whether the gradients of a problem are those of its objectives: for gradients that come from
elsewhere.

    (1)  error = |(h(p + e u) - h(p - e u))/(2 e) - grad h(p)' u| / (|grad h(p)' u| + |grad
         h(p)|/sqrt(size))

the largest over agents and random directions u of length 1 in (x, y), with h the outer or the inner
objective and p near (x0, y0). e is the cube root of the type's rounding error, where the difference
is about as accurate as it can be.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.problem.reference import check_problem
from decibo.pytree import Tree
from decibo.validate import integer
from decibo.validate import seed as check_seed


def check_gradients(problem: Problem, *, directions: int = 3, seed: int = 0) -> dict[str, float]:
    """The errors of both gradients against central differences of the objectives, {"outer": ...,
    "inner": ...}.

    Right gradients give 1e-6 or less in double precision, and about 1e-2 in single precision; wrong
    ones about 1. At points without a derivative (a kink) the comparison means nothing.

    directions   how many random directions to try
    """
    check_problem(problem)
    if problem.agents is None:
        raise InputError(
            "The problem does not say how many agents it has.", "Pass agents= to Problem."
        )
    data = problem.local(range(problem.agents))
    keys = jax.random.split(jax.random.key(check_seed(seed)), integer("directions", directions))
    start = problem.start_rows(1)
    errors = np.max(
        [_errors(problem.functions, data, start["x"][0], start["y"][0], key) for key in keys],
        axis=0,
    )
    return {"outer": float(errors[0]), "inner": float(errors[1])}


@partial(jax.jit, static_argnames="functions")
def _errors(
    functions: Functions, data: Tree, x: jax.Array, y: jax.Array, key: jax.Array
) -> tuple[jax.Array, ...]:
    """(1) of outer and of inner at a random point, along a random direction."""
    here, there = jax.random.split(key)
    normal = lambda key, like: jax.random.normal(
        jax.random.fold_in(key, like.size), like.shape, like.dtype
    )
    x, y = (
        part + 0.1 * (1 + jnp.linalg.norm(part)) * normal(here, part) / part.size**0.5
        for part in (x, y)
    )
    u, v = normal(there, x), normal(jax.random.fold_in(there, 1), y)
    length = jnp.sqrt(jnp.sum(u**2) + jnp.sum(v**2))
    u, v = u / length, v / length
    e = float(jnp.finfo(y.dtype).eps) ** (1 / 3) * (1 + jnp.sqrt(jnp.sum(x**2) + jnp.sum(y**2)))

    def of(value: str, gradient: str) -> jax.Array:
        def one(d: Tree) -> jax.Array:
            h = getattr(Oracle(functions, d), value)
            in_x, in_y = getattr(Oracle(functions, d), gradient)(x, y)
            slope = jnp.sum(in_x * u) + jnp.sum(in_y * v)
            size = jnp.sqrt((jnp.sum(in_x**2) + jnp.sum(in_y**2)) / (x.size + y.size))
            difference = (h(x + e * u, y + e * v) - h(x - e * u, y - e * v)) / (2 * e)
            # (1)
            return jnp.abs(difference - slope) / (jnp.abs(slope) + size + jnp.finfo(y.dtype).tiny)

        return jnp.max(jax.vmap(one)(data))

    return of("outer_value", "outer"), of("inner_value", "inner")
