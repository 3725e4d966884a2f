"""One line on the terminal while a run goes on; nothing when nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[int, int, Mapping[str, Any]], None]


def reporter(progress: bool | Report | None) -> Report:
    """A function (step, steps, latest measures) for the host to call between stretches."""
    if callable(progress):
        return progress
    if progress is None:
        progress = sys.stderr.isatty()
    return _Line() if progress else _silent


def _silent(step: int, steps: int, latest: Mapping[str, Any]) -> None:
    return None


class _Line:
    """Rewrites one line, at most five times a second, and only for runs longer than a second."""

    def __init__(self) -> None:
        self.begun = self.shown = time.perf_counter()

    def __call__(self, step: int, steps: int, latest: Mapping[str, Any]) -> None:
        now, over = time.perf_counter(), step >= steps
        if now - self.begun < 1 or (now - self.shown < 0.2 and not over):
            return
        self.shown = now
        rate = step / (now - self.begun)
        left = f"{(steps - step) / rate:.0f} s left" if rate else ""
        numbers = "  ".join(
            f"{name} {float(value):.3g}" for name, value in latest.items() if not getattr(value, "ndim", 0)
        )
        text = f"step {step}/{steps}  {rate:.0f}/s  {left}  {numbers}"
        print("\r" + text[:79].ljust(79), end="\n" if over else "", file=sys.stderr, flush=True)
