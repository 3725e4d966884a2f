"""`name[setting=value, ...]`: a method on the command line, as in -a 'ahead[lam=20]'."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from decibo.errors import InputError

SHAPE = re.compile(r"\s*([\w.:]+)\s*(?:\[(.*)\])?\s*", re.DOTALL)
PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*", re.DOTALL)


def parse_spec(text: str, where: str = "-a") -> dict[str, Any]:
    """{"name": ..., setting: value, ...} of one such text."""
    match = SHAPE.fullmatch(text)
    if match is None:
        raise _refused(text, where, "it must read name or name[setting=value,...]")
    name, inside = match.groups()
    settings: dict[str, Any] = {}
    for part in _parts(inside or ""):
        pair = PAIR.fullmatch(part)
        if pair is None or not pair[2]:
            raise _refused(text, where, f"{part.strip()!r} must read setting=value")
        if pair[1] in (*settings, "name"):
            raise _refused(
                text, where, f"{pair[1]} stands there twice" if pair[1] in settings else "name= is no setting"
            )
        settings[pair[1]] = parse_value(pair[2])
    return {"name": name, **settings}


def parse_value(text: str) -> Any:
    """A value as TOML has it: 3, 0.1, true, "text", [1, 2], {start = 1}; anything else is text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def _parts(inside: str) -> list[str]:
    """Split at commas that stand outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for k, mark in enumerate(inside):
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote = mark
        elif mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "," and depth == 0:
            parts, start = [*parts, inside[start:k]], k + 1
    rest = inside[start:]
    return [*parts, rest] if rest.strip() or parts else []


def _refused(text: str, where: str, rule: str) -> InputError:
    return InputError(f"{where} {text!r}", rule, "Write 'ahead[alpha=0.05,gamma=0.1,lam=20]', for example.")
