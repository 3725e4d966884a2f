"""A name and its options, checked against the function that the name stands for."""

from __future__ import annotations

import importlib
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from decibo.cli.nearest import unknown
from decibo.cli.options import Option, members, options_of, shown, typed
from decibo.cli.registry import Registry, datasets, schedules
from decibo.data.dataset import Dataset
from decibo.data.files import find
from decibo.errors import InputError, first_line

OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Choice:
    """What to call, and with what."""

    name: str
    factory: Callable[..., Any] = field(repr=False)
    options: dict[str, Any]  # by the configuration's names: numbers, texts, lists, or choices again
    where: str = ""
    own: bool = False  # whether it is the user's own function
    label: str = ""  # what tables call it

    def told(self, **options: Any) -> Choice:
        """The same with more options; those that it has already stay."""
        return replace(self, options={**options, **self.options})

    def known(self) -> dict[str, Option]:
        """All options that it could be told."""
        return options_of(self.factory, self.own)

    def missing(self) -> list[str]:
        """Options without which it cannot be called."""
        return [name for name, option in self.known().items() if option.required and name not in self.options]

    def make(self, **more: Any) -> Any:
        """Call it; whatever goes wrong inside is an InputError, since what it was given led there."""
        known, given = self.known(), {**more, **self.options}
        lacking = [name for name, option in known.items() if option.required and name not in given]
        if lacking:
            raise InputError(
                f"{self.where}: {self.name} without {', '.join(lacking)}",
                f"{'it has' if len(lacking) == 1 else 'they have'} no default",
                f"Give {', '.join(f'{name} = ...' for name in lacking)}.",
            )
        arguments = {known[name].parameter: _made(value) for name, value in given.items()}
        try:
            return self.factory(**arguments)
        except InputError as error:
            raise InputError(f"{self.where}: {error.message}", error.remedy) from error
        except Exception as error:
            reason = first_line(error)
            raise InputError(
                f"{self.where}: {self.name} raised {type(error).__name__}",
                reason.rstrip("."),
                "Mend it; --debug shows the traceback.",
            ) from error

    def plain(self) -> dict[str, Any]:
        """As a table of a configuration, with every default that a configuration can hold."""
        known = self.known()
        defaults = {name: option.default for name, option in known.items() if _storable(option.default)}
        given = {name: value.plain() if isinstance(value, Choice) else value for name, value in self.options.items()}
        return {"name": self.name, **{name: _kept(known[name], value) for name, value in (defaults | given).items()}}


def choose(given: Any, registry: Registry, where: str, at: Mapping[str, str] | None = None) -> Choice:
    """A choice from `"name"`, `"module:function"` or `{name = "...", option = ...}`; `at` says where options stand."""
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise InputError(
            f"{where} = {shown(given)}",
            f"it must be the name of a {registry.kind}, or a table with a name",
            f'Give "{next(iter(registry.factories))}", for example.',
        )
    name = table["name"]
    own = ":" in name
    if not own and name not in registry.factories:
        raise unknown(f"{where} = {name!r}", name, registry.kind, registry.factories, registry.look)
    factory = imported(name, where) if own else registry.factories[name]
    rest = {key: value for key, value in table.items() if key != "name"}
    return Choice(name, factory, checked(rest, factory, name, where, own, at), where, own)


def checked(
    given: Mapping[str, Any], factory: Callable[..., Any], name: str, where: str, own: bool, at: Any = None
) -> dict[str, Any]:
    """Options of a function, every name known and every value of its type."""
    known = options_of(factory, own)
    found = {}
    for key, value in given.items():
        place = (at or {}).get(key, f"{where}.{key}")
        if key not in known:
            raise unknown(place, key, f"option of {name}", known)
        found[key] = _option(value, known[key].hint, place)
    return {key: value for key, value in found.items() if value is not None or not known[key].required}


def _option(value: Any, hint: Any, where: str) -> Any:
    """Data sets and schedules are choices themselves; all else is checked by its type."""
    kinds, _ = members(hint)
    if Dataset in kinds and value != "none":
        return choose(_file(value), datasets(), where)
    if isinstance(value, Mapping) and any(typing.get_origin(kind) is Callable for kind in kinds):
        return choose(value, schedules(), where)  # a rate is a number, or a function of the step
    return typed(value, hint, where)


def _file(value: Any) -> Any:
    """A name that is no data set but a file, here or in $DECIBO_DATA, is one in LIBSVM's format."""
    if isinstance(value, str) and value not in datasets().factories:
        path = value if os.path.isfile(value) else find(value) if re.fullmatch(r"[\w.-]+", value) else None
        return {"name": "libsvm", "path": str(path)} if path else value
    return value


def imported(name: str, where: str) -> Callable[..., Any]:
    """The user's own function `module:function`; modules are looked for in the current folder first."""
    if not OWN.fullmatch(name):
        raise InputError(f"{where} = {name!r}", "it must read module:function", 'Give "my_module:make_problem".')
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function, None)
    except (Exception, SystemExit) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"{where} = {name!r}",
            f"importing {module} raised {type(error).__name__}: {reason}",
            f"Start decibo in the folder that holds {module.replace('.', '/')}.py; --debug shows the traceback.",
        ) from error
    if not callable(found):
        names = [key for key, value in vars(sys.modules[module]).items() if callable(value) and key[0] != "_"]
        raise unknown(f"{where} = {name!r}", function, f"function in {module}", names)
    return found


def _made(value: Any) -> Any:
    return value.make() if isinstance(value, Choice) else value


def _storable(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _kept(option: Option, value: Any) -> Any:
    """None is written as "none" where leaving it out would mean something else."""
    return "none" if value is None and option.default is not None else value
