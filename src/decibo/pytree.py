"""Between the user's pytrees and the flat vectors that algorithms are written in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any  # any pytree of arrays: JAX has no type for them
Vector = jax.Array  # a flat vector: x, y or z of one agent


def one_of(tree: Tree) -> Tree:
    """The shapes of one agent's part of a tree with a leading axis of agents."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)


@dataclass(frozen=True)
class Layout:
    """How a pytree is laid out in one flat vector: hashable, so that equal layouts share compiled
    programs."""

    treedef: Any  # of JAX, which has no type for it
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @classmethod
    def of(cls, tree: Tree) -> Layout:
        """The layout of a pytree of arrays."""
        leaves, treedef = jax.tree.flatten(tree)
        return cls(
            treedef, tuple(leaf.shape for leaf in leaves), tuple(leaf.dtype for leaf in leaves)
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers in each leaf."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Numbers in the whole tree."""
        return sum(self.sizes)

    @cached_property
    def dtype(self) -> np.dtype:
        """The type of the flat vector: the widest among the leaves."""
        return jnp.result_type(*self.dtypes)

    @cached_property
    def struct(self) -> jax.ShapeDtypeStruct:
        """The shape and the type of the flat vector."""
        return jax.ShapeDtypeStruct((self.size,), self.dtype)

    def ravel(self, tree: Tree) -> Vector:
        """One flat vector from a pytree."""
        parts = [jnp.ravel(leaf).astype(self.dtype) for leaf in jax.tree.leaves(tree)]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def unravel(self, vector: Vector) -> Tree:
        """The pytree of a flat vector."""
        leaves = []
        start = 0
        for shape, dtype, size in zip(self.shapes, self.dtypes, self.sizes, strict=True):
            part = vector if size == self.size else vector[start : start + size]
            leaves.append(part.reshape(shape).astype(dtype))
            start += size
        return jax.tree.unflatten(self.treedef, leaves)

    def ravel_agents(self, tree: Tree) -> jax.Array:
        """Rows of flat vectors from a pytree whose leaves have a leading axis of agents."""
        return jax.vmap(self.ravel)(tree)

    def unravel_agents(self, rows: jax.Array) -> Tree:
        """The pytree with a leading axis of agents of these rows."""
        return jax.vmap(self.unravel)(rows)
