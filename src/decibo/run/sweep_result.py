"""What a sweep gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from decibo.errors import InputError, missing
from decibo.formatting import format_setting
from decibo.run.solution import Status
from decibo.validate import did_you_mean

if TYPE_CHECKING:
    import pandas

SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The runs of a sweep, one for each case, combination of settings, and seed.

    settings   the settings of each run that the grid names; `seeds`, `cases` and `status` likewise
    cases      which entry of the lists of networks, methods and starts; all 0 without lists
    history    name of a measure -> array (runs, records, ...); history["step"] (records,) says when
    batches    how many runs each batch had; a shorter last one was padded
    seconds    of the steps of all runs; `compiling` and `measuring` are separate
    """

    settings: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    cases: tuple[int, ...]
    status: tuple[Status, ...]
    history: dict[str, np.ndarray]
    steps: int
    method: str
    network: str
    batches: tuple[int, ...]
    seconds: float
    compiling: float = 0.0
    measuring: float = 0.0

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row for each run: its settings, seed and status, and the last value of every
        measure."""
        last = {name: values[:, -1] for name, values in self.history.items() if name != "step"}
        several = len(set(self.cases)) > 1
        rows = []
        for k, settings in enumerate(self.settings):
            case = {"case": self.cases[k]} if several else {}
            ends = {name: _number(row[k]) for name, row in last.items()}
            rows.append(
                {**case, **settings, "seed": self.seeds[k], "status": str(self.status[k]), **ends}
            )
        return rows

    def best(self, measure: str) -> dict[str, Any]:
        """The settings with the lowest last value, for `method.replace(**settings)`.

        With several seeds or cases it is the mean over them that counts; settings that diverged or
        failed with one of them are excluded.
        """
        values = np.where([status.sound for status in self.status], self._last(measure), np.nan)
        seeds = len(set(self.seeds))
        # runs come case by case, setting by setting
        combinations = len(self) // (seeds * len(set(self.cases)))
        places = np.arange(len(self)) // seeds % combinations
        means = {}
        for number in range(combinations):
            ends = values[places == number]
            if np.isfinite(ends).all():
                means[number] = float(ends.mean())
        if not means:
            raise InputError(
                f"No settings gave an answer, so none is best in {measure}: {self._counts()}.",
                "Lower the step sizes of the grid.",
            )
        return dict(self.settings[seeds * min(means, key=lambda number: means[number])])

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "Sweep.to_pandas", "table") from error
        return pandas.DataFrame(self.table)

    def __repr__(self) -> str:
        first = (
            f"Sweep({len(self)} runs of {self.method} on {self.network}: {self._counts()};"
            f" {self.steps} steps each)"
        )
        rows = self.table
        by = next(iter(self._scalars()), None)
        if by is not None:
            rows.sort(
                key=lambda row: (not Status(row["status"]).sound, not np.isfinite(row[by]), row[by])
            )
        more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
        return "\n".join([first, *_lines(rows[:SHOWN]), *more])

    def _counts(self) -> str:
        return ", ".join(f"{number} {status}" for status, number in Counter(self.status).items())

    def _scalars(self) -> list[str]:
        return [name for name, row in self.history.items() if name != "step" and row.ndim == 2]

    def _last(self, measure: str) -> np.ndarray:
        scalars = self._scalars()
        if measure not in scalars:
            raise InputError(
                f"{measure!r} is not among the recorded numbers, which are"
                f" {', '.join(scalars) or 'none'}.",
                did_you_mean(measure, scalars) or "Add it to measures.",
            )
        return self.history[measure][:, -1]


def joined(sweeps: Sequence[Sweep]) -> Sweep:
    """Sweeps of the same grid on problems of different seeds as one, setting by setting."""
    if len(sweeps) == 1:
        return sweeps[0]
    first = sweeps[0]
    order = np.arange(len(sweeps) * len(first)).reshape(len(sweeps), -1).T.ravel()

    def together(name: str) -> tuple[Any, ...]:
        every = [item for each in sweeps for item in getattr(each, name)]
        return tuple(every[place] for place in order)

    rows = {
        name: np.concatenate([each.history[name] for each in sweeps])[order]
        for name in first.history
        if name != "step"
    }
    return replace(
        first,
        **{name: together(name) for name in ("settings", "seeds", "cases", "status")},
        history={"step": first.history["step"], **rows},
        batches=tuple(size for each in sweeps for size in each.batches),
        **{
            name: sum(getattr(each, name) for each in sweeps)
            for name in ("seconds", "compiling", "measuring")
        },
    )


def _number(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as lines of aligned cells, arrays left out."""
    names = [name for name, value in rows[0].items() if np.ndim(value) == 0]
    cells = [names, *([format_setting(row[name], 4) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
