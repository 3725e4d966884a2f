"""What the estimators across silos share: the way from samples to who has them, a run, and a linear
model that predicts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

import decibo
from decibo.errors import InputError, short
from decibo.parallel.processes import check_same, share
from decibo.run import checkpoint_files
from decibo.run.checkpoint import Checkpoints
from decibo.run.solution import Solution, Status
from decibo.silo.estimators import SiteFit
from decibo.sklearn import silos
from decibo.validate import integer, positive

EVERY = 100  # steps between two checkpoints


@dataclass(kw_only=True, eq=False, repr=False)
class SiloModel(BaseEstimator):
    """A linear model that is learned across silos; its parameters are those of
    `SiloLogisticRegression`."""

    network: silos.Networks = "ring"
    lam: float | None = None
    steps: int = 4000
    tol: float = 1e-4
    random_state: int | np.random.RandomState | None = None
    checkpoint: str | os.PathLike[str] | Checkpoints | None = None

    # what is fitted
    coef_: Any = field(init=False)
    intercept_: Any = field(init=False)

    def _check(self) -> None:
        """Whether all parameters are usable."""
        integer("steps", self.steps)
        if self.lam is not None:
            positive("lam", self.lam)
        positive("tol", self.tol)

    def _table(
        self, X: ArrayLike, y: ArrayLike, own: SiteFit | None, **options: bool
    ) -> tuple[Any, Any]:
        """The samples as an array, and their labels; what is known of the columns is remembered."""
        if hasattr(self, "encoding_"):
            del self.encoding_
        if own is None or own.encoding is None:
            least = 2 if own is None else 1
            options = {"dtype": np.float64, "ensure_min_samples": least} | options
            with _texts_named(self, X):
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
        method = decibo.ahead_exact(lam=None if self.lam is None else float(self.lam))
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

    def _features(self, X: ArrayLike) -> np.ndarray:
        """Samples to predict for."""
        check_is_fitted(self)
        if hasattr(self, "encoding_"):
            return self.encoding_(X)
        with _texts_named(self, X):
            return validate_data(self, X, dtype=np.float64, reset=False)  # pyright: ignore

    def _scores(self, X: ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """(samples, columns), of the model of all."""
        table = self._features(X)
        if groups is not None and np.shape(groups) != (len(table),):
            raise InputError(
                f"groups must name one silo for each of the {len(table)} samples, but its shape is"
                f" {np.shape(groups)}."
            )
        return table @ np.atleast_2d(self.coef_).T + self.intercept_

    def __getstate__(self) -> Any:
        """Without what is known of single samples, which a stored model must not have."""
        state: Any = super().__getstate__()
        return {
            name: value for name, value in state.items() if name not in ("_own", "out_of_fold_")
        }


class SiloClassifier(ClassifierMixin, SiloModel):
    """What classifiers across silos share."""

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

    def decision_function(self, X: ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """How sure the model is: (samples,) for two classes, otherwise (samples, classes)."""
        scores = self._scores(X, groups)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def suspects(self) -> np.ndarray:
        """The samples that this process passed to `fit`, as row numbers, the likeliest to be
        labelled wrong first: by out_of_fold_, their loss under the model that left them out. No
        model is trained for it, and nothing is sent."""
        check_is_fitted(self)
        losses = getattr(self, "out_of_fold_", None)
        if losses is None:
            raise InputError(
                "This model does not have the losses of the samples of its fit: it was loaded.",
                "Call suspects() after fit().",
            )
        return np.argsort(-losses, kind="stable")

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """The likeliest class of each sample."""
        scores = self.decision_function(X, groups)
        return self.classes_[
            (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        ]

    def predict_proba(self, X: ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """The probability of each class, (samples, classes)."""
        scores = self.decision_function(X, groups)
        scores = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


@contextmanager
def _texts_named(model: object, X: Any) -> Iterator[None]:
    """What scikit-learn says of text in a data frame names neither the column nor what to do."""
    try:
        yield
    except ValueError as error:
        kinds: Any = getattr(X, "dtypes", None)  # a series of pandas
        named = kinds.items() if hasattr(kinds, "items") else ()
        columns = [str(name) for name, kind in named if kind.kind not in "biufc"]
        if not columns or isinstance(error, InputError):
            raise
        raise InputError(
            f"{type(model).__name__} takes numbers, but these columns hold text: "
            f"{short(', '.join(columns))}.",
            f"Put an encoder before it: make_pipeline(SiloEncoder(), {type(model).__name__}()).",
        ) from error
