"""A step of AHEAD on logistic regression against a hand-written scan of the same gradients.

python benchmarks/step.py            10 agents x 400 samples x 784 features, recording every 100 steps included
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from timing import interleaved, table

import decibo

M, SAMPLES, FEATURES, STEPS, EVERY = 10, 400, 784, 400, 100
ALPHA, BETA, GAMMA, LAM = 1e-4, 5e-4, 2e-2, 10.0


def outer(x, y, d):
    return jnp.mean(jnp.logaddexp(0.0, -d["validation_labels"] * (d["validation"] @ y)))


def inner(x, y, d):
    return jnp.mean(jnp.logaddexp(0.0, -d["labels"] * (d["train"] @ y))) + jnp.sum(jnp.exp(x) * y**2)


def make_problem() -> decibo.Problem:
    random = np.random.default_rng(0)
    draw = lambda: random.normal(size=(M, SAMPLES, FEATURES)).astype(np.float32) / 28
    sign = lambda: np.sign(random.normal(size=(M, SAMPLES))).astype(np.float32)
    data = {"train": draw(), "labels": sign(), "validation": draw(), "validation_labels": sign()}
    zero = np.zeros(FEATURES, np.float32)
    return decibo.Problem(outer, inner, data, zero, zero)


def hand_written(problem: decibo.Problem, W: jax.Array):
    """What a careful user would write: gradients under vmap, W as a matrix, one scan, recording every 100 steps."""
    f = jax.vmap(jax.grad(outer, argnums=(0, 1)))
    g = jax.vmap(jax.grad(inner, argnums=(0, 1)))

    def step(data, state, _):
        x, y, z = state
        f_x, f_y = f(x, y, data)
        g_x, g_y = g(x, y, data)
        h_x, h_y = g(x, z, data)
        z_new = W @ z - GAMMA * h_y
        y_new = W @ y - BETA * (f_y + LAM * g_y)
        return (W @ x - ALPHA * (f_x + LAM * (g_x - h_x)), y_new, z_new), None

    def record(data, state, _):
        state, _ = jax.lax.scan(lambda s, i: step(data, s, i), state, None, length=EVERY)
        x, y, z = state
        seen = [jnp.mean(jax.vmap(outer)(x, y, data)), jnp.mean(jax.vmap(inner)(x, y, data))]
        seen += [jnp.sum((s - jnp.mean(s, axis=0)) ** 2) for s in state]
        return state, (*seen, seen[1] - jnp.mean(jax.vmap(inner)(x, z, data)))

    @jax.jit
    def run(data, state):
        return jax.lax.scan(lambda s, i: record(data, s, i), state, None, length=STEPS // EVERY)

    start = tuple(jnp.zeros((M, FEATURES), jnp.float32) for _ in range(3))
    return lambda: run(problem.data, start)


def main() -> None:
    problem = make_problem()
    network = decibo.erdos_renyi(M, 0.7, seed=0)
    method = decibo.ahead(alpha=ALPHA, beta=BETA, gamma=GAMMA, lam=LAM)
    ours = lambda: decibo.solve(problem, network, method, steps=STEPS, every=EVERY, progress=False).agents.x
    theirs = hand_written(problem, jnp.asarray(network.W, jnp.float32))
    np.testing.assert_allclose(ours(), theirs()[0][0], atol=1e-5)
    print(f"AHEAD, {M} agents x {SAMPLES} samples x {FEATURES} features, float32, recording every {EVERY} steps")
    times = interleaved({"hand-written scan": theirs, "decibo.solve": ours})
    table(times, STEPS, "hand-written scan")


if __name__ == "__main__":
    main()
