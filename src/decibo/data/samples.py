"""Agents with different numbers of samples: padded to one size, with weights that are 0 where there
is no sample.

A data function returns `samples(features=..., labels=...)` with the rows that the agent has. Before
a run, `Problem` finds out the largest number over all agents of all processes and pads the others:
what the objectives see is a dictionary of arrays of one size with one entry more, "weights".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import jax
import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import InputError

WEIGHTS = "weights"


@jax.tree_util.register_pytree_with_keys_class
class Samples:
    """Arrays with one row for each sample of one agent; `samples` makes it."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = dict(arrays)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __repr__(self) -> str:
        return f"samples({self.shapes()})"

    def shapes(self) -> str:
        """The shapes without the number of samples."""
        return ", ".join(
            f"{name}: (samples, {str(array.shape[1:])[1:]}" for name, array in self.arrays.items()
        )

    def padded(self, size: int) -> dict[str, np.ndarray]:
        """The arrays with so many rows; those added repeat a sample of its own, and weigh 0."""
        rows = np.minimum(np.arange(size), len(self) - 1)
        arrays = {name: np.asarray(array)[rows] for name, array in self.arrays.items()}
        return arrays | {WEIGHTS: np.where(np.arange(size) < len(self), arrays[WEIGHTS], 0.0)}

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Hashable, object]], tuple[str, ...]]:
        """The arrays, for jax.tree."""
        return [(jax.tree_util.DictKey(name), array) for name, array in self.arrays.items()], tuple(
            self.arrays
        )

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], arrays: Iterable[np.ndarray]) -> Samples:
        """From what tree_flatten_with_keys has returned."""
        return cls(dict(zip(names, arrays, strict=True)))


def samples(**arrays: ArrayLike) -> Samples:
    """Arrays with one row for each sample of an agent, to be padded to the size of the largest
    agent.

    For a function `data` of `Problem`: return it, alone or inside a dictionary. The objectives see
    a dictionary of these arrays and "weights", 1 for samples and 0 for padding; weights of your own
    are kept.
    """
    tables = {name: np.asarray(array) for name, array in arrays.items()}
    lengths = {name: table.shape[0] if table.ndim else None for name, table in tables.items()}
    if not tables or None in lengths.values() or len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "nothing"
        raise InputError(
            "The arrays of samples must have one row for each sample, but their lengths are"
            f" {listed}."
        )
    size = next(iter(tables.values())).shape[0]
    if size == 0:
        raise InputError("Every agent needs at least one sample, but this one has none.")
    return Samples(tables if WEIGHTS in tables else tables | {WEIGHTS: np.ones(size)})
