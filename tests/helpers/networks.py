"""Networks to try things on."""

from functools import partial

import jax
import networkx as nx
import numpy as np
from hypothesis import strategies as st

from decibo import networks as net
from decibo.network.mixing import AGENTS

# One of each kind of structure, small enough for a dense check and large enough for every kernel.
ZOO = {
    "one": net.ring(1),
    "two": net.path(2),
    "path": net.path(7),
    "ring": net.ring(9),
    "star": net.star(12),
    "complete": net.complete(5),
    "grid": net.grid(3, 4),
    "torus": net.torus(3, 4),
    "thin torus": net.torus(2, 5),
    "hypercube": net.hypercube(3),
    "exponential": net.exponential(11),
    "erdos_renyi": net.erdos_renyi(10, 0.5, seed=1),
    "random_regular": net.random_regular(10, 3, seed=1),
    "small_world": net.small_world(12, 4, 0.3, seed=1),
    "geometric": net.geometric(15, 0.5, seed=1),
    "broom": net.from_graph(nx.lollipop_graph(8, 5)),
    "tree": net.from_graph(nx.random_labeled_tree(20, seed=3)),
    "many neighbours": net.random_regular(24, 18, seed=0),
}
each_agent = partial(jax.vmap, axis_name=AGENTS)
RULES = ("metropolis", "lazy_metropolis", "max_degree", "best_constant")


@st.composite
def connected_graphs(draw: st.DrawFn, most: int = 12) -> nx.Graph:
    """A random tree with some more links."""
    m = draw(st.integers(1, most))
    graph = nx.Graph()
    graph.add_nodes_from(range(m))
    graph.add_edges_from((i, draw(st.integers(0, i - 1))) for i in range(1, m))
    agents = st.integers(0, m - 1)
    graph.add_edges_from(draw(st.lists(st.tuples(agents, agents), max_size=2 * m)))
    return graph


def rows(m: int, n: int = 3) -> np.ndarray:
    """One random row for each agent."""
    return np.random.default_rng(m).standard_normal((m, n))
