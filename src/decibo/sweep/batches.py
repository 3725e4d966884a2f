"""How many lanes of a sweep run together: what fits into memory, and what is faster than one after another.

    (1)  a batch may take a quarter of the memory that is free
    (2)  on a CPU it should fit into the cache, or not be larger than the data, which all lanes read together
    (3)  if a long run lies ahead, one lane alone is timed as well, and the faster way is taken

Lanes that stream more memory than they share gain nothing from running together; then (2) gives 1.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from decibo.execute import loop
from decibo.pytree import Tree
from decibo.sweep.lanes import Lanes, advance, begin, memory, take

SHARE = 0.25  # of the free memory
CACHE = 8 << 20  # bytes
LONG = 20.0  # seconds from which on timing a lane alone is worth its compilation
TRIAL = 0.02  # seconds that a trial should take at least


def batch_size(program: loop.Program, lanes: Lanes, count: int, data: Tree, steps: int) -> int:
    """Lanes to run together, all batches being about equal."""
    state = jax.eval_shape(lambda: begin(program, take(lanes, np.arange(1))))
    each = max(1, 4 * nbytes(state))  # a first guess, until the compiled program says
    limit = SHARE * free_memory()
    best = limit if jax.default_backend() != "cpu" else min(limit, max(CACHE, nbytes(data)))
    size = _even(count, best / each)
    for _ in range(3):
        if size == 1:
            return 1
        each = memory(program, take(lanes, np.arange(size))) / size
        if size * each <= 1.5 * best and size * each <= limit:
            break
        size = _even(count, best / each)
    return 1 if _alone_is_faster(program, lanes, size, count, steps) else size


def nbytes(tree: Tree) -> int:
    """Bytes of all leaves, arrays or shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def free_memory() -> float:
    """Bytes that can still be had: of the device, or of this machine or container."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return min(_available(), _container())


def _available() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return float(4 << 30)  # not Linux: a modest guess


def _container() -> float:
    folder = Path("/sys/fs/cgroup")
    try:
        most, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return float("inf") if most == "max" else float(max(int(most) - int(used), 0))
    except (OSError, ValueError):
        return float("inf")


def _even(count: int, most: float) -> int:
    """The smallest size that makes no more batches than the largest allowed one."""
    most = int(np.clip(most, 1, count))
    return -(-count // -(-count // most))


def _alone_is_faster(program: loop.Program, lanes: Lanes, size: int, count: int, steps: int) -> bool:
    """(3)."""
    together = _seconds(program, take(lanes, np.arange(size))) / size
    if together * steps * count < LONG:
        return False
    return _seconds(program, take(lanes, np.arange(1))) < together


def _seconds(program: loop.Program, lanes: Lanes) -> float:
    """Seconds of one step of all these lanes."""
    state, n, silent = begin(program, lanes), 1, np.zeros(1, bool)
    go: Any = lambda: jax.block_until_ready(advance(program, lanes, state, 0, np.array([n], np.int32), silent))
    go()
    while True:
        begun = time.perf_counter()
        go()
        taken = time.perf_counter() - begun
        if taken > TRIAL or n >= 1 << 16:
            return taken / n
        n *= 4
