"""decibo run, resume and check: one method with one seed or several, and what theory says of it
before."""

from __future__ import annotations

from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.results import show
from decibo.cli.script import Choice, Script, fitted, opened
from decibo.cli.solving import (
    OUT,
    Task,
    code_of,
    is_first,
    kept_settings,
    note,
    seed_list,
    solve_all,
    solve_into,
    typed,
)
from decibo.errors import InputError, first_line
from decibo.files import sha256
from decibo.run import checkpoint_files
from decibo.run.solution import Status
from decibo.runs.folder import seed_folder


def run(
    path: Path,
    method: str | None,
    steps: int | None,
    seeds: str | None,
    out: Path | None,
    checkpoint: bool,
    resumed: bool,
    as_json: bool,
) -> int:
    """Run the file, and solve its problem."""
    with opened(path) as script:
        script = script.changed(steps=steps, seeds=seed_list(seeds))
        choice = script.choose(method)
        checkpoint = checkpoint or script.settings.checkpoint_every is not None
        if script.settings.seeds is None:
            folder = out or OUT / path.stem
            if resumed:
                raise InputError(
                    "--resume is for runs with several seeds, but there are no seeds.",
                    f"Continue a single run with: decibo resume {terminal.path_of(folder)}",
                )
            return _run(script, choice, None, folder, checkpoint, False, as_json)
        folder = out or OUT / f"{path.stem}-seeds"
        done = solve_all(script, [Task(None, choice, folder)], checkpoint, resumed)
        if is_first():
            show(done, folder, as_json)
        return done.exit


def resume(folder: Path, steps: int | None, as_json: bool) -> int:
    """Run the copy of the file that the folder keeps, from the last checkpoint."""
    place = terminal.path_of(folder)
    if not (folder / "checkpoint" / "settings.json").is_file():
        if any(folder.glob(seed_folder("*"))):
            remedy = "Its seeds go on with the command that began them and --resume."
        else:
            remedy = "Pass a folder of: decibo run mine.py --checkpoint"
        raise InputError(f"{place} is not the folder of a run with checkpoints.", remedy)
    kept = kept_settings(folder)
    steps = kept.steps if steps is None else steps
    complete = checkpoint_files.steps(folder / "checkpoint")
    if complete and checkpoint_files.step_of(complete[-1]) > steps:
        done = checkpoint_files.step_of(complete[-1])
        raise InputError(
            f"The run in {place} has already done {done} steps, and cannot be resumed to {steps}.",
            f"Pass --steps of at least {done}, or start a new run with --out.",
        )
    if is_first():
        if not complete:
            note(f"{place}: no checkpoint was completed, so the run starts from the beginning")
        origin = Path(kept.origin)
        if origin.is_file() and sha256(origin) != kept.code[kept.file]:
            note(f"{origin.name} has changed; the run goes on with its copy in {place}/checkpoint")
    copy = folder / "checkpoint" / "code" / kept.file
    with opened(copy, kept.origin) as script:
        script = script.changed(steps=steps)
        choice = script.choose(kept.method)
        return _run(script, choice, kept.seed, folder, True, True, as_json)


def check(path: Path, method: str | None, as_json: bool) -> int:
    """What is wrong with the objectives, and which conditions of the theorem hold for this method.
    The exit code does not depend on the answer: the conditions are sufficient, and many runs
    converge outside them."""
    with opened(path) as script:
        choice = script.choose(method)
        try:
            parts = fitted(*script.build(script.seeds[0]), choice.method)
            try:
                decibo.check_problem(parts.problem)
            except decibo.ConformanceError as error:
                note(str(error))
            result = decibo.theory.check(*parts)
            text = result.to_json() if as_json else f"{result}\n"
        except ArithmeticError as error:
            raise InputError(
                f"{path}: the bounds of the theory are too large for floating-point numbers here "
                f"({first_line(error).rstrip('.')}).",
                "Are numbers of the problem, or settings of the method, extremely large or small?",
            ) from error
        if is_first():
            print(text)
        if is_first() and not as_json:
            terminal.say(f"Next: decibo run {typed(script, choice.spec)}")
    return Exit.RAN


def _run(
    script: Script,
    choice: Choice,
    seed: int | None,
    folder: Path,
    checkpoint: bool,
    continued: bool,
    as_json: bool,
) -> Exit:
    problem, network = script.build(seed)
    parts = fitted(problem, network, choice.method)
    options = {"seed": seed, "checkpoint": checkpoint, "continued": continued}
    solution = solve_into(folder, parts, script, choice, **options)
    if not is_first():
        return code_of(solution.status)
    if as_json:
        terminal.print_json(terminal.run_as_dict(solution, folder))
        return code_of(solution.status)
    terminal.say(f"{problem.name}; {network!r}; {choice.method!r}")
    terminal.show_run(solution)
    place = terminal.path_of(folder)
    following = f"report {place}"
    if solution.status is Status.interrupted and checkpoint:
        following = f"resume {place}"
    elif not solution.status.sound:
        following = f"check {typed(script, choice.spec)}"
    terminal.say(f"Written to {place}", f"Next: decibo {following}")
    return code_of(solution.status)
