"""Kill and freeze processes of a run at random, again and again, and see whether the result is the same.

    python benchmarks/faults.py [--rounds 20] [--processes 3] [--seed 0] [--json F]

Every round starts a run under `launch --restarts 3` with a checkpoint every 50 steps and, once or twice, at a random
time, kills (SIGKILL) or freezes (SIGSTOP) a random process; process 0 is among them. The final state must be that of
an uninterrupted run bit for bit, no more than one checkpoint interval may be lost, and nothing may be left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

JOB = Path(__file__).parents[1] / "tests" / "parallel" / "_job.py"
EVERY = 50
STEPS = 400
HEARTBEAT = 6


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
                env = dict(item.split("=", 1) for item in (entry / "environ").read_text().split("\0") if "=" in item)
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
        [int(path.name.removeprefix("step-")) for path in (out.parent / "checkpoints").glob("step-*")], default=0
    )


def attack(process: subprocess.Popen, out: Path, drawn: random.Random, processes: int, target: int) -> dict | None:
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


def round_(number: int, processes: int, drawn: random.Random, folder: Path, expected: dict) -> dict:
    out = folder / f"round{number}" / "run.npz"
    out.parent.mkdir()
    begun = time.perf_counter()
    process = start(out, processes, slow=0.1)
    strikes = [attack(process, out, drawn, processes, drawn.randrange(10, 250))]
    if drawn.random() < 0.4:
        strikes.append(attack(process, out, drawn, processes, drawn.randrange(10, 350)))
    messages = process.communicate(timeout=300)[1]
    same = False
    if out.exists():
        with np.load(out, allow_pickle=False) as file:
            same = all(np.array_equal(file[name], expected[name]) for name in expected)
    left = members(out)
    named = [line.split(": ", 1)[1] for line in messages.splitlines() if "decibo launch: process" in line]
    return {
        "strikes": [strike for strike in strikes if strike],
        "code": process.returncode,
        "same": same,
        "left behind": len(left),
        "named": named,
        "seconds": time.perf_counter() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    options = parser.parse_args()
    drawn = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calm = folder / "calm" / "run.npz"
        calm.parent.mkdir()
        process = start(calm, options.processes, slow=0.0)
        assert process.wait() == 0
        with np.load(calm, allow_pickle=False) as file:
            expected = {key: file[key] for key in file.files}
        rows = []
        for number in range(options.rounds):
            row = round_(number, options.processes, drawn, folder, expected)
            struck = (
                "; ".join(f"{s['signal']} to {s['process']} at step {s['step']}" for s in row["strikes"]) or "too late"
            )
            verdict = "the same" if row["same"] and row["code"] == 0 else f"DIFFERENT (exit {row['code']})"
            lost = max([s["lost"] for s in row["strikes"]], default=0)
            print(f"{number + 1:3}  {verdict}, {lost} steps lost, {row['left behind']} left  {struck}", flush=True)
            rows.append(row)
    good = sum(row["same"] and row["code"] == 0 and not row["left behind"] for row in rows)
    strikes = sum(len(row["strikes"]) for row in rows)
    lost = max([s["lost"] for row in rows for s in row["strikes"]], default=0)
    print(
        f"{good} of {len(rows)} rounds ended with the same state; {strikes} strikes, at most {lost} steps lost", end=""
    )
    print(f" (interval {EVERY})")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
