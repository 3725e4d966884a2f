"""A data set: what agents may learn from, what they are judged on, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from decibo.errors import InputError, short_repr

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Split = tuple[np.ndarray, np.ndarray]  # features and labels


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features (samples, features) and labels: +1 and -1 for two classes, integers from 0 for more.

    Labels may also be words: they become such numbers in the order of the alphabet, the last of two
    being +1. Where samples have a silo, `groups` and `test_groups` name it (`by_group` makes each
    silo an agent); `columns` are the names of the features.
    """

    features: Float[np.ndarray, "samples features"]
    labels: Shaped[np.ndarray, " samples"]
    test_features: Float[np.ndarray, "tests features"]
    test_labels: Shaped[np.ndarray, " tests"]
    name: str
    source: str
    groups: Shaped[np.ndarray, " samples"] | None = None
    test_groups: Shaped[np.ndarray, " tests"] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if np.asarray(self.labels).dtype.kind in "OSU":
            classes = np.unique(self.labels)
            object.__setattr__(self, "labels", numbered(self.labels, classes, self.name))
            object.__setattr__(self, "test_labels", numbered(self.test_labels, classes, self.name))
        for part, features, labels, groups in (
            ("", self.features, self.labels, self.groups),
            ("test_", self.test_features, self.test_labels, self.test_groups),
        ):
            if features.ndim != 2 or labels.shape != features.shape[:1]:
                raise InputError(
                    f"{part}features must be (samples, features) and {part}labels (samples,), but"
                    f" their shapes are {features.shape} and {labels.shape}.",
                    "Flatten images to one row for each sample.",
                )
            if groups is not None and groups.shape != labels.shape:
                raise InputError(
                    f"{part}groups must name a silo for each of the {len(labels)} samples, but its"
                    f" shape is {groups.shape}."
                )
        if self.features.shape[1] != self.test_features.shape[1]:
            raise InputError(
                f"Both parts must have the same features, but there are {self.features.shape[1]}"
                f" for training and {self.test_features.shape[1]} for testing.",
                "Pass the number of features when reading sparse files.",
            )

    def __repr__(self) -> str:
        samples = f"{len(self.labels)} + {len(self.test_labels)} test samples"
        silos = "" if self.groups is None else f" of {len(np.unique(self.groups))} silos"
        size = f"{samples}{silos}, {self.features.shape[1]} features"
        return f"Dataset({self.name}: {size}, {self.source})"

    def silos(self, test: bool = False) -> np.ndarray:
        """The silo of each training sample, or of each test sample."""
        groups = self.test_groups if test else self.groups
        if groups is None:
            raise InputError(
                f"The samples of {self.name} have no silos.", "Pass groups, one for each sample."
            )
        return groups


def numbered(labels: np.ndarray, classes: np.ndarray, name: str = "the dataset") -> np.ndarray:
    """Labels as +1 and -1 for two classes (the last is +1), as integers from 0 for more."""
    unknown = sorted(set(np.unique(labels).tolist()) - set(classes.tolist()))
    if unknown:
        raise InputError(
            f"The test labels of {name} must be classes of its training labels, but {unknown[0]!r}"
            " is not."
        )
    number = np.searchsorted(classes, labels)
    if len(classes) > 2:
        return number.astype(np.int32)
    return np.where(number == len(classes) - 1, 1.0, -1.0)


def select(
    features: np.ndarray, labels: np.ndarray, positive: int | None, negative: int | None
) -> Split:
    """The samples of two classes with labels +1 and -1, or all with the labels that they have."""
    if positive is None and negative is None:
        return features, labels.astype(np.int32)
    present = sorted(int(label) for label in np.unique(labels))
    if positive == negative or not {positive, negative} <= set(present):
        raise InputError(
            f"positive and negative must be two different classes out of {present}, or both None,"
            f" but they are {positive!r} and {negative!r}.",
            "Pass None for both to keep all classes.",
        )
    keep = np.flatnonzero((labels == positive) | (labels == negative))
    return features[keep], np.where(labels[keep] == positive, 1.0, -1.0)


def check_dataset(dataset: object) -> Dataset:
    """Reject what is not a dataset."""
    if not isinstance(dataset, Dataset):
        raise InputError(
            "dataset must be a decibo dataset such as decibo.data.digits(), but it is"
            f" {short_repr(dataset)}.",
            "For a table of your own: decibo.data.read_table(file, label).dataset().",
        )
    return dataset


def hold_out(
    features: np.ndarray, labels: np.ndarray, share: float = 0.2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(features, labels, test features, test labels), the last two a fixed share of every class."""
    rng = np.random.default_rng(seed)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        test[members[: round(share * len(members))]] = True
    return features[~test], labels[~test], features[test], labels[test]
