"""The ways in and out: networkx, optax, pandas, benchopt."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest

import decibo
from studies.bench.benchopt import BilevelSolver

pytestmark = pytest.mark.quick


def test_networkx_in_and_out():
    graph = networkx.relabel_nodes(networkx.cycle_graph(5), dict(enumerate("abcde")))
    network = decibo.from_graph(graph)
    back = network.graph
    assert networkx.is_isomorphic(back, graph)
    weights = networkx.to_numpy_array(back, weight="weight", nodelist=range(5))
    np.testing.assert_allclose(weights, network.W - np.diag(np.diag(network.W)))
    np.testing.assert_array_equal(decibo.from_graph(back).W, network.W)
    assert network.labels == tuple("abcde")


def test_optax_schedules_are_step_sizes():
    optax = pytest.importorskip("optax")
    schedule = optax.exponential_decay(0.1, transition_steps=100, decay_rate=0.5)
    own = lambda k: 0.1 * 0.5 ** (k / 100)
    problem = decibo.problems.quadratic()
    ring = decibo.ring(10)
    runs = [
        decibo.solve(problem, ring, decibo.ahead(alpha=rate, gamma=rate, lam=10.0), steps=50)
        for rate in (schedule, own)
    ]
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=1e-6)
    fixed = decibo.solve(problem, ring, decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0), steps=50)
    assert np.abs(fixed.x - runs[0].x).max() > 1e-4


def test_history_to_pandas():
    pytest.importorskip("pandas")
    spread = lambda s: jnp.ptp(s.agents.x, axis=0)
    end = decibo.solve(
        decibo.problems.quadratic(),
        decibo.ring(10),
        decibo.ahead_exact(alpha=0.05, gamma=0.1),
        steps=30,
        every=10,
        measures=["outer", ("spread", spread)],
    )
    frame = end.to_pandas()
    assert list(frame.columns) == [
        "step", "work", "gradients", "products", "bytes", "seconds", "outer", "spread[0]", "spread[1]", "spread[2]",
    ]  # fmt: skip
    assert list(frame["step"]) == [0, 10, 20, 30]
    assert frame["gradients"].iloc[-1] == end.cost.gradients_total
    assert frame["bytes"].iloc[-1] == end.cost.bytes_total
    np.testing.assert_array_equal(frame["outer"], end.history["outer"])
    np.testing.assert_array_equal(frame["spread[2]"], end.history["spread"][:, 2])


class FakeBaseSolver:
    """As much of benchopt's BaseSolver as matters: parameters become attributes, and hooks are
    called in order."""

    parameters: ClassVar[dict] = {}

    def __init__(self, **parameters):
        for name, values in self.parameters.items():
            setattr(self, name, parameters.get(name, values[0]))


class Solver(BilevelSolver, FakeBaseSolver):
    name = "decibo"
    parameters: ClassVar[dict] = {
        "method": ["ahead_exact"],
        "alpha": [None],
        "gamma": [None],
        "lam": [None],
        "n_agents": [1],
        "estimator": [None],
        "n_batches": [8],
    }


def objective():
    """What the benchmark's Objective.get_objective gives: batched functions of (inner_var,
    outer_var), and starts."""
    random = np.random.default_rng(0)
    A = jnp.asarray(random.normal(size=(40, 3)))
    B = jnp.asarray(random.normal(size=(24, 3)))
    a = A @ jnp.array([1.0, -1.0, 0.5]) + random.normal(size=40)
    b = B @ jnp.array([1.0, -1.0, 0.5])

    def batched(features, targets, penalty):
        def function(inner_var, outer_var, start=0, batch_size=1):
            part = lambda array: jax.lax.dynamic_slice_in_dim(array, start, batch_size)
            error = jnp.mean((part(features) @ inner_var - part(targets)) ** 2)
            return error + penalty * jnp.sum(jnp.exp(outer_var) * inner_var**2)

        return function

    return {
        "f_inner": batched(A, a, 0.5),
        "f_outer": batched(B, b, 0.0),
        "n_inner_samples": 40,
        "n_outer_samples": 24,
        "inner_var0": np.zeros(3),
        "outer_var0": np.zeros(3),
        "f_inner_fb": None,
        "f_outer_fb": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("agents", "estimator"), [(1, None), (4, None), (1, "saga")])
def test_benchopt_solver_descends_the_value_function(agents, estimator):
    parts = objective()
    solver = Solver(n_agents=agents, alpha=0.5, gamma=0.1, estimator=estimator)
    solver.set_objective(**parts)
    solver.run(0)
    assert (solver.get_result()["outer_var"] == parts["outer_var0"]).all()

    full = lambda name, n: lambda x, y, d: parts[name](y, x, start=0, batch_size=n)
    pooled = decibo.Problem(
        full("f_outer", 24), full("f_inner", 40), np.arange(1), jnp.zeros(3), jnp.zeros(3)
    )
    exact = decibo.reference(pooled)
    slopes = []
    for steps in (1, 300):
        solver.run(steps)
        result = solver.get_result()
        assert set(result) == {"inner_var", "outer_var"}
        slopes.append(float(jnp.linalg.norm(exact.grad(result["outer_var"]))))
    assert slopes[1] < 0.1 * slopes[0]
    np.testing.assert_allclose(result["inner_var"], exact.y(result["outer_var"]), atol=1e-2)


def test_benchopt_solver_rejects_more_agents_than_samples():
    solver = Solver(n_agents=30)
    with pytest.raises(decibo.InputError, match="fewer agents"):
        solver.set_objective(**objective())
    with pytest.raises(
        decibo.InputError, match=r"a sample in 8 batches, but there are 4 agents and 24 samples"
    ):
        Solver(n_agents=4, estimator="saga").set_objective(**objective())
    with pytest.raises(
        decibo.InputError, match="estimator must be one of minibatch, saga, page, sarah"
    ):
        Solver(estimator="sagaa").set_objective(**objective())
