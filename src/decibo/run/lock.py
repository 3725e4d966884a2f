"""One run at a time in a folder: a lock file that names the process that holds it.

The file is created with its content in one operation that fails if it exists, on network file
systems too. If its process ran on this machine and is gone, the lock is taken over; processes of
one machine look at it one after another, so that only one of them does. Nobody can tell from here
whether a process of another machine is alive: its lock stands until it is deleted. Only the first
process of a run holds the file, and all of them learn how that went.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jax
import numpy as np

from decibo.errors import InputError, StorageError, warn
from decibo.files import encode, named, sync_folder, synced, temporary
from decibo.parallel.launch import RESTARTED
from decibo.parallel.processes import all_gather, check_same

LOCK = ".lock"
# by folder and thread: who holds a lock may ask for it again
_held: dict[tuple[Path, int], Lock] = {}


@dataclass(frozen=True)
class Lock:
    """The lock of a folder, held by this run; `token` is known to its processes and to nobody
    else."""

    folder: Path
    token: str

    def check(self) -> None:
        """Raise if somebody has removed the lock or taken it over."""
        owner = _read(self.folder / LOCK)
        if owner is None or owner.get("token") != self.token:
            raise StorageError(
                f"The lock of {self.folder} was removed or replaced while this run was using the"
                " folder, which may now belong to another run, so nothing more is written there."
                " Resume from the last checkpoint when no other run uses it."
            )


@contextmanager
def hold(folder: Path, own: bool = False) -> Iterator[Lock]:
    """Keep other runs out of an existing folder, which each process has for itself if it is its
    own.

    All processes of a run call it together.
    """
    here = (folder.resolve(), threading.get_ident())
    if here in _held:
        yield _held[here]
        return
    lock = _agreed(folder, own)
    _held[here] = lock
    try:
        yield lock
    finally:
        del _held[here]
        if own or jax.process_index() == 0:
            _release(lock)


def _agreed(folder: Path, own: bool) -> Lock:
    """The lock that the first process has acquired, or each its own; if one could not, all of them
    raise."""
    token = secrets.randbits(64)
    failure: Exception | None = None
    if own or jax.process_index() == 0:
        try:
            _acquire(folder, f"{token:016x}")
        except (InputError, OSError) as error:
            failure = error
    check_same({}, failure)
    if own:
        return Lock(folder, f"{token:016x}")
    high, low = (
        int(word) for word in all_gather(np.array([token >> 32, token & 0xFFFFFFFF], np.uint32))[0]
    )
    return Lock(folder, f"{high << 32 | low:016x}")


def _acquire(folder: Path, token: str) -> None:
    path = folder / LOCK
    mine = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "born": _born(os.getpid()),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "token": token,
    }
    with _one_at_a_time(folder):
        if os.path.lexists(path):
            owner = _read(path)
            if owner is None or _may_be_alive(owner):
                raise _in_use(path, owner)
            if RESTARTED not in os.environ:
                warn(
                    f"{folder} was locked by process {owner['process']}, which is no longer"
                    " running; its lock is taken over."
                )
            path.unlink(missing_ok=True)
        try:
            _create(path, encode(json.dumps(mine)))
        except FileExistsError:  # another machine was quicker
            raise _in_use(path, _read(path)) from None


def _create(path: Path, content: bytes) -> None:
    """The file with its content at once, if there is none; without hard links, first the file and
    then its content."""
    draft = temporary(path)
    with named(path):
        try:
            with synced(draft) as file:
                file.write(content)
            try:
                os.link(draft, path)
            except FileExistsError:
                raise
            except OSError:
                with synced(path) as file:
                    file.write(content)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)


def _release(lock: Lock) -> None:
    path = lock.folder / LOCK
    with suppress(OSError), _one_at_a_time(lock.folder):
        if (_read(path) or {}).get("token") == lock.token:
            path.unlink()


def _read(path: Path) -> dict | None:
    """What a lock says; None if there is no lock that could be read."""
    try:
        content = (
            json.loads(path.read_bytes()) if path.is_file() and not path.is_symlink() else None
        )
    except (OSError, ValueError, RecursionError):
        return None
    process = content.get("process") if isinstance(content, dict) else None
    return content if isinstance(process, int) and process > 0 else None


def _in_use(path: Path, owner: dict | None) -> InputError:
    if owner is None:
        message = f"{path.parent} is locked, but {path.name} does not say by whom."
        return InputError(message, f"If no run uses the folder, delete {path}.")
    who = f"process {owner['process']} on {owner.get('host')}"
    remedy = "Wait for it to end, or choose another folder."
    if owner.get("host") != socket.gethostname():
        remedy += f" If it is no longer running, delete {path}."
    return InputError(
        f"{path.parent} has been in use by {who} since {owner.get('since')}, and two runs cannot"
        " share a folder.",
        remedy,
    )


def _may_be_alive(owner: dict) -> bool:
    """False only if it ran on this machine and is gone; another process may have its number by
    now."""
    process = owner["process"]
    if owner.get("host") != socket.gethostname():
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        pass
    born = _born(process)
    return born == owner.get("born") or not born


def _born(process: int) -> str:
    """When a process was started, as the kernel counts (Linux); "gone" if it has ended, empty if
    nobody knows."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "gone" if words[0] in ("Z", "X") else f"{boot}/{words[19]}"


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let the processes of this machine come here one after another, where the file system can."""
    handle = None
    with suppress(OSError, ImportError):
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
