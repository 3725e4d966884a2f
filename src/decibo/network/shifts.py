"""Networks on which every agent sees the same: row a of W is the first row shifted by a."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shifts:
    """Agent a hears agent a + offset with that weight; on a torus both are points of `shape`."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]  # as numbers of agents: a point (r, c) of shape (R, C) is agent r C + c
    weights: tuple[float, ...]

    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues of W but the one that belongs to the constant vector: a Fourier transform."""
        row = np.zeros(math.prod(self.shape))
        row[list(self.offsets)] = self.weights
        return np.fft.fftn(row.reshape(self.shape)).ravel()[1:]


def find_shifts(weights: Any, shape: tuple[int, ...]) -> Shifts | None:
    """The shifts that W is made of, or None if W is not invariant under the shifts of `shape`."""
    m = weights.shape[0]
    degree = weights.indptr[1]
    if (np.diff(weights.indptr) != degree).any():
        return None
    offsets = _offsets(weights.indices.reshape(m, degree).astype(np.int64), shape)
    order = np.argsort(offsets, axis=1)
    offsets = np.take_along_axis(offsets, order, axis=1)
    values = np.take_along_axis(weights.data.reshape(m, degree), order, axis=1)
    if (offsets != offsets[0]).any() or np.abs(values - values[0]).max() > 1e-14:
        return None
    return Shifts(shape, tuple(offsets[0].tolist()), tuple(values[0].tolist()))


def _offsets(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Where each neighbour stands relative to the agent of the row, one dimension of the shape at a time."""
    rows = np.arange(len(columns))[:, None]
    offsets, stride = np.zeros_like(columns), 1
    for size in reversed(shape):
        offsets += (columns // stride - rows // stride) % size * stride
        stride *= size
    return offsets
