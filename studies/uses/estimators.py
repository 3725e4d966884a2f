"""The same rows over 1, 4 or 8 owners, and what a search over ONE penalty finds on the pooled rows.

    DECIBO_DATA=my/data python -m studies.uses.estimators [PLACE ...]     # --quick: two splits

Held-out log-loss, means of 8 splits. "pooled": `LogisticRegressionCV` of scikit-learn on all rows
in one place, 22 penalties and 4 folds; "C = 1": no search. "apart" is the largest difference
between the fits of 1, 4 and 8 owners, in percent of the loss; owners have rows at random in odd
splits, and neighbours in the first feature in even ones.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial

import numpy as np

SPLITS = 8
DRAWN = {"digits": 160, "ijcnn1": 600, "a9a": 1000, "mnist": 600}


def split_of(place, seed, count=None):
    """Rows and labels to learn from, and to judge by."""
    from sklearn.model_selection import train_test_split

    from sklearn import datasets
    from studies.bench import material, tasks

    if place in ("cancer", "wine", "ten digits"):
        load = {"cancer": "load_breast_cancer", "wine": "load_wine", "ten digits": "load_digits"}
        X, y = getattr(datasets, load[place])(return_X_y=True)
        size = 600 if place == "ten digits" else len(y) * 7 // 10
        A, B, t, u = train_test_split(X, y, random_state=seed, train_size=size, stratify=y)
        return A, t, B, u
    draw = {"heart": tasks._heart, "covtype": material.covtype}
    draw |= {name: partial(material.drawn, name, count=count or n) for name, n in DRAWN.items()}
    d = draw[place](seed)
    sick = lambda labels: (np.asarray(labels) > 0).astype(int)
    return d.features, sick(d.labels), d.test_features[:5000], sick(d.test_labels)[:5000]


def rivals():
    """What a sceptic does on the pooled rows."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    search = LogisticRegressionCV(Cs=22, cv=4, scoring="neg_log_loss", max_iter=1000)
    return {
        "pooled": make_pipeline(StandardScaler(), search),
        "C = 1": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }


def dealt(X, owners, seed):
    """Who has which row."""
    if seed % 2:
        return np.random.default_rng(seed).integers(owners, size=len(X))
    return np.argsort(np.argsort(X[:, 0], kind="stable")) * owners // len(X)


def losses(place, seed):
    """Held-out log-loss of each entrant, and of spread = 1 for each number of owners."""
    from sklearn.metrics import log_loss

    from decibo.sklearn import SiloLogisticRegression

    X, t, new, truth = split_of(place, seed)
    judge = lambda model: log_loss(truth, model.predict_proba(new))
    found = {name: judge(model.fit(X, t)) for name, model in rivals().items()}
    for spread, owners in ((0.0, 4), (1.0, 1), (1.0, 4), (1.0, 8)):
        model = SiloLogisticRegression(spread=spread, random_state=0)
        found[spread, owners] = judge(model.fit(X, t, dealt(X, owners, seed)))
        found["steps", spread, owners] = model.n_iter_
    return found


def main():
    warnings.simplefilter("ignore")
    splits = 2 if "--quick" in sys.argv else SPLITS
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    places = words or [
        "heart",
        "digits",
        "covtype",
        "ijcnn1",
        "a9a",
        "cancer",
        "wine",
        "ten digits",
    ]
    print("| place | pooled | C = 1 | spread 0, 4 owners | 1 owner | 4 owners | 8 owners | 4 owners"
          " to pooled | apart, median and most | steps |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for place in places:
        rows = [losses(place, seed) for seed in range(splits)]
        of = lambda name, rows=rows: np.array([row[name] for row in rows])
        ours = np.stack([of((1.0, owners)) for owners in (1, 4, 8)])
        apart = 100 * np.ptp(ours, axis=0) / ours.min(axis=0)
        gain = 100 * (ours[1].mean() / of("pooled").mean() - 1)
        error = 100 * np.std(ours[1] - of("pooled"), ddof=1) / np.sqrt(splits) / of("pooled").mean()
        means = [of(name).mean() for name in ("pooled", "C = 1", (0.0, 4))] + [*ours.mean(axis=1)]
        cells = [f"{mean:.4f}" for mean in means]
        cells += [f"{gain:+.1f} ± {error:.1f} %", f"{np.median(apart):.2f}, {apart.max():.2f} %"]
        steps = np.median([of(("steps", 1.0, owners)) for owners in (1, 4, 8)], axis=1)
        print("| " + " | ".join([place, *cells, ", ".join(f"{k:.0f}" for k in steps)]) + " |",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
