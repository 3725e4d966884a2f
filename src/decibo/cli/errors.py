"""How a command ends: the exit codes, and the message for whatever went wrong.

An `InputError` is one line. An exception in the user's own module keeps its traceback, below a line
that names the function. Anything else is a bug of decibo, and its traceback goes to a file that a
report can attach.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from enum import IntEnum
from types import TracebackType

from decibo.errors import (
    OWN_FILES,
    CorruptedFileError,
    InputError,
    StorageError,
    UnreachableError,
    first_line,
    short,
)
from decibo.files import DISK
from decibo.parallel.failure_detection import INTERRUPTED, LOST, announce, is_lost


class Exit(IntEnum):
    """The exit code of every command."""

    RAN = 0
    DIVERGED = 1
    WRONG = 2
    OWN = 3
    BROKEN = 70
    LOST = LOST
    STORAGE = 74
    INTERRUPTED = INTERRUPTED


MEANING = {
    Exit.RAN: "success",
    Exit.DIVERGED: "the run diverged or failed",
    Exit.WRONG: "invalid input; nothing was run",
    Exit.OWN: "your own function raised an exception",
    Exit.BROKEN: "internal error",
    Exit.LOST: "another process of the run failed or was lost",
    Exit.STORAGE: "a file could not be written: disk full, quota, I/O error",
    Exit.INTERRUPTED: "interrupted; partial results were saved",
}

LONGEST = 2000  # characters of a message
WRONG_FILES = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)


def report_error(error: BaseException, debug: bool, as_json: bool) -> Exit:
    """Print one message about this exception and return the exit code."""
    code, text = _classify(error)
    if announce(error, text) is not None:
        return code  # another process has reported it
    if code is Exit.BROKEN:
        text += _internal(error, debug)
    if as_json:
        print(json.dumps({"error": text, "exit": int(code)}, indent=2))
    print("decibo: " + text, file=sys.stderr)
    if code is Exit.OWN:
        own = _own_bug(error) or error
        traceback.print_exception(own.with_traceback(_own_traceback(own)))
    elif debug and code is not Exit.INTERRUPTED:
        traceback.print_exception(error)
    return code


def _classify(error: BaseException) -> tuple[Exit, str]:
    """The exit code and the message of an exception."""
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED, "interrupted; unfinished results were not written"
    if own := _own_bug(error):
        place = f"{_own_place(own)} raised {type(own).__name__}: {first_line(own)}"
        return Exit.OWN, one_line(place if own is error else str(error))
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        place = error.filename or ("a file" if error.errno in DISK else "")
        text = f"{place}: {error.strerror or error}".lstrip(": ")
    kinds = {
        Exit.WRONG: isinstance(
            error, InputError | CorruptedFileError | UnreachableError | ImportError
        ),
        Exit.STORAGE: isinstance(error, StorageError)
        or (isinstance(error, OSError) and error.errno in DISK),
        Exit.DIVERGED: type(error).__name__ == "DivergedError",  # its module imports JAX
        Exit.LOST: is_lost(error),
    }
    for code, applies in kinds.items():
        if applies:
            return code, one_line(text)
    if isinstance(error, OSError) and (error.filename or isinstance(error, WRONG_FILES)):
        return Exit.WRONG, one_line(text)
    if hasattr(error, "format_message"):  # typer could not parse the command line
        return Exit.WRONG, one_line(error.format_message())  # type: ignore[attr-defined]
    return Exit.BROKEN, one_line(f"unexpected {type(error).__name__}: {first_line(error)[:200]}")


def _own_bug(error: BaseException | None) -> BaseException | None:
    """The exception that a function of the user raised, be it the cause of an InputError; None if
    there is none."""
    # decibo's own judgement, even if the user's function led to it
    while isinstance(error, InputError):
        error = error.__cause__
    return error if error is not None and _own_place(error) else None


def _own_place(error: BaseException) -> str:
    """The function of the user in which an exception was raised; empty if it was none of theirs."""
    if isinstance(error, SyntaxError) and error.filename in OWN_FILES:
        return os.path.relpath(error.filename)
    own = _own_traceback(error)
    if own is None:
        return ""
    code = own.tb_frame.f_code
    return f"{code.co_name} in {os.path.relpath(code.co_filename)}".removeprefix("<module> in ")


def _own_traceback(error: BaseException) -> TracebackType | None:
    """The part of the traceback that starts in a module of the user, or None if the error never
    passed through one."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename not in OWN_FILES:
        step = step.tb_next
    return step


def _internal(error: BaseException, debug: bool) -> str:
    """The version line and the place of the traceback: all that a bug report needs."""
    from decibo.cli.doctor import version_line

    lines = [version_line()]
    if not debug:
        descriptor, path = tempfile.mkstemp(prefix="decibo-", suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(version_line() + "\n" + "".join(traceback.format_exception(error)))
        lines.append(
            f"The traceback is in {path}; --debug shows it here. Please report it with the line"
            " above."
        )
    return "".join("\n        " + line for line in lines)


def one_line(text: str) -> str:
    """On one line, of at most so many characters, none of which could control a terminal."""
    line = " ".join(text.split())
    return "".join(mark if mark.isprintable() else "?" for mark in short(line, LONGEST))


def without_numbers(text: str) -> str:
    """By which two messages are of the same kind."""
    return re.sub(r"[-+]?\d[\d.,e+-]*", "#", text)
