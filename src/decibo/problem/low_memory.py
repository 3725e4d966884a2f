r"""One gradient after another: less memory for more time.

On one device all agents compute at once, and the compiler may compute what is independent, such as
the gradients of g at y and at z, at once as well. What a gradient keeps on the way (the activations
of a network) is then in memory for all of them together. Here every gradient, value and product is
a block of the program, and two blocks never overlap:

    less   a block is one gradient of all agents of the device; memory holds what ONE gradient of
           ALL agents keeps
    low    a block is a loop over these agents; memory holds what ONE gradient of ONE agent keeps

The numbers are the same up to rounding. It pays where activations fill the memory. A block of all
agents is a branch that is always taken, of which the compiler is not told: it costs what looking at
the condition costs. Small models are slower with `low` by as much as the device gains from
computing agents together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector

T = TypeVar("T")


@dataclass(frozen=True)
class LowMemoryOracle(Oracle):
    """An oracle that answers one question after another; with `one_agent_at_a_time` also one agent
    of a device after the other."""

    one_agent_at_a_time: bool

    def ask(self, question: str, *at: Vector) -> Any:
        """The answer, computed in a block of its own."""
        answer = lambda data, *at: Oracle(self.functions, data).ask(question, *at)
        if self.one_agent_at_a_time:
            return sequential_vmap(answer)(self.data, *at)
        return _block(jax.jit(answer), self.data, *at)


def _block(function: Callable[..., T], *args: Tree) -> T:
    """What the function returns, computed in a block of its own: nothing outside of it is computed
    meanwhile."""
    like = jax.eval_shape(function, *args)
    nothing = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    # not known to the compiler, which would remove the branch
    always = lax.optimization_barrier(jnp.array(True))
    return lax.cond(always, function, nothing, *args)
