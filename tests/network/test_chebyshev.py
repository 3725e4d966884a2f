"""Chebyshev gossip: the polynomial, its bound, what it costs, and what it buys on a poor
network."""

import numpy as np
import pytest
from numpy.polynomial import chebyshev as polynomial
from scipy.sparse import csr_array

import decibo
from decibo import networks as net
from decibo.network.mixing import How, make_dense

NETWORKS = {
    "path": net.path(9),
    "ring": net.ring(8),
    "star": net.star(6),
    "weighted": net.erdos_renyi(7, 0.5, seed=1),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_mixing_is_the_polynomial_of_w(name, rounds):
    network = NETWORKS[name]
    values, vectors = np.linalg.eigh(network.W)
    low, high = values[0], values[-2]
    T = lambda value: polynomial.chebval(
        (2 * value - low - high) / (high - low), [0] * rounds + [1]
    )
    P = vectors @ np.diag(T(values) / T(1)) @ vectors.T
    faster = net.chebyshev(network, rounds)
    S = np.random.default_rng(0).standard_normal((network.agents, 3))
    np.testing.assert_allclose(faster.W, P, atol=1e-13)
    np.testing.assert_allclose(faster.mixing().stacked(S), P @ S, atol=1e-13)
    np.testing.assert_allclose(faster.mixing().exchange(S, How.DIFFERENCE), P @ S - S, atol=1e-13)
    np.testing.assert_allclose(
        faster.rho, np.linalg.norm(P - 1 / network.agents, 2) ** 2, atol=1e-13
    )
    np.testing.assert_allclose(faster.edges, network.edges)


def test_one_agent_and_a_complete_network_stay_as_they_are():
    for network in (net.ring(1), net.complete(4)):
        faster = net.chebyshev(network, 3)
        S = np.random.default_rng(0).standard_normal((network.agents, 2))
        np.testing.assert_allclose(
            faster.mixing().stacked(S), np.broadcast_to(S.mean(0), S.shape), atol=1e-12
        )


def test_no_polynomial_of_the_degree_leaves_less():
    """Repeated plain exchanges, and the best powers of lazy weights, leave more of a
    disagreement."""
    path = net.path(20)
    faster = net.chebyshev(path, 4)
    others = [
        np.linalg.matrix_power(t * np.eye(20) + (1 - t) * path.W, 4)
        for t in np.linspace(-0.3, 0.9, 25)
    ]
    assert faster.rho < min(np.linalg.norm(other - 1 / 20, 2) ** 2 for other in others)


class Once(net.Network):
    """A network that mixes by a given matrix, in one exchange."""

    P: np.ndarray

    def mixing(self, kernel=None):
        return make_dense(csr_array(self.P))


@pytest.mark.parametrize(
    "method",
    [decibo.ahead_exact(alpha=0.05, gamma=0.1), decibo.ahead(alpha=0.01, gamma=0.1, lam=10.0)],
)
def test_a_step_is_the_one_with_the_polynomial_as_weights_and_costs_its_exchanges(method):
    quadratic = decibo.problems.quadratic(9)
    path = net.path(9)
    faster = net.chebyshev(path, 3)
    plain = decibo.solve(quadratic, path, method, steps=20)
    run = decibo.solve(quadratic, faster, method, steps=20)
    assert run.cost.messages == 3 * plain.cost.messages
    assert run.cost.bytes_total == 3 * plain.cost.bytes_total
    assert run.cost.gradients == plain.cost.gradients
    exchanged = Once(path.weights)
    object.__setattr__(exchanged, "P", faster.W)
    np.testing.assert_allclose(
        run.agents.x, decibo.solve(quadratic, exchanged, method, steps=20).agents.x, atol=1e-12
    )


@pytest.mark.slow
def test_poor_networks_are_repaid_many_times_over():
    """The same 1,000 steps on a path of 30 come 10^5 times closer with 4 exchanges than with
    one."""
    quadratic = decibo.problems.quadratic(30, condition=100.0, seed=0)
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05)
    left = [
        decibo.solve(
            quadratic, network, method, steps=1000, measures=["stationarity"], every=1000
        ).history["stationarity"][-1]
        for network in (net.path(30), net.chebyshev(net.path(30), 4))
    ]
    assert left[1] <= 1e-5 * left[0]


REJECTED = {
    "directed": lambda: net.chebyshev(net.directed_ring(5), 2),
    "varying": lambda: net.chebyshev(net.failing(net.ring(5), 0.1), 2),
    "twice": lambda: net.chebyshev(net.chebyshev(net.ring(5), 2), 2),
    "none": lambda: net.chebyshev(net.ring(5), 0),
    "half": lambda: net.chebyshev(net.ring(5), 1.5),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name):
    with pytest.raises(decibo.InputError, match=r"rounds must|chebyshev needs"):
        REJECTED[name]()
