"""The errors that decibo raises: complete sentences with the value, the rule and, where it helps,
the remedy."""

from __future__ import annotations

import sys
import warnings

# The user's own files that were run, by which the traceback of a bug in them is recognised.
OWN_FILES: set[str] = set()


class InputError(ValueError):
    """An argument breaks a rule; nothing has been computed yet.

    message   what is wrong, in complete sentences: the value and the rule
    remedy    what to do about it, where that is not obvious
    """

    def __init__(self, message: str, remedy: str = ""):
        super().__init__(f"{message} {remedy}".rstrip())
        self.message = message
        self.remedy = remedy


class CorruptedFileError(OSError):
    """A file that decibo wrote earlier is damaged or was changed."""


class StorageError(OSError):
    """A file could not be written: the disk is full, say, or broken. What was written before is
    intact."""


class UnreachableError(ConnectionError):
    """A process could not reach the others in time."""


class LostError(RuntimeError):
    """Another process of the run is gone; the last checkpoint holds what was computed."""


class StreamError(RuntimeError):
    """A batch of a stream could not be read, or does not look like the first one; the message names
    agent and step."""


class ConformanceError(AssertionError):
    """A method failed `check_method`; the message lists every check that failed."""


def missing(package: str, purpose: str, extra: str) -> ImportError:
    """The error for an optional package that is not installed, with the command that installs
    it."""
    return ImportError(
        f"{purpose} needs {package}, which is not installed. Install it with: pip install"
        f" 'decibo[{extra}]'"
    )


def warn(message: str) -> None:
    """Warn with the line of the caller's code that led here, however many functions of decibo lie
    between."""
    inside = ("decibo", "contextlib")
    frame = sys._getframe()
    level = 1
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside
    ):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def short(value: object, most: int = 60) -> str:
    """A value as text of at most `most` characters."""
    text = "nothing" if value is None else str(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def plain(value: object) -> str:
    """Words of somebody else without characters that could control a terminal."""
    return "".join(mark if mark.isprintable() else "?" for mark in str(value))


def short_repr(value: object) -> str:
    """A value as Python writes it, if it can and the text is short."""
    try:
        return short(repr(value))
    except (RecursionError, ValueError):  # nested too deeply, or an integer of too many digits
        return "too long to be shown"
