"""The ends of the spectrum of W, which say how fast a network mixes: rho = max(high^2, low^2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from decibo.network.shifts import Shifts

# Up to here all eigenvalues are computed: about a second at the limit.
DENSE_LIMIT = 2000


class Ends(NamedTuple):
    """The smallest and largest eigenvalue of W, the eigenvalue 1 of the constant vector left out."""

    low: float
    high: float

    @property
    def rho(self) -> float:
        """||W - 11'/m||_2^2."""
        return max(self.low**2, self.high**2)


def ends(weights: Any, shifts: Shifts | None) -> Ends:
    """By Fourier transform, dense or by Lanczos, whichever is exact and affordable."""
    if weights.shape[0] == 1:
        return Ends(0.0, 0.0)
    if shifts is not None:
        return fourier_ends(shifts)
    return dense_ends(weights) if weights.shape[0] <= DENSE_LIMIT else lanczos_ends(weights)


def fourier_ends(shifts: Shifts) -> Ends:
    """Exact for any size, if W is made of shifts."""
    values = np.real(shifts.eigenvalues())
    return Ends(float(values.min()), float(values.max()))


def dense_ends(weights: Any) -> Ends:
    """All eigenvalues; the largest is the 1 of the constant vector."""
    values = np.linalg.eigvalsh(weights.toarray())
    return Ends(float(values[0]), float(values[-2]))


def lanczos_ends(weights: Any) -> Ends:
    """Both ends by Lanczos on the sparse matrix."""
    from scipy.sparse.linalg import LinearOperator

    def deflated(vector: np.ndarray) -> np.ndarray:
        return weights @ vector - 2 * vector.mean()  # the constant vector gets -1 and leaves the upper end

    upper = LinearOperator(weights.shape, matvec=deflated, dtype=np.float64)  # type: ignore[call-arg]
    high = _extreme(upper, "LA", tolerance=1e-8)
    if high is None:
        high = _close_to_one(weights)
    low = _extreme(weights, "SA", tolerance=1e-8)
    if low is None:  # crowded, as the upper end then is too: that one is near 1 and decides rho
        low = _extreme(weights, "SA", tolerance=1e-3)
    if low is None:
        low = 2 * float(weights.diagonal().min()) - 1  # Gershgorin's bound
    return Ends(low, high)


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


def _close_to_one(weights: Any) -> float:
    """The second largest eigenvalue where Lanczos is slow: large grids and paths, whose factors are small."""
    from scipy.sparse.linalg import eigsh

    start = np.random.default_rng(0).standard_normal(weights.shape[0])
    values = eigsh(weights.tocsc(), k=2, sigma=1 + 1e-9, which="LM", v0=start, return_eigenvectors=False)
    return float(min(values))
