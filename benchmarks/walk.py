"""The walk of a call through the source: which files and packages it visits, traced with a profiler
hook.

    python benchmarks/walk.py solve       decibo.solve of the hello world with given step sizes
    python benchmarks/walk.py run         `decibo run first.toml`
    python benchmarks/walk.py report      `decibo report` of that run

Counts files, functions, distinct file -> file calls, and changes of package in the order of first
visits.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import decibo

ROOT = Path(decibo.__file__).parent
FIRST = """
[problem]
name = "quadratic"
[network]
name = "ring"
agents = 10
[method]
name = "ahead_exact"
alpha = 0.05
gamma = 0.1
lam = 10.0
[run]
steps = 200
"""


def traced(call: Callable[[], Any]) -> tuple[list[tuple[str, str]], set[tuple[str, str]]]:
    """Functions in the order of their first call, and calls from one file to another."""
    visits: dict[tuple[str, str], None] = {}
    calls: set[tuple[str, str]] = set()

    def where(frame: FrameType | None) -> str | None:
        if frame is None or not frame.f_code.co_filename.startswith(str(ROOT)):
            return None
        return str(Path(frame.f_code.co_filename).relative_to(ROOT))

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        file = where(frame) if event == "call" else None
        if file is None or frame.f_code.co_name in (
            "<module>",
            "<genexpr>",
            "<listcomp>",
            "<dictcomp>",
            "<lambda>",
        ):
            return
        # the body of a class: somebody imported its module
        if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return
        visits.setdefault((file, frame.f_code.co_qualname))
        above = frame.f_back
        while above is not None and where(above) is None:
            above = above.f_back
        caller = where(above)
        if caller is not None and caller != file:
            calls.add((caller, file))

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(visits), calls


def hello() -> Callable[[], Any]:
    """The hello world with given step sizes."""
    import jax.numpy as jnp

    outer = lambda x, y, d: jnp.sum((y - d) ** 2)
    inner = lambda x, y, d: jnp.sum((y - x) ** 2)
    problem = decibo.Problem(outer, inner, jnp.arange(10.0)[:, None], jnp.zeros(1), jnp.zeros(1))
    network = decibo.ring(10)
    method = decibo.ahead_exact(alpha=0.1, gamma=0.1, lam=10.0)
    return lambda: decibo.solve(problem, network, method, steps=200)


def command(*arguments: str) -> Callable[[], Any]:
    """A command line."""
    try:
        from decibo.cli.app import main  # type: ignore[import-not-found]
    except ImportError:
        from decibo.cli import main  # type: ignore[import-not-found, no-redef]

    def call() -> None:
        sys.argv = ["decibo", *arguments]
        with contextlib.suppress(SystemExit):
            main()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("call", choices=["solve", "run", "report"])
    parser.add_argument("--list", action="store_true", help="list the files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if arguments.call == "solve":
            visits, calls = traced(hello())
        else:
            Path("first.toml").write_text(FIRST)
            if arguments.call == "report":
                command("run", "first.toml", "--out", "out")()
                visits, calls = traced(command("report", "out"))
            else:
                visits, calls = traced(command("run", "first.toml", "--out", "out"))
        os.chdir("/")
    files = list(dict.fromkeys(file for file, _ in visits))
    room = lambda file: file.split("/")[0]
    order = [room(file) for file, _ in visits]
    changes = sum(before != after for before, after in itertools.pairwise(order))
    moves = [file for file, _ in visits]
    jumps = sum(before != after for before, after in itertools.pairwise(moves))
    print(
        f"{arguments.call}: {len(files)} files, {len(visits)} functions, {len(calls)} distinct file"
        f" -> file calls, {changes} changes of package, {jumps} changes of file"
    )
    if arguments.list:
        print("\n".join(files))


if __name__ == "__main__":
    main()
