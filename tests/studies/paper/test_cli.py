"""The command line: one line for whatever is wrong, exit status 2, nothing half-written."""

import subprocess
import sys

import numpy as np
import pytest

from decibo.cli.app import call as call_command
from studies.paper import plotting, suite
from studies.paper.__main__ import app
from studies.paper.experiment import Size


def call(capsys, *arguments):
    code = call_command([str(argument) for argument in arguments], app, "python -m studies.paper")
    return code, capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fig9"], "fig9"),
        (["fig1", "--seeds", "0"], "seeds"),
        (["fig1", "--seeds", "many"], "seeds"),
        (["table1", "--data", "/nowhere"], "/nowhere"),
        (["--quick"], "EXPERIMENT"),
        (["fig1", "--results", "results"], "--results"),
        (["fig1", "--colour"], "--colour"),
    ],
)
def test_an_error_is_one_line(monkeypatch, capsys, tmp_path, arguments, named):
    monkeypatch.chdir(tmp_path)
    code, streams = call(capsys, *arguments)
    assert code == 2
    assert named in streams.err
    assert streams.err.count("\n") == 1
    assert streams.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, streams = call(capsys, "fig1", "--out", tmp_path / "file" / "out")
    assert code == 2
    assert "Cannot write" in streams.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_damaged_data_names_its_checksum(capsys, tmp_path):
    arrays = {"x_train": (2, 28, 28), "y_train": (2,), "x_test": (2, 28, 28), "y_test": (2,)}
    zeros = {name: np.zeros(shape, np.uint8) for name, shape in arrays.items()}
    np.savez(tmp_path / "mnist.npz", **zeros)
    code, streams = call(capsys, "table1", "--data", tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "sha256" in streams.err
    assert streams.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_missing_data(capsys, tmp_path):
    code, streams = call(capsys, "minimax", "--data", tmp_path, "--out", tmp_path / "out")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "a9a" in streams.err


@pytest.mark.slow
def test_a_failure_while_writing_leaves_nothing(monkeypatch, tmp_path):
    result = suite.run("fig1", {}, Size(seeds=1, tiny=True))
    folder = suite.save(result, tmp_path)
    before = sorted(path.name for path in folder.iterdir())

    def broken(draw, result, folder):
        (folder / "half").write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(plotting, "save", broken)
    with pytest.raises(OSError, match="disk full"):
        suite.save(result, tmp_path / "new" / "out")
    with pytest.raises(OSError, match="disk full"):
        suite.save(result, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert list(tmp_path.iterdir()) == [folder]


def test_a_good_run_prints_claims_at_80_columns(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(suite, "Size", lambda quick, seeds: Size(quick, seeds, tiny=True))
    monkeypatch.setenv("COLUMNS", "80")
    code, streams = call(capsys, "fig1", "--seeds", 1, "--out", tmp_path / "out")
    assert code == 0
    assert "does not hold" in streams.out
    assert "\x1b" not in streams.out
    lines = [line for line in streams.out.splitlines() if "written to" not in line]
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "out" / "fig1" / "fig1.png").exists()


def test_figures_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"decibo\[plot\]"):
        plotting.check_installed()


@pytest.mark.slow
def test_the_library_imports_neither_the_command_line_nor_the_experiments():
    code = "import sys, decibo; decibo.theory.constants; dir(decibo.theory); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "matplotlib", "studies.paper.rates"} & set(done.stdout.split())
