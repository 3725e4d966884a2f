"""Callbacks see every record, end a run where they say so, and change no number of it."""

import os
import signal

import jax
import numpy as np
import pytest

import decibo
from decibo.callbacks import EarlyStopping
from helpers.processes import printed

PROBLEM = decibo.problems.quadratic(4, seed=1)
NETWORK = decibo.ring(4)
METHOD = decibo.ahead_exact(alpha=0.03, gamma=0.05, lam=4.0)
ASKED = {"every": 7, "measures": ["outer", "consensus_x"], "progress": False}


def solve(steps=100, **options):
    return decibo.solve(PROBLEM, NETWORK, METHOD, steps=steps, **ASKED | options)


def same(one, two):
    pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True)
    rows = all((one.history[name] == two.history[name]).all() for name in one.history)
    return rows and all((np.asarray(a) == np.asarray(b)).all() for a, b in pairs)


class Log:
    def __init__(self, stop=None):
        self.stop = stop
        self.plans, self.rows, self.ends = [], [], []

    def start(self, plan):
        self.plans.append(plan)

    def record(self, step, measures):
        self.rows.append((step, {name: np.copy(value) for name, value in measures.items()}))
        return "enough." if step == self.stop else None

    def end(self, solution):
        self.ends.append(solution)


def test_every_record_is_handed_over_and_no_bit_changes():
    log, called = Log(), []
    plain = solve()
    watched = solve(callbacks=[log, lambda step, measures: called.append(step)])
    assert same(plain, watched)
    assert [step for step, _ in log.rows] == called == plain.history["step"].tolist()
    assert [row["outer"] for _, row in log.rows] == plain.history["outer"].tolist()
    assert (log.plans[0].steps, log.plans[0].every, log.plans[0].measures) == (
        100,
        7,
        ("outer", "consensus_x"),
    )
    assert log.ends == [watched]
    assert watched.status == "done"


@pytest.mark.parametrize("stop", [0, 7, 63])
def test_a_run_that_is_stopped_has_the_state_of_that_record(stop):
    stopped = solve(callbacks=[Log(stop)])
    assert stopped.status == "stopped"
    assert stopped.status.sound
    assert stopped.message.startswith(f"Stopped by Log at step {stop}: enough.")
    assert stopped.steps == stop == stopped.history["step"][-1]
    if stop:
        assert same(stopped, solve(stop))


def test_a_function_stops_a_run_with_true():
    def small(step, measures):
        return measures["outer"] < 1e9

    assert solve(callbacks=[small]).message.startswith("Stopped by small at step 0.")


def test_stopped_and_resumed_is_the_undisturbed_run(tmp_path):
    kept = lambda resume=False: decibo.Checkpoints(tmp_path, every=20, resume=resume)
    log = Log()
    assert solve(checkpoint=kept(), callbacks=[Log(35)]).steps == 35
    resumed = solve(checkpoint=kept(resume="auto"), callbacks=[log])
    assert same(resumed, solve())
    assert resumed.message.endswith("Resumed from the checkpoint of step 35.")
    assert log.plans[0].step == 35
    assert log.plans[0].history["step"].tolist() == [0, 7, 14, 21, 28, 35]
    assert log.rows[0][0] == 42


def test_resume_auto_begins_where_there_is_nothing(tmp_path):
    auto = decibo.Checkpoints(tmp_path, resume="auto")
    first = solve(98, checkpoint=auto)
    assert "Resumed" not in first.message
    assert same(solve(120, checkpoint=auto), solve(120))


def test_what_diverges_is_handed_over_too():
    log = Log()
    with pytest.raises(decibo.DivergedError):
        decibo.solve(
            PROBLEM,
            NETWORK,
            METHOD.replace(alpha=1e3),
            steps=1000,
            throw=True,
            callbacks=[log],
            **ASKED,
        )
    assert log.ends[0].status == "diverged"
    assert [step for step, _ in log.rows] == log.ends[0].history["step"].tolist()


def test_a_vote_counts_at_the_last_record_too_and_a_target_that_holds_from_the_start_does_not():
    assert solve(70, callbacks=[Log(70)]).status == "stopped"
    reached = solve(until={"outer": 1e9}, measures=["outer"], callbacks=[Log(0)])
    assert reached.status == "stopped"


class Course:
    """A measure whose values are given."""

    def __init__(self, *values):
        self.values = values

    def fed_to(self, stopping):
        stopping.start(decibo.callbacks.Plan(100, 1, ("a",)))
        for step, value in enumerate(self.values):
            if stopping.record(step, {"a": np.asarray(value)}):
                return step
        return None


@pytest.mark.parametrize(
    ("values", "options", "step"),
    [
        ([3.0, 2.0, 1.0, 1.0, 1.0, 1.0], {"patience": 2}, 4),
        ([3.0, 2.0, 2.5, 1.0, 1.5, 1.2, 1.1], {"patience": 3}, 6),
        ([3.0, 2.9, 2.8, 2.0], {"patience": 2, "delta": 0.5}, 2),
        ([1.0, 2.0, 3.0, 2.0, 2.0], {"patience": 2, "mode": "max"}, 4),
        ([1.0, np.nan, np.nan], {"patience": 2}, 2),
        ([[1.0, 1.0], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5]], {"patience": 2}, 3),
        ([3.0, 2.0, 1.0], {"patience": 2}, None),
    ],
)
def test_early_stopping(values, options, step):
    assert Course(*values).fed_to(EarlyStopping("a", **options)) == step


def test_early_stopping_remembers_what_was_before_a_checkpoint(tmp_path):
    stopping = lambda: [EarlyStopping("outer", patience=3, delta=1e9)]
    whole = solve(callbacks=stopping())
    assert (whole.status, whole.steps) == ("stopped", 21)
    assert "outer has not improved in 3 records" in whole.message
    solve(10, checkpoint=decibo.Checkpoints(tmp_path))
    resumed = solve(
        checkpoint=decibo.Checkpoints(tmp_path, resume=True),
        callbacks=stopping(),
        measures=ASKED["measures"],
    )
    assert resumed.status == "stopped"
    assert resumed.steps <= 21


def test_batches_of_a_sweep():
    log = Log(14)
    grid = {"alpha": [0.01, 0.03]}
    swept = decibo.sweep(PROBLEM, NETWORK, METHOD, grid, steps=100, callbacks=[log], **ASKED)
    assert swept.status == ("stopped", "stopped")
    assert log.plans[0].runs == (0, 1)
    assert log.ends == [swept]
    assert [step for step, _ in log.rows] == [0, 7, 14]
    whole = decibo.sweep(PROBLEM, NETWORK, METHOD, grid, steps=100, **ASKED)
    for name in ("outer", "consensus_x"):
        np.testing.assert_array_equal(swept.history[name][:, :3], whole.history[name][:, :3])
        np.testing.assert_array_equal(swept.history[name][:, 3:], whole.history[name][:, [2] * 13])
        np.testing.assert_array_equal(log.rows[2][1][name], whole.history[name][:, 2])


def test_every_seed_of_a_repeat():
    log = Log(7)
    repeated = decibo.repeat(PROBLEM, NETWORK, METHOD, seeds=2, steps=30, callbacks=[log], **ASKED)
    assert repeated.status == ("stopped", "stopped")
    assert len(log.plans) == len(log.ends) == 2


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [
        (print, "callbacks must be a list"),
        ([3], "A callback must be a function"),
        ([EarlyStopping], "Make one of the class"),
        ([lambda step, measures: 3], "must return True or a reason .* returned 3"),
        ([EarlyStopping("oter")], "outer.*Did you mean 'outer'"),
    ],
)
def test_what_is_no_callback_is_rejected(callbacks, words):
    with pytest.raises(decibo.InputError, match=words):
        solve(callbacks=callbacks)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("step", [0, 21])
def test_ctrl_c_at_a_record_ends_the_run_and_what_is_there_is_returned(times, step, tmp_path):
    def interrupt(at, measures):
        if at == step:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    kept = decibo.Checkpoints(tmp_path, every=50, resume="auto")
    stopped = solve(checkpoint=kept, callbacks=[interrupt])
    assert (stopped.status, stopped.steps) == ("interrupted", step + 7 * (times == 1))
    assert stopped.history["step"][-1] == stopped.steps
    assert same(solve(checkpoint=kept), solve())


def test_a_second_ctrl_c_before_the_first_record(monkeypatch):
    """What is looked at in the end may have no record at all."""
    from decibo.run.run import CompiledStepper

    def twice(self, inputs, state):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(CompiledStepper, "compile", twice)
    stopped = solve()
    assert (stopped.status, stopped.steps) == ("interrupted", 0)
    assert len(stopped.history["outer"]) == 0
    assert len(stopped.to_pandas()) == 0
    assert "Solution(interrupted" in repr(stopped)


VOTING = """
import sys
from pathlib import Path
import jax
import decibo

me = decibo.init_distributed()
ends = []

class One:
    def record(self, step, measures):
        return "enough" if jax.process_index() == 1 and step >= 20 else None

    def end(self, solution):
        ends.append(solution.status)

method = decibo.ahead_exact(alpha=0.03, gamma=0.05, lam=4.0)
found = decibo.solve(decibo.problems.quadratic(4, seed=1), decibo.ring(4), method, steps=100, every=10,
                     callbacks=[One()], progress=False)
Path(sys.argv[1], str(me)).write_text(f"{found.status} {found.steps} {ends[0]} {found.message}")
"""


@pytest.mark.slow
def test_the_vote_of_one_process_ends_the_run_of_all(tmp_path):
    (tmp_path / "run.py").write_text(VOTING)
    printed("-m", "decibo", "launch", "-n", "2", "python", tmp_path / "run.py", tmp_path)
    said = [(tmp_path / str(process)).read_text() for process in (0, 1)]
    assert said[0] == said[1]
    assert said[0].startswith("stopped 20 stopped Stopped by One at step 20: enough.")
