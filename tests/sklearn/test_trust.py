"""SiloTrust: the silo with swapped labels gets no weight, and what it is given is checked."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from decibo.errors import InputError
from decibo.sklearn import SiloLogisticRegression, SiloTrust, load, save, silos


def tables(seed=0, count=80):
    """Three silos with the same rule; in the samples of the second that nobody has checked it is
    turned round."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(3 * count, 6)) * [1, 10, 0.1, 1, 1, 1] + [0, 5, 0, 0, 0, 0]
    silo = np.repeat(["a", "b", "c"], count)
    clear = X @ [1.0, 0.2, 0.0, 1.0, 0.0, 0.0] - 1.0 + 0.5 * random.normal(size=3 * count) > 0
    checked = random.random(3 * count) < 0.2
    wrong = (silo == "b") & ~checked
    return X, np.where(clear ^ wrong, "sick", "healthy"), silo, checked, clear


@pytest.fixture(scope="module")
def fitted():
    X, y, silo, checked, _ = tables()
    return SiloTrust(random_state=0).fit(X, y, groups=silo, checked=checked)


def test_the_silo_with_swapped_labels_is_found(fitted):
    assert fitted.silos_.tolist() == ["a", "b", "c"]
    assert fitted.trust_[1] < 0.15 < 0.5 < fitted.trust_[0]
    assert fitted.trust_[2] > 0.5
    X, _, _, _, clear = tables(seed=1)
    assert np.mean(fitted.predict(X) == np.where(clear, "sick", "healthy")) > 0.87


def exact_trust(Z, t, silo, checked, fold, k, penalty, prior, centre):
    """The trust of a direct solution in numpy: Newton inside, BFGS outside."""
    S, names = np.c_[Z, np.ones(len(Z))], np.unique(silo)
    ridge = 2 * np.r_[np.full(Z.shape[1], penalty), 1e-4]

    def model(v):
        v, y = v / v.sum(), np.zeros(S.shape[1])
        for _ in range(30):
            p = expit(S @ y)
            H = (S.T * (v * p * (1 - p))) @ S + np.diag(ridge)
            y = y - np.linalg.solve(H, S.T @ (v * (p - t)) + ridge * y)
        return y

    def weights(x):
        return np.where(checked, 1.0, expit(x)[np.searchsorted(names, silo)])

    def phi(x):
        loss, v = 0.0, weights(x)
        for part in range(k):
            z = S @ model(v * (fold != part))
            judged = (fold == part) & checked
            loss += np.sum(np.logaddexp(0, z[judged]) - t[judged] * z[judged])
        return (loss + prior * np.sum((x - centre) ** 2) / 2) / checked.sum()

    x = minimize(phi, np.full(len(names), centre)).x
    return expit(x), model(weights(x))


def test_the_weights_and_the_model_are_those_of_a_direct_solution():
    X, y, silo, checked, _ = tables()
    found = SiloTrust(random_state=0, tol=1e-5, steps=6000, lam=100.0).fit(
        X, y, groups=silo, checked=checked
    )
    Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y == "sick").astype(float)
    parts = [np.flatnonzero(silo == name) for name in "abc"]
    seed = np.random.RandomState(0).randint(2**31 - 1)
    fold = silos.dealt(silos.alone(np.array(list("abc")), parts), np.c_[Z, t], 5, seed)
    trust, model = exact_trust(Z, t, silo, checked, fold, 5, 0.02, 0.3, logit(0.88))
    np.testing.assert_allclose(found.trust_, trust, atol=0.03)
    np.testing.assert_allclose(found.coef_[0] * X.std(axis=0), model[:-1], atol=0.02)


def test_learned_weights_beat_equal_ones(fitted):
    assert list(fitted.compared_) == ["learned", "equal weights", "checked alone"]
    assert fitted.compared_["equal weights"] > 1.2 * fitted.compared_["learned"]


def test_weights_that_do_not_help_are_said():
    """With a prior that holds every weight near 1 the silo with swapped labels does harm."""
    X, y, silo, checked, _ = tables()
    with pytest.warns(UserWarning, match="checked alone does better than the learned weights"):
        SiloTrust(random_state=0, prior=1e6, centre=0.99).fit(X, y, groups=silo, checked=checked)


def test_the_audit_asks_the_silo_with_swapped_labels(fitted):
    audit = fitted.audit()
    assert [row.silo for row in audit if row.verdict == "ask"] == ["b"]
    assert audit[1].surprise > 0.5 > abs(audit[0].surprise)
    assert audit[1].p < 0.05 / 3
    checked = tables()[3]
    assert [row.checked for row in audit] == checked.reshape(3, -1).sum(axis=1).tolist()
    assert [row.records for row in audit] == [80] * 3
    assert audit[0].corrected is None
    printed = str(audit)
    assert max(map(len, printed.splitlines())) <= 80
    assert " ask" in printed


def test_the_audit_of_several_classes_counts_corrections():
    random = np.random.default_rng(3)
    X = random.normal(size=(600, 2))
    clear = np.argmax(np.c_[X, -X.sum(axis=1)] + 0.3 * random.normal(size=(600, 3)), axis=1)
    silo, checked = np.arange(600) % 4, random.random(600) < 0.25
    first = np.where(silo == 2, (clear + 1) % 3, clear)
    y = np.where(checked, clear, first)
    model = SiloTrust(random_state=0).fit(X, y, groups=silo, checked=checked, first=first)
    audit = model.audit()
    assert [row.verdict == "ask" for row in audit] == [False, False, True, False]
    wrong = [row.corrected for row in audit]
    assert wrong == [0, 0, int((checked & (silo == 2)).sum()), 0]


def test_nobody_is_accused_where_nothing_is_wrong():
    """Fresh labels of the same rule, twenty times; five accusations of one in twenty have p = 0.003."""
    accused = 0
    for seed in range(20):
        X, _, silo, checked, clear = tables(seed, count=60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SiloTrust(random_state=0).fit(X, clear, groups=silo, checked=checked)
        accused += any(row.verdict == "ask" for row in model.audit())
    assert accused <= 4


def test_suspects_are_the_wrong_labels_of_ones_own():
    X, _, silo, _, clear = tables(2, count=100)
    wrong = np.random.default_rng(0).random(len(clear)) < 0.2
    for kind in (SiloTrust, SiloLogisticRegression):
        model = kind(random_state=0).fit(X, clear ^ wrong, groups=silo)
        order = model.suspects()
        assert sorted(order) == list(range(len(clear)))
        rank = np.empty(len(order))
        rank[order] = np.arange(len(order))
        assert np.mean(rank[wrong][:, None] < rank[~wrong]) > 0.9
        stored = pickle.loads(pickle.dumps(model))
        assert not {"_own", "out_of_fold_"} & set(vars(stored))
        with pytest.raises(InputError, match="it was loaded"):
            stored.suspects()
    with pytest.raises(InputError, match="it was loaded"):
        pickle.loads(pickle.dumps(SiloTrust(random_state=0).fit(X, clear, groups=silo))).audit()


def test_a_saved_model_predicts_and_knows_whom_it_trusts(fitted, tmp_path):
    again = load(save(fitted, tmp_path / "model.json"))
    X = tables()[0]
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.trust_, fitted.trust_)
    assert again.get_params()["penalty"] == fitted.penalty


def test_what_is_checked_must_leave_something_to_train():
    X, y, silo, checked, _ = tables(count=4)
    for wrong, words in {
        "all": (np.ones(12, bool), "12 of 12 are checked"),
        "none": (np.zeros(12, bool), "0 of 12 are checked"),
        "numbers": (checked.astype(int), "True or False for each of the 12 samples"),
        "few": (checked[:5], "True or False for each of the 12 samples"),
    }.values():
        with pytest.raises(InputError, match=words):
            SiloTrust().fit(X, y, groups=silo, checked=wrong)
    for wrong in ({"penalty": 0.0}, {"prior": 0.0}, {"centre": 1.0}, {"folds": 1}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} must be"):
            SiloTrust(**wrong).fit(X, y, groups=silo)
