r"""An estimate of |grad Phi|^2 that costs a few gradients: the size of the mean direction of x.

(1)  penalty      mean_i f_x(x_i, y_i) + lam (g_x(x_i, y_i) - g_x(x_i, z_i))
(2)  symmetric    mean_i f_x(x_i, c_i) + lam/2 (g_x(x_i, y_i) - g_x(x_i, z_i))
(3)  implicit     mean_i f_x(x_i, y_i) - J_i v_i

It is as good as the inner variables are near their solutions, and no process needs all data for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from decibo.algorithm.algorithm import Algorithm
from decibo.measure.measures import Snapshot
from decibo.parallel.collectives import average
from decibo.problem.oracle import Oracle

PENALTY = ("ahead", "ahead_exact", "dsgda_gt", "fab")
IMPLICIT = ("sldbo", "d_soba", "sparkle_gt", "sparkle_extra", "sparkle_ed")


def estimate(method: Algorithm) -> Estimate | None:
    """The measure for this method, if its variables tell."""
    lam = method.settings.get("lam")
    if method.name in PENALTY and isinstance(lam, int | float):
        return Estimate(float(lam))
    return Estimate(None) if method.name in IMPLICIT else None


@dataclass(frozen=True)
class Estimate:
    """|mean direction of x|^2."""

    lam: float | None

    def __call__(self, s: Snapshot) -> jax.Array:
        one = lambda d, v: _direction(Oracle(s.functions, d), v, self.lam)
        return jnp.sum(average(jax.vmap(one)(s.here, s.local)) ** 2)


def _direction(oracle: Oracle, v: dict[str, Any], lam: float | None) -> jax.Array:
    if lam is None:
        return oracle.outer(v["x"], v["y"])[0] - oracle.jacobian(v["x"], v["y"], v["v"])  # (3)
    apart = oracle.inner(v["x"], v["y"])[0] - oracle.inner(v["x"], v["z"])[0]
    if "c" in v:
        return oracle.outer(v["x"], v["c"])[0] + lam / 2 * apart  # (2)
    return oracle.outer(v["x"], v["y"])[0] + lam * apart  # (1)
