r"""What silos can add to a model of all, by sums over them: a model of each one's own, and standard
errors.

Personal models. Silo i keeps the model w of all and moves it by d_i, fitted to its own samples:

    (1)  d_i(a, b) = argmin  sum over its samples of l + a |d_coef|^2 + b |d_intercept|^2

Two strengths, the same for all silos, since base rates differ between owners far more than what a
feature does. Every silo computes, for each pair of a grid, the loss of samples that neither d_i nor
w has seen: w is that of the K models that left them out. The sums over all silos of these numbers,
one exchange, choose the pair, with a prior:

    (2)  min over (a, b)  sum_i out-of-fold loss_i + (ln a - 5)^2 / 8 + (ln b - 1/2)^2 / 4.5

d = 0 is one of the choices. The model of a silo never leaves it.

Standard errors. With A the sum over silos of the Hessians of their losses plus that of the penalty,
and B the sum of outer products of the gradients of single samples, the covariance is A^-1 B A^-1
(robust: right where the loss is no likelihood). For `cox`, where no sample has a gradient of its
own, B is A without the penalty. An interval says what the samples leave open of the penalised
coefficient; by how much the penalty shrinks it is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from decibo.sklearn import losses
from decibo.sklearn.silos import Census

GRID = np.array(list(product(range(1, 9), (-2.5, -1.0, 0.5, 2.0, 3.5, 5.0))))  # ln a, ln b
STEPS = 500  # of accelerated gradients for each d, at most


class Own(NamedTuple):
    """The samples of this process's silos: standardised, with a last column of ones."""

    census: Census
    rows: np.ndarray
    targets: np.ndarray
    fold: np.ndarray
    weights: np.ndarray | None
    loss: losses.Loss

    def weighed(self) -> np.ndarray:
        return np.ones(len(self.rows)) if self.weights is None else self.weights


def personal(own: Own, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both strengths, infinite if no silo gains by a model of its own, and the models of this
    process's silos; `models` are those that leave a part out, and that of all."""
    k = len(models) - 1
    strengths = np.exp(GRID)
    prior = (GRID[:, 0] - 5) ** 2 / 8 + (GRID[:, 1] - 0.5) ** 2 / 4.5
    curves = []
    moves = []
    for part in own.census.parts:
        fill = own.census.size - len(part)
        padded = lambda a, fill=fill: np.pad(a, [(0, fill)] + [(0, 0)] * (a.ndim - 1))
        rows = padded(own.rows[part])
        t = padded(own.targets[part])
        out = own.fold[part] == np.arange(k + 1)[:, None]
        v = own.weighed()[part]
        pad = ((0, 0), (0, fill))
        curve, last = _moved(
            own.loss, rows, t, np.pad(v * ~out, pad), np.pad(v * out, pad), models, strengths
        )
        curves.append(np.asarray(curve, float))
        moves.append(np.asarray(last, float))
    loss = own.census.total(curves) + np.r_[0.0, prior]
    best = int(np.argmin(np.where(np.isfinite(loss), loss, np.inf)))
    if best == 0:
        return np.full(2, np.inf), np.repeat(models[-1:], len(moves), axis=0)
    return strengths[best - 1], models[-1] + np.array([each[best - 1] for each in moves])


@partial(jax.jit, static_argnums=0)
def _moved(
    loss: losses.Loss,
    rows: jax.Array,
    t: jax.Array,
    trained: jax.Array,
    held: jax.Array,
    models: jax.Array,
    strengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The out-of-fold loss of one silo without d and for each pair of strengths, and d of all its
    samples for each, by accelerated gradients with restarts; steps are halved where gradients
    change faster than they allow."""
    total = losses.summed(loss)
    base = jnp.einsum("rp,kpc->krc", rows, models)

    def fitted(v: jax.Array, at: jax.Array, strength: jax.Array) -> jax.Array:
        ridge = jnp.full(rows.shape[1], strength[0]).at[-1].set(strength[1])
        unit = 1 / jnp.sqrt(ridge + v @ rows**2 / 8)[:, None]
        moved = lambda u: total(at + rows @ (unit * u), t, v) + ridge @ jnp.sum((unit * u) ** 2, 1)
        slope = jax.grad(moved)

        def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            k, u, ahead, momentum, bound, _ = state
            d = slope(ahead)
            new = ahead - d / bound
            steep = jnp.linalg.norm(slope(new) - d) > 1.01 * bound * jnp.linalg.norm(new - ahead)
            steep &= jnp.linalg.norm(d) > 1e-3
            back = jnp.sum(d * (new - u)) > 0
            following = jnp.where(back, 1.0, (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2)
            extra = jnp.where(back, 0.0, (momentum - 1) / following)
            keep = lambda old, moved: jnp.where(steep, old, moved)
            return (
                k + 1,
                keep(u, new),
                keep(ahead, new + extra * (new - u)),
                keep(momentum, following),
                jnp.where(steep, 2 * bound, bound),
                jnp.max(jnp.abs(d)),
            )

        u = jnp.zeros((rows.shape[1], t.shape[1] if at.shape[1] > 1 else 1), at.dtype)
        one = jnp.ones((), at.dtype)
        state = (jnp.zeros((), int), u, u, one, one, one)
        more = lambda state: (state[0] < STEPS) & (state[-1] > 1e-3)
        return unit * jax.lax.while_loop(more, step, state)[1]

    def pair(strength: jax.Array) -> tuple[jax.Array, jax.Array]:
        d = jax.vmap(fitted, (0, 0, None))(trained, base, strength)
        scores = base + jnp.einsum("rp,kpc->krc", rows, d)
        return jnp.sum(jax.vmap(total, (0, None, 0))(scores, t, held)), d[-1]

    still = jnp.sum(jax.vmap(total, (0, None, 0))(base, t, held))
    curve, last = jax.vmap(pair)(strengths)
    return jnp.r_[still, curve], last


def covariance(
    own: Own, model: np.ndarray, ridge: np.ndarray, passed: Callable[..., tuple[Any, Any]]
) -> np.ndarray:
    """The covariance of coefficients and intercept, class after class; `passed` turns a model of
    standardised features into one of features as they were passed."""
    p, c = model.shape
    v = own.weighed()

    def information(part: np.ndarray) -> np.ndarray:
        rows = jnp.asarray(own.rows[part])
        t = jnp.asarray(own.targets[part])
        if own.loss is losses.cox_loss:
            of = lambda w: losses.cox_loss(rows @ w.reshape(p, c), t, jnp.asarray(v[part]))
            return np.repeat(np.asarray(jax.hessian(of)(model.ravel()))[None], 2, axis=0)
        one = lambda s, t: own.loss(s[None], t[None])[0]
        s = rows @ model
        d = jax.vmap(jax.grad(one))(s, t)
        bent = jax.vmap(jax.hessian(one))(s, t)
        each = (rows[:, :, None] * d[:, None, :] * v[part, None, None]).reshape(len(part), -1)
        hessian = jnp.einsum("r,rp,rq,rab->paqb", v[part], rows, rows, bent)
        return np.stack([np.asarray(hessian).reshape(p * c, p * c), np.asarray(each.T @ each)])

    A, B = own.census.total([information(part) for part in own.census.parts]).astype(float)
    count = own.census.samples if own.weights is None else own.census.weight(own.weights)
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
