"""Linear models for data in silos, with one penalty for each feature, learned by `ahead_exact`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from decibo.errors import InputError
from decibo.silo.estimators import Silo, SiteFit, site_fit
from decibo.sklearn import losses, silos, standard_errors
from decibo.sklearn.model import SiloClassifier, SiloModel
from decibo.sklearn.personal import personal
from decibo.validate import at_least, fraction


@dataclass(kw_only=True, eq=False, repr=False)
class SiloEstimator(SiloModel):
    """A linear model across silos with learned penalties; derive from it, and from a mixin of
    scikit-learn, for a loss of your own.

    A class sets `loss`: a name of losses.py, or a function (scores, targets) -> the loss of each
    sample, convex in the scores and written with jax.numpy, as a staticmethod; both arguments have
    a last axis of one column. And `inverse_link`, from scores to predictions, if they are not the
    same. Parameters and fitted attributes are those of `SiloLogisticRegression`.
    """

    validation: float = 0.25
    spread: float = 1.0
    blocks: ArrayLike | None = None
    personal: bool = False
    errors: bool = False

    loss: ClassVar[str | losses.Loss] = "squared"
    inverse_link: ClassVar[Callable[[np.ndarray], np.ndarray] | None] = None

    def _check(self) -> None:
        super()._check()
        fraction("validation", self.validation, most=0.5, zero=False)
        at_least("spread", self.spread, 0.0)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        silo: Silo | None = None,
    ) -> Self:
        """Learn from samples X with targets y.

        groups         the silo of each sample; one silo if left out
        sample_weight  how much each sample counts, 1 if left out
        silo           at a site that has only its own samples: the job file, or a
                       `decibo.silo.Consortium`
        """
        self._check()
        if silo is not None and (self.personal or self.errors):
            # their sums come after the run, when a site may have left already
            raise InputError(
                "personal=True and errors=True need sums after the run, which sites do not make.",
                "Leave them out, or fit in one job of several processes.",
            )
        more = [] if sample_weight is None else [np.asarray(sample_weight)]
        with site_fit(self, silo, X, y, groups, more=more) as own:
            table, targets, census = self._samples(X, y, groups, own)
            weights = None
            if sample_weight is not None:
                weights = _check_sample_weight(
                    sample_weight, table, dtype=np.float64, ensure_non_negative=True
                )
            self._learn(table, targets, census, weights)
        return self

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """The prediction for each sample; `groups`, with personal=True, says whose model predicts
        which: that of all for silos that it does not know and where it is left out. A process that
        has one silo's samples has one such model, and predicts with it."""
        scores = self._scores(X, groups)[:, 0]
        link = self.inverse_link or losses.INVERSE_LINKS.get(self.loss)  # pyright: ignore
        return scores if link is None else np.asarray(link(scores))

    def _samples(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, own: SiteFit | None
    ) -> tuple[np.ndarray, np.ndarray, silos.Census]:
        """The samples, what the loss compares with (a column or more), and who has them, once all
        is checked."""
        table, numbers = self._table(X, y, own, y_numeric=True)
        return table, np.asarray(numbers, np.float64)[:, None], self._gather(groups, table, own)

    def _scores(self, X: ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """By each sample's own model if there is one."""
        scores = super()._scores(X, groups)
        mine = self.personal_silos_ if self.personal else ()
        for i, name in enumerate(mine):
            alone = np.full(len(scores), len(mine) == 1)
            rows = alone if groups is None else np.asarray(groups) == name
            if rows.any():
                own = np.atleast_2d(self.personal_coef_[i]).T
                scores[rows] = self._features(X)[rows] @ own + self.personal_intercept_[i]
        return scores

    def _loss(self) -> losses.Loss:
        return losses.named(self.loss)

    def _learn(
        self, X: np.ndarray, targets: np.ndarray, census: silos.Census, weights: np.ndarray | None
    ) -> None:
        """Everything that is fitted, for features as they were passed."""
        p = X.shape[1]
        blocks = None if self.blocks is None else np.asarray(self.blocks)
        if blocks is not None and blocks.shape != (p,):
            raise InputError(
                f"blocks must have a label for each of the {p} features, but its shape is"
                f" {blocks.shape}."
            )
        # Scores are of targets in units of their own: deviations from the mean, or, where a mean is
        # the exponential of a score, multiples of the mean.
        one = np.ones(targets.shape[1])
        unit = silos.Scale(0 * one, one)
        exponent = self.loss in ("poisson", "gamma")
        if exponent or self.loss in ("squared", "huber", "quantile"):
            unit = silos.agreed_scale(census, targets, weights)
        if exponent:
            low = min(min(least) for least in census.share(targets.min(axis=0).tolist()) if least)
            if low < 0 or (low == 0 and self.loss == "gamma") or unit.mean == 0:
                raise InputError(
                    f"Targets of the loss {self.loss!r} must be"
                    f" {'positive' if self.loss == 'gamma' else 'counts'}, but there is {low:g}."
                )
            unit = silos.Scale(0 * one, unit.mean)
        t = unit(targets)
        k = round(1 / self.validation)
        scale = silos.agreed_scale(census, X, weights)
        S = scale(X)
        fold = silos.dealt(census, np.c_[S, t], k, self._seed(census))
        data = silos.stacked(
            census, S, t, fold, k, spread=self.spread, weights=weights, blocks=blocks
        )
        loss = self._loss()
        self.solution_ = solution = self._solve(silos.problem_of(census, data, loss), census)
        self.n_iter_ = solution.steps
        self.scale_ = scale.deviation
        self.mean_ = scale.mean
        first = {name: data[name][0] for name in ("spread", "block")}
        self.penalty_ = np.asarray(silos.penalties(solution.x, first), dtype=float)[:p]
        models = silos.models_of(solution.y, p)
        S = np.c_[S, np.ones(len(S))]
        scores = np.einsum("rp,rpc->rc", S, models[fold])
        if loss is not losses.cox_loss:
            self.out_of_fold_ = np.asarray(loss(jnp.asarray(scores), jnp.asarray(t)), dtype=float)

        def passed(model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Coefficients and intercepts for features and targets as they were passed."""
            size = 1.0 if exponent else unit.deviation
            coef = model[:-1] / scale.deviation[:, None] * size
            shift = np.log(unit.deviation) if exponent else unit.mean
            return coef, model[-1] * size + shift - scale.mean @ coef

        self.coef_, self.intercept_ = self._shape(*passed(models[-1]))
        data = silos.FitData(census, S, t, fold, weights, loss)
        if self.personal:
            self.strengths_, shrunk = personal(data, models)
            self.personal_silos_ = self.silos_[census.first : census.first + len(shrunk)]
            each = [self._shape(*passed(model)) for model in shrunk]
            self.personal_coef_ = np.array([coef for coef, _ in each])
            self.personal_intercept_ = np.array([shift for _, shift in each])
        if self.errors:
            ridge = np.r_[self.penalty_, silos.INTERCEPT]
            self.covariance_ = standard_errors.covariance(data, models[-1], ridge, passed)

    def _shape(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[Any, Any]:
        """Coefficients (features, columns) and intercepts as scikit-learn has them."""
        return coef[:, 0], float(intercept[0])

    def summary_(self, level: float = 0.95) -> standard_errors.Summary:
        """Coefficients with standard errors and intervals: the model must have been fitted with
        errors=True."""
        check_is_fitted(self)
        if not (self.errors and hasattr(self, "covariance_")):
            raise InputError(
                "The model has no standard errors: silos add up matrices for them if asked to.",
                "Fit it with errors=True.",
            )
        names = getattr(getattr(self, "encoding_", None), "features", None)
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(len(self.mean_))])
        classes = getattr(self, "classes_", ())
        return standard_errors.summary(
            [str(name) for name in names],
            classes if len(classes) > 2 else [None],
            np.c_[np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)],
            self.covariance_,
            fraction("level", level, zero=False),
        )


class SiloLogisticRegression(SiloClassifier, SiloEstimator):
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
    blocks        a label for each feature: those with the same share a penalty
    personal      whether each silo gets a model of its own, shrunk towards that of all: how far is
                  learned between silos; `predict` finds it by `groups`
    errors        whether silos add up information matrices, for `summary_()`
    lam           the penalty parameter of `ahead_exact`; None: chosen during the run
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
    that decibo returned. With personal=True personal_coef_ and personal_intercept_ of
    personal_silos_, the silos of this process, and strengths_, of the coefficients and of the
    intercept; with errors=True covariance_, of coef_ and intercept_ of each class in turn.
    """

    loss = "log"

    def _samples(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, own: SiteFit | None
    ) -> tuple[np.ndarray, np.ndarray, silos.Census]:
        """With a column for two classes, otherwise one for each."""
        table, number, census = self._classes(X, y, groups, own)
        return table, self._targets(number), census

    def _shape(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[Any, Any]:
        return coef.T, intercept


class SiloRidge(RegressorMixin, SiloEstimator):
    """Linear regression across silos that keep their samples, with one learned ridge penalty for
    each feature.

    Minimises half the mean squared error + sum_j penalty_j w_j^2, features and targets
    standardised. The penalties minimise the cross-validated error. Parameters and fitted attributes
    are those of `SiloLogisticRegression`.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class SiloGLM(RegressorMixin, SiloEstimator):
    """Linear models of other losses, across silos that keep their samples.

    loss          "poisson" and "gamma", whose mean is the exponential of a score; "huber" and
                  "quantile", for targets with outliers and for the number that a share of them is
                  below; "squared"; or a function (scores, targets) -> the loss of each sample
    inverse_link  from scores to predictions, for a function
    quantile      that share
    threshold     of "huber": from how many deviations of the target on the loss is linear

    The other parameters and what is fitted are those of `SiloLogisticRegression`.
    """

    loss: str | losses.Loss = field(default="poisson", kw_only=False)  # pyright: ignore
    inverse_link: Callable[[np.ndarray], np.ndarray] | None = None  # pyright: ignore
    quantile: float = 0.5
    threshold: float = 0.5

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()  # pyright: ignore  (it is untyped)
        tags.target_tags.positive_only = self.loss in ("poisson", "gamma")
        return tags

    def _loss(self) -> losses.Loss:
        return losses.named(self.loss, self.quantile, self.threshold)


class SiloCox(SiloEstimator):
    """Who leaves first? Cox's proportional hazards across silos that keep their samples, stratified
    by silo: a sample is compared with those of its own silo only, so that silos may differ in when
    things happen.

    y is the time of each sample, negative if nothing had happened until then. `predict` gives the
    risk in multiples of that at mean features; parameters and fitted attributes are those of
    `SiloLogisticRegression`.
    """

    loss = "cox"

    def score(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> float:
        """Concordance: of all pairs of the same silo whose order is known, the share in which the
        one with the higher risk leaves first."""
        risk = self._scores(X, groups)[:, 0]
        time = np.asarray(y, float)
        group = np.zeros(len(time)) if groups is None else np.asarray(groups)
        right = pairs = 0.0
        for i in np.flatnonzero(~np.signbit(time)):
            later = (group == group[i]) & (np.abs(time) > time[i])
            pairs += later.sum()
            right += np.sum(risk[later] < risk[i]) + 0.5 * np.sum(risk[later] == risk[i])
        return float(right / pairs) if pairs else 0.5
