r"""Standard errors of the joint model, by matrices that silos add up.

With A the sum over silos of the Hessians of their losses plus that of the penalty, and B the sum of
outer products of the gradients of single samples, the covariance is A^-1 B A^-1 (robust: right
where the loss is no likelihood). For `cox`, where no sample has a gradient of its own, B is A
without the penalty. An interval says what the samples leave open of the penalised coefficient; by
how much the penalty shrinks it is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from decibo.sklearn import losses
from decibo.sklearn.silos import FitData


def covariance(
    data: FitData, model: np.ndarray, ridge: np.ndarray, passed: Callable[..., tuple[Any, Any]]
) -> np.ndarray:
    """The covariance of coefficients and intercept, class after class; `passed` turns a model of
    standardised features into one of features as they were passed."""
    p, c = model.shape
    v = data.weighed()

    def information(part: np.ndarray) -> np.ndarray:
        rows = jnp.asarray(data.rows[part])
        t = jnp.asarray(data.targets[part])
        if data.loss is losses.cox_loss:
            of = lambda w: losses.cox_loss(rows @ w.reshape(p, c), t, jnp.asarray(v[part]))
            return np.repeat(np.asarray(jax.hessian(of)(model.ravel()))[None], 2, axis=0)
        one = lambda s, t: data.loss(s[None], t[None])[0]
        s = rows @ model
        d = jax.vmap(jax.grad(one))(s, t)
        bent = jax.vmap(jax.hessian(one))(s, t)
        each = (rows[:, :, None] * d[:, None, :] * v[part, None, None]).reshape(len(part), -1)
        hessian = jnp.einsum("r,rp,rq,rab->paqb", v[part], rows, rows, bent)
        return np.stack([np.asarray(hessian).reshape(p * c, p * c), np.asarray(each.T @ each)])

    A, B = data.census.total([information(part) for part in data.census.parts]).astype(float)
    count = data.census.samples if data.weights is None else data.census.weight(data.weights)
    root = np.linalg.solve(A + 2 * count * np.diag(np.repeat(ridge, c)), np.eye(p * c))
    flat = lambda model: np.c_[(pair := passed(model.reshape(p, c)))[0].T, pair[1]].ravel()
    turn = np.stack([flat(e) - flat(0 * e) for e in np.eye(p * c)], axis=1) @ root
    return turn @ B @ turn.T


class Coefficient(NamedTuple):
    """One line of a summary."""

    name: str
    value: float
    error: float
    low: float
    high: float
    p: float


class Summary(tuple[Coefficient, ...]):
    """A `Coefficient` for each feature and the intercept, of each class; printed, a table."""

    def __str__(self) -> str:
        lines = [f"{'':24}{'coefficient':>12}{'error':>10}{'low':>10}{'high':>10}{'p':>8}"]
        lines += [
            f"{r.name:24.24}{r.value:12.4g}{r.error:10.3g}{r.low:10.4g}{r.high:10.4g}{r.p:8.3f}"
            for r in self
        ]
        return "\n".join(lines)


def summary(
    names: list[str], classes: Any, values: np.ndarray, covariance: np.ndarray, level: float
) -> Summary:
    errors = np.sqrt(np.maximum(np.diag(covariance), 0)).reshape(values.shape)
    far = norm.ppf(0.5 + level / 2)
    return Summary(
        Coefficient(
            name if label is None else f"{label}: {name}",
            float(value),
            float(error),
            float(value - far * error),
            float(value + far * error),
            float(2 * norm.sf(abs(value) / max(error, 1e-300))),
        )
        for label, row, wide in zip(classes, values, errors, strict=True)
        for name, value, error in zip([*names, "intercept"], row, wide, strict=True)
    )
