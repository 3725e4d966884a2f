"""How fast a network mixes: the extreme eigenvalues of W, and the structure that gives them exactly.

    rho = ||W - 11'/m||_2^2 = max(low^2, high^2)

low and high are the smallest and the largest eigenvalue, the 1 of the constant vector left out. Networks on which every
agent sees the same (ring, torus, hypercube, ...) are made of shifts, and a Fourier transform gives their eigenvalues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Up to here all eigenvalues are computed: about a second at the limit.
DENSE_LIMIT = 2000


@dataclass(frozen=True)
class Shifts:
    """Agent a receives from agent a + offset with that weight; on a torus both are points of `shape`."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]  # as numbers of agents: a point (r, c) of shape (R, C) is agent r C + c
    weights: tuple[float, ...]

    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues of W but the one that belongs to the constant vector: a Fourier transform."""
        row = np.zeros(math.prod(self.shape))
        row[list(self.offsets)] = self.weights
        return np.fft.fftn(row.reshape(self.shape)).ravel()[1:]


def find_shifts(weights: csr_array, shape: tuple[int, ...]) -> Shifts | None:
    """The shifts that W is made of, or None if W is not invariant under the shifts of `shape`."""
    agents = weights.shape[0]
    degree = weights.indptr[1]
    if (np.diff(weights.indptr) != degree).any():
        return None
    offsets = _offsets(weights.indices.reshape(agents, degree).astype(np.int64), shape)
    order = np.argsort(offsets, axis=1)
    offsets = np.take_along_axis(offsets, order, axis=1)
    values = np.take_along_axis(weights.data.reshape(agents, degree), order, axis=1)
    if (offsets != offsets[0]).any() or np.abs(values - values[0]).max() > 1e-14:
        return None
    return Shifts(shape, tuple(offsets[0].tolist()), tuple(values[0].tolist()))


def _offsets(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Where each neighbour is relative to the agent of the row, one dimension of the shape at a time."""
    rows = np.arange(len(columns))[:, None]
    offsets = np.zeros_like(columns)
    stride = 1
    for size in reversed(shape):
        offsets += (columns // stride - rows // stride) % size * stride
        stride *= size
    return offsets


class Spectrum(NamedTuple):
    """The smallest and largest eigenvalue of W, the eigenvalue 1 of the constant vector left out."""

    low: float
    high: float


def spectrum_of(weights: csr_array, shifts: Shifts | None) -> Spectrum:
    """By Fourier transform, dense or by Lanczos, whichever is exact and affordable."""
    if weights.shape[0] == 1:
        return Spectrum(0.0, 0.0)
    if shifts is not None:
        return fourier_spectrum(shifts)
    return dense_spectrum(weights) if weights.shape[0] <= DENSE_LIMIT else lanczos_spectrum(weights)


def fourier_spectrum(shifts: Shifts) -> Spectrum:
    """Exact for any size, if W is made of shifts."""
    values = np.real(shifts.eigenvalues())
    return Spectrum(float(values.min()), float(values.max()))


def dense_spectrum(weights: csr_array) -> Spectrum:
    """All eigenvalues; the largest is the 1 of the constant vector."""
    values = np.linalg.eigvalsh(weights.toarray())
    return Spectrum(float(values[0]), float(values[-2]))


def lanczos_spectrum(weights: csr_array) -> Spectrum:
    """Both by Lanczos on the sparse matrix."""
    from scipy.sparse.linalg import LinearOperator

    def deflated(vector: np.ndarray) -> np.ndarray:
        return weights @ vector - 2 * vector.mean()  # the constant vector becomes -1 and leaves the upper end

    upper = LinearOperator(weights.shape, matvec=deflated, dtype=np.float64)  # type: ignore[call-arg]
    high = _extreme(upper, "LA", tolerance=1e-8)
    if high is None:
        high = _close_to_one(weights)
    low = _extreme(weights, "SA", tolerance=1e-8)
    if low is None:  # crowded, as the upper end then is too: that one is near 1 and decides rho
        low = _extreme(weights, "SA", tolerance=1e-3)
    if low is None:
        low = 2 * float(weights.diagonal().min()) - 1  # Gershgorin's bound
    return Spectrum(low, high)


def _extreme(operator: Any, which: str, tolerance: float) -> float | None:
    """One end of the spectrum, or None if that takes too long; its error is about the tolerance squared."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    try:
        values = eigsh(
            operator,
            k=1,
            which=which,
            tol=tolerance,  # pyright: ignore[reportArgumentType]
            maxiter=40,
            ncv=min(40, len(start)),
            v0=start,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return None
    return float(values[0])


def _close_to_one(weights: csr_array) -> float:
    """The second largest eigenvalue where Lanczos is slow: large grids and paths, whose factors are small."""
    from scipy.sparse.linalg import eigsh

    start = np.random.default_rng(0).standard_normal(weights.shape[0])
    values = eigsh(weights.tocsc(), k=2, sigma=1 + 1e-9, which="LM", v0=start, return_eigenvectors=False)
    return float(min(values))
