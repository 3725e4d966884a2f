"""A sweep is many runs of solve in one program: same numbers, whatever the batches, and errors
before any work."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.run import batching, loop
from decibo.run import sweep as sweep_module
from decibo.run.batching import _even
from decibo.run.sweep import sweep

RING = decibo.ring(6)
ASKED = {
    "steps": 40,
    "every": 10,
    "measures": ["outer", "consensus_x", "distance_x"],
    "progress": False,
}


def problem():
    return decibo.problems.quadratic(6, 2, 3)


def exact(**settings):
    return decibo.ahead_exact(**({"alpha": 0.05, "gamma": 0.1} | settings))


def assert_runs_are_those_of_solve(found, method, network=RING, start=None, **asked):
    for k, (settings, seed) in enumerate(zip(found.settings, found.seeds, strict=True)):
        begin = start(seed) if callable(start) else start
        run = decibo.solve(
            problem(),
            network,
            method.replace(**settings),
            seed=seed,
            start=begin,
            **(ASKED | asked),
        )
        np.testing.assert_array_equal(found.history["step"], run.history["step"])
        for name in ASKED["measures"]:
            np.testing.assert_allclose(
                found.history[name][k], run.history[name], rtol=1e-12, atol=1e-12
            )


def test_runs_are_those_of_solve():
    grid = {"alpha": [0.02, 0.05, 0.1], "gamma": [0.05, 0.2]}
    found = sweep(problem(), RING, exact(), grid, **ASKED)
    assert [tuple(s.values()) for s in found.settings] == [
        (a, g) for a in grid["alpha"] for g in grid["gamma"]
    ]
    assert_runs_are_those_of_solve(found, exact())


def test_steps_that_every_does_not_divide():
    found = sweep(
        problem(), RING, exact(), [{"alpha": 0.02}, {"alpha": 0.04}], **(ASKED | {"steps": 37})
    )
    assert found.history["step"].tolist() == [0, 10, 20, 30, 37]
    assert_runs_are_those_of_solve(found, exact(), steps=37)


def test_seeds_are_those_of_solve():
    network, start = decibo.networks.failing(RING, 0.3), decibo.random_start
    found = sweep(
        problem(), network, exact(), {"alpha": [0.02, 0.05]}, seeds=[0, 3], start=start, **ASKED
    )
    assert found.seeds == (0, 3, 0, 3)
    assert len({float(value) for value in found.history["outer"][:, -1]}) == 4
    assert_runs_are_those_of_solve(found, exact(), network, start)


def test_settings_that_change_the_program_get_one_each():
    method = decibo.methods.ma_dsbo(alpha=0.02, beta=0.1, gamma=0.1, T=2, N=2)
    found = sweep(problem(), RING, method, {"T": [1, 3], "alpha": [0.01, 0.02]}, **ASKED)
    assert found.batches == (2, 2)
    assert_runs_are_those_of_solve(found, method)


def test_single_precision_stays_single_in_a_program_that_knows_double():
    p = problem()
    single = lambda tree: {name: np.asarray(value, np.float32) for name, value in tree.items()}
    small = decibo.Problem(
        p.outer, p.inner, single(p.data), np.zeros(2, np.float32), np.zeros(3, np.float32)
    )
    asked = {"steps": 20, "every": 20, "measures": [("x", _first_x)], "progress": False}
    found = sweep(small, RING, exact(), {"alpha": [0.02, 0.05]}, **asked)
    run = decibo.solve(small, RING, exact(alpha=0.05), **asked)
    assert found.history["x"].dtype == np.float32
    np.testing.assert_allclose(found.history["x"][1], run.history["x"], rtol=2e-6)


def _first_x(s):
    return s.mean("x")[0]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_batches_change_nothing(monkeypatch, size):
    grid = {"alpha": [0.01, 0.02, 0.03, 0.04, 0.05]}
    whole = sweep(problem(), RING, exact(), grid, **ASKED)
    assert whole.batches == (5,)
    monkeypatch.setattr(sweep_module, "batch_size", lambda *_: size)
    cut = sweep(problem(), RING, exact(), grid, **ASKED)
    assert cut.batches == (size,) * -(-5 // size)
    for name, row in whole.history.items():
        np.testing.assert_allclose(cut.history[name], row, rtol=1e-12, atol=1e-12)


def test_the_size_of_a_batch_is_found_once_for_a_program(monkeypatch):
    asked = []
    real = batching.memory
    monkeypatch.setattr(
        batching, "memory", lambda program, batch: asked.append(batch.size) or real(program, batch)
    )
    monkeypatch.setattr(batching, "_found", {})
    shared = problem()
    for alphas in ([0.01, 0.02, 0.03], [0.04, 0.05, 0.06]):
        assert sweep(shared, RING, exact(), {"alpha": alphas}, **ASKED).batches == (3,)
    assert asked == [3]
    sweep(shared, RING, exact(), {"alpha": [0.01, 0.02]}, **ASKED)
    assert asked == [3, 2]
    monkeypatch.setattr(batching, "free_memory", lambda: 1.0)  # other programs have taken it
    assert sweep(shared, RING, exact(), {"alpha": [0.01, 0.02]}, **ASKED).batches == (1, 1)
    monkeypatch.setattr(batching, "free_memory", lambda: 1e9)  # and have given it back
    assert sweep(shared, RING, exact(), {"alpha": [0.01, 0.02]}, **ASKED).batches == (2,)
    monkeypatch.setattr(batching, "REMEMBERED", 1)
    sweep(shared, RING, exact(), {"alpha": [0.01, 0.02, 0.03, 0.04]}, **ASKED)
    assert len(batching._found) == 1


def test_memory_limits_the_batch(monkeypatch):
    monkeypatch.setattr(batching, "_found", {})
    sizes = []
    real = batching.memory
    monkeypatch.setattr(
        batching, "memory", lambda program, batch: sizes.append(real(program, batch)) or sizes[-1]
    )
    monkeypatch.setattr(batching, "free_memory", lambda: 4 * 40_000.0)
    many = {"alpha": np.linspace(0.01, 0.05, 64)}
    found = sweep(problem(), RING, exact(), many, **ASKED)
    assert 1 < len(found.batches) < 64
    assert sizes[-1] <= 40_000  # a quarter of what is free


def test_what_does_not_fit_runs_alone(monkeypatch):
    monkeypatch.setattr(batching, "free_memory", lambda: 1.0)
    found = sweep(problem(), RING, exact(), {"alpha": [0.01, 0.02]}, **ASKED)
    assert found.batches == (1, 1)
    assert_runs_are_those_of_solve(found, exact())


def test_a_slower_batch_is_given_up(monkeypatch):
    monkeypatch.setattr(batching, "LONG", 0.0)
    monkeypatch.setattr(batching, "_found", {})
    monkeypatch.setattr(
        batching, "_seconds", lambda program, batch: float(batch.inputs.core is not None)
    )
    # one step of a batch takes as long as one of a run alone: together is faster
    assert sweep(problem(), RING, exact(), {"alpha": [0.01, 0.02]}, **ASKED).batches == (2,)
    monkeypatch.setattr(batching, "_seconds", lambda program, batch: batch.size**2.0)
    monkeypatch.setattr(batching, "_found", {})
    assert sweep(problem(), RING, exact(), {"alpha": [0.01, 0.02]}, **ASKED).batches == (1, 1)


@given(st.integers(1, 300), st.floats(0.1, 400))
def test_batches_are_even_and_small_enough(count, most):
    size = _even(count, most)
    assert 1 <= size <= max(1, most)
    # no more batches than need be
    assert -(-count // size) == -(-count // int(np.clip(most, 1, count)))


def test_one_run_diverges_and_the_others_do_not_notice():
    found = sweep(
        problem(),
        RING,
        exact(),
        {"alpha": [0.05, 1e3, 0.02]},
        **(ASKED | {"steps": 400, "every": 40}),
    )
    assert [str(status) for status in found.status] == ["done", "diverged", "done"]
    assert np.isnan(found.history["outer"][1, -1])
    assert np.isfinite(found.history["outer"][1, 0])
    assert np.isfinite(found.history["outer"][[0, 2]]).all()
    alone = decibo.solve(problem(), RING, exact(), **(ASKED | {"steps": 400, "every": 40}))
    np.testing.assert_allclose(found.history["outer"][0], alone.history["outer"], rtol=1e-12)
    assert found.best("outer") in ({"alpha": 0.05}, {"alpha": 0.02})


def test_all_runs_diverge():
    found = sweep(
        problem(), RING, exact(), {"alpha": [1e3, 2e3]}, **(ASKED | {"steps": 4000, "every": 1})
    )
    assert {str(status) for status in found.status} == {"diverged"}
    assert found.history["outer"].shape == (2, 4001)
    with pytest.raises(decibo.InputError, match="Lower the step sizes"):
        found.best("outer")


@pytest.mark.quick
def test_table_best_and_repr():
    found = sweep(problem(), RING, exact(), {"alpha": [0.001, 0.1]}, seeds=range(2), **ASKED)
    assert [(row["alpha"], row["seed"]) for row in found.table] == [
        (0.001, 0),
        (0.001, 1),
        (0.1, 0),
        (0.1, 1),
    ]
    assert set(found.table[0]) == {"alpha", "seed", "status", *ASKED["measures"]}
    last = {row["alpha"]: row["distance_x"] for row in found.table}
    assert found.best("distance_x") == {"alpha": min(last, key=last.get)}
    assert "4 runs of ahead_exact" in repr(found)
    assert len(repr(found).splitlines()) == 6
    assert found.to_pandas()["distance_x"].tolist() == [row["distance_x"] for row in found.table]
    with pytest.raises(decibo.InputError, match="Did you mean 'distance_x'"):
        found.best("distance")


def test_progress_counts_the_steps_of_all_runs():
    told = []
    sweep(
        problem(),
        RING,
        exact(),
        {"alpha": [0.01, 0.02]},
        **(ASKED | {"progress": lambda *a: told.append(a[:2])}),
    )
    assert told[-1] == (80, 80)
    assert [step for step, _ in told] == sorted(step for step, _ in told)


def test_interrupted_between_batches(monkeypatch):
    monkeypatch.setattr(sweep_module, "batch_size", lambda *_: 1)

    def stop(step, steps, latest):
        if step >= 40:
            raise KeyboardInterrupt

    found = sweep(problem(), RING, exact(), {"alpha": [0.01, 0.02]}, **(ASKED | {"progress": stop}))
    assert [str(status) for status in found.status] == ["done", "interrupted"]
    assert np.isfinite(found.history["outer"][0]).all()
    assert np.isnan(found.history["outer"][1]).all()


@pytest.mark.parametrize(
    ("grid", "seeds", "message"),
    [
        ({"alhpa": [0.1]}, None, "Did you mean 'alpha'"),
        ({"alpha": []}, None, "at least one value"),
        ([], None, "at least one dictionary"),
        ({}, None, "something to vary"),
        ({"alpha": ["a"]}, None, "positive"),
        ({"alpha": [-1.0]}, None, "positive"),
        ({"alpha": 0.1}, None, "a list of values"),
        ({"alpha": "0.1"}, None, "a list of values"),
        ("alpha", None, "dictionary of lists"),
        ([{"alpha": 0.1}, 3], None, "dictionary of lists"),
        ({"alpha": [0.1]}, [], "at least one seed"),
        ({"alpha": [0.1]}, 0, "positive integer"),
        ({"alpha": [0.1]}, 1.5, "list of integers"),
        ({"alpha": [0.1]}, [0, -1], "at least 0"),
        ({"alpha": [0.1]}, [1, 1], "not repeat"),
    ],
)
def test_errors_before_any_work(monkeypatch, grid, seeds, message):
    monkeypatch.setattr(loop, "begin", None)
    with pytest.raises(decibo.InputError, match=message):
        sweep(problem(), RING, exact(), grid, seeds=seeds, **ASKED)


def test_cases_are_the_runs_of_solve():
    """Lists of networks, methods and starts, which differ from run to run."""
    networks = [decibo.networks.erdos_renyi(6, 0.7, seed=seed) for seed in range(2)]
    methods = [exact(), exact(alpha=0.02)]
    starts = [decibo.random_start(seed) for seed in range(2)]
    result = sweep(problem(), networks, methods, start=starts, **ASKED)
    assert result.cases == (0, 1)
    for k in range(2):
        run = decibo.solve(problem(), networks[k], methods[k], start=starts[k], **ASKED)
        for name in ASKED["measures"]:
            np.testing.assert_allclose(
                result.history[name][k], run.history[name], rtol=1e-10, atol=1e-12
            )
    assert [row["case"] for row in result.table] == [0, 1]


@pytest.mark.parametrize("first", [0, 1])
def test_methods_of_a_list_need_not_be_of_one_kind(first):
    """The automatic one has no number, and needs what the other does not."""
    methods = [decibo.ahead_exact(), decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)]
    methods = [methods[first], methods[1 - first]]
    result = sweep(problem(), RING, methods, **ASKED)
    for k, method in enumerate(methods):
        run = decibo.solve(problem(), RING, method, **ASKED)
        for name in ASKED["measures"]:
            np.testing.assert_allclose(
                result.history[name][k], run.history[name], rtol=1e-10, atol=1e-12
            )


def test_of_several_methods_what_all_of_them_have_is_measured():
    implicit = decibo.methods.sparkle_ed(alpha=0.05, beta=0.1, gamma=0.1)
    for methods in ([implicit, exact()], [exact(), implicit]):
        found = sweep(problem(), RING, methods, steps=10, progress=False).history
        assert {"outer", "direction_norm", "consensus_y"} <= found.keys()
        assert not {"consensus_v", "consensus_z", "gap"} & found.keys()
    with pytest.raises(decibo.InputError, match="no measure 'consensus_z' here"):
        sweep(problem(), RING, [exact(), implicit], measures=["consensus_z"], steps=10)


def test_a_method_without_numbers_may_have_one_seed():
    result = sweep(problem(), RING, decibo.ahead_exact(), seeds=1, **ASKED)
    assert result.status == ("done",)


def test_cases_of_a_list_share_a_grid():
    networks = [decibo.ring(6), decibo.networks.path(6)]
    result = sweep(problem(), networks, exact(), {"alpha": [0.001, 0.1]}, **ASKED)
    assert [(row["case"], row["alpha"]) for row in result.table] == [
        (0, 0.001),
        (0, 0.1),
        (1, 0.001),
        (1, 0.1),
    ]
    last = result.history["distance_x"][:, -1]
    means = {alpha: last[[k, k + 2]].mean() for k, alpha in enumerate([0.001, 0.1])}
    assert result.best("distance_x") == {"alpha": min(means, key=means.get)}


def test_one_case_in_a_list_is_a_sweep():
    assert len(sweep(problem(), [RING], exact(), **ASKED)) == 1
    with pytest.raises(decibo.InputError, match="something to vary"):
        sweep(problem(), RING, exact(), **ASKED)


def test_networks_of_a_list_must_have_the_same_size():
    private = decibo.Problem(
        lambda x, y, d: x**2, lambda x, y, d: y**2, lambda agent: 1.0, 0.0, 0.0
    )
    with pytest.raises(decibo.InputError, match="same number of agents"):
        sweep(private, [decibo.ring(4), decibo.ring(5)], exact(), **ASKED)


def test_lists_must_be_equally_long():
    with pytest.raises(decibo.InputError, match="network has 2, method has 3"):
        sweep(problem(), [RING] * 2, [exact()] * 3, **ASKED)


def test_a_method_without_settings_cannot_be_swept():
    made = decibo.compose(
        decibo.direction.penalty(10.0), decibo.consensus.dgd(), x=0.1, y=0.1, z=0.1
    )
    with pytest.raises(decibo.InputError, match="no settings"):
        sweep(problem(), RING, made, {"alpha": [0.1]}, **ASKED)


def test_measures_of_a_sweep_are_checked():
    with pytest.raises(decibo.InputError, match="measure 'phy'"):
        sweep(problem(), RING, exact(), {"alpha": [0.1]}, steps=5, measures=["phy"])
