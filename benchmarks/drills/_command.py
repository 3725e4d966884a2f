"""One command line in this process, watched: how it ended, what it printed, executed and
touched."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.startfile",
    "subprocess.Popen",
    "pty.spawn",
)
# seconds for a command; the slowest ones compile several programs, on a machine that may be busy
LIMIT = 180.0
CONTROL = {chr(k) for k in range(32)} - {"\n", "\t"} | {"\x7f", "\x9b"}
TRAP = """
import os
open(os.environ["DECIBO_TRAP"], "a").write("imported\\n")
import decibo
def make(*_, **__) -> decibo.Problem:
    open(os.environ["DECIBO_TRAP"], "a").write("called\\n")
    return decibo.problems.quadratic(4)
"""
_started: list[str] = []


class Late(BaseException):
    """The command took longer than LIMIT."""


@dataclass(frozen=True)
class Done:
    """How a command ended; `executed` is what it ran without consent."""

    code: int
    out: str
    err: str
    seconds: float
    hung: bool
    executed: str

    @property
    def broken(self) -> bool:
        """Whether the user saw anything but a sentence."""
        text = self.out + self.err
        return self.code not in (0, 1, 2, 3, 130) or "Traceback" in text or "Please report" in text

    @property
    def clear(self) -> bool:
        """Whether a refusal is one line of a reasonable length that cannot control a terminal."""
        lines = [line for line in self.err.splitlines() if not line.startswith("decibo: note: ")]
        short = len(lines) == 1 and lines[0].startswith("decibo: ") and 20 < len(lines[0]) < 2100
        return (self.code != 2 or short) and not CONTROL & set(self.err)


def prepare(folder: Path) -> None:
    """Set a trap: its import leaves a trace. Answers of the user's own are out of reach."""
    os.environ["DECIBO_TRAP"] = str(folder / "trapped")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    tempfile.tempdir = str(folder)  # where tracebacks go
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple) -> None:
    if event in PROGRAMS:
        _started.append(f"{event} {str(arguments)[:200]}")


def call(words: Sequence[object], folder: Path) -> Done:
    """Carry out a command line in this folder."""
    from decibo.cli import app

    trap = Path(os.environ["DECIBO_TRAP"])
    trap.unlink(missing_ok=True)
    _started.clear()
    out = io.StringIO()
    err = io.StringIO()
    hung = False
    code = 0
    before = Path.cwd()
    begun = time.perf_counter()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _limit():
            code = app.call([str(word) for word in words])
    except Late:
        hung = True
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 70
    except Exception as error:  # nothing may get through
        code = 70
        err.write(f"Traceback: {error!r}")
    finally:
        os.chdir(before)
    executed = list(_started)
    if trap.exists():
        executed.append(f"the trap was {trap.read_text().split()}")
    if {"", ".", str(folder)} & set(sys.path):
        executed.append("the folder is on the path of modules")
    return Done(
        code, out.getvalue(), err.getvalue(), time.perf_counter() - begun, hung, "; ".join(executed)
    )


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    def late(*_: object) -> None:
        raise Late

    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def contents(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder; links and pipes by what they are."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path).encode()
        elif path.is_file():
            size = path.stat().st_size
            found[name] = path.read_bytes() if size < 1 << 24 else b"%d bytes" % size
        else:
            found[name] = b"folder" if path.is_dir() else b"special"
    return found
