"""What a configuration can name, and what it can set there, read from the signatures of the
library's functions.

A name stands for a function, its factory: `quadratic`, `ring`, `ahead`, or the user's own
`my_module:make_problem`. `options_of` reads the options of a factory from its signature, `choose`
checks a name with its options, and the result, a `Choice`, calls the factory once everything has
been checked.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, is_dataclass, replace
from functools import cache
from typing import Any, Literal, Union

import msgspec
from numpy.typing import ArrayLike

import decibo
from decibo.algorithm.rule import (
    Rule,
    adagrad_norm,
    adam,
    amsgrad,
    heavy_ball,
    nesterov,
    normalised,
)
from decibo.algorithm.schedules import growing, polynomial
from decibo.cli.trust import NOBODY, Trust, import_module
from decibo.data.dataset import Dataset
from decibo.data.loaders import find
from decibo.errors import InputError, first_line, short_repr
from decibo.measure.measures import available
from decibo.problems.minimax import KINDS as MINIMAX
from decibo.validate import did_you_mean, only_known

Factory = Callable[..., object]
Table = dict[str, object]  # of a configuration

REQUIRED = inspect.Parameter.empty
WORDS = {"dataset": "data"}  # what configurations call these parameters of the library
NAMED = (bool, int, float, str, Dataset)  # what a configuration can hold, or name
OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
LISTED = 12  # longer lists of names are left to `decibo list`
IN_WORDS: dict[object, str] = {
    float: "a finite number",
    int: "an integer",
    bool: "true or false",
    str: "text in quotes",
    dict: "a table",
}


# Options, from signatures


@dataclass(frozen=True)
class Option:
    """One parameter of a factory."""

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


def options_of(factory: Factory, own: bool = False) -> dict[str, Option]:
    """The options of a factory by name. Parameters of a user's own function keep the names they
    have."""
    hints = _hints(factory)
    options = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        name = parameter.name if own else WORDS.get(parameter.name, parameter.name)
        hint = _simple(hints.get(parameter.name, _type_of_default(parameter.default)))
        if not own and not any(kind is Dataset or described(kind) for kind in members_of(hint)[0]):
            continue  # a function or an object, which a configuration cannot hold
        options[name] = Option(name, parameter.name, hint, _default(factory, parameter))
    return options


def _default(factory: Factory, parameter: inspect.Parameter) -> object:
    """The default; dataclass fields with a factory have one too."""
    fields = factory.__dataclass_fields__ if is_dataclass(factory) else {}
    make = fields[parameter.name].default_factory if parameter.name in fields else MISSING
    return parameter.default if make is MISSING else make()


def _hints(factory: object) -> dict[str, object]:
    try:
        return typing.get_type_hints(factory)
    # an annotation of the user, or of a package that is only imported where it is used
    except Exception:
        return {}


def _simple(hint: object) -> object:
    """numpy's ArrayLike is a union of twenty types; in a configuration it is a list of numbers."""
    members = typing.get_args(ArrayLike)
    parts = typing.get_args(hint)
    return (
        list[float]
        if ArrayLike in parts or (members and all(part in parts for part in members))
        else hint
    )


def _type_of_default(default: object) -> object:
    return type(default) if isinstance(default, bool | int | float | str) else Any


# Values, converted to the type of an option


def convert(value: object, hint: object, where: str) -> Any:
    """The value as this type, or an InputError that shows it. TOML has no null: "none" stands for
    None."""
    kinds, optional = members_of(hint)
    if value is None or (optional and value == "none"):
        return None
    kinds = [kind for kind in kinds if kind is Any or described(kind)] or [Any]
    try:
        result = msgspec.convert(value, Union[tuple(kinds)])  # noqa: UP007  a union of a list of types
        if _all(_is_finite, result) and not _all(_is_word, result):
            raise InputError(f"{where} must have at most 64 bits, but it is {shown(value)}.")
        if _all(_is_finite, result):
            return result
        inside = ""
    except (msgspec.ValidationError, RecursionError) as error:
        place = re.search(r" - at `\$(.*)`$", str(error))
        inside = "" if place is None or "..." in place[1] else place[1]
    rule = " or ".join(dict.fromkeys(described(kind) or "finite" for kind in kinds))
    at = f", where {inside} is wrong" if inside else ""
    raise InputError(f"{where} must be {rule}, but it is {shown(value)}{at}.")


@contextmanager
def at_place(where: str) -> Iterator[None]:
    """Let what is wrong say where it was written."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.remedy) from error


def table_of(value: object, where: str) -> Table:
    """The value as a table, which it must be."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a table, but it is {shown(value)}.")
    return dict(value)


def members_of(hint: object) -> tuple[list[Any], bool]:
    """The types of a union, and whether None is one of them."""
    parts = (
        typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    )
    return [kind for kind in parts if kind is not type(None)], type(None) in parts


def shown(value: object) -> str:
    """A value in a message: as TOML has it where that differs from Python, and never a page of
    it."""
    return str(value).lower() if isinstance(value, bool) else short_repr(value)


def described(kind: object) -> str:
    """A type in words; nothing for those that a configuration cannot hold."""
    origin = typing.get_origin(kind) or kind
    parts = typing.get_args(kind)
    if origin is Literal:
        return " or ".join(f'"{part}"' for part in parts)
    if origin in (list, tuple):
        return f"a list, each item {described(parts[0])}" if parts else "a list"
    if origin in (dict, Mapping) and len(parts) > 1:
        return f"a table, each value {described(parts[1])}"
    return IN_WORDS.get(origin, "")


def _all(holds: Callable[[object], bool], value: object) -> bool:
    """Whether it holds for every number in a value."""
    inner = (
        value.values()
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list | tuple)
        else None
    )
    return holds(value) if inner is None else all(_all(holds, item) for item in inner)


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _is_word(value: object) -> bool:
    """TOML's integers have 64 bits, although Python reads and computes with longer ones."""
    return not isinstance(value, int) or -(2**63) <= value < 2**63


# Names, from the library


@dataclass(frozen=True)
class Registry:
    """Factories of one kind by name."""

    kind: str
    factories: dict[str, Factory]
    returns: tuple[Any, ...]  # the types that its factories return
    noun: str = "option"  # what the parameters of its factories are called
    command: str = ""  # lists all of them


@cache
def problems() -> Registry:
    """Ready-made problems; `minimax` is left out in favour of its kinds."""
    found = _returning(decibo.Problem) | {factory.__name__: factory for factory in MINIMAX.values()}
    found.pop("minimax", None)
    return Registry(
        "problem", dict(sorted(found.items())), (decibo.Problem,), command="decibo list problems"
    )


@cache
def networks() -> Registry:
    """Networks that numbers alone describe."""
    kinds = (decibo.Network, decibo.DirectedNetwork)
    found = {name: factory for kind in kinds for name, factory in _returning(kind).items()}
    return Registry("network", dict(sorted(found.items())), kinds, command="decibo list networks")


@cache
def methods() -> Registry:
    """The catalogue."""
    return Registry(
        "method", dict(decibo.CATALOG), (decibo.Algorithm,), "setting", "decibo list methods"
    )


@cache
def datasets() -> Registry:
    """Data sets."""
    functions = (getattr(decibo.data, name) for name in decibo.data.__all__)
    return Registry(
        "data set", {f.__name__: f for f in functions if return_type(f) is Dataset}, (Dataset,)
    )


@cache
def schedules() -> Registry:
    """Functions of the step that a step size or a penalty may be."""
    return Registry("schedule", {f.__name__: f for f in (growing, polynomial)}, (Callable,))


@cache
def rules() -> Registry:
    """What the step size of a composed method may be besides a number: schedules, and rules for one
    variable."""
    found = (heavy_ball, nesterov, normalised, adagrad_norm, adam, amsgrad)
    return Registry(
        "rule", schedules().factories | {f.__name__: f for f in found}, (Rule, Callable)
    )


def measures() -> Mapping[str, Callable[..., object] | None]:
    """Every built-in measure; consensus_s stands for one of each variable of the method."""
    found = available(("x", "y", "z", "v", "c"), ("x", "y"), has_direction=True, has_rest=True)
    return found | {"cheap": None, "all": None}


def unknown(
    where: str, name: str, kind: str, names: Iterable[str], command: str = ""
) -> InputError:
    """The error for an unknown name: the nearest valid one, and all of them unless a command lists
    them."""
    words = list(names)
    if len(words) <= LISTED or not command:
        listed = f"Valid names are {', '.join(words)}." if words else "There are none."
    else:
        listed = f"`{command}` lists all {len(words)}."
    return InputError(
        f"{where}: there is no {kind} {shown(name)}.",
        f"{did_you_mean(name, words)} {listed}".lstrip(),
    )


def _returning(kind: type) -> dict[str, Factory]:
    """Public functions that make one of these from what can be written in a configuration."""
    public = {
        name: getattr(room, name)
        for room in (decibo.networks, decibo.problems)
        for name in room.__all__
    }
    return {
        name: value
        for name, value in public.items()
        if inspect.isfunction(value) and return_type(value) is kind and _writable(value)
    }


def return_type(factory: object) -> object:
    """The annotated type of what a function returns."""
    return _hints(factory).get("return")


def _writable(factory: Factory) -> bool:
    parameters = inspect.signature(factory).parameters.values()
    required = {
        each.name
        for each in parameters
        if each.default is REQUIRED and each.kind != each.VAR_KEYWORD
    }
    options = [option for option in options_of(factory).values() if option.parameter in required]
    holds = lambda option: any(kind in NAMED for kind in members_of(option.hint)[0])
    return len(options) == len(required) and all(map(holds, options))


# A name with its options


@dataclass(frozen=True)
class Choice:
    """A factory and the options to call it with."""

    name: str
    factory: Factory = field(repr=False)
    options: Table  # by the configuration's names: numbers, texts, lists, or choices again
    where: str = ""  # where it was chosen, for messages
    own: bool = False  # whether it is the user's own function
    label: str = ""  # what tables call it
    noun: str = "option"

    def with_defaults(self, **options: object) -> Choice:
        """The same with more options; those that it has already stay."""
        return replace(self, options={**options, **self.options})

    @property
    def parameters(self) -> dict[str, Option]:
        """All options that it could have."""
        return options_of(self.factory, self.own)

    def missing(self) -> list[str]:
        """Options without which it cannot be called."""
        return [
            name
            for name, option in self.parameters.items()
            if option.required and name not in self.options
        ]

    def make(self) -> Any:
        """Call the factory. Bugs in the user's own function are not caught."""
        missing = self.missing()
        if missing:
            noun = self.noun if len(missing) == 1 else f"{self.noun}s"
            raise InputError(f"{self.where}: {self.name} needs the {noun} {', '.join(missing)}.")
        parameters = self.parameters
        arguments = {
            parameters[name].parameter: value.make() if isinstance(value, Choice) else value
            for name, value in self.options.items()
        }
        try:
            with at_place(self.where):
                return self.factory(**arguments)
        except InputError:
            raise
        except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
            if self.own:
                raise
            reason = first_line(error).rstrip(".")
            raise InputError(
                f"{self.where}: {self.name} raised {type(error).__name__}: {reason}."
            ) from error

    def as_table(self) -> Table:
        """As a table of a configuration, with every default that a configuration can hold."""
        parameters = self.parameters
        defaults = {
            name: option.default
            for name, option in parameters.items()
            if isinstance(option.default, bool | int | float | str)
        }
        options = {name: _storable(value, parameters[name]) for name, value in self.options.items()}
        return {"name": self.name, **defaults, **options}


def _storable(value: object, option: Option) -> object:
    """None is written as "none" where leaving it out would mean something else."""
    if isinstance(value, Choice):
        return value.as_table()
    return "none" if value is None and option.default is not None else value


def choose(
    value: object,
    registry: Registry,
    where: str,
    places: Mapping[str, str] | None = None,
    trust: Trust = NOBODY,
) -> Choice:
    """A choice from `"name"`, `"module:function"` or `{name = "...", option = ...}`; `places` are
    those of options."""
    table = {"name": value} if isinstance(value, str) else value
    name = table.get("name") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(name, str):
        raise InputError(
            f"{where} must be the name of a {registry.kind}, or a table with a name, but it is"
            f" {shown(value)}.",
            f'For example: "{next(iter(registry.factories))}".',
        )
    own = ":" in name
    if not own and name not in registry.factories:
        raise unknown(where, name, registry.kind, registry.factories, registry.command)
    factory = own_factory(name, where, registry, trust) if own else registry.factories[name]
    options = {key: item for key, item in table.items() if key != "name"}
    checked = check_options(options, factory, name, where, own, registry.noun, places, trust)
    return Choice(name, factory, checked, where, own, noun=registry.noun)


def check_options(
    table: Mapping[str, object],
    factory: Factory,
    owner: str,
    where: str,
    own: bool = True,
    noun: str = "option",
    places: Mapping[str, str] | None = None,
    trust: Trust = NOBODY,
) -> Table:
    """The options in a table, if the factory has all of them and every value is of its type."""
    parameters = options_of(factory, own)
    options = {}
    for key, value in table.items():
        place = (places or {}).get(key, f"{where}.{key}")
        only_known(f"{place}: {owner}", noun, [key], parameters)
        options[key] = _option(value, parameters[key].hint, place, trust)
    return {
        key: value
        for key, value in options.items()
        if value is not None or not parameters[key].required
    }


def _option(value: object, hint: object, where: str, trust: Trust) -> object:
    """Data sets and schedules are choices themselves; all else is checked by its type."""
    kinds, _ = members_of(hint)
    if Dataset in kinds and value != "none":
        return choose(_dataset(value), datasets(), where, trust=trust)
    if isinstance(value, Mapping) and any(typing.get_origin(kind) is Callable for kind in kinds):
        # a rate is a number or a function of the step, and a step size may be a rule
        return choose(value, rules() if Rule in kinds else schedules(), where, trust=trust)
    return convert(value, hint, where)


def _dataset(value: object) -> object:
    """A file, here or in $DECIBO_DATA, whose name is not that of a data set is one in LIBSVM's
    format."""
    if isinstance(value, str) and value not in datasets().factories:
        path = (
            value
            if os.path.isfile(value)
            else find(value)
            if re.fullmatch(r"[\w.-]+", value)
            else None
        )
        return {"name": "libsvm", "path": str(path)} if path else value
    return value


# The user's own functions


def own_function(name: str, where: str, trust: Trust) -> tuple[Factory, str]:
    """The user's own function `module:function` and its module, which is imported if the user
    agrees."""
    if not OWN.fullmatch(name):
        raise InputError(
            f"{where} must read module:function, but it is {shown(name)}.",
            'Example: "my_module:make".',
        )
    module, _, function = name.partition(":")
    found = import_module(module, where, trust)
    value = getattr(found, function, None)
    if not callable(value):
        names = [key for key, item in vars(found).items() if callable(item) and key[0] != "_"]
        raise unknown(where, function, f"function in {module}", names)
    return value, module


def own_factory(name: str, where: str, registry: Registry, trust: Trust) -> Factory:
    """The user's own function, if it declares that it returns what is wanted; no other one is ever
    called."""
    factory, _ = own_function(name, where, trust)
    if not _declares(factory, registry.returns):
        names = [kind.__name__ for kind in registry.returns]
        wanted = " | ".join(f"decibo.{name}" if hasattr(decibo, name) else name for name in names)
        raise InputError(
            f"{where}: {name} does not declare that it returns a {registry.kind}.",
            f"Write: def {name.partition(':')[2]}(...) -> {wanted}",
        )
    return factory


def own_measure(name: str, where: str, trust: Trust) -> Factory:
    """The user's own measure: a function that the module, or its package, defines and does not
    merely import."""
    measure, module = own_function(name, where, trust)
    home = str(getattr(measure, "__module__", ""))
    if home.partition(".")[0] != module.partition(".")[0]:
        raise InputError(
            f"{where}: {name} is not a measure of that module, but was imported there from {home}."
        )
    return measure


def _declares(factory: Factory, wanted: tuple[Any, ...]) -> bool:
    declared = [factory] if inspect.isclass(factory) else members_of(return_type(factory))[0]
    kinds = [typing.get_origin(kind) or kind for kind in declared]
    return bool(kinds) and all(inspect.isclass(kind) and issubclass(kind, wanted) for kind in kinds)
