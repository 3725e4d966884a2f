"""decibo check: what the theory guarantees for a file, before anything runs.

The exit code does not depend on the answer: the conditions are sufficient, and many runs converge
outside them.
"""

from __future__ import annotations

from typing import Annotated

import typer

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.options import File, Json, Method
from decibo.cli.run import typed
from decibo.cli.script import fitted, opened
from decibo.cli.solving import is_first
from decibo.errors import InputError, first_line
from decibo.validate import positive


def check(
    path: File,
    method: Method = None,
    radius: Annotated[
        float, typer.Option(help="Around the start, for constants that are estimated.")
    ] = 1.0,
    as_json: Json = False,
) -> int:
    """Show what the theory guarantees, without running.

    \b
    Example:
      decibo check mine.py -m 'ahead_exact[alpha=0.01, gamma=0.1]'
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
