"""memory="less" and "low", one gradient after another: the same numbers with less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.run import loop
from decibo.run.run import begin
from decibo.run.solve import prepare

AGENTS, LAYERS, WIDTH, SAMPLES = 4, 4, 16, 512
random = np.random.default_rng(0)
DATA = {
    "a": random.normal(size=(AGENTS, SAMPLES, WIDTH)),
    "b": random.normal(size=(AGENTS, SAMPLES, WIDTH)),
}
Y0 = [random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(LAYERS)]


def network(y, a):
    for weights in y:
        a = jnp.tanh(a @ weights)
    return a


def outer(x, y, d):
    return jnp.mean((network(y, d["a"]) - d["b"]) ** 2)


def inner(x, y, d):
    return jnp.mean((network(y, d["a"]) - d["b"]) ** 2) + jnp.exp(x[0]) * sum(
        jnp.sum(weights**2) for weights in y
    )


PROBLEM = decibo.Problem(outer, inner, DATA, np.zeros(1), Y0, sample=decibo.data.Batches(4))
METHODS = {
    "first gradients": decibo.ahead_exact(alpha=0.1, gamma=0.1, lam=10.0),
    "products": decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1),
    "minibatches": decibo.minibatch(decibo.ahead_exact(alpha=0.1, gamma=0.1, lam=10.0)),
}
# of the memory that all gradients of all agents take at once; one product takes as much as all of a
# step
SHARES = {
    "first gradients": {"less": 0.6, "low": 0.4},
    "products": {"low": 0.4},
    "minibatches": {"less": 0.6, "low": 0.4},
}


def compiled(method, memory):
    """The bytes that 3 steps take besides state and data, and where they lead."""
    setup = prepare(
        PROBLEM,
        decibo.ring(AGENTS),
        method,
        steps=3,
        every=3,
        measures=["consensus_x"],
        memory=memory,
    )
    state = begin(setup).agents
    program = loop.advance.lower(
        setup.program, setup.inputs, state, np.int32(0), loop.Chunk.silent(3)
    ).compile()
    end = program(setup.inputs, state, np.int32(0), loop.Chunk.silent(3))
    return program.memory_analysis().temp_size_in_bytes, jax.tree.leaves(end.state)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_numbers_with_less_memory(name):
    method = METHODS[name]
    together, state = compiled(method, "normal")
    for memory, share in SHARES[name].items():
        in_turn, other = compiled(method, memory)
        for one, two in zip(state, other, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-12)
        assert in_turn < share * together


def test_a_run_may_go_on_with_less_memory(tmp_path):
    """It is the same run: only rounding may differ, and here not even that has to be."""
    run = lambda steps, **options: decibo.solve(
        PROBLEM,
        decibo.ring(AGENTS),
        METHODS["minibatches"],
        steps=steps,
        every=3,
        measures=["consensus_x"],
        **options,
    )
    run(3, checkpoint=decibo.Checkpoints(tmp_path))
    end = run(6, checkpoint=decibo.Checkpoints(tmp_path, resume=True), memory="low")
    np.testing.assert_allclose(end.x, run(6).x, atol=1e-12)
    with pytest.raises(decibo.InputError, match="memory must be one of normal, less, low"):
        run(3, memory="little")
