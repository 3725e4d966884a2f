"""The four hospitals are in the package, with FLamby's split, and need nothing but numpy."""

import sys
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split

from decibo.data import Dataset, by_group, heart_disease
from decibo.data.heart_disease import TRAINED, stratified
from decibo.errors import InputError


def test_flambys_split_and_features(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)  # none of it is needed
    data = heart_disease()
    sizes = {str(name): int((data.groups == name).sum()) for name in np.unique(data.groups)}
    # as FLamby states
    assert sizes == {"Cleveland": 199, "Budapest": 172, "Switzerland": 30, "Long Beach": 85}
    assert [int((data.test_groups == name).sum()) for name in sizes] == [89, 104, 45, 16]
    assert data.features.shape == (486, 13)
    assert len(data.columns) == 13
    np.testing.assert_allclose(data.features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.features.std(axis=0), 1, atol=1e-12)
    assert [len(part) for part in by_group(data.groups)] == [sizes[name] for name in sorted(sizes)]
    assert "254 test samples of 4 silos" in repr(data)


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 1), min_size=8, max_size=60))
def test_the_split_is_scikit_learns(seed, labels):
    labels = np.array(labels)
    least = np.bincount(labels, minlength=2).min()
    train, test = train_test_split(
        np.arange(len(labels)),
        train_size=TRAINED,
        test_size=1 - TRAINED,
        random_state=seed,
        stratify=labels if least > 2 else None,
    )
    found = stratified(labels, TRAINED, seed)
    assert found[0].tolist() == sorted(train)
    assert found[1].tolist() == sorted(test)


def test_the_attribution_is_beside_the_data():
    text = (files("decibo.data") / "heart" / "LICENSE").read_text()
    assert all(
        word in text
        for word in ("Janosi", "Steinbrunn", "Pfisterer", "Detrano", "CC BY 4.0", "Changes")
    )


def test_groups_belong_to_samples():
    table, labels = np.ones((2, 1)), np.ones(2)
    with pytest.raises(InputError, match="a silo for each of the 2 samples"):
        Dataset(table, labels, table, labels, "", "", groups=np.ones(3))
