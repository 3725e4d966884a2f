"""What a run with 25 million weights costs before its first step, in time and memory; and
solve(memory=).

    python -m studies.performance.large [--weights 25000000] [--agents 2] [--steps 5]

(a)  Two agents, a quadratic in single precision, so that nearly all work is the library's own:
     seconds until the problem is there, checked and prepared, until the program is compiled, and
     for a step; the peak of memory in copies of y of ONE agent, beside the state of all of them
(b)  A network of six layers of 64 units, 2,048 samples, four agents: temporary memory of the
     compiled steps with all agents at once, one gradient after the other, and one gradient of one
     agent after the other
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.run import loop
from decibo.run.run import begin
from decibo.run.solve import MEMORY, prepare


def outer(x: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
    """A quadratic."""
    return 0.5 * jnp.mean((y - d) ** 2) + 0.05 * jnp.sum(x**2)


def inner(x: jax.Array, y: jax.Array, d: jax.Array) -> jax.Array:
    """A quadratic with y*(x) = x + mean d."""
    return 0.5 * jnp.mean((y - x[0] - d) ** 2)


def peak() -> float:
    """The most bytes that this process has had in memory so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def prepared(weights: int, agents: int, steps: int) -> None:
    """(a)."""
    before = peak()
    clock = time.perf_counter
    begun = clock()
    y0 = jnp.zeros(weights, jnp.float32)
    data = np.arange(agents, dtype=np.float32)
    problem = decibo.Problem(outer, inner, data, np.zeros(1, np.float32), y0)
    made = clock()
    network = decibo.complete(agents)
    method = decibo.ahead_exact(alpha=0.1, gamma=0.2, lam=10.0)
    options = {"steps": steps, "every": steps, "measures": ["outer"]}
    prepare(problem, network, method, **options)
    ready = clock()
    run = decibo.solve(problem, network, method, **options, progress=False)
    copies = (peak() - before) / (4 * weights)
    state = agents * run.cost.state / weights
    print(f"{agents} agents with {weights:,} weights each, ahead_exact")
    print(
        f"problem {made - begun:.1f} s, prepared {ready - made:.1f} s, compiled"
        f" {run.cost.compiling:.1f} s"
    )
    print(f"{run.cost.seconds / steps:.2f} s a step, {run.cost.measuring:.1f} s for 2 records")
    print(
        f"state {state:.0f} copies of y, peak of the whole run {copies:.0f} copies of y"
        f" ({peak() / 1e9:.1f} GB)"
    )


def network(y: list[jax.Array], a: jax.Array) -> jax.Array:
    """Layers with tanh."""
    for weights in y:
        a = jnp.tanh(a @ weights)
    return a


def fits(x: jax.Array, y: list[jax.Array], d: dict[str, jax.Array]) -> jax.Array:
    """The mean squared error, and weight decay."""
    decay = jnp.exp(x[0]) * sum(jnp.sum(weights**2) for weights in y)
    return jnp.mean((network(y, d["a"]) - d["b"]) ** 2) + decay


def activations() -> None:
    """(b)."""
    random = np.random.default_rng(0)
    draw = lambda *shape: random.normal(size=shape).astype(np.float32)
    data = {"a": draw(4, 2048, 64), "b": draw(4, 2048, 64)}
    problem = decibo.Problem(
        fits, fits, data, np.zeros(1, np.float32), [draw(64, 64) / 8 for _ in range(6)]
    )
    chunk = loop.Chunk.silent(3)
    for name, method in {
        "ahead_exact": decibo.ahead_exact(alpha=0.1, gamma=0.2, lam=10.0),
        "sldbo": decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1),
    }.items():
        sizes = []
        for memory in MEMORY:
            options = {"steps": 1, "every": 1, "measures": ["consensus_x"], "memory": memory}
            setup = prepare(problem, decibo.ring(4), method, **options)
            state = begin(setup).agents
            steps = loop.advance.lower(
                setup.program, setup.inputs, state, np.int32(0), chunk
            ).compile()
            sizes.append(steps.memory_analysis().temp_size_in_bytes / 1e6)
        found = ", ".join(
            f"{memory} {size:.1f} MB" for memory, size in zip(MEMORY, sizes, strict=True)
        )
        print(f"{name}: temporary memory of a step with memory= {found}")


def main() -> None:
    """Both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=int, default=25_000_000)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    prepared(options.weights, options.agents, options.steps)
    activations()


if __name__ == "__main__":
    main()
