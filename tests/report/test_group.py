"""Runs that differ in their seed only are shown as one, and no seed is left out in silence."""

import numpy as np
import pytest

import decibo
from decibo.formatting import MINUS
from decibo.report import figures, latex_table, read_run, report, write_run, write_runs
from decibo.report.chart_data import chart_data
from decibo.report.group import best, grouped
from decibo.report.page import page_sections
from decibo.report.summary import load
from helpers.runs import METHOD, PROBLEM, RING, curve, made_up

FALLING = 10.0 ** -np.linspace(0, 4, 21)
LOST = [1.0, 10.0, 1e5]


def seeded(folder, setting, seed, values, label="mine", **solution):
    solution = made_up(curve(values), **solution)
    return write_run(
        folder, solution, PROBLEM, RING, METHOD, label=label, seed=seed, setting=setting
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two settings: three seeds of which one diverges, and two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, factor in enumerate((1.0, 3.0)):
        seeded(folder / "a" / f"seed-{seed}", "a", seed, factor * FALLING)
        seeded(folder / "b" / f"seed-{seed}", "b", seed, FALLING**2, label="other")
    seeded(folder / "a" / "seed-2", "a", 2, LOST, status="diverged", message="Gone.")
    return folder


def test_runs_of_one_setting_are_one_group(place):
    first, second = grouped(load(place))
    assert (first.label, first.seeds, first.ended) == ("mine", "0 to 2", "2 done, 1 diverged")
    assert (second.label, second.seeds, second.ended) == ("other", "0 and 1", "2 done")
    assert first.legend == "mine (1 of 3 seeds diverged)"
    assert second.legend == "other"
    end = first.end("stationarity")
    assert (end.mean, end.count, end.of) == (pytest.approx(2e-4), 2, 3)


def test_other_labels_other_settings_and_the_same_seed_again_stay_apart(tmp_path):
    seeded(tmp_path / "1", "a", 0, FALLING)
    seeded(tmp_path / "2", "a", 0, FALLING)
    seeded(tmp_path / "3", "a", 1, FALLING, label="renamed")
    seeded(tmp_path / "4", None, 1, FALLING)
    seeded(tmp_path / "5", "a", 1, FALLING)
    assert [[run.folder.name for run in group.runs] for group in grouped(load(tmp_path))] == [
        ["1", "5"], ["2"], ["4"], ["3"],
    ]  # fmt: skip


def test_seeds_are_in_order_of_their_numbers(tmp_path):
    for seed in (10, 9, 2):
        seeded(tmp_path / f"seed-{seed}", "a", seed, FALLING)
    assert [run.seed for run in load(tmp_path)] == [2, 9, 10]


def test_the_table_has_mean_and_deviation_and_counts_those_without_an_answer(place):
    text = latex_table(place, targets=(5e-3, 5e-7))
    mine, other = (line for line in text.splitlines() if line.startswith(("mine", "other")))
    assert (
        mine == r"mine & 2 done, 1 diverged & $(2.0 \pm 1.4) \times 10^{-4}$ (2/3) & $120 \pm 0$"
        r" (2/3) & -- \\"
    )
    bold = [rf"$\mathbf{{{text}}}$" for text in (r"10^{-8} \pm 0", r"60 \pm 0", r"160 \pm 0")]
    assert other == rf"other & 2 done & {' & '.join(bold)} \\"
    assert "standard deviation over 2 to 3 seeds" in text


def test_a_lost_seed_never_wins_a_table_or_a_card(tmp_path):
    """The mean over the seeds that are left is far below the other method's, and still behind it."""
    for seed in (0, 1, 2):
        seeded(tmp_path / "safe" / f"seed-{seed}", "s", seed, FALLING, label="safe")
        bold = {"status": "diverged", "message": "Gone."} if seed == 0 else {}
        values = LOST if bold else FALLING**3
        seeded(tmp_path / "bold" / f"seed-{seed}", "b", seed, values, label="bold", **bold)
    groups = grouped(load(tmp_path))
    assert [group.label for group in groups] == ["safe", "bold"]
    ends = [group.end("stationarity") for group in groups]
    assert ends[1].mean < 1e-6 * ends[0].mean
    assert [groups[k].label for k in best(groups, ends)] == ["safe"]
    card = page_sections(groups)["cards"][1]
    assert (card.title, card.note) == ("Lowest at the end: stationarity", "safe")
    rows = [line for line in latex_table(tmp_path).splitlines() if "mathbf" in line]
    assert [row.partition(" ")[0] for row in rows] == ["safe"]
    assert [run["lost"] for run in chart_data(groups, "stationarity")["runs"]] == [0, 1]
    again = grouped(load(tmp_path), order=["bold"])
    assert [group.label for group in again] == ["bold", "safe"]
    with pytest.raises(decibo.InputError, match="Did you mean 'safe'"):
        grouped(load(tmp_path), order=["saef"])


def test_a_share_of_right_answers_is_better_the_larger_it_is(tmp_path):
    for label, end in (("good", 0.9), ("poor", 0.6)):
        history = {"step": np.array([0, 10]), "correct": np.array([0.5, end])}
        write_run(tmp_path / label, made_up(history), PROBLEM, RING, METHOD, label=label)
    card = page_sections(grouped(load(tmp_path)))["cards"][1]
    assert (card.title, card.value, card.note) == ("Highest at the end: correct", "0.9", "good")


def test_the_page_shows_bands_counts_and_every_seed(place, tmp_path):
    groups = grouped(load(place))
    sections = page_sections(groups)
    assert sections["cards"][0].note == "of 2 settings: 4 improving, 1 diverged"
    first, second = sections["runs"]
    assert (first["verdict"].kind, first["verdict"].title) == ("bad", "2 improving, 1 diverged")
    assert "Seed 2 diverged: Gone." in first["verdict"].sentence
    assert first["ends"][0].text == f"(2.0 ± 1.4)e{MINUS}4 (2 of 3)"
    assert [name for name in first["details"] if name.startswith("seed ")] == [
        "seed 0",
        "seed 1",
        "seed 2",
    ]
    assert second["verdict"].kind == "open"
    drawn = chart_data(groups, "stationarity")["runs"]
    assert drawn[0]["seeds"] == 3
    assert drawn[0]["high"]["stationarity"][5] is None  # infinite
    # the second of three
    assert drawn[0]["values"]["stationarity"][5] == pytest.approx(3 * FALLING[5], rel=1e-5)
    assert drawn[0]["reach"]["stationarity"][2:] == [None, None]
    assert drawn[0]["reach"]["stationarity"][0] in (100, 110)  # rounding decides
    text = report(place, tmp_path / "page.html").read_text()
    assert "Lines: median of 2 to 3 seeds. Bands: 25 % to 75 % quantile." in text


def test_figures_have_a_band_for_each_group_of_several(place, monkeypatch, tmp_path):
    from matplotlib.axes import Axes

    bands = []
    real = Axes.fill_between
    monkeypatch.setattr(
        Axes,
        "fill_between",
        lambda *given, **named: bands.append(given[1:]) or real(*given, **named),
    )
    figures(place, tmp_path, measures=["stationarity"], band="range")
    step, low, high = bands[0]
    assert step.tolist() == (10 * np.arange(21)).tolist()
    np.testing.assert_allclose(low, FALLING)
    assert high[-1] > 100  # where the lost seed is, beyond the top of the figure
    with pytest.raises(decibo.InputError, match="band must be"):
        figures(place, tmp_path, band="deviation")
    with pytest.raises(decibo.InputError, match="measure must be"):
        figures(place, tmp_path, measures=["stationary"])


def test_repeats_are_written_into_folders_that_belong_together(tmp_path):
    runs = decibo.repeat(PROBLEM, RING, METHOD, seeds=[3, 5], steps=4, every=2, measures=["outer"])
    folders = write_runs(tmp_path / "mine", runs, label="mine")
    assert [folder.name for folder in folders] == ["seed-3", "seed-5"]
    (group,) = grouped(load(tmp_path))
    assert (group.label, group.seeds) == ("mine", "3 and 5")
    assert read_run(folders[1]).seed == 5
