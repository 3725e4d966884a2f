r"""The two levels of a silo estimator: linear models, and one penalty for each feature.

Every silo deals its samples into K parts. K models leave one part out each, and one more, the answer, leaves out none:

    (1)  l(s, t)     = log(1 + e^s) - t s   |   log sum_c e^(s_c) - s_t   |   (s - t)^2 / 2
    (2)  pen_j       = exp(common + own_j)
    (3)  g_i(x, y)   = sum_k [ (m/N_k) sum over silo i's samples outside part k of l
                             + sum_j pen_j |y_kj|^2 + r |b_k|^2 ]
    (4)  f_i(x, y)   = (m/N) sum_k [ sum over silo i's samples in part k of l(model k) ]
                       + (sum_j own_j^2 + (common + 5)^2 / 4) / (2 N)

N counts the samples of all silos and N_k those outside part k, so that the means over the m silos are the pooled losses
however unequal the silos are. The end of (4) expects log-penalties within 1 of each other and within 2 of
-5: it settles what the validation samples leave open, and fades as they become many. The r in (3) keeps the inner
level strongly convex. Runs start at common = -3, where penalties are large, the inner level is fast, and x comes down
from there.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from decibo.measure.measures import Snapshot
from decibo.problem.problem import Oracle

START = -3.0  # of the common log-penalty
INTERCEPT = 1e-4  # r

Tree = dict[str, jax.Array]


def penalties(x: Tree) -> jax.Array:
    """(2)."""
    return jnp.exp(x["common"] + x["own"])


def scores(y: Tree, d: Tree) -> jax.Array:
    """What every model says of every sample: (models, samples, columns)."""
    return jnp.einsum("np,kpc->knc", d["features"], y["coef"]) + y["intercept"][:, None, :]


def log_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """(1) for classes: t is 0 or 1 if there is one column, otherwise one-hot."""
    normaliser = jax.nn.softplus(s[..., 0]) if s.shape[-1] == 1 else jax.nn.logsumexp(s, axis=-1)
    return normaliser - jnp.sum(t * s, axis=-1)


def squared_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """(1) for numbers."""
    return 0.5 * jnp.sum((s - t) ** 2, axis=-1)


def _inner(loss: Callable[..., jax.Array]) -> Callable[[Tree, Tree, Tree], jax.Array]:
    def inner(x: Tree, y: Tree, d: Tree) -> jax.Array:
        fit = jnp.sum(d["training"] * loss(scores(y, d), d["targets"]))
        size = jnp.sum(penalties(x)[:, None] * y["coef"] ** 2) + INTERCEPT * jnp.sum(y["intercept"] ** 2)
        return fit + size  # (3)

    return inner


def _outer(loss: Callable[..., jax.Array]) -> Callable[[Tree, Tree, Tree], jax.Array]:
    def outer(x: Tree, y: Tree, d: Tree) -> jax.Array:
        fit = jnp.sum(d["validation"] * loss(scores(y, d), d["targets"]))
        prior = jnp.sum(x["own"] ** 2) + (x["common"] + 5) ** 2 / 4
        return fit + d["prior"] * prior  # (4)

    return outer


# Made once: compiled programs belong to these functions, and serve every fit of the same shapes.
LOSSES = {"log": (_outer(log_loss), _inner(log_loss)), "squared": (_outer(squared_loss), _inner(squared_loss))}


def residual(s: Snapshot) -> jax.Array:
    """How far the silos are from a fixed point, by first gradients only.

    The largest entry of the mean direction of x, of the mean of g_y at the answer for y*(x), and of the differences
    between the silos' x and answers.
    """
    rows = s.rows
    inner = jax.vmap(lambda d, x, y: Oracle(s.functions, d).inner(x, y)[1])(s.data, rows["x"], rows[s.answer])
    moves = [jnp.max(jnp.abs(mean)) for mean in (s.mean_direction.x, jnp.mean(inner, axis=0))]
    apart = [jnp.max(jnp.abs(row - jnp.mean(row, axis=0))) for row in (rows["x"], rows[s.answer])]
    return jnp.max(jnp.stack([*moves, *apart]))
