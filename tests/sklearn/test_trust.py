"""SiloTrust: the silo with swapped labels gets no weight, and what it is given is checked."""

import numpy as np
import pytest

from decibo.errors import InputError
from decibo.sklearn import SiloTrust, load, save


def tables(seed=0, count=80):
    """Three silos with the same rule; in the samples of the second that nobody has checked it is
    turned round."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(3 * count, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
    silo = np.repeat(["a", "b", "c"], count)
    clear = X @ [1.0, 0.2, 0.0] - 1.0 + 0.3 * random.normal(size=3 * count) > 0
    checked = random.random(3 * count) < 0.3
    wrong = (silo == "b") & ~checked
    return X, np.where(clear ^ wrong, "sick", "healthy"), silo, checked, clear


@pytest.fixture(scope="module")
def fitted():
    X, y, silo, checked, _ = tables()
    return SiloTrust(random_state=0).fit(X, y, groups=silo, checked=checked)


def test_the_silo_with_swapped_labels_is_found(fitted):
    assert fitted.silos_.tolist() == ["a", "b", "c"]
    assert fitted.trust_[1] < 0.1 < 0.5 < fitted.trust_[0]
    assert fitted.trust_[2] > 0.5
    X, _, _, _, clear = tables(seed=1)
    assert np.mean(fitted.predict(X) == np.where(clear, "sick", "healthy")) > 0.9


def test_the_weights_and_the_model_are_those_of_a_direct_solution(fitted):
    """At trust w the coefficients minimise the weighted log-loss plus the ridge: its gradient
    vanishes."""
    X, y, silo, checked, _ = tables()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    weights = fitted.trust_[np.searchsorted(fitted.silos_, silo)] * ~checked / (~checked).sum()
    coef = fitted.coef_[0] * X.std(axis=0)
    intercept = fitted.intercept_[0] + fitted.coef_[0] @ X.mean(axis=0)
    residual = 1 / (1 + np.exp(-(Z @ coef + intercept))) - (y == "sick")
    gradient = Z.T @ (weights * residual) + 2 * 0.02 * coef
    assert np.abs(gradient).max() <= 5e-3  # tol, and the bias of lam = 20


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
    with pytest.raises(InputError, match="penalty must be"):
        SiloTrust(penalty=0.0).fit(X, y, groups=silo)
