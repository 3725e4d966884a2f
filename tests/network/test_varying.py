"""Networks whose links come and go keep W doubly stochastic, and exact methods still converge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.network.mixing import AgentMix
from helpers.variants import daily

NETWORKS = {
    "failing": lambda: decibo.networks.failing(decibo.networks.erdos_renyi(8, 0.5, seed=0), 0.3),
    "sleeping": lambda: decibo.networks.sleeping(decibo.networks.star(8), 0.3),
    "periodic": lambda: decibo.networks.periodic(
        [decibo.ring(8), decibo.networks.path(8), decibo.networks.star(8)]
    ),
    "failing periodic": lambda: decibo.networks.failing(
        decibo.networks.periodic([decibo.ring(8), decibo.networks.star(8)]), 0.3
    ),
}


@jax.jit
def _matrix(mixing, k, seed):
    return mixing.stacked(jnp.eye(mixing.neighbours.shape[1]), k, jax.random.key(seed))


def matrix(network, k, seed):
    return np.asarray(_matrix(network.mixing(), k, seed))


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_stay_symmetric_and_doubly_stochastic_on_the_links_that_remain(name):
    network = NETWORKS[name]()
    for k in range(6):
        W = matrix(network, k, seed=k)
        np.testing.assert_allclose(W, W.T, atol=1e-15)
        np.testing.assert_allclose(W.sum(axis=0), 1, atol=1e-12)
        assert (W >= -1e-15).all()
        links = (np.abs(W) > 1e-15) & ~np.eye(8, dtype=bool)
        assert not (links & (network.W == 0)).any()


def test_links_fail_as_often_as_said_and_weights_of_the_others_stay():
    base = decibo.ring(8)
    network = decibo.networks.failing(base, 0.3)
    seen = np.stack([matrix(network, 0, seed) for seed in range(200)])
    link = base.W * ~np.eye(8, dtype=bool)
    assert set(np.round(np.unique(seen[:, link > 0]), 12)) == {0.0, np.round(1 / 3, 12)}
    assert abs((seen[:, link > 0] == 0).mean() - 0.3) < 0.05
    np.testing.assert_allclose(matrix(decibo.networks.failing(base, 0.0), 0, 0), base.W, atol=1e-15)


def test_a_sleeping_agent_hears_and_says_nothing():
    network = decibo.networks.sleeping(decibo.complete(6), 0.5)
    W = matrix(network, 0, 3)
    asleep = np.flatnonzero(np.diag(W) == 1)
    assert 0 < len(asleep) < 6
    assert (W[asleep].sum(axis=1) == 1).all()


def test_networks_take_turns():
    parts = [decibo.ring(6), decibo.networks.path(6)]
    network = decibo.networks.periodic(parts)
    for k in range(4):
        np.testing.assert_allclose(matrix(network, k, 0), parts[k % 2].W, atol=1e-15)


def test_turns_may_be_disconnected_if_all_together_are_not():
    pairs = np.kron(np.eye(2), np.full((2, 2), 0.5))
    across = np.roll(np.roll(pairs, 1, axis=0), 1, axis=1)
    assert decibo.networks.periodic([pairs, across]).agents == 4
    with pytest.raises(decibo.InputError, match="2 components"):
        decibo.networks.periodic([pairs, pairs])


def test_the_agents_view_agrees_with_the_stacked_one():
    network = NETWORKS["failing"]()
    S, key = np.random.default_rng(0).normal(size=(8, 3)), jax.random.key(5)
    mix = AgentMix(network.mixing(), jnp.int32(2), key)
    one = jax.vmap(mix, axis_name="agents")(S)
    np.testing.assert_allclose(
        one, network.mixing().stacked(jnp.asarray(S), jnp.int32(2), key), atol=1e-15
    )


@pytest.mark.parametrize("name", daily(["failing", "sleeping", "periodic"], "failing"))
def test_exact_methods_still_converge(name):
    network = NETWORKS[name]()
    problem = decibo.problems.quadratic(agents=8)
    for method in (
        decibo.ahead_exact(alpha=0.05, gamma=0.1, lam=10.0),
        decibo.methods.sldbo(alpha=0.02, beta=0.05, gamma=0.05),
    ):
        solution = decibo.solve(
            problem, network, method, steps=8000, every=8000, measures=["stationarity"]
        )
        assert solution.history["stationarity"][-1] <= 1e-16


def test_invalid_arguments_are_rejected():
    for probability in (-0.1, 1.0, float("nan")):
        with pytest.raises(decibo.InputError, match=r"probability must be"):
            decibo.networks.failing(decibo.ring(5), probability)
    with pytest.raises(decibo.InputError, match="needs"):
        decibo.networks.sleeping(decibo.networks.directed_ring(5), 0.1)  # type: ignore[arg-type]
    with pytest.raises(decibo.InputError, match="at least one network"):
        decibo.networks.periodic([])
    with pytest.raises(decibo.InputError, match=r"networks of \[5, 6\] agents"):
        decibo.networks.periodic([decibo.ring(5), decibo.ring(6)])
