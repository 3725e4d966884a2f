"""Files that are there as a whole or not at all, and that are checked when read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from decibo.errors import InputError

AGAIN = "Run it again, or leave this folder out."


def write_all(folder: Path, contents: Mapping[str, bytes], outdated: Iterable[str] = ()) -> None:
    """Write these files, each to a temporary name first.

    Once all are on disk, outdated ones are removed and the new ones get their names in the given order.
    """
    places = {name: folder / f".{name}.{os.getpid()}.tmp" for name in contents}
    try:
        for name, content in contents.items():
            _flush(places[name], content)
        for name in outdated:
            (folder / name).unlink(missing_ok=True)
        for name, place in places.items():
            os.replace(place, folder / name)
    finally:
        for place in places.values():
            place.unlink(missing_ok=True)


def write_one(path: Path, content: bytes) -> Path:
    """Write one file, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all(path.parent, {path.name: content})
    return path


def read_checked(path: Path, digest: str | None = None) -> bytes:
    """What a file holds; if it is missing, unreadable or not what was written, an error that names it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from error
    if digest is not None and sha256(content) != digest:
        raise damaged(path, "it is not what was written with run.json: its checksum differs")
    return content


def damaged(path: Path, reason: str) -> InputError:
    """The error for a file of a run folder."""
    return InputError(f"{path}", reason, AGAIN)


def sha256(content: bytes) -> str:
    """The checksum kept in run.json."""
    return hashlib.sha256(content).hexdigest()


def text(content: str) -> bytes:
    """UTF-8; what UTF-8 cannot write (half of a surrogate pair) becomes a question mark."""
    return content.encode("utf-8", "replace")


def _flush(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
