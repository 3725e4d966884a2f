"""One process or many: who prints and writes, and signals that end a run early."""

from __future__ import annotations

from decibo.cli import cache
from decibo.parallel.processes import init_distributed
from decibo.parallel.signals import GracefulStop


def begin() -> None:
    """Before anything touches a device: join the other processes, if a launcher started several; keep programs."""
    init_distributed()
    cache.enable()


def first() -> bool:
    """Whether this process is the one that prints and writes."""
    import jax

    return jax.process_index() == 0


def interruptible() -> GracefulStop:
    """SIGTERM ends a run as Ctrl-C does: cleanly, with everything up to there written."""
    return GracefulStop(patience=0)
