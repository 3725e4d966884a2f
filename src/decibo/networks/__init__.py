"""Networks by name, networks from your own graph or weights, and networks that change during a run.

All named graphs take `weights`, the rule for W, and `rho`, to which W is then scaled.
"""

from decibo.network.asynchronous import AsynchronousNetwork, asynchronous
from decibo.network.chebyshev import ChebyshevNetwork, chebyshev
from decibo.network.directed import (
    DirectedNetwork,
    directed_exponential,
    directed_ring,
    from_digraph,
    from_push_pull,
)
from decibo.network.graphs import (
    complete,
    erdos_renyi,
    exponential,
    from_adjacency,
    from_graph,
    from_weights,
    geometric,
    grid,
    hypercube,
    path,
    random_regular,
    ring,
    small_world,
    star,
    torus,
)
from decibo.network.network import Network
from decibo.network.per_variable import EachNetwork, each
from decibo.network.varying import VaryingNetwork, failing, periodic, sleeping

__all__ = [
    "AsynchronousNetwork",
    "ChebyshevNetwork",
    "DirectedNetwork",
    "EachNetwork",
    "Network",
    "VaryingNetwork",
    "asynchronous",
    "chebyshev",
    "complete",
    "directed_exponential",
    "directed_ring",
    "each",
    "erdos_renyi",
    "exponential",
    "failing",
    "from_adjacency",
    "from_digraph",
    "from_graph",
    "from_push_pull",
    "from_weights",
    "geometric",
    "grid",
    "hypercube",
    "path",
    "periodic",
    "random_regular",
    "ring",
    "sleeping",
    "small_world",
    "star",
    "torus",
]
