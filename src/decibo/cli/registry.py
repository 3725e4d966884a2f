"""What a configuration can name: found among the library's own functions by what they return."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import decibo
from decibo.algorithm.schedules import growing, polynomial
from decibo.cli.options import Option, members, options_of
from decibo.data.dataset import Dataset
from decibo.measure import measures
from decibo.problems.minimax import KINDS as MINIMAX

WRITABLE = (bool, int, float, str, Dataset)  # what a configuration can hold, or name


@dataclass(frozen=True)
class Registry:
    """Functions of one kind by name, and the command that lists them."""

    kind: str
    factories: dict[str, Callable[..., Any]]
    look: str = ""


@cache
def problems() -> Registry:
    """Ready-made problems; minimax stands for one of its kinds."""
    found = _returning(decibo.Problem) | {factory.__name__: factory for factory in MINIMAX.values()}
    found.pop("minimax", None)
    return Registry("problem", dict(sorted(found.items())), "decibo list problems")


@cache
def networks() -> Registry:
    """Networks that numbers alone describe."""
    found = _returning(decibo.Network) | _returning(decibo.DirectedNetwork)
    return Registry("network", dict(sorted(found.items())), "decibo list networks")


@cache
def methods() -> Registry:
    """The catalogue."""
    return Registry("method", dict(decibo.CATALOG), "decibo list methods")


@cache
def datasets() -> Registry:
    """Data sets."""
    functions = (getattr(decibo.data, name) for name in decibo.data.__all__)
    return Registry("data set", {f.__name__: f for f in functions if _answer(f) is Dataset})


@cache
def schedules() -> Registry:
    """Functions of the step that a step size or a penalty may be."""
    return Registry("schedule", {f.__name__: f for f in (growing, polynomial)})


def measure_names() -> dict[str, Any]:
    """Every built-in measure; consensus_s stands for one of each variable of the method."""
    found = measures.available(("x", "y", "z", "v", "c"), ("x", "y"), has_direction=True)
    return found | {"cheap": None, "all": None}


def describe(factory: Callable[..., Any]) -> str:
    """The first sentence of its docstring."""
    return (inspect.getdoc(factory) or "").split("\n\n")[0].replace("\n", " ").strip()


def _returning(kind: type) -> dict[str, Callable[..., Any]]:
    """Public functions that make one of these from what can be written in a configuration."""
    public = {name: getattr(room, name) for room in (decibo.networks, decibo.problems) for name in room.__all__}
    return {
        name: value
        for name, value in public.items()
        if inspect.isfunction(value) and _answer(value) is kind and _writable(value)
    }


def _answer(factory: Any) -> Any:
    try:
        return typing.get_type_hints(factory).get("return")
    except (NameError, TypeError):  # an annotation of a package that is only imported where it is used
        return None


def _writable(factory: Callable[..., Any]) -> bool:
    signature, options = inspect.signature(factory), options_of(factory)
    named = {option.parameter for option in options.values()}
    needed = {p.name for p in signature.parameters.values() if p.default is p.empty and p.kind != p.VAR_KEYWORD}
    return needed <= named and all(_holds(option) for option in options.values() if option.required)


def _holds(option: Option) -> bool:
    return any(kind in WRITABLE for kind in members(option.hint)[0])
