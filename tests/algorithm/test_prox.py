"""Constraints and l1: runs end where the optimality conditions of the problem hold."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import decibo
from decibo import consensus, direction, prox

VECTORS = arrays(np.float64, 5, elements=st.floats(-10, 10, width=32))
STRATEGIES = ["tracking", "atc_tracking", "extra", "exact_diffusion", "push_pull"]


@given(VECTORS)
def test_projections_are_the_nearest_points(s):
    """Optimality of a projection on a convex set: (s - p)'(u - p) <= 0 for every u of the set."""
    random = np.random.default_rng(0)
    sets = {
        "box": (prox.box(-1.0, 2.0), random.uniform(-1, 2, (20, 5))),
        "ball": (
            prox.ball(1.5),
            (lambda u: 1.5 * u / np.maximum(1, np.linalg.norm(u, axis=1))[:, None])(
                random.normal(size=(20, 5))
            ),
        ),
        "simplex": (prox.simplex(2.0), 2 * random.dirichlet(np.ones(5), 20)),
    }
    for name, (project, members) in sets.items():
        p = np.asarray(project(jnp.asarray(s), 1.0))
        assert ((members - p) @ (s - p) <= 1e-8).all(), name
        np.testing.assert_allclose(project(jnp.asarray(p), 1.0), p, atol=1e-9)


@given(VECTORS)
def test_l1_is_soft_thresholding(s):
    p = np.asarray(prox.l1(2.0)(jnp.asarray(s), 0.5))
    inside = np.abs(s) <= 1.0
    assert (p[inside] == 0).all()
    np.testing.assert_allclose((s - p)[~inside], np.sign(s[~inside]), atol=1e-12)


def test_invalid_sets_are_rejected():
    with pytest.raises(
        decibo.InputError, match=r"low must not be above high, but the box is \[1, 0\]"
    ):
        prox.box(1, 0)
    for make in (prox.ball, prox.simplex, prox.l1):
        with pytest.raises(decibo.InputError, match="must be a positive, finite number"):
            make(-1.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_outer_box_satisfies_the_optimality_conditions(strategy):
    """min Phi over a box: the projected gradient step does not move, and some bounds are active."""
    problem = decibo.problems.quadratic()
    bound = 0.5 * float(np.abs(problem.solution["x"]).max())
    method = decibo.compose(
        direction.implicit(),
        getattr(consensus, strategy)(),
        prox={"x": prox.box(-bound, bound)},
        x=0.03,
        y=0.05,
        v=0.05,
    )
    x = decibo.solve(problem, decibo.ring(10), method, steps=8000, every=8000).x
    gradient = decibo.reference(problem).grad(x)
    np.testing.assert_allclose(np.clip(x - gradient, -bound, bound), x, atol=1e-9)
    assert (np.abs(x) >= bound - 1e-9).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_l1_inner_level_satisfies_the_optimality_conditions(strategy):
    """y*(x) = argmin g(x, y) + w |y|_1 at the final x: 0 in g_y + w sign(y)."""
    problem, weight = decibo.problems.quadratic(), 0.5
    method = decibo.compose(
        direction.minimax(),
        getattr(consensus, strategy)(),
        prox={"y": prox.l1(weight)},
        x=1e-9,
        y=0.05,
    )
    lasso = decibo.Problem(
        lambda x, y, d: -problem.inner(x, y, d),
        problem.inner,
        problem.data,
        problem.x0 + 1.0,
        problem.y0,
    )
    solution = decibo.solve(lasso, decibo.ring(10), method, steps=8000, every=8000)
    import jax

    mean = lambda y: jnp.mean(jax.vmap(lambda d: problem.inner(solution.x, y, d))(problem.data))
    gradient, y = np.asarray(jax.grad(mean)(solution.y)), np.asarray(solution.y)
    zero = np.abs(y) < 1e-9
    assert zero.any()
    np.testing.assert_allclose(gradient[~zero], -weight * np.sign(y[~zero]), atol=1e-6)
    assert (np.abs(gradient[zero]) <= weight + 1e-6).all()
