"""decibo list: the methods, problems, networks and measures of decibo, a line for each, or one of
them in full.

Importing JAX would take a second. So modules are run without their imports and without what their
functions do: constants, signatures, docstrings and the decorator `method` are left.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.validate import one_of

KINDS = ("methods", "problems", "networks", "measures")
VARIABLES = ("x", "y", "z", "v", "c")  # of which consensus_s is listed
HINTS = {
    "methods": "In a file: method = decibo.ahead(alpha=0.05, ...), or decibo.methods.NAME(...), the"
    " last ones decibo.contrib.NAME(...).",
    "problems": "In a file: problem = decibo.problems.NAME(...), or your own decibo.Problem(...).",
    "networks": "In a file: network = decibo.networks.NAME(...).",
    "measures": 'In a file: measures = ["stationarity", "consensus_x", my_function].',
}
RETURNED = {"problems": ("Problem",), "networks": ("Network", "DirectedNetwork")}
WORDS = "algorithm/algorithm.py"  # about where rules were read, which modules of methods import

Entry = dict[str, object]


def listing(kind: str, name: str | None, as_json: bool) -> int:
    """A line for each, or all about the one that is named."""
    rows = entries(kind)
    if name is not None:
        wanted = one_of("NAME", name, [str(row["name"]) for row in rows])
        rows = [row for row in rows if row["name"] == wanted]
    if as_json:
        terminal.print_plain_json({kind: rows})
    elif name is not None:
        (row,) = rows
        settings = row["settings"]
        terminal.say(f"{name}({', '.join(settings) if isinstance(settings, list) else ''})")
        terminal.say(*(str(row[part]) for part in ("description", "provenance") if row.get(part)))
    else:
        width = max(len(str(row["name"])) for row in rows) + 2
        for row in rows:
            line = f"{row['name']:{width}}{row['description']}"
            print(line if len(line) <= terminal.WIDTH else line[: terminal.WIDTH - 3] + "...")
        all_about = f"Settings and sources: decibo list {kind} NAME. " if kind != "measures" else ""
        terminal.say("", all_about + HINTS[kind])
    return Exit.RAN


def entries(kind: str) -> list[Entry]:
    """The name, the settings and a description of each."""
    one_of("KIND", kind, KINDS)
    if kind == "measures":
        text = "Every measure that needs no exact solution (the default)."
        return [*_measures(), _entry("cheap", text), _entry("all", "Every measure.")]
    if kind == "methods":
        return [_described(made) | {"provenance": words} for made, words in _methods()]
    # The functions among the public names that return what the room is about.
    found: list[Entry] = []
    for line in _parsed(f"{kind}/__init__.py").body:
        if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("decibo."):
            made = _run(str(line.module).removeprefix("decibo.").replace(".", "/") + ".py")
            public = [made[alias.name] for alias in line.names if alias.name in made]
            found += [
                _described(each)
                for each in public
                if inspect.isfunction(each) and each.__annotations__.get("return") in RETURNED[kind]
            ]
    return sorted(found, key=lambda entry: str(entry["name"]))


def names_of_methods() -> list[str]:
    """All methods, for the completion of a shell."""
    return [made.__name__ for made, _ in _methods()]


def _parsed(path: str) -> ast.Module:
    return ast.parse((Path(str(decibo.__file__)).parent / path).read_text(encoding="utf-8"))


@cache
def _run(path: str) -> dict[str, Any]:
    """What a module defines; its methods, with where their rules were read, are under ""."""
    methods: list[tuple[Callable[..., Any], str]] = []

    def method(*plain: Callable[..., Any], provenance: str = "") -> Any:
        enter = lambda made: methods.append((made, provenance)) or made
        return enter(*plain) if plain else enter

    names: dict[str, Any] = {} if path == WORDS else dict(_run(WORDS))
    names |= {"method": method, "": methods, "__name__": path}
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.body = [ast.Expr(ast.Constant(ast.get_docstring(node) or ""))]
        if isinstance(node, ast.ClassDef):
            node.bases, node.keywords, node.decorator_list = [], [], []
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
            alone = ast.fix_missing_locations(ast.Module([node], []))
            with suppress(Exception):  # it needs what was not imported
                exec(compile(alone, path, "exec"), names)  # annotations stay words, as here
    return names


def _methods() -> Iterator[tuple[Callable[..., Any], str]]:
    """In the order in which decibo.methods and decibo.contrib import them."""
    root = Path(str(decibo.__file__)).parent
    first = lambda path: (path.name != "methods.py", path.name)
    core = sorted((root / "algorithm").glob("*.py"), key=first)
    for path in [*core, *sorted((root / "contrib").glob("*.py"))]:
        if "\n@method" in path.read_text(encoding="utf-8"):
            yield from _run(path.relative_to(root).as_posix())[""]


def _described(made: Callable[..., Any]) -> Entry:
    """In brackets what may be left out, otherwise with the default."""
    settings = []
    for each in inspect.signature(made).parameters.values():
        value = each.default
        shown = f"{value:.6g}" if isinstance(value, float) else value
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            settings.append("...")
        elif value is each.empty:
            settings.append(each.name)
        else:
            settings.append(f"[{each.name}]" if value is None else f"{each.name}={shown}")
    return _entry(made.__name__, made.__doc__ or "", settings)


def _entry(name: str, text: str, settings: list[str] | None = None) -> Entry:
    first = inspect.cleandoc(text).split("\n\n")[0].replace("\n", " ").strip()
    return {"name": name, "settings": settings or [], "description": first}


def _measures() -> Iterator[Entry]:
    """Functions of a snapshot, and ConsensusError of each variable, whose class describes them."""
    for name, made in _run("measure/measures.py").items():
        text = getattr(made, "__doc__", None) or ""
        if name == "ConsensusError":
            for s in VARIABLES:
                words = text.replace("one variable s", s).replace("s_i", f"{s}_i")
                yield _entry(f"consensus_{s}", words.replace("sbar", f"{s}bar"))
        elif inspect.isfunction(made) and name[0] != "_":
            (first, *others) = inspect.signature(made).parameters.values() or [None]
            if first is not None and not others and first.annotation == "Snapshot":
                yield _entry(name, text)
