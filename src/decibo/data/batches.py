"""A fixed list of batches: minibatches that can be told apart, as estimators with a table of
gradients need them.

    problem = decibo.Problem(outer, inner, data, x0, y0, sample=decibo.data.Batches(20))

cuts the samples of every agent into 20 batches of equal size. Drawing one is then drawing a number
j from 0 to 19, so that a method can remember what it found on batch j. The objectives must be means
over samples: the mean of an objective over the batches must be the objective itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.errors import InputError
from decibo.pytree import Tree
from decibo.validate import integer


@dataclass(frozen=True)
class Batches:
    """A sampler that draws one of `count` batches, the same ones during the whole run.

    take   (data of one agent, j) -> batch j, which looks like the data; by default, every leaf has
           samples along its first axis and is cut into `count` equal pieces
    """

    count: int
    take: Callable[[Tree, jax.Array], Tree] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", integer("count", self.count))
        if not (self.take is None or callable(self.take)):
            raise InputError(f"take must be a function (d, j) or None, but it is {self.take!r}.")

    def draw(self, key: jax.Array) -> jax.Array:
        """The number of a batch, all equally likely (up to count/2^32): `randint` takes three times
        as long."""
        return (jax.random.bits(key, (), jnp.uint32) % jnp.uint32(self.count)).astype(jnp.int32)

    def batch(self, d: Tree, j: jax.Array) -> Tree:
        """Batch j of one agent's data."""
        return (self.take or self._piece)(d, j)

    def __call__(self, d: Tree, key: jax.Array) -> Tree:
        """One of the batches."""
        return self.batch(d, self.draw(key))

    def _piece(self, d: Tree, j: jax.Array) -> Tree:
        size = lambda leaf: leaf.shape[0] // self.count
        return jax.tree.map(
            lambda leaf: lax.dynamic_slice_in_dim(leaf, j * size(leaf), size(leaf)), d
        )

    def check(self, data: Tree) -> None:
        """Reject data of all agents whose samples cannot be cut into `count` equal pieces."""
        if self.take is not None:
            return
        for path, leaf in jax.tree_util.tree_leaves_with_path(data):
            name = "data" + jax.tree_util.keystr(path)
            shape = np.shape(leaf)[1:]
            if not shape or shape[0] % self.count:
                found = (
                    f"{shape[0]} samples for each agent" if shape else "one number for each agent"
                )
                raise InputError(
                    f"Batches({self.count}) cuts every leaf of the data into {self.count} equal"
                    f" pieces, but {name} has {found}.",
                    (
                        f"Use a count that divides {shape[0]}, or Batches(count, take=lambda d, j:"
                        " ...)."
                        if shape
                        else (
                            "Pass Batches(count, take=lambda d, j: ...), or close over what is no"
                            " sample."
                        )
                    ),
                )
