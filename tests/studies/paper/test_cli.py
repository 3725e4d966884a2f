"""The command line: one line for whatever is wrong, exit status 2, nothing half-written."""

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from decibo.cli import app as cli
from studies.paper import plotting, suite
from studies.paper.result import Size


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["decibo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code, capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "fig9"], "fig9"),
        (["reproduce", "fig1", "--seeds", "0"], "seeds"),
        (["reproduce", "fig1", "--seeds", "many"], "seeds"),
        (["reproduce", "table1", "--data", "/nowhere"], "/nowhere"),
        (["reproduce"], "EXPERIMENT"),
        (["reproduce", "fig1", "--docs", "docs"], "--docs"),
        (["reproduce", "fig1", "--colour"], "--colour"),
        (["nonsense"], "nonsense"),
    ],
)
def test_an_error_is_one_line(monkeypatch, capsys, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, streams = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert said in streams.err
    assert streams.err.count("\n") == 1
    assert streams.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_cannot_be_written(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, streams = call(
        monkeypatch, capsys, "reproduce", "fig1", "--out", tmp_path / "file" / "out"
    )
    assert code == 2
    assert "Cannot write" in streams.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_damaged_data_names_its_checksum(monkeypatch, capsys, tmp_path):
    arrays = {"x_train": (2, 28, 28), "y_train": (2,), "x_test": (2, 28, 28), "y_test": (2,)}
    np.savez(
        tmp_path / "mnist.npz",
        **{name: np.zeros(shape, np.uint8) for name, shape in arrays.items()},
    )
    assert zipfile.is_zipfile(tmp_path / "mnist.npz")
    out = tmp_path / "out"
    code, streams = call(
        monkeypatch, capsys, "reproduce", "table1", "--data", tmp_path, "--out", out
    )
    assert code == 2
    assert "sha256" in streams.err
    assert streams.err.count("\n") == 1
    assert not out.exists()


def test_missing_data(monkeypatch, capsys, tmp_path):
    code, streams = call(
        monkeypatch, capsys, "reproduce", "minimax", "--data", tmp_path, "--out", tmp_path / "out"
    )
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
    arguments = ["reproduce", "fig1", "--seeds", 1, "--out", tmp_path / "out"]
    monkeypatch.setattr(sys, "argv", ["decibo", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "80")
    cli.main()
    printed = capsys.readouterr().out
    assert "does not hold" in printed
    assert "\x1b" not in printed
    assert max(len(line) for line in printed.splitlines() if "written to" not in line) <= 80


def test_figures_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"decibo\[plot\]"):
        plotting.check_installed()


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )


def test_the_library_imports_neither_the_command_line_nor_the_experiments():
    code = "import sys, decibo; decibo.theory.constants; dir(decibo.theory); print(*sys.modules)"
    assert not {"typer", "rich", "matplotlib", "studies.paper.rates"} & set(
        python(code).stdout.split()
    )


def test_without_typer_there_is_one_line():
    done = python("import sys; sys.modules['typer'] = None; import decibo.cli.app")
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == "decibo: the command line needs typer and rich. pip install 'decibo[cli]'"
    )
