"""One process or many: who prints and writes, and signals that end a run early."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from decibo.cli import cache
from decibo.parallel.processes import init_distributed


def begin() -> None:
    """Before anything touches a device: join the other processes, if a launcher started several; keep programs."""
    init_distributed()
    cache.enable()


def first() -> bool:
    """Whether this process is the one that prints and writes."""
    import jax

    return jax.process_index() == 0


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: cleanly, with everything up to there written."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
