"""The named graphs are what they say, and any size works."""

import networkx as nx
import numpy as np
import pytest

from decibo import InputError
from decibo import networks as net
from helpers.networks import ZOO

pytestmark = pytest.mark.quick


def same(network, graph):
    assert {tuple(edge) for edge in network.edges.tolist()} == {
        tuple(sorted(edge)) for edge in graph.edges
    }


def numbered(graph):
    return nx.convert_node_labels_to_integers(graph, ordering="sorted")


@pytest.mark.parametrize(
    ("network", "graph"),
    [
        (net.ring(6), nx.cycle_graph(6)),
        (net.path(6), nx.path_graph(6)),
        (net.star(6), nx.star_graph(5)),
        (net.complete(6), nx.complete_graph(6)),
        (net.grid(3, 4), numbered(nx.grid_2d_graph(3, 4))),
        (net.torus(3, 4), numbered(nx.grid_2d_graph(3, 4, periodic=True))),
        (net.exponential(10), nx.circulant_graph(10, [1, 2, 4, 8])),
        (net.hypercube(3), numbered(nx.hypercube_graph(3))),
        (net.ring(2), nx.path_graph(2)),
    ],
    ids=lambda value: repr(value) if isinstance(value, net.Network) else "",
)
def test_edges(network, graph):
    assert network.agents == len(graph)
    same(network, graph)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_agents(m):
    for make in (net.ring, net.path, net.star, net.complete, net.exponential):
        network = make(m)
        assert network.agents == m
        np.testing.assert_allclose(network.W.sum(axis=0), 1)
    assert net.ring(1).W.tolist() == [[1]]
    assert net.ring(1).rho == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: net.erdos_renyi(40, 0.12, seed=seed),
        lambda seed: net.random_regular(20, 3, seed=seed),
        lambda seed: net.small_world(20, 4, 0.4, seed=seed),
        lambda seed: net.geometric(30, 0.35, seed=seed),
    ],
)
def test_seeds(make):
    assert (make(3).weights != make(3).weights).nnz == 0
    assert make(3).edges.tolist() != make(4).edges.tolist()


def test_erdos_renyi_draws_all_pairs_alike():
    counts = np.zeros((6, 6))
    for seed in range(400):
        i, j = net.erdos_renyi(6, 0.8, seed=seed).edges.T
        counts[i, j] += 1
    share = counts[np.triu_indices(6, 1)] / 400
    assert abs(share - 0.8).max() < 0.1
    assert len(net.erdos_renyi(6, 1.0, seed=0).edges) == 15


def test_random_regular_has_its_degree():
    assert (net.random_regular(20, 3, seed=0).degrees == 3).all()


def test_from_graph_keeps_order_and_labels():
    graph = nx.Graph([("c", "a"), ("a", "b"), ("b", "b")], name="letters")
    network = net.from_graph(graph)
    assert network.labels == ("c", "a", "b")
    assert network.edges.tolist() == [[0, 1], [1, 2]]
    assert repr(network).startswith("Network(letters, agents=3, edges=2, rho=")


def test_from_graph_with_weights():
    W = net.path(3).W
    network = net.from_graph(nx.cycle_graph(3), W)
    np.testing.assert_array_equal(network.W, W)
    assert len(network.edges) == 2


def test_graph_goes_out_and_comes_back():
    for network in ZOO.values():
        again = net.from_graph(
            network.graph, nx.to_scipy_sparse_array(network.graph) + _diagonal(network)
        )
        assert abs(again.weights - network.weights).max() < 1e-15
        adjacency = nx.to_numpy_array(network.graph, weight=None)
        np.testing.assert_array_equal(net.from_adjacency(adjacency).edges, network.edges)


def _diagonal(network):
    from scipy.sparse import diags_array

    return diags_array(network.weights.diagonal())


def test_repr():
    assert repr(net.ring(10)) == "Network(ring, agents=10, edges=10, rho=0.7616)"
    assert repr(net.ring(5000)) == "Network(ring, agents=5000, edges=5000)"


def test_a_large_ring_needs_no_matrix():
    """As one it would take 80 GB."""
    network = net.ring(100_000)
    S = np.random.default_rng(0).standard_normal((network.agents, 2)).astype(np.float32)
    mixed = network.mixing().stacked(S)
    np.testing.assert_allclose(mixed, (S + np.roll(S, 1, 0) + np.roll(S, -1, 0)) / 3, atol=1e-6)
    assert network.rho < 1
    with pytest.raises(InputError, match=r"100000 agents.*20000 agents.*\.weights"):
        _ = network.W
