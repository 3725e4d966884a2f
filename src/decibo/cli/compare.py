"""decibo compare: several methods on the same problem and network, each in a run folder of its
own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from decibo.cli import terminal
from decibo.cli.config import build, precision, read
from decibo.cli.errors import Exit
from decibo.cli.registry import Choice
from decibo.cli.seeds import Task, at_seed, seeds_of, show_seeds, solve_all
from decibo.cli.solving import OUT, carry_out, exit_code, interruptible, is_first, judged, write
from decibo.cli.trust import trust_for
from decibo.errors import InputError
from decibo.formatting import distinct
from decibo.run.solution import Solution, Status
from decibo.runs.folder import check_target


def compare(
    path: Path,
    sets: Iterable[str],
    methods: Iterable[str],
    seeds: str | None,
    out: Path | None,
    resumed: bool,
    trusted: Iterable[str],
    as_json: bool,
) -> Exit:
    """Run the methods one after another, with every seed. Everything is checked before the first
    one starts."""
    config = read(path, sets, methods, seeds=seeds, trust=trust_for(path, trusted, as_json))
    if not config.compare:
        raise InputError(
            f"{path} does not name methods to compare.",
            "Add -m ahead_exact -m 'ahead[alpha=0.05,gamma=0.1,lam=20]', for example.",
        )
    folder = out or OUT / f"{path.stem}-compare{'' if config.run.seeds is None else '-seeds'}"
    choices = _by_label(config.compare)
    names = distinct([_file_name(label) for label in choices], "{}-{}", ignore_case=True)
    places = {label: folder / name for label, name in zip(choices, names, strict=True)}
    if config.run.seeds is not None or resumed:
        with precision(config), interruptible():
            first = build(replace(at_seed(config, seeds_of(config)[0]), method=config.compare[0]))[
                0
            ]
            config = judged(config, first.problem)
            tasks = [Task(label, choice, places[label]) for label, choice in choices.items()]
            done = solve_all(config, tasks, resumed=resumed)
        if is_first():
            show_seeds(done, folder, as_json)
        return done.exit
    for place in places.values():
        check_target(place)
    runs: dict[str, Solution] = {}
    with precision(config), interruptible():
        built = {label: build(replace(config, method=choice)) for label, choice in choices.items()}
        options = judged(config, next(iter(built.values()))[0].problem).run
        for label, (parts, full) in built.items():
            full = replace(full, run=options)
            runs[label] = carry_out(parts, full)
            write(places[label], runs[label], parts, full, label)
            if runs[label].status is Status.interrupted:
                break
    if is_first():
        _show(runs, places, folder, as_json)
    return max(exit_code(run) for run in runs.values())


def _show(runs: dict[str, Solution], places: dict[str, Path], folder: Path, as_json: bool) -> None:
    if as_json:
        dicts = [
            {"label": label} | terminal.run_as_dict(run, places[label])
            for label, run in runs.items()
        ]
        terminal.print_json({"runs": dicts})
        return
    terminal.show_runs(runs)
    others = {path.name for path in folder.iterdir() if path.is_dir()} - {
        place.name for place in places.values()
    }
    # if the folder holds other runs as well
    listed = " ".join(terminal.path_of(places[label]) for label in runs)
    command = f"report {listed if others else terminal.path_of(folder)}"
    terminal.say(f"Written to {terminal.path_of(folder)}", f"Next: decibo {command}")


def _by_label(methods: tuple[Choice, ...]) -> dict[str, Choice]:
    """Methods by how they were written; the same one twice is a mistake."""
    choices: dict[str, Choice] = {}
    for choice in methods:
        same = [
            each
            for each in choices.values()
            if (each.name, each.options) == (choice.name, choice.options)
        ]
        if same or choice.label in choices:
            raise InputError(f"{choice.where}: {choice.label} is listed twice.")
        choices[choice.label] = choice
    return choices


def _file_name(label: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", label).strip("_.")[:100] or "method"
