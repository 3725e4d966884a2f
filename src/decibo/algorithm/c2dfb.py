r"""C2DFB: the penalty method with inner loops that send compressed residuals only.

    F_y = f_y(x, y) + lam g_y(x, y),   F_z = g_y(x, z),   u = f_x(x, y) + lam (g_x(x, y) - g_x(x, z))

    (1)  x+ = x + c (W x - x) - alpha t
    (2)  s  <- s + F(x+, d) - F(x, d)                                s absorbs the jump, for d = y and d = z
    K times, for d = y with h = beta and for d = z with h = gamma:
    (3)  d' = d + c (W dhat - dhat) - h s
    (4)  s' = s + c (W shat - shat) + F(x+, d') - F(x+, d)
    (5)  dhat' = dhat + Q(d' - dhat),   shat' = shat + Q(s' - shat)
    (6)  t+ = t + c (W t - t) + u+ - u

Q keeps the largest entries. dhat is what the neighbours know of d: they add up the residuals Q(...) they get, so that
only these are sent. All hats start at 0, s and t at the agent's own F and u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, method
from decibo.algorithm.schedules import Rate, Schedule, schedule
from decibo.errors import InputError
from decibo.problem.oracle import Oracle
from decibo.pytree import Vector
from decibo.validate import integer


class Pair(NamedTuple):
    """One entry for y, which minimises f + lam g, and one for z, which minimises g."""

    y: Vector
    z: Vector


class Inner(NamedTuple):
    """The inner loops' memory; W dhat is kept up to date instead of being asked for."""

    d: Pair
    s: Pair  # trackers of F
    d_hat: Pair
    s_hat: Pair
    w_d_hat: Pair
    w_s_hat: Pair
    F: Pair
    u: Vector  # of the last point, since it comes with F


class State(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    t: Vector
    inner: Inner


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """Step sizes; the length of the loops and the share of entries to send are part of the program."""

    alpha: Schedule
    beta: Schedule | None
    gamma: Schedule
    lam: Schedule
    c: Schedule
    K: int = field(metadata={"static": True})
    keep: float = field(metadata={"static": True})


@method
def c2dfb(
    *,
    alpha: Rate,
    beta: Rate | None = None,
    gamma: Rate,
    lam: Rate,
    c: Rate = 0.5,
    K: int = 10,
    keep: float = 0.5,
) -> Algorithm:
    """C2DFB (Wen et al. 2024), with full gradients; A, run. For networks that do not change.

    alpha, beta, gamma are the steps of x, y and z (beta = gamma/lam unless given), c the weight of the neighbours,
    K the length of the inner loops, keep the share of the entries of a residual that is sent; the harder the
    compression, the smaller c must be.
    Costs K + 1 gradients of f and 2K + 2 of g; sends 2n numbers in one message and, in K messages, 4 residuals of
    ceil(keep r) values with their places. Lands at the bias O(1/lam) of the penalty, compressed or not:
    |grad Phi| 4.5e-2, 4.9e-3, 5.0e-4 at lam = 10, 100, 1000 (heterogeneous quadratic, ring of 10).
    """
    if not (isinstance(keep, int | float) and 0 < keep <= 1):
        raise InputError(f"keep = {keep!r}", "it must be a share in (0, 1]", "Give keep=0.5 to send half the entries.")
    settings = Settings(
        schedule("alpha", alpha),
        None if beta is None else schedule("beta", beta),
        schedule("gamma", gamma),
        schedule("lam", lam),
        schedule("c", c),
        integer("K", K),
        float(keep),
    )
    return Algorithm(Partial(_init, settings), Partial(_step, settings), Partial(_view), fixed_network=True)


def kept(keep: float, size: int) -> int:
    """How many of `size` entries are sent."""
    return min(size, max(1, math.ceil(keep * size)))


def top_k(s: Vector, count: int) -> Vector:
    """Q: the entries of largest size, zeros elsewhere."""
    if count >= s.size:
        return s
    _, places = lax.top_k(jnp.abs(s), count)
    return jnp.zeros_like(s).at[places].set(s[places])


def message_bits(s: Vector, count: int) -> int:
    """What one residual takes: values, and their places unless all are sent."""
    value = s.dtype.itemsize * 8
    return s.size * value if count >= s.size else count * (value + math.ceil(math.log2(s.size)))


def _gradients(lam: Any, oracle: Oracle, x: Vector, d: Pair) -> tuple[Pair, Vector]:
    f_x, f_y = oracle.outer(x, d.y)
    g_x, g_y = oracle.inner(x, d.y)
    h_x, h_y = oracle.inner(x, d.z)
    return Pair(f_y + lam * g_y, h_y), f_x + lam * (g_x - h_x)


def _init(at: Settings, oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    x, d = start["x"], Pair(start["y"], start.get("z", start["y"]))
    F, u = _gradients(jnp.asarray(at.lam(0), x.dtype), oracle, x, d)
    zero = jax.tree.map(jnp.zeros_like, d)
    return State(x, u, Inner(d, F, zero, zero, zero, zero, F, u))


def _step(at: Settings, oracle: Oracle, mix: Any, state: State, k: Any, key: Any) -> State:
    old = state.inner
    alpha, gamma, lam, c = (jnp.asarray(rate(k), state.x.dtype) for rate in (at.alpha, at.gamma, at.lam, at.c))
    h = Pair(gamma / lam if at.beta is None else jnp.asarray(at.beta(k), state.x.dtype), gamma)
    count = kept(at.keep, old.d.y.size)
    wx, wt = mix((state.x, state.t))
    x = state.x + c * (wx - state.x) - alpha * state.t  # (1)
    F, u = _gradients(lam, oracle, x, old.d)
    moved = jax.tree.map(lambda s, new, F: s + new - F, old.s, F, old.F)  # (2)

    def once(now: Inner, _: None) -> tuple[Inner, None]:
        d = jax.tree.map(lambda d, w, e, h, s: d + c * (w - e) - h * s, now.d, now.w_d_hat, now.d_hat, h, now.s)  # (3)
        F, u = _gradients(lam, oracle, x, d)
        s = jax.tree.map(
            lambda s, w, e, new, F: s + c * (w - e) + new - F, now.s, now.w_s_hat, now.s_hat, F, now.F
        )  # (4)
        sent = jax.tree.map(lambda a, e: top_k(a - e, count), (d, s), (now.d_hat, now.s_hat))
        d_hat, s_hat = jax.tree.map(jnp.add, (now.d_hat, now.s_hat), sent)  # (5)
        heard = mix(sent, bits=4 * message_bits(d.y, count))
        w_d_hat, w_s_hat = jax.tree.map(jnp.add, (now.w_d_hat, now.w_s_hat), heard)
        return Inner(d, s, d_hat, s_hat, w_d_hat, w_s_hat, F, u), None

    inner, _ = lax.scan(once, old._replace(s=moved, F=F, u=u), length=at.K)
    return State(x, state.t + c * (wt - state.t) + inner.u - old.u, inner)  # (6)


def _view(state: State) -> dict[str, Vector]:
    return {"x": state.x, "y": state.inner.d.y, "z": state.inner.d.z}
