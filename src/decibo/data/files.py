"""Where data files lie: $DECIBO_DATA first, then a cache that downloads go to, checked by their sha256.

The cache is $XDG_CACHE_HOME/decibo, or ~/.cache/decibo.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from pathlib import Path

from decibo.errors import InputError


def cache_folder() -> Path:
    """Where downloads are kept."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "decibo"


def folders() -> list[Path]:
    """Where data is looked for, in order."""
    own = os.environ.get("DECIBO_DATA")
    return ([Path(own)] if own else []) + [cache_folder()]


def find(name: str) -> Path | None:
    """The path of a data file such as "mnist.npz" or "a9a", or None."""
    return next((folder / name for folder in folders() if (folder / name).is_file()), None)


def check(content: bytes, expected: str, name: str) -> None:
    """Raise unless the content has the sha256 that is expected."""
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise InputError(
            f"{name} is damaged: its sha256 is {found}",
            f"it must be {expected}",
            "Delete the file and fetch it again.",
        )


def write(path: Path, content: bytes) -> None:
    """Write all of a file or nothing: other processes never see half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def fetch(name: str, expected: str, mirrors: Sequence[str], folder: Path | None = None) -> Path:
    """Download NAME.gz from the first mirror that answers, check what is inside, and keep it unpacked."""
    failures = []
    for mirror in mirrors:
        address = f"{mirror}{name}.gz"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                content = gzip.decompress(answer.read())
        except (OSError, EOFError, zlib.error) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            failures.append(f"{address}: {reason}")
            continue
        check(content, expected, address)
        path = (folder or cache_folder()) / name
        write(path, content)
        return path
    raise InputError(
        f"could not download {name} ({'; '.join(failures) or 'no mirror is known'})",
        f"it was not found in {', '.join(str(place) for place in folders())} either",
        "Check the network, or put the file into a folder and set DECIBO_DATA to it.",
    )
