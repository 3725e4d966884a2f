"""Many agents as one block on one device: time per step of AHEAD against the bytes that a step must
read.

    python -m studies.performance.gpu [--agents 10,100,1000,4000] [--json F] [--compare F]

Logistic regression, 400 training and 400 validation samples x 784 features for each agent, float32,
a ring. The floor is two passes over training and validation data, one forward and one backward, at
the bandwidth of a copy measured in the same run. `--json` keeps the states after some steps,
`--compare` compares them with those of another machine.

The two gradients of g in a step are written apart. XLA lets them share their passes over the data
on an H200, which was faster (1.29 ms at 1,000 agents) than one product with two columns (1.53 ms at
the same precision).
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.run import loop
from decibo.run.run import begin
from decibo.run.solve import prepare

SAMPLES = 400
FEATURES = 784
STEPS = 50


def problem(agents: int) -> decibo.Problem:
    """Made on the device: 4,000 agents have 10 GB of data."""

    @jax.jit
    def draw():
        keys = jax.random.split(jax.random.key(0), 3)
        x = jax.random.uniform(keys[0], (2, agents, SAMPLES, FEATURES))
        y = jnp.sign(jax.random.normal(keys[1], (2, agents, SAMPLES)))
        return {"x": x[0], "y": y[0], "vx": x[1], "vy": y[1]}

    return decibo.Problem(
        outer, inner, draw(), jnp.zeros(FEATURES), jnp.zeros(FEATURES), name="logistic"
    )


def loss(w, features, labels):
    return jnp.mean(jax.nn.softplus(-labels * (features @ w)))


def outer(x, y, d):
    return loss(y, d["vx"], d["vy"])


def inner(x, y, d):
    return loss(y, d["x"], d["y"]) + 0.5 * jnp.sum(jnp.exp(x) * y**2) / FEATURES


@partial(jax.jit, static_argnames=("program", "steps"))
def many(program, inputs, state, steps):
    return jax.lax.fori_loop(0, steps, lambda k, s: loop.step(program, inputs, s, k), state)


def median(call, repeats: int) -> float:
    """Seconds for a call, the median."""
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        before = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - before)
    return float(np.median(taken))


def bandwidth(bytes_: int) -> float:
    """Bytes a second that a copy reads and writes."""
    block = jnp.ones(bytes_ // 4, jnp.float32)
    copy = jax.jit(
        lambda b, steps: jax.lax.fori_loop(0, steps, lambda i, a: a + 1, b), static_argnums=1
    )
    return 2 * bytes_ * 20 / median(lambda: copy(block, 20), 5)


def measure(agents: int, speed: float, repeats: int) -> dict:
    method = decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0)
    network = decibo.ring(agents) if agents > 2 else decibo.networks.path(agents)
    setup = prepare(problem(agents), network, method, steps=STEPS, every=STEPS, measures=["outer"])
    start = begin(setup).agents
    seconds = median(lambda: many(setup.program, setup.inputs, start, STEPS), repeats) / STEPS
    data = 2 * agents * SAMPLES * FEATURES * 4
    floor = 2 * data / speed
    state = many(setup.program, setup.inputs, start, STEPS)
    rows = {
        name: np.asarray(row)
        for name, row in loop.rows_of(setup.program, setup.inputs, state).items()
    }
    sample = {name: row[: min(agents, 10), :20].tolist() for name, row in rows.items()}
    return {
        "agents": agents,
        "ms": 1e3 * seconds,
        "floor_ms": 1e3 * floor,
        "ratio": seconds / floor,
        "state": sample,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", default="10,100,1000,4000")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json")
    parser.add_argument("--compare")
    options = parser.parse_args()
    device = jax.devices()[0]
    large = device.platform != "cpu"
    speed = bandwidth(2**32 if large else 2**28)
    about = {
        "device": device.device_kind,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    about |= {
        "decibo": decibo.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "copy_GB_per_s": speed / 1e9,
    }
    print(
        ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in about.items()
        )
    )
    print(f"{'agents':>8}{'ms a step':>12}{'floor, ms':>12}{'ratio':>8}")
    rows = []
    for agents in map(int, options.agents.split(",")):
        row = measure(agents, speed, options.repeats)
        print(f"{agents:8}{row['ms']:12.3f}{row['floor_ms']:12.3f}{row['ratio']:8.2f}", flush=True)
        rows.append(row)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"about": about, "rows": rows}, file)
    if options.compare:
        with open(options.compare) as file:
            others = {row["agents"]: row["state"] for row in json.load(file)["rows"]}
        for row in rows:
            other = others.get(row["agents"])
            if other:
                gaps = [
                    np.abs(np.subtract(row["state"][v], other[v])).max() / np.abs(other[v]).max()
                    for v in other
                ]
                print(
                    f"{row['agents']} agents: largest relative difference after {STEPS} steps"
                    f" {max(gaps):.1e}"
                )


if __name__ == "__main__":
    main()
