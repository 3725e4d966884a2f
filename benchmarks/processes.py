"""The same run in one process and in two: what the exchange between processes costs.

    python benchmarks/processes.py [--processes 1,2] [--repeats 5] [--steps 1000]

Logistic regression, 10 agents x 400 samples x 784 features, float32, a ring, AHEAD, recording every 100 steps. Runs
with one and with two processes take turns; each process has its own share of the cores, one process has all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent


def work(out: str, steps: int) -> None:
    """In a started process: run once to compile, then again and write how long a step took."""
    import jax

    import decibo

    number = decibo.init_distributed()
    sys.path.insert(0, str(ROOT))
    import gpu

    problem, network = gpu.problem(10), decibo.ring(10)
    method = decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0)
    solve = lambda steps: decibo.solve(problem, network, method, steps=steps, every=100, progress=False)
    solve(200)
    short, long = solve(200), solve(200 + steps)
    if number == 0:
        seconds = (long.cost.seconds - short.cost.seconds) / steps
        Path(out).write_text(json.dumps({"ms": 1e3 * seconds, "processes": jax.process_count()}))


def once(processes: int, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "time.json"
        job = [sys.executable, __file__, "--work", str(out), "--steps", str(steps)]
        call = f"launch(sys.argv[1:], {processes})"
        code = f"import sys; from decibo.launch import launch; sys.exit({call})"
        subprocess.run([sys.executable, "-c", code, *job], check=True, stderr=subprocess.DEVNULL)
        return json.loads(out.read_text())["ms"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options.steps)
    counts = [int(count) for count in options.processes.split(",")]
    times = {count: [] for count in counts}
    for _ in range(options.repeats):  # in turn, so that a busy machine is busy for all of them
        for count in counts:
            times[count].append(once(count, options.steps))
    first = statistics.median(times[counts[0]])
    print(f"{'processes':>10}{'ms a step':>12}{'least':>8}{'most':>8}{'ratio':>8}")
    for count in counts:
        middle = statistics.median(times[count])
        print(f"{count:10}{middle:12.3f}{min(times[count]):8.3f}{max(times[count]):8.3f}{middle / first:8.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(times))
    return None


if __name__ == "__main__":
    main()
