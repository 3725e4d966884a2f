"""F2SA, F2SA-2, BOME, V-PBGD and LV-HBA against numpy on one agent."""

import numpy as np
import pytest

import decibo
from decibo.algorithm import prox
from decibo.algorithm.centralised import bome, f2sa, f2sa_p, v_pbgd
from decibo.algorithm.schedules import polynomial
from decibo.contrib import lv_hba
from helpers.twin import as_rows, as_start, problem
from helpers.variants import daily

A, B, C, LAM, T = 0.05, 0.02, 0.1, 5.0, 3


def twin_f2sa(twin, k, x, y, z):
    lam = LAM * (1 + k) ** 0.5
    for _ in range(T):
        y = y - C / lam * (twin.f_y(0, x, y) + lam * twin.g_y(0, x, y))
        z = z - C * twin.g_y(0, x, z)
    return x - A * (twin.f_x(0, x, y) + lam * (twin.g_x(0, x, y) - twin.g_x(0, x, z))), y, z


def twin_f2sa_2(twin, k, x, y, z):
    """The symmetric penalty as published, with a normalised step of x."""
    lam = LAM * (1 + k) ** 0.5
    for _ in range(T):
        y = y - C * (twin.g_y(0, x, y) + twin.f_y(0, x, y) / lam)
        z = z - C * (twin.g_y(0, x, z) - twin.f_y(0, x, z) / lam)
    d = (twin.f_x(0, x, y) + twin.f_x(0, x, z)) / 2 + lam / 2 * (
        twin.g_x(0, x, y) - twin.g_x(0, x, z)
    )
    return x - A * d / np.linalg.norm(d), y, z


def twin_bome(twin, k, x, y):
    ahead = y
    for _ in range(T):
        ahead = ahead - C * twin.g_y(0, x, ahead)
    f = np.concatenate([twin.f_x(0, x, y), twin.f_y(0, x, y)])
    q = np.concatenate([twin.g_x(0, x, y) - twin.g_x(0, x, ahead), twin.g_y(0, x, y)])
    phi = 0.7 * q @ q
    new = np.concatenate([x, y]) - A * (f + max(phi - f @ q, 0) / (q @ q) * q)
    return new[: len(x)], new[len(x) :]


def twin_v_pbgd(twin, k, x, y, w):
    for _ in range(T):
        w = w - C * twin.g_y(0, x, w)
    d_x = twin.f_x(0, x, y) + LAM * (twin.g_x(0, x, y) - twin.g_x(0, x, w))
    return x - A * d_x, y - A * (twin.f_y(0, x, y) + LAM * twin.g_y(0, x, y)), w


def twin_lv_hba(twin, k, x, y, t):
    c, g1 = (k + 1) ** 0.3, 2.0
    t = np.clip(t - C * (twin.g_y(0, x, t) + (t - y) / g1), -1, 1)
    d_x = twin.f_x(0, x, y) / c + twin.g_x(0, x, y) - twin.g_x(0, x, t)
    d_y = twin.f_y(0, x, y) / c + twin.g_y(0, x, y) - (y - t) / g1
    return x - A * d_x, np.clip(y - B * d_y, -1, 1), t


METHODS = {
    "f2sa": (
        f2sa(alpha=A, gamma=C, lam=polynomial(LAM, 0.5), T=T),
        twin_f2sa,
        "xyz",
        (T + 1, 2 * T + 2),
    ),
    "f2sa_p": (
        f2sa_p(alpha=A, gamma=C, lam=polynomial(LAM, 0.5), T=T),
        twin_f2sa_2,
        "xyz",
        (2 * T + 2, 2 * T + 2),
    ),
    "bome": (bome(alpha=A, gamma=C, eta=0.7, T=T), twin_bome, "xy", (1, T + 1)),
    "v_pbgd": (v_pbgd(alpha=A, gamma=C, lam=LAM, T=T), twin_v_pbgd, "xyw", (1, T + 2)),
    "lv_hba": (
        lv_hba(alpha=A, beta=B, gamma=C, proximity=2.0, prox_y=prox.box(-1.0, 1.0)),
        twin_lv_hba,
        "xyt",
        (1, 3),
    ),
}


@pytest.mark.parametrize("shape", daily(["vector", "nested"], "vector"))
@pytest.mark.parametrize("name", METHODS)
def test_three_steps_equal_numpy(name, shape):
    method, step, variables, gradients = METHODS[name]
    ours, twin = problem(shape, 1)
    drawn = twin.starts()
    start = {variable: drawn.get(variable, drawn["z"]) for variable in variables}
    if name == "lv_hba":
        start |= {variable: np.clip(start[variable], -1, 1) for variable in "yt"}
    solution = decibo.solve(
        ours, decibo.complete(1), method, steps=3, start=as_start(ours, start), measures=["outer"]
    )
    s = [start[variable][0] for variable in variables]
    for k in range(3):
        s = step(twin, k, *s)
    for variable, row in zip(variables, s, strict=True):
        np.testing.assert_allclose(as_rows(ours, solution)[variable][0], row, rtol=0, atol=1e-10)
    cost = solution.cost
    assert (cost.outer_gradients, cost.inner_gradients) == gradients
    assert (cost.products, cost.messages) == (0, 0)


@pytest.mark.parametrize("name", METHODS)
def test_conforms(name):
    assert "one agent" in decibo.check_method(METHODS[name][0], landing=False)


@pytest.mark.parametrize("name", METHODS)
def test_more_agents_are_rejected(name):
    ours, _ = problem("vector", 3)
    with pytest.raises(decibo.InputError, match="centralised"):
        decibo.solve(ours, decibo.ring(3), METHODS[name][0], steps=1)


ALONE = decibo.problems.quadratic(agents=1, bend=0.05)


def bias(method, steps=600):
    """|grad Phi| and |c - y*(x)| where the method lands."""
    measures = ["stationarity", "inner_error"]
    solution = decibo.solve(
        ALONE, decibo.complete(1), method, steps=steps, every=steps, measures=measures
    )
    return [np.sqrt(solution.history[name][-1]) for name in measures]


@pytest.mark.parametrize(
    ("method", "steps", "said"),
    [
        (f2sa(alpha=0.1, gamma=0.1, lam=10.0), 2000, 1.4e-1),
        (f2sa(alpha=0.1, gamma=0.1, lam=100.0), 2000, 1.6e-2),
        (bome(alpha=0.1, gamma=0.2, T=50), 4000, 1.4e-1),
        (bome(alpha=0.01, gamma=0.2, T=50), 40_000, 1.5e-2),
        (lv_hba(alpha=0.5, beta=0.1, gamma=0.1, c=10.0), 20_000, 2.7e-1),
        (lv_hba(alpha=0.5, beta=0.1, gamma=0.1, c=100.0), 20_000, 3.4e-2),
    ],
    ids=["f2sa 10", "f2sa 100", "bome 0.1", "bome 0.01", "lv_hba 10", "lv_hba 100"],
)
def test_methods_land_where_their_docstrings_say(method, steps, said):
    problem = decibo.problems.quadratic(agents=1)
    solution = decibo.solve(
        problem, decibo.complete(1), method, steps=steps, every=steps, measures=["stationarity"]
    )
    assert np.sqrt(solution.history["stationarity"][-1]) == pytest.approx(said, rel=0.1)


@pytest.mark.parametrize("p", [2, 4])
def test_the_bias_of_f2sa_p_is_of_order_p(p):
    lams = np.array([30.0, 60.0, 120.0])
    biases = np.log(
        [bias(f2sa_p(alpha=0.2, gamma=0.2, lam=lam, p=p, normalised=False)) for lam in lams]
    )
    slopes = np.polyfit(np.log(lams), biases, 1)[0]
    assert ((-p - 0.1 <= slopes) & (slopes <= -p + 0.1)).all()


def test_a_normalised_step_of_f2sa_p_has_the_length_alpha():
    method = f2sa_p(alpha=0.03, gamma=0.2, lam=30.0)
    ends = [
        decibo.solve(ALONE, decibo.complete(1), method, steps=k, measures=["outer"]).x
        for k in (5, 6)
    ]
    assert np.linalg.norm(ends[1] - ends[0]) == pytest.approx(0.03)


@pytest.mark.parametrize("p", [0, 1, 3, 2.5])
def test_f2sa_p_takes_even_orders_only(p):
    with pytest.raises(decibo.InputError, match="p must be"):
        decibo.direction.penalty_p(10.0, p)
