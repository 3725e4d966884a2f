"""Verdicts, targets, LaTeX and figures say what the histories show."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.errors import InputError
from decibo.formatting import latex_number
from decibo.report import figures, latex_table, read_run, report
from decibo.report.chart_data import thinned
from decibo.report.latex import escaped
from decibo.report.summary import load, main_measure, names, reached
from decibo.report.verdict import judge
from helpers.runs import curve, written

FALLING = 10.0 ** -np.linspace(0, 9, 91)


def verdict(tmp_path, values, measure="stationarity", **solution):
    history = curve(values)
    history[measure] = history.pop("stationarity")
    return judge(read_run(written(tmp_path / "run", history, **solution)), measure)


@pytest.mark.parametrize(
    ("values", "kind", "title"),
    [
        (FALLING, "open", "improving"),
        (FALLING + 1e-4, "floor", "floor"),
        (FALLING + 1e-4 * (2 + np.sin(np.arange(91))), "floor", "floor"),
        (FALLING**4, "good", "solved"),
        (np.ones(91), "bad", "stuck"),
        (FALLING[::-1] * 50, "bad", "grew"),
        (np.ones(3), "open", "done"),
        (np.append(FALLING, np.nan), "open", "done"),
    ],
)
def test_verdicts_on_a_measure_that_should_vanish(tmp_path, values, kind, title):
    found = verdict(tmp_path, values)
    assert (found.kind, found.title) == (kind, title)


def test_a_floor_says_where_and_since_when(tmp_path):
    said = verdict(tmp_path, FALLING + 1e-4).sentence
    assert "near 1.00e\N{MINUS SIGN}4 since" in said
    since = int(re.search(r"since about step (\d+)", said)[1])
    assert 380 <= since <= 420  # the falling part is as large as the floor at record 40, step 400


def test_a_gradient_may_grow_where_the_start_was_a_plateau(tmp_path):
    history = curve(FALLING[::-1] * 50) | {"phi": np.linspace(0.7, 0.1, 91)}
    found = judge(read_run(written(tmp_path / "run", history)), "stationarity")
    assert (found.kind, found.title) == ("open", "left a plateau")
    assert "phi fell from 0.7 to 0.1" in found.sentence


def test_standing_still_on_a_plateau_does_not_win(tmp_path):
    left = curve(FALLING[::-1] * 50) | {"phi": np.linspace(0.7, 0.1, 91)}
    stayed = curve(np.full(91, FALLING[-1] * 50)) | {"phi": np.full(91, 0.7)}
    assert stayed["stationarity"][-1] < left["stationarity"][-1]
    page = tmp_path / "page.html"
    report([written(tmp_path / "left", left), written(tmp_path / "stayed", stayed)], page)
    card = re.search(r"Lowest at the end: (\w+).*?([\d.]+)<", page.read_text(), re.DOTALL)
    assert card.groups() == ("phi", "0.1")


def test_an_objective_settles_but_has_no_floor(tmp_path):
    found = verdict(tmp_path, 5 + FALLING, measure="phi")
    assert (found.kind, found.title) == ("good", "settled")
    found = verdict(tmp_path, 5 - np.linspace(0, 1, 91), measure="phi")
    assert (found.kind, found.title) == ("open", "improving")


@pytest.mark.parametrize(("status", "kind"), [("diverged", "bad"), ("converged", "good"), ("interrupted", "open")])
def test_the_status_of_a_run_is_its_verdict(tmp_path, status, kind):
    found = verdict(tmp_path, FALLING, status=status, message="It did so at step 380.")
    assert (found.kind, found.title) == (kind, status)
    assert "It did so at step 380." in found.sentence


def test_single_precision_is_solved_sooner(tmp_path):
    run = read_run(written(tmp_path / "run", curve(FALLING + 1e-13)))
    single = read_run(written(tmp_path / "run", curve(np.maximum(FALLING**2, 1e-13))))
    object.__setattr__(single, "precision", "float32")
    assert judge(run, "stationarity").title == "improving"
    assert judge(single, "stationarity").title == "solved"


def test_targets_are_the_first_records_at_or_below(tmp_path):
    history = curve([8.0, 0.09, 0.5, 0.08, 7e-4, 1e-9])
    run = read_run(written(tmp_path / "run", history))
    assert reached(run, "stationarity") == [30, 40, 50, 50]
    assert reached(run, "stationarity", [1e-12]) == [None]
    assert reached(run, "another") == [None] * 4
    zero = read_run(written(tmp_path / "zero", curve([0.0, 1.0])))
    assert reached(zero, "stationarity") == [None] * 4


@given(st.integers(1, 50_000))
def test_thinning_keeps_both_ends_in_order(count):
    kept = thinned(count)
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= min(count, 2000)


def test_names_are_different_and_never_empty(tmp_path):
    for k, label in enumerate(["a", "a", "a (2)", " "]):
        written(tmp_path / f"r{k}", curve([1.0, 0.5]), label=label)
    found = names(load(tmp_path))
    assert len(set(found)) == 4
    assert found[0] == "a"
    assert found[3] == "r3"


def test_a_folder_of_runs_stands_for_them(tmp_path):
    for name in ("b", "a"):
        written(tmp_path / name, curve([1.0, 0.5]), label=name)
    (tmp_path / "figures").mkdir()
    assert [run.label for run in load(tmp_path)] == ["a", "b"]
    assert [run.label for run in load([tmp_path / "b", tmp_path])] == ["b", "a", "b"]
    with pytest.raises(InputError, match="at least one run"):
        load([])
    with pytest.raises(InputError, match=r"not a run folder: run\.json is missing"):
        load(tmp_path / "figures")


def test_runs_with_different_measures_are_judged_by_what_they_share(tmp_path):
    written(tmp_path / "a", {"step": np.array([0, 1]), "stationarity": np.ones(2), "outer": np.ones(2)})
    written(tmp_path / "b", {"step": np.array([0, 1]), "outer": np.ones(2)})
    assert main_measure(load(tmp_path)) == "outer"
    assert main_measure(load(tmp_path / "a")) == "stationarity"


def test_latex(tmp_path):
    written(tmp_path / "a", curve(FALLING), label=r"50% of_$x$ & {\y}")
    written(tmp_path / "b", curve([1.0, np.inf]), label="b", status="diverged", message="Gone.")
    lines = latex_table(tmp_path).splitlines()
    assert [line for line in lines if "rule" in line] == [
        r"\toprule", r"\cmidrule(lr){4-7}", r"\midrule", r"\bottomrule",
    ]  # fmt: skip
    row = next(line for line in lines if line.startswith("50"))
    assert row == (r"50\% of\_\$x\$ \& \{\textbackslash{}y\} & done & $10^{-9}$ & $200$ & $400$ & $600$ & $800$ \\")
    assert r"b & diverged & $\infty$ & -- & -- & -- & -- \\" in lines
    assert "$9{,}600$" in latex_table(tmp_path / "a", axis="gradients")  # 800 steps, 3 gradients, 4 agents
    with pytest.raises(InputError, match="recorded are stationarity"):
        latex_table(tmp_path, measure="phi")
    with pytest.raises(InputError, match="one of step, gradients"):
        latex_table(tmp_path, axis="money")


@given(st.text())
def test_no_special_mark_survives_in_latex(text):
    found = re.sub(r"\\(text\w+\{\}|[&%$#_{}])", "", escaped(text))
    assert not set(found) & set('\\&%$#_{}~^<>|"\n\r\t\0')


def test_numbers_in_latex():
    assert [latex_number(v) for v in (0.0, 1234.0, 0.25, 1.23e-5, 1e-4, -2e7, None)] == [
        "$0$", "$1{,}234$", "$0.25$", r"$1.2 \times 10^{-5}$", "$10^{-4}$", r"$-2.0 \times 10^{7}$", "--",
    ]  # fmt: skip


def test_figures_are_png_and_pdf(tmp_path):
    odd = {"step": np.array([0, 10, 20]), "_$own": np.array([-1.0, np.nan, 3.0])}
    written(tmp_path / "runs" / "a", curve(FALLING) | {"phi": 5 + FALLING}, label="_$a$ ^ 漢字")
    written(tmp_path / "runs" / "b", curve([1.0, 1e250, np.inf]), label="b", status="diverged", message="Gone.")
    written(tmp_path / "runs" / "c", odd, label="c", network=decibo.networks.directed_exponential(8))
    made = figures(tmp_path / "runs", tmp_path / "figures")
    assert sorted(path.name for path in made) == [
        "costs.pdf", "costs.png", "measures.pdf", "measures.png", "networks.pdf", "networks.png",
    ]  # fmt: skip
    for path in made:
        assert path.read_bytes()[:4] == {".png": b"\x89PNG", ".pdf": b"%PDF"}[path.suffix]


def test_bad_places_are_refused(tmp_path):
    written(tmp_path / "run", curve([1.0, 0.5]))
    with pytest.raises(InputError, match="it is a file"):
        figures(tmp_path / "run", tmp_path / "run" / "run.json")
    with pytest.raises(InputError, match="it is a folder"):
        report(tmp_path / "run", tmp_path)


def test_the_same_folders_give_the_same_page(tmp_path):
    written(tmp_path / "run", curve(FALLING))
    one, two = (report(tmp_path / "run", tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert one == two
