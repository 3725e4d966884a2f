"""Tables of an experiment: named columns of equal length, joined, selected and grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

Value = str | int | float | np.generic
Table = Mapping[str, np.ndarray]


def columns(rows: Sequence[Mapping[str, Value]]) -> Table:
    """A table from rows that all have the same keys."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def join(parts: Sequence[Table]) -> Table:
    """Tables with the same columns, one below the other."""
    return {
        name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]
    }


def block(fixed: Mapping[str, Value], **series: np.ndarray) -> Table:
    """A table of series of one length, with the same values of `fixed` in every row."""
    length = len(next(iter(series.values())))
    constant = {name: np.full(length, value) for name, value in fixed.items()}
    return constant | {name: np.asarray(values) for name, values in series.items()}


def select(table: Table, **values: Value) -> Table:
    """The rows of a table in which these columns have these values."""
    mask = np.all([table[name] == value for name, value in values.items()], axis=0)
    return {name: column[mask] for name, column in table.items()}


def across(table: Table, name: str, by: str, values: Iterable[Value]) -> np.ndarray:
    """One column as (seeds, values of the column `by`)."""
    return np.stack([table[name][table[by] == value] for value in values], axis=1)


def groups(table: Table, *by: str) -> Iterator[tuple[tuple, Table]]:
    """Parts of a table with equal values in these columns, in order of appearance."""
    keys = list(zip(*(table[name].tolist() for name in by), strict=True))
    for key in dict.fromkeys(keys):
        mask = np.array([other == key for other in keys])
        yield key, {name: values[mask] for name, values in table.items()}
