"""Checks of the options of ready-made problems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from decibo.errors import InputError


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        rule = f"it must be a whole number of at least {least}"
        raise InputError(f"{name} = {value!r}", rule, f"Pass {name}={least} or more.")
    return int(value)


def at_least(name: str, value: Any, least: float, *, strictly: bool = False) -> float:
    """A finite number not below `least`."""
    number = _number(value)
    if not math.isfinite(number) or number < least or (strictly and number == least):
        rule = f"it must be a finite number {'above' if strictly else 'of at least'} {least:g}"
        raise InputError(f"{name} = {value!r}", rule, f"Pass a larger {name}.")
    return number


def share(name: str, value: Any, most: float = 1.0) -> float:
    """A number in [0, most]."""
    number = _number(value)
    if not 0 <= number <= most:
        raise InputError(f"{name} = {value!r}", f"it must lie between 0 and {most:g}", f"Pass such a {name}.")
    return number


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """One of the known words."""
    words = list(known)
    if value not in words:
        raise InputError(f"{name} = {value!r}", f"it must be one of {', '.join(words)}", "Check the spelling.")
    return value


def known_options(name: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse options that nobody reads."""
    words = list(known)
    unknown = ", ".join(sorted(set(given) - set(words)))
    if unknown:
        rule = f"its options are {', '.join(words)}"
        raise InputError(f"{name} has no option {unknown}", rule, "Check the spelling.")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
