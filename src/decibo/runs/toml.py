"""Writing TOML, which the standard library only reads."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date, time
from typing import Any

from decibo.errors import InputError

BARE = re.compile(r"[A-Za-z0-9_-]+")


def config_text(config: Any) -> str | None:
    """The text of config.toml from a mapping, a dataclass or TOML itself; None where nothing was given."""
    if config is None:
        return None
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    if isinstance(config, Mapping):
        return dumps(config)
    try:
        tomllib.loads(str(config))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"config ({error})", "it must be a mapping, or text in TOML", "Give a dict.") from error
    return str(config)


def dumps(config: Mapping[str, Any]) -> str:
    """The mapping as TOML. Entries that are None are left out, since TOML has no word for nothing."""
    return "\n".join(_section((), config)).strip() + "\n"


def _section(path: tuple[str, ...], config: Mapping[str, Any]) -> list[str]:
    given = {str(name): value for name, value in config.items() if value is not None}
    plain = {name: value for name, value in given.items() if not isinstance(value, Mapping)}
    head = [f"\n[{'.'.join(map(_key, path))}]"] if path and (plain or not given) else []
    lines = head + [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in given.items():
        if isinstance(value, Mapping):
            lines += _section((*path, name), value)
    return lines


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """JSON's way of writing strings is TOML's, but for DEL and for what UTF-8 cannot write."""
    clean = text.encode("utf-8", "replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a number of numpy or jax
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(name))} = {_value(item)}" for name, item in value.items() if item is not None)
        return "{" + inner + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
    return _string(str(value))
