"""decibo check: what the theory says about a file, before anything runs.

The exit code does not depend on the answer: the conditions are sufficient, and many runs converge
outside them.
"""

from __future__ import annotations

from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.run import typed
from decibo.cli.script import fitted, opened
from decibo.cli.solving import is_first
from decibo.errors import InputError, first_line
from decibo.validate import positive


def check(path: Path, method: str | None, radius: float, as_json: bool) -> Exit:
    """Print the table of decibo.theory.check, and what to do next.

    The constants of problems that are not quadratic are estimated within `radius` of the starting
    point.
    """
    positive("--radius", radius)
    with opened(path) as script:
        choice = script.choose(method)
        try:
            parts = fitted(*script.build(script.seeds[0]), choice.method)
            result = decibo.theory.check(*parts, radius=radius)
            text = result.to_json() if as_json else f"{result}\n"
        except ArithmeticError as error:
            raise InputError(
                f"{path}: the bounds of the theory are too large for floating-point numbers here "
                f"({first_line(error).rstrip('.')}).",
                "Are numbers of the problem, or settings of the method, extremely large or small?",
            ) from error
        if is_first():
            print(text)
        if is_first() and not as_json:
            terminal.say(f"Next: decibo run {typed(script, choice.spec)}")
    return Exit.RAN
