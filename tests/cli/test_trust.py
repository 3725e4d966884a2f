"""A configuration may name code, and none of it runs before the user has agreed."""

import io
import json
import sys

import pytest

from decibo.cli import trust
from decibo.cli.errors import Exit

COMMANDS = ("run", "compare", "sweep", "check", "resume")
MODULE = """
from pathlib import Path
from subprocess import getoutput

import jax.numpy as jnp

import decibo

Path("imported").touch()


def make(agents: int = 4) -> decibo.Problem:
    return decibo.problems.quadratic(agents)


def undeclared(agents: int = 4):
    Path("called").touch()
    return decibo.problems.quadratic(agents)


def other(agents: int = 4) -> decibo.Network:
    Path("called").touch()


def slope(start: float):
    Path("called").touch()


def size(s):
    return jnp.exp(-jnp.sum(s.x**2))
"""


@pytest.fixture
def module(here, monkeypatch):
    """A module beside the configuration that leaves a trace when it is imported, or one of its
    functions called."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    (here / "own_code.py").write_text(MODULE)
    return here / "own_code.py"


def prepared(here, command, text, *words):
    """The words of a command on this configuration."""
    (here / "got").mkdir(exist_ok=True)
    (here / "got/checkpoint").mkdir(exist_ok=True)
    (here / "got/config.toml").write_text(text)
    grid = ["-g", "alpha=0.01,0.02"] if command == "sweep" else []
    methods = ["-m", "ahead_exact"] if command == "compare" and "methods" not in text else []
    return [command, "got" if command == "resume" else "got/config.toml", *grid, *methods, *words]


def refused(done, *said):
    assert done.code == Exit.WRONG, done.err
    assert done.err.count("\n") == 1
    assert all(word in done.err for word in said), done.err


PLACES = {
    "problem": 'problem = { name = "NAME", ARGUMENT }',
    "network": 'problem = "quadratic"\nnetwork = { name = "NAME", ARGUMENT }',
    "network of x": (
        'problem = "quadratic"\nnetwork = { agents = 4, x = { name = "NAME", ARGUMENT } }'
    ),
    "method": 'problem = "quadratic"\nmethod = { name = "NAME", ARGUMENT }',
    "data": 'problem = { name = "hyper_cleaning", data = { name = "NAME", ARGUMENT } }',
    "schedule": 'problem = "quadratic"\nmethod = { lam = { name = "NAME", ARGUMENT } }',
    "measure": 'problem = "quadratic"\nrun = { measures = ["NAME"] }',
    "until": 'problem = "quadratic"\nrun = { until = { "NAME" = 1.0 } }',
    "compare": 'problem = "quadratic"\ncompare = { methods = ["NAME[ARGUMENT]"] }',
}


def written(place, name, argument=""):
    text = (
        PLACES[place]
        .replace("NAME", name)
        .replace(", ARGUMENT", f", {argument}" if argument else "")
    )
    quoted = argument.replace('"', "'")  # inside of another text
    return text.replace("[ARGUMENT]", f"[{quoted}]" if argument else "")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", PLACES)
def test_python_itself_is_out_of_reach(here, decibo_call, command, place):
    for name, argument in (
        ("subprocess:getoutput", 'cmd = "touch done"'),
        ("os:system", 'command = "touch done"'),
    ):
        top = name.partition(":")[0]
        for words in ((), ("--trust", top)):
            done = decibo_call(*prepared(here, command, written(place, name, argument), *words))
            refused(done, f"names the module {top}, which is part of Python")
    assert not (here / "done").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_imported_without_consent(here, module, decibo_call, command, place):
    text = written(place, "own_code:make")
    refused(decibo_call(*prepared(here, command, text)), "own_code.py", "add --trust own_code")
    refused(
        decibo_call(*prepared(here, command, text, "--trust", "another")), "add --trust own_code"
    )
    assert "own_code" not in sys.modules
    assert not (here / "imported").exists()


def test_commands_that_read_import_nothing(here, module, decibo_call):
    decibo_call("run", "quad.toml", "--out", "got")
    record = json.loads((here / "got/run.json").read_text())
    record["problem"]["name"] = record["method"]["name"] = record["label"] = "own_code:make"
    (here / "got/run.json").write_text(json.dumps(record))
    (here / "jinja2.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    assert decibo_call("report", "got", "--latex").code == 0
    assert decibo_call("list", "methods").code == 0
    assert not (here / "imported").exists()


def test_consent_by_option_for_one_command(here, module, decibo_call):
    words = ["check", "quad.toml", "--set", "problem=own_code:make"]
    assert decibo_call(*words, "--trust", "own_code").code == 0
    assert (here / "imported").exists()
    refused(decibo_call(*words), "add --trust own_code")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('problem={name="own_code:undeclared"}', "Write: def undeclared(...) -> decibo.Problem"),
        ('problem={name="own_code:other"}', "does not declare that it returns a problem"),
        ('problem={name="own_code:getoutput",cmd="touch called"}', "does not declare"),
        ('network={name="own_code:make"}', "-> decibo.Network | decibo.DirectedNetwork"),
        ('method={name="own_code:getoutput",cmd="touch called"}', "-> decibo.Algorithm"),
        ('method={lam={name="own_code:slope",start=1.0}}', "-> Callable"),
        ('run.measures=["own_code:getoutput"]', "was imported there from subprocess"),
        ('run.measures=["own_code:missing"]', "there is no function in own_code 'missing'"),
    ],
)
def test_only_what_declares_its_result_is_called(here, module, decibo_call, setting, said):
    refused(
        decibo_call("run", "quad.toml", "--set", setting, "--trust", "own_code", "--checkpoint"),
        said,
    )
    assert not (here / "called").exists()
    assert not (here / "out").exists()


def test_a_measure_of_ones_own_can_be_waited_for(here, module, decibo_call):
    words = [
        "--set",
        'run.until={"own_code:size"=0.99}',
        "--set",
        "run.measures=outer",
        "--trust",
        "own_code",
        "--json",
    ]
    done = decibo_call("run", "quad.toml", *words)
    assert done.code == 0, done.err
    assert (done.json["status"], set(done.json["last"])) == ("converged", {"outer", "size"})


def test_a_measure_that_fails_at_once_leaves_no_folder(here, module, decibo_call):
    module.write_text(MODULE + "\n\ndef faulty(s):\n    return s.missing\n")
    words = [
        "--set",
        'run.measures=["own_code:faulty"]',
        "--trust",
        "own_code",
        "--checkpoint",
        "--out",
        "a/b",
    ]
    assert decibo_call("run", "quad.toml", *words).code == Exit.OWN
    assert not (here / "a").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def answer(here, module, decibo_call, monkeypatch):
    """Type this answer to the question; whether the module was imported, and what was said."""

    def typed(text, *words):
        screen = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        monkeypatch.setattr(trust.sys, "stderr", screen)
        sys.modules.pop("own_code", None)
        (here / "imported").unlink(missing_ok=True)
        monkeypatch.setattr("contextlib.redirect_stderr", lambda _: _Kept())
        code = decibo_call("check", "quad.toml", "--set", "problem=own_code:make", *words).code
        assert code == (0 if (here / "imported").exists() else Exit.WRONG)
        return (here / "imported").exists(), screen.getvalue()

    class _Kept:
        def __enter__(self):
            return None

        def __exit__(self, *_):
            return None

    return typed


@pytest.mark.parametrize("text", ["", "\n", "n\n", "no\n", "maybe\n"])
def test_no_means_no(answer, text):
    imported, said = answer(text)
    assert not imported
    assert "would run the code in own_code.py" in said
    assert "which you do not trust; nothing was run" in said
    assert not trust.state_file().exists()


def test_yes_holds_until_the_code_changes(answer, module):
    assert answer("y\n")[0]
    assert answer("") == (True, "")
    module.write_text(MODULE + "\nX = 1\n")
    assert not answer("")[0]
    assert answer("YES\n")[0]
    assert (
        trust.state_file().stat().st_mode & 0o077 == 0
        or trust.state_file().parent.stat().st_mode & 0o077 == 0
    )


def test_always_holds_after_changes(answer, module):
    assert answer("a\n")[0]
    module.write_text(MODULE + "\nX = 1\n")
    assert answer("") == (True, "")
    assert trust.remembered() == {str(module): "always"}


def test_nobody_is_asked_in_scripts(answer):
    imported, said = answer("y\n", "--json")
    assert not imported
    assert "Do you trust it?" not in said
    assert "add --trust own_code" in said


@pytest.mark.parametrize("content", ["", "[", "[1]", '{"a": 1}', "[" * 10_000])
def test_a_damaged_memory_remembers_nothing(answer, content):
    answer("y\n")
    trust.state_file().write_text(content)
    assert not answer("")[0]
    assert answer("y\n")[0]
    assert answer("")[0]


def test_a_memory_that_others_can_write_to_is_not_used_to_remember(answer):
    trust.state_file().parent.mkdir(parents=True, mode=0o755)
    assert answer("a\n")[0]
    assert not trust.state_file().exists()


def test_a_package_is_not_imported_to_find_a_module_in_it(here, module, decibo_call):
    (here / "own_package").mkdir()
    (here / "own_package/__init__.py").write_text(MODULE)
    (here / "own_package/inner.py").write_text("from own_package import make\n")
    words = ["check", "quad.toml", "--set", 'problem="own_package.inner:make"']
    refused(decibo_call(*words), "the code in own_package.", "add --trust own_package")
    assert not (here / "imported").exists()
    assert decibo_call(*words, "--trust", "own_package").code == 0
    refused(
        decibo_call(*words[:-1], 'problem="own_package.none:make"', "--trust", "own_package"),
        "no module",
    )
    refused(
        decibo_call(*words[:-1], 'problem="own_code.inner:make"', "--trust", "own_code"),
        "no module",
    )


def test_modules_lie_beside_the_file_or_in_the_current_folder(here, module, decibo_call):
    (here / "below").mkdir()
    (here / "below/c.toml").write_text('problem = "own_code:make"\n')
    assert decibo_call("check", "below/c.toml", "--trust", "own_code").code == 0
    (here / "below/own_code.py").write_text("raise RuntimeError\n")
    done = decibo_call("check", "below/c.toml", "--trust", "own_code")
    refused(done, "has the name of another one", "Rename it")
    refused(decibo_call("check", "below/c.toml"), "the code in below/own_code.py")


def test_the_current_folder_is_searched_for_nothing_else(here, decibo_call):
    before = list(sys.path)
    refused(
        decibo_call("check", "quad.toml", "--set", "problem=own_nowhere:make"),
        "Put own_nowhere.py beside",
    )
    assert sys.path == before
