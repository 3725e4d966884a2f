"""A ring of 100,000 agents, x and y of dimension 16: against the hand-written `roll`, and how much
memory it takes.

python benchmarks/ring.py [agents]
"""

from __future__ import annotations

import resource
import sys

import jax
import jax.numpy as jnp
import numpy as np
from timing import interleaved, table

import decibo

SIZE = 16
STEPS = 50
ALPHA = 1e-3
BETA = 1e-3
GAMMA = 1e-2
LAM = 10.0


def outer(x, y, d):
    return 0.5 * jnp.sum((y - d) ** 2)


def inner(x, y, d):
    return 0.5 * jnp.sum((y - x) ** 2) + 0.5 * jnp.sum((y - d) ** 2)


def hand_written(data: jax.Array):
    f = jax.vmap(jax.grad(outer, argnums=(0, 1)))
    g = jax.vmap(jax.grad(inner, argnums=(0, 1)))
    mix = lambda s: (s + jnp.roll(s, 1, axis=0) + jnp.roll(s, -1, axis=0)) / 3

    def step(state, _):
        x, y, z = state
        f_x, f_y = f(x, y, data)
        g_x, g_y = g(x, y, data)
        h_x, h_y = g(x, z, data)
        x_new = mix(x) - ALPHA * (f_x + LAM * (g_x - h_x))
        return (x_new, mix(y) - BETA * (f_y + LAM * g_y), mix(z) - GAMMA * h_y), None

    run = jax.jit(lambda state: jax.lax.scan(step, state, None, length=STEPS)[0])
    start = tuple(jnp.zeros_like(data) for _ in range(3))
    return lambda: run(start)


def main() -> None:
    m = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    data = np.random.default_rng(0).normal(size=(m, SIZE)).astype(np.float32)
    zero = np.zeros(SIZE, np.float32)
    problem = decibo.Problem(outer, inner, data, zero, zero)
    network = decibo.ring(m)
    method = decibo.ahead(alpha=ALPHA, beta=BETA, gamma=GAMMA, lam=LAM)
    options = {"steps": STEPS, "every": STEPS, "measures": ["consensus_x"], "progress": False}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours = lambda: decibo.solve(problem, network, method, **options).agents.x
    first = ours()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    theirs = hand_written(jnp.asarray(data))
    np.testing.assert_allclose(first, theirs()[0], atol=1e-4)
    print(f"AHEAD on a ring of {m:,} agents, x and y of dimension {SIZE}, float32")
    table(
        interleaved({"hand-written roll": theirs, "decibo.solve": ours}), STEPS, "hand-written roll"
    )
    state = 3 * m * SIZE * 4
    taken = (after - before) * 1024 / state
    print(
        f"state {state / 1e6:.1f} MB; memory taken by solve, compilation included: {taken:.1f} x"
        " the state"
    )


if __name__ == "__main__":
    main()
