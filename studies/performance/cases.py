"""The two problems of the step benchmark, for decibo, by hand in numpy, and as torch objectives.

logistic     10 agents x 400 samples x 784 features, one ridge exponent for each feature (the
             paper's size)
quadratic    10 agents, x and y of 50 numbers, all matrices unequal
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import decibo


class Case(NamedTuple):
    """A problem, and one agent's derivatives in numpy: outer(d, x, y), inner(d, x, y), products(d,
    x, y, v)."""

    problem: decibo.Problem
    outer: Callable[..., Any]
    inner: Callable[..., Any]
    products: Callable[..., Any]
    torch: tuple[Callable[..., Any], Callable[..., Any]]  # f and g of tensors
    steps: dict[str, float]


def logistic_outer(x, y, d):
    return jnp.mean(jnp.logaddexp(0.0, -d["validation_labels"] * (d["validation"] @ y)))


def logistic_inner(x, y, d):
    return jnp.mean(jnp.logaddexp(0.0, -d["labels"] * (d["train"] @ y))) + jnp.sum(
        jnp.exp(x) * y**2
    )


def logistic(m: int = 10, samples: int = 400, features: int = 784) -> Case:
    random = np.random.default_rng(0)
    draw = lambda: (
        random.normal(size=(m, samples, features)).astype(np.float32) / np.float32(features**0.5)
    )
    sign = lambda: np.sign(random.normal(size=(m, samples))).astype(np.float32)
    data = {"train": draw(), "labels": sign(), "validation": draw(), "validation_labels": sign()}
    zero = np.zeros(features, np.float32)
    problem = decibo.Problem(logistic_outer, logistic_inner, data, zero, zero)
    steps = {"alpha": 1e-4, "beta": 5e-4, "gamma": 2e-2, "lam": 10.0}
    return Case(problem, *_logistic_numpy(), _logistic_torch(), steps)


def _logistic_numpy() -> tuple[Any, Any, Any]:
    def pull(X, b, y):  # the gradient of the mean loss
        return X.T @ (-b / (1 + np.exp(b * (X @ y)))) / len(b)

    def outer(d, x, y):
        return np.zeros_like(x), pull(d["validation"], d["validation_labels"], y)

    def inner(d, x, y):
        e = np.exp(x)
        return e * y**2, pull(d["train"], d["labels"], y) + 2 * e * y

    def products(d, x, y, v):
        X = d["train"]
        e = np.exp(x)
        s = 1 / (1 + np.exp(-(X @ y)))
        return 2 * e * y * v, X.T @ (s * (1 - s) * (X @ v)) / len(X) + 2 * e * v

    return outer, inner, products


def _logistic_torch() -> tuple[Any, Any]:
    def loss(X, b, y):
        import torch

        return torch.nn.functional.softplus(-b * (X @ y)).mean()

    outer = lambda x, y, d: loss(d["validation"], d["validation_labels"], y)
    inner = lambda x, y, d: loss(d["train"], d["labels"], y) + (x.exp() * y**2).sum()
    return outer, inner


def quadratic(m: int = 10, n: int = 50, r: int = 50) -> Case:
    ready = decibo.problems.quadratic(m, n, r)
    data = {name: np.asarray(value, np.float32) for name, value in ready.data.items()}
    problem = decibo.Problem(
        ready.outer, ready.inner, data, np.zeros(n, np.float32), np.zeros(r, np.float32)
    )

    def outer(d, x, y):
        return d["P"] @ x + d["B"] @ y + d["p"], d["B"].T @ x + d["A"] @ y + d["q"]

    def inner(d, x, y):
        return d["J"] @ y, d["H"] @ y + d["J"].T @ x + d["s"]

    def products(d, x, y, v):
        return d["J"] @ v, d["H"] @ v

    f = lambda x, y, d: (
        x @ d["P"] @ x / 2 + x @ d["B"] @ y + y @ d["A"] @ y / 2 + d["p"] @ x + d["q"] @ y
    )
    g = lambda x, y, d: y @ d["H"] @ y / 2 + x @ d["J"] @ y + d["s"] @ y
    return Case(
        problem,
        outer,
        inner,
        products,
        (f, g),
        {"alpha": 1e-2, "beta": 5e-3, "gamma": 5e-2, "lam": 10.0},
    )


CASES = {"logistic 10 x 400 x 784": logistic, "quadratic 10 x 50 x 50": quadratic}
