"""Interleaved timing: machines are shared and noisy, so only ratios of medians from one run mean anything."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def interleaved(candidates: dict[str, Callable[[], Any]], repeats: int = 15) -> dict[str, list[float]]:
    """Seconds of each candidate, called in turn `repeats` times after one warm-up."""
    for candidate in candidates.values():
        jax.block_until_ready(candidate())
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, candidate in candidates.items():
            begun = time.perf_counter()
            jax.block_until_ready(candidate())
            times[name].append(time.perf_counter() - begun)
    return times


def table(times: dict[str, list[float]], per: int, base: str) -> dict[str, float]:
    """Print medians per step, spread and ratio to the base; return the ratios."""
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"{'':28}{'ms/step':>10}{'spread':>16}{'ratio':>8}")
    for name, seconds in times.items():
        low, high = min(seconds) / per * 1e3, max(seconds) / per * 1e3
        ratio = medians[name] / medians[base]
        print(f"{name:28}{medians[name] / per * 1e3:10.4f}{low:8.3f}-{high:.3f}{ratio:8.3f}")
    return {name: median / medians[base] for name, median in medians.items()}
