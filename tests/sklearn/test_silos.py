"""What the silo estimators do with data: scales, parts, silos of any size, and answers checked
against references."""

import itertools

import jax.numpy as jnp
import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

import decibo
from decibo.sklearn import SiloLogisticRegression, SiloRidge, silos
from decibo.sklearn.losses import log_loss


def table(seed=0, samples=60, features=5):
    random = np.random.default_rng(seed)
    X = random.normal(size=(samples, features)) * [1, 10, 0.1, 3, 1] + [0, 100, 0, -5, 1]
    return X, random


@given(st.integers(1, 7), st.integers(0, 1000))
def test_scales_are_those_of_the_pooled_data(m, seed):
    X, random = table(seed)
    parts = [np.flatnonzero(random.integers(m, size=len(X)) == i) for i in range(m)]
    X = X[np.concatenate(parts)]
    ends = np.cumsum([0, *map(len, parts)])
    parts = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    scale = silos.agreed_scale(silos.alone(np.arange(m), parts), X)
    np.testing.assert_allclose(scale.mean, X.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scale.deviation, X.std(axis=0), rtol=1e-9)


def test_a_constant_column_keeps_its_scale():
    X = np.stack([np.full(10, 0.1), np.arange(10.0)], axis=1)
    scale = silos.agreed_scale(silos.alone(np.arange(2), [np.arange(3), np.arange(3, 10)]), X)
    assert scale.deviation[0] == 1.0
    assert np.abs(scale(X)[:, 0]).max() < 1e-12


@given(st.integers(1, 8), st.integers(2, 5), st.integers(0, 1000))
def test_a_sample_is_in_the_same_part_whoever_holds_it(m, k, seed):
    X, random = table(seed, samples=400)
    fold = silos.dealt(silos.alone(np.arange(1), [np.arange(400)]), X, k, seed)
    order = random.permutation(400)
    owner = random.integers(m, size=400)
    parts = [np.flatnonzero(owner == i) for i in range(m)]
    other = silos.dealt(silos.alone(np.arange(m), parts), X[order] * (1 + 1e-15), k, seed)
    np.testing.assert_array_equal(other, fold[order])
    assert np.abs(np.bincount(fold, minlength=k) - 400 / k).max() < 5 * np.sqrt(400 / k)
    assert (fold != silos.dealt(silos.alone(np.arange(1), [np.arange(400)]), X, k, seed + 1)).any()


def test_equal_samples_go_round_the_parts():
    rows = np.repeat([[0.0, 1.0], [-0.0, 0.0]], [10, 6], axis=0)
    fold = silos.dealt(silos.alone(np.arange(1), [np.arange(16)]), rows, 4, 3)
    assert sorted(np.bincount(fold[:10], minlength=4)) == [2, 2, 3, 3]
    assert sorted(np.bincount(fold[10:], minlength=4)) == [1, 1, 2, 2]


@pytest.mark.quick
def test_the_mean_over_silos_is_the_pooled_loss():
    X, random = table()
    t = random.integers(2, size=60)[:, None].astype(float)
    parts = np.split(np.arange(60), [3, 20])  # 3, 17 and 40 samples
    census = silos.alone(np.arange(3), parts)
    fold = silos.dealt(census, X, 4, 0)
    data = silos.stacked(census, X, t, fold, 4, spread=0.5)
    outer, inner = silos.levels(log_loss)
    x = {"common": jnp.asarray(-2.0), "own": jnp.asarray(random.normal(size=8))}
    y = {
        "coef": jnp.asarray(random.normal(size=(5, 8, 1))),
        "intercept": jnp.asarray(random.normal(size=(5, 1))),
    }
    mean = lambda function: np.mean(
        [function(x, y, {name: leaf[i] for name, leaf in data.items()}) for i in range(3)]
    )

    losses, penalty = [], 0.0
    for k in range(5):
        w, b = np.asarray(y["coef"][k, :5, 0]), float(y["intercept"][k, 0])
        s = X @ w + b
        losses.append(np.logaddexp(0, s) - t[:, 0] * s)
        penalty += (
            np.exp(-2 + 0.5 * np.asarray(x["own"])) @ np.asarray(y["coef"][k, :, 0]) ** 2
            + 1e-4 * b**2
        )
    trained = sum(np.mean(losses[k][fold != k]) for k in range(5))
    held = sum(np.sum(losses[k][fold == k]) for k in range(4)) / 60
    prior = (np.sum(np.asarray(x["own"]) ** 2) + 3.0**2 / 16) / 120
    assert mean(inner) == pytest.approx(trained + penalty, rel=1e-9)
    assert mean(outer) == pytest.approx(held + prior, rel=1e-9)


def ridge_data():
    X, y = load_diabetes(return_X_y=True)
    groups = np.repeat(["north", "east", "south", "west"], [220, 120, 95, 7])
    return X, y, groups


def test_ridge_solves_both_levels():
    X, y, groups = ridge_data()
    model = SiloRidge(tol=1e-4, steps=4000, random_state=0).fit(X, y, groups=groups)
    assert model.solution_.status == "converged"
    S, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    everybody = silos.alone(np.arange(1), [np.arange(len(S))])
    fold = silos.dealt(everybody, np.c_[S, t], 4, np.random.RandomState(0).randint(2**31 - 1))
    # The answer minimises half the mean squared error + penalties, written down here a second time.
    A = S.T @ S / len(S) + 2 * np.diag(model.penalty_)
    wanted = np.linalg.solve(A, S.T @ t / len(S)) * y.std() / X.std(axis=0)
    np.testing.assert_allclose(model.coef_, wanted, rtol=0, atol=2e-2 * np.abs(wanted).max())
    assert list(model.silos_) == ["east", "north", "south", "west"]

    def risk(log_penalty):  # of models that leave out each part, with the prior
        common = -5 + 16 * (log_penalty.mean() + 5) / (16 + 1 / len(log_penalty))
        total = (np.sum((log_penalty - common) ** 2) + (common + 5) ** 2 / 16) / (2 * len(S))
        for k in range(4):
            train, held = S[fold != k], S[fold == k]
            H = np.block(
                [
                    [
                        train.T @ train / len(train) + 2 * np.diag(np.exp(log_penalty)),
                        train.mean(axis=0)[:, None],
                    ],
                    [train.mean(axis=0)[None], np.array([[1 + 2e-4]])],
                ]
            )
            w = np.linalg.solve(
                H, np.append(train.T @ t[fold != k] / len(train), t[fold != k].mean())
            )
            total += 0.5 * np.sum((held @ w[:-1] + w[-1] - t[fold == k]) ** 2) / len(S)
        return total

    found = np.log(model.penalty_)
    best = minimize(risk, found, method="BFGS")
    start = risk(np.full(10, -3.0))
    assert risk(found) - best.fun < 0.01 * (start - best.fun)


def test_the_same_rows_over_any_owners_give_the_same_model():
    X, y, _ = ridge_data()
    models = []
    for owners in (1, 5):
        groups = np.argsort(np.argsort(X[:, 0])) * owners // len(X)  # unlike each other
        # the prior alone holds some penalties, by 1e-4: a tolerance of 1e-4 leaves them where they are
        models.append(SiloRidge(random_state=0, tol=1e-5).fit(X, y, groups))
    one, five = models
    np.testing.assert_allclose(np.log(five.penalty_), np.log(one.penalty_), atol=0.05)
    np.testing.assert_allclose(five.predict(X), one.predict(X), atol=0.005 * y.std())


def test_classes_that_can_be_separated_settle():
    """With the fixed lam = 20 they have not after 2,600 steps: the two points of the pair are too
    far apart for the tolerance."""
    X, y = load_wine(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, random_state=1, train_size=124, stratify=y)
    groups = np.random.default_rng(1).integers(4, size=len(X))
    model = SiloLogisticRegression(random_state=0, steps=2600).fit(X, y, groups)
    assert model.solution_.status == "converged"


def test_without_spread_one_penalty_serves_all_features():
    X, y, groups = ridge_data()
    model = SiloRidge(spread=0.0, random_state=0).fit(X, y, groups)
    np.testing.assert_allclose(model.penalty_, model.penalty_[0])


def test_several_classes_in_silos_that_lack_some():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    groups = np.where(
        np.random.default_rng(0).random(150) < 0.5, 4, y
    )  # one silo with all classes, three with one each
    groups[7] = 3  # and one with a single sample
    model = SiloLogisticRegression(random_state=0, tol=5e-3).fit(X, names, groups)
    assert list(model.silos_) == [0, 1, 2, 3, 4]
    assert model.coef_.shape == (3, 4)
    assert model.penalty_.shape == (4,)
    assert model.score(X, names) > 0.95
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(X)).all()


def test_networks_are_named_made_or_given():
    X, y, groups = ridge_data()
    graph = networkx.relabel_nodes(networkx.path_graph(4), dict(enumerate("abcd")))
    coefs = [
        SiloRidge(network=network, random_state=0, tol=1e-4, steps=4000).fit(X, y, groups).coef_
        for network in (decibo.from_graph(graph), decibo.networks.star)
    ]
    np.testing.assert_allclose(*coefs, atol=5e-2 * np.abs(coefs[0]).max())


@pytest.mark.quick
@pytest.mark.parametrize(
    ("settings", "groups", "words"),
    [
        ({"network": "circle"}, None, "one of complete, exponential, path, ring, star"),
        ({"network": 3}, None, "network must be a name"),
        ({"network": decibo.ring(5)}, None, "1 silos and 5 agents"),
        ({"validation": 0.9}, None, "at most 0.5"),
        ({"spread": -1.0}, None, "at least 0"),
        ({"lam": -1.0}, None, "positive, finite number"),
        ({"tol": float("nan")}, None, "positive, finite number"),
        ({"steps": 0}, None, "positive integer"),
        ({}, [1, 2], "one silo for each of the 150 samples"),
    ],
)
@pytest.mark.parametrize("kind", [SiloRidge, SiloLogisticRegression])
def test_invalid_settings_are_rejected_before_any_work(settings, groups, words, kind):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(decibo.InputError, match=words):
        kind(**settings).fit(X, y, groups=groups)


def test_one_class_is_rejected():
    with pytest.raises(decibo.InputError, match="one class"):
        SiloLogisticRegression().fit(np.eye(4), np.ones(4))


def test_too_few_steps_are_reported():
    X, y, groups = ridge_data()
    with pytest.warns(ConvergenceWarning, match="Raise steps or tol"):
        SiloRidge(steps=5, random_state=0).fit(X, y, groups)


def test_a_silo_is_in_one_process_only(monkeypatch):
    """As if a second process had passed the same table."""
    monkeypatch.setattr(silos.jax, "process_count", lambda: 2)
    monkeypatch.setattr(silos, "share", lambda value: [value, value])
    with pytest.raises(decibo.InputError, match=r"Silo 'north' is in several processes.*its own"):
        silos.census(np.array(["south", "north"]), 2)
