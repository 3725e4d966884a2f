"""Kill and freeze processes of a run at random, again and again, and see whether the result is the
same.

Every case starts a run under `launch --restarts 3` with a checkpoint every 50 steps and, once or
twice, at a random time, kills (SIGKILL) or freezes (SIGSTOP) a random process; process 0 is among
them. The final state must be that of an uninterrupted run bit for bit, no more than one checkpoint
interval may be lost, and nothing may be left behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from faults import Outcome

JOB = Path(__file__).parents[2] / "tests" / "parallel" / "_job.py"
EVERY = 50
STEPS = 400
HEARTBEAT = 6
PROCESSES = 3


def start(out: Path, processes: int, slow: float) -> subprocess.Popen:
    call = f"launch(sys.argv[1:], {processes}, restarts=3, heartbeat={HEARTBEAT})"
    code = f"import sys; from decibo.parallel.launch import launch; sys.exit({call})"
    job = [sys.executable, str(JOB), str(out), "--steps", STEPS, "--every", EVERY, "--slow", slow]
    job += ["--checkpoint", out.parent / "checkpoints"]
    command = [sys.executable, "-c", code, *map(str, job)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def members(out: Path) -> dict[int, int]:
    """Process number -> pid of those that work on this result."""
    processes = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{JOB}\0{out}" in (entry / "cmdline").read_text():
                env = dict(
                    item.split("=", 1)
                    for item in (entry / "environ").read_text().split("\0")
                    if "=" in item
                )
                if "DECIBO_PROCESS" in env:
                    processes[int(env["DECIBO_PROCESS"])] = int(entry.name)
        except OSError:
            continue
    return processes


def reached(out: Path) -> int:
    try:
        return int(out.with_suffix(".step").read_text())
    except (OSError, ValueError):
        return 0


def newest(out: Path) -> int:
    return max(
        [
            int(path.name.removeprefix("step-"))
            for path in (out.parent / "checkpoints").glob("step-*")
        ],
        default=0,
    )


def attack(
    process: subprocess.Popen, out: Path, drawn: random.Random, processes: int, target: int
) -> dict | None:
    """Wait until the run has come so far, then strike; None if it was over before."""
    while reached(out) < target or len(members(out)) < processes:
        if process.poll() is not None:
            return None
        time.sleep(0.02)
    time.sleep(drawn.random())
    alive = members(out)
    victim = drawn.choice([0, *range(processes)])
    if victim not in alive or process.poll() is not None:
        return None
    how = drawn.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
    before = reached(out)
    saved = newest(out)
    try:
        os.kill(alive[victim], how)
    except ProcessLookupError:
        return None
    return {"process": victim, "signal": how.name, "step": before, "lost": before - saved}


def result(out: Path) -> dict[str, np.ndarray]:
    if not out.exists():
        return {}
    with np.load(out, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def case(
    number: int, drawn: random.Random, folder: Path, expected: dict[str, np.ndarray]
) -> Outcome:
    out = folder / f"round{number}" / "run.npz"
    out.parent.mkdir()
    begun = time.perf_counter()
    process = start(out, PROCESSES, slow=0.1)
    strikes = [attack(process, out, drawn, PROCESSES, drawn.randrange(10, 250))]
    if drawn.random() < 0.4:
        strikes.append(attack(process, out, drawn, PROCESSES, drawn.randrange(10, 350)))
    hung = False
    try:
        process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        hung = True
        process.kill()
        process.communicate()
    made = [strike for strike in strikes if strike]
    found = result(out)
    same = found.keys() == expected.keys() and all(
        np.array_equal(found[name], expected[name]) for name in expected
    )
    struck = (
        "; ".join(f"{s['signal']} to {s['process']} at step {s['step']}" for s in made)
        or "too late"
    )
    return Outcome(
        f"{struck}",
        lost=not found or any(strike["lost"] > EVERY for strike in made),
        leaked=bool(members(out)),
        hung=hung,
        wrong=not same or process.returncode != 0,
        detail="" if same else f"exit {process.returncode}",
        seconds=time.perf_counter() - begun,
    )


def cases(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Kills and freezes in runs that are restarted from their checkpoints."""
    drawn = random.Random(seed)
    calm = folder / "calm" / "run.npz"
    calm.parent.mkdir()
    process = start(calm, PROCESSES, slow=0.0)
    messages = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(messages)
    expected = result(calm)
    for number in range(count):
        yield case(number, drawn, folder, expected)
