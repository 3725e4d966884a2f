"""The data of the experiments (MNIST and a9a, or bundled sets instead) and how a classifier of
digits is judged."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

import decibo
from decibo.data.loaders import MNIST_SUMS, folders
from decibo.errors import InputError

AGENTS = 10
# figures 2 to 4 divide pixels by this, so that AHEAD's printed steps are below 1/L and curves are
# smooth
SCALE = 28.0
SAMPLES = 2000  # to train on, and as many to validate on: 4,000 in all, as in the paper
Folder = str | Path | None


def pair_of_digits(folder: Folder = None) -> decibo.data.Dataset:
    """The digits 1 and 3: MNIST from `folder`, $DECIBO_DATA or the cache, or else 8 x 8 digits;
    never downloaded."""
    if folder is not None:
        return decibo.data.mnist(folder=_existing(folder))
    source = next((source for source in folders() if _has_mnist(source)), None)
    return decibo.data.digits() if source is None else decibo.data.mnist(folder=source)


def adults(folder: Folder = None) -> decibo.data.Dataset:
    """a9a from `folder`, $DECIBO_DATA or the cache, or else the breast cancer data; never
    downloaded."""
    sources = folders() if folder is None else [_existing(folder)]
    source = next((source for source in sources if (source / "a9a").is_file()), None)
    if source is None and folder is not None:
        raise InputError(
            f"minimax runs on a9a, but there is no file a9a in {folder}.",
            "Omit --data to run on bundled data.",
        )
    if source is None:
        return decibo.data.breast_cancer()
    test = source / "a9a.t"
    return decibo.data.libsvm(source / "a9a", test if test.is_file() else None, features=123)


def describe(data: decibo.data.Dataset) -> str:
    """Name, size and origin in words that are the same on every machine."""
    origin = data.source if "/" not in data.source else Path(data.source).name
    size = (
        f"{len(data.labels)} + {len(data.test_labels)} test samples, {data.features.shape[1]}"
        " features"
    )
    return f"{data.name} ({size}, {origin})"


def is_mnist(data: decibo.data.Dataset) -> bool:
    """Whether it is the data set that the paper uses."""
    return data.name.startswith("mnist")


def subsample(data: decibo.data.Dataset, samples: int) -> decibo.data.Dataset:
    """At most this many training samples, always the same ones."""
    if len(data.labels) <= samples:
        return data
    keep = np.sort(np.random.default_rng(0).permutation(len(data.labels))[:samples])
    return decibo.data.Dataset(
        data.features[keep],
        data.labels[keep],
        data.test_features,
        data.test_labels,
        data.name,
        data.source,
    )


def regression(
    data: decibo.data.Dataset,
    seed: int,
    samples: int = SAMPLES,
    *,
    smooth: bool = True,
    split: str = "iid",
    ratios: np.ndarray | None = None,
) -> decibo.Problem:
    """The problem of figures 2 to 4 and, unless smooth, of Table I.

    It has `samples` training and as many validation samples, or fewer if there are not so many.
    """
    each = min(samples, len(data.labels) // 2)
    scale = _smooth_scale(data) if smooth else 1.0
    return decibo.problems.logistic_hyperparameters(
        data,
        AGENTS,
        training=each,
        validation=each,
        seed=seed,
        scale=scale,
        split=split,
        ratios=ratios,
    )


def pixels(data: decibo.data.Dataset) -> str:
    """The features of figures 2 to 4 in words."""
    return f"pixels between 0 and 1, divided by {_smooth_scale(data):g}"


def _smooth_scale(data: decibo.data.Dataset) -> float:
    """SCALE, reduced in proportion if a row has fewer pixels than MNIST's 28."""
    return SCALE * data.features.shape[1] ** 0.5 / 28.0


def mean_y(s: decibo.Snapshot) -> jax.Array:
    """ybar, from which accuracy and losses are computed afterwards."""
    return s.mean("y")


def accuracy(data: decibo.data.Dataset, Y: np.ndarray) -> np.ndarray:
    """The share of test samples that each row of Y (..., features) classifies correctly; NaN where
    Y is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # a run that is about to diverge
        scores = np.nan_to_num(Y) @ data.test_features.T.astype(Y.dtype)
    correct = np.mean((scores > 0) == (data.test_labels > 0), axis=-1)
    return np.where(np.isfinite(Y).all(axis=-1), correct, np.nan)


def loss(problem: decibo.Problem, kind: str, Y: np.ndarray) -> np.ndarray:
    """Mean logistic loss of each row of Y on all agents' samples of a kind, "training" or
    "validation"."""
    samples = problem.data[kind]
    features, labels, weights = (
        np.asarray(samples[name]) for name in ("features", "labels", "weights")
    )
    flat = features.reshape(-1, features.shape[-1])
    weights = weights.ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        margins = (Y @ flat.T) * labels.ravel()
        return np.logaddexp(0.0, -margins) @ weights / weights.sum()


def first_step(steps: np.ndarray, values: np.ndarray, level: float) -> float:
    """The first recorded step from which values stay at or above the level; infinite if there is
    none."""
    below = np.flatnonzero(~(values >= level))
    after = 0 if below.size == 0 else below[-1] + 1
    return float(steps[after]) if after < len(steps) else float("inf")


def _existing(folder: str | Path) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"--data must be an existing folder, but there is no folder {folder}.")
    return path


def _has_mnist(folder: Path) -> bool:
    raw = lambda name: (folder / name).is_file() or (folder / f"{name}.gz").is_file()
    return (folder / "mnist.npz").is_file() or all(raw(name) for name in MNIST_SUMS)
