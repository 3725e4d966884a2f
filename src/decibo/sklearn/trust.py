r"""Whose data helps? One weight for each silo, learned together with a linear classifier; and whose
labels should be looked at.

    (1)  w_i       = 1/(1 + exp(-x_i))                       the trust in silo i, `centre` at first
    (2)  g_i(x, y) = (m/N) sum_k [ sum over silo i's samples s outside part k of v_s (l + ridge) ]
         v_s       = 1 for checked samples, w_i for all others;   ridge = penalty |y_k|^2 + r b_k^2
    (3)  f_i(x, y) = (m/M) sum_k [ sum over silo i's judging samples in part k of l(model k) ]
                       + prior |x - logit centre|^2 / (2 M)

l is the log-loss of silos.py; N and M count the samples and the judging samples of all silos. Every
sample carries its share of the ridge, so that the model belongs to the weighted MEAN loss plus the
penalty, and w = 1 means "as good as checked" rather than "more data". K models leave a part out
each, and one more, the answer, leaves out none.

Who judges? Samples whose labels somebody has checked, if there are any: then a silo with wrong
labels cannot vote for itself. Otherwise all samples, and a silo is trusted as far as it helps to
predict those of all.

Beside them, K models each with equal weights and with the checked samples alone are fitted to the
same parts: they are what the weights must beat (`compared_`).

The audit asks whose unchecked labels surprise a model of the others, in nats a sample:

    (4)  a_i   = mean over silo i's unchecked samples of -(t - p)'z,  p = softmax z, by a model
                 without them: the others weigh w, all checked samples 1
    (5)  z_i   = (a_i - mu_i) / sqrt(s_i^2 + tau_i^2 + se_i^2)
         mu_i, tau_i, se_i: mean, spread (DerSimonian and Laird) and error of the mean of a_j over
         the others, by models without i and j
    (6)  q_i   = the share of permutations of silo i's "checked" and "unchecked" among its own
                 samples whose checked ones fit as well, by a model without any of them
    (7)  p_i   = 2 min(1 - normal(z_i), q_i);  the least, if below level/m, is accused and leaves
                 all models, and the rest are judged again; in the end so are the accused

a is 0 for a calibrated model and grows with wrong labels; tau forgives silos that differ anyway,
and (6) is exact if the checked ones were drawn at random. All of it are sums: gradients for the
models, three numbers of each silo for each model. A silo computes its own surprise, so one that
lies about it is not caught.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, logsumexp, softmax
from scipy.stats import norm

from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.silo.estimators import Silo, site_fit
from decibo.sklearn import silos
from decibo.sklearn.losses import log_loss
from decibo.sklearn.model import SiloClassifier
from decibo.validate import above, fraction, integer, positive

Tree = dict[str, jax.Array]
SHARES = (0.1, 0.2, 0.3, 0.5, 1.0)  # of wrong labels that an audit is asked whether it would find
DRAWS = 40  # of such labels, for each share
ROUNDS = 400  # of accelerated gradients for the models of an audit, at most


def _judged(x: jax.Array, y: Tree, d: Tree) -> jax.Array:
    k = d["judging"].shape[0]
    losses = log_loss(silos.scores({name: y[name][:k] for name in y}, d), d["targets"])
    far = x - d["centre"]
    return jnp.sum(d["judging"] * losses) + d["prior"] * far @ far  # (3)


def _trained(x: jax.Array, y: Tree, d: Tree) -> jax.Array:
    k = d["judging"].shape[0]
    free = d["free"]
    sure = d["sure"]
    rows = [jax.nn.sigmoid(x) @ d["own"] * free + sure, (free + sure)[:k]]  # (1), (2)
    if y["coef"].shape[0] > 2 * k + 1:
        rows.append(d["alone"] * sure[:k])
    v = jnp.concatenate(rows)
    ridge = d["penalty"] * jnp.sum(y["coef"] ** 2, axis=(1, 2))
    ridge += silos.INTERCEPT * jnp.sum(y["intercept"] ** 2, axis=1)
    losses = log_loss(silos.scores(y, d), d["targets"])
    return jnp.sum(v * (losses + ridge[:, None]))


class Verdict(NamedTuple):
    """What an audit says of one silo.

    records, checked   how many it has, and how many of them were checked
    corrected          how many labels the checking changed, if `first` was passed
    trust, surprise    (1), and (4) minus its mean over the others, in nats a sample
    p                  (7): how often an honest silo would look as bad
    finds              the smallest share of wrong labels that this audit would find here more often
                       than not; infinite if none
    verdict            "ask"; "no sign", of `finds` wrong or more; "cannot tell" whether half of its
                       labels are wrong
    """

    silo: Any
    records: int
    checked: int
    corrected: int | None
    trust: float
    surprise: float
    p: float
    finds: float
    verdict: str


class Audit(tuple[Verdict, ...]):
    """A `Verdict` for each silo; printed, a table."""

    def __str__(self) -> str:
        head = f"{'':12}{'records':>8}{'checked':>8}{'corrected':>10}{'trust':>6}{'surprise':>9}"
        lines = [f"{head}{'p':>7}  verdict"]
        for v in self:
            fixed = "-" if v.corrected is None else v.corrected
            words = f"no sign of {v.finds:.0%}" if v.verdict == "no sign" else v.verdict
            lines.append(
                f"{v.silo!s:12.12}{v.records:8}{v.checked:8}{fixed:>10}{v.trust:6.2f}"
                f"{v.surprise:9.2f}{v.p:7.3f}  {words}"
            )
        return "\n".join(lines)


def agreed_of(checked: ArrayLike | None = None) -> dict[str, str]:
    """What sites that fit a `SiloTrust` must agree on besides its parameters and the columns."""
    return {"checked": "left out" if checked is None else "passed"}


@dataclass(kw_only=True, eq=False, repr=False)
class SiloTrust(SiloClassifier):
    """Whose data helps? Logistic regression across silos with one learned weight between 0 and 1
    for each silo.

    The unchecked samples of a silo count with its weight, checked ones fully. The weights minimise
    the cross-fitted log-loss on samples that judge: those that `fit` is told were checked, or else
    all. Both happen at once, by `ahead_exact` with automatic step sizes, and no sample leaves its
    silo. A low weight means that the others do better without these samples: because labels are
    wrong, or because the silo is different; `audit` tells the two apart where it can.

    penalty       of the squared coefficients, features standardised
    prior         how much the weights are held at `centre`, in judging samples
    centre        the weight of a silo of which nothing is known
    folds         into how many parts the judging samples are dealt
    network, lam, steps, tol, random_state and checkpoint are those of `SiloLogisticRegression`

    Fitted: trust_, one weight for each of silos_; compared_, the cross-fitted log-loss of equal
    weights, of the checked samples alone and of the learned weights (at a site: on its own samples,
    and without a warning); all else as `SiloLogisticRegression`, without penalty_.
    """

    penalty: float = 0.02
    prior: float = 0.3
    centre: float = 0.88
    folds: int = 5
    steps: int = 2000

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        checked: ArrayLike | None = None,
        *,
        first: ArrayLike | None = None,
        silo: Silo | None = None,
    ) -> SiloTrust:
        """Learn from samples X with classes y; groups and silo are those of
        `SiloLogisticRegression`.

        checked   True for samples whose labels are known to be right: they judge. Either all sites
                  pass it or none
        first     the labels before they were checked, for `audit` to count corrections
        """
        self._check()
        positive("penalty", self.penalty)
        above("prior", self.prior, 0.0)
        if fraction("centre", self.centre, zero=False) == 1:
            raise InputError("centre must be below 1, but it is 1.", "Pass 0.99, for example.")
        k = integer("folds", self.folds, least=2)
        more = [] if checked is None else [np.asarray(checked)]
        with site_fit(self, silo, X, y, groups, agreed_of(checked), more) as own:
            table, number, census = self._classes(X, y, groups, own)
            known = self._checked(census, number, checked)
            judges = np.ones_like(known) if checked is None else known
            scale = silos.agreed_scale(census, table)
            targets = self._targets(number)
            fold = silos.dealt(census, np.c_[scale(table), targets], k, self._seed(census))
            problem = self._problem(census, scale(table), targets, fold, known, judges)
            self.solution_ = solution = self._solve(problem, census)
        self.n_iter_ = solution.steps
        self.mean_ = scale.mean
        self.scale_ = scale.deviation
        self.trust_ = np.asarray(jax.nn.sigmoid(solution.x), dtype=float)
        p = table.shape[1]
        models = silos.models_of(solution.y, p)
        coef = models[k, :p] / scale.deviation[:, None]
        self.intercept_ = models[k, p] - scale.mean @ coef
        self.coef_ = coef.T
        rows = np.c_[scale(table), np.ones(len(table))]
        owner = np.zeros(len(table), int)
        for i, part in enumerate(census.parts, start=census.first):
            owner[part] = i
        changed = None if first is None else np.asarray(first) != np.asarray(y)
        self._own = _Own(census, rows, targets, owner, known, changed)
        self._compare(models, fold, judges)
        return self

    def _checked(
        self, census: silos.Census, labels: np.ndarray, checked: ArrayLike | None
    ) -> np.ndarray:
        """Which samples are known to be right."""
        if checked is None:
            return np.zeros(len(labels), bool)
        known = np.asarray(checked)
        if known.shape != labels.shape or known.dtype != bool:
            raise InputError(
                f"checked must be True or False for each of the {len(labels)} samples, but it has"
                f" shape {known.shape} and type {known.dtype}."
            )
        total = int(census.total([int(known[part].sum()) for part in census.parts]))
        if not self.folds <= total < census.samples:
            raise InputError(
                f"At least {self.folds} samples must judge, one in each part, and others must not"
                f" have been checked, but {total} of {census.samples} are checked.",
                "Leave checked out to judge by all samples.",
            )
        return known

    def _problem(
        self,
        census: silos.Census,
        features: np.ndarray,
        targets: np.ndarray,
        fold: np.ndarray,
        known: np.ndarray,
        judges: np.ndarray,
    ) -> Problem:
        """The two levels for standardised features."""
        k = self.folds
        m = census.count
        here = len(census.parts)
        marks = np.c_[targets, known, judges]
        data = silos.stacked(census, features, marks, fold, k)
        sure, judging = (data["targets"][:, None, :, place] for place in (-2, -1))
        trained = data["training"] > 0
        out = data["validation"][:, :k] > 0
        count = lambda rows: float(census.total([int(rows[part].sum()) for part in census.parts]))
        judged = count(judges)
        right = count(known)
        each = lambda number: np.full(here, number)
        stacked = {
            "features": data["features"],
            "targets": data["targets"][..., :-2],
            "free": trained * (1 - sure) * m / census.samples,
            "sure": trained * sure * m / census.samples,
            "judging": out * judging * m / judged,
            "own": np.eye(m)[census.first : census.first + here],
            "alone": each(census.samples / max(right, 1)),
            "prior": each(0.5 * self.prior / judged),
            "centre": each(logit(self.centre)),
            "penalty": each(float(self.penalty)),
        }
        width = data["features"].shape[2]
        columns = targets.shape[1]
        models = 2 * k + 1 + (k if right else 0)
        y0 = {"coef": np.zeros((models, width, columns)), "intercept": np.zeros((models, columns))}
        x0 = np.full(m, logit(self.centre))
        if here == m:
            return Problem(_judged, _trained, stacked, x0, y0, name="trust")
        part = lambda agent: {key: leaf[agent - census.first] for key, leaf in stacked.items()}
        return Problem(_judged, _trained, part, x0, y0, agents=m, name="trust")

    def _compare(self, models: np.ndarray, fold: np.ndarray, judges: np.ndarray) -> None:
        """Cross-fitted losses, of learned and of simpler weights; and each sample's own, for
        `suspects`."""
        own = self._own
        k = self.folds
        each = {
            "learned": models[:k],
            "equal weights": models[k + 1 : 2 * k + 1],
            "checked alone": models[2 * k + 1 :],
        }
        losses = {name: own.losses(found, fold) for name, found in each.items() if len(found)}
        self.out_of_fold_ = losses["learned"]
        rows = np.stack([judges, *(loss * judges for loss in losses.values())])
        squares = [(row - rows[1]) ** 2 for row in rows[1:]]
        sums = [
            np.stack([*rows[:, part], *(q[part] for q in squares)]).sum(axis=1)
            for part in own.census.parts
        ]
        at_site = isinstance(own.census, silos.SiteCensus)
        count, *found = np.sum(sums, axis=0) if at_site else own.census.total(sums)
        means = dict(zip(losses, np.array(found[: len(losses)]) / max(count, 1), strict=True))
        self.compared_ = {name: float(mean) for name, mean in means.items()}
        for (name, mean), square in zip(means.items(), found[len(losses) :], strict=True):
            gain = means["learned"] - mean
            if not at_site and gain > 2 * np.sqrt(max(square / count - gain**2, 0) / count):
                warnings.warn(
                    f"On samples that judge, {name} does better than the learned weights: log-loss"
                    f" {mean:.4f} against {means['learned']:.4f}.",
                    stacklevel=3,
                )

    def audit(self, level: float = 0.05) -> Audit:
        """Whose labels should be looked at, by (4) to (7): anybody honest is accused in at most
        about `level` of all audits.

        It reads the samples of the last `fit` of this object, which a stored model does not have.
        In a run of several processes all call it together.
        """
        own = getattr(self, "_own", None)
        if own is None or isinstance(own.census, silos.SiteCensus):
            raise InputError(
                "An audit reads the samples of the fit of all silos, and this model does not have"
                " them: it was loaded, or fitted at a site.",
                "Call audit() after fit() where all silos take part.",
            )
        bound = fraction("level", level, zero=False) / own.census.count
        inner = self.intercept_ + self.coef_ @ self.mean_
        start = np.r_[self.coef_.T * self.scale_[:, None], inner[None]]
        models = _Models(own, self.trust_, start, self.penalty)
        m = own.census.count
        gone = frozenset()
        latest = judged = _judge(own, models, gone, bound)
        while len(gone) < m - 2:
            worst = min(judged, key=lambda i: (judged[i][1], -judged[i][0]))
            if judged[worst][1] > bound:
                break
            gone |= {worst}
            judged = _judge(own, models, gone, bound)
            latest = latest | judged
        for i in sorted(gone):
            latest[i] = _judge(own, models, gone - {i}, bound)[i]
            gone -= {i} if latest[i][1] > bound else set()
        counts = own.everyone(lambda rows, known, changed: [len(rows), known.sum(), changed.sum()])
        audit = []
        for i, name in enumerate(self.silos_):
            surprise, p, finds = map(float, latest[i])
            verdict = "ask" if i in gone else "no sign" if finds <= 0.5 else "cannot tell"
            records, checked, fixed = map(int, counts[i])
            corrected = None if own.changed is None else fixed
            trust = float(self.trust_[i])
            audit.append(
                Verdict(name, records, checked, corrected, trust, surprise, p, finds, verdict)
            )
        return Audit(audit)


class _Own(NamedTuple):
    """The samples of this process's silos: standardised, with a last column of ones."""

    census: silos.Census
    rows: np.ndarray
    targets: np.ndarray
    owner: np.ndarray
    known: np.ndarray
    changed: np.ndarray | None

    def losses(self, models: np.ndarray, which: np.ndarray) -> np.ndarray:
        """The loss of every sample under the model that left it out."""
        scores = np.einsum("rp,rpc->rc", self.rows, models[which])
        return _loss(scores, self.targets)

    def everyone(self, tell: Callable[..., ArrayLike]) -> np.ndarray:
        """What each silo tells of its samples, (silos, numbers), at all processes."""
        m = self.census.count
        told = []
        changed = np.zeros(len(self.rows), bool) if self.changed is None else self.changed
        for i, part in enumerate(self.census.parts, start=self.census.first):
            mine = np.asarray(tell(part, self.known[part], changed[part]), float)
            told.append(np.where((np.arange(m) == i).reshape(m, *[1] * mine.ndim), mine, 0.0))
        return np.asarray(self.census.total(told))


class _Models:
    """Models of all silos but some, fitted by sums of gradients when they are first asked for.

    A key is (the silos whose unchecked samples are left out, one whose checked ones are, or -1).
    """

    def __init__(self, own: _Own, trust: np.ndarray, start: np.ndarray, penalty: float):
        self.own = own
        self.trust = trust
        self.start = start
        self.penalty = penalty
        self.found: dict[tuple[frozenset[int], int], np.ndarray] = {}

    def __getitem__(self, key: tuple[frozenset[int], int]) -> np.ndarray:
        return self.found[key]

    def fit(self, keys: Iterable[tuple[frozenset[int], int]]) -> None:
        """Nesterov's accelerated gradients on the mean weighted loss plus the ridge, all missing
        models at once, from the model of all.

        The step is 1/L by power iteration. Everything that decides is a sum over all silos, the
        same bits in every process.
        """
        keys = [key for key in dict.fromkeys(keys) if key not in self.found]
        if not keys:
            return
        own = self.own
        base = np.where(self.own.known, 1.0, self.trust[self.own.owner])
        v = np.repeat(base[None], len(keys), axis=0)
        for row, (out, without) in zip(v, keys, strict=True):
            row[np.isin(own.owner, list(out)) & ~own.known] = 0
            row[own.owner == without] = 0
        parts = own.census.parts
        total = lambda of: own.census.total([of(part) for part in parts])
        v /= np.maximum(total(lambda part: v[:, part].sum(axis=1)), 1e-300)[:, None]
        p, c = self.start.shape
        ridge = 2 * np.r_[np.full(p - 1, self.penalty), silos.INTERCEPT][:, None]
        steep = np.ones((len(keys), p)) / np.sqrt(p)
        size = np.ones((len(keys), 1))
        for _ in range(20):
            along = steep
            steep = total(
                lambda part, u=along: (v[:, part] * (u @ own.rows[part].T)) @ own.rows[part]
            )
            size = np.linalg.norm(steep, axis=1, keepdims=True)
            steep = steep / np.maximum(size, 1e-300)
        curved = 1.2 * size[:, :, None] / (4 if c == 1 else 2) + ridge.max()
        root = np.sqrt(2 * self.penalty / curved)
        y = before = np.repeat(self.start[None], len(keys), axis=0)

        def gradient(part: np.ndarray, at: np.ndarray) -> np.ndarray:
            z = np.einsum("rp,kpc->krc", own.rows[part], at)
            error = (expit(z) if c == 1 else softmax(z, axis=2)) - own.targets[part]
            return np.einsum("krc,rp->kpc", v[:, part, None] * error, own.rows[part])

        for _ in range(ROUNDS):
            ahead = y + (1 - root) / (1 + root) * (y - before)
            slope = total(lambda part, at=ahead: gradient(part, at)) + ridge * ahead
            before = y
            y = ahead - slope / curved
            if np.abs(slope).max() < 1e-5:
                break
        self.found |= dict(zip(keys, y, strict=True))


def _loss(z: np.ndarray, t: np.ndarray) -> np.ndarray:
    """(1) of silos.py in double precision, a number for each row."""
    total = np.logaddexp(0, z[:, 0]) if z.shape[1] == 1 else logsumexp(z, axis=1)
    return total - np.sum(t * z, axis=1)


def _surprise(z: np.ndarray, t: np.ndarray) -> tuple[float, float]:
    """(4) of some samples, and its standard error."""
    p = expit(z) if z.shape[1] == 1 else softmax(z, axis=1)
    e = np.sum((p - t) * z, axis=1)
    return float(e.mean()), float((e.std(ddof=1) + 1e-3) / np.sqrt(len(e)))


def _judge(
    own: _Own, models: _Models, gone: frozenset[int], bound: float
) -> dict[int, tuple[float, float, float]]:
    """(surprise minus that of the others, p, the smallest share of wrong labels that is found) of
    every silo that is not gone."""
    m = own.census.count
    left = [i for i in range(m) if i not in gone]
    models.fit([(gone | {i, j}, -1) for i in left for j in left] + [(gone | {i}, i) for i in left])
    number = iter(range(own.census.first, m))
    marks = np.random.default_rng(0)

    def exchangeable(losses: np.ndarray, known: np.ndarray) -> float:
        """(6); 1 where there is nothing to compare."""
        n = len(losses)
        c = int(known.sum())
        if c < 5 or c == n:
            return 1.0
        draws = max(999, int(4 / bound))
        below = 0
        for _ in range(-(-draws // 100)):
            chosen = marks.random((100, n)).argpartition(c - 1, axis=1)[:, :c]
            below += int((losses[chosen].sum(axis=1) <= losses[known].sum() + 1e-12).sum())
        return (1 + below) / (1 + 100 * -(-draws // 100))

    def tell(part: np.ndarray, known: np.ndarray, _: np.ndarray) -> np.ndarray:
        j = next(number)
        told = np.full((m, 3), np.nan)
        free = part[~known]
        if j in left and len(free) > 1:
            for i in left:
                told[i, :2] = _surprise(
                    own.rows[free] @ models[gone | {i, j}, -1], own.targets[free]
                )
            z = own.rows[part] @ models[gone | {j}, j]
            losses = _loss(z, own.targets[part])
            told[j, 2] = exchangeable(losses, known)
        return np.nan_to_num(told, nan=-1.0)

    told = own.everyone(tell)  # (silo that tells, silo that is left out, numbers)
    others = {}
    for i in left:
        a, s = told[[j for j in left if j != i and told[j, i, 1] > 0], i, :2].T
        mu = 0.0
        spread = np.inf
        if len(a) > 1:  # (5)
            u = 1 / s**2
            q = u @ (a - u @ a / u.sum()) ** 2
            tau2 = max(0.0, (q - len(a) + 1) / (u.sum() - u @ u / u.sum()))
            u = 1 / (s**2 + tau2)
            mu = float(u @ a / u.sum())
            spread = float(np.sqrt(tau2 + 1 / u.sum()))
        others[i] = mu, spread

    def looks(i: int, a: float, s: float, q: float) -> float:
        mu, spread = others[i]
        return min(1.0, 2 * min(float(norm.sf((a - mu) / np.hypot(s, spread))), q))  # (7)

    number = iter(range(own.census.first, m))

    def finds(part: np.ndarray, known: np.ndarray, _: np.ndarray) -> list[float]:
        """The same with labels of its own made wrong; (6) by the difference of two means."""
        i = next(number)
        free = part[~known]
        sure = part[known]
        if i not in left or told[i, i, 1] <= 0:
            return [1e9]
        random = np.random.default_rng((1, i))
        t = own.targets[free]
        columns = own.targets.shape[1]
        z = own.rows[free] @ models[gone | {i}, -1]
        own_z = own.rows @ models[gone | {i}, i]
        right = _loss(own_z[sure], own.targets[sure])
        for share in SHARES:
            seen = 0
            for _draw in range(DRAWS):
                wrong = random.permutation(len(free))[: round(share * len(free))]
                turned = t.copy()
                if columns == 1:
                    turned[wrong] = 1 - turned[wrong]
                else:
                    turn = random.integers(1, columns, len(wrong))
                    label = (turned[wrong].argmax(axis=1) + turn) % columns
                    turned[wrong] = np.eye(columns)[label]
                q = 1.0
                if len(right) >= 5:
                    loss = _loss(own_z[free], turned)
                    error = np.sqrt(loss.var() / len(loss) + right.var() / len(right) + 1e-12)
                    q = float(norm.sf((loss.mean() - right.mean()) / error))
                seen += looks(i, *_surprise(z, turned), q) <= bound
            if seen > DRAWS / 2:
                return [share]
        return [1e9]

    found = own.everyone(finds)[:, 0]
    answer = {}
    for i in left:
        a, s, q = told[i, i]
        fair = s > 0
        p = looks(i, a, s, q) if fair else 1.0
        answer[i] = (a - others[i][0] if fair else 0.0, p, found[i] if found[i] < 1e9 else np.inf)
    return answer
