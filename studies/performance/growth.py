"""How time and memory of a step of AHEAD grow: with agents, with the dimension, with links.

    python -m studies.performance.growth [--quick]

agents      10 to 1,000,000 on a ring, a torus and a random regular graph of degree 8, x and y of 16
            numbers; beside them the plainest loop over as many numbers, which leaves the cache
            where they do
dimension   10 to 1,000,000 numbers, ring of 10
links       1,000 agents, from 8 neighbours each to everybody

The largest networks have a process of their own, so that their peak of memory is theirs. The peak
is that of the whole process above what jax and a small run take: building and checking the network
and compilation are part of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from studies.performance.timing import Row, run_alone

GROUP = "growth"
FEATURES = 16
METHOD = {"alpha": 1e-3, "beta": 1e-3, "gamma": 1e-2, "lam": 10.0}


def outer(x, y, d):
    return 0.5 * jnp.sum((y - d) ** 2)


def inner(x, y, d):
    return 0.5 * jnp.sum((y - x) ** 2) + 0.5 * jnp.sum((y - d) ** 2)


def problem(m: int, size: int) -> decibo.Problem:
    data = np.random.default_rng(0).normal(size=(m, size)).astype(np.float32)
    zero = np.zeros(size, np.float32)
    return decibo.Problem(outer, inner, data, zero, zero)


def torus(m: int) -> decibo.Network:
    rows = next(r for r in range(int(m**0.5), 0, -1) if m % r == 0)
    return decibo.networks.torus(rows, m // rows)


GRAPHS: dict[str, Callable[[int], decibo.Network]] = {
    "ring": decibo.ring,
    "torus": torus,
    "random regular": lambda m: decibo.networks.random_regular(m, 8, seed=0),
}


def seconds_per_step(network: decibo.Network, size: int, seconds: float = 0.3) -> float:
    """The median of five runs that take about `seconds` each, less what a run of one step takes."""
    here = problem(network.agents, size)
    method = decibo.ahead(**METHOD)

    def run(steps: int) -> float:
        begun = time.perf_counter()
        decibo.solve(
            here,
            network,
            method,
            steps=steps,
            every=steps,
            measures=["consensus_x"],
            progress=False,
        )
        return time.perf_counter() - begun

    run(1)
    steps = 8
    while run(steps) - run(1) < seconds / 4 and steps < 200_000:
        steps *= 4
    pairs = [(run(steps) - run(1)) / (steps - 1) for _ in range(5)]
    return max(float(np.median(pairs)), 1e-9)


def peak() -> int:
    """The largest resident memory of this process since `reset`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    raise OSError("no VmHWM")


def reset() -> None:
    """Forget the peak, where the system lets us; otherwise it is that of the whole process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def alone(graph: str, m: int) -> dict[str, Any]:
    """In a process of its own: seconds and memory of one network."""
    decibo.solve(
        problem(10, FEATURES), decibo.ring(10), decibo.ahead(**METHOD), steps=2, progress=False
    )
    reset()
    before = peak()
    begun = time.perf_counter()
    network = GRAPHS[graph](m)
    built = time.perf_counter() - begun
    building = peak()
    reset()
    seconds = seconds_per_step(network, FEATURES, seconds=0.5)
    running = peak()
    state = 3 * m * FEATURES * 4
    results = {
        "m": m,
        "edges": len(network.edges),
        "seconds": seconds,
        "built": built,
        "state": state,
    }
    return results | {
        "building": building - before,
        "running": running - before,
        "peak": max(building, running),
    }


def in_a_process(graph: str, m: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "studies.performance.growth", "--part", graph, str(m)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"DECIBO_CACHE": "off"}
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """The slope of log(seconds) over log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def agents(quick: bool) -> Iterator[Row]:
    most = 10_000 if quick else 1_000_000
    for graph, make in GRAPHS.items():
        results = []
        for m in [10**k for k in range(1, 7) if 10**k <= most]:
            if m >= most / 10:
                results.append(in_a_process(graph, m))
            else:
                network = make(m)
                results.append(
                    {
                        "m": m,
                        "edges": len(network.edges),
                        "seconds": seconds_per_step(network, FEATURES),
                    }
                )
            note = f"{results[-1]['seconds'] / max(1, results[-1]['edges']) * 1e9:.1f} ns a link"
            yield Row(
                GROUP,
                f"{graph}, {m:,} agents: a step",
                1e3 * results[-1]["seconds"],
                "ms",
                note=note,
            )
        many = [each for each in results if each["m"] >= 1000]
        slope = exponent([each["edges"] for each in many], [each["seconds"] for each in many])
        what = f"{graph}: exponent of time in links, from 1,000 to {most:,} agents"
        yield Row(GROUP, what, slope, "", target="<= 1.05")
        last = results[-1]
        name = f"{graph}, {most:,} agents"
        yield Row(
            GROUP, f"{name}: peak of the whole process", last["peak"] / 1e9, "GB", target="<= 4"
        )
        yield Row(
            GROUP,
            f"{name}: memory of a run / state",
            last["running"] / last["state"],
            target="<= 12",
        )
        yield Row(
            GROUP,
            f"{name}: building the network",
            last["built"],
            "s",
            note=f"{last['building'] / 1e9:.2f} GB",
        )


def plain(m: int) -> float:
    """Seconds of s <- a s for as many numbers as a state has: read once, written once."""
    state = jnp.ones((m, 3 * FEATURES), jnp.float32)
    steps = max(4, 20_000_000 // m)
    loop = jax.jit(lambda s, a: jax.lax.fori_loop(0, steps, lambda _, s: a * s, s))
    times = []
    for _ in range(6):
        begun = time.perf_counter()
        jax.block_until_ready(loop(state, np.float32(0.999)))
        times.append((time.perf_counter() - begun) / steps)
    return float(np.median(times[1:]))


def compared(quick: bool) -> Iterator[Row]:
    sizes = [10**k for k in range(3, 5 if quick else 7)]
    slope = exponent(list(map(float, sizes)), [plain(m) for m in sizes])
    what = f"for comparison, s <- a s: exponent of time in agents, from 1,000 to {sizes[-1]:,}"
    yield Row(GROUP, what, slope, "", note="what leaving the cache costs here")


def dimension(quick: bool) -> Iterator[Row]:
    sizes = [10**k for k in range(1, 4 if quick else 7)]
    seconds = [seconds_per_step(decibo.ring(10), size) for size in sizes]
    for size, each in zip(sizes, seconds, strict=True):
        yield Row(GROUP, f"ring of 10, dimension {size:,}: a step", 1e3 * each, "ms")
    yield Row(
        GROUP,
        "exponent of time in the dimension, from 1,000",
        exponent(sizes[2:], seconds[2:]) if not quick else None,
        "",
    )


def links(quick: bool) -> Iterator[Row]:
    m = 200 if quick else 1000
    networks = {
        degree: decibo.networks.random_regular(m, degree, seed=0)
        for degree in (8, 32, 128)
        if degree < m
    }
    networks[m - 1] = decibo.complete(m)
    times = {degree: seconds_per_step(network, FEATURES) for degree, network in networks.items()}
    for degree, seconds in times.items():
        kind = type(networks[degree].mixing()).__name__.lower()
        yield Row(
            GROUP,
            f"{m:,} agents, {degree} neighbours each: a step",
            1e3 * seconds,
            "ms",
            note=f"{kind} mixing",
        )
    slope = exponent([m * degree / 2 for degree in times], list(times.values()))
    yield Row(
        GROUP,
        f"{m:,} agents: exponent of time in links, to the complete graph",
        slope,
        "",
        target="<= 1.05",
    )


def rows(quick: bool) -> Iterator[Row]:
    yield from agents(quick)
    yield from compared(quick)
    yield from dimension(quick)
    yield from links(quick)


if __name__ == "__main__":
    run_alone(rows, lambda graph, m: print(json.dumps(alone(graph, m))))
