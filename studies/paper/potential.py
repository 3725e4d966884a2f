r"""The potential V whose fall proves Theorem 1, term by term, as something to measure along a run.

(1)  V = 2 Phi(xbar) + d_1 |ybar - y*(xbar; lam)|^2 + d_2 |zbar - y*(xbar)|^2
         + (d_3 sum_i |x_i - xbar|^2 + d_4 sum_i |y_i - ybar|^2 + d_5 sum_i |z_i - zbar|^2)/m
                                                                                 [eq. potential]
(2)  y*(x; lam) = argmin over y of mean_i (g_i + f_i/lam)(x, y)          [Lemma 2]; y*(x) if g = -f
(3)  V^(k+1) <= V^k - alpha |grad Phi(xbar^k)|^2 + alpha (C + B)         [eq. Vk1-Vk]
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from decibo.measure.measures import Measure, Snapshot
from decibo.parallel.collectives import average
from decibo.problem.newton import solve_inner
from decibo.problem.problem import Functions, Objective
from decibo.pytree import Tree, Vector
from decibo.theory.constants import Constants, Weights
from decibo.validate import positive

TERMS = ("V_phi", "V_y", "V_z", "V_consensus_x", "V_consensus_y", "V_consensus_z")


@dataclass(frozen=True)
class Penalised:
    """g + f/lam of one agent; equal if its parts are, so that compiled programs are shared."""

    outer: Objective
    inner: Objective
    lam: float

    def __call__(self, x: Tree, y: Tree, d: Tree) -> jax.Array:
        return self.inner(x, y, d) + self.outer(x, y, d) / self.lam  # (2)


def penalised_solution(
    functions: Functions, data: Tree, x: Vector, y_guess: Vector, lam: float
) -> Vector:
    """y*(x; lam) by Newton's method; NaN where it did not converge."""
    penalised = Penalised(functions.outer, functions.inner, lam)
    y, converged = solve_inner(
        functions._replace(inner=penalised, inner_solution=None), data, x, y_guess
    )
    return jnp.where(converged, y, jnp.nan)  # (2)


@dataclass(frozen=True)
class Potential:
    """The potential as a measure of AHEAD's snapshots; `potential` creates one."""

    weights: Weights
    lam: float
    minimax: bool = False

    def terms(self, s: Snapshot) -> dict[str, jax.Array]:
        """The six terms of V, (1)."""
        y_star = s.exact.y
        y_lam = (
            y_star
            if self.minimax
            else penalised_solution(s.functions, s.here, s.mean("x"), y_star, self.lam)
        )
        far = lambda v, centre: jnp.sum((v - centre) ** 2)
        spread = [average(jnp.sum((s.local[v] - s.mean(v)) ** 2, axis=1)) for v in "xyz"]
        # In the order of the weights d_1 to d_5.
        errors = far(s.mean("y"), y_lam), far(s.mean("z"), y_star), *spread
        values = [d * error for d, error in zip(self.weights, errors, strict=True)]
        return dict(zip(TERMS, [2 * s.exact.phi, *values], strict=True))  # (1)

    def __call__(self, s: Snapshot) -> jax.Array:
        return jnp.sum(jnp.stack(list(self.terms(s).values())))

    @property
    def measures(self) -> list[tuple[str, Measure]]:
        """V and its terms, for `solve(..., measures=...)`."""
        return [("V", self), *((name, _Term(self, name)) for name in TERMS)]


@dataclass(frozen=True)
class _Term:
    potential: Potential
    name: str

    def __call__(self, s: Snapshot) -> jax.Array:
        return self.potential.terms(s)[self.name]


def potential(
    constants: Constants, rho: float, *, alpha: float, beta: float, gamma: float, lam: float
) -> Potential:
    """The potential V for these constants and steps; its `measures` record it term by term."""
    steps = {"alpha": alpha, "beta": beta, "gamma": gamma, "lam": lam}
    steps = {name: positive(name, value) for name, value in steps.items()}
    return Potential(constants.d(rho, **steps), steps["lam"], constants.minimax)
