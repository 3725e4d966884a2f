"""A job may name code, and none of it runs before the owner of the site has agreed."""

import io
import sys
from pathlib import Path

import jax
import pytest

import decibo
from decibo.silo.consent import Trust, own_factory, trust_for

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


@pytest.mark.parametrize("text", ["y\n", "YES\n"])
def test_yes_is_for_one_command(answer, text):
    assert answer(text)[0]
    assert not answer("")[0]


def test_one_command_asks_once(answer, monkeypatch):
    trust = Trust((Path.cwd(),), asks=True)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    for _ in range(2):
        assert own_factory("own_code:make", WHERE, decibo.Problem, trust)


def test_nobody_is_asked_in_scripts(answer, monkeypatch):
    for as_json, processes in ((True, 1), (False, 2)):
        monkeypatch.setattr(jax, "process_count", lambda processes=processes: processes)
        imported, printed = answer("y\n", as_json)
        assert not imported
        assert "Do you trust it?" not in printed
        assert "add --trust own_code" in printed


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
