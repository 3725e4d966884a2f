"""The benchmark: tuned with one budget, judged by the exact reference, resumed, ranked and
shown."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import decibo
from decibo.cli import app as cli
from decibo.formatting import typeset_number
from studies.bench import (
    claims,
    judging,
    material,
    methods,
    page,
    penalty,
    pictures,
    public_solvers,
    ranks,
    single_agent,
    storage,
    suite,
    tasks,
    tuning,
)
from studies.bench.__main__ import app

ROOT = Path(__file__).parents[3]
TASK = "quadratic-equal"
METHODS = ("ahead_exact", "d_soba")
OWN = """
import decibo

@decibo.method
def mine(*, alpha: decibo.rule.StepSize, gamma: decibo.rule.StepSize) -> decibo.Algorithm:
    lower = {"y": gamma, "v": gamma}
    factors = decibo.direction.implicit(), decibo.consensus.atc()
    return decibo.compose(*factors, average={"x": 0.2}, x=alpha, **lower)
"""


def run(out):
    """The whole benchmark of these tests, in this process; returns how many results were made."""
    made = 0
    for job in suite.plan(out, "tiny", [TASK], METHODS):
        made += suite.carry_out(job, suite.method_named(job.method, {}))
    return made


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    assert run(folder) == 2
    return folder


@pytest.fixture(scope="module")
def results(out):
    return storage.read_all(out)


@pytest.mark.slow
def test_every_method_has_the_same_budget_on_other_seeds(results):
    budget = suite.BUDGETS["tiny"]
    asked = budget.search.rounds * budget.search.settings
    assert [len(result.tried) for result in results] == [asked, asked]
    assert [[run.seed for run in result.runs] for result in results] == [
        list(range(budget.seeds))
    ] * 2
    for each in suite.BUDGETS.values():
        assert not set(each.search.seeds) & set(range(each.seeds))
    for result in results:
        best = min(result.tried, key=lambda row: row["score"])
        assert result.settings.items() <= best.items()


@pytest.mark.slow
def test_killed_half_way_nothing_is_lost_and_a_second_time_gives_the_same(out, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    assert run(folder) == 0
    lost = storage.path_of(folder, TASK, "ring", "d_soba")
    before = json.loads(lost.read_text())
    lost.write_text(lost.read_text()[:1000])  # as no kill can leave it; a disk can
    kept = storage.path_of(folder, TASK, "ring", "ahead_exact").stat().st_mtime_ns
    assert run(folder) == 1
    assert storage.path_of(folder, TASK, "ring", "ahead_exact").stat().st_mtime_ns == kept
    after = json.loads(lost.read_text())
    for name in ("settings", "tried", "notes", "key"):
        assert after[name] == before[name]
    assert [run["history"] for run in after["runs"]] == [run["history"] for run in before["runs"]]


def ranked(folder):
    """The rank tables of all axes but the seconds, which are the machine's."""
    found = ranks.costs(storage.read_all(folder))
    return {axis: ranks.standings(found, axis) for axis in storage.AXES if axis != "seconds"}


@pytest.mark.slow
def test_a_kill_loses_nothing_and_the_ranks_are_those_of_a_calm_run(out, tmp_path):
    """The command itself, killed by the system as soon as its first result is there, then in two
    processes."""
    folder = tmp_path / "killed"
    words = [
        "--budget",
        "tiny",
        "--tasks",
        TASK,
        "--methods",
        ",".join(METHODS),
        "--jobs",
        "1",
        "--out",
        str(folder),
    ]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "studies.bench", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        first = storage.path_of(folder, TASK, "ring", METHODS[0])
        end = time.monotonic() + 120
        while not first.exists() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert [path.name for path in (folder / "results").glob("*.json")] == [first.name]
    kept = first.stat().st_mtime_ns
    again = ["2" if word == "1" else word for word in command]  # --jobs
    subprocess.run(again, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    assert first.stat().st_mtime_ns == kept
    assert ranked(folder) == ranked(out)


@pytest.mark.slow
def test_points_are_judged_by_the_reference(out, results):
    problem = tasks.TASKS[TASK].make(0)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(3, 8)), rng.normal(size=(3, 16))
    X[2] = np.nan
    found = judging.points(problem, X, Y)
    for k in range(2):
        exact = decibo.reference(problem).at(X[k])
        np.testing.assert_allclose(found["phi"][k], exact.phi, rtol=1e-12)
        np.testing.assert_allclose(
            found["stationarity"][k], np.sum(np.asarray(exact.grad) ** 2), rtol=1e-9
        )
        np.testing.assert_allclose(
            found["inner_error"][k], np.sum((Y[k] - np.asarray(exact.y)) ** 2), rtol=1e-9
        )
        H = np.asarray(problem.data["H"]).mean(axis=0)
        gap = (Y[k] - np.asarray(exact.y)) @ H @ (Y[k] - np.asarray(exact.y)) / 2
        np.testing.assert_allclose(found["gap"][k], gap, rtol=1e-9)
    assert np.isinf(found["phi"][2])
    first = [
        run.history["stationarity"][0] for result in results for run in result.runs if run.seed == 0
    ]
    assert first[0] == first[1]  # both methods begin at the same point


@pytest.mark.slow
def test_costs_are_those_of_the_methods(results):
    cost = {result.method: result.cost for result in results}
    assert (cost["ahead_exact"]["gradients"], cost["ahead_exact"]["products"]) == (3, 0)
    assert (cost["d_soba"]["gradients"], cost["d_soba"]["products"], cost["d_soba"]["work"]) == (
        2,
        2,
        4,
    )
    assert cost["ahead_exact"]["numbers"] == cost["d_soba"]["numbers"] == 8 + 2 * 16
    run = next(result for result in results if result.method == "d_soba").runs[0]
    assert run.price["work"] == 4 * 10
    assert run.price["bytes"] == 40 * 8 * 20


def searched(monkeypatch, optimum, rounds=5):
    """A search for alpha and gamma whose score is the distance to an optimum in logarithms."""

    def scores(task, method, networks, problems, tried, search, steps):
        return {name: np.abs(rows - np.log(optimum)).sum(axis=1) for name, rows in tried.items()}

    monkeypatch.setattr(tuning, "_scores", scores)
    method = methods.chosen(["sldbo"], True)[0]
    search = tuning.Search(rounds, 16, (1000,))
    units = {"outer": 1.0, "inner": 1.0, "one": 1.0}
    return tuning.tune(tasks.TASKS[TASK], method, {"ring": None}, [None], units, search, 10)["ring"]


def test_a_search_finds_what_is_inside(monkeypatch):
    found = searched(monkeypatch, (0.1, 0.3))
    assert abs(np.log(found.settings["alpha"] / 0.1)) < 0.3
    assert abs(np.log(found.settings["gamma"] / 0.3)) < 0.3
    assert found.notes == []
    assert len(found.tried) == 5 * 16


def test_a_search_widens_at_the_boundary_and_says_so(monkeypatch):
    high = methods.outer().high
    found = searched(monkeypatch, (5 * high, 0.3))
    assert found.settings["alpha"] > 2 * high
    assert "alpha: best at the boundary, range widened" in found.notes
    assert any(
        "still at the upper boundary" in note
        for note in searched(monkeypatch, (1e9, 0.3), rounds=2).notes
    )


@pytest.mark.quick
def test_ranks_show_ties_and_those_who_never_get_there():
    inf = np.inf
    cost = np.array([[10.0, 10.2, 30.0, inf, inf], [inf, 5.0, 1.0, 2.0, inf]])
    assert ranks.ranked(cost).tolist() == [[1.5, 1.5, 3.0, 4.5, 4.5], [4.5, 3.0, 1.0, 2.0, 4.5]]
    names = tuple("abcde")
    instances = tuple(ranks.Instance("quadratic", "ring", seed, 1e-3) for seed in range(2))
    found = ranks.Costs(names, instances, dict.fromkeys(storage.AXES, cost))
    shares = ranks.profile(found, "steps", np.array([1.0, 3.0, 10.0]))
    assert shares[:, 0].tolist() == [0.5, 0.5, 0.5]
    assert shares[:, 1].tolist() == [0.0, 0.5, 1.0]
    assert shares[:, 4].tolist() == [0.0, 0.0, 0.0]
    table = ranks.standings(found, "steps")
    assert [row.method for row in table] == ["c", "b", "a", "d", "e"]
    assert all(row.low <= row.rank <= row.high for row in table)
    assert ranks.standings(found, "steps") == table


def made_run(values, status="done", seed=0):
    history = {
        "step": np.arange(len(values)) * 10.0,
        "phi": np.array(values),
        "stationarity": np.array(values),
    }
    return storage.Run(seed, status, history, dict.fromkeys(storage.AXES, 2.0))


def test_a_target_is_a_fraction_of_the_start_or_of_the_way_to_the_lowest():
    values = [8.0, 4.0, 0.5, 0.1]
    assert ranks.first_step(made_run(values), "stationarity", 0.1, np.nan) == 20
    assert ranks.first_step(made_run(values), "phi", 0.5, -2.0) == 20  # 8 + 2 halved is 3 above 0
    assert ranks.first_step(made_run(values, "diverged"), "stationarity", 0.1, np.nan) == np.inf
    assert ranks.first_step(made_run([1.0, np.inf]), "stationarity", 0.1, np.nan) == np.inf


@pytest.mark.slow
def test_tables_hold_every_record_and_every_setting(results, tmp_path):
    written = storage.write_tables(tmp_path, results)
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    assert len(lines) == 1 + sum(
        len(run.history["step"]) for result in results for run in result.runs
    )
    settings = (tmp_path / "settings.csv").read_text()
    assert all(
        f"{name}={value:.4g}" in settings
        for result in results
        for name, value in result.settings.items()
    )
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(written[-1])
    assert table.num_rows == len(lines) - 1
    assert table.column("method").to_pylist()[0] in METHODS


@pytest.mark.slow
def test_the_page_answers_first_which_method_to_use(results, tmp_path):
    blocks = page.blocks(results)
    assert [block.title for block in blocks[:4]] == [
        "Which method should I use?",
        "When?",
        "ahead_exact, AHEAD and SPARKLE-ED on every axis",
        "What does it cost me?",
    ]
    made = page.Made("bench", ["on 2026-01-01 with jax 1; a machine"], 1.0, "Small.")
    drawn = pictures.drawn(results)
    text = page.publish(tmp_path, blocks, made, drawn).read_text()
    assert text.index("## Which method") < text.index("## Ranks")
    assert all(name in text for name in METHODS)
    for block in blocks:
        if block.rows:
            lines = (tmp_path / "benchmark" / f"{block.name}.csv").read_text().splitlines()
            assert len(lines) == 1 + len(block.rows)
            assert f"benchmark/{block.name}.csv" in text
        if block.picture:
            assert (tmp_path / "figures" / f"benchmark_{block.picture}.png").is_file()
    hard = next(block for block in blocks if block.title == "How hard is it to tune?")
    diverged = {
        result.method: np.mean([not np.isfinite(row["score"]) for row in result.tried])
        for result in results
    }
    assert {row[0]: row[2] for row in hard.rows} == {
        name: f"{100 * share:.0f} %" for name, share in diverged.items()
    }
    assert all(content.startswith(b"\x89PNG") for content in drawn.values())
    html = page.write_html(tmp_path / "page.html", blocks, made, drawn).read_text()
    assert "<script" not in html
    assert "**" not in html
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(decibo.InputError):
        page.write_html(tmp_path / "mine.html", blocks, made, drawn)


@pytest.mark.slow
def test_how_many_claims_hold_is_a_sentence():
    made = lambda verdict: claims.Claim("a paper", "a number", verdict)
    one, two, three = (made(verdict) for verdict in claims.Verdict)
    assert (
        claims.block([one, one, two, three])
        .sentences[0]
        .startswith("Of 4 claims 2 hold, 1 does not hold and 1 is undecided. ")
    )
    assert claims.block([one]).sentences[0].startswith("Of 1 claim 1 holds. ")


@pytest.mark.slow
def test_ordinals():
    words = [page._ordinal(number) for number in (1, 10, 11, 12, 13, 20, 21, 22, 23, 111)]
    assert words == [
        "first",
        "tenth",
        "11th",
        "12th",
        "13th",
        "20th",
        "21st",
        "22nd",
        "23rd",
        "111th",
    ]


@pytest.mark.slow
def test_two_methods_are_compared_in_a_sentence():
    better, worse, even = page.Duel(9, 1, 0.5), page.Duel(1, 9, 2.0), page.Duel(5, 5, 1.0)
    all_three = page._answer("ahead", {"work": better, "bytes": worse, "steps": even})
    assert all_three.startswith(
        "Against `ahead`: `ahead_exact` is ahead in work; it is behind in bytes; neither is ahead"
        " in steps."
    )
    assert page._answer("ahead", {"work": worse}).startswith(
        "Against `ahead`: `ahead_exact` is behind in work."
    )


@pytest.mark.slow
def test_penalties_are_tried_with_tuned_and_with_fixed_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(penalty, "PENALTIES", (10.0, penalty.USUAL))
    make = lambda: penalty.compute(tmp_path, "tiny", {"date": "today"}, ("quadratic",), ("ahead",))
    made = {penalty.Case.of(result): result for result in make()}
    assert {(case.steps, case.value) for case in made} == {
        (steps, value) for steps in penalty.STEPS for value in (10.0, 100.0)
    }
    tuned = made[penalty.Case("ahead", penalty.TUNED, 100.0)]
    assert set(tuned.settings) == {"alpha", "gamma"}
    # for the penalty that they were tuned for, the same runs
    for steps in (penalty.FIXED, penalty.BETA):
        same = made[penalty.Case("ahead", steps, 100.0)]
        for one, other in zip(tuned.runs, same.runs, strict=True):
            np.testing.assert_allclose(other.history["phi"], one.history["phi"], rtol=1e-10)
    ends = [
        made[penalty.Case("ahead", steps, 10.0)].runs[0].history["phi"][-1]
        for steps in (penalty.FIXED, penalty.BETA)
    ]
    assert ends[0] != ends[1]  # beta follows the penalty, or not
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "penalty" / "results").iterdir()}
    make()
    assert times == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "penalty" / "results").iterdir()
    }
    assert (tmp_path / "penalty" / "runs.csv").exists()
    shown = penalty.blocks(penalty.read(tmp_path))
    assert shown[0].head == ("method", "steps", "10", "100")
    assert [row[:2] for row in shown[0].rows] == [
        ["ahead", words] for words in penalty.STEPS.values()
    ]


def penalised():
    """Three penalties: one too small, one with which all runs diverge, one that is right."""

    def result(value, status, values):
        runs = tuple(made_run(values, status, seed) for seed in range(3))
        name = penalty.Case("ahead_exact", penalty.FIXED, value).name
        return storage.Result("quadratic", "ring", name, {}, [], [], {}, runs, 0.0)

    found = {1.0: ("done", 1e-5), 10.0: ("diverged", 1e-8), 100.0: ("done", 1e-8)}
    return [result(value, status, [1.0, 1e-4, end]) for value, (status, end) in found.items()]


@pytest.mark.slow
def test_penalties_are_judged_by_the_questions_of_the_benchmark():
    results = penalised()
    assert list(penalty.solved(results).values()) == [0.5, 0.0, 1.0]
    first, ends = penalty.blocks(results)
    assert first.rows == [["ahead_exact", "of 100", "50 %", "0 %", "100 %", "", ""]]
    assert "ahead_exact solves 0 to 100 %" in first.sentences[1]
    assert ends.rows[0][3:6] == [typeset_number(1e-5), "diverged", typeset_number(1e-8)]


@pytest.mark.slow
def test_claims_about_order_are_read_from_cells(results):
    def result(method, values):
        return storage.Result(
            "quadratic", "ring", method, {}, [], [], {}, tuple(made_run(v) for v in values), 0.0
        )

    fast, slow = [[1.0, 1e-4, 1e-8]] * 3, [[1.0, 1e-1, 1e-2]] * 3
    ahead = claims._ahead(
        [result("sparkle_ed", fast), result("sparkle_gt", slow)], "", "sparkle_ed", "sparkle_gt"
    )
    behind = claims._ahead(
        [result("sparkle_ed", slow), result("sparkle_gt", fast)], "", "sparkle_ed", "sparkle_gt"
    )
    nobody = claims._ahead(results, "", "sparkle_ed", "sparkle_gt")
    assert [str(claim.verdict) for claim in (ahead, behind, nobody)] == [
        "holds",
        "does not hold",
        "undecided",
    ]


@pytest.mark.slow
def test_runs_for_a_claim_are_made_once_for_a_folder(tmp_path, monkeypatch):
    calls = []

    def _claim():
        calls.append(1)
        return claims.true_for("it is so", [True] * 4 + [False], ", about", "a note")

    first = claims._computed(tmp_path, _claim)
    assert claims._computed(tmp_path, _claim) == first
    assert len(calls) == 1
    monkeypatch.setattr(claims, "STEPS", 7)  # another request
    claims._computed(tmp_path, _claim)
    assert len(calls) == 2


@pytest.mark.slow
def test_more_agents_solve_the_same_noisy_problem():
    few, many = (claims._noisy(agents, 0.0, seed=3) for agents in (4, 16))
    for name, leaf in many.data.items():
        np.testing.assert_allclose(
            leaf, np.broadcast_to(few.data[name][:1], leaf.shape), rtol=1e-12
        )
    d = {name: leaf[0] for name, leaf in few.data.items()}
    drawn = [material.noisy(d, jax.random.key(k)) for k in range(400)]
    for name in "pqs":
        noise = np.array([each[name] for each in drawn]) - d[name]
        assert abs(noise.mean()) < 4 * material.NOISE / np.sqrt(noise.size)
        assert abs(noise.std() / material.NOISE - 1) < 0.1
    assert drawn[0]["H"] is d["H"]


def test_hyper_parameters_come_from_the_signature_or_from_the_method():
    names = lambda method: [each.name for each in method.hyper_parameters]
    assert names(methods.from_factory("fab", decibo.methods.fab)) == [
        "alpha",
        "beta",
        "gamma",
        "lam",
    ]

    def own(*, alpha, power):
        raise NotImplementedError

    own.hyper_parameters = {"power": (0.1, 2.0)}
    assert names(methods.from_factory("m:own", own)) == ["power"]
    own.hyper_parameters = {"power": (2.0, 0.1)}
    with pytest.raises(decibo.InputError, match="0 < low < high"):
        methods.from_factory("m:own", own)
    settings = methods.chosen(["sldbo"], True)[0].method({"alpha": 0.1, "gamma": 0.2}).settings
    assert (settings["beta"], settings["gamma"]) == (0.2, 0.2)


@pytest.mark.slow
def test_without_an_answer_of_the_inner_level_models_are_retrained():
    task = tasks.TASKS["network-30"]
    problem = task.make(0)
    rng = np.random.default_rng(0)
    X = jax.numpy.asarray(rng.normal(size=(2, 60)))
    Y = rng.normal(size=(2, problem.y_layout.size))
    found = judging.points(problem, np.asarray(X), Y, task.trained)
    assert set(found) == {"phi", "gap", "inner_error"}
    mean = lambda function, x, y: jax.numpy.mean(
        jax.vmap(lambda d: function(x, y, d))(problem.data)
    )
    slope = jax.jit(jax.grad(lambda y, x: mean(problem.inner, x, y)))
    start = problem.y_layout.ravel(jax.tree.map(jax.numpy.asarray, problem.y0))
    rate = judging.RATE / judging._curvature(problem.functions, problem.data, 0 * X[0], start)
    y = problem.y0
    velocity = jax.tree.map(np.zeros_like, y)
    for _ in range(judging.TRAINING):
        velocity = jax.tree.map(
            lambda v, g: judging.MOMENTUM * v - rate * g, velocity, slope(y, X[1])
        )
        y = jax.tree.map(lambda a, v: a + v, y, velocity)
    np.testing.assert_allclose(found["phi"][1], mean(problem.outer, X[1], y), rtol=1e-8)
    own = problem.y_layout.unravel(jax.numpy.asarray(Y[1]))
    gap = mean(problem.inner, X[1], own) - mean(problem.inner, X[1], y)
    np.testing.assert_allclose(found["gap"][1], gap, rtol=1e-8)
    flat = problem.y_layout.ravel(y)
    np.testing.assert_allclose(found["inner_error"][1], np.sum((Y[1] - flat) ** 2), rtol=1e-8)


@pytest.mark.slow
def test_tables_can_be_packed_for_a_machine_without_scikit_learn(tmp_path, monkeypatch):
    before = material.table("digits")
    material.pack(tmp_path, ["digits"])
    monkeypatch.setenv("DECIBO_DATA", str(tmp_path))
    monkeypatch.setattr(material, "_LOADERS", {})
    material.table.cache_clear()
    after = material.table("digits")
    for name in ("features", "labels", "test_features", "test_labels"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    material.table.cache_clear()


@pytest.mark.slow
def test_drawn_data_look_like_what_they_stand_for():
    covtype = material.covtype(3)
    spread = np.linalg.eigvalsh(np.cov(covtype.features[:, :6].T))
    assert 1e3 < spread[-1] / spread[0] < 1e5
    assert 0.06 < (np.r_[covtype.labels, covtype.test_labels] > 0).mean() < 0.1
    adult = material.adult(3)
    assert set(np.unique(adult.features)) == {0.0, 1.0}
    assert (adult.features.sum(axis=1) == 8).all()
    plain = material.trust(tasks._heart(0), 1, 0)
    other = material.trust(tasks._heart(0), 2, 0)
    changed = (plain.data["training"]["labels"] != other.data["training"]["labels"]).any(axis=1)
    # the labels of one silo are wrong, here of another one
    assert changed.tolist() == [False, True, True, False]
    assert (plain.data["training"]["index"] == np.arange(4)[:, None]).all()


@pytest.mark.slow
def test_a_minibatch_of_the_area_is_unbiased():
    problem = material.area(material.adult(0), 0, tasks.QUARTER, batch=5)
    d = jax.tree.map(lambda leaf: leaf[0], problem.data)
    x = jax.tree.map(lambda leaf: leaf + 0.3, problem.x0)
    keys = jax.random.split(jax.random.key(0), 1000)
    drawn = np.asarray(jax.vmap(lambda key: problem.outer(x, 0.2, problem.sample(d, key)))(keys))
    assert abs(drawn.mean() - problem.outer(x, 0.2, d)) < 4 * drawn.std() / np.sqrt(len(drawn))


@pytest.mark.slow
def test_time_runs_out_without_losing_what_is_done():
    todo = [
        suite.Job(name, (TASK,), (), suite.BUDGETS["tiny"], None)
        for name in ("slow", "fast", "slow")
    ]
    assert suite.run(todo, lambda job: 2, 1) == suite.Done(6, 0)
    assert suite.run(todo, lambda job: 2, 1, seconds=0.0) == suite.Done(0, 3)


@pytest.mark.slow
def test_the_full_budget_makes_rings_first_one_cell_at_a_time():
    jobs = suite.plan(None, "full", ["quadratic", "bent"], METHODS)
    assert [job.networks for job in jobs[:5]] == [("ring",)] * 4 + [("exponential",)]
    assert {job.networks[0] for job in jobs if job.tasks == ("quadratic",)} == set(suite.NETWORKS)
    assert all(len(job.scenarios()) == 1 for job in jobs)


@pytest.mark.slow
def test_a_machine_with_several_process_counts_is_named_once(results):
    told = {"date": "2026-11-16", "software": "jax"}
    here = [told | {"hardware": f"{count} processes on a machine"} for count in (7, 11, 9)]
    made = page.made_by("bench", "tiny", [replace(results[0], made=each) for each in here])
    assert made.places == ["on 2026-11-16 with jax; 7 to 11 processes on a machine"]


@pytest.mark.slow
def test_missing_results_are_mentioned(results):
    assert "2 of 5 results are available" in page.made_by("bench", "tiny", results, 5).sentence
    assert "results are available" not in page.made_by("bench", "tiny", results, 2).sentence
    alone = storage.Result(
        "bent", "ring", METHODS[0], {}, [], [], results[0].cost, results[0].runs, 0.0
    )
    assert (
        "1 other that not every method has run is left out"
        in page.blocks([*results, alone])[0].sentences[1]
    )


@pytest.mark.slow
def test_work_of_the_public_solvers_is_counted_step_by_step():
    samples = {"a": np.ones((640, 2))}
    nothing = lambda *_: 0.0
    names = ("SRBA", "SABA", "AmIGO", "SOBA", "StocBiO")
    functions = (nothing, nothing, samples, samples, np.zeros(2), np.zeros(2), nothing, nothing)
    task = public_solvers.Task("t", *functions, dict.fromkeys(names, (1.0, 1.0, 2.0)))
    solvers = {solver.name: solver for solver in public_solvers.PublicSolvers(task).solvers()}
    assert solvers["SOBA"].work(3) == solvers["SABA"].work(3) == 12
    assert solvers["StocBiO"].work(2) == 2 * (1 + 20 + 2 + 10)
    # period: half of 10 + 10 batches
    steps = [(3 * 10 + 10) if k % 10 == 0 else 8 for k in range(25)]
    assert solvers["SRBA"].work(25) == sum(steps)
    for work in (1.0, 32.0, 33.0, 200.0):
        count = single_agent.steps_for(solvers["SRBA"], work)
        assert solvers["SRBA"].work(count) >= work
        assert count == 1 or solvers["SRBA"].work(count - 1) < work


@pytest.mark.slow
def test_networks_are_compared_at_equal_cost():
    def result(method, price, accuracy):
        history = {
            "step": np.array([0.0, 10.0, 20.0]),
            "phi": np.array([1.0, 0.5, 0.25]),
            "accuracy": accuracy,
        }
        prices = dict.fromkeys(storage.AXES, 1.0) | {"work": price}
        runs = tuple(storage.Run(seed, "done", history, prices) for seed in range(3))
        return storage.Result("network-30", "ring", method, {}, [], [], {}, runs, 0.0)

    results = [
        result("cheap", 1.0, np.array([0.1, 0.2, 0.3])),
        result("dear", 2.0, np.array([0.4, 0.5, 0.6])),
    ]
    rows = page._networks(results)[0].rows
    assert rows[0][1:] == ("cheap", "0.25", "0.3", "0.25", "0.3")
    assert rows[1][1:] == (
        "dear",
        "0.5",
        "0.5",
        "0.25",
        "0.6",
    )  # half as far with the same work, as far with the traffic


@pytest.mark.slow
def test_the_single_agent_comparison_says_which_method_is_ahead():
    row = lambda name, ours, gap: single_agent.Row(
        "simulated", name, ours, (0.1, 1.0), [1.0, 0.1, gap], gap, 4.0, 50.0
    )
    shown = single_agent.block(
        [row("SABA", False, 1e-6), row("SOBA", False, 1e-3), row("saga", True, 1e-4)]
    )
    assert "decibo's saga has 1e+02 times the gap of SABA" in shown.sentences[1]
    assert [line[1] for line in shown.rows] == ["SABA", "SOBA", "decibo: saga"]


@pytest.mark.slow
def test_every_small_task_has_the_same_shapes_for_all_seeds_and_a_network():
    for task in tasks.chosen(None, small=True):
        shapes = []
        for seed in (0, 1000):
            problem = task.make(seed)
            shapes.append([np.shape(leaf) for leaf in jax.tree.leaves(problem.data)])
            assert suite.network_of("ring", problem).agents == problem.agents
        assert shapes[0] == shapes[1], task.name


@pytest.mark.slow
def test_the_command_keeps_what_is_there_and_a_method_of_the_users_needs_consent(
    out, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_bench_method.py").write_text(OWN)
    shutil.copytree(out, tmp_path / "got")
    words = [
        "--budget",
        "tiny",
        "--tasks",
        TASK,
        "--methods",
        ",".join(METHODS),
        "--jobs",
        "1",
        "--json",
    ]
    words += ["--out", "got"]
    call = lambda words: cli.call(words, app, "bench")
    assert call([*words, "--add", "my_bench_method:mine"]) == 2
    assert "--trust my_bench_method" in json.loads(capsys.readouterr().out)["error"]
    assert call([*words, "--add", "my_bench_method:mine", "--trust", "my_bench_method"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["made"], found["kept"]) == (1, 2)
    assert {row["method"] for row in found["ranks"]["work"]} == {*METHODS, "mine"}
    assert (tmp_path / "got" / "benchmark.html").exists()
    assert {"runs.csv", "settings.csv", "tried.csv"} <= {
        path.rpartition("/")[2] for path in found["tables"]
    }
    assert all((tmp_path / path).is_file() for path in found["tables"])
    monkeypatch.setattr(penalty, "compute", lambda *_: penalised())
    assert call([word for word in words if word != "--json"] + ["--penalty"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "runs.csv, settings.csv, tried.csv" in said
    assert "How much does the penalty matter?" in (tmp_path / "got" / "benchmark.html").read_text()
    assert call([*words, "--render", "--results", "published"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["made"], found["kept"]) == (0, 2)
    text = (tmp_path / "published" / "benchmark.md").read_text()
    assert "Made by `python -m studies.bench --budget tiny" in text
    assert text.index("Made by") < text.index("## Which method should I use?")
    assert call(["--tasks", "quadratc"]) == 2
    assert "quadratic" in capsys.readouterr().err
