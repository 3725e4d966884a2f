"""A growing penalty: the values, and that |grad Phi| goes on falling where a fixed penalty
stalls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import decibo
from decibo.algorithm.schedules import growing, polynomial
from decibo.problems.quadratic import quadratic

NETWORK = decibo.ring(10)


def gradients(problem, method, steps, every):
    """|grad Phi(xbar)| every so often."""
    solution = decibo.solve(
        problem, NETWORK, method, steps=steps, every=every, measures=["stationarity"]
    )
    return np.sqrt(solution.history["stationarity"])


def constant(lam):
    """As a staircase, so that it runs in the same compiled program."""
    return growing(lam, most=lam)


def without_heterogeneity_error(lam):
    """AHEAD's direction with matched steps and exact diffusion: only the penalty's bias is left."""
    by, beta = decibo.consensus.exact_diffusion(), Partial(_matched, lam)
    return decibo.compose(decibo.direction.penalty(lam), by, x=0.1, y=beta, z=0.2)


def _matched(lam, k):
    return 0.2 / lam(k)


def test_values():
    stairs = growing(10.0, factor=3.0, every=5, most=200.0)
    assert [float(stairs(k)) for k in (0, 4, 5, 9, 10, 15, 10**9)] == [
        10.0,
        10.0,
        30.0,
        30.0,
        90.0,
        200.0,
        200.0,
    ]
    slope = polynomial(2.0, 0.5)
    np.testing.assert_allclose([slope(0), slope(3), slope(jnp.int32(8))], [2.0, 4.0, 6.0])
    np.testing.assert_allclose(polynomial(0.2, -1.0, delay=100.0)(100), 0.1)


def test_they_are_shown_with_their_name_and_numbers():
    method = decibo.ahead(alpha=polynomial(0.1, -0.5), gamma=0.1, lam=growing(10.0, every=200))
    assert (
        repr(method)
        == "ahead(alpha=polynomial(0.1, -0.5, 1), gamma=0.1, lam=growing(10, 2, 200, 1e+06))"
    )


def test_changed_numbers_need_no_new_compilation():
    one, two = growing(10.0), growing(1.0, factor=4.0, every=50, most=1e3)
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert decibo.check_method(decibo.ahead(alpha=0.1, gamma=0.1, lam=one), landing=False)


def test_stairs_converge_where_a_fixed_penalty_stalls():
    """Heterogeneous agents, and g not quadratic."""
    problem = quadratic(10, bend=0.2)
    fixed = gradients(problem, without_heterogeneity_error(constant(10.0)), 2500, 500)
    assert fixed[-1] > 1e-2
    np.testing.assert_allclose(fixed[2:], fixed[-1], rtol=1e-6)
    stairs = gradients(
        problem, without_heterogeneity_error(growing(10.0, factor=4.0, every=200)), 2000, 200
    )
    falls = stairs[2:9] / stairs[1:8]
    assert np.all((falls > 0.2) & (falls < 0.35))  # by `factor` with every stair, until lam = most
    assert stairs[-1] <= 1e-6


def test_stairs_beat_a_slope():
    """A slope lags behind by about 1/k, however fast it climbs."""
    problem = quadratic(10, bend=0.2)
    ends = {}
    for power in (1.0, 2.0):
        ends[power] = gradients(
            problem, without_heterogeneity_error(polynomial(10.0, power)), 4000, 2000
        )
        assert 1.8 < ends[power][1] / ends[power][2] < 2.2
    assert ends[1.0][-1] < ends[2.0][-1]
    assert (
        gradients(problem, without_heterogeneity_error(growing(10.0, every=200)), 4000, 4000)[-1]
        < ends[1.0][-1] / 100
    )


def test_ahead_as_published_on_equal_agents():
    problem = quadratic(10, heterogeneity=0.0)
    assert (
        gradients(problem, decibo.ahead(alpha=0.1, gamma=0.2, lam=constant(10.0)), 2000, 2000)[-1]
        > 1e-2
    )
    method = decibo.ahead(alpha=0.1, gamma=0.2, lam=growing(10.0, factor=4.0, every=200))
    assert gradients(problem, method, 2000, 2000)[-1] <= 1e-6


def test_ahead_exact_gains_the_square_of_the_factor():
    problem = quadratic(10, bend=0.2)
    method = decibo.ahead_exact(
        alpha=0.1, gamma=0.2, lam=growing(1.0, factor=4.0, every=250, most=1e4)
    )
    found = gradients(problem, method, 1750, 250)
    falls = found[2:6] / found[1:5]
    assert np.all(falls < 1 / 12)
    assert found[-1] < 1e-8


def test_unequal_agents_need_falling_steps_too():
    """AHEAD's own heterogeneity error is O(step), whatever lam: steps like 1/k make it fall like
    1/k."""
    problem = quadratic(10)
    stuck = gradients(
        problem, decibo.ahead(alpha=0.2, gamma=0.2, lam=growing(10.0, every=200)), 4000, 4000
    )
    assert stuck[-1] > 1e-2
    step = polynomial(0.2, -1.0, delay=100.0)
    falling = gradients(problem, decibo.ahead(alpha=step, gamma=step, lam=1e4), 40_000, 20_000)
    assert falling[-1] < 5e-4
    assert 1.7 < falling[1] / falling[2] < 2.3


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: growing(0.0), "start"),
        (lambda: growing(10.0, factor=1.0), "factor"),
        (lambda: growing(10.0, every=0), "every"),
        (lambda: growing(10.0, most=5.0), "most"),
        (lambda: polynomial(-1.0, 1.0), "start"),
        (lambda: polynomial(1.0, float("nan")), "power"),
        (lambda: polynomial(1.0, 1.0, delay=0.0), "delay"),
    ],
)
def test_bad_numbers_are_rejected(make, match):
    with pytest.raises(decibo.InputError, match=match):
        make()
