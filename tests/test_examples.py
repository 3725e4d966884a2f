"""Every example runs on its own, finishes, and says what to look at."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
EXAMPLES = [path for path in EXAMPLES if path.stem != "silos"]  # sklearn/test_silos_example.py runs it


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example):
    command = [sys.executable, str(example), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Look at:" in done.stdout
    assert "nan" not in done.stdout.split()
    assert "diverged" not in done.stdout
