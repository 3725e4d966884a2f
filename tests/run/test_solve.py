"""The loop: what it records, when it stops, what it keeps."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.run import loop
from helpers.twin import problem

METHOD = decibo.ahead(alpha=0.02, beta=0.01, gamma=0.05, lam=5.0)


def test_history_has_the_start_every_multiple_and_the_end():
    ours, _ = problem("vector", 5)
    solution = decibo.solve(ours, decibo.ring(5), METHOD, steps=25, every=10)
    assert solution.history["step"].tolist() == [0, 10, 20, 25]
    assert set(solution.history) == {
        "step",
        "outer",
        "inner",
        "gap",
        "direction_norm",
        "consensus_x",
        "consensus_y",
        "consensus_z",
    }
    assert all(len(values) == 4 for values in solution.history.values())
    assert (solution.status, solution.message, solution.steps) == ("done", "All 25 steps done.", 25)


def test_the_history_does_not_depend_on_how_often_it_is_recorded():
    ours, _ = problem("vector", 5)
    often = decibo.solve(
        ours, decibo.ring(5), METHOD, steps=2400, every=1, measures=["outer", "stationarity"]
    )
    seldom = decibo.solve(
        ours, decibo.ring(5), METHOD, steps=2400, every=1200, measures=["outer", "stationarity"]
    )
    for name in ("outer", "stationarity"):
        np.testing.assert_allclose(often.history[name][::1200], seldom.history[name], rtol=1e-12)


def test_solution_is_shaped_like_the_start():
    ours, _ = problem("nested", 4)
    solution = decibo.solve(ours, decibo.ring(4), METHOD, steps=2)
    shapes = lambda tree: jax.tree.map(lambda leaf: leaf.shape, tree)
    assert shapes(solution.x) == shapes(ours.x0)
    assert shapes(solution.y) == shapes(ours.y0)
    assert solution.agents.z["u"].shape == (4, 2, 2)


def test_float32_stays_float32():
    ours, twin = problem("vector", 4)
    small = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), twin.data)
    ours = decibo.Problem(
        ours.outer, ours.inner, small, np.zeros(3, np.float32), np.zeros(4, np.float32)
    )
    method = decibo.ahead(
        alpha=lambda k: jnp.float64(0.01), beta=0.01, gamma=np.float64(0.05), lam=5.0
    )
    solution = decibo.solve(ours, decibo.ring(4), method, steps=5)
    assert solution.x.dtype == np.float32
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(solution.state))


def test_data_by_agent_equals_stacked_data():
    ours, twin = problem("vector", 5)
    asked = []

    def data(agent):
        asked.append(agent)
        return {name: leaf[agent] for name, leaf in twin.data.items()}

    private = decibo.Problem(ours.outer, ours.inner, data, ours.x0, ours.y0)
    one = decibo.solve(private, decibo.ring(5), METHOD, steps=7)
    two = decibo.solve(ours, decibo.ring(5), METHOD, steps=7)
    np.testing.assert_array_equal(one.agents.x, two.agents.x)
    assert asked == [0, 1, 2, 3, 4]


def test_random_starts():
    ours, _ = problem("vector", 5)
    run = lambda start: decibo.solve(
        ours,
        decibo.ring(5),
        METHOD,
        steps=1,
        start=start,
        measures=["consensus_x", "consensus_y", "gap"],
    )
    common, apart = run(decibo.random_start(0, common=True)), run(decibo.random_start(0))
    assert common.history["consensus_x"][0] < 1e-25 < 0.1 < apart.history["consensus_x"][0]
    assert abs(apart.history["gap"][0]) < 1e-15  # z starts where y does
    partly = run(decibo.random_start(0, {"x": 0.0, "y": 1.0, "z": 1.0}, common=True))
    assert abs(partly.history["gap"][0]) > 1e-3
    again = run(decibo.random_start(0))
    np.testing.assert_array_equal(apart.agents.x, again.agents.x)
    assert np.abs(run(decibo.random_start(1)).agents.x - apart.agents.x).max() > 1e-3


def test_until_ends_a_run_as_converged():
    ours, _ = problem("vector", 5)
    options = {"every": 10, "measures": ["consensus_x", "stationarity"]}
    seen = decibo.solve(ours, decibo.complete(5), METHOD, steps=100, **options).history[
        "stationarity"
    ]
    target = float(seen[4:6].mean())
    solution = decibo.solve(
        ours, decibo.complete(5), METHOD, steps=100_000, until={"stationarity": target}, **options
    )
    assert solution.status == "converged"
    assert solution.steps == 50
    np.testing.assert_allclose(solution.history["stationarity"], seen[:6], rtol=1e-12)
    assert "Reached stationarity <=" in solution.message


def test_another_step_size_another_length_and_another_seed_need_no_second_compilation():
    ours, _ = problem("vector", 5)
    options = {"measures": ["outer"], "every": 5}
    decibo.solve(ours, decibo.ring(5), METHOD, steps=10, **options)
    before = loop.advance.compiled()
    decibo.solve(ours, decibo.ring(5), METHOD.replace(alpha=0.001), steps=33, seed=4, **options)
    decibo.solve(ours, decibo.networks.path(5), METHOD, steps=33, **options)
    assert loop.advance.compiled() == before


def test_a_run_that_blows_up_says_when_and_what_to_lower():
    ours, _ = problem("vector", 5)
    wild = METHOD.replace(gamma=5.0)
    solution = decibo.solve(ours, decibo.ring(5), wild, steps=5000, every=7)
    assert solution.status == "diverged"
    assert f"stopped being finite at step {solution.steps + 1} of 5000" in solution.message
    assert "Lower gamma (try" in solution.message
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solution.state))
    assert solution.history["step"][-1] <= solution.steps < solution.history["step"][-1] + 7
    one_more = decibo.solve(ours, decibo.ring(5), wild, steps=solution.steps)
    # the state before the failure is really the last finite one
    assert one_more.steps == solution.steps
    assert one_more.status == "diverged"  # which is no answer either
    assert "has grown from" in one_more.message
    with pytest.raises(decibo.DivergedError, match="stopped being finite") as caught:
        decibo.solve(ours, decibo.ring(5), wild, steps=5000, throw=True)
    assert caught.value.solution.steps == solution.steps


@pytest.mark.parametrize(("setting", "value"), [("gamma", 3.0), ("beta", 1.2), ("alpha", 40.0)])
def test_the_advice_names_the_step_size_that_was_too_large(setting, value):
    ours, _ = problem("vector", 5)
    solution = decibo.solve(ours, decibo.ring(5), METHOD.replace(**{setting: value}), steps=5000)
    assert solution.status == "diverged"
    assert f"{setting} (try " in solution.message
    better = float(solution.message.split(f"{setting} (try ")[1].split(")")[0])
    assert (
        decibo.solve(
            ours, decibo.ring(5), METHOD.replace(**{setting: better}), steps=solution.steps
        ).status
        == "done"
    )


def test_a_growing_but_finite_run_is_not_called_diverged():
    data = jnp.zeros((2, 1))
    away = decibo.Problem(
        lambda x, y, d: -jnp.sum(x) + 0 * jnp.sum(y),
        lambda x, y, d: jnp.sum((y - 0 * x) ** 2),
        data,
        0.0,
        0.0,
    )
    solution = decibo.solve(
        away,
        decibo.networks.path(2),
        decibo.ahead(alpha=1e3, beta=0.1, gamma=0.1, lam=1.0),
        steps=1000,
    )
    assert solution.status == "done"
    assert solution.x == pytest.approx(1e6)


def test_interruption_keeps_what_there_is(monkeypatch):
    ours, _ = problem("vector", 5)
    calls = []

    def stop(step, steps, latest):
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt

    solution = decibo.solve(ours, decibo.ring(5), METHOD, steps=10**6, every=10, progress=stop)
    assert solution.status == "interrupted"
    assert solution.steps == solution.history["step"][-1] == calls[-1]
    assert "everything up to there is kept" in solution.message


def test_progress_gets_the_latest_measures():
    ours, _ = problem("vector", 5)
    seen = []
    decibo.solve(
        ours,
        decibo.ring(5),
        METHOD,
        steps=40,
        every=10,
        progress=lambda k, n, latest: seen.append((k, n, dict(latest))),
    )
    assert seen[-1][:2] == (40, 40)
    assert seen[-1][2]["outer"] > 0


def test_one_agent():
    ours, _ = problem("vector", 1)
    solution = decibo.solve(ours, decibo.complete(1), METHOD, steps=20)
    assert solution.history["consensus_x"][-1] == 0
    assert solution.cost.bytes_total == 0


def test_cost_of_ahead():
    ours, _ = problem("vector", 5)
    cost = decibo.solve(ours, decibo.ring(5), METHOD, steps=20).cost
    n, r = 3, 4
    assert (cost.outer_gradients, cost.inner_gradients, cost.products) == (1, 2, 0)
    assert (cost.messages, cost.numbers, cost.bytes) == (1, n + 2 * r, 8 * (n + 2 * r))
    assert cost.gradients_total == 3 * 5 * 20
    assert cost.bytes_total == 8 * (n + 2 * r) * 2 * 5 * 20


@pytest.mark.parametrize(("x0", "y0", "name"), [((0,), (2,), "x0"), ((2,), (3, 0), "y0")])
def test_variables_without_a_number_are_rejected(x0, y0, name):
    with pytest.raises(decibo.InputError, match=f"{name} must hold at least one number"):
        decibo.Problem(
            lambda x, y, d: 0.0, lambda x, y, d: 0.0, np.ones(3), np.zeros(x0), np.zeros(y0)
        )


def test_a_run_after_a_fork_is_rejected_and_does_not_hang(monkeypatch):
    ours, _ = problem("vector", 5)
    decibo.solve(ours, decibo.ring(5), METHOD, steps=2)
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)  # as in the child
    with pytest.raises(decibo.InputError, match=r"forked from process \d+ after a run.*'spawn'"):
        decibo.solve(ours, decibo.ring(5), METHOD, steps=2)
    with pytest.raises(decibo.InputError, match="forked from process"):
        decibo.sweep(ours, decibo.ring(5), METHOD, {"alpha": [0.1]}, steps=2)
