r"""C2DFB: the penalty method with inner loops that send compressed residuals only.

    F_y = f_y(x, y) + lam g_y(x, y),   F_z = g_y(x, z),  u = f_x(x, y) + lam (g_x(x, y) - g_x(x, z))

    (1)  x+ = x + c (W x - x) - alpha t
    (2)  s  <- s + F(x+, d) - F(x, d)                        s absorbs the jump, for d = y and d = z
    K times, for d = y with h = beta and for d = z with h = gamma:
    (3)  d' = d + c (W dhat - dhat) - h s
    (4)  s' = s + c (W shat - shat) + F(x+, d') - F(x+, d)
    (5)  dhat' = dhat + Q(d' - dhat),   shat' = shat + Q(s' - shat)
    (6)  t+ = t + c (W t - t) + u+ - u

Q keeps the largest entries. dhat is what the neighbours know of d: they add up the residuals Q(...)
they get, so that only these are sent. All hats start at 0, s and t at the agent's own F and u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import (
    ABSTRACT,
    RUN,
    Algorithm,
    Settings,
    Theory,
    by_name,
    method,
    repeat,
)
from decibo.algorithm.compression import keep_largest
from decibo.algorithm.schedules import Rate, Scalar, Schedule, matched
from decibo.capabilities import BY_DEFAULT, Need
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Vector
from decibo.validate import fraction


class Levels(NamedTuple):
    """One entry for y, which minimises f + lam g, and one for z, which minimises g."""

    y: Vector
    z: Vector


class InnerLoops(NamedTuple):
    """The inner loops' memory; W dhat is kept up to date instead of being requested."""

    d: Levels
    s: Levels  # trackers of F
    d_hat: Levels
    s_hat: Levels
    w_d_hat: Levels
    w_s_hat: Levels
    F: Levels
    u: Vector  # of the last point, since it comes with F


class C2dfbState(NamedTuple):
    """What an agent keeps between two steps."""

    x: Vector
    t: Vector
    inner: InnerLoops


@jax.tree_util.register_static
@dataclass(frozen=True)
class KeepLargest:
    """Q: the entries of largest size, a share `keep` of them; part of the program."""

    keep: float

    def count(self, size: int) -> int:
        """How many of `size` entries are sent."""
        return min(size, max(1, math.ceil(self.keep * size)))

    def __call__(self, s: Vector) -> Vector:
        """The largest entries, zeros elsewhere."""
        count = self.count(s.size)
        return s if count >= s.size else keep_largest(s, count)

    def bits(self, s: Vector) -> int:
        """What one residual takes: values, and their places unless all are sent."""
        value = s.dtype.itemsize * 8
        count = self.count(s.size)
        return s.size * value if count >= s.size else count * (value + math.ceil(math.log2(s.size)))


@method(provenance=f"{ABSTRACT} {RUN}")
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
    """C2DFB (Wen et al. 2024), with full gradients: the penalty method with compressed inner loops.

    alpha, beta, gamma   step sizes of x, y and z; beta = gamma/lam unless given
    lam                  penalty
    c                    weight of the neighbours; the harder the compression, the smaller it must
                         be
    K                    length of the inner loops
    keep                 share of the entries of a residual that is sent

    For networks that do not change.

    Cost: (K + 1) + (2K + 2) gradients; sends 2n numbers in one message and, in K messages, 4
    residuals of ceil(keep r) values with their places.
    Lands: O(1/lam) from the solution, the bias of the penalty, compressed or not: |grad Phi|
    4.5e-2, 4.9e-3, 5.0e-4 at lam = 10, 100, 1000 (heterogeneous quadratic, ring of 10).
    """
    compress = KeepLargest(fraction("keep", keep, zero=False))
    rates = {"alpha": alpha, "beta": matched(beta, gamma, lam), "gamma": gamma, "lam": lam, "c": c}
    step = by_name(_step, rates, K=K, compress=compress)
    return Algorithm(
        Partial(_init, lam),
        step,
        Partial(_view),
        needs=BY_DEFAULT | {Need.FIXED_LINKS},
        theory=Theory("1/lam"),
    )


def _gradients(lam: Scalar, oracle: Oracle, x: Vector, d: Levels) -> tuple[Levels, Vector]:
    f, g, g_z = oracle.outer(x, d.y), oracle.inner(x, d.y), oracle.inner(x, d.z)
    return Levels(f.y + lam * g.y, g_z.y), f.x + lam * (g.x - g_z.x)


def _init(lam: Schedule, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> C2dfbState:
    x = start["x"]
    d = Levels(start["y"], start.get("z", start["y"]))
    F, u = _gradients(jnp.asarray(lam(0), x.dtype), oracle, x, d)
    zero = jax.tree.map(jnp.zeros_like, d)
    return C2dfbState(x, u, InnerLoops(d, F, zero, zero, zero, zero, F, u))


def _step(oracle: Oracle, mix: Mix, state: C2dfbState, p: Settings) -> C2dfbState:
    old = state.inner
    h = Levels(p.beta, p.gamma)
    wx, wt = mix((state.x, state.t))
    x = state.x + p.c * (wx - state.x) - p.alpha * state.t  # (1)
    F, u = _gradients(p.lam, oracle, x, old.d)
    moved = jax.tree.map(lambda s, new, F: s + new - F, old.s, F, old.F)  # (2)

    def once(now: InnerLoops) -> InnerLoops:
        d = jax.tree.map(
            lambda d, w, e, h, s: d + p.c * (w - e) - h * s, now.d, now.w_d_hat, now.d_hat, h, now.s
        )  # (3)
        F, u = _gradients(p.lam, oracle, x, d)
        s = jax.tree.map(
            lambda s, w, e, new, F: s + p.c * (w - e) + new - F,
            now.s,
            now.w_s_hat,
            now.s_hat,
            F,
            now.F,
        )  # (4)
        residuals, treedef = jax.tree.flatten(
            jax.tree.map(jnp.subtract, (d, s), (now.d_hat, now.s_hat))
        )
        # all four together
        sent = jax.tree.unflatten(treedef, list(jax.vmap(p.compress)(jnp.stack(residuals))))
        d_hat, s_hat = jax.tree.map(jnp.add, (now.d_hat, now.s_hat), sent)  # (5)
        received = mix(sent, bits=4 * p.compress.bits(d.y))
        w_d_hat, w_s_hat = jax.tree.map(jnp.add, (now.w_d_hat, now.w_s_hat), received)
        return InnerLoops(d, s, d_hat, s_hat, w_d_hat, w_s_hat, F, u)

    inner = repeat(p.K, once, old._replace(s=moved, F=F, u=u))
    return C2dfbState(x, state.t + p.c * (wt - state.t) + inner.u - old.u, inner)  # (6)


def _view(state: C2dfbState) -> dict[str, Vector]:
    return {"x": state.x, "y": state.inner.d.y, "z": state.inner.d.z}
