"""MNIST from mnist.npz, from the raw IDX files, or downloaded; every byte is checked.

An IDX file is a header, the magic number 0x0000080k for k axes and the k lengths as big-endian 32-bit
numbers, then the bytes themselves. Arrays from mnist.npz are checked by the sum of the IDX file they make.
"""

from __future__ import annotations

import gzip
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from decibo.data.dataset import Dataset, select
from decibo.data.files import check, fetch, folders
from decibo.errors import InputError

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
SUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
ARRAYS = dict(zip(SUMS, ("x_train", "y_train", "x_test", "y_test"), strict=True))


def mnist(positive: int | None = 1, negative: int | None = 3, folder: str | Path | None = None) -> Dataset:
    """Digits of 28 x 28 pixels in [0, 1]; two of them as +1 and -1, or all ten (None, None).

    Looks in `folder`, or else in $DECIBO_DATA and the cache, and downloads only if it is in none of them.
    """
    arrays, source = load(None if folder is None else Path(folder))
    train, test = (
        select(arrays[f"x_{part}"].reshape(len(arrays[f"y_{part}"]), -1), arrays[f"y_{part}"], positive, negative)
        for part in ("train", "test")
    )
    name = "mnist" if positive is None else f"mnist {positive} against {negative}"
    return Dataset(train[0] / 255.0, train[1], test[0] / 255.0, test[1], name, source)


def load(
    folder: Path | None = None, sums: Mapping[str, str] = SUMS, mirrors: Sequence[str] = MIRRORS
) -> tuple[dict[str, np.ndarray], str]:
    """The four arrays and where they came from."""
    for place in folders() if folder is None else [folder]:
        if (place / "mnist.npz").is_file():
            return _from_npz(place / "mnist.npz", sums), str(place / "mnist.npz")
        if all(_raw(place, name) for name in sums):
            return _from_idx({name: _raw(place, name) for name in sums}, sums), str(place)
    if folder is not None:
        raise InputError(
            f"{folder} holds neither mnist.npz nor the four IDX files",
            f"the files are {', '.join(sums)}, plain or .gz",
            "Leave folder out to look in $DECIBO_DATA, then the cache, then to download.",
        )
    return _from_idx({name: fetch(name, sums[name], mirrors) for name in sums}, sums), "downloaded"


def _raw(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _from_npz(path: Path, sums: Mapping[str, str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS.values()}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is damaged: {error}",
            f"it must hold the arrays {', '.join(ARRAYS.values())}",
            "Fetch it again.",
        ) from error
    for name, key in ARRAYS.items():
        check(_header(arrays[key]) + arrays[key].tobytes(), sums[name], f"{path} ({key})")
    return arrays


def _from_idx(paths: Mapping[str, Path | None], sums: Mapping[str, str]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, path in paths.items():
        assert path is not None
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = _unzip(content, path)
        check(content, sums[name], str(path))
        arrays[ARRAYS[name]] = _decode(content)
    return arrays


def _unzip(content: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(content)
    except Exception as error:
        raise InputError(f"{path} is damaged: {error}", "it must be a gzip file", "Fetch it again.") from error


def _header(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}i", 0x800 + array.ndim, *array.shape)


def _decode(content: bytes) -> np.ndarray:
    axes = content[3]
    shape = struct.unpack(f">{axes}i", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
