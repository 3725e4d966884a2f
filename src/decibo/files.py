"""Files and folders that are complete or not there at all, and checksums to tell whether they
changed; small records as JSON, and settings as TOML.

Everything is written under an unpredictable name in the same folder, flushed to the disk and
renamed, so that a crash leaves what was there before. A link at the target is replaced and never
followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from decibo.errors import CorruptedFileError, InputError, StorageError, first_line, short
from decibo.validate import only_known

PUBLIC, PRIVATE = 0o666, 0o600  # who may read a new file: whom the umask allows, or only its owner
# the disk is full, fails, or has become read-only
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)

DOTS = 10  # in a key of a TOML file
# comments and texts of a TOML file, which may have as many dots as they like
TEXTS = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL
)
PARTS = re.compile(r"[=,{}\[\]\n]")  # what stands between keys and values


def atomic_write(path: str | Path, content: str | bytes, mode: int = PUBLIC) -> Path:
    """Write one file, as a whole or not at all, into a folder that is created if need be."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_all(path.parent, {path.name: content}, mode=mode)
    return path


def atomic_write_all(
    folder: Path,
    contents: Mapping[str, str | bytes],
    outdated: Iterable[str] = (),
    mode: int = PUBLIC,
) -> None:
    """Write several files of a folder that belong together.

    Only when all of them are on disk are the outdated ones removed and the new ones renamed, in the
    given order.
    """
    drafts = {name: temporary(folder / name) for name in contents}
    try:
        for name, content in contents.items():
            with named(folder / name), synced(drafts[name], mode) as file:
                file.write(encode(content))
        for name in outdated:
            (folder / name).unlink(missing_ok=True)
        for name, draft in drafts.items():
            os.replace(draft, folder / name)
        sync_folder(folder)
    finally:
        # This may fail for the same reason, which it must not hide.
        with contextlib.suppress(OSError):
            for draft in drafts.values():
                draft.unlink(missing_ok=True)


@contextlib.contextmanager
def synced(path: Path, mode: int = PUBLIC) -> Iterator[BinaryIO]:
    """A new file to write to, which is on the disk when the block ends; fails if something of this
    name exists.

    An error while writing, such as that of a full disk, names the file.
    """
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """A disk that fails or is full inside the block is reported with this path, not with that of a
    draft."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise StorageError(f"{path} could not be written: {error.strerror or error}.") from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, on systems that can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(folder: Path) -> Path:
    """The folder, if it exists or can be created and can be written to; nothing is left behind."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise InputError(
            f"Cannot write to {folder}: {nearest} is a file.", "Choose another folder."
        )
    probe = temporary(nearest / "probe")
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"Cannot write to {folder}: {error.strerror or error}.", "Choose another folder."
        ) from error
    return folder


def check_own(path: Path, mark: bytes) -> Path:
    """The path, if it is free or has a file of decibo's, which contains this mark; nobody else's
    file is replaced."""
    try:
        foreign = os.path.lexists(path) and mark not in read_file(path)
    except OSError:
        foreign = True
    if foreign:
        raise InputError(
            f"{path} exists, and decibo did not write it.",
            "Choose another name, or remove it first.",
        )
    return path


def read_checked(path: Path, digest: str | None = None, most: int | None = None) -> bytes:
    """The content of a file, if it can be read and, where a checksum is given, has not changed
    since it was written."""
    try:
        content = read_file(path, most)
    except OSError as error:
        raise CorruptedFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if digest is not None and sha256(content) != digest:
        raise CorruptedFileError(f"{path} has changed since it was written: its checksum differs.")
    return content


def read_file(path: Path, most: int | None = None) -> bytes:
    """The content of a regular file of at most so many bytes.

    Pipes and devices, which may never end, raise an OSError at once, and so do folders and files
    that are too large.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as file:  # closes the handle
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "It is a folder", str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(
                errno.EFBIG,
                f"It has {status.st_size:,} bytes, but at most {most:,} are read",
                str(path),
            )
        return file.read()


def write_record(
    path: Path, kind: str, version: int, content: Mapping[str, Any], mode: int = PUBLIC
) -> Path:
    """Write a small JSON file that says what it is: its kind, its format and a checksum of it all.

    `content` holds what JSON can hold.
    """
    return atomic_write(path, encode_record(kind, version, content), mode)


def encode_record(kind: str, version: object, content: Mapping[str, Any]) -> bytes:
    """The bytes of such a file, for callers that write it themselves."""
    # through JSON and back, which turns every key into text, as the reader will find it
    body = json.loads(json.dumps({"kind": kind, "format": version, **content}))
    checksum = sha256(encode(json.dumps(body, sort_keys=True)))
    return encode(json.dumps({**body, "checksum": checksum}, indent=1) + "\n")


def read_record(path: Path, kind: str, version: int, most: int | None = None) -> dict[str, Any]:
    """What `write_record` wrote there, without kind, format and checksum.

    A file that is missing, damaged or of another kind raises CorruptedFileError; one that another
    version of decibo wrote is not damaged, and raises InputError.
    """
    content = read_checked(path, most=most)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptedFileError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(record, dict) or record.pop("kind", None) != kind:
        raise CorruptedFileError(f"{path} is damaged: it is not a {kind}.")
    checksum = record.pop("checksum", None)
    found = record.pop("format", None)
    whole = content == encode_record(kind, found, record)
    # an older format may have had no checksum; a flipped bit in the number is damage
    if found != version and (whole or checksum is None):
        raise InputError(
            f"{path} is a {kind} of format {found!r}, but this version of decibo reads format"
            f" {version}.",
            "Use the version that wrote it.",
        )
    if not whole:
        raise CorruptedFileError(f"{path} is damaged: its checksum differs.")
    return record


def read_toml(
    path: Path, known: Iterable[str] | None = None, most: int = 1 << 20
) -> dict[str, Any]:
    """The tables of a TOML file; with `known`, other keys at its top are rejected."""
    try:
        text = read_file(path, most).decode("utf-8")
        # Python's parser takes quadratic time for a key of many parts: half an hour for 1 MB.
        bare = TEXTS.sub("", text)
        if max((part.count(".") for part in PARTS.split(bare)), default=0) > DOTS:
            raise InputError(f"{path} has a key of more than {DOTS + 1} parts.")
        tables = tomllib.loads(text)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}.", "Pass the path of a TOML file."
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:  # UnicodeDecodeError, TOML's own
        raise InputError(
            f"{path} is not valid TOML: {short(first_line(error).rstrip('.'), 200)}."
        ) from error
    if known is not None:
        only_known(str(path), "key", tables, known)
    return tables


def sha256(content: bytes | Path) -> str:
    """The checksum of some bytes or of the file at a path, in hexadecimal digits."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode(content: str | bytes) -> bytes:
    """Text as UTF-8; what UTF-8 cannot hold (half of a surrogate pair) becomes a question mark."""
    return content if isinstance(content, bytes) else content.encode("utf-8", "replace")


def temporary(path: Path) -> Path:
    """A name beside the path that nobody can guess and nothing else has."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")


def is_private(folder: Path) -> bool:
    """Whether this folder, created if need be, is the user's alone, and nobody else can replace it
    by renaming a folder above it."""
    if not hasattr(os, "getuid"):
        return False
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = folder.resolve()
    user = os.getuid()
    status = real.stat()
    if status.st_uid != user or status.st_mode & 0o077 or not os.access(real, os.W_OK | os.X_OK):
        return False
    # A folder that others may write to protects what lies in it only with the sticky bit, as /tmp.
    return all(
        above.st_uid in (user, 0)
        and (above.st_mode & stat.S_ISVTX or not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        for above in (parent.stat() for parent in real.parents)
    )
