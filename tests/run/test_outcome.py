"""A run that failed never says done; one that has not begun never says converged."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.measure.cost import Seconds
from decibo.run import outcome, run
from helpers.twin import problem

AGENTS = 3
DATA = jnp.arange(1.0, 1.0 + AGENTS)
NETWORK = decibo.networks.path(AGENTS)
STEPS = {"steps": 300, "progress": False}
METHOD = decibo.ahead(alpha=0.02, beta=0.01, gamma=0.05, lam=5.0)


def f(x, y, d):
    return jnp.sum((y - d) ** 2) + jnp.sum(x**2)


def bowl(x, y, d):
    return jnp.sum((y - x - d) ** 2)


def hill(x, y, d):
    return -jnp.sum(y**2) + jnp.sum(x * y)


def plane(x, y, d):
    return jnp.sum(y) + 0 * jnp.sum(x)


def no_y(x, y, d):
    return jnp.sum(x**2) + 0 * jnp.sum(y)


def undefined(x, y, d):
    """NaN from x = 0.1 on, with a gradient of 0 there."""
    return jnp.where(jnp.sum(x) > 0.1, jnp.nan, f(x, y, d) - 4 * jnp.sum(x))


def stated(outer=f, inner=bowl):
    return decibo.Problem(outer, inner, DATA, jnp.zeros(2), jnp.zeros(2))


@pytest.mark.parametrize("inner", [hill, plane, no_y])
def test_automatic_steps_on_an_inner_level_without_curvature(inner):
    solution = decibo.solve(stated(inner=inner), NETWORK, **STEPS)
    assert solution.status in ("diverged", "failed")
    assert "must be strongly convex in y, but its Hessian has the eigenvalue" in solution.message
    assert "=inf" not in solution.message
    with pytest.raises(decibo.DivergedError, match="strongly convex"):
        decibo.solve(stated(inner=inner), NETWORK, throw=True, **STEPS)


def test_fixed_steps_on_an_inner_level_without_curvature_are_not_told_to_be_smaller():
    solution = decibo.solve(stated(inner=hill), NETWORK, METHOD, steps=20_000, progress=False)
    assert solution.status == "diverged"
    assert "strongly convex" in solution.message
    assert "Lower" not in solution.message


def test_a_slow_drift_of_y_is_found_out_because_the_objective_rose():
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)
    solution = decibo.solve(stated(inner=plane), NETWORK, method, steps=20_000, progress=False)
    assert solution.status == "failed"
    assert "eigenvalue 0" in solution.message


@pytest.mark.parametrize(
    "method", [METHOD, decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)], ids=str
)
def test_fixed_steps_on_an_inner_level_that_ignores_y_are_found_out_because_y_stayed(method):
    solution = decibo.solve(stated(inner=no_y), NETWORK, method, steps=200, progress=False)
    assert solution.status == "failed"
    assert "eigenvalue 0" in solution.message


@pytest.mark.parametrize(
    "method", [METHOD, decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)], ids=str
)
def test_a_sweep_finds_out_that_y_stayed(method):
    found = decibo.sweep(
        stated(inner=no_y), NETWORK, method, {"alpha": [0.01, 0.02]}, steps=200, progress=False
    )
    assert [str(status) for status in found.status] == ["failed", "failed"]


def test_growth_is_divergence_long_before_overflow():
    ours, _ = problem("vector", 5)
    solution = decibo.solve(ours, decibo.ring(5), METHOD.replace(gamma=5.0), steps=8)
    assert solution.status == "diverged"
    assert all(np.isfinite(values).all() for values in solution.history.values())
    assert "The largest number has grown from" in solution.message
    assert "Lower gamma (try" in solution.message


def test_far_from_the_start_is_not_divergence_if_the_objective_falls():
    distant = decibo.Problem(f, bowl, 1e7 * DATA, jnp.zeros(2), jnp.zeros(2))
    solution = decibo.solve(
        distant, NETWORK, decibo.ahead_exact(alpha=0.05, gamma=0.1, lam=20.0), **STEPS
    )
    assert float(jnp.max(jnp.abs(solution.y))) > outcome.WORSE
    assert solution.status == "done"


def test_a_target_reached_at_infinity_is_no_convergence():
    falling = lambda x, y, d: -1e9 * jnp.sum(x) + 0 * jnp.sum(y)
    method = decibo.ahead_exact(alpha=1e3, gamma=0.1, lam=20.0)
    solution = decibo.solve(
        stated(outer=falling),
        NETWORK,
        method,
        every=10,
        measures=["outer"],
        until={"outer": -1e20},
        **STEPS,
    )
    assert solution.status == "diverged"
    assert solution.steps < STEPS["steps"]


@pytest.mark.parametrize("until", [None, {"outer": -1e9}])
def test_automatic_steps_towards_infinity_are_no_convergence(until):
    falling = lambda x, y, d: -jnp.sum(x) + 0 * jnp.sum(y)
    options = STEPS | {"steps": 1000, "every": 10, "measures": ["outer"], "until": until}
    solution = decibo.solve(stated(outer=falling), NETWORK, **options)
    assert solution.history["outer"][-1] < -1e9
    assert solution.status == "diverged"


@pytest.mark.parametrize("method", [METHOD, decibo.ahead_exact()], ids=["given", "found"])
def test_an_objective_that_stops_being_a_number_is_a_failure_that_says_since_when(method):
    solution = decibo.solve(stated(outer=undefined), NETWORK, method, every=10, **STEPS)
    assert np.isfinite(solution.x).all()
    assert solution.status == "failed"
    bad = solution.history["step"][np.isnan(solution.history["outer"])]
    assert 0 < bad[0] < STEPS["steps"]
    assert f"outer is not a finite number from step {bad[0]} on" in solution.message


def test_an_exact_measure_without_an_answer_is_explained():
    lying = lambda x, y, d: 0.5 * jnp.sum((y[0] - x[0] - d) ** 2)  # does not say what y[1] is
    solution = decibo.solve(stated(inner=lying), NETWORK, METHOD, measures=["phi"], **STEPS)
    assert solution.status == "failed"
    assert "phi is not a finite number from the start" in solution.message
    assert "eigenvalue 0" in solution.message


def test_a_sweep_judges_each_run_by_the_same_rule():
    ours, _ = problem("vector", 5)
    found = decibo.sweep(
        ours, decibo.ring(5), METHOD, {"gamma": [0.05, 5.0]}, steps=8, progress=False
    )
    assert found.status == ("done", "diverged")
    assert np.isfinite(found.history["outer"]).all()
    assert found.best("consensus_x") == {"gamma": 0.05}
    broken = decibo.sweep(
        stated(outer=undefined), NETWORK, METHOD, {"alpha": [1e-9, 0.02]}, **STEPS
    )
    assert broken.status == ("done", "failed")


def test_a_run_that_does_not_move_says_so():
    ours, _ = problem("vector", 5)
    still = decibo.solve(ours, decibo.ring(5), METHOD.replace(alpha=1e-12), steps=20)
    assert still.status == "done"
    assert "x has hardly moved" in still.message
    assert "hardly" not in decibo.solve(ours, decibo.ring(5), METHOD, steps=20).message


@pytest.mark.parametrize("measure", ["consensus_x", "gap"])
def test_what_holds_at_the_start_does_not_end_a_run(measure):
    ours, _ = problem("vector", 5)
    method = decibo.ahead_exact(alpha=1e-30, gamma=1e-30, lam=20.0)
    solution = decibo.solve(ours, decibo.ring(5), method, steps=40, every=10, until={measure: 1e-6})
    assert solution.history[measure][0] <= 1e-6
    assert (solution.status, solution.steps) == ("done", 40)
    assert (
        f"{measure} <= 1e-06 held from the start on, which does not end a run" in solution.message
    )


def test_a_target_that_holds_at_the_start_counts_once_it_has_been_missed():
    ours, _ = problem("vector", 5)
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)
    options = {"steps": 20_000, "every": 10, "until": {"consensus_x": 1e-9}}
    solution = decibo.solve(ours, decibo.ring(5), method, **options)
    assert solution.status == "converged"
    assert solution.history["consensus_x"][0] == 0
    assert solution.history["consensus_x"][1:-1].max() > 1e-9 >= solution.history["consensus_x"][-1]


def test_two_targets_one_of_which_holds_at_the_start():
    ours, _ = problem("vector", 5)
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)
    until = {"consensus_x": 1e3, "stationarity": 1e-6}
    solution = decibo.solve(
        ours,
        decibo.ring(5),
        method,
        steps=20_000,
        every=10,
        measures=["consensus_x", "stationarity"],
        until=until,
    )
    assert solution.status == "converged"
    assert (solution.history["consensus_x"] <= 1e3).all()


def test_compiling_is_no_step():
    # another function, so that everything is compiled
    fresh = lambda x, y, d: f(x, y, d) + 0 * jnp.sum(x)
    ours = stated(outer=fresh)
    first = decibo.solve(ours, NETWORK, METHOD, **STEPS)
    again = decibo.solve(ours, NETWORK, METHOD, **STEPS)
    assert first.cost.compiling > 10 * again.cost.compiling
    table = first.to_pandas()
    assert table["seconds"].iloc[-1] == pytest.approx(first.cost.seconds)


def test_measuring_is_no_step():
    def slow(snapshot):
        def wait(x):
            time.sleep(0.01)
            return x

        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float64), jnp.sum(snapshot.x))

    begun = time.perf_counter()
    cost = decibo.solve(
        stated(), NETWORK, METHOD, steps=100, every=1, measures=[slow], progress=False
    ).cost
    assert cost.measuring > cost.seconds  # a record waits for 10 ms, a step takes microseconds
    assert cost.seconds + cost.measuring + cost.compiling <= time.perf_counter() - begun


def test_spans_of_compiling_that_lie_inside_each_other_count_once(monkeypatch):
    now = iter([1.0, 2.0, 4.0, 9.0])
    monkeypatch.setattr(run.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(run, "_compiled", run._Compiled())
    run._listen(run.COMPILING + "trace", 0.5)  # from 0.5 to 1
    run._listen(run.COMPILING + "trace", 0.5)  # from 1.5 to 2
    run._listen(run.COMPILING + "lower", 3.75)  # from 0.25 to 4, around both
    run._listen("something else", 100.0)
    run._listen(run.COMPILING + "backend", 2.0)  # from 7 to 9
    assert run._compiled.total == 5.75


def test_a_call_with_steps_and_records_is_shared_out_in_proportion():
    timing = run.Timing()
    timing.idle = 0.001
    # 10 steps: the quickest call counts, less what an empty call takes
    for lap in (0.9, 0.011, 0.5):
        assert timing.samples < run.SAMPLES
        assert timing.split(Seconds(steps=lap), 10, 0) == (lap, 0.0, 0.0)
    assert timing.split(Seconds(steps=0.010), 0, 1) == (0.0, 0.0, 0.010)
    assert timing.samples == run.SAMPLES
    both = timing.split(Seconds(steps=2.0, compiling=0.5), steps=100, records=100)
    assert both == pytest.approx((0.2, 0.5, 1.8))
    assert timing.split(Seconds(steps=2.0), steps=100, records=0) == (2.0, 0.0, 0.0)


def test_records_are_taken_off_where_steps_were_never_timed_alone():
    timing = run.Timing()
    timing.idle = 0.0
    timing.split(Seconds(steps=0.25), 0, 1)
    assert timing.split(Seconds(steps=2.0), steps=100, records=4) == (1.0, 0.0, 1.0)
    assert timing.split(Seconds(steps=2.0), steps=100, records=40) == (0.0, 0.0, 2.0)


def test_a_run_that_ran_away_says_which_entry():
    """f has no minimum in the third entry of p: it runs away, and the others do not."""
    problem = decibo.Problem(
        lambda x, y, d: jnp.sum((y["a"] - d) ** 2) - jnp.exp(x["p"][2]),
        lambda x, y, d: jnp.sum((y["a"] - x["p"][:2]) ** 2) + y["b"] ** 2,
        jnp.arange(8.0).reshape(4, 2),
        {"p": jnp.zeros(3)},
        {"a": jnp.zeros(2), "b": jnp.zeros(())},
    )
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    solution = decibo.solve(problem, decibo.ring(4), method, steps=1000, progress=False)
    assert not solution.status.sound
    assert "x['p'][2] ran to " in solution.message
    assert "y['a']" not in solution.message
    assert "more of" not in solution.message


@pytest.mark.parametrize(("lam", "words"), [(1.0, "y and z are far from each other"), (4.0, "")])
def test_a_pair_that_runs_away_where_g_bends_down_is_named(lam, words):
    problem = decibo.Problem(
        lambda x, y, d: jnp.sum(y) + jnp.sum(x**2),  # pulls harder than g holds, for a small lam
        lambda x, y, d: 0.5 * jnp.sum(jnp.log1p((y - 0.1 * x) ** 2)),
        np.zeros((3, 1)),
        np.zeros(2),
        np.zeros(2),
    )
    method = decibo.ahead_exact(alpha=0.01, gamma=0.5, lam=lam)
    solution = decibo.solve(problem, decibo.ring(3), method, steps=1000, progress=False)
    assert solution.status == "done"
    assert words in solution.message
    assert bool(words) == ("far from each other" in solution.message)


@pytest.mark.parametrize("huge", [np.inf, 1e150])
def test_a_step_size_that_nothing_limits_is_no_number(huge):
    words = outcome.step_sizes({"alpha": jnp.full(3, huge), "gamma": jnp.full(3, 0.25)})
    assert words == (
        "Step sizes found by the agents: gamma=0.25. No curvature was seen that would limit alpha."
    )
