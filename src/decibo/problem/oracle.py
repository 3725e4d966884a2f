r"""What one agent can compute alone: first gradients, and products with second derivatives.

    (1)  outer(x, y)        = (f_x, f_y)
    (2)  inner(x, y)        = (g_x, g_y)
    (3)  products(x, y, v)  = (J v, H v),   J = d2 g / dx dy,   H = d2 g / dy dy

x, y and v are flat vectors; f and g are this agent's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from decibo.problem.problem import Functions
from decibo.pytree import Tree, Vector


@dataclass(frozen=True)
class Oracle:
    """One agent's objectives and derivatives, in flat vectors. Nothing here knows of other agents."""

    functions: Functions
    data: Tree

    def outer_value(self, x: Vector, y: Vector) -> jax.Array:
        """f(x, y)."""
        return self.functions.outer(self.functions.x.unravel(x), self.functions.y.unravel(y), self.data)

    def inner_value(self, x: Vector, y: Vector) -> jax.Array:
        """g(x, y)."""
        return self.functions.inner(self.functions.x.unravel(x), self.functions.y.unravel(y), self.data)

    def outer(self, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        """The gradient of f: (f_x, f_y)."""
        return jax.grad(self.outer_value, argnums=(0, 1))(x, y)  # (1)

    def inner(self, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        """The gradient of g: (g_x, g_y)."""
        return jax.grad(self.inner_value, argnums=(0, 1))(x, y)  # (2)

    def products(self, x: Vector, y: Vector, v: Vector) -> tuple[Vector, Vector]:
        """Second derivatives of g times v, without forming them: (J v, H v)."""
        return jax.jvp(self.inner, (x, y), (jnp.zeros_like(x), v))[1]  # (3)

    def hessian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        """H v alone."""
        return jax.jvp(lambda y: jax.grad(self.inner_value, argnums=1)(x, y), (y,), (v,))[1]

    def jacobian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        """J v alone."""
        return jax.jvp(lambda y: jax.grad(self.inner_value, argnums=0)(x, y), (y,), (v,))[1]

    def sampled(self, key: jax.Array) -> Oracle:
        """The same agent on a minibatch, if the problem says how to draw one."""
        if self.functions.sample is None:
            return self
        return Oracle(self.functions, self.functions.sample(self.data, key))
