"""decibo check: what the theory says about a configuration, before anything runs.

The exit code does not depend on the answer: the conditions are sufficient, and many runs converge outside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.config import build, precision, read
from decibo.cli.errors import Exit
from decibo.cli.run import is_first
from decibo.cli.trust import trust_for
from decibo.validate import positive


def check(path: Path, sets: Iterable[str], radius: float, trusted: Iterable[str], as_json: bool) -> Exit:
    """Print the table of decibo.theory.check, and what to do next.

    The constants of problems that are not quadratic are estimated within `radius` of the starting point.
    """
    positive("--radius", radius)
    config = read(path, sets, trust=trust_for(path, trusted, as_json))
    with precision(config):
        parts, _ = build(config)
        result = decibo.theory.check(*parts, radius=radius)
    if is_first() and as_json:
        print(result.to_json())
    elif is_first():
        print(result)
        print()
        terminal.say(f"Next: decibo run {terminal.path_of(path)}{_as_typed(sets)}")
    return Exit.RAN


def _as_typed(sets: Iterable[str]) -> str:
    """The options --set as they were typed, quoted where a shell would read brackets."""
    return "".join(f" --set '{text}'" if set(text) & set('[]{}" ') else f" --set {text}" for text in sets)
