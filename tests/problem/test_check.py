"""Objectives that are not what they seem: arguments that they ignore, gradients that are stopped,
random numbers from outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.integrations import host

pytestmark = pytest.mark.quick

DATA = jnp.arange(12.0).reshape(4, 3)
stop = jax.lax.stop_gradient


def outer(x, y, d):
    return jnp.sum((y - d) ** 2)


def inner(x, y, d):
    return jnp.sum((y - x) ** 2) + 0.1 * jnp.sum((y - d) ** 2)


def problem_of(f=outer, g=inner, **options):
    return decibo.Problem(f, g, DATA, jnp.zeros(3), jnp.ones(3), **options)


def test_a_right_problem_passes():
    checks = decibo.check_problem(problem_of())
    assert checks == ["values", "outer in x", "inner in x", "outer in y", "inner in y"]
    assert decibo.check_problem(decibo.problems.quadratic(agents=3)) == checks


def test_arguments_that_are_ignored_are_found():
    with pytest.raises(decibo.InputError, match="inner does not depend on y"):
        problem_of(g=lambda x, y, d: jnp.sum((x - d) ** 2))
    for f, g, words in (
        (lambda x, y, d: jnp.sum(x * d), inner, "outer does not depend on y"),
        (lambda x, y, d: x @ y, lambda x, y, d: y @ y, "inner does not depend on x"),
        (outer, lambda x, y, d: jnp.sum((y - d) ** 2), r"Neither outer nor inner depends on x\."),
        (outer, jax.jit(lambda x, y, d: jnp.sum((y - d) ** 2)), "Neither outer nor inner"),
    ):
        with pytest.warns(UserWarning, match=words):
            problem_of(f, g)
    x0 = {"used": jnp.ones(3), "forgotten": jnp.ones(2)}
    with pytest.warns(UserWarning, match=r"Neither outer nor inner depends on x\['forgotten'\]"):
        decibo.Problem(outer, lambda x, y, d: inner(x["used"], y, d), DATA, x0, jnp.ones(3))


def scanned(x, y, d):
    add = lambda total, a: (total + jnp.sum((a - stop(total) * y) ** 2), None)
    return jax.lax.scan(add, x[0], jnp.ones((2, 3)))[0] + inner(x, y, d)


@pytest.mark.parametrize(
    ("g", "part"),
    [
        (lambda x, y, d: inner(x, y, d) + jnp.sum(stop(y) ** 2 * (y - x) ** 2), "y"),
        (jax.jit(lambda x, y, d: inner(x, y, d) + jnp.sum(stop(x) ** 2 * y**2 * d)), "x"),
        (scanned, "y"),
    ],
)
def test_a_stopped_gradient_is_found_and_measured(g, part):
    with pytest.warns(UserWarning, match=f"inner has a stop_gradient .* depends on .*{part}"):
        lying = problem_of(g=g)
    with pytest.raises(decibo.ConformanceError, match=f"inner in {part}: the gradient is not that"):
        decibo.check_problem(lying)


def test_values_that_cancel_may_be_stopped():
    """As in the softmax of JAX."""
    score = lambda x, y, d: (
        jax.nn.logsumexp(y * d) + jnp.sum(jax.nn.softmax(y) ** 2) + inner(x, y, d)
    )
    assert decibo.check_problem(problem_of(score, score))
    fixed = lambda x, y, d: inner(x, y, d) * jnp.sum(stop(d))
    assert decibo.check_problem(problem_of(g=fixed))


def test_random_numbers_and_wrong_gradients_from_outside_are_found():
    rng = np.random.default_rng(0)
    value = lambda x, y, d: np.sum((y - x) ** 2)
    gradient = lambda x, y, d: (2 * (x - y), 2 * (y - x))
    made = lambda f, df: decibo.Problem(
        host.value(f),
        host.value(f),
        DATA,
        jnp.zeros(3),
        jnp.ones(3),
        outer_gradient=host.gradient(df),
        inner_gradient=host.gradient(df),
    )
    assert decibo.check_problem(made(value, gradient))
    noisy = lambda x, y, d: value(x, y, d) + rng.normal()
    with pytest.raises(decibo.ConformanceError, match="values: differ if they are computed twice"):
        decibo.check_problem(made(noisy, gradient))
    half = lambda x, y, d: (2 * (x - y), y - x)
    with pytest.raises(decibo.ConformanceError, match=r"fails 2 of 5 checks:\n  outer in y"):
        decibo.check_problem(made(value, half))
