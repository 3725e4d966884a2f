"""What an experiment gives back: tables of every number drawn, claims with verdicts, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decibo.paper.claims import Claim

Table = Mapping[str, np.ndarray]  # columns of equal length
Progress = Callable[[float], None]  # called with the share that is done


@dataclass(frozen=True, eq=False)
class Result:
    """One experiment.

    tables    name -> columns; figures are drawn from these alone; a table called "seconds" holds wall times
    settings  everything needed to run it again
    notes     sentences for the reader: choices that the paper leaves open, surprises
    """

    name: str
    title: str
    data: str
    tables: dict[str, Table]
    claims: tuple[Claim, ...]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Size:
    """How much to do: the full experiment or a quick look, and over how many seeds."""

    quick: bool = False
    seeds: int | None = None
    tiny: bool = field(default=False, repr=False)  # smaller still, for tests of the machinery

    def __post_init__(self) -> None:
        from decibo.validate import integer

        if self.seeds is not None:
            integer("seeds", self.seeds)

    def of(self, full: Any, quick: Any, tiny: Any = None) -> Any:
        """The one of these that this size asks for."""
        if self.tiny and tiny is not None:
            return tiny
        return quick if self.quick or self.tiny else full

    def some(self, full: int, quick: int) -> range:
        """The seeds to run."""
        return range(self.seeds if self.seeds is not None else self.of(full, quick))


def quiet(done: float) -> None:
    """Nobody watches."""


def columns(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table from rows that all have the same keys."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def join(parts: Sequence[Table]) -> Table:
    """Tables with the same columns, one below the other."""
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}


def block(fixed: Mapping[str, Any], **series: np.ndarray) -> Table:
    """A table of series of one length, with the same values of `fixed` in every row."""
    length = len(next(iter(series.values())))
    return {name: np.full(length, value) for name, value in fixed.items()} | {
        name: np.asarray(values) for name, values in series.items()
    }


def groups(table: Table, *by: str) -> Iterator[tuple[tuple, Table]]:
    """Parts of a table with equal values in these columns, in order of appearance."""
    keys = list(zip(*(table[name].tolist() for name in by), strict=True))
    for key in dict.fromkeys(keys):
        mask = np.array([one == key for one in keys])
        yield key, {name: values[mask] for name, values in table.items()}
