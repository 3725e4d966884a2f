"""Lanes of one compiled program are the runs that solve makes."""

import jax
import numpy as np
import pytest

import decibo
from decibo.measure.measures import Consensus
from decibo.paper.sweep import mean_x, sweep

MEASURES = {"x": mean_x, "consensus": Consensus("y")}


def test_lanes_are_the_runs_of_solve():
    problem, steps = decibo.problems.synthetic(), 20
    networks = [decibo.networks.erdos_renyi(10, 0.7, seed=seed) for seed in range(2)]
    methods = [decibo.ahead(alpha=a, beta=1e-3, gamma=1e-2, lam=20.0) for a in (7e-4, 1e-4)]
    starts = [decibo.random_start(seed, {"x": 1.0, "y": 1.0, "z": 1.0}) for seed in range(2)]
    seen = sweep(problem, networks, methods, steps=steps, every=5, measures=MEASURES, start=starts)
    for k in range(2):
        run = decibo.solve(
            problem, networks[k], methods[k], steps=steps, every=5, measures=MEASURES, start=starts[k], progress=False
        )
        np.testing.assert_array_equal(seen.steps, run.history["step"])
        for name in MEASURES:
            np.testing.assert_allclose(seen.rows[name][k], run.history[name], rtol=1e-10, atol=1e-12)


def test_one_lane_that_diverges_leaves_the_others_alone():
    problem, network = decibo.problems.synthetic(), decibo.ring(10)
    methods = [decibo.ahead(alpha=a, beta=1e-3, gamma=1e-2, lam=20.0) for a in (7e-4, 1e3)]
    seen = sweep(problem, network, methods, steps=300, every=100, measures=MEASURES)
    assert seen.finite.tolist() == [True, False]
    assert np.isfinite(seen.rows["x"][0]).all()


def test_lists_must_have_one_length():
    method = decibo.ahead(alpha=1e-4, beta=1e-3, gamma=1e-2, lam=20.0)
    with pytest.raises(decibo.InputError, match="one entry for each lane"):
        sweep(decibo.problems.synthetic(), [decibo.ring(10)] * 2, [method] * 3, steps=1, every=1, measures=MEASURES)


def test_precision_does_not_depend_on_the_caller():
    from decibo.paper import suite
    from decibo.paper.result import Size

    found = []
    for flag in (True, False):
        with jax.enable_x64(flag):
            found.append(suite.run("fig1", {}, Size(seeds=1, tiny=True)).tables["curves"]["distance_x"])
    assert found[0].dtype == np.float64
    np.testing.assert_array_equal(*found)
