r"""What linear models across silos minimise: l(s, t), the loss of scores s where the target is t.

    log        log(1 + e^s) - t s, or log sum_c e^(s_c) - s_t of several classes
    squared    (s - t)^2 / 2
    poisson    e^s - t s                           (the mean is e^s)
    gamma      t e^-s + s                          (the mean is e^s)
    huber      squared up to `threshold`, then linear
    quantile   level r + h log(1 + e^(-r/h)), r = t - s: the pinball loss, smoothed within h = 0.05
    cox        sum over samples e with an event of log sum_j e^(s_j) - s_e, j over all samples of
               the SAME silo whose time is not before that of e (Breslow's ties): stratified by silo

s has a last axis of columns, one but for several classes; a loss has a number for each sample.
That of `cox` is no sum over samples: it takes their weights, and returns the weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from decibo.validate import one_of

Loss = Callable[..., jax.Array]
SMOOTH = 0.05  # h


def log_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """For classes: t is 0 or 1 if there is one column, otherwise one-hot."""
    normaliser = jax.nn.softplus(s[..., 0]) if s.shape[-1] == 1 else jax.nn.logsumexp(s, axis=-1)
    return normaliser - jnp.sum(t * s, axis=-1)


def squared_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """For numbers."""
    return 0.5 * jnp.sum((s - t) ** 2, axis=-1)


def poisson_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """For counts."""
    return jnp.sum(jnp.exp(s) - t * s, axis=-1)


def gamma_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """For positive numbers whose deviation grows with their mean."""
    return jnp.sum(t * jnp.exp(-s) + s, axis=-1)


@cache
def huber_loss(threshold: float) -> Loss:
    """For numbers with outliers."""

    def huber(s: jax.Array, t: jax.Array) -> jax.Array:
        far = jnp.abs(t - s)
        inside = jnp.minimum(far, threshold)
        return jnp.sum(inside * (far - 0.5 * inside), axis=-1)

    return huber


@cache
def quantile_loss(level: float) -> Loss:
    """For the number that a share `level` of targets is below."""

    def pinball(s: jax.Array, t: jax.Array) -> jax.Array:
        return jnp.sum(level * (t - s) + SMOOTH * jax.nn.softplus((s - t) / SMOOTH), axis=-1)

    return pinball


def cox_loss(s: jax.Array, t: jax.Array, v: jax.Array) -> jax.Array:
    """For times until an event; t is the time, negative where it is not known to have happened."""
    time = jnp.abs(t[:, 0])
    order = jnp.argsort(-time)  # the last to leave first
    # of those with the same time the last counts all of them
    at_risk = jnp.searchsorted(-time[order], -time[order], side="right") - 1
    s = jnp.where(v > 0, s[..., 0], -1e30)[..., order]
    # cumlogsumexp is an associative scan, which takes 25 times as long to compile
    top = jax.lax.stop_gradient(jnp.max(s, axis=-1, keepdims=True))
    inside = jnp.cumsum(jnp.exp(s - top), axis=-1)[..., at_risk]
    known = top + jnp.log(jnp.maximum(inside, 1e-30))
    happened = v[..., order] * ~jnp.signbit(t[order, 0])
    return jnp.sum(jnp.where(happened > 0, happened * (known - s), 0.0))


def summed(loss: Loss) -> Loss:
    """The weighted sum over the samples of one silo: (scores, targets, weights) -> number."""
    if loss is cox_loss:
        return cox_loss
    return lambda s, t, v: jnp.sum(v * loss(s, t))


def named(loss: str | Loss, level: float = 0.5, threshold: float = 0.5) -> Loss:
    """A loss by its name, or a function as it is."""
    if callable(loss):
        return loss
    known: dict[str, Callable[[], Loss]] = {
        "log": lambda: log_loss,
        "squared": lambda: squared_loss,
        "poisson": lambda: poisson_loss,
        "gamma": lambda: gamma_loss,
        "huber": partial(huber_loss, float(threshold)),
        "quantile": partial(quantile_loss, float(level)),
        "cox": lambda: cox_loss,
    }
    return known[one_of("loss", loss, known)]()


# What the mean of a target is where a score is s, if it is not s.
INVERSE_LINKS = {"poisson": np.exp, "gamma": np.exp, "cox": np.exp}
