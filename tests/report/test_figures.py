"""Figures of runs."""

import sys

import matplotlib
import numpy as np
import pytest

import decibo
from decibo.errors import InputError
from decibo.report import figures
from helpers.runs import curve, written

FALLING = 10.0 ** -np.linspace(0, 9, 91)


def test_figures_are_png_and_pdf(tmp_path):
    odd = {"step": np.array([0, 10, 20]), "_$own": np.array([-1.0, np.nan, 3.0])}
    written(tmp_path / "runs" / "a", curve(FALLING) | {"phi": 5 + FALLING}, label="_$a$ ^ 漢字")
    written(
        tmp_path / "runs" / "b",
        curve([1.0, 1e250, np.inf]),
        label="b",
        status="diverged",
        message="Gone.",
    )
    written(
        tmp_path / "runs" / "c", odd, label="c", network=decibo.networks.directed_exponential(8)
    )
    paths = figures(tmp_path / "runs", tmp_path / "figures")
    assert sorted(path.name for path in paths) == [
        "costs.pdf", "costs.png", "measures.pdf", "measures.png", "networks.pdf", "networks.png",
    ]  # fmt: skip
    for path in paths:
        assert path.read_bytes()[:4] == {".png": b"\x89PNG", ".pdf": b"%PDF"}[path.suffix]


def test_a_file_instead_of_a_folder_is_rejected(tmp_path):
    written(tmp_path / "run", curve([1.0, 0.5]))
    with pytest.raises(InputError, match=r"need a folder, but .*run\.json is a file"):
        figures(tmp_path / "run", tmp_path / "run" / "run.json")


def test_the_plots_of_the_user_are_left_alone(tmp_path):
    before = matplotlib.get_backend()
    try:
        matplotlib.use("svg")
        settings = dict(matplotlib.rcParams)
        figures(written(tmp_path / "run", curve(FALLING)), tmp_path / "figures")
        assert dict(matplotlib.rcParams) == settings
        assert matplotlib.get_backend() == "svg"
    finally:
        matplotlib.use(before)


def test_figures_without_matplotlib_are_an_import_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"decibo\[plot\]"):
        figures(written(tmp_path / "run", curve(FALLING)), tmp_path / "figures")
