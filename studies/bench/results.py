"""Results on disk: one JSON file for each finished cell, and all of them as tables.

    OUT/cells/TASK--NETWORK--METHOD.json   settings, everything that was tried, and the judged runs
                                           of all seeds
    OUT/runs.csv, runs.parquet             a row for every record of every judged run, with what it
                                           had cost by then
    OUT/settings.csv                       the settings of every cell, how they were found, and how
                                           the runs ended
    OUT/tried.csv                          every setting that any search tried, with its score

A cell is written as a whole or not at all, with a checksum of what it was asked for: a benchmark
that is killed goes on with the cells that are missing, and one that asks for something else makes
its cells anew. Parquet needs pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from decibo.errors import CorruptedFileError, InputError
from decibo.files import atomic_write, encode, read_checked, sha256
from decibo.formatting import to_csv, to_json
from studies.bench.tasks import TASKS, Task

FORMAT = 1
MEASURES = ("stationarity", "phi", "gap", "inner_error", "consensus", "accuracy")
AXES = ("steps", "gradients", "products", "work", "bytes", "seconds")
UNITS = {
    "steps": "steps",
    "gradients": "gradients of all agents",
    "products": "products with second derivatives",
    "work": "gradient-equivalents of all agents",
    "bytes": "bytes over all links",
    "seconds": "seconds of steps",
}


@dataclass(frozen=True, eq=False)
class Run:
    """One judged run: what was recorded, and what a step costs on each axis."""

    seed: int
    status: str
    history: dict[str, np.ndarray]
    price: dict[str, float]

    @property
    def sound(self) -> bool:
        """Whether it gave an answer."""
        return self.status not in ("diverged", "failed")


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one task and network, tuned and judged."""

    task: str
    network: str
    method: str
    settings: dict[str, float]
    tried: list[dict[str, float]]
    notes: list[str]
    cost: dict[str, float]
    runs: tuple[Run, ...]
    seconds: float
    key: str = ""
    made: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str]:
        """Where it took part."""
        return self.task, self.network

    @property
    def rule(self) -> Task:
        """The task, which says what is judged."""
        return TASKS[self.task]


def key_of(parts: Mapping[str, object]) -> str:
    """A checksum of what a cell was asked for."""
    return sha256(encode(json.dumps(to_json(parts), sort_keys=True)))[:16]


def path_of(out: Path, task: str, network: str, method: str) -> Path:
    """The file of a cell."""
    name = "--".join(re.sub(r"[^\w.-]+", "_", part) for part in (task, network, method))
    return out / "cells" / f"{name}.json"


def write_cell(out: Path, cell: Mapping[str, Any]) -> Path:
    """Write a cell, as a whole or not at all."""
    path = path_of(out, cell["task"], cell["network"], cell["method"])
    runs = [
        {**run, "history": {name: _short(name, row) for name, row in run["history"].items()}}
        for run in cell["runs"]
    ]
    cell = {**cell, "runs": runs}
    return atomic_write(
        path, json.dumps(to_json({"format": FORMAT, **cell}), separators=(",", ":")) + "\n"
    )


def _short(name: str, values: Any) -> list[float]:
    """Numbers with the digits that count: files of a large benchmark are half as long. Phi is
    judged by differences."""
    digits = 12 if name == "phi" else 6
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, float)]


def finished(out: Path, task: str, network: str, method: str, key: str) -> bool:
    """Whether the cell is there and was made for the same question."""
    try:
        return read_cell(path_of(out, task, network, method)).key == key
    except (CorruptedFileError, InputError):
        return False


def read_cell(path: Path) -> Cell:
    """A cell from its file."""
    try:
        raw = json.loads(read_checked(path))
        runs = tuple(_run(raw["cost"], each) for each in raw["runs"])
        names = ("task", "network", "method", "settings", "notes", "cost", "seconds", "key")
        tried = [
            row | {"score": np.inf if row["score"] is None else row["score"]}
            for row in raw["tried"]
        ]
        if raw["format"] != FORMAT or raw["task"] not in TASKS:
            raise InputError(
                f"{path} was written by another version of the benchmark.", "Choose another folder."
            )
        return Cell(
            runs=runs, tried=tried, made=raw.get("made", {}), **{name: raw[name] for name in names}
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptedFileError(f"{path} is not a cell of a benchmark: {error}.") from error


def _run(cost: Mapping[str, float], raw: Mapping[str, Any]) -> Run:
    history = {name: _numbers(values) for name, values in raw["history"].items()}
    steps = max(float(history["step"][-1]), 1.0)
    agents = cost["agents"]
    price = {
        "steps": 1.0,
        "gradients": cost["gradients"] * agents,
        "products": cost["products"] * agents,
        "work": cost["work"] * agents,
        "bytes": cost["bytes"] * cost["links"],
        "seconds": raw["seconds"] / steps,
    }
    return Run(int(raw["seed"]), str(raw["status"]), history, price)


def _numbers(values: Iterable[float | None]) -> np.ndarray:
    """JSON has no infinity: what was not finite is infinitely bad."""
    return np.array([np.inf if value is None else value for value in values], dtype=float)


def read_all(out: Path) -> list[Cell]:
    """All cells of a folder, in the order of their names; files that are not whole are left out."""
    cells = []
    for path in sorted((out / "cells").glob("*.json")):
        try:
            cells.append(read_cell(path))
        except (CorruptedFileError, InputError):
            continue
    return cells


def write_tables(out: Path, cells: Iterable[Cell]) -> list[Path]:
    """runs.csv, settings.csv and tried.csv; runs.parquet too if pyarrow is installed."""
    cells = list(cells)
    runs = _columns(list(_rows(cells)))
    written = [
        atomic_write(out / "runs.csv", to_csv(runs)),
        atomic_write(out / "settings.csv", to_csv(_columns([_setting(cell) for cell in cells]))),
        atomic_write(
            out / "tried.csv", to_csv(_columns([row for cell in cells for row in _tried(cell)]))
        ),
    ]
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return written
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(runs), sink)
    return [*written, atomic_write(out / "runs.parquet", sink.getvalue().to_pybytes())]


def _rows(cells: Iterable[Cell]) -> Iterator[dict[str, object]]:
    for cell in cells:
        for run in cell.runs:
            for k, step in enumerate(run.history["step"]):
                spent = {axis: step * run.price[axis] for axis in AXES}
                values = {
                    name: float(run.history[name][k]) if name in run.history else np.nan
                    for name in MEASURES
                }
                names = {"task": cell.task, "network": cell.network, "method": cell.method}
                yield {**names, "seed": run.seed, "status": run.status, **spent, **values}


def _setting(cell: Cell) -> dict[str, object]:
    ended = [run.status for run in cell.runs]
    return {
        "task": cell.task,
        "network": cell.network,
        "method": cell.method,
        "settings": shown(cell.settings),
        "tried": len(cell.tried),
        "notes": "; ".join(cell.notes),
        "ended": ", ".join(f"{ended.count(status)} {status}" for status in dict.fromkeys(ended)),
        "copies of (x, y)": cell.cost["state"],
        "seconds": cell.seconds,
    }


def _tried(cell: Cell) -> Iterator[dict[str, object]]:
    for row in cell.tried:
        settings = shown({name: value for name, value in row.items() if name != "score"})
        names = {"task": cell.task, "network": cell.network, "method": cell.method}
        yield {**names, "settings": settings, "score": row["score"]}


def shown(settings: Mapping[str, float]) -> str:
    """Settings in a table."""
    return ", ".join(f"{name}={value:.4g}" for name, value in settings.items())


def _columns(rows: list[dict[str, object]]) -> dict[str, list[object]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
