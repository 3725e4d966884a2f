"""Checkpoints: whole or not there, refused when damaged or foreign, bit for bit when resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import decibo
from decibo.errors import CorruptedFileError
from decibo.execute import checkpoint
from decibo.files import sha256

METHOD = decibo.methods.sparkle_ed(alpha=0.05, beta=0.1, gamma=0.1)
PROBLEM = decibo.problems.quadratic(6, seed=2)


def solve(folder, steps=120, method=METHOD, problem=PROBLEM, network=None, resume=False, **options):
    network = decibo.ring(6) if network is None else network
    checkpoint = decibo.Checkpoints(folder, every=50, resume=resume)
    options = {"every": 20, "progress": False, "checkpoint": checkpoint} | options
    return decibo.solve(problem, network, method, steps=steps, **options)


def same(one, two):
    both = zip(jax.tree.leaves(vars(one.agents)), jax.tree.leaves(vars(two.agents)), strict=True)
    return all((a == b).all() for a, b in both) and all((one.history[k] == two.history[k]).all() for k in one.history)


@pytest.fixture
def kept(tmp_path):
    solve(tmp_path / "kept")
    return tmp_path / "kept"


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, kept):
    assert sorted(path.name for path in kept.iterdir()) == ["step-00000050", "step-00000100", "step-00000120"]
    resumed, whole = solve(kept, 300, resume=True), solve(tmp_path / "other", 300)
    assert same(resumed, whole)
    assert resumed.steps == 300
    assert len(list(kept.iterdir())) == 3  # the newest three


def test_automatic_step_sizes_resume_where_they_were(tmp_path):
    whole = solve(tmp_path / "whole", 400, decibo.ahead_exact())

    def stop(step, steps, latest):
        if step >= 220:
            raise KeyboardInterrupt

    first = solve(tmp_path / "kept", 400, decibo.ahead_exact(), progress=stop)
    assert first.status == "interrupted"
    assert same(solve(tmp_path / "kept", 400, decibo.ahead_exact(), resume=True), whole)


@pytest.mark.parametrize("step", [200, 215, 220])
def test_a_signal_at_any_step_changes_nothing_in_the_resumed_run(tmp_path, step):
    """Also where the controller was about to change something, which must happen before the state is kept."""
    whole = solve(tmp_path / "whole", 400, decibo.ahead_exact())

    def stop(now, steps, latest):
        if now == step:
            os.kill(os.getpid(), signal.SIGTERM)

    first = solve(tmp_path / "kept", 400, decibo.ahead_exact(), progress=stop)
    assert first.status == "interrupted"
    assert step < first.steps < 400  # the chunk after the signal
    assert same(solve(tmp_path / "kept", 400, decibo.ahead_exact(), resume=True), whole)


def test_random_numbers_resume_where_they_were(tmp_path):
    network = decibo.networks.failing(decibo.ring(6), 0.3)
    solve(tmp_path / "kept", 100, network=network, seed=4)
    resumed = solve(tmp_path / "kept", 200, network=network, seed=4, resume=True)
    assert same(resumed, solve(tmp_path / "whole", 200, network=network, seed=4))


def test_nothing_is_overwritten_and_nothing_is_invented(tmp_path, kept):
    with pytest.raises(decibo.InputError, match=r"already holds a checkpoint, of step 120.*resume=True"):
        solve(kept)
    with pytest.raises(decibo.InputError, match=r"no checkpoint in .* to resume from"):
        solve(tmp_path / "empty", resume=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"every": 0}, "every must be a positive integer"), ({"keep": 1.5}, "keep must be"), ({"folder": ""}, "a path")],
)
def test_invalid_checkpoints_are_rejected(options, words):
    with pytest.raises(decibo.InputError, match=words):
        decibo.Checkpoints(**({"folder": "somewhere"} | options))
    with pytest.raises(decibo.InputError, match=r"must be decibo\.Checkpoints\(folder\)"):
        decibo.solve(PROBLEM, decibo.ring(6), METHOD, checkpoint="somewhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"method": decibo.methods.sparkle_ed(alpha=0.04, beta=0.1, gamma=0.1)},
            r"method: .*alpha=0.05.* there, .*alpha=0.04",
        ),
        ({"network": decibo.networks.star(6)}, r"network: .*ring.* there, .*star.* here"),
        ({"problem": decibo.problems.quadratic(6, seed=3)}, r"data: \w+ there, \w+ here"),
        ({"problem": decibo.problems.quadratic(6, n=2, seed=2)}, r"problem: .*\[3\].* there, .*\[2\].* here"),
        ({"seed": 1}, r"seed: 0 there, 1 here"),
        ({"measures": ["outer"]}, r"measures: .* there, outer here"),
    ],
)
def test_checkpoints_of_other_runs_are_rejected_with_what_differs(kept, change, words):
    with pytest.raises(decibo.InputError, match=words):
        solve(kept, resume=True, **change)


def break_manifest(folder):
    (folder / "manifest.json").write_text("{")


def other_kind(folder):
    (folder / "manifest.json").write_text(json.dumps({"kind": "something else"}))


def other_format(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))


def flip(folder):
    path = next(folder.glob("agents-*"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def lose(folder):
    (folder / "shared.npz").unlink()


def outside(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../../secret"] = "0"
    (folder / "manifest.json").write_text(json.dumps(manifest))


DAMAGE = {
    "manifest": (break_manifest, "manifest cannot be read"),
    "kind": (other_kind, "not a checkpoint of decibo"),
    "format": (other_format, "format 99"),
    "bit": (flip, "checksum"),
    "file": (lose, "shared.npz is missing"),
    "path": (outside, "secret is missing"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_checkpoints_are_rejected_and_the_one_before_is_used(kept, name):
    damage, words = DAMAGE[name]
    whole = solve(kept.parent / "whole", 200)
    damage(kept / "step-00000120")
    with pytest.raises(CorruptedFileError, match=words):
        checkpoint.read(kept / "step-00000120")
    with pytest.warns(UserWarning, match="Continuing from step 100 instead"):
        resumed = solve(kept, 200, resume=True)
    assert (resumed.x == whole.x).all()
    for folder in kept.iterdir():
        if folder.name != "step-00000120":
            damage(folder)
    with pytest.raises(CorruptedFileError, match=words):
        solve(kept, 300, resume=True)


def test_pickles_are_never_opened(kept):
    newest = kept / "step-00000120"
    np.savez(newest / "shared.npz", step=np.array([{"a": 1}], dtype=object))
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest["files"]["shared.npz"] = sha256(newest / "shared.npz")
    (newest / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="allow_pickle"):
        checkpoint.read(newest).shared()


def test_a_folder_that_cannot_be_written_is_rejected_before_any_work(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(decibo.InputError, match="Cannot write to"):
        solve(blocked / "kept")


def test_fifty_kills_in_the_middle_of_writing_leave_a_usable_checkpoint(tmp_path):
    script = Path(__file__).parents[1] / "parallel" / "_killed.py"
    env = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "50"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=env,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["kills"] == 50
    assert said["in the middle"] >= 10  # a draft was there: the kill hit the writing itself
    assert said["unusable"] == 0
    shutil.rmtree(tmp_path)
