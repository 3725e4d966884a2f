"""decibo run and decibo resume: solve what a configuration describes, write the run folder, show
the result."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from decibo.cli import terminal
from decibo.cli.config import Config, Parts, build, precision, read
from decibo.cli.errors import Exit
from decibo.cli.seeds import Task, show_seeds, solve_all
from decibo.cli.solving import OUT, exit_code, interruptible, is_first, solve_into
from decibo.cli.trust import trust_for
from decibo.errors import InputError
from decibo.run import checkpoint_files
from decibo.run.solution import Solution, Status
from decibo.runs.folder import seed_folder


def run(
    path: Path,
    sets: Iterable[str],
    seeds: str | None,
    out: Path | None,
    checkpoint: bool,
    resumed: bool,
    trusted: Iterable[str],
    as_json: bool,
) -> Exit:
    """Solve, write, show; with seeds once for each of them."""
    config = read(path, sets, seeds=seeds, trust=trust_for(path, trusted, as_json))
    folder = out or OUT / (path.stem if config.run.seeds is None else f"{path.stem}-seeds")
    if config.run.seeds is None:
        if resumed:
            raise InputError(
                "--resume is for runs with several seeds, but there are no seeds.",
                f"Continue a single run with: decibo resume {terminal.path_of(folder)}",
            )
        return _run(config, folder, checkpoint, False, as_json, terminal.as_typed(sets, trusted))
    return _run_seeds(config, folder, checkpoint, resumed, as_json)


def _run_seeds(
    config: Config, folder: Path, checkpoint: bool, resumed: bool, as_json: bool
) -> Exit:
    with precision(config), interruptible():
        checkpoint = checkpoint or config.run.checkpoint_every is not None
        done = solve_all(config, [Task(None, config.method, folder)], checkpoint, resumed)
    if is_first():
        show_seeds(done, folder, as_json)
    return done.exit


def resume(folder: Path, steps: int | None, trusted: Iterable[str], as_json: bool) -> Exit:
    """Continue from the last checkpoint of a run folder, with the configuration stored there."""
    path = folder / "config.toml"
    if not path.is_file():
        several = any(folder.glob(seed_folder("*")))
        raise InputError(
            f"{folder} is not a run folder: config.toml is missing.",
            (
                "Its seeds go on with the command that began them and --resume."
                if several
                else "Pass a folder that run has written."
            ),
        )
    if not (folder / "checkpoint").is_dir():
        raise InputError(
            f"{folder} has no checkpoints.", "Run it again: decibo run CONFIG.toml --checkpoint"
        )
    sets = [] if steps is None else [f"run.steps={steps}"]
    config = read(path, sets, trust=trust_for(path, trusted, as_json))
    complete = checkpoint_files.steps(folder / "checkpoint")
    place = terminal.path_of(folder)
    if not complete and is_first():
        print(
            f"{place}: no checkpoint was completed, so the run starts from the beginning",
            file=sys.stderr,
        )
    if complete and checkpoint_files.step_of(complete[-1]) > config.run.steps:
        done = checkpoint_files.step_of(complete[-1])
        raise InputError(
            f"The run in {place} has already done {done} steps, and cannot be resumed to"
            f" {config.run.steps}.",
            f"Pass --steps of at least {done}, or start a new run with --out.",
        )
    return _run(config, folder, True, True, as_json)


def _run(
    config: Config, folder: Path, checkpoint: bool, continued: bool, as_json: bool, typed: str = ""
) -> Exit:
    checkpoint = checkpoint or config.run.checkpoint_every is not None
    with precision(config), interruptible():
        parts, config = build(config)
        solution = solve_into(folder, parts, config, checkpoint=checkpoint, continued=continued)
    if is_first():
        _show(solution, parts, folder, f"{terminal.path_of(config.path)}{typed}", as_json)
    return exit_code(solution)


def _show(solution: Solution, parts: Parts, folder: Path, source: str, as_json: bool) -> None:
    if as_json:
        terminal.print_json(terminal.run_as_dict(solution, folder))
        return
    terminal.say(f"{parts.problem.name}; {parts.network!r}; {parts.method!r}")
    terminal.show_run(solution)
    place = terminal.path_of(folder)
    command = f"report {place}"
    if solution.status is Status.interrupted and (folder / "checkpoint").is_dir():
        command = f"resume {place}"
    elif not solution.status.sound:
        command = f"check {source}"
    terminal.say(f"Written to {place}", f"Next: decibo {command}")
