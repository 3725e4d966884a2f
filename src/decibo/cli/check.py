"""decibo check: what the theory says about a configuration, before anything runs.

The exit code does not depend on the answer: the conditions are sufficient, and many runs converge
outside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.config import build, precision, read
from decibo.cli.errors import Exit
from decibo.cli.solving import is_first
from decibo.cli.trust import trust_for
from decibo.errors import InputError, first_line
from decibo.validate import positive


def check(
    path: Path, sets: Iterable[str], radius: float, trusted: Iterable[str], as_json: bool
) -> Exit:
    """Print the table of decibo.theory.check, and what to do next.

    The constants of problems that are not quadratic are estimated within `radius` of the starting
    point.
    """
    positive("--radius", radius)
    config = read(path, sets, trust=trust_for(path, trusted, as_json))
    with precision(config):
        parts, _ = build(config)
        try:
            result = decibo.theory.check(*parts, radius=radius)
            text = result.to_json() if as_json else f"{result}\n"
        except ArithmeticError as error:
            raise InputError(
                f"{path}: the bounds of the theory are too large for floating-point numbers here "
                f"({first_line(error).rstrip('.')}).",
                "Are the options of the problem, or the settings of the method, extremely large or"
                " small?",
            ) from error
    if is_first():
        print(text)
    if is_first() and not as_json:
        terminal.say(f"Next: decibo run {terminal.path_of(path)}{terminal.as_typed(sets, trusted)}")
    return Exit.RAN
