"""Gossip-DSBO against a loop over agents in numpy, with the series summed term by term."""

import numpy as np
import pytest

import decibo
from decibo.contrib.gossip_dsbo import gossip_dsbo
from helpers.twin import NETWORKS, as_rows, as_start, problem

pytestmark = pytest.mark.slow

ALPHA, BETA, THETA, ETA, N = 0.05, 0.1, 0.3, 0.4, 5
METHOD = gossip_dsbo(alpha=ALPHA, beta=BETA, theta=THETA, eta=ETA, N=N)


def mixed(W, rows):
    return np.stack([sum(W[i, j] * rows[j] for j in range(len(rows))) for i in range(len(rows))])


def own(twin, x, y):
    units = np.eye(twin.r)
    return [
        np.stack([twin.f_x(i, x[i], y[i]) for i in range(twin.m)]),
        np.stack([twin.f_y(i, x[i], y[i]) for i in range(twin.m)]),
        np.stack(
            [np.stack([twin.J(i, x[i], y[i], e) for e in units], axis=1) for i in range(twin.m)]
        ),
        np.stack(
            [np.stack([twin.H(i, x[i], y[i], e) for e in units], axis=1) for i in range(twin.m)]
        ),
    ]


def twin_step(twin, W, x, y, gossip):
    u = np.zeros_like(x)
    for i in range(twin.m):
        f_x, f_y, J, H = (part[i] for part in gossip)
        factor = np.eye(twin.r) - ETA * H
        series = ETA * sum(np.linalg.matrix_power(factor, j) for j in range(N + 1))
        u[i] = f_x - J @ series @ f_y
    g_y = np.stack([twin.g_y(i, x[i], y[i]) for i in range(twin.m)])
    new = [
        (1 - THETA) * mixed(W, old) + THETA * now
        for old, now in zip(gossip, own(twin, x, y), strict=True)
    ]
    return mixed(W, x) - ALPHA * u, mixed(W, y) - BETA * g_y, new


@pytest.mark.parametrize("network", ["path", "ring", "star"])
def test_three_steps_equal_numpy(network):
    network = NETWORKS[network]()
    ours, twin = problem("nested", network.agents)
    drawn = twin.starts()
    start = {"x": drawn["x"], "y": drawn["y"]}
    solution = decibo.solve(
        ours, network, METHOD, steps=3, start=as_start(ours, start), measures=["outer"]
    )
    rows = start["x"], start["y"], own(twin, start["x"], start["y"])
    for _ in range(3):
        rows = twin_step(twin, network.W, *rows)
    for name, row in zip("xy", rows[:2], strict=True):
        np.testing.assert_allclose(as_rows(ours, solution)[name], row, rtol=0, atol=1e-10)
    cost, n, r = solution.cost, twin.n, twin.r
    assert (cost.outer_gradients, cost.inner_gradients) == (1, 1)
    assert (cost.hessian_products, cost.jacobian_products) == (r, r)
    assert (cost.numbers, cost.messages) == (2 * n + 2 * r + n * r + r * r, 1)


def test_conforms():
    assert "light cone" in decibo.check_method(METHOD, landing=False)
