"""AHEAD on the paper's synthetic example with the paper's step sizes, and how far anything can
travel."""

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest

import decibo
from decibo.run import loop

METHOD = decibo.ahead(alpha=7e-4, beta=1e-3, gamma=1e-2, lam=20.0)


@pytest.mark.parametrize("seed", range(6))
def test_the_papers_example(seed):
    """y reaches 2.75; x stops between 0.30 and 0.36, short of 0.25: the heterogeneity floor of
    constant steps."""
    solution = decibo.solve(
        decibo.problems.synthetic(),
        decibo.networks.erdos_renyi(10, 0.7, seed=seed),
        METHOD,
        steps=1500,
        every=1,
        start=decibo.random_start(seed),
    )
    history = solution.history
    assert abs(solution.y - 2.75) <= 1e-4
    assert 0.30 <= solution.x <= 0.36
    assert (history["gap"][5:] < 0).all()
    others = np.minimum(history["consensus_y"], history["consensus_z"])
    assert (history["consensus_x"][60:] < others[60:]).all()


@pytest.mark.parametrize(
    "network",
    [decibo.networks.path(6), decibo.ring(7), decibo.networks.star(5)],
    ids=["path", "ring", "star"],
)
def test_light_cone(network):
    """After k steps agent i's state has no derivative with respect to agent j's data unless dist(i,
    j) < k."""
    m, k = network.agents, 3
    data = jnp.linspace(1.0, 2.0, m)
    problem = decibo.Problem(
        lambda x, y, d: 0.5 * (y - d) ** 2 + d * x**2,
        lambda x, y, d: 0.5 * d * (y - x) ** 2,
        data,
        0.5,
        0.3,
    )
    program = loop.Program(problem.functions, ())
    start = {"x": jnp.full((m, 1), 0.5), "y": jnp.full((m, 1), 0.3)}

    def final(data):
        inputs = loop.Inputs(METHOD.core, network.mixing("sparse"), data, jax.random.key(0), {}, {})
        state = loop.begin(program, inputs, start)
        for i in range(k):
            state = loop.step(program, inputs, state, jnp.int32(i))
        return jnp.concatenate(state.variables, axis=1)

    # (agent, agent whose data moves)
    seen = np.abs(np.asarray(jax.jacfwd(final)(problem.data))).max(axis=1)
    distance = np.array(networkx.floyd_warshall_numpy(network.graph, weight=None))
    assert (seen[distance >= k] == 0).all()
    assert (seen[distance < k] > 0).all()


def test_without_gradients_the_mean_stays():
    nothing = lambda x, y, d: 0.0 * (x + y + d)
    problem = decibo.Problem(nothing, nothing, jnp.zeros(7), 0.0, 0.0)
    start = {name: np.random.default_rng(0).normal(size=7) for name in ("x", "y", "z")}
    for network in (
        decibo.networks.path(7),
        decibo.networks.star(7),
        decibo.networks.erdos_renyi(7, 0.5, seed=0),
    ):
        solution = decibo.solve(problem, network, METHOD, steps=500, start=start)
        for name, values in start.items():
            np.testing.assert_allclose(getattr(solution.agents, name), values.mean(), atol=1e-10)


def test_a_complete_graph_with_equal_data_is_one_agent():
    one = decibo.Problem(
        lambda x, y, d: (y - d) ** 2, lambda x, y, d: (y - x) ** 2, jnp.array([2.0]), 0.1, 0.2
    )
    many = decibo.Problem(one.outer, one.inner, jnp.full(6, 2.0), 0.1, 0.2)
    alone = decibo.solve(one, decibo.complete(1), METHOD, steps=100)
    together = decibo.solve(many, decibo.complete(6), METHOD, steps=100)
    np.testing.assert_allclose(together.agents.x, alone.x, atol=1e-14)
