"""One solve of a command, into one folder: with checkpoints or without, alone or together with
other processes.

What every command that solves shares: a folder that is complete or as it was before, and stopping
early but cleanly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np

import decibo
from decibo.cli import terminal
from decibo.cli.config import Config, Parts, declared_agents, resolved, solve_arguments
from decibo.cli.errors import Exit
from decibo.data.stream import Stream
from decibo.errors import CorruptedFileError, InputError
from decibo.files import atomic_write
from decibo.parallel.launch import RESTARTED
from decibo.parallel.processes import check_same
from decibo.parallel.signals import GracefulStop
from decibo.problem.newton import DENSE, exact
from decibo.problem.second import why_no_products
from decibo.pytree import one_of
from decibo.run import checkpoint_files
from decibo.run.checkpoint import Checkpoints, check_folder
from decibo.run.lock import hold
from decibo.run.solution import Solution, Status
from decibo.runs.folder import check_target, stamped, to_toml, write_run

OUT = Path("out")
CHEAP = 1 << 24  # inner variables times numbers of data: |grad Phi| takes milliseconds


def solve_into(
    folder: Path,
    parts: Parts,
    config: Config,
    *,
    checkpoint: bool = False,
    continued: bool = False,
    label: str | None = None,
    setting: str | None = None,
) -> Solution:
    """Solve and write the run folder, which keeps its checkpoints meanwhile if there are to be
    some."""
    check_target(folder, resume=continued)
    if checkpoint and not continued:
        _check_no_checkpoints(folder)
    if jax.process_count() > 1:
        check_same({"--checkpoint": checkpoint, "the folder of the run": folder})
    with _announced(folder, config) if checkpoint else nullcontext():
        solution = carry_out(parts, config, folder if checkpoint else None, continued)
        write(folder, solution, parts, config, label, setting)
    return solution


@contextmanager
def _announced(folder: Path, config: Config) -> Iterator[None]:
    """Keep other runs out of the folder of a run with checkpoints, which holds its configuration
    meanwhile.

    Without it a killed run could not be resumed. If the run is rejected, or fails before its first
    checkpoint, the folder is again what it was. All processes call it together.
    """
    checkpoints = folder / "checkpoint"
    missing = [each for each in (checkpoints, *checkpoints.parents) if not each.exists()]
    try:
        with (
            hold(check_folder(checkpoints)),
            _configured(folder, config) if is_first() else nullcontext(),
        ):
            yield
    except BaseException:
        if checkpoints in missing and is_first() and not checkpoint_files.steps(checkpoints):
            # marks of the data, without a checkpoint
            shutil.rmtree(checkpoints, ignore_errors=True)
        with suppress(OSError):  # it holds something by now
            for each in missing:
                if each.exists():
                    each.rmdir()
        raise


@contextmanager
def _configured(folder: Path, config: Config) -> Iterator[None]:
    path = folder / "config.toml"
    before = path.read_bytes() if path.is_file() else None
    atomic_write(path, stamped(to_toml(resolved(config))))
    try:
        yield
    except BaseException as error:
        begun = bool(checkpoint_files.steps(folder / "checkpoint"))
        with suppress(OSError):  # the disk may be full
            if before is not None and (
                not begun or isinstance(error, InputError | CorruptedFileError)
            ):
                atomic_write(path, before)
            elif not begun:
                path.unlink(missing_ok=True)
        raise


def _check_no_checkpoints(folder: Path) -> None:
    """A new run does not replace the checkpoints of an old one, unless a launcher restarts it after
    a failure."""
    if RESTARTED not in os.environ and checkpoint_files.steps(folder / "checkpoint"):
        place = terminal.path_of(folder)
        raise InputError(
            f"{place} holds checkpoints of an earlier run, which a new run does not overwrite.",
            f"Continue with: decibo resume {place}, or choose another folder with --out.",
        )


def judged(config: Config, problem: decibo.Problem) -> Config:
    """The configuration with measures by which methods and settings can be compared, unless it
    names its own.

    Those are the exact |grad Phi|^2 and Phi, besides the cheap measures, where they take little
    time. What a method believes to be its gradient (direction_norm) is small wherever it rests, and
    f(x, y) is low where y is not y*(x).
    """
    if config.run.measures is not None or not _is_cheap(problem):
        return config
    return replace(config, run=replace(config.run, measures=("cheap", "phi", "stationarity")))


def _is_cheap(problem: decibo.Problem) -> bool:
    """Whether there is an exact reference, for data that is all here, and it is a matter of
    milliseconds."""
    if jax.process_count() > 1 or callable(problem.data) or isinstance(problem.sample, Stream):
        return False
    numbers = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.data))
    if problem.y_layout.size > DENSE or problem.y_layout.size * numbers > CHEAP:
        return False
    if why_no_products(problem.functions, one_of(problem.data)):
        return False
    start = problem.x_layout.ravel(problem.x0), problem.y_layout.ravel(problem.y0)
    # not if inner is flat in y
    return bool(exact(problem.functions, problem.data, *start).converged)


def exit_code(solution: Solution) -> Exit:
    """What a command ends with after this run."""
    return code_of(solution.status)


def code_of(status: Status) -> Exit:
    """The exit code of a status."""
    if not status.sound:
        return Exit.DIVERGED
    return Exit.INTERRUPTED if status is Status.interrupted else Exit.RAN


def carry_out(
    parts: Parts, config: Config, folder: Path | None = None, continued: bool = False
) -> Solution:
    """One call of solve, with the live view; checkpoints go into `folder`."""
    checkpoints = None
    if folder is not None:
        options = config.run
        place = folder / "checkpoint"
        # killed before its first checkpoint, a run starts again
        resume = continued and bool(checkpoint_files.steps(place))
        checkpoints = Checkpoints(place, options.checkpoint_every or 1000, options.keep, resume)
    return decibo.solve(
        *parts, progress=live_view(), checkpoint=checkpoints, **solve_arguments(config)
    )


def write(
    folder: Path,
    solution: Solution,
    parts: Parts,
    config: Config,
    label: str | None = None,
    setting: str | None = None,
) -> None:
    """The run folder, complete or not at all."""
    run = config.run
    options = {"config": resolved(config), "label": label, "seed": run.seed, "history": run.history}
    write_run(folder, solution, *parts, setting=setting, **options)


# One process or several


def is_first() -> bool:
    """Whether this process is the one that prints and writes."""
    return jax.process_index() == 0


def live_view() -> bool | None:
    """The argument `progress` of solve: a line on the terminal, if there is one, from the first
    process only."""
    return None if is_first() else False


def check_processes(command: Sequence[str], processes: int) -> None:
    """Reject more processes than agents before any is started, where the configuration tells how
    many there are."""
    words = list(command[1:] if command[:1] == ["decibo"] else command)
    path = next((word for word in words[1:] if word.endswith(".toml")), None)
    if path is None or words[0] not in ("run", "compare"):
        return
    agents = declared_agents(
        path, [value for option, value in pairwise(words) if option in ("--set", "-s")]
    )
    if agents is not None and 0 < agents < processes:
        raise InputError(
            f"There are {processes} processes for {agents} agents, but every process needs at least"
            " one agent.",
            f"Start at most {agents} processes.",
        )


def interruptible() -> GracefulStop:
    """SIGTERM ends a run as Ctrl-C does: cleanly, with everything up to there written."""
    return GracefulStop(patience=0)
