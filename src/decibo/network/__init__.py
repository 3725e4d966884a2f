"""Networks: graphs, weights, and mixing with neighbours."""

from decibo.network.constructors import from_adjacency, from_graph, from_weights
from decibo.network.directed import (
    DirectedNetwork,
    PushPull,
    directed_exponential,
    directed_ring,
    from_digraph,
    from_push_pull,
)
from decibo.network.graphs import complete, exponential, grid, hypercube, path, ring, star, torus
from decibo.network.kernels import Circulant, Dense, Sparse
from decibo.network.mixing import AGENTS, Mix, Mixing, mixer
from decibo.network.network import Network
from decibo.network.random_graphs import erdos_renyi, geometric, random_regular, small_world

__all__ = [
    "AGENTS",
    "Circulant",
    "Dense",
    "DirectedNetwork",
    "Mix",
    "Mixing",
    "Network",
    "PushPull",
    "Sparse",
    "complete",
    "directed_exponential",
    "directed_ring",
    "erdos_renyi",
    "exponential",
    "from_adjacency",
    "from_digraph",
    "from_graph",
    "from_push_pull",
    "from_weights",
    "geometric",
    "grid",
    "hypercube",
    "mixer",
    "path",
    "random_regular",
    "ring",
    "small_world",
    "star",
    "torus",
]
