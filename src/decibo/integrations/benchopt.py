"""decibo's methods inside the public benchopt benchmark of bilevel solvers (benchopt/benchmark_bilevel).

A file solvers/decibo.py in a clone of the benchmark is all it needs:

    from benchopt import BaseSolver
    from decibo.integrations.benchopt import BilevelSolver

    class Solver(BilevelSolver, BaseSolver):
        name = "decibo"
        parameters = {"method": ["ahead_exact"], "alpha": [None], "gamma": [None], "n_agents": [1]}

The benchmark hands over f(inner_var, outer_var, start, batch_size), the mean over `batch_size` samples from `start` on.
With n_agents = m agent i gets the i-th m-th of the samples of both levels, and its neighbours along `network`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo.errors import InputError

SETTINGS = ("alpha", "beta", "gamma", "lam")
Batched = Callable[..., jax.Array]


class BilevelSolver:
    """What the benchmark asks of a solver: set_objective, run, get_result. To be mixed into benchopt's BaseSolver.

    method      a name of decibo.CATALOG; settings that are None are left to the method (`ahead_exact` chooses its own)
    n_agents    how many agents share the samples; 1 is the benchmark's own, centralised setting
    network     the name of a network of that many agents
    """

    sampling_strategy = "iteration"  # run(n) starts anew, so that a curve needs nothing but `solve`
    requirements = ("pip::decibo",)
    method: Any = "ahead_exact"
    alpha: Any = None
    beta: Any = None
    gamma: Any = None
    lam: Any = None
    n_agents: Any = 1
    network: Any = "ring"

    def set_objective(
        self,
        f_inner: Batched,
        f_outer: Batched,
        n_inner_samples: int,
        n_outer_samples: int,
        inner_var0: Any,
        outer_var0: Any,
        f_inner_fb: Any = None,
        f_outer_fb: Any = None,
    ) -> None:
        """Take over the problem and compile one step; the full-batch functions are not needed."""
        m, sizes = int(self.n_agents), (n_inner_samples, n_outer_samples)
        if any(size < m for size in sizes):
            raise InputError(f"n_agents = {m} for {sizes} samples", "every agent needs samples", "Use fewer agents.")
        self.problem = decibo.Problem(
            _one_agent(f_outer, n_outer_samples // m),
            _one_agent(f_inner, n_inner_samples // m),
            np.arange(m),
            x0=jnp.asarray(outer_var0, float),
            y0=jnp.asarray(inner_var0, float),
            name="benchopt",
        )
        chosen = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}
        self.algorithm = decibo.CATALOG[self.method](**chosen)
        self.agents = getattr(decibo.networks, self.network)(m)
        self.run(1)  # compile

    def run(self, n_iter: int) -> None:
        """Do so many steps from the start."""
        self.inner_var, self.outer_var = self.problem.y0, self.problem.x0
        if n_iter > 0:
            solution = decibo.solve(
                self.problem, self.agents, self.algorithm, steps=n_iter, every=n_iter, measures=[], progress=False
            )
            self.inner_var, self.outer_var = solution.y, solution.x

    def get_result(self) -> dict[str, Any]:
        """What the benchmark evaluates."""
        return {"inner_var": self.inner_var, "outer_var": self.outer_var}


def _one_agent(function: Batched, size: int) -> Callable[[Any, Any, Any], jax.Array]:
    """The mean over the samples of one agent, in decibo's order of arguments."""
    return lambda x, y, agent: function(y, x, start=agent * size, batch_size=size)
