"""The inner variable in other units: nothing changes but its curvature."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.errors import InputError
from decibo.problem.newton import mean_hessian
from decibo.problems import logistic_hyperparameters, quadratic


def heart(**options):
    data = decibo.data.heart_disease(0)
    scale = float(np.sqrt(np.mean(data.features**2) * data.features.shape[1]))
    return logistic_hyperparameters(data, split="by_group", loss="mean", scale=scale, **options)


def condition(problem, x):
    y = decibo.reference(problem).at(x).y
    hessian = mean_hessian(problem.functions, problem.data, jnp.asarray(x), y)
    values = np.linalg.eigvalsh(hessian)
    return values[-1] / values[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("floor", [0.0, 0.01])
def test_heart_disease_keeps_its_outer_level_and_gains_a_condition(seed, floor):
    plain, units = heart(floor=floor), heart(floor=floor, scaled=True)
    x = np.random.default_rng(seed).uniform(-9, 5, plain.x_layout.size)
    before, after = (decibo.reference(problem).at(x) for problem in (plain, units))
    np.testing.assert_allclose(after.phi, before.phi, rtol=1e-12)
    np.testing.assert_allclose(after.grad, before.grad, atol=1e-12)
    assert condition(units, x) < 10 < 100 < condition(plain, x)


def test_a_floor_of_zero_is_the_problem_of_the_paper():
    x = np.random.default_rng(0).uniform(-3, 1, 13)
    phis = [
        decibo.reference(heart(**options)).phi(x)
        for options in ({}, {"floor": 1e-300}, {"floor": 0.1})
    ]
    np.testing.assert_allclose(phis[0], phis[1], rtol=1e-14)
    assert abs(phis[0] - phis[2]) > 1e-6


@pytest.mark.parametrize("network", [decibo.networks.path(4), decibo.ring(4)], ids=["path", "ring"])
def test_solutions_come_back_in_the_units_of_the_problem(network):
    plain, units = heart(), heart(scaled=True)
    found = decibo.solve(units, network, decibo.ahead_exact(alpha=1e-9, gamma=0.4), steps=800)
    wanted = decibo.reference(plain).y(plain.x0)
    np.testing.assert_allclose(found.y, wanted, rtol=1e-6, atol=1e-9)
    answers = (found.agents.y + found.agents.z) / 2  # of the symmetric penalty
    np.testing.assert_allclose(answers, np.tile(wanted, (4, 1)), rtol=1e-5, atol=1e-7)


def test_start_known_answer_and_closed_form_are_in_the_new_units():
    plain = quadratic(agents=3)
    units = decibo.rescaled(plain, lambda x, d: 2.0 + jnp.sin(x[0]) * jnp.ones_like(plain.y0))
    x = plain.solution["x"]
    s = 2 + np.sin(x[0])
    np.testing.assert_allclose(units.solution["y"] * s, plain.solution["y"], rtol=1e-12)
    answer = decibo.reference(units).at(x)
    np.testing.assert_allclose(answer.y * s, plain.solution["y"], rtol=1e-10)
    np.testing.assert_allclose(answer.grad, 0, atol=1e-10)


def nested(secants=False):
    """Quadratics of condition 1e6 with y a tree of a matrix and a number."""
    bend = jnp.asarray([1.0, 1e2, 1e4])

    def inner(x, y, d):
        square = bend * (y["a"] - x - d) ** 2 + 0.1 * y["a"] * y["b"]
        return jnp.sum(square) + 1e-2 * y["b"] ** 2

    def gradient(x, y, d):
        return jax.grad(inner, argnums=(0, 1))(x, y, d)

    hidden = jax.custom_vjp(inner)
    hidden.defvjp(
        lambda x, y, d: (inner(x, y, d), (x, y, d)),
        lambda kept, g: (
            *jax.tree.map(lambda leaf: g * leaf, gradient(*kept)),
            jnp.zeros_like(kept[2]),
        ),
    )
    y0 = {"a": jnp.zeros(3), "b": jnp.asarray(0.0)}
    outer = lambda x, y, d: jnp.sum((y["a"] - 1) ** 2) + y["b"] ** 2
    d = jnp.arange(6.0).reshape(2, 3)
    return decibo.Problem(outer, hidden if secants else inner, d, jnp.zeros(3), y0)


@pytest.mark.parametrize("secants", [False, True])
def test_units_are_found_at_the_start(secants):
    units = decibo.rescaled(nested(secants))
    plain = decibo.rescaled(nested())
    hessian = mean_hessian(plain.functions, plain.data, jnp.zeros(3), jnp.zeros(4))
    np.testing.assert_allclose(np.diag(hessian)[[1, 2]], 1, rtol=1e-9)
    for found, exact in zip(*(jax.tree.leaves(p.scale(0, 0)) for p in (units, plain)), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_gradients_that_come_with_a_problem_are_rescaled():
    plain = quadratic(agents=3)
    outer, inner = (
        lambda x, y, d, h=h: jax.grad(h, argnums=(0, 1))(x, y, d)
        for h in (plain.outer, plain.inner)
    )
    given = replace(plain, outer_gradient=outer, inner_gradient=inner)
    units = decibo.rescaled(given, lambda x, d: jnp.exp(x[0]) * jnp.ones_like(plain.y0))
    at = jnp.asarray(units.x0) + 0.3, units.y0, jax.tree.map(lambda leaf: leaf[0], units.data)
    for level in ("outer", "inner"):
        found = getattr(units, f"{level}_gradient")(*at)
        right = jax.grad(getattr(units, level), argnums=(0, 1))(*at)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, right)


def test_minibatches_keep_what_is_no_sample():
    units = heart(scaled=True, batch=5)
    d = jax.tree.map(lambda leaf: leaf[0], units.data)
    drawn = units.sample(d, jax.random.key(0))
    assert drawn["training"]["features"].shape == (5, 13)
    np.testing.assert_array_equal(drawn["curvature"], d["curvature"])
    assert heart(scaled=True, batches=4).sample.batch(d, 1)["least"].shape == (13,)


def test_what_is_no_scale_is_said():
    problem = quadratic(agents=3)
    ones = jnp.ones_like(problem.y0)
    with pytest.raises(InputError, match="must be positive"):
        decibo.rescaled(problem, lambda x, d: -ones)
    with pytest.raises(InputError, match="same for every agent"):
        decibo.rescaled(problem, lambda x, d: ones * (1 + jax.tree.leaves(d)[0].sum() ** 2))
    with pytest.raises(InputError, match="shaped like y0"):
        decibo.rescaled(problem, lambda x, d: {"a": ones})
    with pytest.raises(InputError, match="at hand"):
        decibo.rescaled(replace(problem, data=lambda agent: {}, agents=3))
    with pytest.raises(InputError, match="strongly convex"):
        decibo.rescaled(replace(problem, inner=lambda x, y, d: 0 * jnp.sum(x) - jnp.sum(y**2)))
    for wrong in ("floor", "prior"):
        with pytest.raises(InputError, match=wrong):
            logistic_hyperparameters(scaled=True, **{wrong: -1.0})
