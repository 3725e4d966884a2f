"""What a function can be told in a configuration: read from its signature, so that nothing is listed twice."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, is_dataclass
from typing import Any, Literal, Union

from numpy.typing import ArrayLike

from decibo.errors import InputError

REQUIRED = inspect.Parameter.empty
WORDS = {"dataset": "data"}  # what configurations call these parameters of the library


@dataclass(frozen=True)
class Option:
    """One thing that a function can be told."""

    name: str  # in the configuration
    parameter: str  # of the function
    hint: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED

    def __str__(self) -> str:
        if self.required or self.default is None:
            return self.name if self.required else f"[{self.name}]"
        return f"{self.name}={self.default}"


def options_of(factory: Callable[..., Any], own: bool = False) -> dict[str, Option]:
    """The options of a function by name. Parameters of a user's own function keep the names they have."""
    hints = _hints(factory)
    found = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        name = parameter.name if own else WORDS.get(parameter.name, parameter.name)
        hint = _simple(hints.get(parameter.name, _of_default(parameter.default)))
        if hint is Any and not own:
            continue  # a function or an object, which a configuration cannot hold
        found[name] = Option(name, parameter.name, hint, _default(factory, parameter))
    return found


def _default(factory: Any, parameter: inspect.Parameter) -> Any:
    """The default; dataclass fields with a factory have one too."""
    fields = getattr(factory, "__dataclass_fields__", {}) if is_dataclass(factory) else {}
    made = fields[parameter.name].default_factory if parameter.name in fields else MISSING
    return parameter.default if made is MISSING else made()


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(factory)
    except Exception:  # a user's annotation that cannot be resolved: then anything goes
        return {}


def _simple(hint: Any) -> Any:
    """numpy's ArrayLike is a union of twenty types; in a configuration it is a list of numbers."""
    long, found = typing.get_args(ArrayLike), typing.get_args(hint)
    return list[float] if ArrayLike in found or (long and all(part in found for part in long)) else hint


def _of_default(default: Any) -> Any:
    return type(default) if isinstance(default, bool | int | float | str) else Any


def typed(value: Any, hint: Any, where: str) -> Any:
    """The value as this type, or an InputError that shows it. TOML has no null: "none" stands for None."""
    kinds, optional = members(hint)
    if value is None or (optional and value == "none"):
        return None
    for kind in kinds:
        fits, converted = _fits(value, kind, where)
        if fits:
            return converted
    names = list(dict.fromkeys(name for kind in kinds if (name := described(kind))))
    rule = f"it must be {' or '.join(names) or 'something else'}"
    raise InputError(f"{where} = {shown(value)}", rule, f"Give {_example(kinds)}, for example.")


def members(hint: Any) -> tuple[list[Any], bool]:
    """The types of a union, and whether None is one of them."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [kind for kind in parts if kind is not type(None)], type(None) in parts


def shown(value: Any) -> str:
    """A value in a message: as TOML has it where that differs from Python, and never a page of it."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fits(value: Any, kind: Any, where: str) -> tuple[bool, Any]:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True, value
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value), value
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if origin is Literal:
        return value in parts, value
    if origin in (list, tuple) and isinstance(value, list | tuple):
        each = parts[0] if parts else Any
        return True, origin(typed(item, each, f"{where}[{k}]") for k, item in enumerate(value))
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return True, {key: typed(item, parts[1], f"{where}.{key}") for key, item in value.items()}
    return isinstance(kind, type) and origin is None and isinstance(value, kind), value


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no floating-point number can hold
        return False


def described(kind: Any) -> str:
    """A type in words; nothing for those that a configuration cannot hold."""
    words = {float: "a finite number", int: "a whole number", bool: "true or false", str: "text in quotes"}
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in words:
        return words[kind]
    if origin is Literal:
        return " or ".join(f'"{part}"' for part in parts)
    if origin in (list, tuple):
        return f"a list, each {described(parts[0])}" if parts else "a list"
    if origin in (dict, Mapping):
        return f"a table, each value {described(parts[1])}" if len(parts) > 1 else "a table"
    return ""


def _example(kinds: list[Any]) -> str:
    examples = {float: "0.1", int: "10", bool: "true", str: '"text"'}
    kind = next((kind for kind in kinds if kind in examples), None)
    if kind is not None:
        return examples[kind]
    origin = typing.get_origin(kinds[0])
    if origin is Literal:
        return f'"{typing.get_args(kinds[0])[0]}"'
    return "[1, 2]" if origin in (list, tuple) else "{ name = 1 }" if origin in (dict, Mapping) else "another value"
