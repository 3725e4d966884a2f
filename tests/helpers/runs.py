"""Run folders for the tests: real ones from solve, and made-up ones with any history."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

import decibo
from decibo.measure.cost import Cost
from decibo.report import write_run
from decibo.run.solution import Solution, Status

PROBLEM = decibo.problems.quadratic(agents=4)
RING = decibo.ring(4)
METHOD = decibo.ahead(alpha=0.1, gamma=0.1, lam=10.0)


def made_up(history, status="done", message="", steps=None, seconds=2.0):
    """A solution with this history, which comes from no run."""
    steps = int(history["step"][-1]) if steps is None else steps
    cost = Cost(
        outer_gradients=1, inner_gradients=2, messages=1, numbers=9, bytes=72, agents=4, links=8, steps=steps,
        seconds=seconds,
    )  # fmt: skip
    x, y = jnp.zeros(3), {"a": jnp.ones(2), "b": jnp.zeros(())}
    agents = SimpleNamespace(
        x=jnp.arange(12.0).reshape(4, 3), y={"a": jnp.ones((4, 2)), "b": jnp.zeros(4)}
    )
    return Solution(x, y, agents, history, cost, Status(status), message, steps, METHOD, RING)


def curve(values, every=10):
    """A history of one measure."""
    values = np.asarray(values)
    return {"step": every * np.arange(len(values)), "stationarity": values}


def written(folder, history, label=None, network=RING, method=METHOD, **solution):
    return write_run(
        folder, made_up(history, **solution), PROBLEM, network, method, label=label, seed=3
    )
