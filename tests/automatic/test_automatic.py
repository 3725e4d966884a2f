"""Runs without step sizes, and what happens when an estimate is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.algorithm.direction import Penalty, symmetric_penalty
from decibo.automatic.curvature import guess, lag, local_curvature
from decibo.automatic.monitor import WINDOW, Monitor


def rows(problem, x=None, y=None):
    x, y = problem.x0 if x is None else x, problem.y0 if y is None else y
    flat = problem.x_layout.ravel(x), problem.y_layout.ravel(y)
    return tuple(jnp.tile(vector, (problem.agents, 1)) for vector in flat)


def test_curvatures_of_one_agent_are_those_of_its_own_problem():
    """On a quadratic with equal agents the estimates are the eigenvalues of H and of the Hessian of Phi."""
    problem = decibo.problems.quadratic(heterogeneity=0.0)
    seen = local_curvature(problem.functions, problem.data, *rows(problem), guess(*rows(problem)), 20)
    exact = decibo.problems.quadratic_constants(problem)
    d = {name: leaf[0] for name, leaf in problem.data.items()}
    inner = np.linalg.eigvalsh(jax.hessian(lambda y: problem.inner(problem.x0, y, d))(problem.y0))
    for found, wanted in ((seen.inner, inner.max()), (seen.outer, exact["L_Phi"])):
        assert (found <= wanted * (1 + 1e-6)).all()  # power iteration comes from below
        assert (found >= 0.8 * wanted).all()


def test_the_curvature_of_phi_includes_third_derivatives():
    """Against a difference of exact hypergradients, at y*(x), where g is not quadratic."""
    problem = decibo.problems.logistic_hyperparameters(agents=1, loss="mean", scale=16.0, training=40, validation=40)
    reference, x = decibo.reference(problem), jnp.full(64, -3.0)
    y = reference.y(x)
    points = rows(problem, x, y)
    seen = local_curvature(problem.functions, problem.data, *points, guess(*points), 30)
    u = jax.random.normal(jax.random.key(1), (64,))
    for _ in range(30):
        u = u / jnp.linalg.norm(u)
        u = (reference.grad(x + 1e-4 * u) - reference.grad(x - 1e-4 * u)) / 2e-4
    np.testing.assert_allclose(seen.outer[0], jnp.linalg.norm(u), rtol=0.1)


def test_the_lag_is_what_is_missing_of_the_hypergradient():
    """On a quadratic with equal agents one Newton step is all: d_x and its predicted change are grad Phi."""
    problem, lam = decibo.problems.quadratic(heterogeneity=0.0), 10.0
    reference, rng = decibo.reference(problem), np.random.default_rng(0)
    x, y, z = rng.normal(size=problem.x_layout.size), *rng.normal(size=(2, problem.y_layout.size))
    at = Penalty(*(jnp.tile(vector, (problem.agents, 1)) for vector in (x, y, z)))
    c, d = (y + z) / 2, {name: leaf[0] for name, leaf in problem.data.items()}
    g_x, f_x = jax.grad(problem.inner), jax.grad(problem.outer)
    now = f_x(x, c, d) + lam / 2 * (g_x(x, y, d) - g_x(x, z, d))
    missing = jnp.linalg.norm(reference.grad(x) - now) / jnp.linalg.norm(now)
    measured = lag(problem.functions, problem.data, at, symmetric_penalty(lam), lam)
    np.testing.assert_allclose(measured, missing, rtol=2e-2)  # solves stop at 1e-3


def test_no_lag_where_y_and_z_have_arrived():
    problem, lam = decibo.problems.quadratic(heterogeneity=0.0), 10.0
    x, d = jnp.ones(problem.x_layout.size), {name: leaf[0] for name, leaf in problem.data.items()}
    y = decibo.reference(problem).y(x)
    v = jnp.linalg.solve(jax.hessian(lambda y: problem.inner(x, y, d))(y), jax.grad(problem.outer, 1)(x, y, d))
    at = Penalty(*(jnp.tile(vector, (problem.agents, 1)) for vector in (x, y - v / lam, y + v / lam)))
    assert lag(problem.functions, problem.data, at, symmetric_penalty(lam), lam) < 1e-8


def monitored(sizes, values, rounding=0.0):
    monitor = Monitor(rounding=rounding)
    for size, value in zip(sizes, values, strict=True):
        monitor = monitor.add(float(value), float(size))
    return monitor


@pytest.mark.parametrize("rate", [1.3, 3.0, 1e3])
def test_growth_is_a_failure_however_slow(rate):
    sizes = rate ** np.arange(WINDOW)
    assert monitored(sizes, np.ones(WINDOW)).failing()
    assert not monitored(sizes, -np.arange(WINDOW)).failing()  # the outer objective falls: a plateau was left
    assert not monitored(sizes[::-1], np.ones(WINDOW)).failing()
    assert not monitored(sizes, np.ones(WINDOW)).failing(lag=rate**WINDOW)  # the inner level still catches up
    noise = [1.0, *(1e-40 * sizes[:-1] / sizes[-1])]
    assert not monitored(noise, np.ones(WINDOW), rounding=1e-20).failing()


def test_what_is_not_finite_is_a_failure_at_once():
    assert monitored([1.0, np.nan], [1.0, 1.0]).failing()
    assert monitored([1.0, 1.0], [1.0, np.inf]).failing()


def test_a_slow_run_is_not_stuck_but_one_in_circles_is():
    angles = np.linspace(0, 4 * np.pi, 40)
    for path, wanted in ((np.stack([np.cos(angles), np.sin(angles)], 1), True), (np.outer(angles, [1.0, 2.0]), False)):
        monitor = monitored(np.ones(WINDOW), np.ones(WINDOW))._replace(path=path)
        stuck, monitor = monitor.stuck()
        assert not stuck  # nothing to compare with
        assert monitor._replace(path=path).stuck()[0] is wanted
        assert monitored([1.0], [1.0]).straight() is False


def test_alpha_grows_beyond_what_single_agents_allow():
    """The agents' own Phi_i are far more curved than Phi, some downwards: apart, their objectives fall without end."""
    data = jnp.array([10.0, -10.0, 10.0, -10.0])
    outer = lambda x, y, d: 0.5 * (x - 1.0) ** 2 + 0.5 * d * x**2
    problem = decibo.Problem(outer, lambda x, y, d: 0.5 * (y - x) ** 2, data, 5.0, 0.0)
    solution = decibo.solve(problem, decibo.complete(4), steps=2000, measures=["stationarity"])
    alpha = float(solution.message.split("alpha=")[1].split(",")[0])
    assert alpha > 2 * 0.1 / 11  # more than twice what it began with, 1/(10 L_Phi) of the most curved agent
    assert solution.history["stationarity"][-1] < 1e-12 * solution.history["stationarity"][0]


def test_x_waits_for_the_inner_level():
    """An inner level with condition number 30, all of Phi seen through y: 1/L_Phi alone leaves y far behind."""
    scales = jnp.array([1.0, 1 / 30])
    inner = lambda x, y, d: 0.5 * jnp.sum(scales * (y - x) ** 2) - d * jnp.sum(scales * y)
    outer = lambda x, y, d: 0.5 * jnp.sum((y - 1.0) ** 2) + 0.005 * jnp.sum(x**2)
    problem = decibo.Problem(outer, inner, jnp.array([-1.0, 0.0, 1.0, 2.0]), jnp.full(2, 5.0), jnp.zeros(2))
    solution = decibo.solve(problem, decibo.ring(4), steps=5000, measures=["stationarity"])
    assert solution.status == "done"
    assert solution.history["stationarity"][-1] < 1e-8 * solution.history["stationarity"][0]


@pytest.mark.parametrize("network", [decibo.ring(10), decibo.networks.star(10)], ids=["ring", "star"])
@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (decibo.problems.synthetic(), 1e-18),
        (decibo.problems.quadratic(), 1e-18),
        (decibo.problems.stackelberg_pricing(), 1e-18),
    ],
    ids=["synthetic", "quadratic", "pricing"],
)
def test_no_step_size_to_choose(problem, wanted, network):
    solution = decibo.solve(problem, network, steps=4000, measures=["stationarity"])
    assert solution.status == "done"
    assert solution.history["stationarity"][-1] <= wanted * max(1, solution.history["stationarity"][0])
    assert "Step sizes chosen automatically: alpha=" in solution.message


def test_a_step_that_turns_out_too_large_is_taken_back():
    """The inner curvature grows a hundredfold away from the start, which no estimate at the start can know."""
    data = jnp.array([3.0, 4.0, 5.0, 6.0])
    inner = lambda x, y, d: 0.5 * (y - x) ** 2 + 50 * jax.nn.softplus(5 * (y - 1.0)) / 5 - 0.5 * d * y
    problem = decibo.Problem(lambda x, y, d: 0.5 * (y - d / 2) ** 2 + 0.01 * x**2, inner, data, -5.0, -5.0)
    solution = decibo.solve(problem, decibo.ring(4), steps=4000, measures=["stationarity"])
    assert solution.status == "done"
    assert solution.history["stationarity"][-1] < 1e-6 * solution.history["stationarity"][0]


def test_one_step_size_may_be_given():
    problem = decibo.problems.quadratic()
    method = decibo.ahead_exact(gamma=0.2, lam=10.0)
    solution = decibo.solve(problem, decibo.ring(10), method, steps=3000, measures=["stationarity"])
    assert "gamma=0.2, lam=10" in solution.message
    assert solution.history["stationarity"][-1] < 1e-15
    with pytest.raises(decibo.InputError, match=r"alpha must be a number.*function of the step"):
        decibo.solve(problem, decibo.ring(10), decibo.ahead_exact(alpha=lambda k: 0.1), steps=10)


def test_float32():
    problem = decibo.problems.quadratic()
    cast = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)
    single = decibo.Problem(problem.outer, problem.inner, cast(problem.data), cast(problem.x0), cast(problem.y0))
    solution = decibo.solve(single, decibo.ring(10), steps=3000, measures=["stationarity"])
    assert solution.x.dtype == jnp.float32
    assert solution.history["stationarity"][-1] < 1e-7


def test_wrapping_needs_numbers():
    with pytest.raises(decibo.InputError, match="cannot be wrapped without its step sizes"):
        decibo.minibatch(decibo.ahead_exact())
