"""What recording, progress, checkpoints and starting cost.

    python -m studies.performance.overheads [--quick]

Runs are AHEAD at the paper's size (10 x 400 x 784). Starting is measured in fresh processes.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import decibo
from decibo.run.checkpoint import Checkpointer
from studies.performance.cases import logistic
from studies.performance.timing import Row, interleaved, ratio, run_alone

GROUP = "overhead"


def running(quick: bool) -> Iterator[Row]:
    case = logistic()
    network = decibo.networks.erdos_renyi(10, 0.7, seed=0)
    method = decibo.ahead(**case.steps)
    steps = 100 if quick else 400
    repeats = 3 if quick else 9

    def run(every: int, **more):
        return lambda: (
            decibo.solve(
                case.problem,
                network,
                method,
                steps=steps,
                every=every,
                **({"progress": False} | more),
            ).x
        )

    calls = {f"every {each}": run(each) for each in (1, 10, 100)}
    calls |= {"never": run(steps), "progress": run(steps, progress=True)}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        times = interleaved(calls, repeats)
    for each, target in ((1, ""), (10, "<= 1.10"), (100, "")):
        what = f"recording all cheap measures every {each} steps / at the end only"
        yield ratio(GROUP, what, times[f"every {each}"], times["never"], target)
    yield ratio(GROUP, "a progress line / none", times["progress"], times["never"], "<= 1.01")


def checkpoints(quick: bool) -> Iterator[Row]:
    what = "checkpoints every 1,000 steps / none"
    if "checkpoint" not in inspect.signature(decibo.solve).parameters:
        yield Row(GROUP, what, None, note="skipped: this version has none")
        return
    case = logistic()
    network = decibo.networks.erdos_renyi(10, 0.7, seed=0)
    method = decibo.ahead(**case.steps)
    steps = 200 if quick else 3000
    often = steps // 3

    def run(**more):
        return lambda: (
            decibo.solve(
                case.problem,
                network,
                method,
                steps=steps,
                every=often,
                measures=["outer"],
                progress=False,
                **more,
            ).x
        )

    with tempfile.TemporaryDirectory() as folder:
        fresh_folders = (Path(folder) / str(k) for k in itertools.count())
        saving = lambda: run(checkpoint=decibo.Checkpoints(next(fresh_folders), every=often))()
        times = interleaved({"none": run(), "saving": saving}, 2 if quick else 9)
        inside, whole = _inside(saving)
    yield ratio(GROUP, what, times["saving"], times["none"], "<= 1.02", note=f"{steps} steps")
    note = "measured inside one run, where other work on the machine hardly matters"
    yield Row(
        GROUP,
        "of a run with checkpoints, spent on them",
        100 * inside / whole,
        "%",
        target="<= 2",
        note=note,
    )


def _inside(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a run spends in the code of checkpoints, and seconds of the run."""
    spent = [0.0]
    before = {name: getattr(Checkpointer, name) for name in ("restore", "save")}

    def timed(name: str) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            begun = time.perf_counter()
            result = before[name](*arguments)
            spent[0] += time.perf_counter() - begun
            return result

        return call

    try:
        for name in before:
            setattr(Checkpointer, name, timed(name))
        begun = time.perf_counter()
        run()
        return spent[0], time.perf_counter() - begun
    finally:
        for name, method in before.items():
            setattr(Checkpointer, name, method)


def fresh(code: list[str], **environment: str) -> float:
    """Seconds of a Python process."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, *code], check=True, capture_output=True, env=os.environ | environment
    )
    return time.perf_counter() - begun


def first_number(**environment: str) -> tuple[float, float]:
    """Seconds until the demo prints its first result, and until it ends."""
    begun = time.perf_counter()
    first = None
    command = [sys.executable, "-u", "-m", "decibo", "demo"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
    ) as process:
        for line in process.stdout or []:
            # results are numbers with decimals, as the table has them; the lines above only
            # describe the problem
            if first is None and re.match(r"\w.* alone\b.*\d\.\d", line):
                first = time.perf_counter() - begun
    if process.returncode or first is None:
        raise RuntimeError("the demo failed, or printed no result")
    return first, time.perf_counter() - begun


def starting(quick: bool) -> Iterator[Row]:
    repeats = 2 if quick else 5
    fresh(["-c", "import decibo"])
    pairs = [(fresh(["-c", "import decibo"]), fresh(["-c", "import jax"])) for _ in range(repeats)]
    yield ratio(
        GROUP, "import decibo / import jax", [a for a, _ in pairs], [b for _, b in pairs], "<= 1.5"
    )
    with tempfile.TemporaryDirectory() as folder:
        cold = []
        warm = []
        for k in range(1 if quick else 3):
            own = {"XDG_CACHE_HOME": str(Path(folder) / str(k)), "DECIBO_CACHE": ""}
            cold.append(first_number(**own))
            warm.append(first_number(**own))
    yield Row(
        GROUP,
        "demo, seconds to the first result, cold cache",
        median(first for first, _ in cold),
        "s",
    )
    yield Row(
        GROUP,
        "demo, seconds to the first result, warm cache",
        median(first for first, _ in warm),
        "s",
        target="<= 10",
    )
    yield ratio(
        GROUP,
        "the whole demo, cold cache / warm cache",
        [whole for _, whole in cold],
        [whole for _, whole in warm],
    )


def rows(quick: bool) -> Iterator[Row]:
    yield from running(quick)
    yield from checkpoints(quick)
    yield from starting(quick)


if __name__ == "__main__":
    run_alone(rows)
