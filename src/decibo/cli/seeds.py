"""Several seeds: the runs of all methods with all seeds, and their summary.

A seed s is that of solve, from which methods, failing links and compression draw. It is also passed
to make_problem, make_network and start, where the file has such functions.

Seeds are the outer loop: after an early stop there are all methods with the first seeds. Every run
is written as soon as it ends; a run that is complete, with the same code, settings and versions, is
kept if that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.script import Choice, Script, fitted
from decibo.cli.solving import code_of, solve_into
from decibo.errors import CorruptedFileError, InputError
from decibo.files import encode, sha256
from decibo.formatting import MINUS, format_bytes, format_seconds, listed, plural, to_json
from decibo.parallel.processes import check_same
from decibo.problem.problem import Problem
from decibo.report.group import Group, grouped, with_spread
from decibo.report.summary import last_value
from decibo.run import checkpoint_files
from decibo.run.fingerprint import software
from decibo.run.outcome import STILL
from decibo.run.repeat import sharing
from decibo.run.solution import Solution, Status
from decibo.runs.folder import RunRecord, check_target, read_run, seed_folder


class Task(NamedTuple):
    """A method, what tables call it, and where its run or the folders of its seeds go."""

    label: str | None
    choice: Choice
    folder: Path


class FinishedRun(NamedTuple):
    """A run of a command; without a solution it had been made before."""

    label: str | None
    folder: Path
    solution: Solution | None


@dataclass(frozen=True)
class Done:
    """What ran, or was kept, in order, and how the command ends."""

    script: Script
    runs: list[FinishedRun]
    exit: Exit

    @property
    def kept(self) -> int:
        """How many runs had been made before."""
        return sum(run.solution is None for run in self.runs)


def solve_all(
    script: Script, tasks: Sequence[Task], checkpoint: bool = False, resumed: bool = False
) -> Done:
    """Every method with every seed, each into its folder; all methods are checked before the first
    one runs."""
    several = script.seeds != [None]
    for task in tasks:
        if several and (task.folder / "run.json").exists():
            raise InputError(
                f"{task.folder} is the folder of a single run, and cannot hold those of several"
                " seeds.",
                "Choose a new or empty folder with --out.",
            )
        for seed in script.seeds:
            check_target(_place(task, seed))
    runs: list[FinishedRun] = []
    codes = [Exit.RAN]
    first: Problem | None = None
    for seed in script.seeds:
        problem, network = script.build(seed)
        problem = problem if first is None else sharing(problem, first)
        first = first or problem
        made = [fitted(problem, network, task.choice.method) for task in tasks]
        for task, parts in zip(tasks, made, strict=True):
            folder = _place(task, seed)
            status = _finished(folder, script, task, seed) if resumed else None
            if jax.process_count() > 1:
                check_same({"what is kept of earlier runs": status})
            solution = None
            if status is None:
                begun = bool(checkpoint_files.steps(folder / "checkpoint"))
                solution = solve_into(
                    folder,
                    parts,
                    script,
                    task.choice,
                    seed=seed,
                    checkpoint=checkpoint,
                    continued=resumed and checkpoint and begun,
                    label=task.label,
                    setting=_setting(script, task) if several else None,
                )
                status = solution.status
            runs.append(FinishedRun(task.label, folder, solution))
            codes.append(code_of(status))
            if status is Status.interrupted:
                return Done(script, runs, max(codes))
    return Done(script, runs, max(codes))


def _place(task: Task, seed: int | None) -> Path:
    return task.folder if seed is None else task.folder / seed_folder(seed)


def _finished(folder: Path, script: Script, task: Task, seed: int | None) -> Status | None:
    """How the run in this folder ended, if it is complete and was made from this code with these
    settings by these versions."""
    try:
        record = read_run(folder)
    except (InputError, CorruptedFileError):
        return None
    code = {f"code/{name}": sha256(content) for name, content in script.code().items()}
    same = (
        record.config == to_json(script.resolved(task.choice, seed))
        and {name: sum for name, sum in record.files.items() if name.startswith("code/")} == code
        and software().items() <= record.versions.items()
    )
    return Status(record.status) if same and record.status != Status.interrupted else None


def _setting(script: Script, task: Task) -> str:
    """What the runs of all seeds have in common, as a checksum."""
    settings = script.resolved(task.choice, None)
    shared = {name: value for name, value in settings.items() if name not in ("seed", "start")}
    code = [sha256(content) for content in script.code().values()]
    return sha256(encode(f"{task.label}\n{shared}\n{code}"))


# What is shown


def show(done: Done, folder: Path, as_json: bool) -> None:
    """The methods with what they reached, how they ended, and what a seed changed."""
    records = [read_run(run.folder) for run in done.runs]
    groups = grouped(records)
    seeds = done.script.seeds
    varied, fixed = [*done.script.varied, "the seed of solve"], done.script.fixed
    if as_json:
        terminal.print_json(
            {
                "seeds": seeds,
                "changed": varied,
                "fixed": fixed,
                "kept": done.kept,
                "settings": [_group_as_dict(group) for group in groups],
                "runs": [_run_as_dict(record) for record in records],
                "folder": str(folder),
            }
        )
        return
    _table(groups)
    if seeds != [None]:
        stays = f" {listed(fixed)} {'is' if len(fixed) == 1 else 'are'} the same." if fixed else ""
        terminal.say(
            f"{plural(len(seeds), 'seed')}: {groups[0].seeds}. A seed sets {listed(varied)}.{stays}"
        )
    for group in groups:
        ends = [[last_value(run, name) for name in group.measures] for run in group.runs]
        if group.several and all(end == ends[0] for end in ends):
            terminal.say(
                f"{group.label}: all seeds gave the same numbers, so nothing in these runs depends"
                " on the seed."
            )
    if done.kept:
        terminal.say(
            f"{plural(done.kept, 'run')} of {len(done.runs)} had been made before and stayed."
        )
    for record in records:
        if not record.sound or (STILL in record.message and seeds == [None]):
            of = record.label if seeds == [None] else f"{record.label}, seed {record.seed}"
            terminal.say(f"{of}: {record.message}")
    own = {run.folder for run in done.runs}
    there = {path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/run.json")}
    if others := sorted(there - own):
        terminal.say(
            f"The folder also holds {others[0].relative_to(folder)}, of an earlier command:"
            " a report of the folder shows it, too."
        )
    place = terminal.path_of(folder)
    following = f"decibo report {place}{'' if seeds == [None] else ' --figures --latex'}"
    if done.exit is Exit.INTERRUPTED:
        following = "the same command with --resume, which keeps what is complete"
    terminal.say(f"Written to {place}", f"Next: {following}")


def _table(groups: list[Group]) -> None:
    """A line for each method, with the measures that are looked for first; others are named
    below."""
    several = any(group.several for group in groups)
    names = terminal.ordered(dict.fromkeys(name for group in groups for name in group.measures))
    shared = [name for name in names if all(name in group.measures for group in groups)]
    shared = shared[: 1 if several else 3 if shared[:3] == list(terminal.FIRST[:3]) else 2]
    rows = []
    for group in groups:
        work, sent = (
            float(np.mean([_totals(run)[f"{name}_total"] for run in group.runs]))
            for name in ("work", "bytes")
        )
        rows.append(
            (
                group.label.replace(",", ", ").replace(",  ", ", "),  # broken at spaces
                group.ended,
                *(
                    with_spread(group.end(name)).replace(MINUS, "-")
                    if several
                    else last_value(group.first, name)
                    for name in shared
                ),
                f"{work:.1e}",
                *([] if several else [format_bytes(sent)]),
                format_seconds(float(np.mean([run.seconds for run in group.runs]))),
            )
        )
    head = ("method", "ended", *shared, "work", "time")
    if not several:
        head = ("method", "status", *shared, "work", "sent", "time")
    terminal.table(head, rows, left=2, gap=1 if len(shared) > 1 else 2)
    others = [name for name in names if name not in shared]
    if others:
        terminal.say(
            f"Also recorded: {', '.join(others)}. --json prints them, and a report shows them."
        )


def _totals(run: RunRecord) -> dict[str, float]:
    """What all agents computed and all links carried in the whole run."""
    return {
        "gradients_total": run.cost["gradients"] * run.cost["agents"] * run.steps,
        "work_total": run.cost["work"] * run.cost["agents"] * run.steps,
        "bytes_total": run.cost["bytes"] * run.cost["links"] * run.steps,
    }


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
        "network": record.network["name"],
        "cost": record.cost | _totals(record),
        "folder": str(record.folder),
    }
