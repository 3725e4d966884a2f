"""What a sweep gives back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from decibo.errors import InputError
from decibo.execute.solution import Status

SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The lanes of a sweep, one for each combination of settings and seed.

    settings   the settings of each lane that the grid names; `seeds` and `status` likewise
    history    name of a measure -> array (lanes, records, ...); history["step"] (records,) says when
    batches    how many lanes each batch had; a shorter last one was filled up
    """

    settings: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    status: tuple[Status, ...]
    history: dict[str, np.ndarray]
    steps: int
    method: str
    network: str
    batches: tuple[int, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row for each lane: its settings, seed and status, and the last value of every measure."""
        rows = zip(self.settings, self.seeds, self.status, strict=True)
        last = {name: values[:, -1] for name, values in self.history.items() if name != "step"}
        return [
            {**settings, "seed": seed, "status": str(status), **{name: _number(row[k]) for name, row in last.items()}}
            for k, (settings, seed, status) in enumerate(rows)
        ]

    def best(self, measure: str) -> dict[str, Any]:
        """The settings with the lowest last value, for `method.replace(**settings)`.

        With several seeds it is the mean over them that counts; settings that diverged with one of them are out.
        """
        values = self._last(measure)
        places: dict[int, list[int]] = {}
        for k, settings in enumerate(self.settings):  # lanes that differ in the seed only share the dictionary
            places.setdefault(id(settings), []).append(k)
        means = {k[0]: values[k].mean() for k in places.values() if np.isfinite(values[k]).all()}
        if not means:
            raise InputError(
                f"best({measure!r}) of {self._counts()}",
                "some settings must have stayed finite",
                "Lower the step sizes of the grid.",
            )
        return dict(self.settings[min(means, key=lambda k: means[k])])

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise InputError(
                "to_pandas()", "it needs pandas", "Install it with pip install 'decibo[table]', or use .table."
            ) from error
        return pandas.DataFrame(self.table)

    def __repr__(self) -> str:
        first = f"Sweep({len(self)} runs of {self.method} on {self.network}: {self._counts()}; {self.steps} steps each)"
        rows, by = self.table, next(iter(self._scalars()), None)
        if by is not None:
            rows.sort(key=lambda row: (not np.isfinite(row[by]), row[by]))
        more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
        return "\n".join([first, *_lines(rows[:SHOWN]), *more])

    def _counts(self) -> str:
        return ", ".join(f"{number} {status}" for status, number in Counter(self.status).items())

    def _scalars(self) -> list[str]:
        return [name for name, row in self.history.items() if name != "step" and row.ndim == 2]

    def _last(self, measure: str) -> np.ndarray:
        scalars = self._scalars()
        if measure not in scalars:
            near = get_close_matches(str(measure), scalars, n=1)
            raise InputError(
                f"measure {measure!r}",
                f"recorded numbers are {', '.join(scalars) or 'none'}",
                f"Did you mean {near[0]}?" if near else "Ask for one of these, or add it to measures.",
            )
        return self.history[measure][:, -1]


def _number(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else getattr(value, "__name__", str(value))


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as lines of aligned cells, arrays left out."""
    names = [name for name, value in rows[0].items() if np.ndim(value) == 0]
    cells = [names, *([_shown(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
