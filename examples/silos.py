"""Tune and fit one classifier across hospitals of unequal size that keep their records.

Breast cancer records are dealt to eight hospitals, from a quarter of all patients to a handful, and
each hospital sees a different mix of cases. Together they fit a `SiloLogisticRegression`, which
learns one penalty for each feature. It is compared on new patients with `LogisticRegressionCV` on
all records in one place, which the hospitals may not have, and with `LogisticRegressionCV` of each
hospital on its own records, which is what they have without each other.

    python examples/silos.py [--quick]
"""

import sys
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from decibo.sklearn import SiloLogisticRegression

SEEDS = range(1 if "--quick" in sys.argv else 5)
SHARES = (0.25, 0.2, 0.16, 0.13, 0.1, 0.08, 0.05, 0.03)  # of the patients, by hospital


def hospitals(labels, seed):
    """A hospital for every patient: sizes by SHARES, and from hospital to hospital more or fewer
    benign cases."""
    random = np.random.default_rng(seed)
    tilt = random.uniform(0.5, 2.0, size=len(SHARES))  # how readily a hospital takes benign cases
    chances = np.stack([np.asarray(SHARES), SHARES * tilt])
    chances /= chances.sum(axis=1, keepdims=True)
    return np.array([random.choice(len(SHARES), p=chances[label]) for label in labels])


def centralised(X, y):
    """Scikit-learn's own, with as many folds as the rarer class allows."""
    folds = min(5, np.bincount(y, minlength=2).min())
    model = (
        LogisticRegressionCV(cv=folds, max_iter=10_000)
        if folds > 1
        else LogisticRegression(max_iter=10_000)
    )
    return make_pipeline(StandardScaler(), model).fit(X, y)


def judged(model, X, y):
    """Accuracy and log-loss on new patients."""
    return model.score(X, y), log_loss(y, model.predict_proba(X), labels=[0, 1])


def one_seed(seed):
    """Scores (accuracy, log-loss) of the centralised model, the silos together, and each silo that
    has two classes."""
    X, y = load_breast_cancer(return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=0.4, random_state=seed, stratify=y
    )
    groups = hospitals(y_train, seed)
    together = SiloLogisticRegression(random_state=seed).fit(train, y_train, groups=groups)
    own = [
        groups == silo for silo in together.silos_ if len(np.unique(y_train[groups == silo])) == 2
    ]
    return (
        judged(centralised(train, y_train), test, y_test),
        judged(together, test, y_test),
        [judged(centralised(train[rows], y_train[rows]), test, y_test) for rows in own],
        np.bincount(groups),
        together,
    )


def main():
    warnings.simplefilter("ignore", FutureWarning)  # from scikit-learn, about its own defaults
    # see the last column: converged means 0.001 or less
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(
        "seed   patients of each hospital         centralised     together        best alone     "
        " steps  residual"
    )
    scores = []
    average = []
    for seed in SEEDS:
        central, together, alone, sizes, model = one_seed(seed)
        best = max(alone)[0], min(loss for _, loss in alone)
        scores.append([central, together, best])
        average.append(np.mean([accuracy for accuracy, _ in alone]))
        columns = "   ".join(f"{accuracy:.4f} {loss:6.3f}" for accuracy, loss in scores[-1])
        ended = f"{model.n_iter_:5d}  {model.solution_.history['residual'][-1]:.4f}"
        print(f"{seed:4d}   {' '.join(f'{size:3d}' for size in sizes)}   {columns}   {ended}")
    central, together, best = np.mean(scores, axis=0)
    print(
        f"mean of {len(scores)}{29 * ' '}"
        + "   ".join(f"{a:.4f} {b:6.3f}" for a, b in (central, together, best))
    )
    print(f"\naccuracy against centralised: {100 * (together[0] - central[0]):+.2f} %")
    print(
        f"accuracy against the best hospital of each seed: {100 * (together[0] - best[0]):+.2f} %"
    )
    print(f"accuracy against the average hospital: {100 * (together[0] - np.mean(average)):+.2f} %")
    print(
        f"sent by a hospital to each of its two neighbours: {model.solution_.cost.bytes} bytes per"
        " step"
    )
    print(
        "\nLook at: accuracy (higher is better) and log-loss (lower is better) on patients nobody"
        " has seen. 'Best'"
    )
    print(
        "is chosen after the fact, for each number by itself: no hospital could know that it is the"
        " best one."
    )


if __name__ == "__main__":
    main()
