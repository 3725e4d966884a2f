"""The live view: one line that says what matters, and nothing where nobody watches."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

import decibo
from decibo.run import observers

pytestmark = pytest.mark.quick


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test turns, and a terminal of 80 columns to look at."""

    class Clock:
        now, screen = 0.0, Screen()

    monkeypatch.setattr(observers.time, "perf_counter", lambda: Clock.now)
    monkeypatch.setattr(observers, "sys", SimpleNamespace(stderr=Clock.screen))
    monkeypatch.setenv("COLUMNS", "80")
    return Clock


def test_it_says_step_rate_time_left_slope_and_consensus():
    text = observers.line(
        12_400,
        50_000,
        8000.0,
        {"stationarity": 9e-8, "consensus_x": np.float64(2.2e-9), "outer": 1.0},
    )
    assert text == "step 12400/50000  8000/s  0:05 left  |grad Phi| 0.0003  consensus_x 2.2e-09"


def test_it_falls_back_to_the_estimate_and_then_to_whatever_there_is():
    assert "|grad Phi| about 0.2" in observers.line(
        1, 2, 1.0, {"direction_norm": 0.04, "outer": 3.0}
    )
    other = observers.line(1, 2, 1.0, {"outer": 3.0, "vector": np.zeros(3)})
    assert "outer 3" in other
    assert "vector" not in other
    assert "1:02:05 left" in observers.line(1, 3726, 1.0, {})


def test_numbers_that_are_not_finite_do_no_harm():
    assert "nan" in observers.line(1, 2, 0.0, {"stationarity": float("nan")})
    assert "inf" in observers.line(1, 2, 0.0, {"stationarity": float("inf")})


def test_other_work_than_steps_has_its_own_noun(clock):
    with observers.Line("fig1") as view:
        clock.now = 5.0
        view(40, 100, {})
    assert "fig1 40/100" in clock.screen.getvalue()


def test_compilation_does_not_count_in_the_rate(clock):
    view = observers.Line()
    clock.now = 30.0  # compiled, and the first chunk done
    view(10, 1000, {})
    clock.now = 31.0
    view(110, 1000, {})
    assert "step 110/1000  100/s  0:09 left" in clock.screen.getvalue()


def test_it_keeps_to_one_line_five_times_a_second(clock):
    view = observers.Line()
    for k in range(1, 2001):
        clock.now = 0.01 * k
        view(k, 2000, {"stationarity": 1e-3, "consensus_x": 1e-3, "outer": 1.0})
    shown = clock.screen.getvalue()
    assert 90 <= shown.count("\r") <= 101
    assert shown.count("\n") == 1
    assert max(len(part) for part in shown.replace("\n", "\r").split("\r")) <= 79
    view.__exit__()
    assert clock.screen.getvalue() == shown  # a finished line stays


def test_an_unfinished_line_is_wiped(clock):
    with observers.watched(True) as view:
        clock.now = 5.0
        view(10, 100, {})
    assert clock.screen.getvalue().endswith("\r" + " " * 79 + "\r")


def test_nobody_watching_means_silence(monkeypatch, capsys):
    with observers.watched(None) as view:
        assert view is None
    decibo.solve(
        decibo.problems.synthetic(),
        decibo.ring(10),
        decibo.ahead_exact(alpha=0.01, gamma=0.01),
        steps=5,
    )
    assert capsys.readouterr().err == ""


def test_a_function_of_the_user_is_called():
    seen = []
    decibo.solve(
        decibo.problems.synthetic(),
        decibo.ring(10),
        decibo.ahead_exact(alpha=0.01, gamma=0.01),
        steps=5,
        progress=lambda step, steps, latest: seen.append((step, steps, set(latest))),
    )
    assert seen[-1][:2] == (5, 5)
    assert "consensus_x" in seen[-1][2]


def test_it_says_for_whom_a_site_waits(clock):
    view = observers.Line()
    clock.now = 2.0
    view.waits(("cern",), 0.5)  # not worth a word
    assert clock.screen.getvalue() == ""
    view.waits(("cern",), 1.5)
    assert clock.screen.getvalue().strip() == "waiting for cern, 2 s"
    view(10, 100, {"outer": 1.0})
    clock.now = 4.0
    view.waits(("cern", "desy"), 120.0)
    last = clock.screen.getvalue().split("\r")[-1]
    assert last.strip() == "step 10/100  2/s  0:36 left  waiting for cern and desy, 120 s"
