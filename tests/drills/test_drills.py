"""The drills of `make test-all`: the same cases in every run, bounded in time."""

import pytest

from drills import arguments

pytestmark = pytest.mark.slow


def judged(outcomes):
    """How many cases there were; none may be bad."""
    found = list(outcomes)
    bad = [f"{each.case}: {each.bad}" for each in found if each.bad]
    assert not bad, "\n".join(bad)
    return len(found)


def test_values_that_make_no_sense_are_rejected_in_a_sentence(tmp_path):
    assert judged(arguments.cases(tmp_path)) > 5000


def test_problems_without_an_answer_do_not_end_well():
    assert judged(arguments.hopeless()) > 10
