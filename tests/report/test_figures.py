"""Figures of runs."""

import sys

import matplotlib
import numpy as np
import pytest

import decibo
from decibo.errors import InputError
from decibo.report import figures, write_run
from helpers.runs import METHOD, PROBLEM, RING, curve, made_up, written

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


def test_a_figure_has_the_size_the_font_the_axes_and_the_order_that_are_asked_for(
    tmp_path, monkeypatch
):
    from matplotlib.figure import Figure

    for k, label in enumerate(("a", "b", "c")):
        written(tmp_path / "runs" / label, curve(FALLING ** (1 + k % 2)), label=label)
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    look = {"size": (2.0, 1.5), "font": 7, "log": True, "order": ["c", "a"]}
    figures(tmp_path / "runs", tmp_path / "figures", measures=["stationarity"], **look)
    (ax,) = drawn[0].axes
    assert drawn[0].get_size_inches()[0] == pytest.approx(2.2)
    assert (ax.get_xscale(), ax.xaxis.label.get_size()) == ("log", 7)
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["c", "a", "b"]
    # c and a lie on each other: they differ in colour, marker and its place
    for look in ("get_color", "get_marker", "get_markevery"):
        assert len({str(getattr(line, look)()) for line in ax.get_lines()}) == 3
    with pytest.raises(InputError, match="font must be a positive"):
        figures(tmp_path / "runs", tmp_path / "figures", font=-1)
    with pytest.raises(InputError, match="size must be two numbers of inches"):
        figures(tmp_path / "runs", tmp_path / "figures", size=(0.0, 2.0))


def test_the_axis_ends_where_the_bands_do_and_not_where_one_seed_does(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    for seed, factor in enumerate([1.0, 1.0, 1.0, 1.0, 1e-20]):
        run = made_up(curve(factor * FALLING))
        write_run(
            tmp_path / str(seed), run, PROBLEM, RING, METHOD, label="a", seed=seed, setting="a"
        )
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    figures(tmp_path, tmp_path / "figures", measures=["stationarity"])
    assert drawn[0].axes[0].get_ylim() == pytest.approx((0.5e-9, 2))
