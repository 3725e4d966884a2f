"""Which data an experiment runs on: MNIST and a9a where they can be found, small bundled sets otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from decibo.data import breast_cancer, digits, libsvm, mnist
from decibo.data.dataset import Dataset
from decibo.data.files import folders
from decibo.data.mnist import SUMS
from decibo.errors import InputError

Folder = str | Path | None


def pair_of_digits(folder: Folder = None) -> Dataset:
    """The digits 1 and 3: MNIST from `folder`, $DECIBO_DATA or the cache, or else 8 x 8 digits; never downloaded."""
    if folder is not None:
        return mnist(folder=_folder(folder))
    place = next((place for place in folders() if _has_mnist(place)), None)
    return digits() if place is None else mnist(folder=place)


def adults(folder: Folder = None) -> Dataset:
    """a9a, likewise, or else the breast cancer data."""
    places = folders() if folder is None else [_folder(folder)]
    place = next((place for place in places if (place / "a9a").is_file()), None)
    if place is None and folder is not None:
        raise InputError(f"{folder} holds no a9a", "minimax runs on a9a", "Leave --data out for bundled data.")
    if place is None:
        return breast_cancer()
    test = place / "a9a.t"
    return libsvm(place / "a9a", test if test.is_file() else None, features=123)


def described(data: Dataset) -> str:
    """Name, size and origin in words that are the same on every machine."""
    origin = data.source if "/" not in data.source else Path(data.source).name
    size = f"{len(data.labels)} + {len(data.test_labels)} test samples, {data.features.shape[1]} features"
    return f"{data.name} ({size}, {origin})"


def is_mnist(data: Dataset) -> bool:
    """Whether it is the data set the paper uses."""
    return data.name.startswith("mnist")


def smaller(data: Dataset, samples: int) -> Dataset:
    """At most this many samples to learn from, drawn once and for all."""
    if len(data.labels) <= samples:
        return data
    keep = np.sort(np.random.default_rng(0).permutation(len(data.labels))[:samples])
    return Dataset(data.features[keep], data.labels[keep], data.test_features, data.test_labels, data.name, data.source)


def _folder(folder: str | Path) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"--data {folder}", "it must be a folder that exists", "Check the path.")
    return path


def _has_mnist(place: Path) -> bool:
    raw = lambda name: (place / name).is_file() or (place / f"{name}.gz").is_file()
    return (place / "mnist.npz").is_file() or all(raw(name) for name in SUMS)
