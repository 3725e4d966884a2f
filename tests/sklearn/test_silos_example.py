"""The example on its first seed: it says what to look at, and what it claims holds."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "silos.py"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(PATH), "--quick"])
    spec = importlib.util.spec_from_file_location("silos_example", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
def test_together_is_as_good_as_centralised_and_better_than_alone(example, monkeypatch, capsys):
    found, one_seed = [], example.one_seed
    monkeypatch.setattr(example, "one_seed", lambda seed: found.append(one_seed(seed)) or found[-1])
    example.main()
    assert "Look at:" in capsys.readouterr().out
    ((central, together, alone, sizes, _),) = found
    assert len(sizes) == 8
    assert sizes.max() > 3 * sizes.min()
    assert together[0] >= central[0] - 0.01
    assert together[0] > max(score for score, _ in alone)
