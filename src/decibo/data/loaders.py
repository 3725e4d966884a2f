"""Data sets by name and from files: what scikit-learn bundles, MNIST, IDX files, and LIBSVM's text
format.

Files are looked for in $DECIBO_DATA first, then in the cache, $XDG_CACHE_HOME/decibo or
~/.cache/decibo, where downloads go. Every byte of MNIST is checked, wherever it comes from; arrays
from mnist.npz are checked by the sum of the IDX file they make.

The IDX format, in which Fashion-MNIST, EMNIST, KMNIST and others come as well: a header of two zero
bytes, the code of a type, the number k of axes and the k lengths as big-endian 32-bit numbers; then
the values themselves, big-endian too. Files may be packed (.gz).
"""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from decibo.data.dataset import Dataset, Split, hold_out, numbered, select
from decibo.errors import CorruptedFileError, InputError, UnreachableError, missing
from decibo.files import read_file, sha256
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
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def digits(positive: int | None = 1, negative: int | None = 3) -> Dataset:
    """Handwritten digits of 8 x 8 pixels in [0, 1]; two as +1 and -1, or all (None, None)."""
    raw = _sklearn("decibo.data.digits").load_digits()
    pixels = np.asarray(raw.data) / 16.0
    features, labels = select(pixels, np.asarray(raw.target), positive, negative)
    name = "digits" if positive is None else f"digits {positive} against {negative}"
    return Dataset(*hold_out(features, labels), name=name, source=BUNDLED)


def breast_cancer() -> Dataset:
    """Wisconsin breast cancer: 30 features, standardised; malignant is +1, benign -1."""
    raw = _sklearn("decibo.data.breast_cancer").load_breast_cancer()
    labels = np.where(np.asarray(raw.target) == 0, 1.0, -1.0)
    train, signs, test, test_signs = hold_out(np.asarray(raw.data), labels)
    centre = train.mean(axis=0)  # of the training part: the test part stays unseen
    width = train.std(axis=0)
    parts = (train - centre) / width, signs, (test - centre) / width, test_signs
    return Dataset(*parts, "breast cancer", BUNDLED)


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


def idx(
    folder: str | Path, positive: int | None = None, negative: int | None = None, part: str = ""
) -> Dataset:
    """A data set of four IDX files: images and labels to train on and to test on; all classes, or
    two as +1 and -1.

    folder   where they are, under the names that MNIST's files have, or others with train, t10k or
             test, images, labels
    part     a word that the names of all four contain, if there are several sets in the folder:
             "letters" of EMNIST

    Bytes are divided by 255, and images become rows. No checksum is known, so only what the header
    says is checked; use `mnist` for MNIST itself.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(
            f"{place} is not a folder.", "Pass the folder that holds the four IDX files."
        )

    def the_one(words: tuple[str, ...], kind: str) -> Path:
        """The file of the folder whose name has one of these words, the kind and the part."""
        needed = ("idx", kind, part)
        named = lambda name: all(w in name for w in needed) and any(w in name for w in words)
        found = [path for path in sorted(place.iterdir()) if named(path.name)]
        found = [path for path in found if path.suffix != ".gz"] or found
        if len(found) != 1:
            listed = ", ".join(path.name for path in found) or "none"
            raise InputError(
                f"{place} must have one IDX file of {kind} whose name contains"
                f" {' or '.join(words)}{f' and {part}' if part else ''}, but it has {listed}.",
                "Pass part= to choose one set, or another folder.",
            )
        return found[0]

    parts = []
    for words in (("train",), ("t10k", "test")):
        paths = the_one(words, "images"), the_one(words, "labels")
        images, labels = (parse_idx(unpacked(path), str(path)) for path in paths)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(images) != len(labels):
            raise InputError(
                f"{paths[1]} must hold one integer for each of the {len(images)} images of"
                f" {paths[0].name}, but it holds {labels.dtype} of shape {labels.shape}."
            )
        scaled = images / 255.0 if images.dtype == np.uint8 else images.astype(float)
        parts += select(scaled.reshape(len(scaled), -1), labels, positive, negative)
    name = part or place.resolve().name
    name = name if positive is None else f"{name} {positive} against {negative}"
    return Dataset(*parts, name=name, source=str(place))


def libsvm(
    path: str | Path, test: str | Path | None = None, features: int | None = None
) -> Dataset:
    """A file in LIBSVM's text format, and a second one for testing; without it a fifth of the first
    is held out.

    One sample a line, `label index:value index:value ...`, with increasing indices from 1.
    """
    load = _sklearn("decibo.data.libsvm").load_svmlight_file

    def read(path: Path) -> Split:
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

    first = a_path("path", path)
    name = first.name
    train, labels = read(first)
    classes = np.unique(labels)
    signs = numbered(labels, classes)
    if test is None:
        return Dataset(*hold_out(train, signs), name=name, source=str(path))
    other, test_labels = read(a_path("test", test))
    # Columns at the end that one of the files does not mention are zero in it.
    width = max(train.shape[1], other.shape[1])
    train, other = (np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (train, other))
    return Dataset(train, signs, other, numbered(test_labels, classes, name), name, str(path))


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
    """The four arrays and where they were found."""
    arrays = {}
    for place in folders() if folder is None else [folder]:
        npz = place / "mnist.npz"
        if npz.is_file():
            try:
                with np.load(npz, allow_pickle=False) as file:
                    arrays = {name: file[name] for name in MNIST_ARRAYS.values()}
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                raise CorruptedFileError(
                    f"{npz} is damaged: it must hold the arrays {', '.join(MNIST_ARRAYS.values())}"
                    f" ({error}). Download it again."
                ) from error
            for name, key in MNIST_ARRAYS.items():  # sums are those of the IDX files
                array = arrays[key]
                header = struct.pack(f">{1 + array.ndim}i", 0x800 + array.ndim, *array.shape)
                _check(header + array.tobytes(), sums[name], f"{npz} ({key})")
            return arrays, str(npz)
        paths = {
            name: path
            for name in sums
            for path in (place / f"{name}.gz", place / name)  # unpacked rather than packed
            if path.is_file()
        }
        if len(paths) == len(sums):
            source = str(place)
            break
    else:
        if folder is not None:
            raise InputError(
                f"{folder} has neither mnist.npz nor the four IDX files {', '.join(sums)}, plain or"
                " .gz.",
                "Leave folder out to look in $DECIBO_DATA, then in the cache, and then to"
                " download.",
            )
        paths = {name: fetch(name, sums[name], mirrors) for name in sums}
        source = "downloaded"
    for name, path in paths.items():
        content = unpacked(path)
        try:
            arrays[MNIST_ARRAYS[name]] = parse_idx(content, str(path))
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
    return arrays, source


def fetch(name: str, checksum: str, mirrors: Sequence[str]) -> Path:
    """Download NAME.gz from the first mirror that answers; the unpacked file is checked and
    cached."""
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


def unpacked(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz."""
    try:
        content = read_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptedFileError(f"{path} is damaged: {error}. Download it again.") from error


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """The array in the bytes of an IDX file."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise InputError(
            f"{name} is not in the IDX format: it begins with {content[:4].hex(' ') or 'nothing'}."
        )
    dtype = np.dtype(TYPES[content[2]])
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise CorruptedFileError(f"{name} is damaged: it ends within its header. Get it again.")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != prod(shape) * dtype.itemsize:
        raise CorruptedFileError(
            f"{name} is damaged: its header says {dtype.name} of shape {shape},"
            f" {prod(shape) * dtype.itemsize} bytes, but {len(content) - start} follow. Download it"
            " again."
        )
    array = np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


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
