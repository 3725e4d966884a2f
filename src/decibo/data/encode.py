r"""Columns of a table as features, fitted over silos that tell each other sums and words but no
rows.

    number   missing ones become the mean of the column, then (value - mean) / deviation
    text     one indicator for each category; missing and unknown ones have none

    (1)  mean       = sum of the values / how many there are,              over all silos
    (2)  deviation  = sqrt(sum of (value - mean)^2 / how many there are),  over all silos; 1 for a
                                                                           constant column
    (3)  categories = the union of what occurs in any silo, sorted

Medians and quantiles are not sums, so they are not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from decibo.errors import InputError, short
from decibo.parallel.processes import share

# floats with NaN for missing, or objects: text, and None for missing
Columns = dict[str, np.ndarray]
Share = Callable[[Any], list[Any]]  # what this process has -> what each process has
Total = Callable[[np.ndarray], np.ndarray]  # what this process has -> the sum over all
Place = Callable[[int], str]  # the number of a process -> what to call it
NUMBER = "numbers"
TEXT = "text"


def _process(number: int) -> str:
    return f"process {number}"


@dataclass(frozen=True, eq=False)
class Encoding:
    """How columns become features: `Encoding.fit(table)` finds it, and `encoding(table)` applies
    it.

    numbers   (mean, deviation) of each column of numbers
    words     the categories of each column of text
    columns   the names of all columns, in their order
    """

    columns: tuple[str, ...]
    numbers: dict[str, tuple[float, float]]
    words: dict[str, tuple[str, ...]]

    @staticmethod
    def fit(
        table: object, share: Share = share, total: Total | None = None, place: Place = _process
    ) -> Encoding:
        """The encoding of a table: a data frame, a mapping of columns or an array.

        In a run of several processes each passes its own rows, all call it together, and all get
        the same encoding.

        share, total   what this process has -> what each has, and the sum over all
        place          what to call the process of a number
        """
        own = as_columns(table)
        total = total or (
            lambda rows: np.sum(
                [np.asarray(each, dtype=float) for each in share(rows.tolist())], axis=0
            )
        )
        kinds = _agreed_kinds(own, share, place)
        numbers = [name for name, kind in kinds.items() if kind == NUMBER]
        known = {name: own[name].astype(float) for name in numbers}
        present = {name: column[~np.isnan(column)] for name, column in known.items()}
        counts = total(
            np.array([[part.sum(), len(part)] for part in present.values()], float).reshape(-1, 2)
        )
        # (1)
        means = {
            name: summed / max(count, 1)
            for name, (summed, count) in zip(numbers, counts, strict=True)
        }
        squares = total(
            np.array([((present[name] - means[name]) ** 2).sum() for name in numbers], float)
        )
        deviations = {
            name: _deviation(float(square), float(count), means[name])  # (2)
            for name, square, (_, count) in zip(numbers, squares, counts, strict=True)
        }
        texts = [name for name in kinds if name not in numbers]
        found = share(
            [sorted({word for word in own[name] if isinstance(word, str)}) for name in texts]
        )
        # (3)
        words = {
            name: tuple(sorted({*_flat(each[k] for each in found)})) for k, name in enumerate(texts)
        }
        scales = {name: (float(means[name]), deviations[name]) for name in numbers}
        return Encoding(tuple(kinds), scales, words)

    def __call__(self, table: object) -> np.ndarray:
        """The features of a table, (rows, features)."""
        own = as_columns(table)
        _same_columns(list(self.columns), list(own), "the table that was fitted", "this one")
        parts = []
        for name in self.columns:
            column = own[name]
            if name in self.words:
                parts.append(
                    np.stack([column == word for word in self.words[name]] or [np.zeros(0)], axis=1)
                )
                continue
            if column.dtype == object and any(value is not None for value in column):
                row = next(k for k, value in enumerate(column) if value is not None)
                raise InputError(f"Column {name!r} must hold numbers, but row {row} has text.")
            mean, deviation = self.numbers[name]
            values = column.astype(float)
            parts.append((np.where(np.isnan(values), mean, values)[:, None] - mean) / deviation)
        return np.concatenate([np.asarray(part, dtype=float) for part in parts], axis=1)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        named = lambda name: (
            [f"{name}={word}" for word in self.words[name]] if name in self.words else [name]
        )
        return tuple(feature for name in self.columns for feature in named(name))


def as_columns(table: object) -> Columns:
    """The columns of a data frame, a mapping or an array: floats with NaN, or text with None, for
    what is missing."""
    if hasattr(table, "columns") and hasattr(table, "loc"):  # a data frame
        named: Mapping[str, object] = {str(name): table[name] for name in table.columns}  # pyright: ignore
    elif isinstance(table, Mapping):
        named = {str(name): column for name, column in table.items()}
    else:
        array = np.asarray(table)
        if array.ndim != 2:
            raise InputError(f"A table must have rows and columns, but its shape is {array.shape}.")
        named = {f"x{k}": array[:, k] for k in range(array.shape[1])}
    if not named:
        raise InputError("A table must have at least one column, but it has none.")
    columns = {name: column_of(name, column) for name, column in named.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"All columns must have the same number of rows, but they have {short(lengths)}."
        )
    return columns


def column_of(
    name: str, values: object, where: Callable[[int], str] = lambda row: f"row {row}"
) -> np.ndarray:
    """A column as floats or as text; a mixture of numbers and words is refused, with the row of the
    first word.

    Errors say where, but not what: in a run of several processes all of them see the message.
    """
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(float)
    cells = [
        None if _is_missing(value) else value for value in np.asarray(values, dtype=object).tolist()
    ]
    words = [k for k, value in enumerate(cells) if isinstance(value, str)]
    others = [
        k for k, value in enumerate(cells) if value is not None and not isinstance(value, str)
    ]
    if not words:
        try:
            return np.array([np.nan if value is None else float(value) for value in cells])
        except (TypeError, ValueError) as error:
            k = others[0]
            raise InputError(
                f"Column {name!r} must hold numbers or text, but {where(k)} has a"
                f" {type(cells[k]).__name__}."
            ) from error
    if others:
        raise InputError(
            f"Column {name!r} must hold numbers or text, not both, but {where(others[0])} has a"
            f" number and {where(words[0])} has text.",
            "If that text stands for a missing value, name it in missing=; if the numbers are"
            f" codes, pass categories=[{name!r}].",
        )
    return np.array(cells, dtype=object)


def _is_missing(value: object) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def _agreed_kinds(own: Columns, share: Share, place: Place) -> dict[str, str]:
    """Whether each column holds numbers or text, the same in all processes; a column of gaps is
    what the others say."""
    mine = {name: _kind(column) for name, column in own.items()}
    everyone = share(mine)
    kinds: dict[str, str] = {}
    for process, theirs in enumerate(everyone):
        _same_columns(list(everyone[0]), list(theirs), place(0), place(process))
        for name, kind in theirs.items():
            before = kinds.get(name, "")
            if kind and before and kind != before:
                raise InputError(
                    f"Column {name!r} holds {kind} in {place(process)} and {before} in one before"
                    " it, but it must be the same everywhere.",
                    f"If the numbers are codes, read them as text: categories=[{name!r}].",
                )
            kinds[name] = before or kind
    return {name: kind or NUMBER for name, kind in kinds.items()}


def _kind(column: np.ndarray) -> str:
    if column.dtype == object:
        return TEXT
    return "" if np.isnan(column).all() else NUMBER


def _same_columns(there: list[str], here: list[str], place: str, other: str) -> None:
    if there != here:
        odd = sorted(set(there) ^ set(here)) or [
            name for name, own in zip(there, here, strict=True) if name != own
        ]
        raise InputError(
            f"The columns of {place} and of {other} must be the same, in the same order, but they"
            f" differ in {short(', '.join(map(repr, odd)))}."
        )


def _deviation(square: float, count: float, mean: float) -> float:
    value = float(np.sqrt(square / max(count, 1)))
    return value if value > 1e-10 * (1 + abs(mean)) else 1.0


def _flat(parts: Iterable[Iterable[str]]) -> Iterable[str]:
    return (word for part in parts for word in part)
