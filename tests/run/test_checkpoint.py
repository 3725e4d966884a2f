"""Checkpoints: whole or not there, rejected if they are of another run, bit for bit when
resumed."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import jax
import pytest

import decibo
from decibo import files
from decibo.errors import CorruptedFileError, StorageError
from decibo.parallel.signals import GracefulStop
from decibo.run import checkpoint_files, fingerprint
from helpers.processes import printed

METHOD = decibo.methods.sparkle_ed(alpha=0.05, beta=0.1, gamma=0.1)
PROBLEM = decibo.problems.quadratic(6, seed=2)


def solve(folder, steps=120, method=METHOD, problem=PROBLEM, network=None, resume=False, **options):
    network = decibo.ring(6) if network is None else network
    checkpoint = decibo.Checkpoints(folder, every=50, resume=resume)
    options = {"every": 20, "progress": False, "checkpoint": checkpoint} | options
    return decibo.solve(problem, network, method, steps=steps, **options)


def same(one, two):
    both = zip(jax.tree.leaves(vars(one.agents)), jax.tree.leaves(vars(two.agents)), strict=True)
    return all((a == b).all() for a, b in both) and all(
        (one.history[k] == two.history[k]).all() for k in one.history
    )


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once") / "kept"
    solve(folder)
    return folder


@pytest.fixture
def kept(tmp_path, once):
    """Checkpoints of steps 50, 100 and 120."""
    return shutil.copytree(once, tmp_path / "kept")


@pytest.mark.quick
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, kept):
    assert sorted(path.name for path in kept.glob("step-*")) == [
        "step-00000050",
        "step-00000100",
        "step-00000120",
    ]
    resumed, whole = solve(kept, 300, resume=True), solve(tmp_path / "other", 300)
    assert same(resumed, whole)
    assert resumed.steps == 300
    assert len(list(kept.glob("step-*"))) == 3  # the newest three


def test_automatic_step_sizes_resume_where_they_were(tmp_path):
    whole = solve(tmp_path / "whole", 400, decibo.ahead_exact())

    def stop(step, steps, latest):
        if step >= 220:
            raise KeyboardInterrupt

    first = solve(tmp_path / "kept", 400, decibo.ahead_exact(), progress=stop)
    assert first.status == "interrupted"
    assert same(solve(tmp_path / "kept", 400, decibo.ahead_exact(), resume=True), whole)


def test_automatic_step_sizes_do_not_depend_on_how_many_steps_were_planned(tmp_path):
    solve(tmp_path / "kept", 300, decibo.ahead_exact())
    more = solve(tmp_path / "kept", 500, decibo.ahead_exact(), resume=True)
    assert same(more, solve(tmp_path / "whole", 500, decibo.ahead_exact()))


@pytest.mark.parametrize("step", [200, 215, 220])
def test_a_signal_at_any_step_changes_nothing_in_the_resumed_run(tmp_path, step):
    """Also where step sizes are about to change: they are part of the state like everything
    else."""
    struck = []
    whole = solve(tmp_path / "whole", 400, decibo.ahead_exact())

    def stop(now, steps, latest):
        if now >= step and not struck:
            struck.append(now)
            os.kill(os.getpid(), signal.SIGTERM)

    first = solve(tmp_path / "kept", 400, decibo.ahead_exact(), progress=stop)
    assert first.status == "interrupted"
    assert step < first.steps < 400  # the chunk after the signal
    assert same(solve(tmp_path / "kept", 400, decibo.ahead_exact(), resume=True), whole)


def test_a_signal_in_the_last_chunk_is_left_to_whoever_runs_the_next_one(tmp_path):
    """The run is done, but a command that has further runs to do must not begin them."""

    def stop(now, steps, latest):
        if now == steps:
            os.kill(os.getpid(), signal.SIGTERM)

    with GracefulStop(patience=None) as command:
        first = solve(tmp_path / "first", 200, progress=stop)
        assert (first.status, command.requested) == ("done", "SIGTERM")
        assert solve(tmp_path / "second", 200).status == "interrupted"


def test_random_numbers_resume_where_they_were(tmp_path):
    network = decibo.networks.failing(decibo.ring(6), 0.3)
    solve(tmp_path / "kept", 100, network=network, seed=4)
    resumed = solve(tmp_path / "kept", 200, network=network, seed=4, resume=True)
    assert same(resumed, solve(tmp_path / "whole", 200, network=network, seed=4))


def test_nothing_is_overwritten_and_nothing_is_invented(tmp_path, kept):
    with pytest.raises(
        decibo.InputError, match=r"already holds a checkpoint, of step 120.*resume=True"
    ):
        solve(kept)
    with pytest.raises(decibo.InputError, match=r"no checkpoint in .* to resume from"):
        solve(tmp_path / "empty", resume=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every must be a positive integer"),
        ({"keep": 1.5}, "keep must be"),
        ({"folder": ""}, "a path"),
    ],
)
def test_invalid_checkpoints_are_rejected(options, words):
    with pytest.raises(decibo.InputError, match=words):
        decibo.Checkpoints(**({"folder": "somewhere"} | options))
    with pytest.raises(decibo.InputError, match=r"must be decibo\.Checkpoints\(folder\)"):
        decibo.solve(PROBLEM, decibo.ring(6), METHOD, checkpoint="somewhere")


def shifted(problem):
    """The same but for a constant in the outer objective."""
    return replace(problem, outer=lambda x, y, d: problem.outer(x, y, d) + 1e-12 * (y**2).sum())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"method": decibo.methods.sparkle_ed(alpha=0.04, beta=0.1, gamma=0.1)},
            r"method: .*alpha=0.05.* there, .*alpha=0.04",
        ),
        ({"network": decibo.networks.star(6)}, r"network: .*ring.* there, .*star.* here"),
        ({"problem": decibo.problems.quadratic(6, seed=3)}, "began with other data of agent 0"),
        (
            {"problem": decibo.problems.quadratic(6, n=2, seed=2)},
            r"problem: .*\[3\].* there, .*\[2\].* here",
        ),
        (
            {"problem": shifted(decibo.problems.quadratic(6, seed=2))},
            r"\(outer: another function there than here\)",
        ),
        ({"seed": 1}, r"seed: 0 there, 1 here"),
        ({"measures": ["outer"]}, r"measures: .* there, outer here"),
    ],
)
def test_checkpoints_of_other_runs_are_rejected_with_what_differs(kept, change, words):
    with pytest.raises(decibo.InputError, match=words):
        solve(kept, resume=True, **change)
    assert len(list(kept.glob("step-*"))) == 3


def test_a_folder_that_cannot_be_written_is_rejected_before_any_work(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(decibo.InputError, match="Cannot write to"):
        solve(blocked / "kept")


@pytest.mark.parametrize("keep", [1, 2])
def test_new_checkpoints_outlive_a_damaged_one_of_a_later_step(kept, keep):
    """With keep=1, those below a damaged newest one were deleted as soon as they were written."""
    (kept / "step-00000120" / "shared.npz").write_bytes(b"")
    every = decibo.Checkpoints(kept, every=5, keep=keep, resume=True)

    def crash(step, steps, latest):
        if step >= 110:
            raise RuntimeError("power cut")

    with (
        pytest.warns(UserWarning, match="Continuing from step 100"),
        pytest.raises(RuntimeError, match="power cut"),
    ):
        solve(kept, 300, checkpoint=every, progress=crash)
    left = sorted(path.name for path in kept.glob("step-*"))
    assert len(left) == keep
    assert checkpoint_files.newest(kept, lambda saved: saved.step) == int(left[-1][5:]) < 120


def test_a_kill_during_the_first_write_leaves_a_folder_for_a_new_run(tmp_path, kept):
    folder = tmp_path / "killed"
    (folder / ".writing-00000050-0123456789abcdef").mkdir(parents=True)
    (folder / ".writing-00000050-0123456789abcdef" / "agents-0-5.npz").write_bytes(b"half")
    with pytest.raises(decibo.InputError, match=r"no checkpoint in .* to resume from"):
        solve(folder, resume=True)
    solve(folder)
    assert sorted(path.name for path in folder.glob("step-*")) == sorted(
        path.name for path in kept.glob("step-*")
    )


def test_fewer_steps_than_were_done_are_rejected(kept):
    with pytest.raises(
        decibo.InputError, match=r"has already done 120 steps, but steps is 110.*at least 120"
    ):
        solve(kept, 110, resume=True)


def test_a_full_disk_is_reported_with_the_path_and_leaves_what_was_there(kept, monkeypatch):
    def full(descriptor, *content):
        raise OSError(28, "No space left on device")

    before = sorted(path.name for path in kept.glob("step-*"))
    with monkeypatch.context() as patch:  # of filelock, which does not sync
        patch.setattr(os, "write", full)
        with pytest.raises(StorageError, match=r"\.lock could not be written: No space"):
            solve(kept, 200, resume=True)

    def soon(step, steps, latest):
        monkeypatch.setattr(files.os, "fsync", full)

    with pytest.raises(
        StorageError, match=r"kept/step-\d+ could not be written: No space left on device"
    ):
        solve(kept, 200, resume=True, progress=soon)
    assert sorted(path.name for path in kept.glob("step-*")) == before


@pytest.mark.parametrize("name", ["decibo", "jax"])
def test_other_versions_are_said(kept, monkeypatch, name):
    monkeypatch.setattr(
        "decibo.run.checkpoint.software", lambda: fingerprint.software() | {name: "9.9"}
    )
    with pytest.warns(
        UserWarning, match=rf"was written by decibo .* and this is .*{name} 9\.9.*was not checked"
    ):
        assert solve(kept, resume=True).steps == 120


@pytest.mark.slow
def test_fifty_kills_in_the_middle_of_writing_leave_a_usable_checkpoint(tmp_path):
    script = Path(__file__).parents[1] / "parallel" / "_killed.py"
    text = printed(script, tmp_path, "50", PYTHONWARNINGS="ignore")
    said = json.loads(text.splitlines()[-1])
    assert said["kills"] == 50
    assert said["in the middle"] >= 10  # a draft was there: the kill hit the writing itself
    assert said["unusable"] == 0
    shutil.rmtree(tmp_path)


def other(steps, sound=()):
    """What `share` returns if a second process has these steps, of which those in `sound` can be
    read."""
    reads = iter(sound)
    return lambda value: [value, steps if isinstance(value, list) else next(reads)]


def test_folders_of_their_own_continue_from_the_newest_step_that_all_have(kept):
    step_of = lambda saved: saved.step
    newest = lambda folder, share: checkpoint_files.newest(folder, step_of, True, share)
    # the other never completed 120
    assert newest(kept, other([50, 100], [True])) == 100
    assert newest(kept.with_name("none"), other([])) is None
    assert newest(kept, other([])) is None  # killed before the other's first
    with pytest.warns(UserWarning, match="step 100 is damaged in the folder of process 1"):
        assert newest(kept, other([50, 100], [False, True])) == 50
    (kept / "step-00000100" / "shared.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="step 100 is damaged in the folder of process 0"):
        assert newest(kept, other([50, 100], [True, True])) == 50
    with pytest.raises(
        CorruptedFileError, match=r"no checkpoint of the same step.*\[50, 100, 120\], \[70\]"
    ):
        newest(kept, other([70]))
    with pytest.raises(decibo.InputError, match=r"different checkpoints .*steps \[70, 120\]"):
        checkpoint_files.newest(kept, step_of, share=other([70]))


def test_an_own_folder_is_an_ordinary_one_in_a_run_of_one_process(tmp_path, kept):
    own = decibo.Checkpoints(kept, every=50, resume=True, shared=False)
    assert same(solve(kept, 150, checkpoint=own), solve(tmp_path / "other", 150))
