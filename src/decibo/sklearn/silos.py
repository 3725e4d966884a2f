"""From a table and its silos to what the agents hold: parts, common scales, stacked arrays.

What silos tell each other here: how many samples they have, the sums of their features (and targets), and the sums
of squares about the common mean. They are averaged along the links of the network; no sample is sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import decibo
from decibo.errors import InputError
from decibo.network.network import Network

NAMES = ("ring", "path", "star", "complete", "exponential")
AGREED = 1e-26  # of the squared disagreement may be left
FEATURES, SAMPLES = 8, 256  # tables are padded to multiples of 8 features and powers of 2 samples, at least 256 in all:
# so that one compiled program serves many shapes, since compiling takes longer than most fits


class Scale(NamedTuple):
    """Means and deviations of columns over all silos."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return (table - self.mean) / self.deviation


def members(groups: Any, samples: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The names of the silos, and the rows of each; all rows are one silo if nothing is said."""
    if groups is None:
        return np.zeros(1, dtype=int), [np.arange(samples)]
    groups = np.asarray(groups)
    if groups.shape != (samples,):
        raise InputError(
            f"groups of shape {groups.shape} for {samples} samples",
            "there must be one silo for each sample",
            "Give an array with the name of its silo for every row of X.",
        )
    names, number = np.unique(groups, return_inverse=True)
    return names, [np.flatnonzero(number == i) for i in range(len(names))]


def network_of(network: Any, m: int) -> Network:
    """The network between m silos: from a name, a function of m, or as it is."""
    if isinstance(network, str):
        if network not in NAMES:
            raise InputError(f"network = {network!r}", f"known names are {', '.join(NAMES)}", "Use one of them.")
        return getattr(decibo.networks, network)(m)
    made = network if isinstance(network, Network) or not callable(network) else network(m)
    if not isinstance(made, Network):
        raise InputError(
            f"network = {network!r}",
            "it must be a name, a decibo.Network, or a function from the number of silos to one",
            "Give 'ring', for example.",
        )
    if made.agents != m:
        raise InputError(
            f"network of {made.agents} agents for {m} silos",
            "every silo is one agent",
            f"Make a network of {m} agents.",
        )
    return made


def agreed_mean(network: Network, rows: np.ndarray) -> np.ndarray:
    """The mean of the silos' rows as every silo knows it after mixing with its neighbours often enough."""
    if network.agents == 1:
        return rows[0]
    mixes = int(np.ceil(np.log(AGREED) / np.log(max(network.rho, AGREED))))
    return (np.linalg.matrix_power(network.W, mixes) @ rows)[0]


def agreed_scale(network: Network, parts: list[np.ndarray], table: np.ndarray) -> Scale:
    """Means and deviations of the columns of all silos, from sums of each; a constant column keeps deviation 1."""
    sums = np.stack([np.append(table[part].sum(axis=0), len(part)) for part in parts])
    total = agreed_mean(network, sums)
    mean = total[:-1] / total[-1]
    squares = np.stack([((table[part] - mean) ** 2).sum(axis=0) for part in parts])
    deviation = np.sqrt(agreed_mean(network, squares) / total[-1])
    flat = deviation <= 1e-10 * (1 + np.abs(mean))  # what rounding leaves of a constant
    return Scale(mean, np.where(flat, 1.0, deviation))


def dealt(parts: list[np.ndarray], labels: np.ndarray | None, k: int, random: np.random.RandomState) -> np.ndarray:
    """Which of k parts every sample validates: each silo deals its own samples, class by class, after shuffling.

    Every silo begins with a part of its own, so that silos of a sample or two validate as well.
    """
    fold = np.zeros(sum(map(len, parts)), dtype=int)
    for part in parts:
        order = random.permutation(part)
        if labels is not None:
            order = order[np.argsort(labels[order], kind="stable")]
        fold[order] = (np.arange(len(order)) + random.randint(k)) % k
    return fold


def stacked(
    features: np.ndarray, targets: np.ndarray, parts: list[np.ndarray], fold: np.ndarray, k: int
) -> dict[str, np.ndarray]:
    """The silos' data with a leading axis of silos; padding is zero and weighs nothing."""
    m, samples, p = len(parts), len(fold), features.shape[1]
    size = 1 << (max(SAMPLES // m, *map(len, parts)) - 1).bit_length()
    index, real = np.zeros((m, size), dtype=int), np.zeros((m, size), dtype=bool)
    for row, part in enumerate(parts):
        index[row, : len(part)], real[row, : len(part)] = part, True
    held = (fold[index][:, None] == np.arange(k + 1)[:, None]) & real[:, None]  # (m, k + 1, size): the last holds none
    trained = real[:, None] & ~held
    counts = np.maximum(trained.sum(axis=(0, 2)), 1)
    wide = np.pad(features, ((0, 0), (0, -p % FEATURES)))
    return {
        "features": wide[index] * real[..., None],
        "targets": targets[index] * real[..., None],
        "training": trained * (m / counts)[:, None],
        "validation": held * (m / samples),
        "prior": np.full(m, 0.5 / samples),
    }
