"""IDX files in general: their types, their names, and what is wrong with a file that is none."""

import gzip
import struct

import numpy as np
import pytest

from decibo.data import idx, mnist
from decibo.data.loaders import TYPES, parse_idx
from decibo.errors import CorruptedFileError, InputError

MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def content(array, code=0x08):
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(TYPES[code]).tobytes()


def written(folder, names=MNIST, packed=False, seed=0):
    random = np.random.default_rng(seed)
    for name, size in zip(names, (12, 12, 6, 6), strict=True):
        array = random.integers(256, size=(size, 2, 3)) if "images" in name else np.arange(size) % 3
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content(array)) if packed else content(array))
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_data_set_under_the_names_of_mnist(tmp_path, packed):
    data = idx(written(tmp_path, packed=packed))
    assert data.features.shape == (12, 6)
    assert data.test_features.shape == (6, 6)
    assert 0 <= data.features.min() <= data.features.max() <= 1
    assert set(data.labels) == {0, 1, 2}
    two = idx(tmp_path, 2, 0)
    assert set(two.labels) == {-1.0, 1.0}
    assert "2 against 0" in repr(two)


def test_one_of_several_sets(tmp_path):
    for part in ("letters", "digits"):
        names = [f"emnist-{part}-{kind}" for kind in MNIST]
        written(tmp_path, [name.replace("t10k", "test") for name in names], seed=len(part))
    assert idx(tmp_path, part="letters").name == "letters"
    with pytest.raises(InputError, match=r"emnist-digits-train.*emnist-letters-train.*Pass part="):
        idx(tmp_path)


@pytest.mark.parametrize("code", TYPES)
def test_every_type(code):
    array = np.arange(6).reshape(2, 3)
    found = parse_idx(content(array, code), "file")
    assert (found == array).all()
    assert found.dtype.isnative


def test_mnist_sends_other_sets_to_idx(tmp_path):
    with pytest.raises(
        CorruptedFileError, match=r"not the train-images.* of MNIST.*decibo\.data\.idx\("
    ):
        mnist(folder=written(tmp_path))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda content: b"PNG", InputError, "not in the IDX format: it begins with 50 4e 47"),
        (lambda content: b"", InputError, "begins with nothing"),
        (lambda content: content[:6], CorruptedFileError, "within its header"),
        (
            lambda content: content[:-1],
            CorruptedFileError,
            r"uint8 of shape \(12,\), 12 bytes, but 11 follow",
        ),
        (lambda _: content(np.zeros((12, 2))), InputError, "one integer for each of the 12 images"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, change, error, words):
    path = written(tmp_path) / MNIST[1]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(error, match=words) as raised:
        idx(tmp_path)
    assert str(path) in str(raised.value)


def test_a_folder_without_them(tmp_path):
    with pytest.raises(InputError, match=r"one IDX file of images.*train, but it has none"):
        idx(tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        idx(tmp_path / "absent")
