"""What figures 2 to 4 and Table I share: the regression problem on two digits, and how a classifier is judged."""

from __future__ import annotations

import numpy as np

from decibo.data.dataset import Dataset
from decibo.problem.problem import Problem
from decibo.problems.logistic import logistic_hyperparameters

AGENTS = 10
SCALE = 28.0  # figures 2 to 4 divide pixels by this, so that AHEAD's printed steps are below 1/L and curves are smooth
SAMPLES = 2000  # to train on, and as many to validate on: 4,000 in all, as in the paper


def regression(data: Dataset, seed: int, samples: int = SAMPLES, **options: object) -> Problem:
    """The paper's problem on `samples` training and as many validation samples, or as many as there are."""
    each = min(samples, len(data.labels) // 2)
    options = {"training": each, "validation": each, "seed": seed, **options}
    return logistic_hyperparameters(data, AGENTS, **options)  # type: ignore[arg-type]


def smooth_scale(data: Dataset) -> float:
    """SCALE, or the same share of it as a row has fewer pixels than MNIST's 28."""
    return SCALE * data.features.shape[1] ** 0.5 / 28.0


def accuracy(data: Dataset, Y: np.ndarray) -> np.ndarray:
    """Share of test samples that each row of Y (..., features) classifies rightly; not a number where Y is not."""
    with np.errstate(over="ignore", invalid="ignore"):  # a run that is about to diverge
        scores = np.nan_to_num(Y) @ data.test_features.T.astype(Y.dtype)
    right = np.mean((scores > 0) == (data.test_labels > 0), axis=-1)
    return np.where(np.isfinite(Y).all(axis=-1), right, np.nan)


def loss(problem: Problem, kind: str, Y: np.ndarray) -> np.ndarray:
    """Mean logistic loss of each row of Y on all agents' samples of a kind, "training" or "validation"."""
    d = problem.data[kind]
    features, labels, weights = (np.asarray(d[name]) for name in ("features", "labels", "weights"))
    flat, signs, weighs = features.reshape(-1, features.shape[-1]), labels.ravel(), weights.ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        margins = (Y @ flat.T) * signs
        return np.logaddexp(0.0, -margins) @ weighs / weighs.sum()


def first_step(steps: np.ndarray, values: np.ndarray, level: float) -> float:
    """The first recorded step from which values stay at or above the level; infinite if there is none."""
    below = np.flatnonzero(~(values >= level))
    after = 0 if below.size == 0 else below[-1] + 1
    return float(steps[after]) if after < len(steps) else float("inf")
