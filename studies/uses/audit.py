"""Whose labels are wrong, and which: what `SiloTrust`, `audit` and `suspects` find, beside what a
sceptic would do.

    DECIBO_DATA=my/data python -m studies.uses.audit        # --quick: a few draws

30 samples of each owner were checked (at most half of its own). Clean draws: how often is anybody
accused? Then a share of the unchecked labels of one owner, in turn, or of two hospitals at once is
turned; the last rows turn a share of the labels of all owners, and ask which.

"ten" is the share of audits that say they could not tell a tenth of wrong labels. Accuracy of all
models on new samples: trust; checked alone; equal weights on all samples, checked ones included.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from studies.uses import places

CHECKED = 30
FIRST = 5000  # seeds that nothing was designed on


def fitted(place, t, checked, seed):
    from decibo.sklearn import SiloTrust

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SiloTrust(random_state=seed).fit(place.X, t, place.owner, checked)


def rivals(place, t, checked):
    """Accuracy of ridge-penalised logistic regressions on the checked samples, and on all: by
    SiloTrust's penalty, with scipy."""
    from scipy.optimize import minimize
    from scipy.special import expit

    mean, deviation = place.X.mean(axis=0), place.X.std(axis=0)
    deviation = np.where(deviation > 1e-9, deviation, 1)
    S, new = ((X - mean) / deviation for X in (place.X, place.test))
    S, new = (np.c_[X, np.ones(len(X))] for X in (S, new))
    ridge = np.r_[np.full(S.shape[1] - 1, 0.02), 1e-4]
    right = []
    for rows in (checked, np.ones(len(t), bool)):
        A, b = S[rows], t[rows]
        f = lambda w, A=A, b=b: (
            np.mean(np.logaddexp(0, A @ w) - b * (A @ w)) + ridge @ w**2,
            A.T @ (expit(A @ w) - b) / len(b) + 2 * ridge * w,
        )
        w = minimize(f, np.zeros(S.shape[1]), jac=True, method="L-BFGS-B").x
        right.append(np.mean((new @ w > 0) == place.test_t))
    return right


def judge(job):
    """One draw: (kind, share, found, anybody honest accused, says it could not tell a tenth,
    accuracies)."""
    name, seed, wrong = job
    place = getattr(places, name)(seed)
    checked = places.deal(place, CHECKED, seed)
    owners = np.unique(place.owner)
    bad = {owners[i]: share for i, share in wrong.items()}
    t = places.turned(place, checked, bad, seed)
    model = fitted(place, t, checked, seed)
    audit = model.audit()
    asked = {row.silo for row in audit if row.verdict == "ask"}
    found = np.mean([name in asked for name in bad]) if bad else np.nan
    unsure = np.mean([row.finds > 0.1 for row in audit if row.verdict != "ask"])
    right = np.mean(model.predict(place.test) == place.test_t)
    kind = ("clean", "one wrong", "two wrong")[len(bad)]
    return (
        name,
        kind,
        max(wrong.values(), default=0),
        found,
        bool(asked - set(bad)),
        unsure,
        right,
        *rivals(place, t, checked),
    )


def rank(job):
    """AUC of finding wrong labels of all owners, by suspects() and by the loss of a model of the
    checked samples alone."""
    from decibo.sklearn import SiloLogisticRegression

    name, seed, share = job
    place = getattr(places, name)(seed)
    checked = places.deal(place, CHECKED, seed)
    t = places.turned(place, checked, share, seed)
    wrong = t != place.t
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SiloLogisticRegression(random_state=seed).fit(place.X, t, place.owner)
        alone = SiloLogisticRegression(random_state=seed).fit(
            place.X[checked], t[checked], place.owner[checked]
        )
    chance = alone.predict_proba(place.X)[np.arange(len(t)), np.searchsorted(alone.classes_, t)]

    def auc(score):
        score = score[~checked]
        bad = wrong[~checked]
        return (
            np.mean(score[bad][:, None] > score[~bad])
            + np.mean(score[bad][:, None] == score[~bad]) / 2
        )

    return name, share, auc(model.out_of_fold_), auc(-chance)


def jobs(quick):
    clean = {"heart": 4 if quick else 150, "a9a": 2 if quick else 60}
    bad = {"heart": 2 if quick else 20, "a9a": 1 if quick else 4}
    todo = []
    for name, count in (("heart", 4), ("a9a", 8)):
        todo += [(name, FIRST + s, {}) for s in range(clean[name])]
        seeds = range(FIRST + 1000, FIRST + 1000 + bad[name])
        todo += [
            (name, s, {i: share})
            for s in seeds
            for i in range(count)
            for share in (0.1, 0.3, 0.5, 1.0)
        ]
        if name == "heart":
            todo += [
                (name, s, dict.fromkeys(two, 1.0))
                for s in seeds
                for two in itertools.combinations(range(4), 2)
            ]
    return todo[::-1]


def main():
    quick = "--quick" in sys.argv
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    context = multiprocessing.get_context("spawn")
    ranked = [
        (n, FIRST + s, share)
        for n in ("heart", "a9a", "mnist")
        for s in range(1 if quick else 5)
        for share in (0.1, 0.2, 0.4)
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        suspects = pool.map(rank, ranked)
        rows = list(pool.map(judge, jobs(quick), chunksize=2))
        suspects = list(suspects)
    print(
        "| place | wrong | share | draws | found | anybody honest accused | ten | trust | checked alone | equal weights |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for key in sorted({row[:3] for row in rows}):
        own = np.array([row[3:] for row in rows if row[:3] == key], float)
        found, accused, *rest = own.mean(axis=0)
        cells = [f"{found:.2f}" if key[1] != "clean" else "-", f"{accused:.3f}", f"{rest[0]:.2f}"]
        print(
            f"| {key[0]} | {key[1]} | {key[2]:g} | {len(own)} | "
            + " | ".join(cells + [f"{value:.3f}" for value in rest[1:]])
            + " |"
        )
    print(
        "\n| place | wrong labels of all | AUC of suspects() | AUC of a model of the checked alone |\n|---|---|---|---|"
    )
    for key in sorted({row[:2] for row in suspects}):
        own = np.array([row[2:] for row in suspects if row[:2] == key])
        print(f"| {key[0]} | {key[1]:g} | {own[:, 0].mean():.3f} | {own[:, 1].mean():.3f} |")


if __name__ == "__main__":
    main()
