"""decibo run, decibo resume: solve what a configuration says, write the run folder, show what came out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import decibo
from decibo.cli import config as configuration
from decibo.cli import outcome, processes
from decibo.cli import terminal as show
from decibo.cli.build import Parts, build, precision, solving
from decibo.cli.config import Config
from decibo.errors import InputError
from decibo.execute.checkpointing import Checkpoints
from decibo.execute.solution import Solution
from decibo.parallel.launch import RESTARTED

OUT = Path("out")


def run(path: Path, sets: Iterable[str], out: Path | None, checkpoint: bool, as_json: bool) -> int:
    """Solve, write, show; the answer is the exit status."""
    processes.begin()
    config = configuration.read(path, sets)
    return _run(config, out or OUT / path.stem, checkpoint, False, as_json)


def resume(folder: Path, steps: int | None, as_json: bool) -> int:
    """Go on from the last checkpoint of a run folder, with the configuration it keeps."""
    processes.begin()
    if not (folder / "config.toml").is_file():
        raise InputError(f"{folder}", "it holds no config.toml, so it is no run folder", "Give a folder made by run.")
    if not (folder / "checkpoint").is_dir():
        raise InputError(f"{folder}", "it holds no checkpoint", "Start again with: decibo run CONFIG.toml --checkpoint")
    sets = [] if steps is None else [f"run.steps={steps}"]
    return _run(configuration.read(folder / "config.toml", sets), folder, True, True, as_json)


def _run(config: Config, folder: Path, checkpoint: bool, again: bool, as_json: bool) -> int:
    from decibo.runs.folder import check_target

    check_target(folder)
    checkpoint = checkpoint or config.run.checkpoint_every is not None
    if checkpoint and not again:
        _check_fresh(folder)
    with precision(config), processes.interruptible():
        parts, config = build(config)
        if checkpoint and processes.first():
            _keep_config(folder, config)
        solution = carry_out(parts, config, folder if checkpoint else None, again)
        write(folder, solution, parts, config)
    if processes.first():
        _tell(solution, parts, folder, config, as_json)
    return outcome.exit_code(solution)


def _check_fresh(folder: Path) -> None:
    """A new run does not go on from an old one's checkpoints, unless a launcher restarts it after a failure."""
    kept = folder / "checkpoint"
    if RESTARTED not in os.environ and kept.is_dir() and any(kept.iterdir()):
        place = show.path_of(folder)
        raise InputError(f"{place} holds checkpoints of an earlier run", "a new run does not overwrite them",
                         f"Go on with: decibo resume {place}, or choose another folder with --out.")  # fmt: skip


def _keep_config(folder: Path, config: Config) -> None:
    """Before the run starts: whoever finds checkpoints without an end must be able to go on from them."""
    from decibo.files import atomic_write
    from decibo.runs.describe import to_toml

    atomic_write(folder / "config.toml", to_toml(configuration.resolved(config)))


def carry_out(parts: Parts, config: Config, kept: Path | None = None, again: bool = False) -> Solution:
    """One call of solve, with the live view; checkpoints go into the folder `kept`."""
    checkpoint = None
    if kept is not None:
        checkpoint = Checkpoints(kept / "checkpoint", config.run.checkpoint_every or 1000, config.run.keep, again)
    progress = None if processes.first() else False
    return decibo.solve(*parts, progress=progress, checkpoint=checkpoint, **solving(config))


def write(folder: Path, solution: Solution, parts: Parts, config: Config, label: str | None = None) -> None:
    """The run folder, whole or not at all."""
    from decibo.runs.folder import write_run

    kept = configuration.resolved(config)
    write_run(folder, solution, *parts, config=kept, label=label, seed=config.run.seed, history=config.run.history)


def _tell(solution: Solution, parts: Parts, folder: Path, config: Config, as_json: bool) -> None:
    if as_json:
        return show.as_json(outcome.as_dict(solution, folder))
    show.say(f"{parts.problem.name}; {parts.network!r}; {parts.method!r}")
    outcome.show_run(solution)
    place = show.path_of(folder)
    show.say(f"Written to {place}", f"Next: decibo {_next(solution, place, config)}")
    return None


def _next(solution: Solution, place: str, config: Config) -> str:
    if solution.status == "interrupted" and Path(place, "checkpoint").is_dir():
        return f"resume {place}"
    if solution.status == "diverged":
        return f"check {config.path}"
    return f"report {place}"
