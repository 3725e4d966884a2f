"""A network for each variable: against numpy, the same as one if all are the same, and what it
costs."""

import numpy as np
import pytest

import decibo
from decibo import networks
from decibo.algorithm.compression import compressed, top_k
from helpers.twin import as_rows, as_start, problem

PROBLEM = problem("vector", 6)
PATH, RING, COMPLETE = networks.path(6), networks.ring(6), networks.complete(6)
STEPS = {"alpha": 0.05, "beta": 0.01, "gamma": 0.1, "lam": 5.0}
AHEAD = decibo.ahead(**STEPS)


def test_steps_equal_numpy():
    """AHEAD with a W of its own for x, y and z, that of y with two Chebyshev rounds."""
    ours, twin = PROBLEM
    by = {"x": PATH, "y": networks.chebyshev(RING, 2), "z": COMPLETE}
    start = s = twin.starts()
    for _ in range(4):
        new = {name: by[name].W @ s[name] for name in s}
        for i in range(6):
            x, y, z = (s[name][i] for name in "xyz")
            new["x"][i] -= 0.05 * (twin.f_x(i, x, y) + 5 * (twin.g_x(i, x, y) - twin.g_x(i, x, z)))
            new["y"][i] -= 0.01 * (twin.f_y(i, x, y) + 5 * twin.g_y(i, x, y))
            new["z"][i] -= 0.1 * twin.g_y(i, x, z)
        s = new
    found = as_rows(
        ours,
        decibo.solve(ours, by, AHEAD, steps=4, start=as_start(ours, start), measures=["outer"]),
    )
    for name, rows in s.items():
        np.testing.assert_allclose(found[name], rows, rtol=0, atol=1e-12, err_msg=name)


def test_a_better_network_for_the_inner_level_and_exactness_stay():
    quadratic = decibo.problems.quadratic(6)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    end = decibo.solve(
        quadratic,
        {"x": PATH, "y": COMPLETE, "z": COMPLETE},
        method,
        steps=2000,
        measures=["distance_x"],
    )
    assert end.history["distance_x"][-1] <= 1e-20


def test_the_same_network_for_all_is_one_network():
    ours, _ = PROBLEM
    ends = [
        decibo.solve(ours, network, AHEAD, steps=5, measures=["outer"])
        for network in (RING, dict.fromkeys("xyz", RING))
    ]
    assert np.array_equal(ends[0].agents.x, ends[1].agents.x)
    costs = [(end.cost.messages, end.cost.numbers, end.cost.bytes_total) for end in ends]
    assert costs[0] == costs[1]


def test_every_variable_is_counted_over_its_own_links():
    ours, twin = PROBLEM
    by = {"x": PATH, "y": networks.chebyshev(RING, 2), "z": COMPLETE}
    cost = decibo.solve(ours, by, AHEAD, steps=3, measures=["outer"]).cost
    assert cost.numbers_total == 3 * 2 * (5 * twin.n + 2 * 6 * twin.r + 15 * twin.r)
    assert cost.bytes_total == 8 * cost.numbers_total


def test_a_sweep_takes_it_too():
    ours, _ = PROBLEM
    by = {"x": PATH, "y": COMPLETE, "z": COMPLETE}
    swept = decibo.sweep(ours, by, AHEAD, {"alpha": [0.02, 0.05]}, steps=5, measures=["outer"])
    alone = decibo.solve(ours, by, AHEAD, steps=5, measures=["outer"])
    np.testing.assert_allclose(swept.history["outer"][1], alone.history["outer"], rtol=1e-12)


@pytest.mark.parametrize(
    ("network", "method", "words"),
    [
        ({"x": RING, "y": RING}, AHEAD, "Pass exactly one for each variable"),
        ({}, AHEAD, "is a dictionary"),
        ({"x": RING, "y": RING, "z": networks.ring(7)}, AHEAD, "the same agents"),
        (
            {"x": RING, "y": RING, "z": networks.directed_ring(6)},
            AHEAD,
            "such as z, needs symmetric",
        ),
        (
            dict.fromkeys("xy", RING),
            decibo.methods.c2dfb(alpha=0.1, beta=0.1, gamma=0.1, lam=5.0),
            "does not say which variable",
        ),
        (
            {"x": RING, "y": RING, "z": networks.failing(RING, 0.1)},
            compressed(AHEAD, top_k(0.5)),
            "keeps sums of what neighbours sent",
        ),
        (dict.fromkeys("xyz", RING), compressed(AHEAD, top_k(0.5)), "does not say which variable"),
    ],
)
def test_mistakes_are_sentences(network, method, words):
    with pytest.raises(decibo.InputError, match=words):
        decibo.solve(PROBLEM[0], network, method, steps=1)
