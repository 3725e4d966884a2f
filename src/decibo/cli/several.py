"""[compare] and [sweep]: several methods, or one with several settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from decibo.cli import registry
from decibo.cli.choice import Choice, checked, choose
from decibo.cli.nearest import unknown
from decibo.cli.options import options_of, shown, typed
from decibo.cli.places import Places, as_table
from decibo.cli.spec import parse_spec, parse_value
from decibo.errors import InputError


def compared(given: Any, method: Choice, at: Places, asked: tuple[str, ...]) -> tuple[Choice, ...]:
    """The methods to compare: -a if given, otherwise [compare].methods, each with the settings that all share."""
    table = as_table(given, at("compare"))
    listed = typed(table.pop("methods", []), list[str], at("compare", "methods"))
    texts = [(text, "-a") for text in asked] or [(text, at("compare", "methods")) for text in listed]
    chosen = [
        replace(choose(parse_spec(text, where), registry.methods(), where), label=text.strip()) for text, where in texts
    ]
    known = {name: option for choice in chosen for name, option in choice.known().items()}
    for key in table:
        if chosen and key not in known:
            raise unknown(at("compare", key), key, "setting of these methods", ["methods", *known])
    return tuple(_shared(choice, table, method, at) for choice in chosen)


def _shared(choice: Choice, shared: dict[str, Any], method: Choice, at: Places) -> Choice:
    """The method with what it was not told itself: from [compare], or from [method] if that is the same method."""
    known = choice.known()
    own = {key: value for key, value in shared.items() if key in known}
    common = checked(own, choice.factory, choice.name, at("compare"), choice.own)
    full = choice.told(**{**(method.options if method.name == choice.name else {}), **common})
    if full.missing():
        needs = ",".join(f"{name}=..." for name in full.missing())
        raise InputError(
            f"{choice.where} {choice.name!r} without {', '.join(full.missing())}",
            "this method has no default for it",
            f"Write '{choice.name}[{needs}]', or give it in [compare].",
        )
    return full


def swept(given: Any, method: Choice, at: Places, asked: Iterable[str]) -> tuple[dict[str, list[Any]], Any]:
    """Lists of values by setting, each value checked as the setting itself would be; and the seeds."""
    table, places = as_table(given, at("sweep")), {}
    for text in asked:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise InputError(f"-g {text!r}", "it must read setting=value,value", "Write -g alpha=0.1,0.2.")
        items = parse_value(f"[{values}]")
        table[key.strip()] = items if isinstance(items, list) else [parse_value(item) for item in values.split(",")]
        places[key.strip()] = f"-g {text}"
    seeds = table.pop("seeds", None)
    if seeds is not None:
        seeds = typed(seeds, tuple[int, ...], at("sweep", "seeds"))
    known = options_of(method.factory, method.own)
    for key, values in table.items():
        where = places.get(key, at("sweep", key))
        if key not in known:
            raise unknown(where, key, f"setting of {method.name}", [*known, "seeds"])
        if not isinstance(values, list) or not values:
            raise InputError(f"{where} = {shown(values)}", "it must be a list of values", "Give [0.1, 0.2].")
        table[key] = [typed(value, known[key].hint, f"{where}[{k}]") for k, value in enumerate(values)]
    return table, seeds
