"""A job may name code, and none of it runs before the owner of the site has agreed."""

import io
import sys
from pathlib import Path

import jax
import pytest

import decibo
from decibo.silo import consent
from decibo.silo.consent import own_factory, own_function, trust_for

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


def other(agents: int = 4) -> decibo.Network:
    Path("called").touch()


def perhaps(agents: int = 4) -> decibo.Problem | None:
    Path("called").touch()
"""
WHERE = "job.toml, problem"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module beside the job that leaves a trace when it is imported, or one of its functions
    called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.parent / f"{tmp_path.name}-state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    (tmp_path / "own_code.py").write_text(MODULE)
    return tmp_path / "own_code.py"


def found(name, *trusted, job="job.toml", as_json=True):
    """The function of a job in this folder, with what --trust names."""
    return own_factory(name, WHERE, decibo.Problem, trust_for(Path(job), trusted, as_json))


def refused(message, *arguments, **more):
    with pytest.raises(decibo.InputError) as error:
        found(*arguments, **more)
    assert message in str(error.value)


def test_python_itself_is_out_of_reach(module):
    for name in ("subprocess:getoutput", "os:system"):
        top = name.partition(":")[0]
        refused(f"names the module {top}, which is part of Python", name)
        refused(f"names the module {top}, which is part of Python", name, top)


def test_nothing_is_imported_without_consent(module):
    refused("If you trust this code, add --trust own_code.", "own_code:make")
    refused("add --trust own_code", "own_code:make", "another")
    refused("must read module:function", "own code:make")
    assert "own_code" not in sys.modules
    assert not Path("imported").exists()


def test_consent_by_option_for_one_command(module):
    assert found("own_code:make", "own_code")().agents == 4
    assert Path("imported").exists()
    refused("add --trust own_code", "own_code:make")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_code:undeclared", "Write: def undeclared(...) -> decibo.Problem"),
        ("own_code:other", "does not declare that it returns a decibo.Problem"),
        ("own_code:perhaps", "does not declare that it returns a decibo.Problem"),
        ("own_code:getoutput", "does not declare"),
        ("own_code:missing", "there is no function in own_code 'missing'"),
        ("own_code:mak", "Did you mean 'make'?"),
    ],
)
def test_only_what_declares_its_result_is_called(module, name, message):
    refused(message, name, "own_code")
    assert not Path("called").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def answer(module, monkeypatch):
    """Type this answer to the question; whether the module was imported, and what was printed."""

    def typed(text, as_json=False):
        screen = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        monkeypatch.setattr(sys, "stderr", screen)
        sys.modules.pop("own_code", None)
        Path("imported").unlink(missing_ok=True)
        try:
            found("own_code:make", as_json=as_json)
        except decibo.InputError as error:
            screen.write(str(error))
        return Path("imported").exists(), screen.getvalue()

    return typed


@pytest.mark.parametrize("text", ["", "\n", "n\n", "no\n", "maybe\n"])
def test_no_means_no(answer, text):
    imported, printed = answer(text)
    assert not imported
    assert "would run the code in own_code.py" in printed
    assert "which you do not trust; nothing was run" in printed
    assert not consent.state_file().exists()


def test_yes_holds_until_the_code_changes(answer, module):
    assert answer("y\n")[0]
    assert answer("") == (True, "")
    module.write_text(MODULE + "\nX = 1\n")
    assert not answer("")[0]
    assert answer("YES\n")[0]
    state = consent.state_file()
    assert state.stat().st_mode & 0o077 == 0 or state.parent.stat().st_mode & 0o077 == 0


def test_always_holds_after_changes(answer, module):
    assert answer("a\n")[0]
    module.write_text(MODULE + "\nX = 1\n")
    assert answer("") == (True, "")
    assert consent.remembered() == {str(module): "always"}


def test_nobody_is_asked_in_scripts(answer, monkeypatch):
    for as_json, processes in ((True, 1), (False, 2)):
        monkeypatch.setattr(jax, "process_count", lambda processes=processes: processes)
        imported, printed = answer("y\n", as_json)
        assert not imported
        assert "Do you trust it?" not in printed
        assert "add --trust own_code" in printed


@pytest.mark.parametrize("content", ["", "[", "[1]", '{"a": 1}', "[" * 10_000])
def test_a_damaged_memory_remembers_nothing(answer, content):
    answer("y\n")
    consent.state_file().write_text(content)
    assert not answer("")[0]
    assert answer("y\n")[0]
    assert answer("")[0]


def test_a_memory_that_others_can_write_to_is_not_used_to_remember(answer):
    consent.state_file().parent.mkdir(parents=True, mode=0o755)
    assert answer("a\n")[0]
    assert not consent.state_file().exists()


def test_a_package_is_not_imported_to_find_a_module_in_it(module):
    Path("own_package").mkdir()
    Path("own_package/__init__.py").write_text(MODULE)
    Path("own_package/inner.py").write_text("from own_package import make\n")
    refused("the code in own_package.", "own_package.inner:make")
    assert not Path("imported").exists()
    assert found("own_package.inner:make", "own_package")
    refused("no module", "own_package.none:make", "own_package")
    refused("no module", "own_code.inner:make", "own_code")


def test_modules_lie_beside_the_file_or_in_the_current_folder(module):
    Path("below").mkdir()
    assert found("own_code:make", "own_code", job="below/job.toml")
    Path("below/own_code.py").write_text("raise RuntimeError\n")
    refused("has the name of another one", "own_code:make", "own_code", job="below/job.toml")
    refused("the code in below/own_code.py", "own_code:make", job="below/job.toml")


def test_the_current_folder_is_searched_for_nothing_else(module):
    before = list(sys.path)
    refused("Put own_nowhere.py beside", "own_nowhere:make")
    assert sys.path == before


def test_the_module_of_a_function_is_given_with_it(module):
    function, name = own_function(
        "own_code:undeclared", WHERE, trust_for(Path("j"), ["own_code"], True)
    )
    assert (function.__name__, name) == ("undeclared", "own_code")
