"""Results on disk: one JSON file for each method x task x network, and all of them as tables.

    OUT/results/TASK--NETWORK--METHOD.json   settings, everything that was tried, and the judged
                                             runs of all seeds
    OUT/runs.csv, runs.parquet               a row for every record of every judged run, with what
                                             it had cost by then (Parquet needs pyarrow)
    OUT/settings.csv                         the tuned settings, how they were found, and how the
                                             runs ended
    OUT/tried.csv                            every setting that any search tried, with its score

A file is written as a whole or not at all, with a checksum of what was asked for: a benchmark that
was killed computes what is missing, and one that asks for something else computes its own results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from decibo.errors import CorruptedFileError, InputError
from decibo.files import atomic_write, encode, read_checked, sha256
from decibo.formatting import to_csv, to_json
from studies.bench.tasks import TASKS, Task

FORMAT = 2
MEASURES = ("stationarity", "phi", "gap", "inner_error", "consensus", "accuracy")
UNITS = {
    "steps": "steps",
    "gradients": "gradients of all agents",
    "products": "products with second derivatives",
    "work": "gradient-equivalents of all agents",
    "bytes": "bytes over all links",
    "seconds": "seconds of steps",
}
AXES = tuple(UNITS)


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
class Result:
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
    def scenario(self) -> tuple[str, str]:
        """The task and the network."""
        return self.task, self.network

    @property
    def rule(self) -> Task:
        """The task, which says what is judged."""
        return TASKS[self.task]


def key_of(parts: Mapping[str, object]) -> str:
    """A checksum of what was asked for."""
    return sha256(encode(json.dumps(to_json(parts), sort_keys=True)))[:16]


def computed_once(
    path: Path, asked: Mapping[str, object], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What `compute` returned for this key: from the file, or computed and written to it."""
    key = key_of(asked)
    try:
        raw = json.loads(read_checked(path))
        if raw["key"] == key:
            return raw
    except (CorruptedFileError, ValueError, TypeError, KeyError):
        pass
    found = {"key": key, **to_json(compute())}
    atomic_write(path, json.dumps(found, indent=1) + "\n")
    return found


def path_of(out: Path, task: str, network: str, method: str) -> Path:
    """The file of a result."""
    name = "--".join(re.sub(r"[^\w.-]+", "_", part) for part in (task, network, method))
    return out / "results" / f"{name}.json"


def write_result(out: Path, result: Mapping[str, Any]) -> Path:
    """Write a result, as a whole or not at all."""
    path = path_of(out, result["task"], result["network"], result["method"])

    def short(name: str, values: Any) -> list[float]:
        # Six digits halve the files of a large benchmark; Phi is judged by differences.
        return [float(f"{value:.{12 if name == 'phi' else 6}g}") for value in np.asarray(values)]

    runs = [
        {**run, "history": {name: short(name, row) for name, row in run["history"].items()}}
        for run in result["runs"]
    ]
    whole = to_json({"format": FORMAT, **result, "runs": runs})
    return atomic_write(path, json.dumps(whole, separators=(",", ":")) + "\n")


def finished(out: Path, task: str, network: str, method: str, key: str) -> bool:
    """Whether the result is there and answers the same request."""
    try:
        return read_result(path_of(out, task, network, method)).key == key
    except (CorruptedFileError, InputError):
        return False


def read_result(path: Path) -> Result:
    """A result from its file."""
    try:
        raw = json.loads(read_checked(path))
        if raw["format"] != FORMAT or raw["task"] not in TASKS:
            raise InputError(
                f"{path} was written by another version of the benchmark.", "Choose another folder."
            )
        runs = tuple(_run(raw["cost"], each) for each in raw["runs"])
        # JSON has no infinity: what was not finite is infinitely bad
        tried = [row | {"score": _numbers([row["score"]])[0]} for row in raw["tried"]]
        names = ("task", "network", "method", "settings", "notes", "cost", "seconds", "key", "made")
        return Result(runs=runs, tried=tried, **{name: raw[name] for name in names})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptedFileError(f"{path} is not a result of a benchmark: {error}.") from error


def _run(cost: Mapping[str, float], raw: Mapping[str, Any]) -> Run:
    history = {name: _numbers(values) for name, values in raw["history"].items()}
    price = {name: cost[name] * cost["agents"] for name in ("gradients", "products", "work")}
    price |= {"steps": 1.0, "bytes": cost["bytes"] * cost["links"]}
    price["seconds"] = raw["seconds"] / max(float(history["step"][-1]), 1.0)
    return Run(int(raw["seed"]), str(raw["status"]), history, price)


def _numbers(values: Iterable[float | None]) -> np.ndarray:
    return np.array([np.inf if value is None else value for value in values], dtype=float)


def read_all(out: Path) -> list[Result]:
    """All results of a folder, in the order of their names; incomplete files are left out."""
    found = []
    for path in sorted((out / "results").glob("*.json")):
        try:
            found.append(read_result(path))
        except (CorruptedFileError, InputError):
            continue
    return found


def write_tables(out: Path, results: Iterable[Result]) -> list[Path]:
    """runs.csv, settings.csv and tried.csv; runs.parquet too if pyarrow is installed."""
    results = list(results)
    columns = lambda rows: {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    runs = columns([row for result in results for row in _records(result)])
    tables = {
        "runs": runs,
        "settings": columns([_setting(result) for result in results]),
        "tried": columns([row for result in results for row in _tried(result)]),
    }
    written = [atomic_write(out / f"{name}.csv", to_csv(rows)) for name, rows in tables.items()]
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return written
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(runs), sink)
    return [*written, atomic_write(out / "runs.parquet", sink.getvalue().to_pybytes())]


def _names(result: Result) -> dict[str, object]:
    return {"task": result.task, "network": result.network, "method": result.method}


def _records(result: Result) -> Iterator[dict[str, object]]:
    for run in result.runs:
        for k, step in enumerate(run.history["step"]):
            spent = {axis: step * run.price[axis] for axis in AXES}
            found = {
                name: float(run.history[name][k]) if name in run.history else np.nan
                for name in MEASURES
            }
            yield {**_names(result), "seed": run.seed, "status": run.status, **spent, **found}


def _setting(result: Result) -> dict[str, object]:
    ended = [run.status for run in result.runs]
    return {
        **_names(result),
        "settings": shown(result.settings),
        "tried": len(result.tried),
        "notes": "; ".join(result.notes),
        "ended": ", ".join(f"{ended.count(status)} {status}" for status in dict.fromkeys(ended)),
        "copies of (x, y)": result.cost["state"],
        "seconds": result.seconds,
    }


def _tried(result: Result) -> Iterator[dict[str, object]]:
    for row in result.tried:
        settings = shown({name: value for name, value in row.items() if name != "score"})
        yield {**_names(result), "settings": settings, "score": row["score"]}


def shown(settings: Mapping[str, float]) -> str:
    """Settings in a table."""
    return ", ".join(f"{name}={value:.4g}" for name, value in settings.items())
