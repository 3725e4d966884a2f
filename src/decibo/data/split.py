"""How samples are shared out over agents: lists of index arrays, the same for the same seed.

No sample goes to two agents. `shards` then stacks the parts, padding short ones with samples of weight 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import InputError

Parts = list[np.ndarray]


def iid(labels: np.ndarray, m: int, *, seed: int = 0) -> Parts:
    """All samples, shuffled and dealt evenly: sizes differ by one at most."""
    _enough(len(labels), m)
    return np.array_split(np.random.default_rng(seed).permutation(len(labels)), m)


def by_label(labels: np.ndarray, m: int, ratios: ArrayLike, *, size: int | None = None, seed: int = 0) -> Parts:
    """Agents of equal size, agent i with the share ratios[i] of positives; the largest size that fits."""
    _enough(len(labels), m)
    shares = _ratios(ratios, m)
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.flatnonzero(labels > 0))
    negative = rng.permutation(np.flatnonzero(labels <= 0))
    if size is None:
        size = next((s for s in range(len(labels) // m, 0, -1) if _fits(shares, s, positive, negative)), 1)
    takes = np.round(shares * size).astype(int)
    if not _fits(shares, size, positive, negative):
        raise InputError(
            f"{m} agents of {size} samples with these ratios take {takes.sum()} positive and "
            f"{m * size - takes.sum()} negative samples",
            f"there are {len(positive)} positive and {len(negative)} negative ones",
            "Lower size, or choose ratios nearer to the share of positives in the data.",
        )
    ends_p, ends_n = np.cumsum(takes), np.cumsum(size - takes)
    parts = zip(
        np.split(positive[: ends_p[-1]], ends_p[:-1]),
        np.split(negative[: ends_n[-1]], ends_n[:-1]),
        strict=True,
    )
    return [rng.permutation(np.concatenate(pair)) for pair in parts]


def dirichlet(labels: np.ndarray, m: int, concentration: float = 0.5, *, seed: int = 0) -> Parts:
    """All samples: every class shared out by a Dirichlet draw; a small concentration means unequal agents."""
    _enough(len(labels), m)
    if not concentration > 0 or not np.isfinite(concentration):
        raise InputError(f"concentration = {concentration!r}", "it must be positive and finite", "Try 0.1 to 10.")
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(m)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(rng.dirichlet(np.full(m, concentration)))[:-1]
        for part, chunk in zip(parts, np.split(members, (ends * len(members)).astype(int)), strict=True):
            part.append(chunk)
    return _fill([rng.permutation(np.concatenate(part)) for part in parts])


def by_group(groups: np.ndarray) -> Parts:
    """One agent for each distinct value: hospitals, writers, districts."""
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]


def shards(features: np.ndarray, labels: np.ndarray, parts: Parts) -> dict[str, np.ndarray]:
    """The parts stacked: features (m, size, ...), labels and weights (m, size); padded samples weigh 0."""
    sizes = [len(part) for part in parts]
    if not parts or min(sizes) == 0:
        raise InputError(f"parts of sizes {sizes}", "every agent needs at least one sample", "Use fewer agents.")
    index = np.zeros((len(parts), max(sizes)), dtype=int)
    weights = np.zeros(index.shape)
    for row, part in enumerate(parts):
        index[row, : len(part)] = part
        index[row, len(part) :] = part[0]  # any sample of its own will do: it weighs nothing
        weights[row, : len(part)] = 1.0
    return {"features": features[index], "labels": labels[index], "weights": weights}


def _enough(samples: int, m: int) -> None:
    if not isinstance(m, int | np.integer) or not 1 <= m <= samples:
        raise InputError(
            f"m = {m!r} agents and {samples} samples",
            "every agent needs at least one sample",
            "Use fewer agents.",
        )


def _ratios(ratios: ArrayLike, m: int) -> np.ndarray:
    shares = np.asarray(ratios, dtype=float)
    if shares.shape != (m,) or not ((shares >= 0) & (shares <= 1)).all():
        raise InputError(
            f"ratios = {list(np.ravel(shares))}",
            f"there must be one share of positives in [0, 1] for each of the {m} agents",
            "For instance numpy.linspace(0.1, 0.9, m).",
        )
    return shares


def _fits(shares: np.ndarray, size: int, positive: np.ndarray, negative: np.ndarray) -> bool:
    takes = np.round(shares * size).astype(int)
    return size >= 1 and takes.sum() <= len(positive) and (size - takes).sum() <= len(negative)


def _fill(parts: Parts) -> Parts:
    """Give agents that came out empty one sample of the largest part."""
    for row in range(len(parts)):
        if len(parts[row]) == 0:
            largest = max(range(len(parts)), key=lambda other: len(parts[other]))
            parts[row], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts
