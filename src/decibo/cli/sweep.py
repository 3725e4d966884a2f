"""decibo sweep: one method with many settings at once."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from decibo.cli import config as configuration
from decibo.cli import exits, processes
from decibo.cli import terminal as show
from decibo.cli.build import build, precision, solving
from decibo.cli.config import Config
from decibo.cli.run import OUT
from decibo.errors import InputError
from decibo.sweep.sweep import sweep as swept

SHOWN = 30  # rows of the table on the terminal; the file has all


def sweep(path: Path, sets: Iterable[str], grid: Iterable[str], out: Path | None, as_json: bool) -> int:
    """Run the whole grid, write its table, and name the best."""
    from decibo.files import atomic_write_all
    from decibo.runs.describe import to_toml

    processes.begin()
    config = configuration.read(path, sets, grid=grid)
    if not config.grid and config.seeds is None:
        raise InputError(f"{path}", "it names nothing to sweep", "Give -g alpha=0.05,0.1 or a table [sweep].")
    folder = _target(out or OUT / f"{path.stem}-sweep")
    config = _complete(config)
    with precision(config), processes.interruptible():
        parts, config = build(config)
        told = solving(config)
        known: dict[str, Any] = {name: told[name] for name in ("steps", "every", "measures", "start")}
        seeds = list(config.seeds) if config.seeds is not None else [config.run.seed]
        view = None if processes.first() else False
        found = swept(*parts, config.grid, seeds=seeds, progress=view, **known)
        rows = [dict(row) for row in found.table]
    measure = next((name for name in show.ordered(found.history) if name in rows[0]), None)
    best = dict(found.best(measure)) if measure and any(row["status"] == "done" for row in rows) else {}
    if processes.first():
        folder.mkdir(parents=True, exist_ok=True)
        kept = configuration.resolved(config) | {"sweep": config.grid | {"seeds": seeds}}
        atomic_write_all(folder, {"config.toml": to_toml(kept), "sweep.csv": _csv(rows)})
        _tell(rows, measure, best, folder, path, as_json)
    ends = {row["status"] for row in rows}
    return exits.INTERRUPTED if "interrupted" in ends else exits.DIVERGED if ends == {"diverged"} else exits.RAN


def _complete(config: Config) -> Config:
    """The method with the first value of every setting that it has none of: the sweep gives all of them."""
    return replace(config, method=config.method.told(**{name: values[0] for name, values in config.grid.items()}))


def _target(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}", "it is a file", "Choose another folder with --out.")
    return folder


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _tell(rows: list[dict], measure: str | None, best: dict, folder: Path, path: Path, as_json: bool) -> None:
    if as_json:
        return show.as_json({"rows": rows, "measure": measure, "best": best, "folder": str(folder)})
    names = _columns(rows)
    show.table(names, [[row[name] for name in names] for row in rows[:SHOWN]], left=0)
    if len(rows) > SHOWN:
        show.say(f"... and {len(rows) - SHOWN} more, in {show.path_of(folder)}/sweep.csv")
    show.say(f"Written to {show.path_of(folder)}")
    if best:
        told = [f"{name}={_written(value)}" for name, value in best.items()]
        sets = " ".join(f"--set method.{each}" for each in told)
        show.say(f"Least {measure}: {', '.join(told)}", f"Next: decibo run {path} {sets}".rstrip())
    return None


def _written(value: Any) -> str:
    """As --set reads it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _columns(rows: list[dict]) -> list[str]:
    """Settings, status, and as many measures as fit."""
    names = list(rows[0])
    at = names.index("status") + 1
    return names[:at] + show.ordered(names[at:])[:3]
