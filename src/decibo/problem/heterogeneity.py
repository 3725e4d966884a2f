r"""How unequal agents are: the heterogeneity of their gradients. [paper, Assumption 4]

(1)  part(h, u) = (1/m) sum_i |grad_u h_i - grad_u h|^2           h = f or g, u = x or y
(2)  b_f2 = max of part(f, x) and part(f, y),   b_g2 likewise, at (x, y*(x))
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from decibo.problem.problem import Functions, Oracle, Problem, check_is_problem
from decibo.problem.reference import reference
from decibo.programs import jitted
from decibo.pytree import Tree, Vector


@dataclass(frozen=True)
class Heterogeneity:
    """The four parts (1) at one point; b_f2 and b_g2 are the paper's b_f^2 and b_g^2 there."""

    outer_x: float
    outer_y: float
    inner_x: float
    inner_y: float

    @property
    def b_f2(self) -> float:
        """Of the outer level."""
        return max(self.outer_x, self.outer_y)  # (2)

    @property
    def b_g2(self) -> float:
        """Of the inner level."""
        return max(self.inner_x, self.inner_y)  # (2)

    def __str__(self) -> str:
        return (
            f"b_f^2 = {self.b_f2:.4g} (x: {self.outer_x:.4g}, y: {self.outer_y:.4g}), "
            f"b_g^2 = {self.b_g2:.4g} (x: {self.inner_x:.4g}, y: {self.inner_y:.4g})"
        )


def heterogeneity(problem: Problem, x: Tree = None, y: Tree = None) -> Heterogeneity:
    """How much the agents' gradients differ at a point, by default x0 and y*(x0).

    The paper's constants are the largest values over the x that a run visits.
    """
    check_is_problem(problem)
    exact = reference(problem)
    x = problem.x0 if x is None else x
    y = exact.y(x) if y is None else jax.tree.map(jnp.asarray, y)
    parts = _parts(problem.functions, exact.data, exact.flat(x), problem.y_layout.ravel(y))
    return Heterogeneity(*(float(part) for part in parts))


def _spread(gradients: jax.Array) -> jax.Array:
    deviations = gradients - jnp.mean(gradients, axis=0)
    return jnp.mean(jnp.sum(deviations**2, axis=1))  # (1)


def gradient_spreads(
    functions: Functions, data: Tree, x: Vector, y: Vector
) -> tuple[jax.Array, ...]:
    """(1) of (f, x), (f, y), (g, x), (g, y), in flat vectors."""

    def one(d: Tree) -> tuple[Vector, Vector, Vector, Vector]:
        oracle = Oracle(functions, d)
        f, g = oracle.outer(x, y), oracle.inner(x, y)
        return f.x, f.y, g.x, g.y

    return tuple(_spread(part) for part in jax.vmap(one)(data))


_parts = jitted()(gradient_spreads)
