"""What went wrong, in one message: what the user can mend, or what deserves a report."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

from decibo.cli import exits
from decibo.errors import CorruptedFileError, InputError, first_line
from decibo.execute.solution import DivergedError

WRONG_FILES = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


def tell(error: BaseException, debug: bool, as_json: bool) -> int:
    """Print one message; the answer is the exit status."""
    code, text = _judged(error)
    if code != exits.BROKEN and _follower():
        return code
    if code == exits.BROKEN:
        text += _report(error, debug)
    if debug and not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(error)
    if as_json:
        print(json.dumps({"error": text, "exit": code}, indent=2))
    print("decibo: " + text, file=sys.stderr)
    return code


def _follower() -> bool:
    """Whether process 0 says the same anyway."""
    import jax

    return jax.distributed.is_initialized() and jax.process_index() != 0


def _judged(error: BaseException) -> tuple[int, str]:
    if isinstance(error, InputError | ImportError | CorruptedFileError):
        return exits.WRONG, _flat(str(error))
    if isinstance(error, DivergedError):
        return exits.DIVERGED, _flat(str(error))
    if isinstance(error, KeyboardInterrupt):
        return exits.INTERRUPTED, "interrupted; nothing that was unfinished has been written"
    if isinstance(error, OSError) and (error.filename or isinstance(error, WRONG_FILES)):
        return exits.WRONG, _flat(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    if hasattr(error, "format_message"):  # typer's: the command line could not be read
        return exits.WRONG, _flat(error.format_message())  # type: ignore[attr-defined]
    first = first_line(error)
    return exits.BROKEN, f"unexpected {type(error).__name__}: {first[:200]}"


def _report(error: BaseException, debug: bool) -> str:
    """The version line and where the traceback is: everything that a report of the problem needs."""
    from decibo.cli.doctor import version_line

    lines = [version_line()]
    if not debug:
        descriptor, path = tempfile.mkstemp(prefix="decibo-", suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(version_line() + "\n" + "".join(traceback.format_exception(error)))
        lines.append(f"The traceback is in {path}; --debug shows it here. Please report it with the line above.")
    return "".join("\n        " + line for line in lines)


def _flat(text: str) -> str:
    return " ".join(text.split())
