"""DSBO with JHIP against a loop over agents in numpy, with the matrices formed."""

import numpy as np
import pytest

import decibo
from decibo.contrib.dsbo_jhip import dsbo_jhip
from helpers.twin import NETWORKS, as_rows, as_start, problem

pytestmark = pytest.mark.slow

ALPHA, BETA, GAMMA, T, N = 0.05, 0.1, 0.2, 3, 4
METHOD = dsbo_jhip(alpha=ALPHA, beta=BETA, gamma=GAMMA, T=T, N=N)


def mixed(W, rows):
    return np.stack([sum(W[i, j] * rows[j] for j in range(len(rows))) for i in range(len(rows))])


def twin_step(twin, W, x, y, Z):
    agents = range(twin.m)
    for _ in range(T):
        y = mixed(W, y) - BETA * np.stack([twin.g_y(i, x[i], y[i]) for i in agents])
    units = np.eye(twin.r)
    H = [np.stack([twin.H(i, x[i], y[i], e) for e in units], axis=1) for i in agents]
    J = [np.stack([twin.J(i, x[i], y[i], e) for e in units], axis=1) for i in agents]
    residual = lambda Z: np.stack([H[i] @ Z[i] - J[i].T for i in agents])
    S = residual(Z)
    D = S.copy()
    for _ in range(N):
        Z, old = mixed(W, Z) - GAMMA * D, S
        S = residual(Z)
        D = mixed(W, D) + S - old
    u = np.stack([twin.f_x(i, x[i], y[i]) - Z[i].T @ twin.f_y(i, x[i], y[i]) for i in agents])
    return mixed(W, x) - ALPHA * u, y, Z


@pytest.mark.parametrize("network", ["path", "ring", "star"])
def test_three_steps_equal_numpy(network):
    network = NETWORKS[network]()
    ours, twin = problem("nested", network.agents)
    drawn = twin.starts()
    start = {"x": drawn["x"], "y": drawn["y"]}
    solution = decibo.solve(
        ours, network, METHOD, steps=3, start=as_start(ours, start), measures=["outer"]
    )
    rows = start["x"], start["y"], np.zeros((twin.m, twin.r, twin.n))
    for _ in range(3):
        rows = twin_step(twin, network.W, *rows)
    for name, row in zip("xy", rows[:2], strict=True):
        np.testing.assert_allclose(as_rows(ours, solution)[name], row, rtol=0, atol=1e-10)
    cost, n, r = solution.cost, twin.n, twin.r
    assert (cost.outer_gradients, cost.inner_gradients) == (1, T)
    assert (cost.hessian_products, cost.jacobian_products) == (n * (N + 1), r)
    assert (cost.numbers, cost.messages) == (n + T * r + 2 * N * n * r, T + N + 1)


def test_conforms():
    assert "light cone" in decibo.check_method(METHOD, landing=False)
