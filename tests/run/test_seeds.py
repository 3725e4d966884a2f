"""Runs with several seeds: what is repeated, and what becomes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.run.repeat import Course, band, seed_numbers, sharing, spread

METHOD = decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0)
STEP = np.arange(0, 50, 10)


def made(seed, scale=1.0):
    """A problem whose functions are created anew, as in most people's factories."""
    data = jax.random.normal(jax.random.key(seed), (4, 2))

    def outer(x, y, d):
        return scale * jnp.sum((y - d) ** 2)

    def inner(x, y, d):
        return jnp.sum((y - x) ** 2) + 0.5 * jnp.sum((y + d) ** 2)

    return decibo.Problem(outer, inner, data, jnp.zeros(2), jnp.zeros(2))


def course(values, status="done"):
    return Course(STEP[: len(values)], np.asarray(values, float), status)


def test_the_band_is_that_of_numpy_where_nothing_failed():
    rows = np.random.default_rng(0).normal(size=(6, 5))
    for kind, ends in (("quartiles", (0.25, 0.75)), ("range", (0.0, 1.0))):
        found = band([course(row) for row in rows], kind)
        for got, q in zip(found[1:], (ends[0], 0.5, ends[1]), strict=True):
            np.testing.assert_allclose(got, np.quantile(rows, q, axis=0), rtol=1e-14)


def test_a_seed_that_diverged_counts_as_infinite_from_its_end_on():
    runs = [course([1, 2, 3, 4, 5]), course([1, 2, 3, 4, 5]), course([1, 7], "diverged")]
    found = band(runs, "range")
    assert found.high.tolist() == [1, 7, np.inf, np.inf, np.inf]
    assert found.median.tolist() == [1, 2, 3, 4, 5]
    most = band([runs[0], runs[2], runs[2]], "quartiles")
    assert most.median.tolist() == [1, 7, np.inf, np.inf, np.inf]
    own = band(runs, "range", minimised=False)  # of accuracy, say, infinity would be the best
    assert own.high.tolist() == [1, 7, 3, 4, 5]


def test_a_run_that_converged_stays_and_one_that_was_interrupted_ends_the_curve():
    found = band([course([9, 8, 7, 6, 5]), course([9, 1], "converged")], "range")
    assert found.low.tolist() == [9, 1, 1, 1, 1]
    cut = band([course([9, 8, 7, 6, 5]), course([9, 8, 7], "interrupted")], "range")
    assert cut.step.tolist() == [0, 10, 20]


def test_a_measure_that_is_not_finite_is_the_worst():
    assert band([course([1, np.nan]), course([1, 2])], "range").high.tolist() == [1, np.inf]


def test_mean_and_deviation_are_those_of_the_answers_with_their_count():
    ends = [1.0, 2.0, 6.0, 1e9, None]
    found = spread(ends, [True, True, True, False, True])
    assert (found.mean, found.count, found.of) == (3.0, 3, 5)
    assert found.deviation == pytest.approx(np.std([1, 2, 6], ddof=1))
    none = spread([1.0], [False])
    assert np.isnan(none.mean)
    assert (none.count, none.of) == (0, 1)


def test_seeds_are_a_number_or_a_list():
    assert seed_numbers(3) == [0, 1, 2]
    assert seed_numbers(2, first=7) == [7, 8]
    assert seed_numbers((4, 2)) == [4, 2]
    for wrong in (0, -1, True, "3", [1, 1], [], [-1], 10**9):
        with pytest.raises(decibo.InputError):
            seed_numbers(wrong)


def test_each_run_is_the_one_that_solve_makes():
    network = lambda seed: decibo.networks.erdos_renyi(4, 0.7, seed=seed)
    options = {"steps": 30, "every": 10, "measures": ["outer"]}
    runs = decibo.repeat(made, network, METHOD, seeds=[0, 2], start=decibo.random_start, **options)
    for seed, run in zip((0, 2), runs, strict=True):
        start = decibo.random_start(seed)
        alone = decibo.solve(made(seed), network(seed), METHOD, seed=seed, start=start, **options)
        np.testing.assert_array_equal(run.history["outer"], alone.history["outer"])
    assert runs[0].history["outer"][-1] != runs[1].history["outer"][-1]
    assert runs.spread("outer").mean == pytest.approx(
        np.mean([run.history["outer"][-1] for run in runs])
    )
    assert runs.band("outer").step.tolist() == [0, 10, 20, 30]
    assert "2 seeds of ahead" in repr(runs)
    assert set(runs.to_pandas()["seed"]) == {0, 2}
    with pytest.raises(decibo.InputError, match="outr"):
        runs.spread("outr")


def test_what_is_no_function_of_the_seed_stays_and_a_diverged_seed_is_counted():
    bold = METHOD.replace(alpha=1e6)
    runs = decibo.repeat(made(0), decibo.ring(4), bold, seeds=2, steps=20, measures=["outer"])
    assert runs.problems[0].functions == runs.problems[1].functions
    assert runs.spread("outer").count == 0
    assert "2 diverged" in repr(runs)
    assert "0 of 2 seeds" in repr(runs)


def test_functions_that_compute_the_same_share_a_program():
    first = made(0)
    again = made(1)
    assert again.functions != first.functions
    assert sharing(again, first).functions == first.functions
    assert sharing(again, first).data is again.data
    other = made(1, scale=2.0)
    assert sharing(other, first) is other


def test_a_factory_that_returns_something_else_is_rejected():
    with pytest.raises(decibo.InputError, match=r"problem\(0\) returned None"):
        decibo.repeat(lambda seed: None, decibo.ring(4), METHOD)
    with pytest.raises(decibo.InputError, match="network must be a decibo network"):
        decibo.repeat(made, None, METHOD)
