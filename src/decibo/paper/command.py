"""decibo reproduce: check everything, run, write; nothing is left behind if it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decibo.errors import InputError
from decibo.paper import page, report, suite
from decibo.paper import plotting as figures
from decibo.paper.result import Progress, Result, Size
from decibo.report.figures import plotting

Watch = Callable[[str], AbstractContextManager[Progress]]  # a progress bar for an experiment's name


@dataclass(frozen=True)
class Done:
    """A result, where it was written and how long it took."""

    result: Result
    folder: Path
    seconds: float


def reproduce(
    name: str,
    out: Path,
    data: Path | None = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    docs: Path | None = None,
    watch: Watch,
) -> list[Done]:
    """Run one experiment or all; each is written as soon as it is done."""
    names, size = suite.chosen(name), Size(quick, seeds)
    if docs is not None and name != "all":
        raise InputError(f"--docs with {name}", "the page shows all experiments", "Use: decibo reproduce all --docs.")
    plotting()
    for folder in (out, *([docs] if docs is not None else [])):
        report.writable(folder)
    loaded = suite.load(names, data)
    done = [_one(each, loaded, size, out, watch) for each in names]
    if docs is not None:
        page.write(done, docs, quick)
    return done


def _one(name: str, loaded: dict, size: Size, out: Path, watch: Watch) -> Done:
    begun = time.perf_counter()
    with watch(name) as progress:
        result = suite.run(name, loaded, size, progress)
    folder = report.write(result, out, figures.draw)
    return Done(result, folder, time.perf_counter() - begun)


def as_json(done: Sequence[Done]) -> list[dict[str, Any]]:
    """What --json prints."""
    return [report.as_dict(one.result) | {"folder": str(one.folder), "seconds": one.seconds} for one in done]
