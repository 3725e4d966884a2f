from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decibo.errors import InputError
from decibo.problem import newton as pure
from decibo.problem.problem import Problem
from decibo.problem.reference import reference
from decibo.problems.quadratic import quadratic, quadratic_constants
from decibo.problems.synthetic import synthetic

pytestmark = pytest.mark.quick

exact, solve_inner = (
    jax.jit(function, static_argnums=0) for function in (pure.exact, pure.solve_inner)
)
newton = jax.jit(pure.newton, static_argnums=0, static_argnames="dense")
hypergradient = jax.jit(pure.hypergradient, static_argnums=0, static_argnames="dense")


def _without_formula(problem):
    return replace(problem, inner_solution=None)


def test_synthetic_is_the_papers():
    problem = synthetic()
    answer = reference(problem).at(0.25)
    assert answer.y == pytest.approx(2.75, abs=1e-14)
    assert answer.grad == pytest.approx(0.0, abs=1e-14)
    assert problem.agents == 10
    assert reference(problem).y(1.0) == pytest.approx(2.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_newton_meets_the_closed_form(seed):
    problem = quadratic(agents=3, seed=seed)
    assert problem.solution is not None
    x = problem.solution["x"]
    by_formula, by_newton = reference(problem).at(x), reference(_without_formula(problem)).at(x)
    np.testing.assert_allclose(by_newton.y, by_formula.y, atol=1e-12)
    np.testing.assert_allclose(by_newton.y, problem.solution["y"], atol=1e-12)
    np.testing.assert_allclose(by_newton.grad, 0, atol=1e-12)


def test_a_wrong_formula_does_not_give_a_wrong_answer():
    problem = replace(quadratic(agents=3), inner_solution=lambda x, data: jnp.ones(4))
    np.testing.assert_allclose(
        reference(problem).y(problem.x0), reference(quadratic(agents=3)).y(problem.x0), atol=1e-12
    )


def test_conjugate_gradients_meet_the_dense_path():
    problem = quadratic(agents=3, bend=0.1)
    functions, data, x, y0 = problem.functions, problem.data, problem.x0 + 0.3, problem.y0
    dense, products = (newton(functions, data, x, y0, dense=size) for size in (256, 0))
    assert dense.converged
    assert products.converged
    np.testing.assert_allclose(products.point.y, dense.point.y, rtol=1e-12)
    phi, grad = hypergradient(functions, data, x, dense.point.y, dense=256)
    phi_products, grad_products = hypergradient(functions, data, x, dense.point.y, dense=0)
    assert phi == phi_products
    np.testing.assert_allclose(grad_products, grad, rtol=1e-11)


def _steep_inner(x, y, d):
    # Plain Newton steps overshoot on this one: they must be halved.
    return jnp.sum(jnp.sqrt(1 + (y - d) ** 2)) + 1e-2 * y @ y + 1e3 + x @ y * 0.1


def test_newton_is_damped_and_reaches_the_last_digits():
    problem = Problem(
        lambda x, y, d: y @ y, _steep_inner, np.zeros((2, 3)) + 30.0, np.ones(3), np.zeros(3)
    )
    y, converged = solve_inner(problem.functions, problem.data, problem.x0, problem.y0)
    assert converged
    gradient = jax.grad(_steep_inner, argnums=1)(problem.x0, y, problem.data[0])
    assert jnp.abs(gradient).max() < 1e-15
    assert reference(problem).check(problem.x0) < 1e-8


def _as_float32(tree):
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, tree
    )


@pytest.mark.parametrize("formula", [True, False])
def test_float32(formula):
    double = quadratic(agents=3, condition=50.0)
    data, x0, y0 = _as_float32((double.data, double.x0, double.y0))
    single = replace(
        double, data=data, x0=x0, y0=y0, inner_solution=double.inner_solution if formula else None
    )
    answer = reference(single).at(x0)
    assert answer.grad.dtype == jnp.float32
    np.testing.assert_allclose(answer.grad, reference(double).grad(double.x0), rtol=1e-4, atol=1e-4)


def test_no_answer_is_nan_inside_and_an_error_outside():
    problem = replace(
        quadratic(agents=3),
        inner=lambda x, y, d: -1.5 * y @ y + 0 * jnp.sum(x),
        inner_solution=None,
    )
    answer = exact(problem.functions, problem.data, problem.x0, problem.y0)
    assert not answer.converged
    assert all(jnp.isnan(part).all() for part in (answer.y, answer.phi, answer.grad))
    with pytest.raises(InputError, match=r"strongly convex.*eigenvalue -3 at"):
        reference(problem).y(problem.x0)


def test_an_inner_problem_without_minimum_says_what_is_left():
    problem = Problem(
        lambda x, y, d: y @ y,
        lambda x, y, d: jnp.sum(jnp.exp(-y - 0 * x)),
        np.zeros(2),
        np.ones(1),
        np.ones(1),
    )
    with pytest.raises(InputError, match=r"mean g_y\|"):
        reference(problem).grad(problem.x0)


def test_nan_in_gives_no_answer():
    problem = quadratic(agents=3)
    assert not exact(problem.functions, problem.data, problem.x0 * jnp.nan, problem.y0).converged
    with pytest.raises(InputError, match="not finite"):
        reference(problem).phi(problem.x0 * jnp.nan)


def test_exact_compiles_and_forgives_a_bad_guess():
    problem = _without_formula(quadratic(agents=3))
    answer = exact(problem.functions, problem.data, problem.x0, problem.y0 * jnp.nan)
    np.testing.assert_allclose(answer.y, reference(problem).y(problem.x0), atol=1e-12)


def test_some_agents_only():
    problem = quadratic(agents=3)
    part = replace(problem, data=problem.local([0, 2]), agents=None, solution=None)
    np.testing.assert_allclose(
        reference(problem, agents=[0, 2]).grad(problem.x0),
        reference(part).grad(problem.x0),
        atol=1e-14,
    )
    from_function = replace(
        problem,
        data=lambda agent: jax.tree.map(lambda leaf: leaf[agent], problem.data),
        agents=None,
    )
    np.testing.assert_allclose(
        reference(from_function, agents=3).grad(problem.x0),
        reference(problem).grad(problem.x0),
        atol=1e-14,
    )
    with pytest.raises(InputError, match="how many agents"):
        reference(from_function)
    with pytest.raises(InputError, match="at most all"):
        reference(problem, agents=[7])


def test_x_must_look_like_x0():
    with pytest.raises(InputError, match="look like x0"):
        reference(quadratic(agents=3)).phi(np.zeros((2, 3)))


def test_check_notices_a_wrong_gradient(monkeypatch):
    expert = reference(quadratic(agents=3))
    monkeypatch.setattr(expert, "grad", lambda x: 1.1 * expert.at(x).grad)
    assert expert.check(np.ones(3)) > 1e-3


def test_constants_bound_every_agent():
    problem = quadratic(agents=3, condition=9.0)
    known = quadratic_constants(problem)
    assert 1 / 3 - 1e-12 <= known["mu_g"] <= known["L_g1"]
    assert known["L_f1"] <= 3 + 1e-12
    assert known["L_g2"] == 0
    # Phi is quadratic: differences of its gradient are its Hessian.
    grad = reference(problem).grad
    hessian = np.stack([grad(row) - grad(np.zeros(3)) for row in np.eye(3)])
    values = np.linalg.eigvalsh(hessian)
    assert values[0] == pytest.approx(known["mu_Phi"])
    assert values[-1] == pytest.approx(known["L_Phi"])
