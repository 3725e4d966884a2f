"""Small data sets that scikit-learn carries: nothing to download."""

from __future__ import annotations

from typing import Any

import numpy as np

from decibo.data.dataset import Dataset, hold_out, select
from decibo.errors import InputError


def digits(positive: int | None = 1, negative: int | None = 3) -> Dataset:
    """Handwritten digits of 8 x 8 pixels in [0, 1]; two of them as +1 and -1, or all ten (None, None)."""
    raw = _sklearn("digits").load_digits()
    features, labels = select(np.asarray(raw.data) / 16.0, np.asarray(raw.target), positive, negative)
    name = "digits" if positive is None else f"digits {positive} against {negative}"
    return Dataset(*hold_out(features, labels), name=name, source="bundled with scikit-learn (UCI, CC BY 4.0)")


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer: 30 features, standardised; malignant is +1, benign -1."""
    raw = _sklearn("breast_cancer").load_breast_cancer()
    labels = np.where(np.asarray(raw.target) == 0, 1.0, -1.0)
    train, signs, test, test_signs = hold_out(np.asarray(raw.data), labels)
    centre, width = train.mean(axis=0), train.std(axis=0)  # of the training part: tests stay unseen
    source = "bundled with scikit-learn (UCI, CC BY 4.0)"
    return Dataset((train - centre) / width, signs, (test - centre) / width, test_signs, "breast cancer", source)


def _sklearn(name: str) -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InputError(
            f"the data set {name!r} comes with scikit-learn, which is not installed",
            "bundled data needs scikit-learn",
            "pip install 'decibo[data]'",
        ) from error
    return datasets
