"""Eight devices in one process: the same numbers as on one, by neighbour exchange alone."""

import json
from pathlib import Path

import pytest

from helpers.processes import printed

slow = pytest.mark.slow


@pytest.fixture(
    scope="module",
    params=[pytest.param(("--daily", 3), id="daily"), pytest.param(("", 11), id="all", marks=slow)],
)
def eight(request) -> dict:
    option, cases = request.param
    said = printed(Path(__file__).with_name("_devices.py"), option)
    found = json.loads(said.splitlines()[-1])
    assert len(found["differences"]) == cases
    return found


def test_every_method_gives_the_same_as_on_one_device(eight):
    differences = dict(eight["differences"])
    # it sees curvature as a difference of gradients, which keeps half of the digits
    assert differences.pop("automatic step sizes", 0.0) <= 1e-8
    assert not {name: value for name, value in differences.items() if not value <= 1e-12}


def test_a_step_sends_to_neighbours_and_to_nobody_else(eight):
    for counts in eight["compiled"].values():
        assert counts["collective-permute"] > 0
        assert counts["all-gather"] == counts["all-reduce"] == counts["all-to-all"] == 0


def test_measures_that_want_all_data_are_rejected(eight):
    assert "data stays with its agents" in eight["refused"]
    assert "snapshot.average" in eight["refused"]
