"""One line on the terminal while a run lasts; nothing when nobody watches.

step 12400/50000  8120/s  0:04 left  |grad Phi| 3.1e-04  consensus_x 2.2e-09

It is called between chunks of steps, about twice a second, and costs some microseconds.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

Report = Callable[[int, int, Mapping[str, Any]], None]

PAUSE = 0.2  # seconds between two updates
PATIENCE = 1.0  # seconds before the first
# |grad Phi|, exact or estimated without second derivatives; the measures are its square.
SLOPES = {"stationarity": "|grad Phi|", "direction_norm": "|grad Phi| about"}


class Line:
    """Rewrites one line, at most five times a second, and only for runs longer than a second."""

    def __init__(self, noun: str = "step") -> None:
        self.noun = noun
        self.begun = time.perf_counter()
        self.shown = self.begun
        self.mark: tuple[float, int] | None = None  # the first report: compilation lies before it
        self.drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wipe an unfinished line, so that the next thing printed starts at the left."""
        if self.drawn:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + " " * width + "\r", end="", file=sys.stderr, flush=True)
            self.drawn = False

    def __call__(self, step: int, steps: int, latest: Mapping[str, Any]) -> None:
        now = time.perf_counter()
        over = step >= steps
        self.mark = self.mark or (now, step)
        if now - self.begun < PATIENCE or (now - self.shown < PAUSE and not over):
            return
        self.shown = now
        self.drawn = not over
        width = shutil.get_terminal_size().columns - 1
        text = line(step, steps, self._rate(now, step), latest, self.noun)
        print(
            "\r" + text[:width].ljust(width), end="\n" if over else "", file=sys.stderr, flush=True
        )

    def _rate(self, now: float, step: int) -> float:
        """Steps a second since the first report, or since the beginning while there is only one."""
        since, first = self.mark or (now, step)
        return (
            (step - first) / (now - since) if step > first else step / max(now - self.begun, 1e-9)
        )


def line(step: int, steps: int, rate: float, latest: Mapping[str, Any], noun: str = "step") -> str:
    """The text: step, rate, time left, |grad Phi|, consensus error; other measures where these are
    not recorded."""
    left = f"{_clock((steps - step) / rate)} left" if rate > 0 else ""
    numbers = {
        name: float(value) for name, value in latest.items() if not getattr(value, "ndim", 0)
    }
    shown = _slope(numbers) | {
        name: value for name, value in numbers.items() if name == "consensus_x"
    }
    shown = shown or dict(list(numbers.items())[:3])
    parts = [
        f"{noun} {step}/{steps}",
        f"{rate:.0f}/s",
        left,
        *(f"{k} {v:.2g}" for k, v in shown.items()),
    ]
    return "  ".join(part for part in parts if part)


def _slope(numbers: Mapping[str, float]) -> dict[str, float]:
    name = next((name for name in SLOPES if name in numbers), None)
    return {} if name is None else {SLOPES[name]: math.sqrt(max(numbers[name], 0.0))}


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
