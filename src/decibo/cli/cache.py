"""The persistent compilation cache: programs compiled once are read from the disk by later
processes.

The command line sets it up, since the process is its own; a call of the library never does. It is
used only where that is safe: in a folder that only the user can write to, since compiled programs
are code, and one for each kind of processor, since several may share a home. `DECIBO_CACHE=off`
switches it off, `DECIBO_CACHE=folder` moves it; a cache that was set up for JAX is left alone.

With several CPU devices, in one process or many, it is switched off in any case: with jaxlib
0.10.2 some programs for several of them, read back from a cache, end the process with SIGSEGV or
SIGABRT.
"""

from __future__ import annotations

import hashlib
import os
import platform
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from decibo.files import is_private

OFF = ("off", "0", "no", "false")
SHORTEST = 0.1  # seconds: programs that compile faster are not stored
LARGEST = 1 << 30  # bytes: beyond, the oldest half is deleted


@cache
def enable() -> Path | None:
    """Switch the cache on if that is safe; returns the folder, or None. Never raises, and later
    calls do nothing."""
    try:
        if jax.default_backend() == "cpu" and jax.device_count() > 1:
            _configure(jax_enable_compilation_cache=False)
        if folder_in_use() or not jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
            return None
        folder = preferred_folder(os.environ)
        if folder is None or not is_private(folder):
            return None
        _prune(folder)
        _configure(
            jax_compilation_cache_dir=str(folder),
            jax_persistent_cache_min_compile_time_secs=SHORTEST,
        )
        # JAX compiles what it cannot read: an entry that another command is writing, or was killed
        # while it wrote.
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache")
        return folder
    except Exception:  # a convenience: no run may fail because of it
        return None


def folder_in_use() -> str | None:
    """The folder of the cache that JAX uses now, or None if it uses none."""
    config = jax.config
    return config.jax_compilation_cache_dir if config.jax_enable_compilation_cache else None  # type: ignore[attr-defined]


def preferred_folder(environment: Mapping[str, str]) -> Path | None:
    """Where the cache is to be, or None if it is switched off."""
    requested = environment.get("DECIBO_CACHE", "").strip()
    if requested.lower() in OFF:
        return None
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (
        (Path(requested).expanduser() if requested else Path(base) / "decibo")
        / "programs"
        / processor()
    )


def processor() -> str:
    """A name for this kind of processor: code compiled for one may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        flags = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"


def _configure(**settings: str | float | bool) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    reset_cache()  # jax looks for a cache only once, at its first compilation, which may be over


def _prune(folder: Path) -> None:
    files = sorted(folder.glob("*-cache"), key=lambda file: file.stat().st_mtime)
    if sum(file.stat().st_size for file in files) > LARGEST:
        for file in files[: (len(files) + 1) // 2]:
            file.unlink(missing_ok=True)
