"""The reference lists every public name with the signature it has, and every public name explains
itself in `help()`.

A section of docs/reference.md whose heading is a namespace (`## decibo.networks`) has one table row
for each name of its `__all__`; the row begins with the name and its signature, and the rest of it
is written by hand.

    python tests/test_reference.py        write the signatures into the page again; lists rows to
                                          add or to remove
"""

import importlib
import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest

import decibo
from decibo.algorithm import algorithm
from decibo.measure import measures

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
PAPERS = PAGE.with_name("references.md")
NAMESPACES = (
    "decibo",
    *(f"decibo.{name}" for name in decibo.__all__ if isinstance(getattr(decibo, name), ModuleType)),
)
RETURNED = {
    "Cost",
    "Snapshot",
    "Solution",
    "Status",
    "Sweep",
    "Bound",
    "Potential",
    "Rule",
    "Theorem1",
    "RunRecord",
}
RETURNED |= {"Repeats", "Stream", "ExactBound", "ExactSteps", "FineConstants", "StartErrors"}
PROVENANCE = {
    algorithm.READ: "read",
    algorithm.ABSTRACT: "abstract",
    algorithm.RECALLED: "recalled",
    algorithm.INFERRED: "inferred",
    "The method of this library, derived in docs/explanation/methods.md.": "our own",
    algorithm.RUN: "run",
}
SECTION = re.compile(r"^## (decibo[\w.]*)$\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)([^`]*)` \|(.*)$", re.MULTILINE)
MEMBER = re.compile(r"`\.(\w+)(\([^`]*\))?`")


def namespace(path):
    """The module behind a public path: decibo.consensus is a file of decibo.algorithm."""
    return decibo if path == "decibo" else getattr(decibo, path.removeprefix("decibo."))


def signature(value):
    """The arguments of a function or class as the reference writes them: names, kinds and defaults,
    without types."""
    if (
        isinstance(value, ModuleType | dict)
        or value.__name__ in RETURNED
        or isinstance(value, type(Enum))
    ):
        return ""
    if isinstance(value, type) and issubclass(value, Exception) and "__init__" not in vars(value):
        return "(message)"
    parameters = inspect.signature(value).parameters.values()
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    shown = [
        (
            parameter.replace(default=_Default(parameter.default))
            if _has_default(parameter)
            else parameter
        )
        for parameter in plain
        if not parameter.name.startswith("_")
    ]
    return str(inspect.Signature([parameter for parameter in shown if parameter.name != "self"]))


class _Default:
    """A default as a reader would type it; functions, factories and private marks are only hinted
    at."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        if isinstance(self.value, str):
            return f'"{self.value}"'
        text = repr(self.value)
        return "..." if text.startswith("<") else text


def _has_default(parameter):
    return parameter.default is not parameter.empty


def sections():
    return dict(SECTION.findall(PAGE.read_text()))


@pytest.mark.parametrize("path", NAMESPACES)
def test_a_section_lists_what_its_namespace_exports(path):
    listed = [name for name, _, _ in ROW.findall(sections()[path])]
    exported = set(namespace(path).__all__)
    assert len(listed) == len(set(listed)), "a name is listed twice"
    assert not exported - set(listed), "names without a row"
    assert not set(listed) - exported, "rows of names that do not exist"


@pytest.mark.parametrize("path", NAMESPACES)
def test_signatures_are_those_of_the_code(path):
    module = namespace(path)
    rows = ROW.findall(sections()[path])
    shown = {name: arguments for name, arguments, _ in rows}
    assert shown == {name: signature(getattr(module, name)) for name in shown}


@pytest.mark.parametrize("name", ["host", "torch", "flare"])
def test_signatures_of_integrations_are_those_of_the_code(name):
    """A row begins with `decibo.integrations.host.value(...)`; others of the module follow as
    `.gradient(...)`."""
    if name != "host":
        pytest.importorskip({"flare": "nvflare"}.get(name, name))
    module = importlib.import_module(f"decibo.integrations.{name}")
    rows = re.findall(
        rf"^\| (`decibo\.integrations\.{name}\..*?) \| ", PAGE.read_text(), re.MULTILINE
    )
    shown = dict(re.findall(r"`[\w.]*\.(\w+)(\([^`]*\))`", " ".join(rows)))
    assert shown
    assert shown == {each: signature(getattr(module, each)) for each in shown}


@pytest.mark.parametrize("path", NAMESPACES)
def test_members_that_a_row_mentions_exist(path):
    """`.name` is an attribute of the class in that row, `.name(arguments)` one of its methods."""
    for name, _, text in ROW.findall(sections()[path]):
        owner = getattr(namespace(path), name)
        for member, arguments in MEMBER.findall(text):
            fields = [
                *getattr(owner, "__dataclass_fields__", ()),
                *getattr(owner, "__annotations__", ()),
            ]
            assert member in fields or member.endswith("_") or hasattr(owner, member), (
                f"{name}.{member}"
            )
            if arguments:
                assert arguments == signature(getattr(owner, member)), f"{name}.{member}"


def provenance(method):
    """How sure we are of a method's rule, in a few words; the reference explains them."""
    text = method.provenance
    words = []
    for sentence, word in PROVENANCE.items():
        if sentence in text:
            words.append(word)
            text = text.replace(sentence, "")
    return "; ".join([*words, "see its docstring"] if text.strip() else words)


def test_the_provenance_of_methods_is_the_declared_one():
    rows = ROW.findall(sections()["decibo.methods"])
    shown = {name: rest.rstrip(" |").rpartition("|")[2].strip() for name, _, rest in rows}
    assert shown == {name: provenance(method) for name, method in decibo.CATALOG.items()}


ENTRY = re.compile(r"^\* ((?:`\w+`(?:, )?)+)\. (.*?)(?=^\* |^$|\Z)", re.MULTILINE | re.DOTALL)
HEARD = {
    "read": "Source",
    "abstract": "Abstract",
    "recalled": "Memory",
    "inferred": "Inferred",
    "our own": "Our own",
}


def papers():
    """What the page of references says of each method."""
    entries = ENTRY.findall(PAPERS.read_text())
    listed = [(name, text) for names, text in entries for name in re.findall(r"\w+", names)]
    assert len(listed) == len(dict(listed)), "a method is listed twice"
    return dict(listed)


def test_every_method_has_its_paper():
    assert set(papers()) == set(decibo.CATALOG)


def test_a_paper_is_as_well_known_as_the_method_says():
    """The references and the docstring must agree on what was read."""
    known = {name: provenance(method).partition(";")[0] for name, method in decibo.CATALOG.items()}
    wrong = {name for name, text in papers().items() if HEARD.get(known[name], "") not in text}
    assert not wrong


def test_there_are_no_sections_of_namespaces_that_do_not_exist():
    assert set(sections()) == set(NAMESPACES)


def test_every_measure_is_listed():
    page = PAGE.read_text()
    assert not [
        name
        for name in measures.available("xyz", ("x", "y"), has_direction=True)
        if f"`{name}`" not in page
    ]


@pytest.mark.parametrize("path", NAMESPACES)
def test_every_public_name_has_a_docstring_that_begins_with_a_sentence(path):
    module = namespace(path)
    values = {"": module} | {name: getattr(module, name) for name in module.__all__}
    incomplete = [
        name
        for name, value in values.items()
        if not isinstance(value, dict) and not _sentence(value)
    ]
    assert not incomplete


def _sentence(value):
    """Whether the docstring begins with a sentence: a capital (a symbol, or the name itself), and a
    full stop."""
    text = (vars(value).get("__doc__") if isinstance(value, type) else value.__doc__) or ""
    first = inspect.cleandoc(text).split("\n\n")[0]
    sentence = re.match(rf"([^a-z\s]|{value.__name__}\b).*?[.](\s|$)", first, flags=re.DOTALL)
    return sentence is not None and len(sentence[0].split()) >= 3


def test_the_front_door_stays_small():
    """Sixteen of the names are rooms, the last to come `silo` and `privacy`; nothing else may be
    added lightly."""
    assert len(decibo.__all__) <= 51


@pytest.mark.parametrize("path", NAMESPACES[1:])
def test_namespaces_work_after_a_plain_import(path):
    assert importlib.import_module("decibo") is decibo
    assert isinstance(namespace(path), ModuleType)


def refresh():
    """Write the signatures of the code into the page; report rows that a person has to write or
    remove."""
    text = PAGE.read_text()
    todo = []
    for path in NAMESPACES:
        module = namespace(path)
        body = dict(SECTION.findall(text)).get(path)
        if body is None:
            todo.append(f"add a section: ## {path}")
            continue
        listed = [name for name, _, _ in ROW.findall(body)]
        todo += [f"remove from {path}: {name}" for name in listed if name not in module.__all__]
        todo += [
            f"add to {path}: | `{name}{signature(getattr(module, name))}` | |"
            for name in module.__all__
            if name not in listed
        ]
        new = ROW.sub(lambda match, module=module: _row(match, module), body)
        text = text.replace(body, new, 1)
    PAGE.write_text(text)
    print(*todo, sep="\n")
    return bool(todo)


def _row(match, module):
    name, _, rest = match.groups()
    if name not in module.__all__:
        return match[0]
    if module is decibo.methods:
        rest = f"{rest.rstrip(' |').rpartition(' |')[0]} | {provenance(getattr(module, name))} |"
    return f"| `{name}{signature(getattr(module, name))}` |{rest}"


if __name__ == "__main__":
    sys.exit(refresh())
