"""Calling the command line in this process."""

import contextlib
import io
import json
from dataclasses import dataclass

import pytest

from decibo.cli import app as cli

QUADRATIC = """
problem = "quadratic"
[network]
name = "ring"
agents = 4
[method]
name = "ahead_exact"
alpha = 0.05
gamma = 0.1
[run]
steps = 40
measures = ["stationarity", "consensus_x"]
"""


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


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, with one good configuration; answers are remembered nowhere
    else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.parent / f"{tmp_path.name}-state"))
    (tmp_path / "quad.toml").write_text(QUADRATIC)
    return tmp_path


@pytest.fixture(scope="session")
def decibo_call():
    return call
