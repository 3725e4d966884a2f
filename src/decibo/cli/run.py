"""decibo run and decibo resume: solve what a file describes, write the run folder, show the
result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.options import File, Json, Method, Out, Resume, Seeds, Steps
from decibo.cli.script import Choice, Script, fitted, opened
from decibo.cli.seeds import Task, show, solve_all
from decibo.cli.solving import OUT, code_of, interruptible, is_first, kept_settings, solve_into
from decibo.errors import InputError
from decibo.files import sha256
from decibo.run import checkpoint_files
from decibo.run.solution import Status
from decibo.runs.folder import seed_folder


def run(
    path: File,
    method: Method = None,
    steps: Steps = None,
    seeds: Seeds = None,
    out: Out = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Write checkpoints, for decibo resume.")
    ] = False,
    resumed: Resume = False,
    as_json: Json = False,
) -> int:
    """Run a Python file and solve the problem that it defines.

    \b
    Examples:
      decibo run mine.py
      decibo run mine.py --steps 500 -m 'ahead_exact[lam=20]'
      decibo run mine.py --out out/first --checkpoint
      decibo run mine.py --seeds 5
    """
    with opened(path) as script, interruptible():
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


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder with checkpoints.")],
    steps: Annotated[
        int | None, typer.Option(help="Continue up to this many steps in all.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Continue a run from its last checkpoint.

    It runs the copy of the file that is stored there.

    \b
    Example:
      decibo resume out/mine
    """
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
            _note(f"{place}: no checkpoint was completed, so the run starts from the beginning")
        origin = Path(kept.origin)
        if origin.is_file() and sha256(origin) != kept.code[kept.file]:
            _note(f"{origin.name} has changed; the run goes on with its copy in {place}/checkpoint")
    copy = folder / "checkpoint" / "code" / kept.file
    with opened(copy, kept.origin) as script, interruptible():
        script = script.changed(steps=steps)
        choice = script.choose(kept.method)
        return _run(script, choice, kept.seed, folder, True, True, as_json)


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
    return " ".join(word if "[" not in word else f"'{word}'" for word in words)


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


def _note(text: str) -> None:
    print(f"decibo: note: {text}", file=sys.stderr)
