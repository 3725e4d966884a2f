"""The claim of the example on its first seed: as good as centralised to 1 %, and better than each hospital alone."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "silos.py"))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_together_is_as_good_as_centralised_and_better_than_alone():
    central, together, alone, sizes, _ = EXAMPLE["one_seed"](0)
    assert len(sizes) == 8
    assert sizes.max() > 3 * sizes.min()
    assert together[0] >= central[0] - 0.01
    assert together[0] > max(score for score, _ in alone)
