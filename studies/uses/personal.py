"""Personal models: one model of all, moved by each owner as far as all of them learn that it pays.

    DECIBO_DATA=my/data python -m studies.uses.personal [PLACE ...]     # --quick: one draw of each

Held-out log-loss (squared error for schools of `hsb82` and `exam`, targets standardised) of new
records of the same owners, means of five draws, each record equal. "own only": each owner's model
of its own records, one ridge penalty for all owners by 4 folds. "pooled": one model of all records
in one place, one penalty by folds. "one strength": ridge of each owner towards the pooled model,
one strength by folds, what a sceptic would do with the records in one place. "base rates": the
pooled model with an intercept for each owner in closed form. "joint": what
`SiloLogisticRegression` or `SiloRidge` learns between owners; "personal": the same with
personal=True. No record leaves its owner in the last two.

The prior on both strengths was read off other draws of a9a by occupation, so that the rows of a9a do
not test it; heart, contraception, exam and hsb82 do, on which nothing was chosen.
Tables of `hsb82`, `exam`, `contraception`: mlmRev of Rdatasets, in DECIBO_DATA as CSV.
"""

from __future__ import annotations

import csv
import os
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from studies.uses import places

DRAWS = range(10, 15)
GRID = np.exp(np.arange(-8, 5.1, 0.5))
STRENGTHS = np.exp(np.arange(-3, 10.1, 0.5))
K = 4


def table(name, columns, target, owner, kind):
    """Columns of a CSV file: numbers as they are, words as indicators."""
    with open(Path(os.environ["DECIBO_DATA"]) / f"{name}.csv") as file:
        rows = list(csv.DictReader(file))
    parts = []
    for column in columns:
        values = np.array([row[column] for row in rows])
        try:
            parts.append(values.astype(float)[:, None])
        except ValueError:
            parts.append((values[:, None] == np.unique(values)[1:]).astype(float))
    t = np.array([row[target] for row in rows])
    t = (t == np.unique(t)[1]).astype(float) if kind == "log" else t.astype(float)
    return np.hstack(parts), t, np.array([row[owner] for row in rows])


def occupations(block, size, seed):
    """Rows of a9a whose owners are the ten most frequent values of one block of indicators."""
    X, t = places.adult("a9a")
    columns = sorted(range(*block), key=lambda j: -X[:, j].sum())[:10]
    random = np.random.default_rng((seed, 7))
    sizes = np.full(10, size) if size else random.permutation(np.geomspace(30, 500, 10).astype(int))
    rows, owner, new, new_owner = [], [], [], []
    for i, (column, n) in enumerate(zip(columns, sizes, strict=True)):
        has = random.permutation(np.flatnonzero(X[:, column]))
        rows.append(has[:n])
        new.append(has[n : n + 800])
        owner.append(np.full(len(rows[-1]), i))
        new_owner.append(np.full(len(new[-1]), i))
    rows, owner, new, new_owner = map(np.concatenate, (rows, owner, new, new_owner))
    keep = [j for j in range(X.shape[1]) if j not in range(*block) and X[rows, j].std() > 0.05]
    return X[rows][:, keep], t[rows] * 1.0, owner, X[new][:, keep], t[new] * 1.0, new_owner


def half(X, t, owner, seed):
    """Half of each owner's rows to learn from, half to judge by."""
    random = np.random.default_rng((seed, 8))
    here = np.zeros(len(t), bool)
    for name in np.unique(owner):
        rows = random.permutation(np.flatnonzero(owner == name))
        here[rows[: max(len(rows) // 2, 1)]] = True
    return X[here], t[here], owner[here], X[~here], t[~here], owner[~here]


def heart(seed):
    d = places.heart(seed)
    return d.X, d.t * 1.0, d.owner, d.test, d.test_t * 1.0, d.test_owner


OCCUPATION, EDUCATION, MARITAL = (46, 60), (18, 34), (39, 46)
PLACES = {
    "a9a, 40 each": (lambda s: occupations(OCCUPATION, 40, s), "log"),
    "a9a, 100 each": (lambda s: occupations(OCCUPATION, 100, s), "log"),
    "a9a, 30 to 500": (lambda s: occupations(OCCUPATION, None, s), "log"),
    "contraception": (
        lambda s: half(
            *table("Contraception", ("livch", "age", "urban"), "use", "district", "log"), s
        ),
        "log",
    ),
    "hsb82": (
        lambda s: half(*table("Hsb82", ("minrty", "sx", "ses"), "mAch", "school", "squared"), s),
        "squared",
    ),
    "exam": (
        lambda s: half(
            *table("Exam", ("standLRT", "sex", "vr"), "normexam", "school", "squared"), s
        ),
        "squared",
    ),
    "a9a by education, 100": (lambda s: occupations(EDUCATION, 100, s), "log"),
    "heart": (heart, "log"),
}


def losses(kind, S, t, w):
    s = S @ w
    return np.logaddexp(0, s) - t * s if kind == "log" else 0.5 * (s - t) ** 2


def solved(kind, S, t, penalty, centre):
    """The minimiser of the mean loss + penalty (w - centre)^2, by L-BFGS."""
    n = len(t)

    def f(w):
        s = S @ w
        d = expit(s) - t if kind == "log" else s - t
        far = w - centre
        return losses(kind, S, t, w).mean() + penalty @ far**2, S.T @ d / n + 2 * penalty * far

    if kind == "squared":
        return centre + np.linalg.solve(
            S.T @ S / n + 2 * np.diag(penalty), S.T @ (t - S @ centre) / n
        )
    return minimize(f, centre, jac=True, method="L-BFGS-B", options={"gtol": 1e-6}).x


def rivals(kind, S, t, owner, new, new_t, new_owner, seed):
    """Own only, pooled, and one strength towards the pooled model."""
    random = np.random.default_rng((seed, 9))
    n, p = S.shape
    names = np.unique(owner)
    fold = np.zeros(n, int)
    for name in names:
        rows = random.permutation(np.flatnonzero(owner == name))
        fold[rows] = (np.arange(len(rows)) + random.integers(K)) % K
    judge = lambda w: losses(kind, new, new_t, w).mean()
    free = lambda g: np.r_[np.full(p - 1, g), 1e-4]
    zero = np.zeros(p)
    found = {}

    curves = []
    for g in GRID:
        models = [solved(kind, S[fold != k], t[fold != k], free(g), zero) for k in range(K)]
        total = sum(losses(kind, S[fold == k], t[fold == k], models[k]).sum() for k in range(K))
        curves.append((total, g, models))
    _, best, models = min(curves, key=lambda row: row[0])
    whole = solved(kind, S, t, free(best), zero)
    found["pooled"] = judge(whole)

    def each(strengths, centres, last, penalty):
        """Every owner's own model, with the strength that serves all best."""
        sums = np.zeros(len(strengths))
        for name in names:
            for k in range(K):
                a, b = (owner == name) & (fold != k), (owner == name) & (fold == k)
                if b.any() and a.any():
                    for j, g in enumerate(strengths):
                        w = solved(kind, S[a], t[a], penalty(g, a.sum()), centres[k])
                        sums[j] += losses(kind, S[b], t[b], w).sum()
        g = strengths[np.argmin(sums)]
        total = 0.0
        for name in np.unique(new_owner):
            a, b = owner == name, new_owner == name
            w = solved(kind, S[a], t[a], penalty(g, a.sum()), last) if a.any() else last
            total += losses(kind, new[b], new_t[b], w).sum()
        return total / len(new_t)

    ridge = lambda g, n: free(g)
    found["own only"] = each(GRID[::2], [zero] * K, zero, ridge)
    # in closed form: Newton's step of each owner's intercept, as if five records more had none
    total = 0.0
    for name in np.unique(new_owner):
        a, b = owner == name, new_owner == name
        s = S[a] @ whole
        mean = expit(s) if kind == "log" else s
        bent = mean * (1 - mean) if kind == "log" else np.ones_like(s)
        step = (t[a] - mean).sum() / (bent.sum() + 5 * bent.mean()) if a.any() else 0.0
        shift = np.r_[np.zeros(p - 1), step]
        total += losses(kind, new[b], new_t[b], whole + shift).sum()
    found["base rates"] = total / len(new_t)
    towards = lambda g, n: np.full(p, g / n)
    found["one strength"] = each(STRENGTHS[::2], models, whole, towards)
    return found


def compared(place, seed):
    from decibo.sklearn import SiloLogisticRegression, SiloRidge

    draw, kind = PLACES[place]
    X, t, owner, new, new_t, new_owner = draw(seed)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    deviation = np.where(deviation > 1e-9, deviation, 1)
    S, T = (np.c_[(A - mean) / deviation, np.ones(len(A))] for A in (X, new))
    if kind == "squared":
        t, new_t = (t - t.mean()) / t.std(), (new_t - t.mean()) / t.std()
    found = rivals(kind, S, t, owner, T, new_t, new_owner, seed)
    estimator = SiloLogisticRegression if kind == "log" else SiloRidge
    model = estimator(personal=True, random_state=0, network="complete").fit(X, t, owner)
    for name, groups in (("joint", None), ("personal", new_owner)):
        if kind == "log":
            s = model.decision_function(new, groups)
            found[name] = float(np.mean(np.logaddexp(0, s) - new_t * s))
        else:
            found[name] = float(np.mean(0.5 * (model.predict(new, groups) - new_t) ** 2))
    found["strengths"] = np.log(model.strengths_)
    return found


def main():
    warnings.simplefilter("ignore")
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    columns = ("own only", "pooled", "base rates", "one strength", "joint", "personal")
    print("| place | " + " | ".join(columns) + " | personal to pooled | to own only | to base rates"
          " | to one strength | ln strengths |\n|---|" + "---|" * 11)  # fmt: skip
    for place in words or PLACES:
        rows = [compared(place, seed) for seed in list(DRAWS)[: 1 if "--quick" in sys.argv else 5]]
        of = {name: np.array([row[name] for row in rows]) for name in columns}
        cells = [f"{of[name].mean():.4f}" for name in columns]
        for name in ("pooled", "own only", "base rates", "one strength"):
            gain = 100 * (of["personal"] / of[name] - 1)
            error = np.std(gain) / np.sqrt(max(len(gain) - 1, 1))
            cells.append(f"{gain.mean():+.1f} ± {error:.1f} %")
        cells.append("; ".join(f"{a:g}, {b:g}" for a, b in (row["strengths"] for row in rows)))
        print("| " + " | ".join([place, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
