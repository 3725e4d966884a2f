r"""One gradient after another: less memory for more time.

On one device all agents compute at once, and the compiler may compute what is independent, such as the gradients of g
at y and at z, at once as well. What a gradient keeps on the way (the activations of a network) is then in memory for
all of them together. Here every gradient, value and product is a loop over the agents of the device,

    for each agent in turn:   (g_x, g_y) = inner(x, y, d)

and two such loops follow each other, so that memory holds what ONE gradient of ONE agent keeps. The numbers are the
same up to rounding. It pays where activations fill the memory; small models are slower by as much as the device gains
from computing agents together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
from jax.custom_batching import sequential_vmap

from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector

T = TypeVar("T")


@dataclass(frozen=True)
class InTurn(Oracle):
    """An oracle that the agents of a device ask in turn."""

    asked: Oracle

    @classmethod
    def of(cls, oracle: Oracle) -> InTurn:
        """The same agent, in turn with the others."""
        return cls(oracle.functions, oracle.data, oracle)

    def _in_turn(self, ask: Callable[[Oracle], Callable[..., T]]) -> Callable[..., T]:
        one = sequential_vmap(lambda data, *args: ask(replace(self.asked, data=data))(*args))
        return lambda *args: one(self.data, *args)

    def outer_value(self, x: Vector, y: Vector) -> jax.Array:
        return self._in_turn(lambda oracle: oracle.outer_value)(x, y)

    def inner_value(self, x: Vector, y: Vector) -> jax.Array:
        return self._in_turn(lambda oracle: oracle.inner_value)(x, y)

    def outer(self, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        return self._in_turn(lambda oracle: oracle.outer)(x, y)

    def inner(self, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        return self._in_turn(lambda oracle: oracle.inner)(x, y)

    def products(self, x: Vector, y: Vector, v: Vector) -> tuple[Vector, Vector]:
        return self._in_turn(lambda oracle: oracle.products)(x, y, v)

    def hessian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        return self._in_turn(lambda oracle: oracle.hessian)(x, y, v)

    def jacobian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        return self._in_turn(lambda oracle: oracle.jacobian)(x, y, v)

    def on(self, data: Tree) -> Oracle:
        return InTurn.of(self.asked.on(data))
