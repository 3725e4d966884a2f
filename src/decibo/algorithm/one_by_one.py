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
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.compose import check_wrappable, wrapped
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector

T = TypeVar("T")


def one_by_one(method: Algorithm) -> Algorithm:
    """The method with one gradient of one agent at a time on each device: less memory, more time, the same numbers.

    Wrap it around anything else: `one_by_one(minibatch(ahead_exact(alpha=0.1, gamma=0.1)))`.
    """
    check_wrappable(method)
    init = Partial(_init, method.core.init)
    step = Partial(_step, method.core.step)
    inside = wrapped(method, "one by one", one_by_one, init, step, method.view)
    return replace(inside, theorem=method.theorem)


def _init(init: Partial, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> Tree:
    return init(InTurn.of(oracle), mix, start)


def _step(step: Partial, oracle: Oracle, mix: Mix, state: Tree, k: jax.Array, key: jax.Array) -> Tree:
    return step(InTurn.of(oracle), mix, state, k, key)


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
