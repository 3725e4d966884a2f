"""Argument checks: which word was probably meant, and tables that somebody wrote."""

import pytest

from decibo import validate
from decibo.errors import InputError
from decibo.validate import closest, did_you_mean

pytestmark = pytest.mark.quick


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


def test_tables_that_somebody_wrote():
    kinds = {"name": str, "rate": float, "agents": int, "split": bool}
    good = {"name": "a", "rate": 1, "agents": 2, "split": True}
    assert validate.typed_table("[site]", good, kinds, ["name"]) == good
    for bad, words in (
        ([], r"\[site\] must be a table, but it is \[\]"),
        ({}, r"\[site\] needs name\."),
        ({"name": 1}, r"name of \[site\] must be a text, but it is 1\."),
        ({"name": "a", "agents": True}, "agents of .* must be an integer, but it is True"),
        ({"name": "a", "rate": "1"}, "rate of .* must be a number, but it is '1'"),
        ({"name": "a", "rates": 1}, "has no key rates.*Did you mean 'rate'"),
    ):
        with pytest.raises(InputError, match=words):
            validate.typed_table("[site]", bad, kinds, ["name"])
