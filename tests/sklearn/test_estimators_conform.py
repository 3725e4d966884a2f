"""Scikit-learn's own conformance checks, with few steps so that they are quick; with the defaults
they pass as well."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from decibo.sklearn import SiloLogisticRegression, SiloRidge, silos

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]


@pytest.fixture(autouse=True)
def few_shapes(monkeypatch):
    """Most of the time is compilation: one program for all sizes."""
    monkeypatch.setattr(silos, "FEATURES", 16)
    monkeypatch.setattr(silos, "SAMPLES", 512)


@parametrize_with_checks([SiloRidge(steps=40)])
def test_passes_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([SiloLogisticRegression(steps=40)])
def test_the_classifier_passes_scikit_learns_checks(estimator, check):
    check(estimator)
