"""Uses that were tried beside what a sceptic would do: some lose.

    DECIBO_DATA=my/data python -m studies.uses.more [useless] [rates] [worst] [spreads]   # --quick

Five draws, means and standard errors; no choice was made on these draws.

useless  columns that say nothing: heart and a9a (100 records of ten occupations) with 40 columns of
         noise. A penalty for each feature, learned between owners, against searches on the pooled
         table over ONE ridge penalty and one lasso penalty.
rates    owners with base rates of their own (a9a by occupation, 100 records each): personal models
         against the closed form: the pooled model's scores moved by what makes each owner's
         smoothed rate right, (positives + 5 rate of all) / (n + 5). Also balanced accuracy.
worst    the loss of the owner that is served worst: weights of owners that rise with their loss
         (minimax, group DRO) against equal weights of records, of owners, and personal models.
spreads  can the folds that choose penalties choose `spread` too? Log-loss held out, and of what the
         folds left out, on splits of studies.uses.estimators.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from studies.uses.personal import OCCUPATION, heart, occupations

DRAWS = range(20, 25)


def standard(X, new):
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    deviation = np.where(deviation > 1e-9, deviation, 1)
    return (X - mean) / deviation, (new - mean) / deviation


def log_loss(s, t):
    return np.logaddexp(0, s) - t * s


def useless(seed):
    from sklearn.linear_model import LogisticRegressionCV

    from decibo.sklearn import SiloLogisticRegression

    rows = {}
    for name, draw in (("heart", heart), ("a9a", lambda s: occupations(OCCUPATION, 100, s))):
        X, t, owner, new, new_t, _ = draw(seed)
        random = np.random.default_rng((seed, 10))
        noisy = lambda A, random=random: np.c_[A, random.normal(size=(len(A), 40))]
        X, new = standard(noisy(X), noisy(new))
        search = {"cv": 4, "scoring": "neg_log_loss", "Cs": 15}
        ridge = LogisticRegressionCV(max_iter=1000, **search).fit(X, t)
        lasso = LogisticRegressionCV(l1_ratios=(1.0,), solver="liblinear", **search).fit(X, t)
        ours = SiloLogisticRegression(random_state=0).fit(X, t, owner)
        one = SiloLogisticRegression(random_state=0, spread=0.0).fit(X, t, owner)
        wide = SiloLogisticRegression(random_state=0, spread=2.0).fit(X, t, owner)
        judge = lambda m, new=new, new_t=new_t: log_loss(m.decision_function(new), new_t).mean()
        found = {"pooled ridge": ridge, "pooled lasso": lasso, "one penalty": one,
                 "each, spread 1": ours, "each, spread 2": wide}  # fmt: skip
        rows[name] = {label: judge(model) for label, model in found.items()}
    return rows


def rates(seed):
    from decibo.sklearn import SiloLogisticRegression

    X, t, owner, new, new_t, new_owner = occupations(OCCUPATION, 100, seed)
    X, new = standard(X, new)
    model = SiloLogisticRegression(personal=True, random_state=0, network="complete")
    model.fit(X, t, owner)
    scores = {"joint": model.decision_function(new)}
    moved = scores["joint"].copy()
    own = model.decision_function(X)
    for name in np.unique(owner):
        rows = owner == name
        wanted = (t[rows].sum() + 5 * t.mean()) / (rows.sum() + 5)
        shift = 0.0
        for _ in range(30):  # Newton: the mean chance is the wanted rate
            p = expit(own[rows] + shift)
            shift += (wanted - p.mean()) / (p * (1 - p)).mean()
        moved[new_owner == name] += shift
    scores["closed form"] = moved
    scores["personal"] = model.decision_function(new, new_owner)
    balanced = lambda s: 0.5 * (np.mean(s[new_t > 0] > 0) + np.mean(s[new_t == 0] <= 0))
    rate = np.log(t.mean() / (1 - t.mean()))
    return {
        "log-loss": {name: log_loss(s, new_t).mean() for name, s in scores.items()},
        "balanced accuracy, threshold at the rate of all": {
            name: balanced(s - rate) for name, s in scores.items()
        },
    }


def worst(seed):
    from decibo.sklearn import SiloLogisticRegression

    rows = {}
    for place, draw in (("a9a", lambda s: occupations(OCCUPATION, 100, s)), ("heart", heart)):
        X, t, owner, new, new_t, new_owner = draw(seed)
        X, new = standard(X, new)
        A, B = (np.c_[Z, np.ones(len(Z))] for Z in (X, new))
        names = np.unique(owner)
        member = owner == names[:, None]
        ridge = np.r_[np.full(X.shape[1], 0.01), 1e-4]

        def fit(v, A=A, t=t, ridge=ridge):
            def f(w):
                s = A @ w
                slope = A.T @ (v * (expit(s) - t)) + 2 * ridge * w
                return v @ log_loss(s, t) + ridge @ w**2, slope

            return minimize(f, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B").x

        each = member / member.sum(axis=1, keepdims=True)
        p = np.full(len(names), 1 / len(names))
        for _ in range(60):  # exponentiated gradients on the owners' training losses
            now = fit(p @ each)
            p = p * np.exp(0.5 * (each @ log_loss(A @ now, t)))
            p /= p.sum()
        scores = {
            "equal records": B @ fit(np.full(len(t), 1 / len(t))),
            "equal owners": B @ fit(each.mean(axis=0)),
            "minimax": B @ fit(p @ each),
        }
        model = SiloLogisticRegression(personal=True, random_state=0, network="complete")
        scores["personal"] = model.fit(X, t, owner).decision_function(new, new_owner)
        at = [new_owner == name for name in names]
        rows[f"{place}, worst owner"] = {
            k: max(log_loss(s[r], new_t[r]).mean() for r in at) for k, s in scores.items()
        }
        rows[f"{place}, all"] = {k: log_loss(s, new_t).mean() for k, s in scores.items()}
    return rows


def spreads(seed):
    from decibo.sklearn import SiloLogisticRegression
    from studies.uses.estimators import dealt, split_of

    rows = {}
    for place in ("cancer", "wine", "heart", "a9a", "digits"):
        X, t, new, truth = split_of(place, seed)
        for spread in (0.0, 0.5, 1.0, 2.0):
            model = SiloLogisticRegression(random_state=0, spread=spread)
            model.fit(X, t, dealt(X, 4, seed))
            right = model.predict_proba(new)[np.arange(len(truth)), truth]
            losses = {"held out": -np.log(right).mean(), "left out": model.out_of_fold_.mean()}
            for name, loss in losses.items():
                rows.setdefault(f"{place}, {name}", {})[f"spread {spread:g}"] = loss
    return rows


def show(found):
    """A table for each row of what draws have found: {row: {label: value}} for each draw."""
    for row in found[0]:
        of = {label: np.array([each[row][label] for each in found]) for label in found[0][row]}
        print(f"| {row} | " + " | ".join(of) + " |\n|---|" + "---|" * len(of))
        print("| mean | " + " | ".join(f"{each.mean():.4f}" for each in of.values()) + " |")
        first = next(iter(of.values()))
        gains = [100 * (each / first - 1) for each in of.values()]
        root = np.sqrt(max(len(found) - 1, 1))
        cells = [f"{g.mean():+.1f} ± {np.std(g) / root:.1f} %" for g in gains]
        print("| to the first | " + " | ".join(cells) + " |\n", flush=True)


def main():
    warnings.simplefilter("ignore")
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")]
    for name in chosen or ["useless", "rates", "worst", "spreads"]:
        seeds = list(DRAWS)[: 1 if "--quick" in sys.argv else 5]
        print(f"\n{name}\n")
        show([globals()[name](seed) for seed in seeds])


if __name__ == "__main__":
    main()
