"""Interleaved timing: machines are shared and noisy, so only ratios of medians from one run mean
anything."""

from __future__ import annotations

import argparse
import operator
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax

os.environ["DECIBO_CACHE"] = "off"  # compilation is part of what is measured

TESTS = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio or a number, how far single measurements were from it, and
    what it should be."""

    group: str
    what: str
    value: float | None
    unit: str = "x"
    low: float | None = None
    high: float | None = None
    target: str = ""  # "<= 1.10", for instance
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if not self.target or self.value is None:
            return None
        sign, limit = self.target.split()
        return TESTS[sign](self.value, float(limit))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}

    def __str__(self) -> str:
        value = "-" if self.value is None else f"{self.value:.4g} {self.unit}"
        spread = "" if self.low is None or self.high is None else f"{self.low:.3g}-{self.high:.3g}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        cells = f"{self.what:<66}{value:>13}{spread:>14}{self.target:>9} {verdict:<7}{self.note}"
        return cells.rstrip()


def interleaved(
    candidates: dict[str, Callable[[], Any]], repeats: int = 15
) -> dict[str, list[float]]:
    """Seconds of each candidate, called in turn `repeats` times after one warm-up."""
    for candidate in candidates.values():
        jax.block_until_ready(candidate())
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, candidate in candidates.items():
            begun = time.perf_counter()
            jax.block_until_ready(candidate())
            times[name].append(time.perf_counter() - begun)
    return times


def ratio(
    group: str,
    what: str,
    over: list[float],
    under: list[float],
    target: str = "",
    note: str = "",
    unit: str = "x",
) -> Row:
    """The ratio of medians; its spread are the quartiles of the ratios of single, neighbouring
    measurements."""
    single = sorted(a / b for a, b in zip(over, under, strict=True))
    low = single[len(single) // 4]
    high = single[-1 - len(single) // 4]
    return Row(
        group,
        what,
        statistics.median(over) / statistics.median(under),
        unit,
        low,
        high,
        target,
        note,
    )


def per_step(long: list[float], short: list[float], steps: int) -> list[float]:
    """Seconds a step, what a run costs besides its steps (the median of runs of one step) taken
    off."""
    fixed = statistics.median(short)
    return [max(seconds - fixed, 1e-9) / (steps - 1) for seconds in long]


def milliseconds(group: str, what: str, seconds: list[float], note: str = "") -> Row:
    """A time, with its quartiles."""
    ordered = sorted(1e3 * value for value in seconds)
    low = ordered[len(ordered) // 4]
    high = ordered[-1 - len(ordered) // 4]
    return Row(group, what, statistics.median(ordered), "ms", low, high, note=note)


def print_rows(rows: Iterator[Row], quick: bool) -> list[dict[str, Any]]:
    """Print rows as they come, and return them; small sizes are not judged."""
    records = []
    for row in rows:
        row = replace(row, target="") if quick else row
        print(row, flush=True)
        records.append(row.as_dict())
    return records


def run_alone(
    rows: Callable[[bool], Iterator[Row]], part: Callable[[str, int], None] | None = None
) -> None:
    """The command line of a single part; `--part NAME NUMBER` is what it starts in processes of
    their own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if part and options.part:
        part(options.part[0], int(options.part[1]))
    else:
        print_rows(rows(options.quick), options.quick)
