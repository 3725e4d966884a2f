"""One run at a time in a folder: a lock file that names the process that holds it.

The file is that of filelock.SoftFileLock, which is created in one operation that fails if it
exists, on network file systems too, and is taken over if its process ran on this machine and has
ended. A process of another machine cannot be looked at from here: its lock stands until it is
deleted. An empty file was left by a process that was killed, or a machine that lost its power,
between creating it and writing into it: it is taken over too. Only the first process of a run holds
the file, and all of them learn how that went.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from decibo.errors import InputError, StorageError, warn
from decibo.files import named
from decibo.parallel.launch import RESTARTED
from decibo.parallel.processes import all_gather, check_same

if TYPE_CHECKING:
    from filelock import SoftFileLock

LOCK = ".lock"
TAKE_OVER = 0.1  # seconds: filelock removes the lock of a dead process and tries again meanwhile
UNWRITTEN = 2.0  # seconds: a lock that stays empty for so long was left by a process that has ended
# by folder and thread: who holds a lock may ask for it again
_held: dict[tuple[Path, int], Lock] = {}


@dataclass(frozen=True, eq=False)
class Lock:
    """The lock of a folder, held by this run; `token` is known to its processes only, and `file` is
    where the process that leads holds it."""

    folder: Path
    token: str
    file: SoftFileLock | None

    def check(self) -> None:
        """Raise if somebody has removed the lock or taken it over."""
        if self.file is None or not self.file.is_lock_held_by_us:
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
    # The first process acquires the lock, or each its own; if one could not, all of them raise.
    token = secrets.randbits(64)
    file: SoftFileLock | None = None
    failure: Exception | None = None
    if own or jax.process_index() == 0:
        try:
            file = _acquire(folder / LOCK)
        except (InputError, OSError) as error:
            failure = error
    check_same({}, failure)
    if not own:
        words = np.array([token >> 32, token & 0xFFFFFFFF], np.uint32)
        high, low = map(int, all_gather(words)[0])
        token = high << 32 | low
    _held[here] = Lock(folder, f"{token:016x}", file)
    try:
        yield _held[here]
    finally:
        del _held[here]
        if file is not None:
            with suppress(OSError):
                file.release()


def is_held(folder: Path) -> bool:
    """Whether a run holds this folder, as far as can be seen: what another machine does cannot."""
    path = folder / LOCK
    try:
        process, host, *started = path.read_text().splitlines()
        if host.partition("?")[0] != socket.gethostname():
            return True
        state, start = _state_and_start(int(process))
        # another process may have got the number since
        return state not in ("Z", "X") and all(int(each) % (1 << 64) == start for each in started)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return path.exists() and not Path("/proc/self").exists()


def _acquire(path: Path) -> SoftFileLock:
    # here, since `import decibo` loads nothing but jax, numpy and networkx
    from filelock import SoftFileLock, Timeout

    lock = SoftFileLock(path)
    with named(path), _one_at_a_time(path.parent):
        before = lock.pid
        empty = _stays_empty(path)
        # filelock counts a killed process as alive until its parent has waited for it, which some
        # never do (a shell script as the first process of a container).
        if empty or (before is not None and _is_zombie(path, before)):
            path.unlink(missing_ok=True)
        try:
            lock.acquire(timeout=TAKE_OVER, poll_interval=TAKE_OVER / 5)
        except Timeout:
            raise _in_use(path, lock.pid) from None
    if (empty or before is not None) and RESTARTED not in os.environ:
        process = f"process {before}, which is" if before else "a process that is"
        warn(f"{path.parent} was locked by {process} no longer running; its lock is taken over.")
    return lock


def _in_use(path: Path, process: int | None) -> InputError:
    lines: list[str] = []
    since = ""
    with suppress(OSError, UnicodeDecodeError):
        since = datetime.fromtimestamp(path.lstat().st_mtime, UTC).isoformat(timespec="seconds")
        lines = path.read_text().splitlines() if process is not None else []
    if len(lines) < 2:
        return InputError(
            f"{path.parent} is locked, but {path.name} does not say by whom.",
            f"If no run uses the folder, delete {path}.",
        )
    return InputError(
        f"{path.parent} has been in use by process {process} on {lines[1]} since {since}, and two"
        " runs cannot share a folder.",
        f"Wait for it to end, or choose another folder. If it is no longer running, delete {path}.",
    )


def _is_zombie(path: Path, process: int) -> bool:
    """Whether the process that wrote this lock has ended and waits for its parent (Linux): the last
    line of the lock is the boot of the machine and the process's start in it."""
    try:
        state, start = _state_and_start(process)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        started = [str(int(boot, 16) << 64 | start)]
        return state in ("Z", "X") and path.read_text().splitlines()[2:] == started
    except (OSError, ValueError, IndexError):
        return False


def _state_and_start(process: int) -> tuple[str, int]:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return words[0], int(words[19])


def _stays_empty(path: Path) -> bool:
    """Whether a process created this lock and ended before it wrote into it, which takes
    microseconds. One that was only slow finds its lock replaced before it writes anything else."""
    try:
        first = path.lstat()
        if first.st_size > 0:
            return False
        time.sleep(UNWRITTEN)
        last = path.lstat()
    except FileNotFoundError:
        return False
    return (last.st_size, last.st_ino, last.st_ctime_ns) == (0, first.st_ino, first.st_ctime_ns)


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
