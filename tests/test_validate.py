"""Argument checks: which word was probably meant."""

import pytest

from decibo.validate import closest, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("m", ["agents", "seed"], "agents"),
        ("algorithms", ["methods", "problems"], "methods"),
        ("logistic", ["quadratic", "logistic_hyperparameters"], "logistic_hyperparameters"),
        ("Ahead-Exact", ["ahead", "ahead_exact"], "ahead_exact"),
        ("alhpa", ["alpha", "gamma"], "alpha"),
        ("zzz", ["agents"], None),
    ],
)
def test_the_closest_word(word, known, meant):
    assert closest(word, known) == meant
    assert did_you_mean(word, known) == ("" if meant is None else f"Did you mean {meant!r}?")
