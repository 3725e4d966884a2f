"""The one way agents learn of each other: mixing, for all agents at once and as one agent sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.errors import InputError
from decibo.pytree import Tree

# The name of the axis of agents. Thanks to it `mix` cannot take another axis for the agents, such as a sweep
# of step sizes around the step or a vmap inside it.
AGENTS = "agents"


class Mixing:
    """One exchange between all agents. `k` is the step and `key` a random key that all agents share."""

    @property
    def whole(self) -> bool:
        """Whether all that an agent says at once should travel as one vector: a message costs, not its parts."""
        return False

    def stacked(self, S: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """Row i of the result is sum_j w_ij S_j; S has shape (m, ...) and keeps its type."""
        return self.heard(S, S, k, key)

    def heard(self, S: jax.Array, pool: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """The same for the agents with rows S, who hear those with rows `pool`, themselves first."""
        raise NotImplementedError

    def pushed(self, S: jax.Array, k: Any = None, key: Any = None) -> jax.Array:
        """The same with the weights that senders choose; they differ on directed networks only."""
        return self.stacked(S, k, key)


@dataclass(frozen=True, eq=False)
class Mix:
    """mix(tree) is sum_j w_ij tree_j, leaf by leaf; mix.push(tree) the same with the weights of senders.

    `bits` says what a message really carries if less than its numbers; only the count of costs reads it.
    """

    mixing: Mixing
    k: Any
    key: Any

    def __call__(self, tree: Tree, bits: int | None = None) -> Tree:
        """What agent i hears if every agent says `tree`."""
        return self._exchange(self.mixing.stacked, tree)

    def push(self, tree: Tree, bits: int | None = None) -> Tree:
        """The same with column-stochastic weights, which keep the sum over agents; the same if undirected."""
        return self._exchange(self.mixing.pushed, tree)

    def _exchange(self, together: Callable[..., jax.Array], tree: Tree) -> Tree:
        agent = _agent()
        # Under vmap all_gather is the stacked array itself, at no cost, so all agents are mixed at once.
        one = lambda leaf: _own(agent, together(lax.all_gather(leaf, AGENTS), self.k, self.key))
        return _as_one(one, tree) if self.mixing.whole else jax.tree.map(one, tree)


def mixer(mixing: Mixing, k: Any, key: Any) -> Mix:
    """The `mix` of step k, for use under jax.vmap(..., axis_name=AGENTS); all agents share `key`."""
    return Mix(mixing, k, key)


def _as_one(exchange: Callable[[jax.Array], jax.Array], tree: Tree) -> Tree:
    """Exchange all leaves of one type as one vector."""
    leaves, treedef = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    for dtype in {leaf.dtype: None for leaf in leaves}:
        chosen = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        mixed = exchange(jnp.concatenate([leaves[i].ravel() for i in chosen]))
        ends = np.cumsum([leaves[i].size for i in chosen])
        for i, part in zip(chosen, jnp.split(mixed, ends[:-1]), strict=True):
            leaves[i] = part.reshape(leaves[i].shape)
    return jax.tree.unflatten(treedef, leaves)


def _agent() -> jax.Array:
    try:
        return lax.axis_index(AGENTS)
    except NameError:
        raise InputError(
            "mix was called for no agent in particular",
            "mix works inside jax.vmap(function, axis_name=decibo.network.AGENTS)",
            "Run the step with decibo.solve, or use network.mixing().stacked(S) for all agents at once.",
        ) from None


@jax.custom_jvp
def _own(agent: jax.Array, rows: jax.Array) -> jax.Array:
    """The agent's row."""
    return _take(agent, rows)


@_own.defjvp
def _own_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    agent, rows = primals
    return _own(agent, rows), _own(agent, tangents[1])


@jax.custom_batching.custom_vmap
def _take(agent: jax.Array, rows: jax.Array) -> jax.Array:
    return rows[agent]


@_take.def_vmap
def _take_all(size: int, batched: list[bool], agent: jax.Array, rows: jax.Array) -> tuple[jax.Array, bool]:
    """All agents taking one row each is all rows: the rule only spares a copy and never changes a value."""
    by_agent, by_rows = batched
    if not by_rows:
        return rows, True
    if not by_agent:  # some other axis than the agents'
        return _take(agent, jnp.moveaxis(rows, 0, 1)), True
    return jax.vmap(lambda i, r: r[i])(agent, rows), True
