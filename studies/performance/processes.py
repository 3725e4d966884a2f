"""The same run in one process and in two: what the exchange between processes costs.

    python -m studies.performance.processes [--processes 1,2] [--repeats 5] [--steps 1000]

Logistic regression, 10 agents x 400 samples x 784 features, float32, a ring, AHEAD, recording every
100 steps. Runs with one and with two processes take turns; each process has its own share of the
cores, one process has all of them.

Beside it, in the same processes: a hand-written loop with the same passes over the data and one
exchange of as many numbers, the same without the exchange, and the exchange alone. These say what
the transport costs on this machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LOOP = 300  # steps of the hand-written loops


def work(out: str, steps: int) -> None:
    """In a started process: run once to compile, then again and write how long a step took."""
    import decibo

    number = decibo.init_distributed()
    from studies.performance import gpu

    problem = gpu.problem(10)
    network = decibo.ring(10)
    method = decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0)
    solve = lambda steps: decibo.solve(
        problem, network, method, steps=steps, every=100, progress=False
    )
    solve(200)
    short = solve(200)
    long = solve(200 + steps)
    milliseconds = {"decibo": 1e3 * (long.cost.seconds - short.cost.seconds) / steps}
    loops = {name: hand_written(name) for name in ("by hand", "no exchange", "exchange only")}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(5):
        for name, run in loops.items():
            begun = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - begun) / LOOP)
    if number == 0:
        Path(out).write_text(
            json.dumps(
                milliseconds | {name: statistics.median(each) for name, each in times.items()}
            )
        )


def hand_written(kind: str) -> Callable[[], object]:
    """LOOP steps of six passes over the data, with the border rows of a ring exchanged before
    them."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.device_count()
    mesh = Mesh(np.array(jax.devices()), ("d",))
    split = PartitionSpec("d")
    draw = lambda index, shape: (
        np.random.default_rng(1).uniform(0, 1e-3, (10 // devices, *shape)).astype(np.float32)
    )
    rows = lambda *shape: jax.make_array_from_callback(
        (10, *shape), NamedSharding(mesh, split), lambda index: draw(index, shape)
    )
    ends = np.array([0, -1])
    ring = [(d, (d + 1) % devices) for d in range(devices)]

    def step(_: int, y: jax.Array, train: jax.Array, validation: jax.Array) -> jax.Array:
        received = jnp.tile(y[ends], (1, 3))
        along = jnp.zeros_like(y)
        if devices > 1 and kind != "no exchange":
            received = lax.ppermute(received, "d", ring)
        for data, scale in (
            ((train, 1.0), (train, 0.5), (validation, 1.0)) if kind != "exchange only" else ()
        ):
            along += jnp.einsum("msf,ms->mf", data, jnp.einsum("msf,mf->ms", data, scale * y))
        return (y - 1e-3 * along).at[ends].add(1e-3 * received[:, : y.shape[1]])

    def block(y: jax.Array, *data: jax.Array) -> jax.Array:
        return lax.fori_loop(0, LOOP, lambda k, y: step(k, y, *data), y)

    run = jax.jit(
        jax.shard_map(block, mesh=mesh, in_specs=(split,) * 3, out_specs=split, check_vma=False)
    )
    arguments = rows(784), rows(400, 784), rows(400, 784)
    jax.block_until_ready(run(*arguments))
    return lambda: jax.block_until_ready(run(*arguments))


def once(processes: int, steps: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "time.json"
        job = [sys.executable, "-m", "studies.performance.processes"]
        job += ["--work", str(out), "--steps", str(steps)]
        call = f"launch(sys.argv[1:], {processes})"
        code = f"import sys; from decibo.parallel.launch import launch; sys.exit({call})"
        subprocess.run([sys.executable, "-c", code, *job], check=True, stderr=subprocess.DEVNULL)
        return json.loads(out.read_text())


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
    times: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    for _ in range(options.repeats):  # in turn, so that a busy machine is busy for all of them
        for count in counts:
            times[count].append(once(count, options.steps))
    print(f"{'processes':>10}  {'loop':16}{'ms a step':>10}{'least':>8}{'most':>8}{'ratio':>8}")
    for name in times[counts[0]][0]:
        each = {count: [row[name] for row in times[count]] for count in counts}
        first = statistics.median(each[counts[0]])
        for count in counts:
            middle = statistics.median(each[count])
            compared = f"{middle / first:8.2f}" if name != "exchange only" else ""
            print(
                f"{count:10} "
                f" {name:16}{middle:10.3f}{min(each[count]):8.3f}{max(each[count]):8.3f}{compared}"
            )
    if options.json:
        Path(options.json).write_text(json.dumps(times))
    return None


if __name__ == "__main__":
    main()
