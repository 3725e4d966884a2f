"""Runs without step sizes, and what happens when an estimate is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.execute.curvature import agree_on_largest, guess, local_curvature


def rows(problem, x=None, y=None):
    x, y = problem.x0 if x is None else x, problem.y0 if y is None else y
    flat = problem.x_layout.ravel(x), problem.y_layout.ravel(y)
    return tuple(jnp.tile(vector, (problem.m, 1)) for vector in flat)


def test_curvatures_of_one_agent_are_those_of_its_own_problem():
    """On a quadratic with equal agents the estimates are the eigenvalues of H and of the Hessian of Phi."""
    problem = decibo.quadratic(heterogeneity=0.0)
    seen = local_curvature(problem.functions, problem.data, *rows(problem), guess(*rows(problem)), 20)
    exact = decibo.quadratic_constants(problem)
    d = {name: leaf[0] for name, leaf in problem.data.items()}
    inner = np.linalg.eigvalsh(jax.hessian(lambda y: problem.inner(problem.x0, y, d))(problem.y0))
    for found, wanted in ((seen.inner, inner.max()), (seen.outer, exact["L_Phi"])):
        assert (found <= wanted * (1 + 1e-6)).all()  # power iteration comes from below
        assert (found >= 0.8 * wanted).all()


def test_the_curvature_of_phi_includes_third_derivatives():
    """Against a difference of exact hypergradients, at y*(x), where g is not quadratic."""
    problem = decibo.logistic_hyperparameters(m=1, loss="mean", scale=16.0, training=40, validation=40)
    reference, x = decibo.reference(problem), jnp.full(64, -3.0)
    y = reference.y(x)
    points = rows(problem, x, y)
    seen = local_curvature(problem.functions, problem.data, *points, guess(*points), 30)
    u = jax.random.normal(jax.random.key(1), (64,))
    for _ in range(30):
        u = u / jnp.linalg.norm(u)
        u = (reference.grad(x + 1e-4 * u) - reference.grad(x - 1e-4 * u)) / 2e-4
    np.testing.assert_allclose(seen.outer[0], jnp.linalg.norm(u), rtol=0.1)


@pytest.mark.parametrize("network", [decibo.path(7), decibo.star(7), decibo.erdos_renyi(7, 0.5, seed=0)], ids=repr)
def test_max_consensus_reaches_everybody_in_as_many_exchanges_as_the_network_is_wide(network):
    values = np.random.default_rng(0).normal(size=7) ** 2
    known, exchanges = agree_on_largest(network.edges, values)
    assert (known == values.max()).all()
    import networkx

    assert exchanges <= networkx.diameter(network.graph)


def test_max_consensus_passes_over_what_is_not_a_number():
    known, _ = agree_on_largest(decibo.path(3).edges, np.array([np.nan, 2.0, 1.0]))
    assert (known == 2).all()


@pytest.mark.parametrize("network", [decibo.ring(10), decibo.star(10)], ids=["ring", "star"])
@pytest.mark.parametrize(
    ("problem", "wanted"),
    [(decibo.synthetic(), 1e-18), (decibo.quadratic(), 1e-18), (decibo.stackelberg_pricing(), 1e-18)],
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
    problem = decibo.quadratic()
    method = decibo.ahead_exact(gamma=0.2, lam=10.0)
    solution = decibo.solve(problem, decibo.ring(10), method, steps=3000, measures=["stationarity"])
    assert "gamma=0.2, lam=10" in solution.message
    assert solution.history["stationarity"][-1] < 1e-15
    with pytest.raises(decibo.InputError, match=r"alpha = a function of the step.*numbers only"):
        decibo.solve(problem, decibo.ring(10), decibo.ahead_exact(alpha=lambda k: 0.1), steps=10)


def test_float32():
    problem = decibo.quadratic()
    cast = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)
    single = decibo.Problem(problem.outer, problem.inner, cast(problem.data), cast(problem.x0), cast(problem.y0))
    solution = decibo.solve(single, decibo.ring(10), steps=3000, measures=["stationarity"])
    assert solution.x.dtype == jnp.float32
    assert solution.history["stationarity"][-1] < 1e-7


def test_wrapping_needs_numbers():
    with pytest.raises(decibo.InputError, match="without step sizes cannot be wrapped"):
        decibo.minibatch(decibo.ahead_exact())
