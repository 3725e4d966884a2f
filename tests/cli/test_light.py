"""What decibo says about itself, it says without importing JAX, which takes a second."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import decibo
from decibo.cli.list import entries
from decibo.formatting import format_setting
from decibo.measure.measures import available

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
    script = WITHOUT.format(words=words, code=code)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_found_when_it_is_first_used():
    places = [name for names in decibo.PLACES.values() for name in names.split()]
    declared = {
        alias.name
        for node in ast.walk(ast.parse(Path(decibo.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("decibo.")
        for alias in node.names
    }
    assert set(places) == declared  # what a type checker reads, and what is loaded
    assert len(places) == len(set(places))
    assert set(places) < set(decibo.__all__)
    assert all(getattr(decibo, name) is not None for name in decibo.__all__)
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        _ = decibo.solv


@pytest.mark.parametrize("name", decibo.PLACES["algorithm"].split())
def test_a_file_of_a_room_may_be_the_first_name_that_is_used(name):
    script = f"import decibo; assert decibo.{name}.__name__ == 'decibo.algorithm.{name}'"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
        assert names < set(room.__all__)
        assert all(callable(getattr(room, name)) for name in names)
    built_in = available("xyzvc", "xy", has_direction=True, has_rest=True)
    assert {entry["name"] for entry in entries("measures")} == {*built_in, "cheap", "all"}


def test_a_list_is_short_and_one_of_them_in_full(decibo_call):
    text = decibo_call("list", "methods").out
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    one = " ".join(decibo_call("list", "methods", "ahead").out.split())
    assert one.startswith("ahead(alpha, [beta], gamma, lam)")
    assert "The rule was read in the source." in one
    wrong = decibo_call("list", "methods", "ahaed")
    assert (wrong.code, "Did you mean 'ahead'?" in wrong.err) == (2, True)
