"""Directed networks: pulling agrees, pushing keeps the sum."""

import jax
import networkx as nx
import numpy as np
import pytest

from decibo import networks as net
from decibo.network.mixing import AgentMix, Circulant
from helpers.networks import ZOO, each_agent, rows

DIRECTED = {
    "one": net.directed_ring(1),
    "two": net.directed_ring(2),
    "ring": net.directed_ring(6),
    "exponential": net.directed_exponential(9),
    "digraph": net.from_digraph(
        nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 1), (1, 1)])
    ),
}


@pytest.mark.parametrize("name", DIRECTED)
def test_weights(name):
    network = DIRECTED[name]
    np.testing.assert_allclose(network.A.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(network.B.sum(axis=0), 1, atol=1e-14)
    assert ((network.A > 0) == (network.B > 0)).all()
    assert (network.A.diagonal() > 0).all()
    assert network.directed
    assert network.degrees.sum() == len(network.edges) == network.graph.number_of_edges()


@pytest.mark.parametrize("name", DIRECTED)
def test_pull_and_push(name):
    network = DIRECTED[name]
    S, key = rows(network.agents), jax.random.key(0)
    for kernel in (None, "dense", "sparse"):
        mix = AgentMix(network.mixing(kernel), 0, key)
        pulled, pushed = each_agent(lambda s, mix=mix: (mix(s), mix.push(s)))(S)
        np.testing.assert_allclose(pulled, network.A @ S, atol=1e-12)
        np.testing.assert_allclose(pushed, network.B @ S, atol=1e-12)
        np.testing.assert_allclose(pushed.sum(axis=0), S.sum(axis=0), atol=1e-12)


def test_pushing_what_all_agents_share():
    network = DIRECTED["digraph"]
    mix = AgentMix(network.mixing(), 0, jax.random.key(0))
    pushed = each_agent(lambda s: mix.push(1.0) + 0 * s)(np.zeros(network.agents))
    np.testing.assert_allclose(pushed, network.B.sum(axis=1), atol=1e-12)


def test_who_receives_from_whom():
    network = net.directed_ring(4)
    np.testing.assert_allclose(network.A[1], [0.5, 0.5, 0, 0])  # agent 1 receives from agent 0
    assert network.edges.tolist() == [[3, 0], [0, 1], [1, 2], [2, 3]]
    assert set(network.graph.edges) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert repr(network) == "DirectedNetwork(directed_ring, agents=4, edges=4)"


def test_shares_of_a_digraph():
    network = net.from_digraph(nx.DiGraph([("a", "b"), ("b", "a"), ("c", "a"), ("a", "c")]))
    assert network.labels == ("a", "b", "c")
    np.testing.assert_allclose(
        network.A, [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0], [1 / 2, 0, 1 / 2]]
    )
    np.testing.assert_allclose(network.B, network.A.T)


def test_circulant_mixing_on_a_large_directed_ring():
    network = net.directed_ring(1000)
    assert isinstance(network.mixing().pull, Circulant)
    S = rows(1000)
    np.testing.assert_allclose(
        network.mixing().stacked(S), (S + np.roll(S, 1, axis=0)) / 2, atol=1e-12
    )


def test_undirected_networks_say_so():
    assert not ZOO["ring"].directed
