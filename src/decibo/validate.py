"""Checks of arguments, one for each rule, with one wording each: the value, the rule, and what was
probably meant."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from decibo.errors import InputError, short, short_repr

MOST_SEED = 2**31 - 1
MOST_STEPS = 2**31 - 1  # steps are counted in 32 bits

KINDS = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}

# Words that other libraries, or papers, use for ours.
SYNONYMS = {
    "algorithm": "method",
    "algorithms": "methods",
    "m": "agents",
    "n_agents": "agents",
    "nodes": "agents",
    "dataset": "data",
    "lambda": "lam",
    "iterations": "steps",
}


def integer(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """The value as an int, if it is an integer of at least `least` and, where there is a bound, at
    most `most`."""
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]  (a TypeError is what we ask for)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        rule = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise InputError(f"{name} must be {rule}, but it is {short_repr(value)}.")
    if most is not None and number > most:
        raise InputError(f"{name} must be at most {most:,}, but it is {short(f'{number:,}')}.")
    return number


def seed(value: object, name: str = "seed") -> int:
    """The value as an int, if random numbers can be drawn from it in every precision."""
    return integer(name, value, least=0, most=MOST_SEED)


def positive(name: str, value: object) -> float:
    """The value as a float, if it is a positive and finite number."""
    return _number(name, value, "a positive, finite number", lambda number: number > 0)


def at_least(name: str, value: object, bound: float) -> float:
    """The value as a float, if it is a finite number that is not below the bound."""
    rule = "a finite number" if bound == -math.inf else f"a finite number of at least {bound:g}"
    return _number(name, value, rule, lambda number: number >= bound)


def above(name: str, value: object, bound: float) -> float:
    """The value as a float, if it is a finite number above the bound."""
    return _number(name, value, f"a finite number above {bound:g}", lambda number: number > bound)


def fraction(name: str, value: object, *, most: float = 1.0, zero: bool = True) -> float:
    """The value as a float, if it lies between 0 and `most`; without `zero`, 0 itself is not
    allowed."""
    rule = f"between 0 and {most:g}" if zero else f"above 0 and at most {most:g}"
    return _number(
        name,
        value,
        f"a number {rule}",
        lambda number: (number >= 0 if zero else number > 0) and number <= most,
    )


def flag(name: str, value: object) -> bool:
    """The value, if it is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, but it is {short_repr(value)}.")
    return value


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """The value, if it is one of the known words."""
    words = list(known)
    if not isinstance(value, str) or value not in words:
        raise InputError(
            f"{name} must be one of {', '.join(words)}, but it is {short_repr(value)}.",
            did_you_mean(value, words),
        )
    return value


def a_path(name: str, value: object) -> Path:
    """The value as a path, if it is one."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} must be a path, but it is {short_repr(value)}.")
    return Path(value)


def table(name: str, value: object, example: str) -> None:
    """Reject what is not a dictionary."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"{name} must be a dictionary such as {example}, but it is {short_repr(value)}."
        )


def only_known(owner: str, noun: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Reject names that nobody reads: `only_known("quadratic", "option", names, known)`."""
    words = list(known)
    unknown = [name for name in names if name not in words]
    if unknown:
        listed = f"Its {noun}s are {', '.join(words)}." if words else f"It has no {noun}s."
        raise InputError(
            f"{owner} has no {noun} {short(', '.join(map(str, unknown)))}. {listed}",
            did_you_mean(unknown[0], words),
        )


def typed_table(
    owner: str, value: object, kinds: Mapping[str, type], required: Iterable[str] = ()
) -> dict[str, Any]:
    """The entries of a table that somebody wrote, if all keys are known, the required ones are
    there and every value is of its kind: `typed_table("job.toml, [relay]", entry, {"address":
    str})`."""
    if not isinstance(value, Mapping):
        raise InputError(f"{owner} must be a table, but it is {short_repr(value)}.")
    only_known(owner, "key", value, kinds)
    missing = [name for name in required if name not in value]
    if missing:
        raise InputError(f"{owner} needs {' and '.join(missing)}.")
    for name, entry in value.items():
        kind = kinds[name]
        # an integer will do for a number; True is not an integer
        allowed = (int, float) if kind is float else kind
        if not isinstance(entry, allowed) or (isinstance(entry, bool) and kind is not bool):
            raise InputError(
                f"{name} of {owner} must be {KINDS.get(kind, kind.__name__)}, but it is"
                f" {short_repr(entry)}."
            )
    return dict(value)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A question that offers the closest known word; empty if none is close."""
    close = closest(str(word), known)
    return f"Did you mean {close!r}?" if close is not None and close != word else ""


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is probably meant: a synonym, a similar word, or one that contains it."""
    words = list(known)
    if SYNONYMS.get(word) in words:
        return SYNONYMS[word]
    plain = word.lower().replace("-", "_")
    similar = get_close_matches(plain, words, n=1, cutoff=0.5)
    longer = [each for each in words if len(plain) > 2 and plain in each]
    return next(iter([*similar, *longer]), None)


def _number(name: str, value: object, rule: str, holds: Callable[[float], bool]) -> float:
    try:
        number = math.nan if isinstance(value, bool | str | bytes | bytearray) else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and holds(number)):
        raise InputError(f"{name} must be {rule}, but it is {short_repr(value)}.")
    return number
