"""Random regular graphs are simple, regular, connected, unbiased and quickly drawn."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from decibo import networks as net
from decibo.network.graphs import _pairing


@given(st.integers(4, 30), st.integers(3, 29), st.integers(0, 1000))
def test_simple_regular_and_connected(m, degree, seed):
    assume(degree < m and m * degree % 2 == 0)
    network = net.random_regular(m, degree, seed=seed)  # a Network is connected, or it is rejected
    assert (network.degrees == degree).all()
    assert len(network.edges) == m * degree // 2


@given(st.integers(4, 30), st.integers(0, 14), st.integers(0, 1000))
def test_no_link_twice_and_none_to_oneself(m, degree, seed):
    assume(2 * degree < m and m * degree % 2 == 0)
    links = np.sort(_pairing(np.random.default_rng(seed), m, degree), axis=1)
    assert (links[:, 0] < links[:, 1]).all()
    assert len(np.unique(links, axis=0)) == len(links)


@pytest.mark.parametrize("degree", [3, 4])  # drawn, and drawn as who is not linked
def test_all_pairs_are_linked_alike(degree):
    counts = np.zeros((8, 8))
    for seed in range(400):
        i, j = net.random_regular(8, degree, seed=seed).edges.T
        counts[i, j] += 1
    share = counts[np.triu_indices(8, 1)] / 400
    assert abs(share - degree / 7).max() < 0.1


def test_many_agents():
    network = net.random_regular(20_000, 8, seed=0)
    assert (network.degrees == 8).all()
