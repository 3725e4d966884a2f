"""Linear models for data in silos, with one penalty for each feature, learned by `ahead_exact`."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

import decibo
from decibo.data.encode import Encoding
from decibo.errors import InputError
from decibo.parallel.processes import check_same, share
from decibo.run import checkpoint_files
from decibo.run.checkpoint import Checkpoints
from decibo.run.solution import Solution, Status
from decibo.silo.estimators import Silo, SiteFit, site_fit
from decibo.sklearn import silos
from decibo.validate import at_least, fraction, integer, positive

EVERY = 100  # steps between two checkpoints


class _Silo(BaseEstimator):
    """What both estimators share: the parameters, and the way from samples to a linear model."""

    solution_: Solution
    encoding_: Encoding

    def __init__(
        self,
        *,
        network: silos.Networks = "ring",
        validation: float = 0.25,
        spread: float = 1.0,
        lam: float = 20.0,
        steps: int = 4000,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoints | None = None,
    ):
        self.network = network
        self.validation = validation
        self.spread = spread
        self.lam = lam
        self.steps = steps
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _features(self, X: ArrayLike) -> np.ndarray:
        """Samples to predict for."""
        check_is_fitted(self)
        if hasattr(self, "encoding_"):
            return self.encoding_(X)
        return validate_data(self, X, dtype=np.float64, reset=False)  # pyright: ignore  (it is untyped)

    def _check(self) -> None:
        """Whether all parameters are usable."""
        integer("steps", self.steps)
        positive("lam", self.lam)
        positive("tol", self.tol)
        fraction("validation", self.validation, most=0.5, zero=False)
        at_least("spread", self.spread, 0.0)

    def _table(
        self, X: ArrayLike, y: ArrayLike, own: SiteFit | None, **options: bool
    ) -> tuple[Any, Any]:
        """The samples as an array, and their labels; what is known of the columns is remembered."""
        if hasattr(self, "encoding_"):
            del self.encoding_
        if own is None or own.encoding is None:
            least = 2 if own is None else 1
            options = {"dtype": np.float64, "ensure_min_samples": least} | options
            return validate_data(self, X, y, **options)  # pyright: ignore  (it is untyped)
        table, labels = check_X_y(own.features, y, **options)  # pyright: ignore
        self.encoding_ = own.encoding
        self.n_features_in_ = len(own.encoding.columns)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(own.encoding.columns, dtype=object)
        return table, labels

    def _gather(self, groups: ArrayLike | None, X: np.ndarray, own: SiteFit | None) -> silos.Census:
        """Who has which samples."""
        if own is not None:
            self.silos_ = np.array(own.fit.collectives.names)
            self.network_ = own.fit.consortium.network
            return silos.SiteCensus.of(own)
        census = silos.census(groups, len(X))
        if jax.process_count() > 1:
            check_same(
                {
                    "The number of features": X.shape[1],
                    "The settings of the estimator": self._settings(),
                }
            )
        self.silos_ = census.names
        self.network_ = silos.network_of(self.network, census.count)
        return census

    def _settings(self) -> dict[str, object]:
        """What all processes must agree on; each may keep its checkpoints elsewhere."""
        return {name: value for name, value in self.get_params().items() if name != "checkpoint"}

    def _learn(
        self, X: np.ndarray, targets: np.ndarray, census: silos.Census, loss: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (features, columns) and intercepts (columns,) for features as they were
        passed."""
        k = round(1 / self.validation)
        scale = silos.agreed_scale(census, X)
        fold = silos.dealt(census, np.c_[scale(X), targets], k, self._seed(census))
        data = silos.stacked(census, scale(X), targets, fold, k, spread=self.spread)
        self.solution_ = solution = self._solve(silos.problem_of(census, data, loss), census)
        p = X.shape[1]
        self.n_iter_ = solution.steps
        self.scale_ = scale.deviation
        self.mean_ = scale.mean
        self.penalty_ = np.asarray(silos.penalties(solution.x, self.spread), dtype=float)[:p]
        models = np.asarray(solution.y["coef"], dtype=float)[:, :p]
        shift = np.asarray(solution.y["intercept"], dtype=float)
        scores = np.einsum("rp,rpc->rc", scale(X), models[fold]) + shift[fold]
        of = {"log": silos.log_loss, "squared": silos.squared_loss}[loss]
        self.out_of_fold_ = np.asarray(of(jnp.asarray(scores), jnp.asarray(targets)), dtype=float)
        coef = models[-1] / scale.deviation[:, None]
        return coef, np.asarray(solution.y["intercept"][-1], dtype=float) - scale.mean @ coef

    def _seed(self, census: silos.Census) -> int:
        """For the parts, the same everywhere; a site that starts again must draw the same
        without being told."""
        known = (
            0
            if self.random_state is None and isinstance(census, silos.SiteCensus)
            else self.random_state
        )
        return census.share(int(check_random_state(known).randint(2**31 - 1)))[0]

    def _solve(self, problem: decibo.Problem, census: silos.Census) -> Solution:
        method = decibo.ahead_exact(lam=float(self.lam))
        if isinstance(census, silos.SiteCensus):
            solution = census.site.fit.solve(problem, method, steps=self.steps, tol=self.tol)
        else:
            solution = decibo.solve(
                problem,
                self.network_,
                method,
                steps=self.steps,
                measures=[silos.residual],
                until={"residual": self.tol},
                progress=False,
                checkpoint=self._checkpoints(),
            )
        if solution.status is not Status.converged:
            warnings.warn(
                f"{solution.message} The silos have not settled to within tol = {self.tol:g}"
                f" (residual {solution.history['residual'][-1]:.2g}). Raise steps or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return solution

    def _checkpoints(self) -> Checkpoints | None:
        """Where to save the state; a fit that was interrupted goes on from there."""
        if self.checkpoint is None or isinstance(self.checkpoint, Checkpoints):
            return self.checkpoint
        here = Checkpoints(self.checkpoint, every=EVERY, shared=False)
        return replace(here, resume=any(share(bool(checkpoint_files.steps(here.path)))))


class SiloLogisticRegression(ClassifierMixin, _Silo):
    """Logistic regression across silos that keep their samples, with one learned penalty for each
    feature.

    Minimises the mean log-loss + sum_j penalty_j |w_j|^2 over standardised features. The penalties
    minimise the cross-validated log-loss: samples fall into 1/validation parts, the same whichever
    silo holds them, and each part judges a model that was trained on all other parts. Both happen
    at once, by `ahead_exact` with automatic step sizes. Several classes make a multinomial model.

    network       who communicates with whom: "ring", "path", "star", "complete", "exponential", a
                  `decibo.Network` with an agent for each silo (sorted by name), or a function from
                  the number of silos to a network
    validation    the share of samples that is held out at a time
    spread        how far the log-penalties of features are expected apart: 0 for one penalty
    lam           the penalty parameter of `ahead_exact`
    steps         the most steps; n_iter_ of them were needed
    tol           stop once no mean direction and no disagreement is larger than this
    random_state  for the parts that samples fall into
    checkpoint    a folder, of each process its own: the state is saved there every 100 steps, and
                  `fit` continues from what it finds there; or `decibo.Checkpoints`

    In a run of several processes (`decibo launch`, mpiexec, srun) each passes the samples of its
    own silos only, and all get the same model. Owners who share nothing pass `silo`: then the
    network is that of the job, X may have text and missing values, which are encoded as
    `SiloEncoder` does it, and a fit that was killed goes on if called again.

    Fitted: coef_, intercept_, classes_, penalty_, mean_ and scale_ of the features, silos_ (their
    names, in the order of the agents), network_, n_iter_, n_features_in_, and solution_, the run
    that decibo returned.
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        silo: Silo | None = None,
    ) -> SiloLogisticRegression:
        """Learn from samples X with classes y.

        groups   the silo of each sample; one silo if left out
        silo     at a site that has only its own samples: the job file, or a
                 `decibo.silo.Consortium`
        """
        self._check()
        with site_fit(self, silo, X, y, groups) as own:
            table, number, census = self._classes(X, y, groups, own)
            coef, self.intercept_ = self._learn(table, self._targets(number), census, "log")
        self.coef_ = coef.T
        return self

    def _classes(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, own: SiteFit | None
    ) -> tuple[np.ndarray, np.ndarray, silos.Census]:
        """The samples, the number of each one's class, and who has them, once all is checked."""
        table, classes = self._table(X, y, own)
        check_classification_targets(classes)
        census = self._gather(groups, table, own)
        self.classes_ = silos.agreed_classes(census, classes)
        number = np.atleast_1d(np.searchsorted(self.classes_, classes))
        if len(self.classes_) < 2:
            raise InputError(
                "A classifier needs two classes or more, but y has one class,"
                f" {self.classes_[0]!r}."
            )
        return table, number, census

    def _targets(self, number: np.ndarray) -> np.ndarray:
        """What the log-loss compares with: one column for two classes, otherwise one for each."""
        one_hot = np.eye(len(self.classes_))[number]
        return one_hot[:, 1:] if len(self.classes_) == 2 else one_hot

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """How sure the model is: (samples,) for two classes, otherwise (samples, classes)."""
        scores = self._features(X) @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def suspects(self) -> np.ndarray:
        """The samples that this process passed to `fit`, as row numbers, the likeliest to be
        labelled wrong first: by out_of_fold_, their loss under the model that left them out. No
        model is trained for it, and nothing is sent."""
        check_is_fitted(self)
        if not hasattr(self, "out_of_fold_"):
            raise InputError(
                "This model does not have the losses of the samples of its fit: it was loaded.",
                "Call suspects() after fit().",
            )
        return np.argsort(-self.out_of_fold_, kind="stable")

    def __getstate__(self) -> Any:
        """Without what is known of single samples, which a stored model must not have."""
        state: Any = super().__getstate__()
        return {
            name: value for name, value in state.items() if name not in ("_own", "out_of_fold_")
        }

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The likeliest class of each sample."""
        scores = self.decision_function(X)
        return self.classes_[
            (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        ]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probability of each class, (samples, classes)."""
        scores = self.decision_function(X)
        scores = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


class SiloRidge(RegressorMixin, _Silo):
    """Linear regression across silos that keep their samples, with one learned ridge penalty for
    each feature.

    Minimises half the mean squared error + sum_j penalty_j w_j^2, features and targets
    standardised. The penalties minimise the cross-validated error. Parameters and fitted attributes
    are those of `SiloLogisticRegression`.
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        silo: Silo | None = None,
    ) -> SiloRidge:
        """Learn from samples X with targets y; groups and silo are those of
        `SiloLogisticRegression`."""
        self._check()
        with site_fit(self, silo, X, y, groups) as own:
            table, numbers = self._table(X, y, own, y_numeric=True)
            column = np.asarray(numbers, dtype=np.float64)[:, None]
            census = self._gather(groups, table, own)
            unit = silos.agreed_scale(census, column)
            coef, intercept = self._learn(table, unit(column), census, "squared")
        self.coef_ = (coef * unit.deviation)[:, 0]
        self.intercept_ = float((intercept * unit.deviation + unit.mean)[0])
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The expected target of each sample."""
        return self._features(X) @ self.coef_ + self.intercept_
