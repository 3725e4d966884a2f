"""The LIBSVM text format: one sample a line, `label index:value index:value ...`, indices from 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from decibo.data.dataset import Dataset, hold_out
from decibo.errors import InputError


def libsvm(path: str | Path, test: str | Path | None = None, features: int | None = None) -> Dataset:
    """Read a file, and a second one for testing (without it a fifth of the first is held out)."""
    train, labels = _read(Path(path))
    if test is None:
        parts = hold_out(_dense(train, features or _width(train)), _labels(labels))
    else:
        other, other_labels = _read(Path(test))
        width = features or max(_width(train), _width(other))
        parts = _dense(train, width), _labels(labels), _dense(other, width), _labels(other_labels)
    return Dataset(*parts, name=Path(path).name, source=str(path))


Entries = tuple[int, np.ndarray, np.ndarray, np.ndarray]  # number of rows; row, column and value of each entry


def _read(path: Path) -> tuple[Entries, np.ndarray]:
    numbered = [(k, line.split("#")[0].split()) for k, line in enumerate(_lines(path), start=1)]
    numbered = [(k, words) for k, words in numbered if words]
    if not numbered:
        raise InputError(f"{path} holds no samples", "there must be at least one line", "Check the file.")
    labels = np.array([_number(path, k, words[0]) for k, words in numbered])
    pairs = [word for _, words in numbered for word in words[1:]]
    table = _pairs(pairs)
    if table is None:
        raise _first_fault(path, numbered)
    rows = np.repeat(np.arange(len(numbered)), [len(words) - 1 for _, words in numbered])
    return (len(numbered), rows, table[:, 0].astype(int) - 1, table[:, 1]), labels


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "the file must be readable", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not plain text", "LIBSVM files are text", "Decompress it first.") from error


def _pairs(words: list[str]) -> np.ndarray | None:
    """(index, value) of all words at once, ten times faster than one at a time; None if any is bad."""
    if any(word.count(":") != 1 for word in words):
        return None
    try:
        table = np.array(":".join(words).split(":") if words else [], dtype=float).reshape(-1, 2)
    except ValueError:
        return None
    sound = np.isfinite(table).all() and (table[:, 0] >= 1).all() and (table[:, 0] % 1 == 0).all()
    return table if sound else None


def _number(path: Path, k: int, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise _fault(path, k, word, "a line must start with its label") from None


def _first_fault(path: Path, numbered: list[tuple[int, list[str]]]) -> InputError:
    """Look at words one at a time, for the number of the bad line."""
    rule = "entries must be index:value with a whole index from 1"
    return next(_fault(path, k, word, rule) for k, words in numbered for word in words[1:] if _pairs([word]) is None)


def _fault(path: Path, k: int, word: str, rule: str) -> InputError:
    return InputError(f"{path}, line {k}: {word!r}", rule, "Mend the line.")


def _width(entries: Entries) -> int:
    return int(entries[2].max(initial=0)) + 1


def _dense(entries: Entries, width: int) -> np.ndarray:
    rows, row, column, value = entries
    if _width(entries) > width:
        raise InputError(
            f"an entry has index {_width(entries)}, features = {width}",
            "indices end at the number of features",
            "Pass a larger number of features, or none.",
        )
    table = np.zeros((rows, width))
    table[row, column] = value
    return table


def _labels(labels: np.ndarray) -> np.ndarray:
    """-1 and +1 if there are two labels; classes from 0 otherwise."""
    classes = np.unique(labels)
    if len(classes) <= 2:
        return np.where(labels == classes[-1], 1.0, -1.0) if len(classes) == 2 else np.sign(labels)
    return np.searchsorted(classes, labels).astype(np.int32)
