"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import Any

NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def measured(value: float | None) -> str:
    """A recorded value: short, and in powers of ten where it is small or large."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}".replace("-", MINUS)
    digits, power = f"{value:.2e}".split("e")
    return f"{digits}e{int(power)}".replace("-", MINUS)


def counted(value: float) -> str:
    """Things that are counted: in full up to a hundred thousand, then with a prefix."""
    return f"{value:,.0f}" if abs(value) < 1e5 else _prefixed(value).replace(" k", " thousand")


def sized(value: float) -> str:
    """Bytes, in powers of a thousand."""
    return f"{value:.0f} B" if value < 1e3 else _prefixed(value) + "B"


def lasted(seconds: float) -> str:
    """A time."""
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def setting(value: Any) -> str:
    """A setting of a method or a configuration."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={setting(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(setting, value))
    return NONE if value is None else str(value)


def plural(count: int, word: str) -> str:
    """3 runs, 1 run."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _prefixed(value: float) -> str:
    size, prefix = next((each for each in PREFIXES if abs(value) >= each[0]), (1.0, ""))
    return f"{value / size:.3g} {prefix}"
