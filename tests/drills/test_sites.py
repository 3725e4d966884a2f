"""Sites and launched processes that are struck, in `make test-all`: a few strikes of each kind, and
five minutes of the soak. docs/explanation/failures.md has the counts of longer drills."""

import shutil
import subprocess

import pytest

from drills import sites

pytestmark = pytest.mark.slow


def unharmed(count, strikes):
    """There were so many strikes, and every round ended with the bits of the calm one."""
    assert count["kills"] + count["freezes"] >= strikes, count
    assert count["wrong"] == count["hung"] == 0, count


def test_a_launched_run_that_is_struck_has_the_bits_of_a_calm_one():
    unharmed(sites.launch(3, steps=2_000), 3)


@pytest.mark.parametrize("kind", ["estimators", "relay", "clock"])
def test_sites_whose_processes_relay_or_clocks_are_struck(kind):
    if kind == "clock" and shutil.which("cc") is None:
        pytest.skip("no compiler for a clock that can be set")
    steps = 400 if kind == "estimators" else 1_500
    count = sites.struck(kind, 2, steps, (4.0, 9.0), seed=3)
    unharmed(count, 2)
    assert count["fell"] == 0, count


def test_a_folder_that_becomes_read_only_ends_a_site_with_a_sentence_and_costs_no_bit():
    mount = ["unshare", "--mount", "true"]
    if shutil.which("unshare") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount")
    unharmed(sites.struck("readonly", 1, 1_500, (4.0, 9.0), seed=3), 1)


@pytest.mark.parametrize(("door", "kind"), [("site", "40 addresses"), ("relay", "one address")])
def test_strangers_who_flood_a_site_or_a_relay_do_not_hold_up_a_start(door, kind):
    found = sites.floods(door, [kind])
    assert max(found.values()) < 1.5 * found["nobody"] + 10


def test_two_hundred_sites_on_one_machine():
    assert sites.many(steps=20) < 1e-12


def test_five_minutes_of_kills():
    unharmed(sites.soak(300, every=20, steps=4_000), 3)
