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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from decibo.errors import InputError, short
from decibo.parallel.processes import share

# floats with NaN for missing, or objects: text, and None for missing
Columns = dict[str, np.ndarray]
Share = Callable[[Any], list[Any]]  # what this process has -> what each process has
Total = Callable[[np.ndarray], np.ndarray]  # what this process has -> the sum over all
NUMBER = "numbers"
TEXT = "text"


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
        table: object,
        share: Share = share,
        total: Total | None = None,
        place: Callable[[int], str] = "process {}".format,
    ) -> Encoding:
        """The encoding of a table: a data frame, a mapping of columns or an array.

        In a run of several processes each passes its own rows, all call it together, and all get
        the same encoding.

        share, total   what this process has -> what each has, and the sum over all
        place          what to call the process of a number
        """
        own = as_columns(table)
        total = total or (lambda rows: np.sum([np.asarray(r) for r in share(rows.tolist())], 0))

        # Columns must hold the same everywhere. One of gaps only is what the others say it is.
        kind = lambda column: "" if np.isnan(column).all() else NUMBER
        everyone = share({n: TEXT if c.dtype == object else kind(c) for n, c in own.items()})
        kinds: dict[str, str] = {}
        for process, theirs in enumerate(everyone):
            _check_columns(list(everyone[0]), list(theirs), place(0), place(process))
            for name, kind in theirs.items():
                before = kinds.get(name, "")
                if kind and before and kind != before:
                    raise InputError(
                        f"Column {name!r} holds {kind} in {place(process)} and {before} in one"
                        " before it, but it must be the same everywhere.",
                        f"If the numbers are codes, read them as text: categories=[{name!r}].",
                    )
                kinds[name] = before or kind

        # Two sums over all processes: of the values, then of the squares about their means.
        present = {n: own[n][~np.isnan(own[n])] for n, kind in kinds.items() if kind != TEXT}
        sums = total(np.array([[v.sum(), len(v)] for v in present.values()], float).reshape(-1, 2))
        counts = np.maximum(sums[:, 1], 1)
        means = sums[:, 0] / counts  # (1)
        around = zip(present.values(), means, strict=True)
        squares = total(np.array([((values - mean) ** 2).sum() for values, mean in around], float))
        widths = np.sqrt(squares / counts)
        widths = np.where(widths > 1e-10 * (1 + np.abs(means)), widths, 1.0)  # (2)

        texts = [name for name, kind in kinds.items() if kind == TEXT]
        found = share([sorted({w for w in own[n] if isinstance(w, str)}) for n in texts])
        unions = [sorted(set().union(*parts)) for parts in zip(*found, strict=True)]
        return Encoding(
            tuple(kinds),
            dict(zip(present, zip(means.tolist(), widths.tolist(), strict=True), strict=True)),
            {name: tuple(union) for name, union in zip(texts, unions, strict=True)},  # (3)
        )

    def __call__(self, table: object) -> np.ndarray:
        """The features of a table, (rows, features)."""
        own = as_columns(table)
        _check_columns(list(self.columns), list(own), "the table that was fitted", "this one")
        parts = []
        for name in self.columns:
            column = own[name]
            if name in self.words:
                parts += [column == word for word in self.words[name]]
                continue
            if column.dtype == object:
                row = next(k for k, value in enumerate(column) if value is not None)
                raise InputError(f"Column {name!r} must hold numbers, but row {row} has text.")
            mean, deviation = self.numbers[name]
            parts.append((np.where(np.isnan(column), mean, column) - mean) / deviation)
        rows = len(own[self.columns[0]])
        return np.array(parts, dtype=float).reshape(len(parts), rows).T.copy()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        named = lambda name: (
            [f"{name}={word}" for word in self.words[name]] if name in self.words else [name]
        )
        return tuple(feature for name in self.columns for feature in named(name))


def as_columns(table: object) -> Columns:
    """The columns of a data frame, a mapping or an array, see `Columns`."""
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
    name: str, values: object, where: Callable[[int], str] = "row {}".format
) -> np.ndarray:
    """A column as floats or as text; a mixture of numbers and words is refused, with the row of the
    first word.

    Errors say where, but not what: in a run of several processes all of them see the message.
    """
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(float)
    # pandas has missing values of its own, and NaN is the only float that is not equal to itself.
    gap = lambda value: (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )
    cells = [None if gap(value) else value for value in np.asarray(values, dtype=object).tolist()]
    words = [k for k, value in enumerate(cells) if isinstance(value, str)]
    others = [k for k, cell in enumerate(cells) if not isinstance(cell, str | None)]
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


def _check_columns(there: list[str], here: list[str], place: str, other: str) -> None:
    if there != here:
        odd = sorted({*there} ^ {*here}) or [a for a, b in zip(there, here, strict=True) if a != b]
        raise InputError(
            f"The columns of {place} and of {other} must be the same, in the same order, but they"
            f" differ in {short(', '.join(map(repr, odd)))}."
        )
