"""decibo compare: several methods on the same problem and network, each in a run folder of its
own."""

from __future__ import annotations

from pathlib import Path

from decibo.cli import terminal
from decibo.cli.options import File, Json, Methods, Out, Resume, Seeds, Steps
from decibo.cli.run import seed_list
from decibo.cli.script import by_folder, opened
from decibo.cli.seeds import Done, Task, show_seeds, solve_all
from decibo.cli.solving import OUT, interruptible, is_first, judged


def compare(
    path: File,
    methods: Methods = None,
    steps: Steps = None,
    seeds: Seeds = None,
    out: Out = None,
    resumed: Resume = False,
    as_json: Json = False,
) -> int:
    """Run several methods on the same problem and network.

    Without -m, the methods are those of `methods` in the file.
    With --seeds, each of them runs once for each seed of data, network and
    method; the table shows mean and standard deviation.

    \b
    Examples:
      decibo compare mine.py -m ahead_exact \\
          -m 'ahead[alpha=0.05, gamma=0.1, lam=20]'
      decibo compare mine.py --seeds 5
    """
    with opened(path) as script, interruptible():
        script = script.changed(steps=steps, seeds=seed_list(seeds))
        choices = script.compared(methods or ())
        several = script.settings.seeds is not None
        folder = out or OUT / f"{path.stem}-compare{'-seeds' if several else ''}"
        script = judged(script, script.build(script.seeds[0])[0])
        places = by_folder(choices, folder)
        tasks = [Task(choice.label, choice, places[choice.label]) for choice in choices]
        done = solve_all(script, tasks, resumed=resumed)
    if is_first():
        show = show_seeds if several or done.kept else _show
        show(done, folder, as_json)
    return done.exit


def _show(done: Done, folder: Path, as_json: bool) -> None:
    """A line for each method."""
    runs = {str(run.label): run.solution for run in done.runs if run.solution is not None}
    places = {str(run.label): run.folder for run in done.runs}
    if as_json:
        found = [
            {"label": label} | terminal.run_as_dict(solution, places[label])
            for label, solution in runs.items()
        ]
        terminal.print_json({"runs": found})
        return
    terminal.show_runs(runs)
    # if the folder holds other runs as well
    own = {place.name for place in places.values()}
    others = [path for path in folder.iterdir() if path.is_dir() and path.name not in own]
    listed = " ".join(map(terminal.path_of, places.values() if others else [folder]))
    terminal.say(f"Written to {terminal.path_of(folder)}", f"Next: decibo report {listed}")
