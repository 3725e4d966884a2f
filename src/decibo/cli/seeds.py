"""Several seeds: what a seed changes in a configuration, the runs of all methods with all seeds,
and their summary.

A seed s is run.seed, from which methods, failing links and random starts draw. It is also the
option `seed` of the problem, of its data set and of the network, wherever there is one that the
configuration does not set itself.

Seeds are the outer loop: whoever stops early has all methods with the first seeds. Every run is
written as soon as it ends; a run that is complete, with the same configuration and versions, is
kept if that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from decibo.cli import terminal
from decibo.cli.config import Config, Parts, build, resolved, with_method
from decibo.cli.errors import Exit
from decibo.cli.registry import Choice, Table
from decibo.cli.solving import code_of, solve_into
from decibo.errors import CorruptedFileError, InputError
from decibo.files import encode, sha256
from decibo.formatting import MINUS, format_seconds, listed, plural
from decibo.parallel.processes import check_same
from decibo.report.group import Group, grouped, with_spread
from decibo.report.summary import last_value
from decibo.run import checkpoint_files
from decibo.run.fingerprint import software
from decibo.run.repeat import sharing
from decibo.run.seeds import seed_numbers
from decibo.run.solution import Status
from decibo.runs.folder import RunRecord, check_target, read_run, seed_folder, to_toml


def seeds_of(config: Config) -> list[int | None]:
    """The seeds of [run].seeds; one that changes nothing if there are none."""
    run = config.run
    return [None] if run.seeds is None else list(seed_numbers(run.seeds, run.seed))


def at_seed(config: Config, seed: int | None) -> Config:
    """The configuration of the run with this seed."""
    if seed is None:
        return config
    network = (
        None
        if config.network is None
        else config.network.changed(lambda choice: _seeded(choice, seed))
    )
    run = replace(config.run, seed=seed, seeds=None)
    return replace(config, problem=_seeded(config.problem, seed), network=network, run=run)


def _seeded(choice: Choice, seed: int) -> Choice:
    """The choice with this seed, and so with what it is made of, where no other one was set."""
    inner = {
        name: _seeded(value, seed) if isinstance(value, Choice) else value
        for name, value in choice.options.items()
    }
    choice = replace(choice, options=inner)
    return choice.with_defaults(seed=seed) if "seed" in choice.parameters else choice


def changes(config: Config) -> tuple[list[str], list[str]]:
    """The keys that a seed changes, and those that it leaves alone since the configuration sets
    them."""
    changed: list[str] = []
    fixed: list[str] = []
    networks = [] if config.network is None else config.network.choices
    for name, choice in [("problem", config.problem), *networks]:
        for key, part in _parts(name, choice):
            (fixed if "seed" in part.options else changed).append(f"{key}.seed")
    if config.run.start:
        (fixed if "seed" in config.run.start else changed).append("run.start.seed")
    return [*changed, "run.seed"], fixed


def _parts(name: str, choice: Choice) -> list[tuple[str, Choice]]:
    """A choice and the choices in it that have a seed, with their keys."""
    inner = [
        part
        for key, value in choice.options.items()
        if isinstance(value, Choice)
        for part in _parts(f"{name}.{key}", value)
    ]
    return ([(name, choice)] if "seed" in choice.parameters else []) + inner


@dataclass(frozen=True)
class Done:
    """What ran, or was kept: the folders in order, how many were kept, and how the command ends."""

    config: Config
    seeds: list[int | None]
    folders: list[Path]
    kept: int
    exit: Exit


class Task(NamedTuple):
    """A method, what tables call it, and where its run or the folders of its seeds go."""

    label: str | None
    choice: Choice
    folder: Path


def solve_all(
    config: Config, tasks: Sequence[Task], checkpoint: bool = False, resumed: bool = False
) -> Done:
    """Every method with every seed, each into its folder; all methods are checked before the first
    one runs."""
    seeds = seeds_of(config)
    for task in tasks:
        if seeds != [None] and (task.folder / "run.json").exists():
            raise InputError(
                f"{task.folder} is the folder of a single run, and cannot hold those of several"
                " seeds.",
                "Choose a new or empty folder with --out.",
            )
        for seed in seeds:
            check_target(_place(task, seed), resume=resumed)
    folders: list[Path] = []
    kept = 0
    codes = [Exit.RAN]
    first: Parts | None = None
    for seed in seeds:
        parts, full = build(replace(at_seed(config, seed), method=tasks[0].choice))
        parts = (
            parts
            if first is None
            else parts._replace(problem=sharing(parts.problem, first.problem))
        )
        first = first or parts
        made = [with_method(parts, full, task.choice) for task in tasks]
        for task, (each, its) in zip(tasks, made, strict=True):
            folder = _place(task, seed)
            status = _finished(folder, its) if resumed else None
            kept += status is not None
            if jax.process_count() > 1:
                check_same({"what is kept of earlier runs": status})
            if status is None:
                continued = (
                    resumed and checkpoint and bool(checkpoint_files.steps(folder / "checkpoint"))
                )
                setting = None if seed is None else _setting(config, its, task.label)
                options = {"checkpoint": checkpoint, "continued": continued}
                status = solve_into(
                    folder, each, its, label=task.label, setting=setting, **options
                ).status
            folders.append(folder)
            codes.append(code_of(status))
            if status is Status.interrupted:
                return Done(config, seeds, folders, kept, max(codes))
    return Done(config, seeds, folders, kept, max(codes))


def _place(task: Task, seed: int | None) -> Path:
    return task.folder if seed is None else task.folder / seed_folder(seed)


def _finished(folder: Path, config: Config) -> Status | None:
    """How the run in this folder ended, if it is complete and was made from this configuration by
    these versions."""
    try:
        record = read_run(folder)
    except (InputError, CorruptedFileError):
        return None
    same = (
        record.config == to_toml(resolved(config)) and software().items() <= record.versions.items()
    )
    return Status(record.status) if same and record.status != Status.interrupted else None


def _setting(config: Config, run: Config, label: str | None) -> str:
    """What the runs of all seeds have in common, as a checksum."""
    tables = resolved(run)
    for key in changes(config)[0]:
        tables = _without(tables, key.split("."))
    return sha256(encode(f"{label}\n{to_toml(tables)}"))


def _without(table: Table, key: list[str]) -> Table:
    """The table without this key, which may be one of a table inside."""
    inner = table.get(key[0])
    if len(key) > 1:
        return table | ({key[0]: _without(inner, key[1:])} if isinstance(inner, dict) else {})
    return {name: value for name, value in table.items() if name != key[0]}


# What is shown


def show_seeds(done: Done, folder: Path, as_json: bool) -> None:
    """The methods with the mean and the deviation over the seeds, how they ended, and what a seed
    changed."""
    records = [read_run(each) for each in done.folders]
    groups = grouped(records)
    changed, fixed = changes(done.config)
    if as_json:
        settings = [_group_as_dict(group) for group in groups]
        runs = [_run_as_dict(record) for record in records]
        told = {"seeds": done.seeds, "changed": changed, "fixed": fixed, "kept": done.kept}
        terminal.print_json(told | {"settings": settings, "runs": runs, "folder": str(folder)})
        return
    _table(groups)
    if done.seeds != [None]:
        stays = (
            f" {listed(fixed)} {'stays' if len(fixed) == 1 else 'stay'} as the configuration says."
            if fixed
            else ""
        )
        terminal.say(
            f"{plural(len(done.seeds), 'seed')}: {groups[0].seeds}. A seed sets"
            f" {listed(changed)}.{stays}"
        )
    for group in groups:
        if group.several and _all_equal(group):
            terminal.say(
                f"{group.label}: all seeds gave the same numbers, so nothing in these runs depends"
                " on the seed."
            )
    if done.kept:
        terminal.say(
            f"{plural(done.kept, 'run')} of {len(done.folders)} had been made before and stayed."
        )
    for record in records:
        if not record.sound:
            terminal.say(f"{record.label}, seed {record.seed}: {record.message}")
    others = _other_runs(folder, done.folders)
    if others:
        other = others[0].relative_to(folder)
        terminal.say(
            f"The folder also holds {other}, of an earlier command: a report of the folder shows"
            " it, too."
        )
    place = terminal.path_of(folder)
    following = f"decibo report {place} --figures --latex"
    if done.exit is Exit.INTERRUPTED:
        following = "the same command with --resume, which keeps what is complete"
    terminal.say(f"Written to {place}", f"Next: {following}")


def _all_equal(group: Group) -> bool:
    ends = [[last_value(run, name) for name in group.measures] for run in group.runs]
    return all(end == ends[0] for end in ends)


def _table(groups: list[Group]) -> None:
    """A line for each method, with the measure that is looked for first; others are named below."""
    names = terminal.ordered(dict.fromkeys(name for group in groups for name in group.measures))
    shared = [name for name in names if all(name in group.measures for group in groups)][:1]
    rows = []
    for group in groups:
        totals = [run.cost["work"] * run.cost["agents"] * run.steps for run in group.runs]
        rows.append(
            (
                group.label.replace(",", ", ").replace(",  ", ", "),
                group.ended,
                *(with_spread(group.end(name)).replace(MINUS, "-") for name in shared),
                f"{float(np.mean(totals)):.1e}",
                format_seconds(float(np.mean([run.seconds for run in group.runs]))),
            )
        )
    terminal.table(("method", "ended", *shared, "work", "time"), rows, left=2)
    others = [name for name in names if name not in shared]
    if others:
        terminal.say(
            f"Also recorded: {', '.join(others)}. --json prints them, and a report shows them."
        )


def _group_as_dict(group: Group) -> dict[str, object]:
    measures = {}
    for name in group.measures:
        end = group.end(name)
        curve = group.band(name)
        last = (
            {"median": curve.median[-1], "low": curve.low[-1], "high": curve.high[-1]}
            if len(curve.step)
            else {}
        )
        measures[name] = {
            "mean": end.mean,
            "deviation": end.deviation,
            "count": end.count,
            "of": end.of,
            **last,
        }
    statuses = [run.status for run in group.runs]
    return {
        "label": group.label,
        "seeds": [run.seed for run in group.runs],
        "ended": {status: statuses.count(status) for status in dict.fromkeys(statuses)},
        "measures": measures,
    }


def _run_as_dict(record: RunRecord) -> dict[str, object]:
    return {
        "label": record.label,
        "seed": record.seed,
        "status": record.status,
        "message": record.message,
        "steps": record.steps,
        "seconds": record.seconds,
        "method": record.method["text"],
        "last": {name: last_value(record, name) for name in record.measures},
        "cost": record.cost,
        "folder": str(record.folder),
    }


def _other_runs(folder: Path, own: list[Path]) -> list[Path]:
    """Runs in this folder that are not of this command."""
    found = [path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/run.json")]
    return sorted(set(found) - set(own))
