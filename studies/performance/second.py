"""What second derivatives cost on a small neural network, and what doing without them saves.

    python -m studies.performance.second [--quick]

Inner level: the weights of a network 784 - 128 - 10 (101,770 numbers) trained on 4 agents x 256
samples; outer level: a ridge exponent for each of its four arrays, judged on 256 validation
samples. Memory is what the compiled step needs besides its arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.run import loop
from studies.performance.timing import Row, interleaved, milliseconds, per_step, ratio, run_alone

GROUP = "second"
M = 4
SAMPLES = 256


def scores(y, features):
    return jnp.tanh(features @ y["w1"] + y["b1"]) @ y["w2"] + y["b2"]


def loss(y, features, labels):
    logits = scores(y, features)
    return jnp.mean(
        jax.nn.logsumexp(logits, axis=1)
        - jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    )


def outer(x, y, d):
    return loss(y, d["validation"], d["validation_labels"])


def inner(x, y, d):
    ridge = sum(jnp.exp(x[name]) * jnp.sum(y[name] ** 2) for name in y)
    return loss(y, d["train"], d["labels"]) + ridge


def problem(hidden: int) -> decibo.Problem:
    random = np.random.default_rng(0)
    draw = lambda *shape: random.normal(size=shape).astype(np.float32)
    label = lambda: random.integers(10, size=(M, SAMPLES))
    data = {"train": draw(M, SAMPLES, 784), "labels": label()}
    data |= {"validation": draw(M, SAMPLES, 784), "validation_labels": label()}
    y0 = {
        "w1": draw(784, hidden) / 28,
        "b1": draw(hidden) * 0,
        "w2": draw(hidden, 10) / 11,
        "b2": draw(10) * 0,
    }
    return decibo.Problem(outer, inner, data, {name: np.float32(-6.0) for name in y0}, y0)


def memory(here: decibo.Problem, network: decibo.Network, method: decibo.Algorithm) -> int:
    """Bytes that one compiled step needs besides its arguments and results."""
    program = loop.Program(here.functions, ())
    rows = {"x": here.x_layout.ravel(here.x0), "y": here.y_layout.ravel(here.y0)}
    start = {name: jnp.tile(row, (network.agents, 1)) for name, row in rows.items()}
    inputs = loop.Inputs(method.core, network.mixing(), here.data, jax.random.key(0), {}, {})
    state = loop.begin(program, inputs, start)
    step = jax.jit(partial(loop.step, program))
    return step.lower(inputs, state, jnp.int32(0)).compile().memory_analysis().temp_size_in_bytes


def rows(quick: bool) -> Iterator[Row]:
    here = problem(16 if quick else 128)
    network = decibo.ring(M)
    implicit = {"alpha": 1e-3, "beta": 1e-2, "gamma": 1e-2}
    methods = {
        "ahead_exact": decibo.ahead_exact(alpha=1e-3, gamma=1e-2, lam=100.0),
        "ahead": decibo.ahead(alpha=1e-3, gamma=1e-2, lam=100.0),
        "sparkle_ed": decibo.methods.sparkle_ed(**implicit),
        "d_soba": decibo.methods.d_soba(**implicit),
        "d_soba, differences": decibo.methods.d_soba(**implicit, difference=1e-2),
        "mdbo, N = 10": decibo.contrib.mdbo(alpha=1e-3, beta=1e-2, eta=1e-2, N=10),
    }
    steps = 10 if quick else 40

    def run(method, steps):
        return lambda: (
            decibo.solve(
                here,
                network,
                method,
                steps=steps,
                every=steps,
                measures=["consensus_x"],
                progress=False,
            ).agents.x
        )

    calls = {name: run(method, steps) for name, method in methods.items()}
    calls |= {name + " 1": run(method, 1) for name, method in methods.items()}
    times = interleaved(calls, 3 if quick else 7)
    each = {name: per_step(times[name], times[name + " 1"], steps) for name in methods}
    taken = {name: memory(here, network, method) for name, method in methods.items()}
    for name in methods:
        note = f"{taken[name] / 1e6:.0f} MB besides state and data"
        yield milliseconds(
            GROUP, f"network of {here.y_layout.size:,} weights: {name}, a step", each[name], note
        )
    for name in list(methods)[2:]:
        yield ratio(GROUP, f"{name} / ahead_exact, time of a step", each[name], each["ahead_exact"])
        yield Row(
            GROUP, f"{name} / ahead_exact, memory of a step", taken[name] / taken["ahead_exact"]
        )


if __name__ == "__main__":
    run_alone(rows)
