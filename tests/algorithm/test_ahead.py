"""AHEAD against a loop over agents in numpy, on networks where a mixing error would show."""

import numpy as np
import pytest

import decibo
from helpers.twin import NETWORKS, SHAPES, as_rows, as_start, problem

pytestmark = pytest.mark.quick

ALPHA, BETA, GAMMA, LAM = 0.05, 0.02, 0.1, 5.0


def twin_step(twin, W, x, y, z):
    """The paper's Algorithm 1, agent by agent (with w_ij s_j where the box prints w_ij s_i)."""
    new_x, new_y, new_z = np.zeros_like(x), np.zeros_like(y), np.zeros_like(z)
    for i in range(twin.m):
        new_z[i] = sum(W[i, j] * z[j] for j in range(twin.m)) - GAMMA * twin.g_y(i, x[i], z[i])
        new_y[i] = sum(W[i, j] * y[j] for j in range(twin.m)) - BETA * (
            twin.f_y(i, x[i], y[i]) + LAM * twin.g_y(i, x[i], y[i])
        )
        new_x[i] = sum(W[i, j] * x[j] for j in range(twin.m)) - ALPHA * (
            twin.f_x(i, x[i], y[i]) + LAM * (twin.g_x(i, x[i], y[i]) - twin.g_x(i, x[i], z[i]))
        )
    return new_x, new_y, new_z


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("network", NETWORKS)
def test_five_steps_equal_numpy(shape, network):
    network = NETWORKS[network]()
    ours, twin = problem(shape, network.agents)
    start = twin.starts()
    method = decibo.ahead(alpha=ALPHA, beta=BETA, gamma=GAMMA, lam=LAM)
    solution = decibo.solve(
        ours, network, method, steps=5, start=as_start(ours, start), measures=["outer"]
    )
    rows = start["x"], start["y"], start["z"]
    for _ in range(5):
        rows = twin_step(twin, network.W, *rows)
    for name, row in zip("xyz", rows, strict=True):
        np.testing.assert_allclose(as_rows(ours, solution)[name], row, rtol=0, atol=1e-12)


def test_conforms():
    assert "light cone" in decibo.check_method(
        decibo.ahead(alpha=ALPHA, beta=BETA, gamma=GAMMA, lam=LAM), landing=False
    )


def test_schedules_are_functions_of_the_step():
    network = decibo.ring(6)
    ours, _ = problem("vector", 6)
    fixed = decibo.ahead(alpha=ALPHA, beta=BETA, gamma=GAMMA, lam=LAM)
    varying = decibo.ahead(
        alpha=lambda k: ALPHA + 0 * k, beta=BETA, gamma=lambda k: GAMMA / (1 + k), lam=lambda k: LAM
    )
    one = decibo.solve(ours, network, fixed, steps=1)
    two = decibo.solve(ours, network, varying, steps=1)
    np.testing.assert_allclose(one.agents.z, two.agents.z, atol=1e-14)
    one, two = (decibo.solve(ours, network, each, steps=3) for each in (fixed, varying))
    assert np.abs(one.agents.z - two.agents.z).max() > 1e-4


def test_settings_can_be_replaced_and_are_shown():
    method = decibo.ahead(alpha=7e-4, beta=1e-3, gamma=1e-2, lam=20.0)
    assert repr(method) == "ahead(alpha=0.0007, beta=0.001, gamma=0.01, lam=20)"
    assert method.replace(lam=5.0).settings == {
        "alpha": 7e-4,
        "beta": 1e-3,
        "gamma": 1e-2,
        "lam": 5.0,
    }
    with pytest.raises(decibo.InputError, match=r"no setting delta.*alpha, beta, gamma, lam"):
        method.replace(delta=1.0)


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma", "lam"])
@pytest.mark.parametrize("value", [0.0, -1e-3, float("nan"), float("inf"), "fast", [], True])
def test_bad_step_sizes_are_rejected(name, value):
    good = {"alpha": 1e-3, "beta": 1e-3, "gamma": 1e-2, "lam": 20.0}
    with pytest.raises(decibo.InputError, match=rf"{name} must be .*positive"):
        decibo.ahead(**{**good, name: value})


def test_a_bad_schedule_is_rejected():
    with pytest.raises(decibo.InputError, match=r"gamma\(0\) must be .*positive"):
        decibo.ahead(alpha=1e-3, beta=1e-3, gamma=lambda k: -1.0 * (k + 1), lam=20.0)
