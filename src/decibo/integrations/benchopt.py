"""decibo's methods inside the public benchopt benchmark of bilevel solvers (benchopt/benchmark_bilevel).

A file solvers/decibo.py in a clone of the benchmark is all it needs:

    from benchopt import BaseSolver
    from decibo.integrations.benchopt import BilevelSolver

    class Solver(BilevelSolver, BaseSolver):
        name = "decibo"
        parameters = {"method": ["ahead_exact"], "alpha": [None], "gamma": [None], "n_agents": [1]}

The benchmark passes f(inner_var, outer_var, start, batch_size), the mean over `batch_size` samples from `start` on.
The samples of both levels are shared out equally among `n_agents` agents on `network`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

import decibo
from decibo.errors import InputError
from decibo.pytree import Tree

SETTINGS = ("alpha", "beta", "gamma", "lam")
Batched = Callable[..., jax.Array]


class BilevelSolver:
    """What the benchmark asks of a solver: set_objective, run, get_result; a mix-in for benchopt's BaseSolver.

    method      a name in decibo.CATALOG; settings that are None are left to the method (`ahead_exact` chooses its own)
    n_agents    how many agents share the samples; 1 is the benchmark's own, centralised setting
    network     the name of a network in decibo.networks
    """

    sampling_strategy = "iteration"  # run(n) restarts, so that a curve needs nothing but `solve`
    requirements = ("pip::decibo",)
    method: str = "ahead_exact"
    alpha: float | None = None
    beta: float | None = None
    gamma: float | None = None
    lam: float | None = None
    n_agents: int = 1
    network: str = "ring"

    def set_objective(
        self,
        f_inner: Batched,
        f_outer: Batched,
        n_inner_samples: int,
        n_outer_samples: int,
        inner_var0: ArrayLike,
        outer_var0: ArrayLike,
        f_inner_fb: Callable[..., jax.Array] | None = None,
        f_outer_fb: Callable[..., jax.Array] | None = None,
    ) -> None:
        """Set up the problem and compile a step; the full-batch functions are not needed."""
        agents = int(self.n_agents)
        fewest = min(n_inner_samples, n_outer_samples)
        if fewest < agents:
            raise InputError(
                f"Every agent needs samples, but there are {agents} agents and {fewest} samples.", "Use fewer agents."
            )
        self.problem = decibo.Problem(
            _one_agent(f_outer, n_outer_samples // agents),
            _one_agent(f_inner, n_inner_samples // agents),
            np.arange(agents),
            x0=jnp.asarray(outer_var0, float),
            y0=jnp.asarray(inner_var0, float),
            name="benchopt",
        )
        settings = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}
        self.algorithm = decibo.CATALOG[self.method](**settings)
        self.decibo_network = getattr(decibo.networks, self.network)(agents)
        self.run(1)  # compiles

    def run(self, n_iter: int) -> None:
        """Run this many steps from the start."""
        self.inner_var = self.problem.y0
        self.outer_var = self.problem.x0
        if n_iter > 0:
            solution = decibo.solve(
                self.problem,
                self.decibo_network,
                self.algorithm,
                steps=n_iter,
                every=n_iter,
                measures=[],
                progress=False,
            )
            self.inner_var = solution.y
            self.outer_var = solution.x

    def get_result(self) -> dict[str, Tree]:
        """What the benchmark evaluates."""
        return {"inner_var": self.inner_var, "outer_var": self.outer_var}


def _one_agent(function: Batched, size: int) -> Callable[[Tree, Tree, Tree], jax.Array]:
    """The mean over the samples of one agent, in decibo's order of arguments."""
    return lambda x, y, agent: function(y, x, start=agent * size, batch_size=size)
