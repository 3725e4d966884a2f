r"""Theorem 1: which step sizes are small enough, and the bound that then holds.

Conditions                                         [paper, eqs. stepsize-alpha to stepsize-gamma]

    (1)  lam > 2 L_f1/mu_g;  if g = -f, lam >= 1 is enough
    (2)  gamma < each of  2/(mu_g + L_g1),  (mu_g + L_g1)/(2 mu_g L_g1),  (1-rho)/(8 sqrt p_3),
                          (1-rho) sqrt p_1/(24 L_g1 sqrt p_3),  (1-rho)/(16 L_g1)
    (3)  beta  < each of  1/(lam L_g1),  1/(2 L_lam) + 1/(lam mu_g),  (1-rho)/(10 lam sqrt p_2),
                          (1-rho) sqrt p_1/(48 L_g1 lam sqrt p_2),  (1-rho)/(32 L_g1 lam)
    (4)  alpha < each of  1/(2 L),  w_gamma gamma/(10 L_y* L_g1 lam),
                          w_beta beta/(10 L_y*lam U_lam)  [erratum 12],  (1-rho)/(12 lam sqrt p_1),
                          (1-rho) sqrt p_3/(32 L_g1 lam sqrt p_1),  (1-rho)/(54 L_g1 lam)

If g = -f, the constants of y are those of (13) of `constants.py`, and 1/(2 L_lam) + 1/(lam mu_g)
stands for (mu_lam + L_lam)/(2 mu_lam L_lam).

The conditions are sufficient, far from necessary: the paper's own experiment exceeds (4) twelve
million times.

The bound, in its three parts                              [paper, eqs. the1, p-error and b-error]

    (5)  mean over k < K of |grad Phi(xbar^k)|^2  <=  initial + penalty + heterogeneity
    (6)  initial       = (V^0 - V^K)/(alpha K)                                             erratum 8
    (7)  penalty       = 2 C_ou^2/lam^2
                         + (864 p_1 alpha^2 + 576 p_2 beta^2) C_in^2 L_g1^2 lam^2/(1-rho)^2
    (8)  heterogeneity = (24 p_1 alpha^2 b_f^2 + 24 p_3 gamma^2 b_g^2 + 24 p_2 beta^2 b_y^2)
         lam^2/(1-rho)^2
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from decibo.errors import InputError
from decibo.theory.constants import Constants, network_rho
from decibo.validate import positive

# the inequalities are strict: the largest admissible step is this share of the bound
BELOW = 1 - 1e-9


class Slack(NamedTuple):
    """One inequality `value < bound`; for lam `value > bound`, or >= where equality is enough."""

    step: str
    value: float
    bound: float
    equality: bool = False

    @property
    def holds(self) -> bool:
        if self.equality and self.value == self.bound:
            return True
        return self.value > self.bound if self.step == "lam" else self.value < self.bound

    @property
    def factor(self) -> float:
        """By what factor the value is too large (too small for lam): at most 1 if it holds."""
        return self.bound / self.value if self.step == "lam" else self.value / self.bound


@dataclass(frozen=True)
class Theorem1:
    """The inequalities of Theorem 1 for a problem, a network and lam; `theorem1` creates one."""

    constants: Constants
    rho: float
    lam: float

    @cached_property
    def least_lam(self) -> float:
        """lam must be above this, (1); if g = -f it may also be equal to it."""
        return 1.0 if self.constants.minimax else 2 * self.constants.L_f1 / self.constants.mu_g

    @cached_property
    def gammas(self) -> dict[str, float]:
        """The bounds (2) on gamma, by name."""
        c = self.constants
        gap = 1 - self.rho
        root_1 = math.sqrt(c.p_1(self.lam))
        root_3 = math.sqrt(c.p_3)
        return {
            "2/(mu_g + L_g1)": 2 / (c.mu_g + c.L_g1),
            "(mu_g + L_g1)/(2 mu_g L_g1)": (c.mu_g + c.L_g1) / (2 * c.mu_g * c.L_g1),
            "(1-rho)/(8 sqrt p_3)": gap / (8 * root_3),
            "(1-rho) sqrt p_1/(24 L_g1 sqrt p_3)": gap * root_1 / (24 * c.L_g1 * root_3),
            "(1-rho)/(16 L_g1)": gap / (16 * c.L_g1),
        }

    @cached_property
    def betas(self) -> dict[str, float]:
        """The bounds (3) on beta, by name."""
        c = self.constants
        gap = 1 - self.rho
        lam = self.lam
        root_1 = math.sqrt(c.p_1(lam))
        root_2 = math.sqrt(c.p_2(lam))
        # beta w_beta <= 1/4 below it; if g = -f and lam = 1, y moves nothing and has no limit
        inner = 1 / (2 * c.L_lam(lam)) + 1 / (lam * c.mu_g) if not c.minimax else math.inf
        if c.minimax and lam != 1:
            inner = (c.mu_g + c.L_g1) / (2 * abs(lam - 1) * c.mu_g * c.L_g1)
        return {
            "1/(lam L_g1)": 1 / (lam * c.L_g1),
            "1/(2 L_lam) + 1/(lam mu_g)": inner,
            "(1-rho)/(10 lam sqrt p_2)": gap / (10 * lam * root_2),
            "(1-rho) sqrt p_1/(48 L_g1 lam sqrt p_2)": gap * root_1 / (48 * c.L_g1 * lam * root_2),
            "(1-rho)/(32 L_g1 lam)": gap / (32 * c.L_g1 * lam),
        }

    def alphas(self, beta: float, gamma: float) -> dict[str, float]:
        """The bounds (4) on alpha, by name."""
        c = self.constants
        gap = 1 - self.rho
        lam = self.lam
        root_1 = math.sqrt(c.p_1(lam))
        root_3 = math.sqrt(c.p_3)
        return {
            "1/(2 L)": 1 / (2 * c.L) if c.L > 0 else math.inf,
            "w_gamma gamma/(10 L_y* L_g1 lam)": c.w_gamma * gamma / (10 * c.L_ystar * c.L_g1 * lam),
            "w_beta beta/(10 L_y*lam U_lam)": beta / (10 * c.L_ystar_lam(lam) * c.U_over_w(lam)),
            "(1-rho)/(12 lam sqrt p_1)": gap / (12 * lam * root_1),
            "(1-rho) sqrt p_3/(32 L_g1 lam sqrt p_1)": gap * root_3 / (32 * c.L_g1 * lam * root_1),
            "(1-rho)/(54 L_g1 lam)": gap / (54 * c.L_g1 * lam),
        }

    @property
    def gamma(self) -> float:
        """The largest admissible gamma."""
        return BELOW * min(self.gammas.values())

    @property
    def beta(self) -> float:
        """The largest admissible beta."""
        return BELOW * min(self.betas.values())

    @property
    def alpha(self) -> float:
        """The largest admissible alpha for this beta and this gamma."""
        return BELOW * min(self.alphas(self.beta, self.gamma).values())

    @property
    def binding(self) -> dict[str, str]:
        """Which inequality limits each step."""
        alphas = self.alphas(self.beta, self.gamma)
        bounds = {"alpha": alphas, "beta": self.betas, "gamma": self.gammas}
        least = {step: min(named, key=named.__getitem__) for step, named in bounds.items()}
        return {step: f"{step} < {name}" for step, name in least.items()}

    def slacks(self, alpha: float, beta: float, gamma: float) -> dict[str, Slack]:
        """Every inequality, by name, at these step sizes."""
        minimax = self.constants.minimax
        name = "lam >= 1" if minimax else "lam > 2 L_f1/mu_g"
        slacks = {name: Slack("lam", self.lam, self.least_lam, equality=minimax)}
        steps = {"gamma": gamma, "beta": beta, "alpha": alpha}
        values = {step: positive(step, value) for step, value in steps.items()}
        bounds = {"gamma": self.gammas, "beta": self.betas, "alpha": self.alphas(beta, gamma)}
        for step, named in bounds.items():
            for name, limit in named.items():
                slacks[f"{step} < {name}"] = Slack(step, values[step], limit)
        return slacks

    def admits(self, alpha: float, beta: float, gamma: float) -> bool:
        """Whether all inequalities hold at these step sizes."""
        return all(slack.holds for slack in self.slacks(alpha, beta, gamma).values())


def theorem1(constants: Constants, rho: float, lam: float) -> Theorem1:
    """The step sizes that Theorem 1 admits: the largest ones, what limits them, and the slack of
    any others."""
    theorem = Theorem1(constants, network_rho(rho), positive("lam", lam))
    if constants.minimax and lam < 1:
        # (1)
        raise InputError(
            f"The minimax case needs lam >= 1, but lam = {lam:g}.", "Pass lam=2.0, for example."
        )
    if not constants.minimax and lam <= theorem.least_lam:
        raise InputError(
            f"Theorem 1 needs lam > 2 L_f1/mu_g = {theorem.least_lam:.4g}, so that f + lam g is"
            f" strongly convex in y, but lam = {lam:g}.",
            f"Pass lam={1.1 * theorem.least_lam:.3g} or more.",
        )  # (1)
    return theorem


@dataclass(frozen=True)
class Bound:
    """The three parts of Theorem 1's bound; floor is what no number of steps removes."""

    initial: float
    penalty: float
    heterogeneity: float

    @property
    def floor(self) -> float:
        return self.penalty + self.heterogeneity

    @property
    def total(self) -> float:
        return self.initial + self.floor  # (5)


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
    """The bound after K steps in which the potential fell by `fall` = V^0 - V^K; without them, the
    floor.

    It is proven for step sizes that `theorem1` admits, and is no more than a formula for others.
    """
    for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma), ("lam", lam)):
        positive(name, value)
    if not K > 0 or not math.isfinite(fall):
        raise InputError(
            f"K must be positive and fall = V^0 - V^K finite, but K = {K!r} and fall = {fall!r}."
        )
    c = constants
    mixed = lam**2 / (1 - network_rho(rho)) ** 2
    p_1 = c.p_1(lam)
    p_2 = c.p_2(lam)
    initial = fall / (alpha * K)  # (6)
    inner = (864 * p_1 * alpha**2 + 576 * p_2 * beta**2) * c.C_in**2 * c.L_g1**2 * mixed
    penalty = 2 * c.C_ou**2 / lam**2 + inner  # (7)
    outer = 24 * p_1 * alpha**2 * c.b_f**2 + 24 * c.p_3 * gamma**2 * c.b_g**2
    return Bound(initial, penalty, (outer + 24 * p_2 * beta**2 * c.b_y2(lam)) * mixed)  # (8)
