r"""Whose data helps? One weight for each silo, learned together with a linear classifier.

    (1)  w_i       = 1/(1 + exp(-x_i))                         the trust in silo i, 1/2 at the start
    (2)  g_i(x, y) = w_i (m/N) sum over silo i's training samples of l  +  penalty |y|^2 + r b^2
    (3)  f_i(x, y) = (m/M) sum over silo i's judging samples of l  +  |x|^2/(2 M)

l is the log-loss of silos.py, N and M count the training and the judging samples of all silos. So x
is judged by how well a model does that was trained with these weights. The end of (3) settles what
the judging samples leave open: it expects weights between 0.27 and 0.73, and fades as they become
many.

Who judges? Samples whose labels somebody has checked, if there are any: then a silo with wrong
labels cannot vote for itself. Otherwise a share of every silo's samples, and a silo is trusted as
far as it helps to predict those of all.
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.run.checkpoint import Checkpoints
from decibo.silo.estimators import Silo, site_fit
from decibo.sklearn import silos
from decibo.sklearn.estimators import SiloLogisticRegression
from decibo.validate import positive

Tree = dict[str, jax.Array]
PENALTY = 0.02


def _judged(x: jax.Array, y: Tree, d: Tree) -> jax.Array:
    # (3)
    return d["judging"] @ silos.log_loss(silos.scores(y, d)[0], d["targets"]) + d["prior"] * x @ x


def _trained(x: jax.Array, y: Tree, d: Tree) -> jax.Array:
    trust = jax.nn.sigmoid(x) @ d["own"]  # (1)
    size = d["penalty"] * jnp.sum(y["coef"] ** 2) + silos.INTERCEPT * jnp.sum(y["intercept"] ** 2)
    # (2)
    return trust * (d["training"] @ silos.log_loss(silos.scores(y, d)[0], d["targets"])) + size


def trust_problem(
    census: silos.Census,
    features: np.ndarray,
    targets: np.ndarray,
    judging: np.ndarray,
    penalty: float = PENALTY,
) -> Problem:
    """The two levels for standardised features, where some samples judge and all others train."""
    data = silos.stacked(census, features, targets, np.where(judging, 0, 1), 1)
    count = census.total([int(judging[part].sum()) for part in census.parts])
    here = len(census.parts)
    own = np.eye(census.count)[census.first : census.first + here]
    stacked = {
        "features": data["features"],
        "targets": data["targets"],
        "training": data["training"][:, 0],
        "judging": data["validation"][:, 0] * census.samples / count,
        "own": own,
        "prior": np.full(here, 0.5 / count),
        "penalty": np.full(here, penalty),
    }
    width = data["features"].shape[2]
    columns = data["targets"].shape[2]
    y0 = {"coef": np.zeros((1, width, columns)), "intercept": np.zeros((1, columns))}
    x0 = np.zeros(census.count)
    if here == census.count:
        return Problem(_judged, _trained, stacked, x0, y0, name="trust")
    part = lambda agent: {key: leaf[agent - census.first] for key, leaf in stacked.items()}
    return Problem(_judged, _trained, part, x0, y0, agents=census.count, name="trust")


def agreed_of(checked: ArrayLike | None = None) -> dict[str, str]:
    """What sites that fit a `SiloTrust` must agree on besides its parameters and the columns."""
    return {"checked": "left out" if checked is None else "passed"}


class SiloTrust(SiloLogisticRegression):
    """Whose data helps? Logistic regression across silos with one learned weight between 0 and 1
    for each silo.

    The samples of a silo count with its weight. The weights minimise the log-loss on samples that
    judge: those that `fit` is told were checked, or else a share of every silo's. Both happen at
    once, by `ahead_exact` with automatic step sizes, and no sample leaves its silo. A low weight
    means that the others do better without these samples: because labels are wrong, or because the
    silo is different.

    penalty       of the squared coefficients, features standardised
    validation    the share of its samples with which a silo judges, if none were checked
    network, lam, steps, tol, random_state and checkpoint are those of `SiloLogisticRegression`

    Fitted: trust_, one weight for each of silos_; all else as `SiloLogisticRegression`, without
    penalty_.
    """

    def __init__(
        self,
        *,
        penalty: float = PENALTY,
        network: silos.Networks = "ring",
        validation: float = 0.25,
        lam: float = 20.0,
        steps: int = 2000,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoints | None = None,
    ):
        super().__init__(
            network=network,
            validation=validation,
            lam=lam,
            steps=steps,
            tol=tol,
            random_state=random_state,
            checkpoint=checkpoint,
        )
        self.penalty = penalty

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        checked: ArrayLike | None = None,
        *,
        silo: Silo | None = None,
    ) -> SiloTrust:
        """Learn from samples X with classes y; groups and silo are those of
        `SiloLogisticRegression`.

        checked   True for samples whose labels are known to be right: they judge, and the others
                  train. Either all sites pass it or none
        """
        self._check()
        positive("penalty", self.penalty)
        agreed = agreed_of(checked)
        more = [] if checked is None else [np.asarray(checked)]
        with site_fit(self, silo, X, y, groups, agreed, more) as own:
            table, number, census = self._classes(X, y, groups, own)
            judging = self._judges(census, number, checked)
            scale = silos.agreed_scale(census, table)
            problem = trust_problem(
                census, scale(table), self._targets(number), judging, float(self.penalty)
            )
            self.solution_ = solution = self._solve(problem, census)
        self.n_iter_ = solution.steps
        self.mean_ = scale.mean
        self.scale_ = scale.deviation
        self.trust_ = np.asarray(jax.nn.sigmoid(solution.x), dtype=float)
        coef = (
            np.asarray(solution.y["coef"][0], dtype=float)[: table.shape[1]]
            / scale.deviation[:, None]
        )
        self.intercept_ = np.asarray(solution.y["intercept"][0], dtype=float) - scale.mean @ coef
        self.coef_ = coef.T
        return self

    def _judges(
        self, census: silos.Census, labels: np.ndarray, checked: ArrayLike | None
    ) -> np.ndarray:
        """Which samples judge."""
        if checked is None:
            return silos.dealt(census, labels, round(1 / self.validation), self._seed(census)) == 0
        judging = np.asarray(checked)
        if judging.shape != labels.shape or judging.dtype != bool:
            raise InputError(
                f"checked must be True or False for each of the {len(labels)} samples, but it has"
                f" shape {judging.shape} and type {judging.dtype}."
            )
        total = int(census.total([int(judging[part].sum()) for part in census.parts]))
        if not 0 < total < census.samples:
            raise InputError(
                f"Some samples must judge and the others train, but {total} of {census.samples} are"
                " checked.",
                "Leave checked out to judge by a share of every silo's samples.",
            )
        return judging
