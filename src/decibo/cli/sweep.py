"""decibo sweep: one method with many settings at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.config import Config, build, precision, read, resolved, solve_arguments
from decibo.cli.errors import Exit
from decibo.cli.run import OUT, interruptible, is_first, live_view
from decibo.errors import InputError
from decibo.files import atomic_write_all
from decibo.formatting import to_csv
from decibo.runs.folder import to_toml

LONGEST = 30  # rows of the table on the terminal; the file has all

Row = Mapping[str, object]


def sweep(path: Path, sets: Iterable[str], grid: Iterable[str], out: Path | None, as_json: bool) -> Exit:
    """Run the whole grid, write its table, and name the best."""
    config = read(path, sets, grid=grid)
    if not config.grid and config.seeds is None:
        raise InputError(f"{path} does not say what to sweep.", "Add -g alpha=0.05,0.1, or a table [sweep].")
    folder = out or OUT / f"{path.stem}-sweep"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder.", "Choose another folder with --out.")
    config = _complete(config)
    with precision(config), interruptible():
        parts, config = build(config)
        arguments = solve_arguments(config)
        del arguments["until"]
        del arguments["seed"]
        seeds = list(config.seeds) if config.seeds is not None else [config.run.seed]
        result = decibo.sweep(*parts, config.grid, seeds=seeds, progress=live_view(), **arguments)
        rows = [dict(row) for row in result.table]
    measure = next((name for name in terminal.ordered(result.history) if name in rows[0]), None)
    best = dict(result.best(measure)) if measure and any(row["status"] == "done" for row in rows) else {}
    if is_first():
        folder.mkdir(parents=True, exist_ok=True)
        stored = resolved(config) | {"sweep": config.grid | {"seeds": seeds}}
        columns = to_csv({name: [row[name] for row in rows] for name in rows[0]})
        atomic_write_all(folder, {"config.toml": to_toml(stored), "sweep.csv": columns})
        if as_json:
            terminal.print_json({"rows": rows, "measure": measure, "best": best, "folder": str(folder)})
        else:
            _show(rows, measure, best, folder, path)
    return _exit(rows)


def _complete(config: Config) -> Config:
    """The method with the first value of every swept setting, since it cannot be made without."""
    first = {name: values[0] for name, values in config.grid.items()}
    return replace(config, method=config.method.with_defaults(**first))


def _exit(rows: Sequence[Row]) -> Exit:
    statuses = {row["status"] for row in rows}
    if "interrupted" in statuses:
        return Exit.INTERRUPTED
    return Exit.DIVERGED if statuses == {"diverged"} else Exit.RAN


def _show(rows: Sequence[Row], measure: str | None, best: Row, folder: Path, path: Path) -> None:
    names = _columns(rows)
    terminal.table(names, [[row[name] for name in names] for row in rows[:LONGEST]], left=0)
    place = terminal.path_of(folder)
    if len(rows) > LONGEST:
        terminal.say(f"... and {len(rows) - LONGEST} more, in {place}/sweep.csv")
    terminal.say(f"Written to {place}")
    if best:
        settings = [f"{name}={_written(value)}" for name, value in best.items()]
        sets = " ".join(f"--set method.{each}" for each in settings)
        terminal.say(f"Least {measure}: {', '.join(settings)}", f"Next: decibo run {path} {sets}".rstrip())


def _written(value: object) -> str:
    """As --set reads it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _columns(rows: Sequence[Row]) -> list[str]:
    """Settings, status, and as many measures as fit."""
    names = list(rows[0])
    count = names.index("status") + 1
    return names[:count] + terminal.ordered(names[count:])[:3]
