"""decibo list: the methods, problems, networks and measures of decibo, each with its settings and a
sentence about it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

import decibo
from decibo import contrib
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.options import Json
from decibo.formatting import format_setting
from decibo.measure.measures import available
from decibo.validate import one_of

KINDS = ("methods", "problems", "networks", "measures")
GROUPS = {
    "cheap": "Every measure that needs no exact solution (the default).",
    "all": "Every measure.",
}
HINTS = {
    "methods": "In a file: method = decibo.ahead(alpha=0.05, ...), or decibo.methods.NAME(...).",
    "problems": "In a file: problem = decibo.problems.NAME(...), or your own decibo.Problem(...).",
    "networks": "In a file: network = decibo.networks.NAME(...).",
    "measures": 'In a file: measures = ["stationarity", "consensus_x", my_function].',
}


def listing(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="methods, problems, networks, measures",
            autocompletion=lambda incomplete: [
                kind for kind in KINDS if kind.startswith(incomplete)
            ],
        ),
    ],
    as_json: Json = False,
) -> int:
    """List methods, problems, networks or measures."""
    rows = entries(kind)
    if as_json:
        terminal.print_json({kind: rows})
        return Exit.RAN
    for place, row in enumerate(rows):
        if kind == "methods" and place == len(decibo.CATALOG):
            terminal.say("", "decibo.contrib, beside the core:", "")
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
        # consensus_s stands for one of each variable of the method
        found = available(("x", "y", "z", "v", "c"), ("x", "y"), has_direction=True, has_rest=True)
        return [
            {"name": name, "settings": [], "description": GROUPS.get(name) or _of_measure(measure)}
            for name, measure in (found | {"cheap": None, "all": None}).items()
        ]
    makers: dict[str, Callable] = (
        dict(decibo.CATALOG | contrib.CATALOG) if kind == "methods" else {}
    )
    if kind != "methods":
        room, *kinds = (
            (decibo.problems, decibo.Problem)
            if kind == "problems"
            else (decibo.networks, decibo.Network, decibo.DirectedNetwork)
        )
        public = {name: getattr(room, name) for name in sorted(room.__all__)}
        makers = {
            name: make
            for name, make in public.items()
            if inspect.isfunction(make) and _returned(make) in kinds
        }
    return [
        {
            "name": name,
            "settings": [_setting(each) for each in inspect.signature(make).parameters.values()],
            "description": _first_paragraph(make),
            "provenance": getattr(make, "provenance", ""),  # methods have one
        }
        for name, make in makers.items()
    ]


def _returned(make: Callable) -> object:
    try:
        return typing.get_type_hints(make).get("return")
    except Exception:  # an annotation of a package that is only imported where it is used
        return None


def _setting(parameter: inspect.Parameter) -> str:
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return "..."
    if parameter.default is parameter.empty:
        return parameter.name
    if parameter.default is None:
        return f"[{parameter.name}]"
    return f"{parameter.name}={format_setting(parameter.default)}"


def _first_paragraph(factory: object) -> str:
    return (inspect.getdoc(factory) or "").split("\n\n")[0].replace("\n", " ").strip()


def _of_measure(measure: Callable | None) -> str:
    """Measures with a variable in their name are objects whose class describes them."""
    variable = getattr(measure, "variable", None)
    if variable is None:
        return _first_paragraph(measure)
    text = _first_paragraph(type(measure)).replace("one variable s", variable)
    return text.replace("s_i", f"{variable}_i").replace("sbar", f"{variable}bar")
