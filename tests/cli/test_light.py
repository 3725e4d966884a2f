"""What decibo says about itself, it says without importing JAX, which takes a second."""

import inspect

import pytest

import decibo
from decibo.cli.list import RETURNED, entries
from decibo.formatting import format_setting
from decibo.measure.measures import available
from helpers.processes import printed

WITHOUT = """
import sys
sys.argv = ["decibo", *{words!r}]
from decibo.cli import app
code = app.call(sys.argv[1:])
heavy = {{"jax", "numpy", "networkx"}} & set(sys.modules)
assert not heavy, heavy
assert code == {code}, code
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["list", "methods"], 0),
        (["list", "networks", "--json"], 0),
        (["init", "new.py"], 0),
        (["run", "mine.py", "--no-such-option"], 2),
        (["compar", "mine.py"], 2),
        (["list", "nothing"], 2),
    ],
)
def test_jax_is_not_imported(tmp_path, words, code):
    printed("-c", WITHOUT.format(words=words, code=code), cwd=tmp_path)


ASKING = """
import sys
import decibo
assert "jax" not in sys.modules
from decibo import {name}
assert {name} is getattr(decibo, "{name}")
before = set(sys.modules)
assert decibo.solve and decibo.theory and decibo.networks and decibo.Sweep and decibo.schedules
assert not {{name for name in set(sys.modules) - before if name.startswith("decibo")}}
"""


@pytest.mark.parametrize("name", ["ring", "consensus", "__all__"])
def test_the_first_name_that_is_used_brings_the_core(name):
    """Whatever it is, and nothing of the core is imported in the middle of a run."""
    printed("-c", ASKING.format(name=name))


def test_every_public_name_is_there():
    assert all(getattr(decibo, name) is not None for name in decibo.__all__)
    assert set(decibo.__all__) <= set(dir(decibo))
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        _ = decibo.solv


def test_the_list_that_is_read_from_the_source_is_that_of_the_catalogue():
    catalogue = decibo.CATALOG | decibo.contrib.CATALOG
    listed = entries("methods")
    assert {entry["name"] for entry in listed} == set(catalogue)
    for entry in listed:
        method = catalogue[entry["name"]]
        assert entry["provenance"] == method.provenance
        shown = []
        for each in inspect.signature(method).parameters.values():
            if each.default is each.empty:
                shown.append(each.name)
            elif each.default is None:
                shown.append(f"[{each.name}]")
            else:
                shown.append(f"{each.name}={format_setting(each.default, literal=True)}")
        assert entry["settings"] == shown
    for room, kind in ((decibo.networks, "networks"), (decibo.problems, "problems")):
        names = {str(entry["name"]) for entry in entries(kind)}
        made = [getattr(room, name) for name in room.__all__]
        returned = [getattr(each, "__annotations__", {}).get("return") for each in made]
        pairs = zip(room.__all__, returned, strict=True)
        assert names == {name for name, what in pairs if what in RETURNED[kind]}
    built_in = available("xyzvc", "xy", has_direction=True, has_rest=True)
    assert {entry["name"] for entry in entries("measures")} == {*built_in, "cheap", "all"}


def test_a_list_is_short_and_one_of_them_in_full(decibo_call):
    text = decibo_call("list", "methods").out
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    one = " ".join(decibo_call("list", "methods", "ahead").out.split())
    assert one.startswith("ahead(alpha, [beta], gamma, lam)")
    assert "The rule was read in the source of the paper." in one
    wrong = decibo_call("list", "methods", "ahaed")
    assert (wrong.code, "Did you mean 'ahead'?" in wrong.err) == (2, True)
