import jax
import numpy as np
import pytest

from decibo.problem.heterogeneity import heterogeneity
from decibo.problems.logistic import logistic_hyperparameters
from decibo.problems.quadratic import quadratic
from decibo.problems.synthetic import synthetic

pytestmark = pytest.mark.quick


def test_synthetic_by_hand():
    """At x = 0, y = 3: f_y = 2 (6 - b_i) varies by 4 var(b); g_x = g_y = c (3 c - 10) is -8 and
    8."""
    found = heterogeneity(synthetic())
    assert found.outer_x == 0
    assert found.b_f2 == pytest.approx(4 * np.var(np.arange(1, 11)))
    assert found.inner_x == found.inner_y == found.b_g2 == pytest.approx(64.0)


def test_equal_agents_have_none():
    found = heterogeneity(quadratic(agents=3, heterogeneity=0.0))
    assert max(found.b_f2, found.b_g2) < 1e-25


def test_at_a_given_point():
    problem = quadratic(agents=3)
    x, y = np.ones(3), np.ones(4)
    rows = jax.vmap(lambda d: jax.grad(problem.inner, argnums=1)(x, y, d))(problem.data)
    assert heterogeneity(problem, x, y).inner_y == pytest.approx(float(np.var(rows, axis=0).sum()))


def test_splits_by_label_are_more_unequal_than_iid():
    sizes = {"agents": 4, "training": 80, "validation": 80, "loss": "mean"}
    y = np.zeros(64)
    iid = heterogeneity(logistic_hyperparameters(**sizes), y=y)
    unequal = logistic_hyperparameters(**sizes, split="by_label", ratios=[1, 1, 0, 0])
    sorted_ = heterogeneity(unequal, y=y)
    assert sorted_.b_g2 > 3 * iid.b_g2
    assert "b_f^2" in str(sorted_)
