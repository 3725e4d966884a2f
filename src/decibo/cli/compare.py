"""decibo compare: several methods on the same problem and network, each in a run folder of its
own."""

from __future__ import annotations

from decibo.cli.options import File, Json, Methods, Out, Resume, Seeds, Steps
from decibo.cli.run import seed_list
from decibo.cli.script import by_folder, opened
from decibo.cli.seeds import Task, show, solve_all
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
        show(done, folder, as_json)
    return done.exit
