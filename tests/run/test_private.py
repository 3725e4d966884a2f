"""Marks: other data is rejected, the same data is not, and what is kept says nothing to others."""

import errno
import json
import os
import shutil
import stat
from dataclasses import replace

import jax
import numpy as np
import pytest

import decibo
from decibo.errors import StorageError
from decibo.run.fingerprint import Marks

AGES = {"age": np.array([[37.0], [81.0], [5.0]])}


def marks(folder, agents=(0, 1, 2), data=AGES):
    return Marks(folder, np.array(agents), data)


def test_the_same_data_is_recognised_by_any_process_and_other_data_rejected(tmp_path):
    marks(tmp_path).write()
    marks(tmp_path).check()
    marks(tmp_path, [1], {"age": np.array([[81.0]])}).check()  # another process has agent 1 now
    with pytest.raises(decibo.InputError, match="other data of agent 1"):
        marks(tmp_path, [1], {"age": np.array([[82.0]])}).check()


def test_only_the_owner_can_read_the_key_and_every_run_has_its_own(tmp_path):
    marks(tmp_path).write()
    path = tmp_path / "data-0-2.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = json.loads(path.read_text())
    marks(tmp_path).write()
    second = json.loads(path.read_text())
    assert first["key"] != second["key"]
    # nothing to compare with
    assert not set(first["marks"].values()) & set(second["marks"].values())


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StorageError, match=r"data-0-2\.json could not be written: No space left on device"
    ):
        marks(tmp_path).write()
    assert list(tmp_path.iterdir()) == []


def test_marks_that_cannot_be_read_are_said_to_be_missing(tmp_path):
    marks(tmp_path).write()
    (tmp_path / "data-0-2.json").write_text("{")
    with pytest.warns(UserWarning, match="agent 0 still has the data .* cannot be checked"):
        marks(tmp_path).check()


def test_damaged_marks_are_missing_and_no_reason_to_reject_the_data(tmp_path):
    marks(tmp_path).write()
    path = tmp_path / "data-0-2.json"
    content = path.read_text()
    mark = json.loads(content)["marks"]["0"]
    path.write_text(content.replace(mark, mark[:-1] + chr(ord(mark[-1]) ^ 1)))
    with pytest.warns(UserWarning, match="agent 0 still has the data .* cannot be checked"):
        marks(tmp_path).check()


def solve(folder, shift=0.0, resume=False):
    problem = decibo.problems.quadratic(4, seed=1)
    moved = replace(problem, data=jax.tree.map(lambda leaf: leaf + shift, problem.data))
    method = decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1)
    checkpoint = decibo.Checkpoints(folder, every=10, resume=resume)
    return decibo.solve(
        moved, decibo.ring(4), method, steps=20, progress=False, checkpoint=checkpoint
    )


def test_other_data_is_rejected_even_if_no_step_was_done(tmp_path):
    solve(tmp_path)
    for step in (10, 20):
        shutil.rmtree(tmp_path / f"step-{step:08d}")
    with pytest.raises(decibo.InputError, match="other data of agent 0"):
        solve(tmp_path, shift=1.0, resume=True)


def test_a_new_run_does_not_keep_the_marks_of_one_without_a_checkpoint(tmp_path):
    (tmp_path / "data-0-9.json").write_text("{}")  # of a run with other agents in each process
    (tmp_path / ".data-half").write_text("")
    solve(tmp_path)
    assert not (tmp_path / "data-0-9.json").exists()
    assert not (tmp_path / ".data-half").exists()
    assert solve(tmp_path, resume=True).steps == 20
