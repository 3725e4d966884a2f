"""A run folder gives back what was put in, is never half there, and is rejected when it is not
sound."""

import json
import math
import os
import re
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo import files
from decibo.errors import CorruptedFileError, InputError
from decibo.files import encode_record
from decibo.report import check_target, is_run, read_run, write_run
from helpers.runs import METHOD, PROBLEM, RING, curve, made_up, written

pytestmark = pytest.mark.quick

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).filter(
    lambda name: name != "step"
)
NUMBERS = st.one_of(st.floats(), st.floats(width=32), st.integers(-(2**40), 2**40))


@st.composite
def histories(draw):
    count = draw(st.integers(1, 6))
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    gaps = draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    columns = {
        name: np.array(draw(st.lists(NUMBERS, min_size=count, max_size=count))) for name in names
    }
    return {"step": np.cumsum(gaps) - gaps[0]} | columns


@given(history=histories(), label=NAMES, kind=st.sampled_from(["csv", "parquet"]))
def test_round_trip(tmp_path_factory, history, label, kind):
    folder = tmp_path_factory.mktemp("run") / "new"
    steps = max(1, int(history["step"][-1]))
    write_run(
        folder, made_up(history, steps=steps), PROBLEM, RING, METHOD, label=label, history=kind
    )
    run = read_run(folder)
    assert run.label == label
    assert len(run.measures) == len(history) - 1
    for name, given_name in zip(run.measures, list(history)[1:], strict=True):
        assert name.startswith(given_name)
        np.testing.assert_array_equal(run.history[name], history[given_name])
    np.testing.assert_array_equal(run.history["step"], history["step"])
    # 3 a step, 4 agents
    np.testing.assert_array_equal(run.history["gradients"], history["step"] * 3 * 4)
    # 72 a step, 8 links
    np.testing.assert_array_equal(run.history["bytes"], history["step"] * 72 * 8)
    np.testing.assert_allclose(run.history["seconds"], history["step"] * 2.0 / steps)


def test_a_real_run(tmp_path):
    method = decibo.ahead_exact(alpha=0.1, gamma=0.1, lam=10.0)
    solution = decibo.solve(PROBLEM, RING, method, steps=20, every=5, seed=7)
    config = {"steps": 20, "seed": 7, "alpha": np.float32(0.5)}
    run = read_run(
        write_run(tmp_path / "run", solution, PROBLEM, RING, method, config=config, label="mine")
    )
    assert (run.label, run.seed, run.steps, run.every) == ("mine", 7, 20, 5)
    assert (run.status, run.message) == ("done", "All 20 steps done.")
    assert run.method["settings"]["alpha"] == 0.1
    assert run.method["text"] == repr(method)
    assert run.network["rho"] == pytest.approx(RING.rho)
    assert sorted(edge[:2] for edge in run.network["edges"]) == sorted(
        map(tuple, RING.edges.tolist())
    )
    assert run.cost["outer_gradients"] == solution.cost.outer_gradients
    assert run.history["gradients"][-1] == solution.cost.gradients_total
    assert run.history["bytes"][-1] == solution.cost.bytes_total
    assert run.history["seconds"][-1] == pytest.approx(solution.cost.seconds)
    assert run.versions["jax"] == jax.__version__
    assert run.precision == "float64"
    for name, values in solution.history.items():
        np.testing.assert_array_equal(run.history[name], values)
    arrays = run.arrays()
    np.testing.assert_array_equal(arrays["x"], solution.x)
    np.testing.assert_array_equal(arrays["agents.z"], solution.agents.z)


def test_leaves_of_trees_have_names(tmp_path):
    arrays = read_run(written(tmp_path / "run", curve([1.0, 0.5]))).arrays()
    assert set(arrays) == {"x", "y['a']", "y['b']", "agents.x", "agents.y['a']", "agents.y['b']"}
    np.testing.assert_array_equal(arrays["agents.x"], np.arange(12.0).reshape(4, 3))


def test_weights_of_links_are_those_of_w(tmp_path):
    network = decibo.networks.erdos_renyi(9, 0.4, seed=1)
    record = read_run(written(tmp_path / "a", curve([1.0, 0.5]), network=network)).network
    assert all(network.W[i, j] == weight for i, j, weight in record["edges"])
    arrows = decibo.networks.directed_exponential(9)
    record = read_run(written(tmp_path / "b", curve([1.0, 0.5]), network=arrows)).network
    assert record["directed"]
    assert record["rho"] is None
    assert all(arrows.A[j, i] == weight for i, j, weight in record["edges"])  # i is heard by j


def test_a_measure_with_components_and_one_with_the_name_of_a_cost(tmp_path):
    history = {
        "step": np.array([0, 5]),
        "pair": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "bytes": np.array([7.0, 8.0]),
    }
    run = read_run(written(tmp_path / "run", history))
    assert run.history["pair[1]"].tolist() == [2.0, 4.0]
    assert run.history["bytes (measure)"].tolist() == [7.0, 8.0]
    assert run.history["bytes"].tolist() == [0, 5 * 72 * 8]


def test_wide_measures_are_kept_but_get_no_curves(tmp_path):
    run = read_run(written(tmp_path / "run", {"step": np.array([0, 5]), "wide": np.ones((2, 100))}))
    assert run.measures == []
    assert "wide[99]" in run.history


def test_a_network_too_large_to_list(tmp_path):
    run = read_run(written(tmp_path / "run", curve([1.0, 0.5]), network=decibo.ring(6000)))
    assert run.network["edges"] is None
    assert run.network["links"] == 6000
    assert run.network["rho"] == pytest.approx(((1 + 2 * np.cos(2 * np.pi / 6000)) / 3) ** 2)


def test_the_method_of_the_solution_and_settings_that_are_functions(tmp_path):
    def falling(k):
        return 0.1 / (1 + k)

    solution = made_up(curve([1.0, 0.5]))
    assert read_run(write_run(tmp_path / "a", solution, PROBLEM, RING)).method["text"] == repr(
        METHOD
    )
    method = decibo.compression.compressed(
        decibo.ahead(alpha=falling, gamma=0.1, lam=10.0), decibo.compression.top_k(0.5)
    )
    record = read_run(write_run(tmp_path / "b", solution, PROBLEM, RING, method)).method
    assert "falling" in json.dumps(record)


def test_an_older_run_is_replaced(tmp_path):
    folder = write_run(
        tmp_path / "run", made_up(curve([1.0, 0.5])), PROBLEM, RING, METHOD, config={"seed": 4}
    )
    assert read_run(folder).seed == 4
    write_run(folder, made_up(curve([2.0, 0.1])), PROBLEM, RING, METHOD, history="parquet")
    run = read_run(folder)
    assert run.history["stationarity"].tolist() == [2.0, 0.1]
    assert run.config is None
    assert sorted(each.name for each in folder.iterdir()) == [
        "history.parquet",
        "run.json",
        "solution.npz",
    ]


@dataclass
class Settings:
    seed: int = 5
    rate: float = math.inf


@pytest.mark.parametrize("config", [Settings(), {"seed": 5, "rate": math.inf}])
def test_settings_as_mapping_or_dataclass(tmp_path, config):
    solution = made_up(curve([1.0, 0.5]))
    run = read_run(write_run(tmp_path / "run", solution, PROBLEM, RING, METHOD, config=config))
    assert (run.config, run.seed) == ({"seed": 5, "rate": "inf"}, 5)
    assert run.source() == json.dumps(run.config, indent=1)


def test_code_is_kept_and_checked(tmp_path):
    solution = made_up(curve([1.0, 0.5]))
    options = {"config": {"file": "a.py"}, "code": {"a.py": b"A = 1", "inner/b.py": b""}}
    folder = write_run(tmp_path / "run", solution, PROBLEM, RING, METHOD, **options)
    assert read_run(folder).source() == "A = 1"
    (folder / "code/a.py").write_text("A = 2")
    with pytest.raises(CorruptedFileError, match="checksum differs"):
        read_run(folder).source()


@pytest.mark.parametrize("fail_at", range(7))
def test_a_write_that_fails_leaves_the_old_run_or_none(tmp_path, monkeypatch, fail_at):
    folder = written(tmp_path / "run", curve([1.0, 0.5]), label="old")
    calls, replace, fsync = iter(range(100)), os.replace, os.fsync

    def failing(action):
        def act(*args):
            if next(calls) == fail_at:
                raise OSError(28, "No space left on device")
            return action(*args)

        return act

    monkeypatch.setattr(files.os, "replace", failing(replace))
    monkeypatch.setattr(files.os, "fsync", failing(fsync))
    if fail_at < 6:  # three files, flushed and renamed
        with pytest.raises(OSError, match="No space"):
            written(folder, curve([3.0, 0.1]), label="new")
    else:
        written(folder, curve([3.0, 0.1]), label="new")
    monkeypatch.undo()
    assert not [each for each in folder.iterdir() if each.name.endswith(".tmp")]
    if fail_at == 4:  # run.json is the new one, the history is not; the solutions are the same
        with pytest.raises(CorruptedFileError, match="checksum differs"):
            read_run(folder).arrays()
        written(folder, curve([3.0, 0.1]), label="new")  # and it can be written again
    assert read_run(folder).label == ("old" if fail_at <= 3 else "new")
    assert read_run(folder).arrays()


def test_only_process_0_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    written(tmp_path / "run", curve([1.0, 0.5]))
    assert not (tmp_path / "run").exists()


def damage(folder, name, change):
    (folder / name).write_bytes(change((folder / name).read_bytes()))


def edit(**changes):
    """What a run.json holds that was forged, with a checksum that fits."""

    def change(content):
        record = json.loads(content)
        kind, version = record.pop("kind"), record.pop("format")
        record.pop("checksum")
        for name, value in changes.items():
            owner, _, key = name.rpartition("__")
            (record[owner] if owner else record)[key] = value
        return encode_record(kind, record.pop("version", version), record)

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("run.json", lambda content: content[:-20], "not JSON"),
        ("run.json", lambda content: b"\xff\xfe", "not JSON"),
        ("run.json", lambda content: b"[]", "not a decibo run"),
        ("run.json", lambda content: content.replace(b"decibo run", b"other"), "not a decibo run"),
        ("run.json", lambda content: content.replace(b"done", b"gone"), "checksum differs"),
        ("run.json", edit(version=99), "format 99"),
        ("run.json", edit(steps="many"), "Expected `int`, got `str` - at `$.steps`"),
        ("run.json", edit(label=["a"]), "at `$.label`"),
        ("run.json", edit(versions={"jax": 1}), "versions"),
        ("run.json", edit(cost__gradients="1"), "cost"),
        ("run.json", edit(cost={"bytes": 1}), "'cost' has no agents, gradients, links, work"),
        ("run.json", edit(files={"../../secret": "0"}), "not part of a run folder"),
        ("run.json", edit(files={"code/../../secret": "0"}), "not part of a run folder"),
        ("run.json", edit(files={}), "no history"),
        ("run.json", edit(network__edges=[[0, 99, 0.1]]), "the agents 0 and 99"),
        ("run.json", edit(network__agents=True), "agents"),
        ("history.csv", lambda content: content + b"1", "checksum"),
        ("history.csv", lambda content: b"", "checksum"),
    ],
)
def test_damage_is_rejected_with_file_and_reason(tmp_path, name, change, message):
    folder = written(tmp_path / "run", curve([1.0, 0.5]))
    damage(folder, name, change)
    with pytest.raises((CorruptedFileError, InputError), match=re.escape(message)) as caught:
        read_run(folder)
    assert name in str(caught.value)


def test_missing_files_are_named(tmp_path):
    folder = written(tmp_path / "run", curve([1.0, 0.5]))
    (folder / "solution.npz").unlink()
    run = read_run(folder)
    with pytest.raises(CorruptedFileError, match=r"solution\.npz cannot be read"):
        run.arrays()
    (folder / "history.csv").unlink()
    with pytest.raises(CorruptedFileError, match=r"history\.csv cannot be read"):
        read_run(folder)
    with pytest.raises(InputError, match="There is no folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"not a run folder: run\.json is missing"):
        read_run(tmp_path)
    assert not is_run(tmp_path)


def test_foreign_folders_are_not_written_to(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        written(tmp_path, curve([1.0, 0.5]))
    with pytest.raises(InputError, match="is a file"):
        check_target(tmp_path / "thesis.tex" / "run")
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "ours" / "checkpoint").mkdir(parents=True)  # made before the run has ended
    assert is_run(written(tmp_path / "ours", curve([1.0, 0.5])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"history": "xlsx"}, "csv, parquet"), ({"config": "a = "}, "a mapping or a dataclass")],
)
def test_invalid_arguments_are_rejected_before_anything_is_written(tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        write_run(tmp_path / "run", made_up(curve([1.0, 0.5])), PROBLEM, RING, METHOD, **arguments)
    assert not (tmp_path / "run").exists()
