"""decibo list: what a configuration can name, each with its settings and a sentence about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from rich.padding import Padding
from rich.text import Text

import decibo
from decibo.cli import registry, terminal
from decibo.cli.errors import Exit
from decibo.cli.networks import AROUND
from decibo.cli.registry import Registry, options_of
from decibo.validate import one_of

KINDS = ("methods", "problems", "networks", "measures")
GROUPS = {
    "cheap": "Every measure that needs no exact solution (the default).",
    "all": "Every measure.",
}
HINTS = {
    "methods": 'In a configuration: [method] name = "ahead", alpha = 0.05, ...',
    "problems": (
        'In a configuration: problem = "quadratic", or your own: problem ='
        ' "my_module:make_problem".'
    ),
    "networks": (
        'In a configuration: [network] name = "ring", agents = 10. failing and sleeping are'
        " probabilities, chebyshev is a number of exchanges in a step."
    ),
    "measures": (
        'In a configuration: [run] measures = ["stationarity", "consensus_x"], or'
        ' "my_module:my_measure".'
    ),
}


def listing(kind: str, as_json: bool) -> Exit:
    """Print all of one kind."""
    rows = entries(kind)
    if as_json:
        terminal.print_json({kind: rows})
        return Exit.RAN
    for row in rows:
        terminal.draw(Text(str(row["name"]), style="bold"))
        settings = ", ".join(row["settings"])
        for text in (settings, row["description"], row.get("provenance")):
            if text:
                terminal.draw(Padding(Text(str(text)), (0, 0, 0, 4)))
    optional = "" if kind == "measures" else "Settings in brackets are optional. "
    terminal.say("", optional + HINTS[kind])
    return Exit.RAN


def entries(kind: str) -> list[dict]:
    """The name, the settings and a description of each."""
    one_of("KIND", kind, KINDS)
    if kind == "measures":
        return [
            {"name": name, "settings": [], "description": GROUPS.get(name) or _of_measure(measure)}
            for name, measure in registry.measures().items()
        ]
    kinds = {
        "methods": registry.methods,
        "problems": registry.problems,
        "networks": registry.networks,
    }
    return [_entry(name, kinds[kind]()) for name in kinds[kind]().factories]


def _entry(name: str, known: Registry) -> dict:
    factory = known.factories[name]
    settings = [str(option) for option in options_of(factory).values()]
    if registry.return_type(factory) is decibo.Network:
        settings += [f"[{option}]" for option in AROUND]
    provenance = getattr(factory, "provenance", "")  # methods have one
    return {
        "name": name,
        "settings": settings,
        "description": _first_paragraph(factory),
        "provenance": provenance,
    }


def _first_paragraph(factory: object) -> str:
    return (inspect.getdoc(factory) or "").split("\n\n")[0].replace("\n", " ").strip()


def _of_measure(measure: Callable | None) -> str:
    """Measures with a variable in their name are objects whose class describes them."""
    variable = getattr(measure, "variable", None)
    if variable is None:
        return _first_paragraph(measure)
    text = _first_paragraph(type(measure)).replace("one variable s", variable)
    return text.replace("s_i", f"{variable}_i").replace("sbar", f"{variable}bar")
