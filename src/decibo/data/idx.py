"""Files in the IDX format, in which MNIST, Fashion-MNIST, EMNIST, KMNIST and others come.

A header of two zero bytes, the code of a type, the number k of axes and the k lengths as big-endian
32-bit numbers; then the values themselves, big-endian too. Files may be packed (.gz).
"""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np

from decibo.data.dataset import Dataset, select
from decibo.errors import CorruptedFileError, InputError
from decibo.files import read_file

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
PARTS = {"train": ("train",), "test": ("t10k", "test")}  # words in the names of files


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
    arrays = {}
    for split, words in PARTS.items():
        images, labels = (_the_one(place, words, kind, part) for kind in ("images", "labels"))
        tables = [parse_idx(unpacked(path), str(path)) for path in (images, labels)]
        if (
            tables[1].ndim != 1
            or tables[1].dtype.kind not in "iu"
            or len(tables[0]) != len(tables[1])
        ):
            raise InputError(
                f"{labels} must hold one integer for each of the {len(tables[0])} images of"
                f" {images.name}, but it holds {tables[1].dtype} of shape {tables[1].shape}."
            )
        arrays[split] = tables
    parts = []
    for images, labels in arrays.values():
        scaled = images / 255.0 if images.dtype == np.uint8 else images.astype(float)
        parts += select(scaled.reshape(len(scaled), -1), labels, positive, negative)
    name = part or place.resolve().name
    name = name if positive is None else f"{name} {positive} against {negative}"
    return Dataset(*parts, name=name, source=str(place))


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
        raise CorruptedFileError(
            f"{name} is damaged: it ends within its header. Download it again."
        )
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != prod(shape) * dtype.itemsize:
        raise CorruptedFileError(
            f"{name} is damaged: its header says {dtype.name} of shape {shape},"
            f" {prod(shape) * dtype.itemsize} bytes, but {len(content) - start} follow. Download it"
            " again."
        )
    return (
        np.frombuffer(content, dtype=dtype, offset=start)
        .reshape(shape)
        .astype(dtype.newbyteorder("="), copy=False)
    )


def _the_one(folder: Path, words: tuple[str, ...], kind: str, part: str) -> Path:
    """The file of a folder whose name has one of these words, the kind and the part; unpacked
    rather than packed."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder.", "Pass the folder that holds the four IDX files."
        )
    named = sorted(
        path
        for path in folder.iterdir()
        if "idx" in path.name and kind in path.name and part in path.name
    )
    found = [path for path in named if any(word in path.name for word in words)]
    plain = [path for path in found if path.suffix != ".gz"] or found
    if len(plain) != 1:
        listed = ", ".join(path.name for path in plain) or "none"
        raise InputError(
            f"{folder} must have one IDX file of {kind} whose name contains {' or '.join(words)}"
            f"{f' and {part}' if part else ''}, but it has {listed}.",
            "Pass part= to choose one set, or another folder.",
        )
    return plain[0]
