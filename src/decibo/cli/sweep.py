"""decibo sweep: one method with many settings at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.script import Script, fitted, grid_of, opened
from decibo.cli.solving import OUT, is_first, judged, live_view, seed_list, typed, write_code
from decibo.errors import InputError, short
from decibo.files import (
    atomic_write_all,
    check_writable,
    encode,
    encode_record,
    read_record,
    sha256,
)
from decibo.formatting import MINUS, format_setting, to_csv
from decibo.problem.problem import Problem
from decibo.report.group import with_spread
from decibo.run.repeat import sharing, spread
from decibo.run.solution import Status
from decibo.run.sweep import Sweep, joined

RECORD = "sweep.json"
LONGEST = 30  # rows of the table on the terminal; the file has all


def sweep(
    path: Path,
    grid: Sequence[str] | None,
    method: str | None,
    steps: int | None,
    seeds: str | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Run all combinations, write the table, and name the best."""
    with opened(path) as script:
        script = script.changed(steps=steps, seeds=seed_list(seeds))
        choice = script.choose(method)
        varied = grid_of(script, choice.method, grid or ())
        if not varied and script.settings.seeds is None:
            raise InputError(
                f"{path} does not tell what to sweep.",
                "Add -g alpha=0.05,0.1, or grid = {...} in the file.",
            )
        folder = out or OUT / f"{path.stem}-sweep"
        _check_target(folder)
        result = _run(script, choice.method, varied)
        rows = result.table
        measure = next((name for name in terminal.ordered(result.history) if name in rows[0]), None)
        # None if no setting gave an answer with every seed, which the table shows.
        best: dict[str, object] = {}
        with suppress(InputError):
            best = dict(result.best(measure)) if measure is not None else {}
        if is_first():
            # The code, and checksums of all files, by which a later sweep knows them.
            table = to_csv({name: [row[name] for row in rows] for name in rows[0]})
            code = script.code()
            sums = {f"code/{name}": sha256(content) for name, content in code.items()}
            record = {"files": sums | {"sweep.csv": sha256(encode(table))}}
            folder.mkdir(parents=True, exist_ok=True)
            write_code(folder / "code", code)
            contents = {RECORD: encode_record("decibo sweep", 1, record), "sweep.csv": table}
            atomic_write_all(folder, contents)

            place = terminal.path_of(folder)
            if as_json:
                terminal.print_json(
                    {"rows": rows, "measure": measure, "best": best, "folder": str(folder)}
                )
            else:
                _show(result)
                terminal.say(f"Written to {place}, a row for each run in sweep.csv")
            if best and not as_json:
                changed = ", ".join(f"{name}={format_setting(v)}" for name, v in best.items())
                mean = f" in the mean of {len(script.seeds)} seeds" if len(script.seeds) > 1 else ""
                command = typed(script, choice.spec_with(best))
                terminal.say(f"Least {measure}{mean}: {changed}", f"Next: decibo run {command}")
    if Status.interrupted in result.status:
        return Exit.INTERRUPTED
    return Exit.RAN if any(status.sound for status in result.status) else Exit.DIVERGED


def _show(result: Sweep) -> None:
    """A line for each setting, the best first: how its runs ended, and as many measures as fit."""
    settings = list(result.settings[0])
    scalars = [name for name, row in result.history.items() if row.ndim == 2]
    names = terminal.ordered(scalars)[:3]
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in result.table:
        runs.setdefault(repr([row[name] for name in settings]), []).append(row)
    lines = []
    for same in runs.values():
        sound = [Status(row["status"]).sound for row in same]
        ends = [spread([row[name] for row in same], sound) for name in names]
        counts = Counter(row["status"] for row in same).items()
        several = len(same) > 1
        ended = ", ".join(f"{count} {status}" if several else status for status, count in counts)
        shown = [same[0][name] for name in names]
        if several:
            shown = [with_spread(end).replace(MINUS, "-") for end in ends]
        rank = (sum(sound) < len(sound), *(end.mean if end.count else np.inf for end in ends[:1]))
        chosen = [format_setting(same[0][name]) for name in settings]
        lines.append((rank, [*chosen, ended, *shown]))
    lines.sort(key=lambda line: line[0])
    terminal.table([*settings, "ended", *names], [cells for _, cells in lines[:LONGEST]], left=0)
    if len(lines) > LONGEST:
        terminal.say(f"... and {len(lines) - LONGEST} more")


def _run(script: Script, method: decibo.Algorithm, grid: Mapping[str, list]) -> Sweep:
    """All seeds in one program if they change nothing but what is drawn during a run, otherwise one
    sweep for each."""
    seeds = [script.settings.seed if seed is None else seed for seed in script.seeds]
    together = "make_problem" not in script.names and "make_network" not in script.names
    results: list[Sweep] = []
    first: Problem | None = None
    for group in [seeds] if together else [[seed] for seed in seeds]:
        problem, network = script.build(group[0])
        problem = problem if first is None else sharing(problem, first)
        script = script if first else judged(script, problem)
        first = first or problem
        # A sweep has neither targets nor a choice of memory, and passes each seed to `start`.
        options = script.arguments(group[0])
        shared = {
            name: options[name] for name in options if name not in ("until", "seed", "memory")
        }
        shared["start"] = script.settings.start
        results.append(
            decibo.sweep(
                *fitted(problem, network, method), grid, seeds=group, progress=live_view(), **shared
            )
        )
        if Status.interrupted in results[-1].status:
            break
    return joined(results) if len(results) > 1 else results[0]


def _check_target(folder: Path) -> None:
    """A sweep may be written to a new or empty folder, or replace an older sweep whose files nobody
    has changed."""
    check_writable(folder)
    there = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not any(part[0] == "." for part in path.relative_to(folder).parts)
    }
    try:
        sums = read_record(folder / RECORD, "decibo sweep", 1, 1 << 20)["files"]
        own = {RECORD, *(name for name in there & set(sums) if sums[name] == sha256(folder / name))}
    except (OSError, InputError, KeyError):
        own = set()
    ours = {name for name in there if name in (RECORD, "sweep.csv") or name.startswith("code/")}
    strangers = sorted((ours if own else there) - own)
    if strangers:
        raise InputError(
            f"A sweep cannot be written to {folder}: it holds {short(strangers[0])!r}, which is not"
            " of a sweep or was changed since.",
            "Choose a new or empty folder with --out.",
        )
