"""MA-DSBO against a loop over agents in numpy."""

import jax
import numpy as np
import pytest

import decibo
from decibo.algorithm.ma_dsbo import ma_dsbo
from decibo.problems.quadratic import quadratic
from helpers.twin import NETWORKS, as_rows, as_start, problem

ALPHA, BETA, GAMMA, THETA, T, N = 0.05, 0.1, 0.2, 0.3, 3, 4
METHOD = ma_dsbo(alpha=ALPHA, beta=BETA, gamma=GAMMA, theta=THETA, T=T, N=N)


def mixed(W, rows):
    return np.stack([sum(W[i, j] * rows[j] for j in range(len(rows))) for i in range(len(rows))])


def twin_step(twin, W, x, y, v, r, warm, theta):
    agents = range(twin.m)
    for _ in range(T):
        y = mixed(W, y) - BETA * np.stack([twin.g_y(i, x[i], y[i]) for i in agents])
    residual = lambda v: np.stack(
        [twin.H(i, x[i], y[i], v[i]) - twin.f_y(i, x[i], y[i]) for i in agents]
    )
    v = v if warm else np.zeros_like(v)
    s = residual(v)
    d = s.copy()
    for _ in range(N):
        v, old = mixed(W, v) - GAMMA * d, s
        s = residual(v)
        d = mixed(W, d) + s - old
    u = np.stack([twin.f_x(i, x[i], y[i]) - twin.J(i, x[i], y[i], v[i]) for i in agents])
    return mixed(W, x) - ALPHA * r, y, v, (1 - theta) * r + theta * u


@pytest.mark.parametrize(
    ("network", "warm", "theta"),
    [("path", False, None), ("ring", True, THETA), ("star", False, None)],
)
def test_three_steps_equal_numpy(network, warm, theta):
    """Without theta it is alpha, as the authors have it."""
    network = NETWORKS[network]()
    method = METHOD.replace(warm=warm, theta=theta)
    ours, twin = problem("nested", network.agents)
    drawn = twin.starts()
    start = {"x": drawn["x"], "y": drawn["y"], "v": drawn["z"]}
    solution = decibo.solve(
        ours, network, method, steps=3, start=as_start(ours, start), measures=["outer"]
    )
    rows = start["x"], start["y"], start["v"], np.zeros_like(start["x"])
    for _ in range(3):
        rows = twin_step(twin, network.W, *rows, warm, theta or ALPHA)
    for name, row in zip("xyv", rows[:3], strict=True):
        np.testing.assert_allclose(as_rows(ours, solution)[name], row, rtol=0, atol=1e-10)
    cost = solution.cost
    assert (cost.outer_gradients, cost.inner_gradients) == (1, T)
    assert (cost.hessian_products, cost.jacobian_products) == (N + 1, 1)
    assert (cost.numbers, cost.messages) == (twin.n + (T + 2 * N) * twin.r, T + N + 1)


def test_conforms():
    assert "light cone" in decibo.check_method(METHOD, landing=False)


def test_a_changed_step_size_needs_no_new_compilation():
    assert jax.tree.structure(METHOD.core) == jax.tree.structure(
        METHOD.replace(alpha=0.01, beta=0.2).core
    )
    assert jax.tree.structure(METHOD.core) != jax.tree.structure(METHOD.replace(T=T + 1).core)


def test_lands_step_off():
    ours, network = quadratic(10), decibo.ring(10)
    floors = []
    for step in (0.05, 0.005):
        method = ma_dsbo(alpha=step, beta=step, gamma=0.1, T=20, N=80)
        solution = decibo.solve(
            ours, network, method, steps=round(25 / step), every=10**6, measures=["stationarity"]
        )
        floors.append(np.sqrt(solution.history["stationarity"][-1]))
    assert 1e-3 < floors[1] < floors[0] / 5 < 1e-2


@pytest.mark.parametrize("setting", [{"T": 0}, {"N": 2.5}, {"alpha": -1.0}])
def test_bad_settings_are_rejected(setting):
    with pytest.raises(decibo.InputError, match=next(iter(setting))):
        METHOD.replace(**setting)
