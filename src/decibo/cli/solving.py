"""The runs of a command: one solve into one folder, with checkpoints or without, alone or together
with other processes; and all methods with all seeds.

A run with checkpoints keeps in its folder, from the start, what it takes to resume it: a copy of
the file that was run and of the modules beside it, and what the command line changed.

    checkpoint/settings.json   the flags, where the file was, the checksums of the copies
    checkpoint/code/           the copies

A seed s is that of solve, from which methods, failing links and compression draw. It is also passed
to make_problem, make_network and start, where the file has such functions. Seeds are the outer
loop: after an early stop there are all methods with the first seeds. Every run is written as soon
as it ends; a run that is complete, with the same code, settings and versions, is kept if that is
asked for.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import msgspec
import numpy as np

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.script import Choice, Parts, Script, fitted
from decibo.data.stream import Stream
from decibo.errors import CorruptedFileError, InputError, first_line, short
from decibo.files import atomic_write, atomic_write_all, encode, read_record, sha256, write_record
from decibo.formatting import plural, to_json
from decibo.parallel.launch import RESTARTED
from decibo.parallel.processes import check_same
from decibo.problem.newton import DENSE, exact
from decibo.problem.problem import Problem, why_no_products
from decibo.pytree import one_of
from decibo.run import checkpoint_files
from decibo.run.checkpoint import Checkpoints, check_folder
from decibo.run.fingerprint import software
from decibo.run.lock import hold
from decibo.run.repeat import sharing
from decibo.run.solution import Solution, Status
from decibo.runs.folder import check_target, is_run, read_run, seed_folder, write_run

OUT = Path("out")
CHEAP = 1 << 24  # inner variables times numbers of data: |grad Phi| takes milliseconds
KIND = "decibo settings"


class Task(NamedTuple):
    """A method, what tables call it, and where its run or the folders of its seeds go."""

    label: str | None
    choice: Choice
    folder: Path

    def place(self, seed: int | None) -> Path:
        """The folder of one run."""
        return self.folder if seed is None else self.folder / seed_folder(seed)


@dataclass(frozen=True)
class Done:
    """What ran, or was kept from before (these have no solution), in order, and how the command
    ends."""

    script: Script
    runs: list[tuple[Path, Solution | None]]
    exit: Exit

    @property
    def kept(self) -> int:
        """How many runs had been made before."""
        return sum(solution is None for _, solution in self.runs)


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
    places = [check_target(task.place(seed)) for task in tasks for seed in script.seeds]
    there = [place for place in places if is_run(place)]
    if there and not resumed and is_first():
        names = ", ".join(str(place.relative_to(tasks[0].folder.parent)) for place in there[:3])
        more = ", ..." if len(there) > 3 else ""
        note(
            f"replaces {plural(len(there), 'run')} of an earlier command:"
            f" {names}{more}. --out DIR keeps them, --resume continues."
        )

    runs: list[tuple[Path, Solution | None]] = []
    codes = [Exit.RAN]
    first: Problem | None = None
    for seed in script.seeds:
        problem, network = script.build(seed)
        problem = problem if first is None else sharing(problem, first)
        first = first or problem
        made = [fitted(problem, network, task.choice.method) for task in tasks]
        for task, parts in zip(tasks, made, strict=True):
            folder = task.place(seed)

            # A run is kept if it is complete and was made from this code with these settings by
            # these versions.
            settings = script.resolved(task.choice, seed)
            code = {f"code/{name}": sha256(content) for name, content in script.code().items()}
            status = None
            with suppress(InputError, CorruptedFileError):
                old = read_run(folder)
                own = {name: sum for name, sum in old.files.items() if name.startswith("code/")}
                same = resumed and old.config == to_json(settings) and own == code
                if same and software().items() <= old.versions.items():
                    status = Status(old.status) if old.status != Status.interrupted else None
            if jax.process_count() > 1:
                check_same({"what is kept of earlier runs": status})
            solution = None
            if status is None:
                begun = bool(checkpoint_files.steps(folder / "checkpoint"))
                # What the runs of all seeds have in common, as a checksum.
                shared = script.resolved(task.choice, None)
                shared = {name: shared[name] for name in shared if name not in ("seed", "start")}
                text = f"{task.label}\n{shared}\n{list(code.values())}"
                solution = solve_into(
                    folder,
                    parts,
                    script,
                    task.choice,
                    seed=seed,
                    checkpoint=checkpoint,
                    continued=resumed and checkpoint and begun,
                    label=task.label,
                    setting=sha256(encode(text)) if several else None,
                )
                status = solution.status
            runs.append((folder, solution))
            codes.append(code_of(status))
            if status is Status.interrupted:
                return Done(script, runs, max(codes))
    return Done(script, runs, max(codes))


def solve_into(
    folder: Path,
    parts: Parts,
    script: Script,
    choice: Choice,
    *,
    seed: int | None = None,
    checkpoint: bool = False,
    continued: bool = False,
    label: str | None = None,
    setting: str | None = None,
) -> Solution:
    """Solve and write the run folder."""
    check_target(folder)
    code = script.code()
    # Only a run that a launcher restarts after a failure replaces the checkpoints of an old one.
    fresh = checkpoint and not continued and RESTARTED not in os.environ
    if fresh and checkpoint_files.steps(folder / "checkpoint"):
        place = terminal.path_of(folder)
        raise InputError(
            f"{place} holds checkpoints of an earlier run, which a new run does not overwrite.",
            f"Continue with: decibo resume {place}, or choose another folder with --out.",
        )
    if jax.process_count() > 1:
        check_same({"--checkpoint": checkpoint, "the folder of the run": folder})
    place = folder / "checkpoint"
    checkpoints = None
    if checkpoint:
        # Killed before its first checkpoint, a run starts again.
        resume = continued and bool(checkpoint_files.steps(place))
        every = script.settings.checkpoint_every or 1000
        checkpoints = Checkpoints(place, every, script.settings.keep, resume)
    with _announced(folder, script, choice, seed, code) if checkpoint else nullcontext():
        solution = decibo.solve(
            *parts, progress=live_view(), checkpoint=checkpoints, **script.arguments(seed)
        )
        write_run(
            folder,
            solution,
            *parts,
            config=script.resolved(choice, seed),
            label=label,
            seed=script.arguments(seed)["seed"],
            history=script.settings.history,
            setting=setting,
            code=code,
        )
    return solution


@contextmanager
def _announced(
    folder: Path, script: Script, choice: Choice, seed: int | None, code: dict[str, bytes]
) -> Iterator[None]:
    """Keep other runs out of the folder of a run with checkpoints, which holds what it takes to
    resume it.

    If the run is rejected, or fails before its first checkpoint, the folder is again what it was.
    All processes call it together.
    """
    place = folder / "checkpoint"
    missing = [each for each in (place, *place.parents) if not each.exists()]
    settings = place / "settings.json"
    try:
        with hold(check_folder(place)):
            before = settings.read_bytes() if settings.is_file() else None
            if is_first():
                sums = {name: sha256(content) for name, content in code.items()}
                steps = script.settings.steps
                kept = ResumeRecord(script.file, str(script.origin), choice.spec, steps, seed, sums)
                write_code(place / "code", code)
                write_record(settings, KIND, 1, asdict(kept))
            try:
                yield
            except (InputError, CorruptedFileError):
                if is_first() and before is not None:
                    atomic_write(settings, before)
                raise
    except BaseException:
        if is_first() and not checkpoint_files.steps(place):
            if place in missing:  # marks of the data, without a checkpoint
                shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):  # a folder that holds something by now stays
                for each in missing:
                    if each.exists():
                        each.rmdir()
        raise


def write_code(folder: Path, code: dict[str, bytes]) -> None:
    """Copies of the user's files."""
    for name, content in code.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).is_file() or (folder / name).read_bytes() != content:
            atomic_write_all((folder / name).parent, {Path(name).name: content})


@dataclass(frozen=True)
class ResumeRecord:
    """checkpoint/settings.json: what the command line set, and where the file came from."""

    file: str
    origin: str
    method: str | None
    steps: int
    seed: int | None
    code: dict[str, str]


def kept_settings(folder: Path) -> ResumeRecord:
    """What a run with checkpoints keeps about itself, if the copies of its code are unchanged."""
    place = folder / "checkpoint"
    path = place / "settings.json"
    try:
        kept = msgspec.convert(read_record(path, KIND, 1, 1 << 20), ResumeRecord)
    except msgspec.ValidationError as error:
        raise CorruptedFileError(f"{path} is damaged: {first_line(error)}.") from error
    if kept.file not in kept.code:
        raise CorruptedFileError(f"{path} is damaged: it names no copy of {short(kept.file)!r}.")
    for name, digest in kept.code.items():
        copy = place / "code" / name
        if not copy.is_file() or sha256(copy) != digest:
            raise InputError(
                f"{terminal.path_of(copy)} is not what it was when the run began, so that the run"
                " cannot go on.",
                "Undo the change, or start a new run of the changed file with --out.",
            )
    return kept


def judged(script: Script, problem: decibo.Problem) -> Script:
    """The script with measures by which methods and settings can be compared, unless it names its
    own.

    Those are the exact |grad Phi|^2 and Phi, besides the cheap measures, where they take little
    time. What a method believes to be its gradient (direction_norm) is small wherever it rests, and
    f(x, y) is low where y is not y*(x).
    """
    # An exact reference needs data that is all here, and should be a matter of milliseconds.
    if script.settings.measures is not None or jax.process_count() > 1:
        return script
    if callable(problem.data) or isinstance(problem.sample, Stream):
        return script
    numbers = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.data))
    if problem.y_layout.size > DENSE or problem.y_layout.size * numbers > CHEAP:
        return script
    if why_no_products(problem.functions, one_of(problem.data)):
        return script
    start = problem.x_layout.ravel(problem.x0), problem.y_layout.ravel(problem.y0)
    if not exact(problem.functions, problem.data, *start).converged:  # inner is flat in y
        return script
    return script.changed(measures=("cheap", "phi", "stationarity"))


def code_of(status: Status) -> Exit:
    """The exit code of a status."""
    if not status.sound:
        return Exit.DIVERGED
    return Exit.INTERRUPTED if status is Status.interrupted else Exit.RAN


def note(text: str) -> None:
    """A remark beside the results."""
    print(f"decibo: note: {text}", file=sys.stderr)


def is_first() -> bool:
    """Whether this process is the one that prints and writes."""
    return jax.process_index() == 0


def live_view() -> bool | None:
    """The argument `progress` of solve: a line on the terminal, if there is one, from the first
    process only."""
    return None if is_first() else False


def seed_list(text: str | None) -> int | list[int] | None:
    """The value of --seeds: a number of seeds, or a list such as 0,3,7."""
    try:
        if text is not None and "," in text:
            return [int(part) for part in text.strip("[]").split(",")]
        return None if text is None else int(text)
    except ValueError:
        raise InputError(
            f"--seeds must be an integer or a list such as 0,3,7, but it is {text!r:.60}."
        ) from None


def typed(script: Script, spec: str | None, *flags: str) -> str:
    """The file and the options as one types them, for the line that says what comes next."""
    words = [terminal.path_of(script.path), *(["-m", spec] if spec else []), *flags]
    return shlex.join(words)
