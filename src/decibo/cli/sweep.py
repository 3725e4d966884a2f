"""decibo sweep: one method with many settings at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import decibo
from decibo.cli import terminal
from decibo.cli.config import Config, Parts, build, precision, read, resolved, solve_arguments
from decibo.cli.errors import Exit
from decibo.cli.registry import Table
from decibo.cli.seeds import at_seed
from decibo.cli.solving import OUT, interruptible, is_first, judged, live_view
from decibo.cli.trust import trust_for
from decibo.errors import InputError, short
from decibo.files import atomic_write_all, check_writable, encode, read_file, sha256
from decibo.formatting import to_csv
from decibo.run.repeat import sharing
from decibo.run.seeds import seed_numbers
from decibo.run.solution import Status
from decibo.run.sweep_result import Sweep, joined
from decibo.runs.folder import to_toml

RECORD = "sweep.json"
FILES = {RECORD, "config.toml", "sweep.csv"}
LONGEST = 30  # rows of the table on the terminal; the file has all

Row = Mapping[str, object]


def sweep(
    path: Path,
    sets: Iterable[str],
    grid: Iterable[str],
    out: Path | None,
    trusted: Iterable[str],
    as_json: bool,
) -> Exit:
    """Run the whole grid, write its table, and name the best."""
    config = read(path, sets, grid=grid, trust=trust_for(path, trusted, as_json))
    if not config.grid and config.seeds is None and config.run.seeds is None:
        raise InputError(
            f"{path} does not say what to sweep.", "Add -g alpha=0.05,0.1, or a table [sweep]."
        )
    folder = out or OUT / f"{path.stem}-sweep"
    _check_target(folder)
    config = _complete(config)
    with precision(config), interruptible():
        result, stored = _run(config)
        rows = [dict(row) for row in result.table]
    measure = next((name for name in terminal.ordered(result.history) if name in rows[0]), None)
    best = _best(result, measure)
    if is_first():
        _write(
            folder, to_toml(stored), to_csv({name: [row[name] for row in rows] for name in rows[0]})
        )
        if as_json:
            terminal.print_json(
                {"rows": rows, "measure": measure, "best": best, "folder": str(folder)}
            )
        else:
            _show(
                rows,
                measure,
                best,
                folder,
                f"{terminal.path_of(path)}{terminal.as_typed(sets, trusted)}",
            )
    return _exit(rows)


def _run(config: Config) -> tuple[Sweep, Table]:
    """The runs, and the configuration that repeats them.

    Seeds of [sweep] change what a method and its network draw, on the same data; those of [run]
    change all that a seed changes in other commands.
    """
    if config.seeds is not None or config.run.seeds is None:
        seeds = [config.run.seed] if config.seeds is None else list(config.seeds)
        parts, full = build(config)
        full = judged(full, parts.problem)
        result = decibo.sweep(
            *parts, config.grid, seeds=seeds, progress=live_view(), **_arguments(full)
        )
        return result, resolved(full) | {"sweep": config.grid | {"seeds": seeds}}
    results: list[Sweep] = []
    first: Parts | None = None
    for seed in seed_numbers(config.run.seeds, config.run.seed):
        parts, full = build(at_seed(config, seed))
        parts = (
            parts
            if first is None
            else parts._replace(problem=sharing(parts.problem, first.problem))
        )
        config = config if first else judged(config, parts.problem)
        full = replace(full, run=replace(full.run, measures=config.run.measures))
        first = first or parts
        results.append(
            decibo.sweep(
                *parts, config.grid, seeds=[seed], progress=live_view(), **_arguments(full)
            )
        )
        if Status.interrupted in results[-1].status:
            break
    return joined(results), resolved(config) | {"sweep": config.grid}


def _arguments(config: Config) -> dict[str, Any]:
    """Those of solve that a sweep has, too."""
    return {
        name: value
        for name, value in solve_arguments(config).items()
        if name not in ("until", "seed")
    }


def _check_target(folder: Path) -> None:
    """A sweep may be written to a new or empty folder, or replace an older sweep whose files nobody
    has changed."""
    check_writable(folder)
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    try:
        sums = json.loads(read_file(folder / RECORD, 1 << 20))["files"]
        own = {RECORD, *(name for name in names & set(sums) if sums[name] == sha256(folder / name))}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        own = set()
    strangers = sorted(name for name in (names & FILES if own else names) - own if name[0] != ".")
    if strangers:
        raise InputError(
            f"A sweep cannot be written to {folder}: it holds {short(strangers[0])!r}, which is not"
            " of a sweep or was changed since.",
            "Choose a new or empty folder with --out.",
        )


def _write(folder: Path, config: str, table: str) -> None:
    """The table, its configuration, and sweep.json with their checksums, by which a later sweep
    knows them."""
    contents = {"config.toml": config, "sweep.csv": table}
    record = {
        "kind": "decibo sweep",
        "files": {name: sha256(encode(text)) for name, text in contents.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_all(folder, {RECORD: json.dumps(record, indent=1) + "\n", **contents})


def _complete(config: Config) -> Config:
    """The method with the first value of every swept setting, since it cannot be made without."""
    first = {name: values[0] for name, values in config.grid.items()}
    return replace(config, method=config.method.with_defaults(**first))


def _best(result: decibo.Sweep, measure: str | None) -> dict[str, object]:
    """The best settings; none if no setting gave an answer with every seed, which the table
    shows."""
    if measure is None:
        return {}
    try:
        return dict(result.best(measure))
    except InputError:
        return {}


def _exit(rows: Sequence[Row]) -> Exit:
    statuses = [Status(str(row["status"])) for row in rows]
    if Status.interrupted in statuses:
        return Exit.INTERRUPTED
    return Exit.RAN if any(status.sound for status in statuses) else Exit.DIVERGED


def _show(rows: Sequence[Row], measure: str | None, best: Row, folder: Path, typed: str) -> None:
    names = _columns(rows)
    terminal.table(names, [[row[name] for name in names] for row in rows[:LONGEST]], left=0)
    place = terminal.path_of(folder)
    if len(rows) > LONGEST:
        terminal.say(f"... and {len(rows) - LONGEST} more, in {place}/sweep.csv")
    terminal.say(f"Written to {place}")
    if best:
        settings = [f"{name}={_written(value)}" for name, value in best.items()]
        sets = " ".join(f"--set method.{each}" for each in settings)
        terminal.say(
            f"Least {measure}: {', '.join(settings)}", f"Next: decibo run {typed} {sets}".rstrip()
        )


def _written(value: object) -> str:
    """As --set reads it."""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _columns(rows: Sequence[Row]) -> list[str]:
    """Settings, status, and as many measures as fit."""
    names = list(rows[0])
    count = names.index("status") + 1
    return names[:count] + terminal.ordered(names[count:])[:3]
