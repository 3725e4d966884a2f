"""The arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import decibo
from decibo import contrib


def methods(incomplete: str) -> list[str]:
    """For the completion of a shell."""
    return [name for name in decibo.CATALOG | contrib.CATALOG if name.startswith(incomplete)]


SPEC = typer.Option(
    "--method", "-m", metavar="METHOD", help="name[setting=value, ...]", autocompletion=methods
)

File = Annotated[
    Path, typer.Argument(metavar="FILE.py", help="What to run; see docs/command-line.md.")
]
Method = Annotated[str | None, SPEC]
Methods = Annotated[list[str] | None, SPEC]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", help="The number of steps.")]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", metavar="N", help="Repeat with this many seeds, or with a list: 0,3,7."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Where to write; default out/NAME."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep runs that are complete already, and go on.")
]
Trusted = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="MODULE", help="Run code of this module, if the job names it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
