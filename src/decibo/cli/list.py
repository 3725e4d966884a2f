"""decibo list: the methods, problems, networks and measures of decibo, a line for each, or one of
them in full.

All of it is read from the source text, without running it: importing JAX would take a second.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.validate import one_of

KINDS = ("methods", "problems", "networks", "measures")
VARIABLES = ("x", "y", "z", "v", "c")  # of which consensus_s is listed
HINTS = {
    "methods": "In a file: method = decibo.ahead(alpha=0.05, ...), or decibo.methods.NAME(...).",
    "problems": "In a file: problem = decibo.problems.NAME(...), or your own decibo.Problem(...).",
    "networks": "In a file: network = decibo.networks.NAME(...).",
    "measures": 'In a file: measures = ["stationarity", "consensus_x", my_function].',
}

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
        return [_described(made, names) for made, names in _made_by("method")]
    # The functions among the public names that return what the room is about.
    wanted = ("Problem",) if kind == "problems" else ("Network", "DirectedNetwork")
    found: list[Entry] = []
    for line in _parsed(f"{kind}/__init__.py").body:
        if isinstance(line, ast.ImportFrom) and line.module and line.module.startswith("decibo."):
            public = {alias.name for alias in line.names}
            place = line.module.removeprefix("decibo.").replace(".", "/") + ".py"
            found += [
                _described(each, _texts(place))
                for each in _parsed(place).body
                if isinstance(each, ast.FunctionDef) and each.name in public
                if each.returns is not None and ast.unparse(each.returns) in wanted
            ]
    return sorted(found, key=lambda entry: str(entry["name"]))


def names_of_methods() -> list[str]:
    """All methods, for the completion of a shell."""
    return [made.name for made, _ in _made_by("method")]


@cache
def _parsed(path: str) -> ast.Module:
    return ast.parse((_root() / path).read_text(encoding="utf-8"))


def _root() -> Path:
    return Path(str(decibo.__file__)).parent


def _texts(path: str) -> dict[str, str]:
    """The constants of a module that are text, those that it imports too."""
    found: dict[str, str] = {}
    for line in _parsed(path).body:
        if isinstance(line, ast.ImportFrom) and line.module == "decibo.algorithm.algorithm":
            found |= _texts("algorithm/algorithm.py")
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            text = _text(line.value, found)
            found |= {} if text is None else {line.targets[0].id: text}
    return found


def _text(node: ast.expr | None, names: dict[str, str]) -> str | None:
    """The value of an expression that is text: a literal, a name, or an f-string of names."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, names)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names) or "" for part in node.values)
    return None


def _made_by(decorator: str) -> Iterator[tuple[ast.FunctionDef, dict[str, str]]]:
    """Functions with this decorator, with the texts of their modules: in the order in which
    decibo.methods and decibo.contrib import them."""
    first = lambda path: (path.name != "methods.py", path.name)
    core = sorted((_root() / "algorithm").glob("*.py"), key=first)
    for path in [*core, *sorted((_root() / "contrib").glob("*.py"))]:
        place = path.relative_to(_root()).as_posix()
        if f"\n@{decorator}" in path.read_text(encoding="utf-8"):
            for each in _parsed(place).body:
                if isinstance(each, ast.FunctionDef) and each.decorator_list:
                    maker = each.decorator_list[0]
                    maker = maker.func if isinstance(maker, ast.Call) else maker
                    if isinstance(maker, ast.Name) and maker.id == decorator:
                        yield each, _texts(place)


def _described(made: ast.FunctionDef, texts: dict[str, str]) -> Entry:
    entry = _entry(made.name, ast.get_docstring(made) or "", _settings(made.args, texts))
    for maker in made.decorator_list:
        given = maker.keywords if isinstance(maker, ast.Call) else []
        for keyword in given:
            if keyword.arg == "provenance":
                entry["provenance"] = _text(keyword.value, texts)
    return entry


def _entry(name: str, text: str, settings: list[str] | None = None) -> Entry:
    first = inspect.cleandoc(text).split("\n\n")[0].replace("\n", " ").strip()
    return {"name": name, "settings": settings or [], "description": first}


def _settings(given: ast.arguments, texts: dict[str, str]) -> list[str]:
    """The arguments: in brackets what may be left out, otherwise with the default."""
    plain = [*given.posonlyargs, *given.args]
    before: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    defaults = [*before, *given.defaults, *given.kw_defaults]
    shown = []
    for argument, default in zip([*plain, *given.kwonlyargs], defaults, strict=True):
        value = default.value if isinstance(default, ast.Constant) else default
        if default is None:
            shown.append(argument.arg)
        elif value is None:
            shown.append(f"[{argument.arg}]")
        elif isinstance(value, ast.expr):
            shown.append(f"{argument.arg}={_text(value, texts) or ast.unparse(value)}")
        else:
            text = f"{value:.6g}" if isinstance(value, float) else value
            shown.append(f"{argument.arg}={text}")
    return [*shown, *(["..."] if given.vararg or given.kwarg else [])]


def _measures() -> Iterator[Entry]:
    """Functions of a snapshot, and ConsensusError of each variable, whose class describes them."""
    for each in _parsed("measure/measures.py").body:
        text = ast.get_docstring(each) if isinstance(each, ast.FunctionDef | ast.ClassDef) else None
        if isinstance(each, ast.ClassDef) and each.name == "ConsensusError":
            for s in VARIABLES:
                words = (text or "").replace("one variable s", s).replace("s_i", f"{s}_i")
                yield _entry(f"consensus_{s}", words.replace("sbar", f"{s}bar"))
        elif isinstance(each, ast.FunctionDef) and each.name[0] != "_" and each.args.args:
            first = each.args.args[0].annotation
            if len(each.args.args) == 1 and first and ast.unparse(first) == "Snapshot":
                yield _entry(each.name, text or "")
