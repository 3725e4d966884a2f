"""What is read off histories: labels, measures, targets."""

import numpy as np
import pytest

from decibo.errors import InputError
from decibo.report import read_run
from decibo.report.group import grouped
from decibo.report.summary import load, main_measure, steps_to_targets
from helpers.runs import curve, written

pytestmark = pytest.mark.quick


def test_targets_are_the_first_records_at_or_below(tmp_path):
    history = curve([8.0, 0.09, 0.5, 0.08, 7e-4, 1e-9])
    run = read_run(written(tmp_path / "run", history))
    assert steps_to_targets(run, "stationarity") == [30, 40, 50, 50]
    assert steps_to_targets(run, "stationarity", [1e-12]) == [None]
    assert steps_to_targets(run, "another") == [None] * 4
    zero = read_run(written(tmp_path / "zero", curve([0.0, 1.0])))
    assert steps_to_targets(zero, "stationarity") == [None] * 4


def test_labels_are_distinct_and_never_empty(tmp_path):
    for k, label in enumerate(["a", "a", "a (2)", " "]):
        written(tmp_path / f"r{k}", curve([1.0, 0.5]), label=label)
    labels = [group.label for group in grouped(load(tmp_path))]
    assert len(set(labels)) == 4
    assert labels[0] == "a"
    assert labels[3] == "r3"


def test_a_folder_of_runs_stands_for_them(tmp_path):
    for name in ("b", "a"):
        written(tmp_path / name, curve([1.0, 0.5]), label=name)
    (tmp_path / "figures").mkdir()
    assert [run.label for run in load(tmp_path)] == ["b", "a"]  # as they ran
    assert [run.label for run in load([tmp_path / "b", tmp_path])] == ["b", "b", "a"]
    with pytest.raises(InputError, match="at least one run"):
        load([])
    with pytest.raises(InputError, match=r"not a run folder: run\.json is missing"):
        load(tmp_path / "figures")


def test_runs_with_different_measures_are_judged_by_what_they_share(tmp_path):
    written(
        tmp_path / "a", {"step": np.array([0, 1]), "stationarity": np.ones(2), "outer": np.ones(2)}
    )
    written(tmp_path / "b", {"step": np.array([0, 1]), "outer": np.ones(2)})
    assert main_measure(load(tmp_path)) == "outer"
    assert main_measure(load(tmp_path / "a")) == "stationarity"
