"""Which variants of a test run every day."""

from collections.abc import Iterable

import pytest


def daily(names: Iterable, *chosen: object) -> list:
    """The names as parameters of a test; all but the chosen ones run in `make test-all` only."""
    names = list(names)
    assert set(chosen) <= set(names)
    return [
        name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]
