r"""A model of each silo's own, beside that of all, by one sum over silos.

Silo i keeps the model w of all and moves it by d_i, fitted to its own samples:

    (1)  d_i(a, b) = argmin  sum over its samples of l + a |d_coef|^2 + b |d_intercept|^2

Two strengths, the same for all silos, since base rates differ between owners far more than what a
feature does. Every silo computes, for each pair of a grid, the loss of samples that neither d_i nor
w has seen: w is that of the K models that left them out. The sums over all silos of these numbers,
one exchange, choose the pair, with a prior:

    (2)  min over (a, b)  sum_i out-of-fold loss_i + (ln a - 5)^2 / 8 + (ln b - 1/2)^2 / 4.5

d = 0 is one of the choices. The model of a silo never leaves it.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from decibo.sklearn import losses
from decibo.sklearn.silos import FitData

GRID = np.array(list(product(range(1, 9), (-2.5, -1.0, 0.5, 2.0, 3.5, 5.0))))  # ln a, ln b
STEPS = 500  # of accelerated gradients for each d, at most


def personal(data: FitData, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both strengths, infinite if no silo gains by a model of its own, and the models of this
    process's silos; `models` are those that leave a part out, and that of all."""
    k = len(models) - 1
    strengths = np.exp(GRID)
    prior = (GRID[:, 0] - 5) ** 2 / 8 + (GRID[:, 1] - 0.5) ** 2 / 4.5
    curves = []
    moves = []
    for part in data.census.parts:
        fill = data.census.size - len(part)
        padded = lambda a, fill=fill: np.pad(a, [(0, fill)] + [(0, 0)] * (a.ndim - 1))
        rows = padded(data.rows[part])
        t = padded(data.targets[part])
        out = data.fold[part] == np.arange(k + 1)[:, None]
        v = data.weighed()[part]
        pad = ((0, 0), (0, fill))
        curve, last = _moved(
            data.loss, rows, t, np.pad(v * ~out, pad), np.pad(v * out, pad), models, strengths
        )
        curves.append(np.asarray(curve, float))
        moves.append(np.asarray(last, float))
    loss = data.census.total(curves) + np.r_[0.0, prior]
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

        u = jnp.zeros((rows.shape[1], at.shape[1]), at.dtype)
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
