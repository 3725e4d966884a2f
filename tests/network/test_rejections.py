"""Every invalid input is rejected with its value, the rule and, where there is one, the remedy."""

import networkx as nx
import numpy as np
import pytest

from decibo import InputError
from decibo import networks as net

pytestmark = pytest.mark.quick

HALF = np.full((2, 2), 0.5)
TWO_PARTS = nx.Graph([(0, 1), (1, 2), (3, 4)])
NAN = np.array([[np.nan, 0.5], [0.5, 0.5]])
ONE_WAY = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])

# name: (what is done, the value, the rule, the remedy)
CASES = {
    "no agents": (lambda: net.ring(0), "agents must be", "positive integer, but it is 0", ""),
    "half an agent": (
        lambda: net.ring(2.5),
        "agents must be",
        "positive integer, but it is 2.5",
        "",
    ),
    "true agents": (
        lambda: net.complete(True),
        "agents must be",
        "positive integer, but it is True",
        "",
    ),
    "rows": (lambda: net.grid(0, 3), "rows must be", "positive integer, but it is 0", ""),
    "k": (lambda: net.hypercube(-1), "k must be", "integer of at least 0, but it is -1", ""),
    "weights": (
        lambda: net.ring(3, weights="best"),
        "'best'",
        "metropolis, lazy_metropolis",
        "from_weights",
    ),
    "weights matrix": (
        lambda: net.ring(3, weights=HALF),
        "but it is array",
        "metropolis",
        "from_weights",
    ),
    "rho": (lambda: net.ring(9, rho=1.0), "it is 1.0", "[0, 1)", "leave it out"),
    "rho nan": (lambda: net.ring(9, rho=float("nan")), "nan", "[0, 1)", "leave it out"),
    "rho of one": (lambda: net.ring(1, rho=0.5), "it is 0.5", "single agent", "Leave rho out"),
    "rho too low": (
        lambda: net.path(9, rho=0.1),
        "rho = 0.1",
        "reaches rho in [0.8",
        "denser graph",
    ),
    "p": (
        lambda: net.erdos_renyi(9, 1.5, seed=0),
        "p must be",
        "number between 0 and 1, but it is 1.5",
        "",
    ),
    "sparse": (
        lambda: net.erdos_renyi(100, 0.01, seed=0),
        "p = 0.01",
        "connected",
        "log(agents)/agents = 0.0461",
    ),
    "seed": (
        lambda: net.erdos_renyi(9, 0.5, seed=None),
        "seed must be",
        "integer of at least 0, but it is None",
        "",
    ),
    "odd": (lambda: net.random_regular(5, 3, seed=0), "agents = 5 and degree = 3", "even", ""),
    "matching": (
        lambda: net.random_regular(6, 1, seed=0),
        "degree = 1",
        "connected",
        "degree >= 3",
    ),
    "neighbours": (
        lambda: net.small_world(9, 3, 0.1, seed=0),
        "it is 3",
        "even, half of them on either side",
        "",
    ),
    "radius": (
        lambda: net.geometric(9, -1, seed=0),
        "radius must be",
        "positive, finite number, but it is -1",
        "",
    ),
    "near": (
        lambda: net.geometric(50, 0.01, seed=0),
        "radius = 0.01",
        "connected",
        "sqrt(log(agents)/(pi agents))",
    ),
    "parts": (
        lambda: net.from_graph(TWO_PARTS),
        "2 components; the smallest has agents 3, 4",
        "reachable",
        "Add links",
    ),
    "empty": (
        lambda: net.from_graph(nx.Graph()),
        "the number of nodes must be",
        "positive integer, but it is 0",
        "",
    ),
    "digraph": (
        lambda: net.from_graph(nx.DiGraph([(0, 1)])),
        "DiGraph",
        "both directions",
        "from_digraph",
    ),
    "foreign": (
        lambda: net.from_graph(nx.path_graph(3), net.complete(3).W),
        "W[0, 2] = 0.333333",
        "neighbours only",
        "add the link",
    ),
    "size": (
        lambda: net.from_graph(nx.path_graph(3), HALF),
        "but it has 2",
        "each of the 3 nodes",
        "list(graph.nodes)",
    ),
    "not square": (lambda: net.from_weights(np.ones((2, 3))), "(2, 3)", "square", ""),
    "text": (lambda: net.from_weights("ring"), "'ring'", "matrix of numbers", "2-D array"),
    "nan": (lambda: net.from_weights(NAN), "W[0, 0] = nan", "finite", ""),
    "skew": (
        lambda: net.from_weights([[0.5, 0.4], [0.5, 0.6]]),
        "W[0, 1] = 0.4",
        "symmetric",
        "from_push_pull",
    ),
    "sums": (
        lambda: net.from_weights([[0.5, 0.4], [0.4, 0.6]]),
        "row 0 of W sums to 0.9",
        "sum to 1",
        "1 minus",
    ),
    "single": (
        lambda: net.from_weights(net.ring(3).W.astype(np.float32)),
        "row 0",
        "1e-10",
        "float64",
    ),
    "negative": (
        lambda: net.from_weights([[1.5, -0.5], [-0.5, 1.5]]),
        "W[0, 1] = -0.5",
        "negative",
        "smaller t",
    ),
    "apart": (lambda: net.from_weights(np.eye(2)), "2 components", "reachable", "Add links"),
    "swap": (lambda: net.from_weights(SWAP), "bipartite", "rho must be below 1", "(I + W)/2"),
    "one way": (lambda: net.from_adjacency(ONE_WAY), "A[0, 1] = 1", "symmetric", "from_digraph"),
    "weighted": (
        lambda: net.from_adjacency(HALF),
        "an entry 0.5",
        "zeros and ones",
        "from_weights",
    ),
    "kernel": (lambda: net.ring(3).mixing("fast"), "'fast'", "dense, circulant, sparse", ""),
    "no circulant": (
        lambda: net.path(9).mixing("circulant"),
        "9 agents",
        "shifts of the first",
        "Leave the kernel out",
    ),
    "other agents": (
        lambda: net.ring(3).mixing().stacked(np.ones((4, 2))),
        "float64[4, 2]",
        "each of the 3 agents",
        "same number",
    ),
    "counter": (
        lambda: net.ring(3).mixing().stacked(np.ones(3, int)),
        "int64[3]",
        "floating-point",
        "counters",
    ),
    "one arrow": (
        lambda: net.from_digraph(nx.DiGraph([(0, 1), (1, 2), (2, 1)])),
        "2 components; the smallest has agent 0",
        "reachable",
        "Add links",
    ),
    "no arrows": (
        lambda: net.from_digraph(nx.path_graph(3)),
        "Graph",
        "no direction",
        "from_graph",
    ),
    "A rows": (
        lambda: net.from_push_pull([[0.5, 0.4], [0.5, 0.5]], HALF),
        "row 0 of A",
        "sum to 1",
        "1 minus",
    ),
    "B columns": (
        lambda: net.from_push_pull(HALF, [[0.5, 0.4], [0.5, 0.5]]),
        "column 1 of B",
        "sum to 1",
        "1 minus",
    ),
    "A deaf": (lambda: net.from_push_pull(SWAP, HALF), "A[0, 0] = 0", "positive", "for itself"),
    "A and B": (
        lambda: net.from_push_pull(HALF, np.eye(1)),
        "A is (2, 2) and B is (1, 1)",
        "each agent",
        "",
    ),
    "A foreign": (
        lambda: net.from_digraph(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), A=net.complete(3).W),
        "A[0, 1] = 0.333333",
        "neighbours only",
        "add the link",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rejected(name):
    make, value, rule, remedy = CASES[name]
    with pytest.raises(InputError) as caught:
        make()
    error = caught.value
    assert value in error.message
    assert rule in error.message
    assert remedy in error.remedy
    assert all(part in str(error) for part in (value, rule, remedy))


def test_links_to_oneself_are_ignored():
    np.testing.assert_array_equal(net.from_adjacency(np.ones((3, 3))).W, net.complete(3).W)


def test_three_agents_without_self_weight_may_mix():
    W = (np.ones((3, 3)) - np.eye(3)) / 2
    assert net.from_weights(W).rho == pytest.approx(0.25)
