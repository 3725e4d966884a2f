"""How samples are divided among agents: lists of index arrays, the same for the same seed.

No sample goes to two agents. `shards` then stacks the parts, padding short ones with samples of
weight 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import InputError, short_repr
from decibo.validate import integer, positive

Parts = list[np.ndarray]


def iid(labels: np.ndarray, agents: int, *, seed: int = 0) -> Parts:
    """All samples, shuffled and dealt evenly: sizes differ by one at most."""
    return np.array_split(_random(labels, agents, seed).permutation(len(labels)), agents)


def by_label(
    labels: np.ndarray, agents: int, ratios: ArrayLike, *, size: int | None = None, seed: int = 0
) -> Parts:
    """Agents of equal size, the largest that fits; agent i has the share ratios[i] of positives."""
    rng = _random(labels, agents, seed)
    try:
        shares = np.asarray(ratios, dtype=float)
    except (TypeError, ValueError):
        shares = np.array(np.nan)
    if shares.shape != (agents,) or not ((shares >= 0) & (shares <= 1)).all():
        raise InputError(
            f"ratios must hold one share of positives in [0, 1] for each of the {agents} agents,"
            f" but it is {short_repr(ratios)}.",
            f"For example numpy.linspace(0.1, 0.9, {agents}).",
        )
    positives = rng.permutation(np.flatnonzero(labels > 0))
    negatives = rng.permutation(np.flatnonzero(labels <= 0))
    wanted = lambda size: np.round(shares * size).astype(int)  # positives of each agent

    def fits(size: int) -> bool:
        takes = wanted(size)
        return takes.sum() <= len(positives) and (size - takes).sum() <= len(negatives)

    if size is None:
        size = next((s for s in range(len(labels) // agents, 0, -1) if fits(s)), 1)
    size = integer("size", size)
    takes = wanted(size)
    if not fits(size):
        raise InputError(
            f"{agents} agents of {size} samples with these ratios need {takes.sum()} positive and"
            f" {agents * size - takes.sum()} negative samples, but there are {len(positives)}"
            f" positive and {len(negatives)} negative ones.",
            "Lower size, or choose ratios nearer to the share of positives in the data.",
        )
    # The samples that are left over follow the last agent's.
    pieces = lambda samples, sizes: np.split(samples, np.cumsum(sizes))[:agents]
    parts = zip(pieces(positives, takes), pieces(negatives, size - takes), strict=True)
    return [rng.permutation(np.concatenate(pair)) for pair in parts]


def dirichlet(
    labels: np.ndarray, agents: int, concentration: float = 0.5, *, seed: int = 0
) -> Parts:
    """All samples, each class divided by a Dirichlet draw; small concentrations: unequal agents."""
    rng = _random(labels, agents, seed)
    concentration = positive("concentration", concentration)
    pieces = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = np.cumsum(rng.dirichlet(np.full(agents, concentration)))[:-1]
        pieces.append(np.split(members, (shares * len(members)).astype(int)))
    found = [rng.permutation(np.concatenate(part)) for part in zip(*pieces, strict=True)]
    # An agent that came out empty gets one sample of the largest part.
    for agent in range(agents):
        if len(found[agent]) == 0:
            largest = max(range(agents), key=lambda other: len(found[other]))
            found[agent] = found[largest][-1:]
            found[largest] = found[largest][:-1]
    return found


def by_group(groups: np.ndarray) -> Parts:
    """One agent for each distinct value: hospitals, writers, districts."""
    names, number = np.unique(groups, return_inverse=True)
    return [np.flatnonzero(number == i) for i in range(len(names))]


def shards(features: np.ndarray, labels: np.ndarray, parts: Parts) -> dict[str, np.ndarray]:
    """The parts stacked: features (agents, size, ...), labels and weights (agents, size); padded
    samples weigh 0."""
    sizes = [len(part) for part in parts]
    if not parts or min(sizes) == 0:
        raise InputError(
            f"Every agent needs at least one sample, but the parts have {sizes} samples.",
            "Use fewer agents.",
        )
    index = np.zeros((len(parts), max(sizes)), dtype=int)
    weights = np.zeros(index.shape)
    for row, part in enumerate(parts):
        index[row, : len(part)] = part
        index[row, len(part) :] = part[0]  # any sample of its own will do: it weighs nothing
        weights[row, : len(part)] = 1.0
    return {"features": features[index], "labels": labels[index], "weights": weights}


def _random(labels: np.ndarray, agents: int, seed: int) -> np.random.Generator:
    """What deals these samples, if there is one for each agent."""
    if np.ndim(labels) != 1:
        raise InputError(
            "labels must be an array with one label for each sample, but it is"
            f" {short_repr(labels)}."
        )
    samples = len(labels)
    if integer("agents", agents) > samples:
        raise InputError(
            f"Every agent needs at least one sample, but there are {samples} samples for {agents}"
            " agents.",
            "Use fewer agents.",
        )
    return np.random.default_rng(integer("seed", seed, least=0))
