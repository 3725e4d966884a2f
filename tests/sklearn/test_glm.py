"""Losses, weights, shared penalties, personal models and standard errors, against references
written down here a second time."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import RegressorMixin

import decibo
from decibo.sklearn import (
    SiloCox,
    SiloEstimator,
    SiloGLM,
    SiloLogisticRegression,
    SiloRidge,
    load,
    save,
)
from decibo.sklearn import losses as known

W = np.array([0.5, -0.3, 0.0, 0.2])


def table(samples=200, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(samples, 4)) * [1, 10, 0.1, 3] + [0, 50, 0, -5]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, Z, random.integers(4, size=samples), random


def penalised(loss, Z, t, penalty):
    """Coefficients and intercept of standardised features, for a loss written with numpy."""
    f = lambda w: np.mean(loss(Z @ w[:-1] + w[-1], t)) + penalty @ w[:-1] ** 2 + 1e-4 * w[-1] ** 2
    return minimize(f, np.zeros(Z.shape[1] + 1), options={"gtol": 1e-8}).x


def test_poisson_is_the_penalised_optimum_of_pooled_data():
    X, Z, groups, random = table()
    y = random.poisson(np.exp(3 + Z @ W))
    model = SiloGLM("poisson", random_state=0).fit(X, y, groups)
    w = penalised(lambda s, t: np.exp(s) - t * s, Z, y / y.mean(), model.penalty_)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), w[:-1], atol=2e-3)
    wanted = np.exp(Z @ w[:-1] + w[-1]) * y.mean()
    np.testing.assert_allclose(model.predict(X), wanted, rtol=5e-3)
    with pytest.raises(decibo.InputError, match="must be counts"):
        SiloGLM("poisson").fit(X, -1.0 * y, groups)


@pytest.mark.parametrize("level", [0.2, 0.5])
def test_a_quantile_has_that_share_below(level):
    X, Z, groups, random = table()
    y = Z @ W + 0.5 * random.exponential(size=len(Z))
    model = SiloGLM("quantile", quantile=level, random_state=0).fit(X, y, groups)
    assert abs(np.mean(y < model.predict(X)) - level) < 0.08


@pytest.mark.quick
def test_losses_at_single_points():
    s, t = jnp.array([[0.5], [3.0], [-4.0]]), jnp.array([[1.0], [1.0], [1.0]])
    np.testing.assert_allclose(known.huber_loss(1.0)(s, t), [0.125, 1.5, 4.5], rtol=1e-6)
    np.testing.assert_allclose(known.quantile_loss(0.9)(s, t), [0.45, 0.2, 4.5], atol=1e-3)
    np.testing.assert_allclose(known.gamma_loss(s, t), np.exp(-s[:, 0]) + s[:, 0], rtol=1e-6)


class Logistic(RegressorMixin, SiloEstimator):
    """A loss of one's own: chances of targets between 0 and 1."""

    loss = staticmethod(lambda s, t: jnp.sum(jnp.logaddexp(0, s) - t * s, axis=-1))
    inverse_link = staticmethod(lambda s: 1 / (1 + np.exp(-s)))


def test_a_loss_of_ones_own(tmp_path):
    X, Z, groups, random = table()
    y = (random.random(len(Z)) < 1 / (1 + np.exp(-Z @ W))).astype(int)
    own = Logistic(random_state=0).fit(X, y, groups)
    ready = SiloLogisticRegression(random_state=0).fit(X, y, groups)
    np.testing.assert_allclose(own.predict(X), ready.predict_proba(X)[:, 1], atol=1e-4)
    with pytest.raises(decibo.InputError, match="Only SiloEncoder"):
        save(own, tmp_path / "own.json")


def by_hand(s, y, group):
    """The negative partial log-likelihood, event by event."""
    total = 0.0
    for i in np.flatnonzero(~np.signbit(y)):
        at_risk = (group == group[i]) & (np.abs(y) >= y[i])
        total += np.log(np.exp(s[at_risk]).sum()) - s[i]
    return total


@pytest.mark.quick
def test_the_loss_of_cox_with_ties_and_samples_that_weigh_nothing():
    random = np.random.default_rng(0)
    y = np.round(random.exponential(size=40), 1) * random.choice([1, 1, -1], size=40)
    s = random.normal(size=40)
    one = np.zeros(40)
    v = (random.random(40) < 0.7).astype(float)
    loss = lambda v: known.cox_loss(jnp.array(s)[:, None], jnp.array(y)[:, None], jnp.array(v))
    assert float(loss(one + 1)) == pytest.approx(by_hand(s, y, one), rel=1e-5)
    here = v > 0
    assert float(loss(v)) == pytest.approx(by_hand(s[here], y[here], one[here]), rel=1e-5)


def test_cox_is_stratified_by_silo():
    X, Z, groups, random = table()
    time = random.exponential(np.exp(-Z @ W)) * np.array([1.0, 2.0, 5.0, 0.3])[groups]
    until = random.exponential(2, size=len(Z))
    y = np.where(time < until, time, -until)
    model = SiloCox(random_state=0, errors=True).fit(X, y, groups)
    f = lambda w: by_hand(Z @ w, y, groups) / len(Z) + model.penalty_ @ w**2
    w = minimize(f, np.zeros(4)).x
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), w, atol=3e-3)
    assert 0.6 < model.score(X, y, groups) < 0.8
    errors = [row.error for row in model.summary_()][:4] * X.std(axis=0)
    assert (np.abs(errors - 1 / np.sqrt(np.sum(y > 0))) < 0.03).all()


def test_weights_are_copies_and_weight_0_is_absence():
    X, _, groups, random = table()
    y = X @ [1, 0.1, 0, 0.3] + random.normal(size=len(X))
    weights = np.r_[np.zeros(50), np.ones(150)]
    some = SiloRidge(random_state=0).fit(X, y, groups, sample_weight=weights)
    rest = SiloRidge(random_state=0).fit(X[50:], y[50:], groups[50:])
    np.testing.assert_allclose(some.coef_, rest.coef_, rtol=1e-3, atol=1e-3)
    twice = SiloRidge(random_state=0).fit(X, y, groups, sample_weight=np.where(y > 5, 3.0, 1.0))
    A = np.c_[(X - twice.mean_) / twice.scale_, np.ones(len(X))]
    v = np.where(y > 5, 3.0, 1.0) / np.where(y > 5, 3.0, 1.0).sum()
    ridge = np.diag(np.r_[2 * twice.penalty_, 0])
    wanted = np.linalg.solve((A.T * v) @ A + ridge, A.T @ (v * y))
    np.testing.assert_allclose(twice.coef_ * twice.scale_, wanted[:-1], atol=0.02)


def test_a_block_shares_a_penalty():
    X, _, groups, random = table()
    y = X @ [1, 0.1, 0, 0.3] + random.normal(size=len(X))
    model = SiloRidge(random_state=0, blocks=["a", "b", "b", "a"]).fit(X, y, groups)
    assert model.penalty_[0] == model.penalty_[3] != model.penalty_[1] == model.penalty_[2]
    with pytest.raises(decibo.InputError, match="a label for each of the 4 features"):
        SiloRidge(blocks=[0, 1]).fit(X, y, groups)


def test_standard_errors_are_those_of_the_pooled_table():
    X, _, groups, random = table()
    y = X @ [1, 0.1, 0, 0.3] + random.normal(size=len(X)) * (1 + (groups == 1))
    model = SiloRidge(random_state=0, errors=True).fit(X, y, groups)
    Z = np.c_[(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))]
    far = y - model.predict(X)
    root = np.linalg.inv(Z.T @ Z + 2 * len(X) * np.diag(np.r_[model.penalty_, 1e-4]))
    wanted = np.sqrt(np.diag(root @ (Z.T * far**2) @ Z @ root))[:4] / X.std(axis=0)
    summary = model.summary_()
    np.testing.assert_allclose([row.error for row in summary][:4], wanted, rtol=2e-2)
    assert [row.name for row in summary] == ["x0", "x1", "x2", "x3", "intercept"]
    assert all(row.low < row.value < row.high for row in summary)
    assert len(str(summary).splitlines()) == 6
    with pytest.raises(decibo.InputError, match="errors=True"):
        model.set_params(errors=False).summary_()


def test_owners_with_base_rates_of_their_own_gain_by_personal_models(tmp_path):
    random = np.random.default_rng(1)
    X = random.normal(size=(600, 3))
    groups = random.integers(6, size=600)
    rate = np.linspace(-2, 2, 6)[groups]
    y = (random.random(600) < 1 / (1 + np.exp(-X[:, 0] - rate))).astype(int)
    model = SiloLogisticRegression(personal=True, random_state=0, network="complete")
    model.fit(X[:300], y[:300], groups[:300])
    right = lambda groups: np.mean(model.predict(X[300:], groups) == y[300:])
    assert right(groups[300:]) > right(None) + 0.05
    assert (model.predict_proba(X, np.full(600, 9)) == model.predict_proba(X)).all()
    # the own model: what is left of its samples, pulled towards the model of all
    rows = np.flatnonzero(groups[:300] == 5)
    Z = np.c_[(X[rows] - model.mean_) / model.scale_, np.ones(len(rows))]
    start = np.r_[model.coef_[0] * model.scale_, model.intercept_ + model.coef_[0] @ model.mean_]
    pull = np.r_[np.full(3, model.strengths_[0]), model.strengths_[1]]
    f = lambda w: np.sum(np.logaddexp(0, Z @ w) - y[rows] * (Z @ w)) + pull @ (w - start) ** 2
    found = model.personal_coef_[5, 0] * model.scale_
    np.testing.assert_allclose(found, minimize(f, start).x[:3], atol=3e-3)
    again = load(save(model, tmp_path / "model.json"))
    assert (again.predict(X, groups) == model.predict(X, groups)).all()
    assert "out_of_fold" not in json.dumps(json.loads((tmp_path / "model.json").read_text()))


def test_equal_owners_do_not_lose_by_personal_models():
    X, _, groups, random = table(300)
    y = X @ [1, 0.1, 0, 0.3] + random.normal(size=len(X))
    model = SiloRidge(personal=True, random_state=0).fit(X, y, groups)
    apart = np.abs(model.predict(X, groups) - model.predict(X)).max()
    assert apart < 0.1 * y.std()
