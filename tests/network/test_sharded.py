"""Exchange plans: everything needed arrives, nothing else travels, in the fewest rounds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.network.sharded import colour, make_plan
from decibo.parallel.placement import Placement


def place(m: int, devices: int) -> Any:
    """Where agents would be on so many devices; there need not be any for planning."""
    return Placement(SimpleNamespace(size=devices), m)  # type: ignore[arg-type]


@given(
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] != pair[1]))
)
def test_rounds_are_as_few_as_the_busiest_device_has_links(links):
    rounds = colour(sorted(links))
    assert sorted(link for pairs in rounds for link in pairs) == sorted(links)
    for pairs in rounds:
        assert len({p for p, _ in pairs}) == len({q for _, q in pairs}) == len(pairs)
    busiest = max(
        [sum(end[side] == d for end in links) for d in range(8) for side in (0, 1)], default=0
    )
    assert len(rounds) == busiest


@given(st.integers(1, 40), st.integers(1, 9))
def test_blocks_hold_every_agent_once_and_repeat_only_their_last(m, devices):
    devices = min(m, devices)
    where = place(m, devices)
    assert where.sizes.sum() == m
    assert where.sizes.max() - where.sizes.min() <= 1
    assert (where.agents.ravel()[where.rows] == np.arange(m)).all()
    for agents, size in zip(where.agents, where.sizes, strict=True):
        assert len(set(agents[:size])) == size
        assert (agents[size:] == agents[size - 1]).all()


NETWORKS = {
    "ring": decibo.ring(12),
    "path": decibo.networks.path(12),
    "star": decibo.networks.star(12),
    "torus": decibo.networks.torus(3, 4),
    "random": decibo.networks.erdos_renyi(12, 0.4, seed=2),
    "complete": decibo.complete(12),
}


def delivered(plan: Any, where: Any, S: np.ndarray) -> list[np.ndarray]:
    """What each device has after the exchange, done by hand."""
    blocks = [S[agents] for agents in where.agents]
    received = [[block] for block in blocks]
    for pairs, send in zip(plan.parts, plan.sends, strict=True):
        arriving = [np.zeros((send.shape[1], S.shape[1])) for _ in blocks]
        for p, q in pairs:
            arriving[q] = blocks[p][send[p]]
        for rows, part in zip(received, arriving, strict=True):
            rows.append(part)
    return [np.concatenate(rows) for rows in received]


def crossings(plan):
    """How many rows cross a border between devices in one exchange."""
    return sum(
        len(pairs) * send.shape[1] for pairs, send in zip(plan.parts, plan.sends, strict=True)
    )


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_plan_delivers_what_agents_need_and_nothing_else(name, devices):
    network, where = NETWORKS[name], place(12, devices)
    plan = make_plan(network.weights, where.agents)
    S = np.random.default_rng(0).normal(size=(12, 2))
    W, device = network.W, np.zeros(12, int)
    device[where.agents] = np.arange(devices)[:, None]
    crossing = {
        (j, device[i]) for i, j in zip(*np.nonzero(W), strict=True) if device[i] != device[j]
    }
    assert crossings(plan) == len(crossing)
    for d, (agents, rows) in enumerate(zip(where.agents, delivered(plan, where, S), strict=True)):
        senders = plan.received[d]
        np.testing.assert_array_equal(rows[senders >= 0], S[senders[senders >= 0]])
        for agent in agents:
            assert set(np.flatnonzero(W[agent])) <= set(senders)


@pytest.mark.parametrize("name", NETWORKS)
def test_with_one_agent_a_device_every_link_carries_one_row_each_way(name):
    network = NETWORKS[name]
    plan = make_plan(network.weights, place(12, 12).agents)
    assert crossings(plan) == 2 * len(network.edges)


def test_a_ring_in_blocks_needs_two_messages_of_one_row():
    plan = make_plan(decibo.ring(1000).weights, place(1000, 8).agents)
    assert [send.shape[1] for send in plan.sends] == [1, 1]
    assert crossings(plan) == 16


def test_directed_plans_follow_the_arrows():
    network = decibo.networks.directed_ring(6)
    plan = make_plan(network.pull, place(6, 3).agents)
    assert plan.parts == (((0, 1), (1, 2), (2, 0)),)
    assert crossings(plan) == 3
