"""The minimax case: g = -f."""

import numpy as np
import pytest

import decibo
from helpers.twin import as_rows

NETWORK = decibo.networks.erdos_renyi(10, 0.5, seed=3)


def test_with_lam_one_it_is_descent_ascent():
    problem = decibo.problems.minimax("quadratic")
    ours = decibo.solve(
        problem,
        NETWORK,
        decibo.methods.ahead_minimax(alpha=0.02, beta=0.05, gamma=0.05, lam=1.0),
        steps=200,
        start=decibo.random_start(1),
    )
    theirs = decibo.solve(
        problem,
        NETWORK,
        decibo.methods.dgda(alpha=0.02, beta=0.05),
        steps=200,
        start=decibo.random_start(1),
    )
    ours, theirs = as_rows(problem, ours), as_rows(problem, theirs)
    np.testing.assert_allclose(ours["x"], theirs["x"], atol=1e-12)
    np.testing.assert_allclose(ours["z"], theirs["y"], atol=1e-12)


def test_with_lam_above_one_y_and_z_reach_the_same_point():
    problem = decibo.problems.minimax("quadratic")
    # beta (lam - 1) = gamma
    method = decibo.methods.ahead_minimax(alpha=0.01, beta=0.01, gamma=0.03, lam=4.0)
    start = decibo.random_start(1, {"x": 1.0, "y": 1.0, "z": 1.0})
    solution = decibo.solve(problem, NETWORK, method, steps=5000, start=start)
    assert np.abs(solution.agents.y - solution.agents.z).max() < 1e-10


def test_it_is_ahead_itself_when_the_inner_objective_is_minus_the_outer():
    problem = decibo.problems.minimax("quadratic")
    one = decibo.solve(
        problem,
        NETWORK,
        decibo.methods.ahead_minimax(alpha=0.01, beta=0.01, gamma=0.03, lam=4.0),
        steps=50,
    )
    two = decibo.solve(
        problem, NETWORK, decibo.ahead(alpha=0.01, beta=0.01, gamma=0.03, lam=4.0), steps=50
    )
    np.testing.assert_allclose(one.agents.x, two.agents.x, atol=1e-12)


@pytest.mark.parametrize("method", ["ahead_minimax", "gt_gda"])
def test_auc_on_embedded_data_is_solved(method):
    problem = decibo.problems.minimax("auc")
    made = {
        "ahead_minimax": decibo.methods.ahead_minimax(alpha=0.02, beta=0.02, gamma=0.02, lam=2.0),
        "gt_gda": decibo.methods.gt_gda(alpha=0.02, beta=0.02),
    }[method]
    solution = decibo.solve(
        problem, decibo.complete(10), made, steps=5000, measures=["stationarity"]
    )
    first, last = solution.history["stationarity"][[0, -1]]
    assert last < 1e-3 * first
