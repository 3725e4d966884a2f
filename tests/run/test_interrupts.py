"""Ctrl-C at any time: before the first record, while a program is compiled, in the loop."""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import decibo
from helpers.processes import printed

SCRIPT = Path(__file__).with_name("_interrupted.py")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "times"), [(40, 1), (12, 2)])
def test_ctrl_c_at_any_time(count, times):
    """It ends a run with what is there or in KeyboardInterrupt; no request is lost, and no other
    error comes out."""
    ends = Counter(printed(SCRIPT, "0", count, times, timeout=1200).split("\n")[:-1])
    assert ends.total() == count
    assert set(ends) <= {"interrupted True", "interrupted False", "KeyboardInterrupt"}
    if times == 1:
        assert ends["interrupted False"] == 0
        assert ends["interrupted True"] > 0
        assert ends["KeyboardInterrupt"] > 0


def test_a_request_that_python_drops_before_the_loop_is_answered_in_it(monkeypatch):
    """As in a finaliser, whose exceptions are printed and forgotten."""
    from decibo.run import solve as module

    begin = module.begin

    def dropping(setup):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return begin(setup)

    monkeypatch.setattr(module, "begin", dropping)
    problem = decibo.problems.quadratic(4, seed=1)
    found = decibo.solve(problem, decibo.ring(4), steps=5000, every=10, progress=False)
    assert found.status == "interrupted"
    assert found.steps < 5000


def test_ctrl_c_ends_a_repeat():
    def once(step, measures):
        os.kill(os.getpid(), signal.SIGINT)

    repeated = decibo.repeat(
        decibo.problems.quadratic(4, seed=1),
        decibo.ring(4),
        seeds=3,
        steps=50,
        progress=False,
        callbacks=[once],
    )
    assert repeated.status == ("interrupted",)
    assert repeated.seeds == (0,)
