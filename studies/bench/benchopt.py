"""decibo's methods inside the public benchopt benchmark of bilevel solvers
(benchopt/benchmark_bilevel).

A file solvers/decibo.py in a clone of the benchmark is all it needs:

    from benchopt import BaseSolver
    from studies.bench.benchopt import BilevelSolver

    class Solver(BilevelSolver, BaseSolver):
        name = "decibo"
        parameters = {"method": ["ahead_exact"], "alpha": [None], "gamma": [None], "n_agents": [1]}

The benchmark passes f(inner_var, outer_var, start, batch_size), the mean over `batch_size` samples
from `start` on. The samples of both levels are shared out equally among `n_agents` agents on
`network`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

import decibo
from decibo.data.stream import Batches
from decibo.errors import InputError
from decibo.pytree import Tree
from decibo.validate import integer, one_of

SETTINGS = ("alpha", "beta", "gamma", "lam")
ESTIMATORS = {
    "minibatch": lambda batches: decibo.estimator.minibatch(),
    "saga": lambda batches: decibo.estimator.saga(),
    "page": lambda batches: decibo.estimator.page(1 / batches),
    "sarah": decibo.estimator.sarah,
}
Batched = Callable[..., jax.Array]


class BilevelSolver:
    """What the benchmark asks of a solver: set_objective, run, get_result; a mix-in for benchopt's
    BaseSolver.

    method      a name in decibo.CATALOG; settings that are None are left to the method
                (`ahead_exact` chooses its own)
    n_agents    how many agents share the samples; 1 is the benchmark's own, centralised setting
    network     the name of a network in decibo.networks
    estimator   None for full gradients, or one of those in ESTIMATORS; page and sarah then have
                full gradients once in `n_batches` steps
    n_batches   into how many batches the samples of an agent are divided for an estimator
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
    estimator: str | None = None
    n_batches: int = 10

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
        batches = 1 if self.estimator is None else integer("n_batches", self.n_batches)
        fewest = min(n_inner_samples, n_outer_samples)
        if fewest < agents * batches:
            needs = (
                "Every agent needs samples"
                if batches == 1
                else f"Every agent needs a sample in {batches} batches"
            )
            raise InputError(
                f"{needs}, but there are {agents} agents and {fewest} samples.", "Use fewer agents."
            )
        places = lambda samples: np.arange(
            samples // (agents * batches) * agents * batches
        ).reshape(agents, -1)
        self.problem = decibo.Problem(
            _one_agent(f_outer, "outer"),
            _one_agent(f_inner, "inner"),
            {"outer": places(n_outer_samples), "inner": places(n_inner_samples)},
            x0=jnp.asarray(outer_var0, float),
            y0=jnp.asarray(inner_var0, float),
            sample=None if self.estimator is None else Batches(batches),
            name="benchopt",
        )
        settings = {
            name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None
        }
        self.algorithm = decibo.CATALOG[self.method](**settings)
        if self.estimator is not None:
            make = ESTIMATORS[one_of("estimator", self.estimator, tuple(ESTIMATORS))]
            self.algorithm = decibo.with_estimator(self.algorithm, make(batches))
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


def _one_agent(
    function: Batched, level: str
) -> Callable[[Tree, Tree, dict[str, jax.Array]], jax.Array]:
    """The mean over the samples of one agent, or of a batch of them, in decibo's order of
    arguments."""
    return lambda x, y, d: function(y, x, start=d[level][0], batch_size=d[level].shape[0])
