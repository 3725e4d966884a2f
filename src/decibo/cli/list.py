"""decibo list: what a configuration can name, with settings and a line on each."""

from __future__ import annotations

from typing import Any

from rich.padding import Padding
from rich.text import Text

from decibo.cli import registry
from decibo.cli import terminal as show
from decibo.cli.config import UNRELIABLE
from decibo.cli.nearest import unknown
from decibo.cli.options import options_of
from decibo.cli.registry import Registry

KINDS = ("algorithms", "problems", "networks", "measures")
MORE = {"cheap": "every measure that needs no exact solution (default)", "all": "every measure there is"}


def entries(kind: str) -> list[dict[str, Any]]:
    """name, settings and description of each."""
    if kind not in KINDS:
        raise unknown(f"list {kind}", kind, "list", KINDS)
    if kind == "measures":
        return [
            {"name": name, "settings": [], "description": MORE.get(name) or _said(measure)}
            for name, measure in registry.measure_names().items()
        ]
    found = {"algorithms": registry.methods, "problems": registry.problems, "networks": registry.networks}[kind]()
    return [_entry(name, found) for name in found.factories]


def _entry(name: str, found: Registry) -> dict[str, Any]:
    factory = found.factories[name]
    settings = [str(option) for option in options_of(factory).values()]
    more = [f"{option}" for option in UNRELIABLE] if found.kind == "network" and not name.startswith("directed") else []
    return {"name": name, "settings": settings + more, "description": registry.describe(factory)}


def _said(measure: Any) -> str:
    """Measures with a variable in their name are objects whose class says what they are."""
    variable = getattr(measure, "variable", None)
    text = registry.describe(measure if variable is None else type(measure))
    return text if variable is None else text.replace(" of one variable s", "").replace("s_i", f"{variable}_i").replace(
        "sbar", f"{variable}bar"
    )  # fmt: skip


def listing(kind: str, as_json: bool) -> int:
    """Print them."""
    found = entries(kind)
    if as_json:
        show.as_json({kind: found})
        return 0
    for entry in found:
        show.draw(Text(entry["name"], style="bold"))
        if entry["settings"]:
            _indented(", ".join(entry["settings"]))
        _indented(entry["description"])
    brackets = "" if kind == "measures" else "Settings in brackets may be left out. "
    show.say("", brackets + _hint(kind))
    return 0


def _indented(text: str) -> None:
    show.draw(Padding(Text(text), (0, 0, 0, 4)))


def _hint(kind: str) -> str:
    return {
        "algorithms": 'In a configuration: [method] name = "ahead", alpha = 0.05, ...',
        "problems": 'In a configuration: problem = "quadratic", or your own: problem = "my_module:make_problem".',
        "networks": 'In a configuration: [network] name = "ring", agents = 10. failing and sleeping are probabilities.',
        "measures": 'In a configuration: [run] measures = ["stationarity", "consensus_x"], or "my_module:my_measure".',
    }[kind]
