"""`make quick` touches every package, and every entry of its list still exists."""

from pathlib import Path

import pytest

import decibo
from conftest import QUICK

HERE = Path(__file__).parent
PACKAGES = sorted(path.parent.name for path in Path(decibo.__file__).parent.glob("*/__init__.py"))
# tested beside what they collect
ELSEWHERE = {"problems": "problem", "methods": "algorithm", "networks": "network"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_quick_test(package):
    assert any(entry.startswith(f"{ELSEWHERE.get(package, package)}/") for entry in QUICK)


@pytest.mark.parametrize("entry", QUICK)
def test_every_entry_names_a_test(entry):
    file, _, test = entry.partition("::")
    assert (HERE / file).exists()
    assert not test or f"def {test}" in (HERE / file).read_text()
