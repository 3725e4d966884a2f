"""Data sets by name and from files: what scikit-learn bundles, MNIST, and LIBSVM's text format.

Files are looked for in $DECIBO_DATA first, then in the cache, $XDG_CACHE_HOME/decibo or
~/.cache/decibo, where downloads go. Every byte of MNIST is checked, wherever it comes from. Its
files are in the IDX format (idx.py); arrays from mnist.npz are checked by the sum of the IDX file
they make.
"""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from decibo.data.dataset import Dataset, Split, hold_out, select
from decibo.data.idx import parse_idx, unpacked
from decibo.errors import CorruptedFileError, InputError, UnreachableError, missing
from decibo.files import sha256
from decibo.validate import a_path

BUNDLED = "bundled with scikit-learn (UCI, CC BY 4.0)"
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_SUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MNIST_ARRAYS = dict(zip(MNIST_SUMS, ("x_train", "y_train", "x_test", "y_test"), strict=True))


def digits(positive: int | None = 1, negative: int | None = 3) -> Dataset:
    """Handwritten digits of 8 x 8 pixels in [0, 1]; two of them as +1 and -1, or all ten (None,
    None)."""
    raw = _sklearn("decibo.data.digits").load_digits()
    features, labels = select(
        np.asarray(raw.data) / 16.0, np.asarray(raw.target), positive, negative
    )
    name = "digits" if positive is None else f"digits {positive} against {negative}"
    return Dataset(*hold_out(features, labels), name=name, source=BUNDLED)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer: 30 features, standardised; malignant is +1, benign -1."""
    raw = _sklearn("decibo.data.breast_cancer").load_breast_cancer()
    labels = np.where(np.asarray(raw.target) == 0, 1.0, -1.0)
    train, signs, test, test_signs = hold_out(np.asarray(raw.data), labels)
    centre = train.mean(axis=0)  # of the training part: the test part stays unseen
    width = train.std(axis=0)
    return Dataset(
        (train - centre) / width,
        signs,
        (test - centre) / width,
        test_signs,
        "breast cancer",
        BUNDLED,
    )


def mnist(
    positive: int | None = 1, negative: int | None = 3, folder: str | Path | None = None
) -> Dataset:
    """Digits of 28 x 28 pixels in [0, 1]; two of them as +1 and -1, or all ten (None, None).

    Looks in `folder`, or else in $DECIBO_DATA and the cache, and downloads only if it is in none of
    them.
    """
    arrays, source = load_mnist(None if folder is None else Path(folder))
    rows = lambda images: images.reshape(len(images), -1)
    train, labels = select(rows(arrays["x_train"]), arrays["y_train"], positive, negative)
    test, test_labels = select(rows(arrays["x_test"]), arrays["y_test"], positive, negative)
    name = "mnist" if positive is None else f"mnist {positive} against {negative}"
    return Dataset(train / 255.0, labels, test / 255.0, test_labels, name, source)


def libsvm(
    path: str | Path, test: str | Path | None = None, features: int | None = None
) -> Dataset:
    """A file in LIBSVM's text format, and a second one for testing; without it a fifth of the first
    is held out.

    One sample a line, `label index:value index:value ...`, with increasing indices from 1.
    """
    train, labels = _read_libsvm(a_path("path", path), features)
    if test is None:
        parts = hold_out(train, _classes(labels))
    else:
        other, other_labels = _read_libsvm(a_path("test", test), features)
        width = max(train.shape[1], other.shape[1])
        parts = (
            _widened(train, width),
            _classes(labels),
            _widened(other, width),
            _classes(other_labels),
        )
    return Dataset(*parts, name=Path(path).name, source=str(path))


def cache_folder() -> Path:
    """Where downloads are kept."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "decibo"


def folders() -> list[Path]:
    """Where data is looked for, in order."""
    own = os.environ.get("DECIBO_DATA")
    return ([Path(own)] if own else []) + [cache_folder()]


def find(name: str) -> Path | None:
    """The path of a data file such as "mnist.npz" or "a9a", or None."""
    return next((folder / name for folder in folders() if (folder / name).is_file()), None)


def load_mnist(
    folder: Path | None = None,
    sums: Mapping[str, str] = MNIST_SUMS,
    mirrors: Sequence[str] = MIRRORS,
) -> tuple[dict[str, np.ndarray], str]:
    """The four arrays and where they came from."""
    for place in folders() if folder is None else [folder]:
        if (place / "mnist.npz").is_file():
            return _from_npz(place / "mnist.npz", sums), str(place / "mnist.npz")
        paths = {name: path for name in sums if (path := _raw(place, name))}
        if len(paths) == len(sums):
            return _from_idx(paths, sums), str(place)
    if folder is not None:
        raise InputError(
            f"{folder} has neither mnist.npz nor the four IDX files {', '.join(sums)}, plain or"
            " .gz.",
            "Leave folder out to look in $DECIBO_DATA, then in the cache, and then to download.",
        )
    return _from_idx({name: fetch(name, sums[name], mirrors) for name in sums}, sums), "downloaded"


def fetch(name: str, checksum: str, mirrors: Sequence[str]) -> Path:
    """Download NAME.gz from the first mirror that answers; what it unpacks to is checked and kept
    in the cache."""
    try:
        import pooch
    except ImportError as error:
        raise missing("pooch", "Downloading data", "data") from error

    def download_unpacked(url: str, target: str, registry: Any, **_: Any) -> None:
        packed = Path(f"{target}.gz")
        try:
            pooch.HTTPDownloader(timeout=30)(url, str(packed), registry)
            Path(target).write_bytes(gzip.decompress(packed.read_bytes()))
        finally:
            packed.unlink(missing_ok=True)

    failures = []
    for mirror in mirrors:
        url = f"{mirror}{name}.gz"
        try:
            # pooch's type of it names the parameters of something else
            downloader: Any = download_unpacked
            path = pooch.retrieve(
                url, f"sha256:{checksum}", name, cache_folder(), downloader=downloader
            )
        except (OSError, EOFError, zlib.error) as error:
            failures.append(f"{url}: {error}")
        except ValueError as error:
            raise CorruptedFileError(f"{url} is damaged: its sha256 is not {checksum}.") from error
        else:
            return Path(path)
    raise UnreachableError(
        f"{name} was not found in {', '.join(map(str, folders()))} and could not be downloaded"
        f" ({'; '.join(failures) or 'there is no mirror'}). Check the network, or put the file into"
        " a folder and set DECIBO_DATA to it."
    )


def _sklearn(purpose: str) -> ModuleType:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise missing("scikit-learn", purpose, "data") from error
    return datasets


def _check(content: bytes, checksum: str, name: str) -> None:
    if sha256(content) != checksum:
        raise CorruptedFileError(
            f"{name} is damaged: its sha256 is {sha256(content)}, but it must be {checksum}. Delete"
            " the file and download it again."
        )


def _raw(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _from_npz(path: Path, sums: Mapping[str, str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in MNIST_ARRAYS.values()}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CorruptedFileError(
            f"{path} is damaged: it must hold the arrays {', '.join(MNIST_ARRAYS.values())}"
            f" ({error}). Download it again."
        ) from error
    for name, key in MNIST_ARRAYS.items():
        array = arrays[key]
        header = struct.pack(f">{1 + array.ndim}i", 0x800 + array.ndim, *array.shape)
        _check(header + array.tobytes(), sums[name], f"{path} ({key})")
    return arrays


def _from_idx(paths: Mapping[str, Path], sums: Mapping[str, str]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, path in paths.items():
        content = unpacked(path)
        try:
            array = parse_idx(content, str(path))
        except (InputError, CorruptedFileError):
            _check(content, sums[name], str(path))
            raise
        if sha256(content) != sums[name]:
            raise CorruptedFileError(
                f"{path} is not the {name} of MNIST: its sha256 is {sha256(content)}, but it must"
                f" be {sums[name]}. If it is another data set in the same format, such as"
                f" Fashion-MNIST, use decibo.data.idx({str(path.parent)!r}); otherwise download it"
                " again."
            )
        arrays[MNIST_ARRAYS[name]] = array
    return arrays


def _read_libsvm(path: Path, features: int | None) -> Split:
    load = _sklearn("decibo.data.libsvm").load_svmlight_file
    if path.exists() and not path.is_file():  # a pipe or a device may never end
        raise InputError(f"{path} cannot be read: it is not a regular file.")
    try:
        sparse, labels = load(str(path), n_features=features, zero_based=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(
            f"{path} cannot be read as a LIBSVM file: {str(error).rstrip('.')}.",
            "Each line is `label index:value index:value ...`, with increasing indices from 1.",
        ) from error
    if len(labels) == 0:
        raise InputError(f"{path} has no samples.")
    if not (np.isfinite(sparse.data).all() and np.isfinite(labels).all()):
        raise InputError(f"{path} must hold finite numbers only, but one is not.")
    return sparse.toarray(), labels


def _widened(table: np.ndarray, width: int) -> np.ndarray:
    """The table with columns of zeros up to this width."""
    return np.pad(table, ((0, 0), (0, width - table.shape[1])))


def _classes(labels: np.ndarray) -> np.ndarray:
    """-1 and +1 if there are two labels; classes from 0 otherwise."""
    classes = np.unique(labels)
    if len(classes) <= 2:
        return np.where(labels == classes[-1], 1.0, -1.0) if len(classes) == 2 else np.sign(labels)
    return np.searchsorted(classes, labels).astype(np.int32)
