"""decibo check: what Theorem 1 says of a configuration, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import decibo
from decibo.cli import config as configuration
from decibo.cli import processes
from decibo.cli.build import build, precision


def check(path: Path, sets: Iterable[str], as_json: bool) -> int:
    """Print decibo.theory.check's table."""
    processes.begin()
    config = configuration.read(path, sets)
    with precision(config):
        parts, _ = build(config)
        found = decibo.theory.check(*parts)
    if processes.first():
        print(found.to_json() if as_json else found)
    return 0
