"""Every public name explains itself in `help()`, has its place in the reference, and every method
its paper."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import decibo
from decibo import contrib
from decibo.algorithm import algorithm
from decibo.measure import measures

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NAMESPACES = [name for name in decibo.__all__ if isinstance(getattr(decibo, name), ModuleType)]
PUBLIC = [
    (module, name)
    for module in (decibo, *(getattr(decibo, name) for name in NAMESPACES))
    for name in module.__all__
]


def explained(value):
    """Whether the docstring begins with a sentence: a capital (a symbol, or the name itself), and a
    full stop."""
    text = (vars(value).get("__doc__") if isinstance(value, type) else value.__doc__) or ""
    first = inspect.cleandoc(text).split("\n\n")[0]
    sentence = re.match(rf"([^a-z\s]|{value.__name__}\b).*?[.](\s|$)", first, flags=re.DOTALL)
    return sentence is not None and len(sentence[0].split()) >= 3


def test_every_public_name_has_a_docstring_that_begins_with_a_sentence():
    values = {f"{module.__name__}.{name}": getattr(module, name) for module, name in PUBLIC}
    values = {name: value for name, value in values.items() if not isinstance(value, dict)}
    assert len(values) > 150
    assert not [name for name, value in values.items() if not explained(value)]


def test_the_front_door_stays_small():
    """Seventeen of the names are rooms; nothing else may be added lightly."""
    assert len(decibo.__all__) <= 54


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespaces_work_after_a_plain_import(name):
    assert importlib.import_module("decibo") is decibo
    assert isinstance(getattr(decibo, name), ModuleType)


def test_every_measure_is_listed():
    page = (DOCS / "how-to" / "run.md").read_text()
    names = measures.available("xyz", ("x", "y"), has_direction=True)
    assert not [name for name in names if f"`{name}`" not in page]


# Methods: the page of references says of each whose it is, and how well its rule is known

ENTRY = re.compile(r"^\* ((?:`\w+`(?:, )?)+)\. (.*?)(?=^\* |^$|\Z)", re.MULTILINE | re.DOTALL)
METHODS = decibo.CATALOG | contrib.CATALOG
KNOWN = {
    algorithm.READ: "Source",
    algorithm.ABSTRACT: "Abstract",
    algorithm.RECALLED: "Memory",
    algorithm.INFERRED: "Inferred",
    "The method of this library": "Our own",
}


def papers():
    """What the page of references says of each method."""
    entries = ENTRY.findall((DOCS / "references.md").read_text())
    listed = [(name, text) for names, text in entries for name in re.findall(r"\w+", names)]
    assert len(listed) == len(dict(listed)), "a method is listed twice"
    return dict(listed)


def test_every_method_has_its_paper():
    assert set(papers()) >= set(METHODS)  # recipes have theirs too


def test_a_paper_is_as_well_known_as_the_method_says():
    """The references and the provenance of the method must agree on what was read."""
    for name, method in METHODS.items():
        found = [word for sentence, word in KNOWN.items() if sentence in method.provenance]
        assert not found or found[0] in papers()[name], name
