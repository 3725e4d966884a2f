"""MDBO against a loop over agents in numpy, with the series summed term by term."""

import numpy as np
import pytest

import decibo
from decibo.contrib.mdbo import mdbo
from decibo.problems.quadratic import quadratic
from helpers.twin import NETWORKS, as_rows, as_start, problem

pytestmark = [pytest.mark.quick, pytest.mark.slow]

ALPHA, BETA, ETA, WEIGHT, N = 0.05, 0.1, 0.4, 0.6, 5
THETAS = 0.3, 0.7
METHOD = mdbo(
    alpha=ALPHA, beta=BETA, eta=ETA, theta_x=THETAS[0], theta_y=THETAS[1], weight=WEIGHT, N=N
)


def mixed(W, rows):
    return np.stack([sum(W[i, j] * rows[j] for j in range(len(rows))) for i in range(len(rows))])


def directions(twin, x, y):
    d_x, d_y = np.zeros_like(x), np.zeros_like(y)
    for i in range(twin.m):
        H = np.stack([twin.H(i, x[i], y[i], e) for e in np.eye(twin.r)], axis=1)
        series = ETA * sum(
            np.linalg.matrix_power(np.eye(twin.r) - ETA * H, j) for j in range(N + 1)
        )
        d_x[i] = twin.f_x(i, x[i], y[i]) - twin.J(i, x[i], y[i], series @ twin.f_y(i, x[i], y[i]))
        d_y[i] = twin.g_y(i, x[i], y[i])
    return d_x, d_y


@pytest.mark.parametrize("network", ["path", "ring", "star"])
def test_three_steps_equal_numpy(network):
    network = NETWORKS[network]()
    ours, twin = problem("nested", network.agents)
    drawn = twin.starts()
    start = {"x": drawn["x"], "y": drawn["y"]}
    solution = decibo.solve(
        ours, network, METHOD, steps=3, start=as_start(ours, start), measures=["outer"]
    )
    x, y = start["x"], start["y"]
    momentum = tracker = np.zeros_like(x), np.zeros_like(y)
    for _ in range(3):
        new = [
            (1 - theta) * m + theta * d
            for theta, m, d in zip(THETAS, momentum, directions(twin, x, y), strict=True)
        ]
        tracker = [
            mixed(network.W, t) + a - b for t, a, b in zip(tracker, new, momentum, strict=True)
        ]
        momentum = new
        x, y = (
            s + WEIGHT * (mixed(network.W, s) - s - h * t)
            for s, h, t in zip((x, y), (ALPHA, BETA), tracker, strict=True)
        )
    found = as_rows(ours, solution)
    np.testing.assert_allclose(found["x"], x, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["y"], y, rtol=0, atol=1e-10)
    cost = solution.cost
    assert (cost.outer_gradients, cost.inner_gradients) == (1, 1)
    assert (cost.hessian_products, cost.jacobian_products) == (N, 1)
    assert (cost.numbers, cost.messages) == (2 * twin.n + 2 * twin.r, 1)


def test_conforms():
    assert "light cone" in decibo.check_method(METHOD, landing=False)


def test_vrdbo_is_mdbo_with_storm_in_place_of_momentum():
    """With full gradients STORM's correction vanishes: a+ = d + (1 - c) (a - d_old)."""
    ours, _ = problem("vector", 6)
    plain = METHOD.replace(theta_x=None, theta_y=None)
    vrdbo = decibo.with_estimator(plain, decibo.estimator.storm(0.3))
    network = NETWORKS["ring"]()
    whole = decibo.Problem(
        ours.outer, ours.inner, ours.data, ours.x0, ours.y0, sample=lambda d, key: d
    )
    one, two = (decibo.solve(whole, network, each, steps=20).x for each in (plain, vrdbo))
    np.testing.assert_allclose(one, two, atol=1e-12)


def test_right_for_equal_agents_and_wrong_for_unequal_ones():
    method = mdbo(alpha=0.1, beta=0.1, eta=0.4, N=60)
    reached = {}
    for heterogeneity in (0.0, 1.0):
        ours = quadratic(10, heterogeneity=heterogeneity)
        solution = decibo.solve(
            ours, decibo.ring(10), method, steps=1500, every=10**6, measures=["stationarity"]
        )
        reached[heterogeneity] = np.sqrt(solution.history["stationarity"][-1])
    assert reached[0.0] < 1e-8
    assert reached[1.0] > 0.1
