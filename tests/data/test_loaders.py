import os
import sys

import numpy as np
import pytest

from decibo.data import Dataset, breast_cancer, digits, find, libsvm, mnist
from decibo.errors import InputError

pytestmark = pytest.mark.quick

real_data = pytest.mark.skipif(
    "DECIBO_DATA" not in os.environ, reason="DECIBO_DATA names no folder of data"
)


def test_digits():
    data = digits()
    assert (data.features.shape, data.test_features.shape) == ((292, 64), (73, 64))
    assert set(data.labels) == {-1.0, 1.0}
    assert 0 <= data.features.min() <= data.features.max() <= 1
    assert "1 against 3" in repr(data)
    assert set(digits(None, None).labels) == set(range(10))


def test_breast_cancer_is_standardised_by_its_training_part():
    data = breast_cancer()
    np.testing.assert_allclose(data.features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.features.std(axis=0), 1, atol=1e-12)
    assert len(data.labels) + len(data.test_labels) == 569


def test_labels_may_be_words():
    table = np.ones((3, 1))
    two = Dataset(table, np.array(["no", "yes", "no"]), table[:1], np.array(["yes"]), "votes", "")
    assert two.labels.tolist() == [-1, 1, -1]
    assert two.test_labels.tolist() == [1]
    three = Dataset(
        table, np.array(["b", "a", "c"], dtype=object), table[:1], np.array(["c"]), "votes", ""
    )
    assert three.labels.tolist() == [1, 0, 2]
    with pytest.raises(InputError, match=r"[Tt]est labels of votes.*'d' is not"):
        Dataset(table, np.array(["b", "a", "c"]), table[:1], np.array(["d"]), "votes", "")


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for load in (digits, breast_cancer, lambda: libsvm("a9a")):
        with pytest.raises(ImportError, match=r"needs scikit-learn.*pip install 'decibo\[data\]'"):
            load()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: digits(1, 1), "two different classes"),
        (lambda: digits(1, 12), "out of"),
        (lambda: digits(1, None), "two different classes out of .* or both None"),
        (
            lambda: Dataset(np.ones((2, 2)), np.ones(3), np.ones((1, 2)), np.ones(1), "", ""),
            "features must be",
        ),
        (
            lambda: Dataset(np.ones((2, 2)), np.ones(2), np.ones((1, 3)), np.ones(1), "", ""),
            "same features",
        ),
    ],
)
def test_invalid_arguments_are_rejected(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_libsvm(tmp_path):
    path = tmp_path / "small"
    path.write_text("+1 1:0.5 3:2\n\n-1 2:1e-1 # a comment\n+1\n")
    data = libsvm(path, test=path)
    assert data.features.tolist() == [[0.5, 0, 2], [0, 0.1, 0], [0, 0, 0]]
    assert data.labels.tolist() == [1, -1, 1]
    assert libsvm(path, test=path, features=5).features.shape == (3, 5)
    path.write_text("3 1:1\n1 1:2\n2 1:3\n" * 5)
    data = libsvm(path)
    assert (len(data.labels), len(data.test_labels)) == (12, 3)
    assert set(data.labels) == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 1:1\n1 2;3\n", "cannot be read as a LIBSVM file"),
        ("1 1:1\n\n1 0:3\n", "Invalid index 0"),
        ("1 1:1 2:x\n", "'x'"),
        ("1 1:2:3 4\n", "'2:3'"),
        ("1 1.5:2\n", r"'1\.5'"),
        ("1 2:1 1:1\n", "increasing indices"),
        ("1 1:nan\n", "finite numbers only"),
        ("nan 1:1\n", "finite numbers only"),
        ("one 1:1\n", "'one'"),
        ("", "no samples"),
        ("1 7:1\n", "7 features"),
    ],
)
def test_invalid_libsvm_files_are_rejected(tmp_path, text, words):
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"{path}.*{words}"):
        libsvm(path, test=path, features=3)


def test_the_wider_of_two_libsvm_files_counts(tmp_path):
    (tmp_path / "train").write_text("+1 1:1\n-1 2:1\n")
    (tmp_path / "test").write_text("+1 4:1\n-1 1:1\n")
    data = libsvm(tmp_path / "train", tmp_path / "test")
    assert data.features.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert data.test_features.tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]


def test_libsvm_needs_a_text_file(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        libsvm(tmp_path / "absent")
    (tmp_path / "packed").write_bytes(b"\xff\x00")
    with pytest.raises(InputError, match="cannot be read as a LIBSVM file"):
        libsvm(tmp_path / "packed")


@real_data
def test_real_mnist():
    if find("mnist.npz") is None:
        pytest.skip("no mnist.npz in DECIBO_DATA")
    data = mnist()
    assert ((data.labels > 0).sum(), (data.labels < 0).sum()) == (6742, 6131)
    assert ((data.test_labels > 0).sum(), (data.test_labels < 0).sum()) == (1135, 1010)
    assert data.features.max() == 1


@real_data
def test_real_a9a():
    path, test = find("a9a"), find("a9a.t")
    if path is None or test is None:
        pytest.skip("no a9a in DECIBO_DATA")
    data = libsvm(path, test)
    assert data.features.shape == (32561, 123)
    assert ((data.labels > 0).sum(), (data.test_labels > 0).sum()) == (7841, 3846)
