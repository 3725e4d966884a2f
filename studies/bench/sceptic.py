"""What a sceptic would do instead of a bilevel method, on the same samples, solved exactly.

l2-...             ONE penalty for all features, the best of 39 on the validation samples: as many
                   fits as a run has gradients for, at 100 steps of momentum a fit
cleaning, trust    a model of the validation samples alone, whose labels are right; and one of
                   the training samples with equal weights, in which wrong labels count fully
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from decibo.problem.problem import Problem
from studies.bench.tasks import Task

FITS = 39


def rows(task: Task, seeds: list[int]) -> dict[str, tuple[float, float]]:
    """Held-out loss and accuracy of each rival, medians over seeds; none for networks and for
    tasks without a test set."""
    if task.held_out is None or task.trained or task.kind == "minimax":
        return {}
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in seeds:
        problem = task.make(seed)
        features, labels = task.held_out(seed)
        for label, w in _rivals(problem).items():
            found.setdefault(label, []).append(judged(w, features, labels))
    return {label: tuple(np.median(each, axis=0)) for label, each in found.items()}  # type: ignore[misc]


def judged(w: np.ndarray, features: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The mean log-loss of linear weights, of shape (features,) or (features, classes), and the
    share that they get right."""
    scores = np.asarray(features) @ np.asarray(w)
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    index = np.maximum(np.asarray(labels), 0).astype(int)
    logs = log_softmax(scores, axis=1)[np.arange(len(index)), index]
    return float(-logs.mean()), float(np.mean(scores.argmax(axis=1) == index))


def _rivals(problem: Problem) -> dict[str, np.ndarray]:
    """Weights of each rival, of the mean over agents."""
    samples = {}
    for kind in ("training", "validation"):
        part = {name: np.asarray(leaf) for name, leaf in problem.data[kind].items()}
        real = part["weights"] > 0
        v = part["weights"][real] / len(part["weights"])
        labels = np.maximum(part["labels"][real], 0).astype(int)
        samples[kind] = part["features"][real], labels, v
    shape = jax.tree.leaves(problem.y0)[0].shape
    loss = lambda w, kind: _loss(w.reshape(shape), *samples[kind])[0]
    if "ridge" not in problem.data["training"]:
        fits = [_fitted(shape, *samples["training"], np.exp(x)) for x in np.linspace(-12, 4, FITS)]
        return {f"one penalty, {FITS} fits": min(fits, key=lambda w: loss(w, "validation"))}
    ridge = float(np.mean(problem.data["training"]["ridge"])) / 2
    return {
        "validation samples alone": _fitted(shape, *samples["validation"], ridge),
        "equal weights": _fitted(shape, *samples["training"], ridge),
    }


def _loss(
    w: np.ndarray, features: np.ndarray, labels: np.ndarray, v: np.ndarray
) -> tuple[float, np.ndarray]:
    """The weighted log-loss and its gradient."""
    scores = features @ w
    two = scores.ndim == 1
    if two:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    rows = np.arange(len(labels))
    d = softmax(scores, axis=1)
    d[rows, labels] -= 1
    d *= v[:, None]
    value = -v @ log_softmax(scores, axis=1)[rows, labels]
    return float(value), features.T @ (d[:, 1] if two else d)


def _fitted(
    shape: tuple[int, ...], features: np.ndarray, labels: np.ndarray, v: np.ndarray, ridge: float
) -> np.ndarray:
    """The minimiser with ridge |w|^2."""

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        loss, d = _loss(w.reshape(shape), features, labels, v)
        return loss + ridge * w @ w, d.ravel() + 2 * ridge * w

    start = np.zeros(int(np.prod(shape)))
    return minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x.reshape(
        shape
    )


def least_of(make: Callable[[int], Problem], seed: int) -> float:
    """The least Phi, by L-BFGS on it with exact inner solutions, from the best common x; for
    problems whose minimiser exists."""
    from decibo import reference

    problem = make(seed)
    exact = reference(problem)
    n = problem.x_layout.size
    phi = lambda x: float(exact.phi(jax.numpy.asarray(x)))
    start = min((np.full(n, x) for x in np.linspace(-10, 2, 13)), key=phi)

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        answer = exact.at(jax.numpy.asarray(x))
        return float(answer.phi), np.asarray(answer.grad, float)

    options = {"maxiter": 300, "ftol": 1e-12, "gtol": 1e-8}
    found = minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    return min(float(found.fun), phi(start))
