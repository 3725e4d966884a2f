r"""The right-hand side of Theorem 1, in its three parts.            [paper, eqs. the1, p-error and b-error]

(1)  mean over k < K of |grad Phi(xbar^k)|^2  <=  initial + penalty + heterogeneity
(2)  initial       = (V^0 - V^K)/(alpha K)                                                     erratum 8
(3)  penalty       = 2 C_ou^2/lam^2 + (864 p_1 alpha^2 + 576 p_2 beta^2) C_in^2 L_g1^2 lam^2/(1-rho)^2
(4)  heterogeneity = (24 p_1 alpha^2 b_f^2 + 24 p_3 gamma^2 b_g^2
                      + 48 p_2 beta^2 (b_f^2 + lam^2 b_g^2)) lam^2/(1-rho)^2
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from decibo.errors import InputError
from decibo.theory.constants import Constants, network_rho
from decibo.validate import positive


@dataclass(frozen=True)
class Bound:
    """The three parts of Theorem 1's bound; floor is what no number of steps removes."""

    initial: float
    penalty: float
    heterogeneity: float

    @property
    def floor(self) -> float:
        """penalty + heterogeneity."""
        return self.penalty + self.heterogeneity

    @property
    def total(self) -> float:
        """All three."""
        return self.initial + self.floor  # (1)


def bound(
    constants: Constants,
    rho: float,
    *,
    alpha: float,
    beta: float,
    gamma: float,
    lam: float,
    fall: float = 0.0,
    K: float = math.inf,
) -> Bound:
    """The bound after K steps in which the potential fell by `fall` = V^0 - V^K; without them, the floor.

    It is proven for step sizes that `theorem1` admits, and is no more than a formula for others.
    """
    for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma), ("lam", lam)):
        positive(name, value)
    if not K > 0 or not math.isfinite(fall):
        raise InputError(f"K must be positive and fall = V^0 - V^K finite, but K = {K!r} and fall = {fall!r}.")
    c = constants
    mixed = lam**2 / (1 - network_rho(rho)) ** 2
    p_1 = c.p_1(lam)
    p_2 = c.p_2(lam)
    initial = fall / (alpha * K)  # (2)
    inner = (864 * p_1 * alpha**2 + 576 * p_2 * beta**2) * c.C_in**2 * c.L_g1**2 * mixed
    penalty = 2 * c.C_ou**2 / lam**2 + inner  # (3)
    outer = 24 * p_1 * alpha**2 * c.b_f**2 + 24 * c.p_3 * gamma**2 * c.b_g**2
    both = 48 * p_2 * beta**2 * (c.b_f**2 + lam**2 * c.b_g**2)
    return Bound(initial, penalty, (outer + both) * mixed)  # (4)
