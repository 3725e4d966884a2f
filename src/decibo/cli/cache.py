"""The persistent compilation cache: programs compiled once are read from the disk by later processes.

It is switched on when the first run begins, not on import, and only where it is safe: in a folder that nobody else can
write to, since compiled programs are code, and one for each kind of processor, since a home may be shared by several.
`DECIBO_CACHE=off` switches it off, `DECIBO_CACHE=folder` moves it; a cache that was set up for jax is left alone.

With several CPU devices, in one process or many, it is switched off whoever set it up: with jaxlib 0.10.2 some
programs for several of them, read back from a cache, end the process with SIGSEGV or SIGABRT.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

OFF = ("off", "0", "no", "false")
QUICK = 0.1  # seconds: programs that compile faster are not kept
LARGEST = 1 << 30  # bytes: beyond, the oldest half goes


@cache
def enable() -> Path | None:
    """Switch the cache on if that is safe; the folder, or None. Never raises, and later calls do nothing."""
    try:
        import jax

        config: Any = jax.config
        if jax.default_backend() == "cpu" and jax.device_count() > 1:
            _set(jax_enable_compilation_cache=False)
        taken = config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache
        if taken or "pytest" in sys.modules:
            return None
        folder = wanted(os.environ)
        return _switch_on(folder) if folder is not None and private(folder) else None
    except Exception:  # a convenience: no run may fail for it
        return None


def wanted(environment: Mapping[str, str]) -> Path | None:
    """Where the cache is to be, or None if it is not wanted."""
    asked = environment.get("DECIBO_CACHE", "").strip()
    if asked.lower() in OFF:
        return None
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(asked).expanduser() if asked else Path(base) / "decibo") / "programs" / processor()


def processor() -> str:
    """A name for this kind of processor: code compiled for one may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        flags = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"


def private(folder: Path) -> bool:
    """Whether this folder, made if need be, is the user's alone and nobody else can put another in its place."""
    if not hasattr(os, "getuid"):
        return False
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    real, me = folder.resolve(), os.getuid()
    found = real.stat()
    alone = found.st_uid == me and not found.st_mode & 0o077 and os.access(real, os.W_OK | os.X_OK)
    return alone and all(_steady(above.stat(), me) for above in real.parents)


def _steady(found: os.stat_result, me: int) -> bool:
    """Whether only the user or the system can rename what lies in this folder."""
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (me, 0) and not shared


def _switch_on(folder: Path) -> Path:
    _prune(folder)
    _set(jax_compilation_cache_dir=str(folder), jax_persistent_cache_min_compile_time_secs=QUICK)
    return folder


def _set(**settings: Any) -> None:
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    for name, value in settings.items():
        jax.config.update(name, value)
    reset_cache()  # jax looks for a cache once, at its first compilation, which lies behind us


def _prune(folder: Path) -> None:
    files = sorted(folder.glob("*-cache"), key=lambda file: file.stat().st_mtime)
    if sum(file.stat().st_size for file in files) > LARGEST:
        for file in files[: (len(files) + 1) // 2]:
            file.unlink(missing_ok=True)
