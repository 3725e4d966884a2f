"""What the processes of the tests run: a small problem, with whatever can go wrong.

python tests/parallel/_job.py OUT [--steps 400] [--measures all] [--checkpoint DIR] [--every 50]
[--resume [auto]]
    [--spoil WHAT ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import decibo  # noqa: E402
from decibo.errors import LostError, StreamError  # noqa: E402

calls: list[int] = []


def data(agent: int) -> dict[str, np.ndarray]:
    """The data of one agent; remembers for whom it was called."""
    calls.append(agent)
    drawn = np.random.default_rng(agent)
    return {"a": 1 + drawn.random(3), "b": drawn.normal(size=3)}


def outer(x, y, d):
    return 0.5 * ((y - d["b"]) ** 2).sum() + 0.05 * (x**2).sum()


def inner(x, y, d):
    return 0.5 * (d["a"] * (y - x) ** 2).sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--measures", nargs="*", default=["all"])
    parser.add_argument("--checkpoint")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--resume", nargs="?", const=True, default=False)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to wait between stretches")
    parser.add_argument(
        "--spoil",
        nargs="*",
        default=[],
        help="what is wrong in so many runs: agents, steps, data, stream",
    )
    options = parser.parse_args()
    me = decibo.init_distributed()
    for spoil in options.spoil:
        try:
            run(options, me, spoil)
        except (decibo.InputError, LostError, StreamError) as error:
            print(f"process {me}: {error}", flush=True)
    if options.spoil:
        return
    solution = run(options, me)
    said = {
        "agents": calls,
        "status": str(solution.status),
        "steps": solution.steps,
        "message": solution.message,
    }
    options.out.with_suffix(f".{me}.json").write_text(json.dumps(said))
    if me == 0:
        state = {name: np.asarray(value) for name, value in vars(solution.agents).items()}
        recorded = {
            name: solution.history[name]
            for name in ("step", "outer", "stationarity")
            if name in solution.history
        }
        np.savez(options.out, **state, **recorded)


def run(options: argparse.Namespace, me: int, spoil: str = "") -> decibo.Solution:
    """One run; where something is to be wrong, process 1 has other steps or data than the others,
    or one agent."""
    other = spoil if me == 1 else ""
    private = (lambda agent: data(agent) | {"b": np.full(3, np.nan)}) if other == "data" else data
    agents = 1 if spoil == "agents" else 10
    problem = decibo.Problem(
        outer, inner, private, np.zeros(3), np.zeros(3), agents=agents, name="job"
    )
    if spoil == "stream":
        print(f"mean of x after 20 steps: {float(streamed(problem, 20).x.mean()):.12f}", flush=True)
        return streamed(problem, options.steps)

    def watch(step: int, steps: int, latest: dict) -> None:
        if me == 0:
            options.out.with_suffix(".step").write_text(str(step))
        time.sleep(options.slow)

    checkpoint = None
    if options.checkpoint:
        checkpoint = decibo.Checkpoints(
            options.checkpoint, every=options.every, resume=options.resume
        )
    return decibo.solve(
        problem,
        decibo.ring(agents) if agents > 2 else decibo.complete(agents),
        decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1),
        steps=options.steps + (other == "steps"),
        every=10,
        measures=options.measures,
        progress=watch,
        checkpoint=checkpoint,
    )


def streamed(problem: decibo.Problem, steps: int) -> decibo.Solution:
    """A run whose minibatches come from the host, until the disk of agent 6 is full of holes."""

    def read(agent: int, step: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        if (agent, step) == (6, 25):
            raise OSError("a hole in the disk")
        return data(agent) | {"b": random.normal(size=3)}

    stream = decibo.data.Stream.from_function(read, agents=10, block=10)
    problem = dataclasses.replace(problem, sample=stream)
    method = decibo.minibatch(decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1))
    return decibo.solve(problem, decibo.ring(10), method, steps=steps, every=10, progress=False)


if __name__ == "__main__":
    main()
