"""Calling the command line in this process."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from decibo.cli import app as cli

QUADRATIC = {
    "problem": "decibo.problems.quadratic(4)",
    "network": "decibo.ring(4)",
    "method": "decibo.ahead_exact(alpha=0.05, gamma=0.1)",
    "steps": "40",
    "measures": '["stationarity", "consensus_x"]',
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def call(*words):
    """One command line; whatever it prints is caught."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.call([str(word) for word in words])
    return Done(code, out.getvalue(), err.getvalue())


def write(file="quad.py", code="", **names):
    """A file that defines the quadratic on a ring, with some names changed; None leaves one out."""
    lines = [
        f"{name} = {value}" for name, value in (QUADRATIC | names).items() if value is not None
    ]
    Path(file).write_text("\n".join(["import decibo", code, *lines]) + "\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, with one good file."""
    monkeypatch.chdir(tmp_path)
    write()
    return tmp_path


@pytest.fixture(name="write")
def _write(here):
    return write


@pytest.fixture(scope="session")
def decibo_call():
    return call
