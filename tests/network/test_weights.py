"""W of any graph is symmetric, doubly stochastic and not negative, and has the rho that is asked
for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decibo import InputError
from decibo import networks as net
from helpers.networks import RULES, connected_graphs

pytestmark = pytest.mark.quick


@given(connected_graphs(), st.sampled_from(RULES))
def test_weights_of_any_graph(graph, rule):
    network = net.from_graph(graph, weights=rule)
    W = network.W
    np.testing.assert_allclose(W, W.T, atol=1e-15)
    np.testing.assert_allclose(W.sum(axis=0), 1, atol=1e-14)
    assert (W >= 0).all()
    assert {tuple(edge) for edge in network.edges} == {
        tuple(sorted(e)) for e in graph.edges if e[0] != e[1]
    }
    assert network.rho < 1


def test_metropolis_by_hand():
    W = net.star(3).W
    np.testing.assert_allclose(
        W, [[1 / 3, 1 / 3, 1 / 3], [1 / 3, 2 / 3, 0], [1 / 3, 0, 2 / 3]], atol=1e-15
    )
    lazy = net.star(3, weights="lazy_metropolis").W
    np.testing.assert_allclose(lazy, (np.eye(3) + W) / 2, atol=1e-15)


def test_max_degree_by_hand():
    np.testing.assert_allclose(
        net.path(3, weights="max_degree").W[0], [2 / 3, 1 / 3, 0], atol=1e-15
    )


@given(connected_graphs(most=9).filter(lambda graph: len(graph) > 1))
def test_best_constant_is_the_best_constant(graph):
    best = net.from_graph(graph, weights="best_constant")
    laplacian = np.diag(best.degrees.astype(float))
    laplacian[tuple(best.edges.T)] = laplacian[tuple(best.edges.T[::-1])] = -1
    for weight in np.linspace(0.01, 1 / best.degrees.max(), 20):
        other = np.eye(best.agents) - weight * laplacian - 1 / best.agents
        assert best.rho <= np.linalg.norm(other, 2) ** 2 + 1e-12


@pytest.mark.parametrize("rho", [0.274, 0.644, 0.923])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rho_of_the_paper(rho, seed):
    network = net.erdos_renyi(10, 0.7, seed=seed, rho=rho)
    W = network.W
    assert abs(np.linalg.norm(W - 1 / 10, 2) ** 2 - rho) < 1e-12
    assert (W >= 0).all()


def test_rho_on_a_ring_where_it_can_be_reached():
    assert net.ring(10, rho=0.923).rho == pytest.approx(0.923, abs=1e-12)
    assert net.ring(10, rho=0.7).rho == pytest.approx(0.7, abs=1e-12)
    with pytest.raises(
        InputError, match=r"rho = 0\.274.*reaches rho in \[0\.6.*, 1\).*denser graph"
    ):
        net.ring(10, rho=0.274)


@given(
    connected_graphs().filter(lambda graph: len(graph) > 1),
    st.floats(0.0, 0.999),
    st.sampled_from(RULES),
)
def test_rho_is_reached_or_rejected(graph, rho, rule):
    try:
        network = net.from_graph(graph, weights=rule, rho=rho)
    except InputError as error:
        if "reaches rho in" not in error.message:
            raise
    else:
        assert abs(np.linalg.norm(network.W - 1 / network.agents, 2) ** 2 - rho) < 1e-8
        assert (network.W >= 0).all()


def test_the_least_rho_of_the_message_can_be_reached():
    with pytest.raises(InputError) as caught:
        net.path(6, rho=0.1)
    least = float(caught.value.message.split("[")[1].split(",")[0])
    assert net.path(6, rho=least + 1e-5).rho == pytest.approx(least, abs=2e-5)


def test_rho_of_given_weights_and_of_one_agent():
    assert net.from_weights(net.grid(3, 3).W, rho=0.9).rho == pytest.approx(0.9, abs=1e-12)
    assert net.ring(1, rho=0.0).rho == 0
    assert net.complete(6, rho=0.0).rho == pytest.approx(0, abs=1e-12)
