"""Theorem 1 along runs of AHEAD, its rules against their own inequalities, and the penalty gap."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.problem.newton import exact
from decibo.problem.problem import Oracle
from decibo.problems.minimax import minimax_quadratic
from decibo.problems.quadratic import quadratic
from decibo.theory import Constants, bound, constants, theorem1
from studies.paper.corollaries import corollary1, corollary2
from studies.paper.potential import TERMS, penalised_solution, potential


def path(s):
    return s.mean("x")


@cache
def run(kind):
    """A run with Theorem 1's own steps on a well-conditioned quadratic, every step recorded."""
    m = 4
    minimax = kind == "minimax"
    make = minimax_quadratic if minimax else quadratic
    problem = make(m, 2, 2, seed=1, condition=1.0)
    network = decibo.ring(m)
    region = constants(problem, radius=2.0, minimax=minimax)
    lam = 2.0 if minimax else 2.5 * region.L_f1 / region.mu_g
    t = theorem1(region, network.rho, lam)
    steps = {"alpha": t.alpha, "beta": t.beta, "gamma": t.gamma, "lam": lam}
    V = potential(region, network.rho, **steps)
    method = (decibo.methods.ahead_minimax if minimax else decibo.ahead)(**steps)
    measures = [*V.measures, "stationarity", path]
    start = decibo.random_start(3, {"x": 1.0, "y": 1.0, "z": 1.0})
    solution = decibo.solve(
        problem,
        network,
        method,
        steps=4000,
        every=1,
        measures=measures,
        start=start,
        progress=False,
    )
    visited = constants(problem, solution.history["path"], minimax=minimax)
    return region, network, steps, solution, visited


@pytest.mark.parametrize("kind", [pytest.param("bilevel", marks=pytest.mark.slow), "minimax"])
def test_the_potential_falls_at_every_step(kind):
    region, network, steps, solution, visited = run(kind)
    assert max(visited.C_fy / region.C_fy, visited.b_f / region.b_f, visited.b_g / region.b_g) <= 1
    floor = bound(region, network.rho, **steps).floor
    V = solution.history["V"]
    g2 = solution.history["stationarity"]
    assert np.all(V[1:] <= V[:-1] + steps["alpha"] * (floor - g2[:-1]) + 1e-14 * np.abs(V[0]))
    assert V[-1] < V[0]


@pytest.mark.parametrize("kind", ["bilevel", "minimax"])
@pytest.mark.parametrize("K", [1, 10, 100, 1000, 4000])
def test_theorem_1_holds_along_a_run(kind, K):
    region, network, steps, solution, _ = run(kind)
    V = solution.history["V"]
    g2 = solution.history["stationarity"]
    right = bound(region, network.rho, **steps, fall=float(V[0] - V[K]), K=K)
    assert np.mean(g2[:K]) <= right.total
    assert (right.penalty == 0) == (kind == "minimax")


def test_the_terms_of_the_potential_add_up():
    _, _, _, solution, _ = run("bilevel")
    total = sum(solution.history[name] for name in TERMS)
    np.testing.assert_allclose(total, solution.history["V"], rtol=1e-12)
    assert all(np.all(solution.history[name] >= 0) for name in TERMS[1:])
    assert solution.history["V_z"][-1] < 0.01 * solution.history["V_z"][0]  # something moved


@pytest.mark.slow
def test_penalty_gap_has_slope_minus_one():
    problem = quadratic(agents=3, n=2, r=2, seed=2, bend=0.3)
    functions = problem.functions
    data = problem.data
    x = jnp.array([0.4, -0.7])
    truth = jax.jit(exact, static_argnums=0)(functions, data, x, jnp.zeros(2))
    c = constants(problem, jnp.stack([x, x + 0.5, x - 0.5]))
    lams = 10 * c.L_f1 / c.mu_g * np.logspace(0, 4, 9)
    mean = lambda f: jnp.mean(jax.vmap(lambda d: f(Oracle(functions, d)))(data), axis=0)

    def gaps(lam):
        y = penalised_solution(functions, data, x, truth.y, lam)
        away = mean(lambda o: o.inner(x, y)[0]) - mean(lambda o: o.inner(x, truth.y)[0])
        gradient = mean(lambda o: o.outer(x, y)[0]) + lam * away
        return jnp.linalg.norm(y - truth.y), jnp.linalg.norm(gradient - truth.grad)

    inner, outer = jax.jit(lambda lams: jax.lax.map(gaps, lams))(jnp.asarray(lams))
    assert np.all(np.array(inner) <= c.C_in / lams)
    assert np.all(np.array(outer) <= c.C_ou / lams)
    for gap in (inner, outer):
        assert np.polyfit(np.log(lams), np.log(gap), 1)[0] == pytest.approx(-1, abs=0.02)


def some(**change):
    return Constants(
        **({"mu_g": 1, "L_f1": 2, "L_g1": 3, "L_g2": 0.5, "C_fy": 4, "b_f": 1, "b_g": 2} | change)
    )


@given(
    st.floats(1, 50),
    st.floats(1e-3, 1e3),
    st.floats(0, 0.99),
    st.floats(1.001, 100),
    st.floats(1, 1e6),
    st.booleans(),
)
def test_rules_satisfy_their_own_inequalities(over, L_f1, rho, above, K, minimax):
    c = some(L_g1=over, L_f1=over if minimax else L_f1, minimax=minimax)
    lam = above if minimax else above * 2 * c.L_f1
    t = theorem1(c, rho, lam)
    assert t.admits(t.alpha, t.beta, t.gamma)
    assert corollary1(some(L_g1=over, L_f1=L_f1), rho, K).admitted
    assert corollary2(some(L_g1=over, L_f1=over), rho, K, lam=above).admitted


@pytest.mark.parametrize(
    ("constants", "lam", "name"),
    [
        (some(), 5.0, "alpha < w_beta beta/(10 L_y*lam U_lam)"),
        (some(L_g1=3, L_f1=3, minimax=True), 1.1, "alpha < w_gamma gamma/(10 L_y* L_g1 lam)"),
        (some(L_g2=1e6, C_fy=1e6), 5.0, "alpha < 1/(2 L)"),
    ],
)
def test_a_hundredth_more_alpha_breaks_exactly_the_named_inequality(constants, lam, name):
    t = theorem1(constants, 0.3, lam)
    assert t.binding["alpha"] == name
    broken = [n for n, s in t.slacks(1.01 * t.alpha, t.beta, t.gamma).items() if not s.holds]
    assert broken == [name]
    slack = t.slacks(1.01 * t.alpha, t.beta, t.gamma)[name]
    assert slack.factor == pytest.approx(1.01)
    assert not slack.holds


@pytest.mark.parametrize("step", ["beta", "gamma"])
def test_a_hundredth_more_of_the_others_too(step):
    t = theorem1(some(), 0.3, 5.0)
    used = {"alpha": t.alpha, "beta": t.beta, "gamma": t.gamma}
    used[step] *= 1.01
    assert [n for n, s in t.slacks(**used).items() if not s.holds] == [t.binding[step]]


def test_corollaries_follow_their_powers_of_k():
    for rule, powers in (
        (corollary1, (-2 / 3, -1 / 2, -1 / 3, 1 / 6)),
        (corollary2, (-1 / 3, -1 / 3, -1 / 3, 0)),
    ):
        low, high = (rule(some(L_g1=2, L_f1=2), 0.4, K).settings for K in (1e3, 1e6))
        slopes = [
            np.log10(high[name] / low[name]) / 3 for name in ("alpha", "beta", "gamma", "lam")
        ]
        assert slopes == pytest.approx(powers, abs=1e-9)


@pytest.mark.parametrize(
    ("rule", "orders", "start"), [(corollary1, (4, 2, 1), 4), (corollary2, (3, 1, 1), 3)]
)
def test_the_orders_of_the_rules(rule, orders, start):
    """(4) and (6): a, b, c over (1 - rho) times powers of kappa tend to a constant; heterogeneity
    does not know rho."""
    K = 1.0
    scaled = []
    for kappa in (1e3, 1e5):
        c = Constants(mu_g=1 / kappa, L_f1=1, L_g1=1, L_g2=1, C_fy=1, b_f=1, b_g=1)
        for rho in (0.1, 0.9):
            s = rule(c, rho, K).settings
            named = zip(("alpha", "beta", "gamma"), orders, strict=True)
            steps = [s[name] * kappa**power / (1 - rho) for name, power in named]
            used = replace(c, minimax=True) if rule is corollary2 else c
            parts = bound(used, rho, **s, fall=1.0, K=K)
            weights = used.d(rho, **s)
            first = parts.initial * (1 - rho) / kappa**start  # of V^0 - V^K = 1
            power = 0 if rule is corollary2 else 2
            assert weights.d_1 + weights.d_2 < 10  # so that V^0 is of the order of 1
            scaled.append([*steps, first, parts.heterogeneity / kappa**power])
    assert np.ptp(np.log(scaled), axis=0).max() < 0.02


def test_corollary_2_at_lam_one_leaves_y_out():
    rule = corollary2(some(L_g1=3, L_f1=3), 0.4, 100, lam=1)
    assert rule.admitted
    assert potential(some(L_g1=3, L_f1=3, minimax=True), 0.4, **rule.settings).weights.d_1 == 0


def test_practical_constants_are_taken_and_labelled():
    rule = corollary1(some(), 0.4, 8, first={"alpha": 1.0, "beta": 0.5, "gamma": 0.25, "lam": 3.0})
    assert (rule.alpha, rule.gamma, rule.admitted) == (
        pytest.approx(0.25),
        pytest.approx(0.125),
        False,
    )
    with pytest.raises(decibo.InputError, match="first has no step eta"):
        corollary1(some(), 0.4, 8, first={"eta": 1.0})
