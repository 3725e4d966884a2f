"""Verdicts say what the histories show."""

import re

import numpy as np
import pytest

import decibo
from decibo.report import read_run
from decibo.report.verdict import judge
from helpers.runs import curve, written

pytestmark = pytest.mark.quick

FALLING = 10.0 ** -np.linspace(0, 9, 91)


def verdict(tmp_path, values, measure="stationarity", **solution):
    history = curve(values)
    history[measure] = history.pop("stationarity")
    return judge(read_run(written(tmp_path / "run", history, **solution)), measure)


@pytest.mark.parametrize(
    ("values", "kind", "title"),
    [
        (FALLING, "open", "improving"),
        (FALLING + 1e-4, "floor", "floor"),
        (FALLING + 1e-4 * (2 + np.sin(np.arange(91))), "floor", "floor"),
        (FALLING**4, "good", "solved"),
        (np.ones(91), "bad", "stuck"),
        (FALLING[::-1] * 50, "bad", "grew"),
        (np.ones(3), "open", "done"),
        (np.append(FALLING, np.nan), "open", "done"),
    ],
)
def test_verdicts_on_a_measure_that_should_vanish(tmp_path, values, kind, title):
    result = verdict(tmp_path, values)
    assert (result.kind, result.title) == (kind, title)


def test_a_floor_says_where_and_since_when(tmp_path):
    sentence = verdict(tmp_path, FALLING + 1e-4).sentence
    assert "near 1.00e\N{MINUS SIGN}4 since" in sentence
    since = int(re.search(r"since about step (\d+)", sentence)[1])
    assert 380 <= since <= 420  # the falling part is as large as the floor at record 40, step 400


def test_a_gradient_may_grow_after_a_start_on_a_plateau(tmp_path):
    history = curve(FALLING[::-1] * 50) | {"phi": np.linspace(0.7, 0.1, 91)}
    result = judge(read_run(written(tmp_path / "run", history)), "stationarity")
    assert (result.kind, result.title) == ("open", "left a plateau")
    assert "phi fell from 0.7 to 0.1" in result.sentence


def test_the_floor_of_an_exact_method_is_its_penalty(tmp_path):
    method = decibo.ahead_exact(alpha=0.1, gamma=0.1, lam=10.0)
    exact = judge(
        read_run(written(tmp_path / "exact", curve(FALLING + 1e-4), method=method)), "stationarity"
    )
    assert "a larger lam does" in exact.sentence
    assert "smaller step sizes or an exact method may" in verdict(tmp_path, FALLING + 1e-4).sentence


def test_an_objective_settles_but_has_no_floor(tmp_path):
    result = verdict(tmp_path, 5 + FALLING, measure="phi")
    assert (result.kind, result.title) == ("good", "settled")
    result = verdict(tmp_path, 5 - np.linspace(0, 1, 91), measure="phi")
    assert (result.kind, result.title) == ("open", "improving")


@pytest.mark.parametrize(
    ("status", "kind"), [("diverged", "bad"), ("converged", "good"), ("interrupted", "open")]
)
def test_the_status_of_a_run_is_its_verdict(tmp_path, status, kind):
    result = verdict(tmp_path, FALLING, status=status, message="It did so at step 380.")
    assert (result.kind, result.title) == (kind, status)
    assert "It did so at step 380." in result.sentence


def test_single_precision_is_solved_sooner(tmp_path):
    run = read_run(written(tmp_path / "run", curve(FALLING + 1e-13)))
    single = read_run(written(tmp_path / "run", curve(np.maximum(FALLING**2, 1e-13))))
    object.__setattr__(single, "precision", "float32")
    assert judge(run, "stationarity").title == "improving"
    assert judge(single, "stationarity").title == "solved"
