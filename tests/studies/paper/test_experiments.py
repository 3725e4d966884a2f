"""Every experiment in its smallest form: it runs, it draws, and twice gives the same files."""

import csv
import json

import jax
import numpy as np
import pytest

from decibo.data import breast_cancer, digits
from decibo.formatting import to_csv
from decibo.measure import measures as measures_
from studies.paper import datasets, suite
from studies.paper.experiment import Outcome, Size, Verdict

pytestmark = pytest.mark.slow
TINY = Size(seeds=1, tiny=True)
DATA = {datasets.pair_of_digits: digits(), datasets.adults: breast_cancer()}


@pytest.fixture(scope="module")
def results():
    return {name: suite.run(name, DATA, TINY) for name in suite.EXPERIMENTS}


@pytest.fixture(scope="module")
def folders(results, tmp_path_factory):
    """Where each of them is written."""
    return {
        name: suite.save(result, tmp_path_factory.mktemp(name)) for name, result in results.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", suite.EXPERIMENTS)
def test_it_runs_and_is_written_whole(name, folders):
    folder = folders[name]
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".json", ".png", ".pdf"}
    assert list(folder.parent.iterdir()) == [folder]
    record = json.loads((folder / f"{name}.json").read_text())
    assert {claim["verdict"] for claim in record["claims"]} <= set(Verdict)
    assert all((folder / table).exists() for table in record["tables"])
    for table in record["tables"]:
        rows = list(csv.reader((folder / table).read_text().splitlines()))
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("name", ["fig1", "fig2", "table1"])
def test_same_seed_same_numbers(name, results):
    again = suite.run(name, DATA, TINY)
    for table, columns in results[name].tables.items():
        assert to_csv(columns) == to_csv(again.tables[table])


def test_only_one_table_holds_wall_times(results):
    again = suite.run("fig4", DATA, TINY)
    for table, columns in results["fig4"].tables.items():
        if table != "seconds":
            assert to_csv(columns) == to_csv(again.tables[table])


def test_the_page_shows_everything_and_no_path(results, folders, tmp_path):
    outcomes = [Outcome(result, folders[name], 1.0) for name, result in results.items()]
    path = suite.write_page(outcomes, tmp_path / "results", quick=True)
    text = path.read_text()
    for result in results.values():
        assert f"## {result.title}" in text
        assert (path.parent / "figures" / f"{result.name}.png").exists()
    assert not [folder for folder in folders.values() if str(folder.parent) in text]
    assert str(tmp_path) not in text
    assert sorted(p.name for p in path.parent.iterdir()) == ["figures", "paper.json", "paper.md"]
    record = json.loads((path.parent / "paper.json").read_text())
    found = [len(each["claims"]) for each in record["experiments"]]
    assert found == [len(r.claims) for r in results.values()]
    assert record["measured"]["date"] in text


def test_minimax_stationarity_is_the_library_s():
    import decibo
    from studies.paper import minimax

    problem, _ = minimax.make(breast_cancer(), 0)
    measures = [("cheap", minimax.stationarity), ("exact", measures_.stationarity)]
    method = minimax.METHODS["dgda"]
    solution = decibo.solve(
        problem, decibo.ring(10), method, steps=20, every=10, measures=measures, progress=False
    )
    np.testing.assert_allclose(solution.history["cheap"], solution.history["exact"], rtol=1e-8)


def test_embedded_digits_serve_without_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("DECIBO_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "digits" in datasets.describe(datasets.pair_of_digits())
    assert datasets.adults().name == "breast cancer"


def test_precision_does_not_depend_on_the_caller():
    distances = []
    for flag in (True, False):
        with jax.enable_x64(flag):
            distances.append(suite.run("fig1", {}, TINY).tables["curves"]["distance_x"])
    assert distances[0].dtype == np.float64
    np.testing.assert_array_equal(*distances)
