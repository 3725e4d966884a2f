"""Marks: other data is rejected, the same data is not, and what is kept says nothing to others."""

import json
import stat

import numpy as np
import pytest

import decibo
from decibo.execute.private import Marks

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
    assert not set(first["marks"].values()) & set(second["marks"].values())  # nothing to compare with


def test_marks_that_cannot_be_read_are_said_to_be_missing(tmp_path):
    marks(tmp_path).write()
    (tmp_path / "data-0-2.json").write_text("{")
    with pytest.warns(UserWarning, match="agent 0 still has the data .* cannot be checked"):
        marks(tmp_path).check()
