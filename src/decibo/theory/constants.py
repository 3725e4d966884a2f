r"""The constants of the paper's assumptions, and what is derived from them.   [paper, section III]

     (1)  kappa   = max(C_fy, L_f1, L_g1, L_g2) / mu_g                                 Corollary 1
     (2)  L_y*    = L_g1/mu_g,     L_y*lam = L_lam/mu_lam
     (3)  L       = (L_f1 + (L_f1 L_g1 + C_fy L_g2)/mu_g + C_fy L_g1 L_g2/mu_g^2) (1 + L_y*)
                                                                                           erratum 6
     (4)  U_lam^2 = L_f1^2 + lam^2 L_g1^2,     L_lam = L_f1 + lam L_g1,     mu_lam = lam mu_g/2
     (5)  w_gamma = mu_g L_g1/(2 (mu_g + L_g1)),     w_beta = mu_lam L_lam/(2 (mu_lam + L_lam))
     (6)  C_in    = 2 C_fy/mu_g,     C_ou = C_in (1 + L_g1/mu_g)(L_f1 + L_g2 C_in/2)
     (7)  u_beta  = lam L_g1 w_beta/U_lam^2                                              erratum 11
     (8)  p_1     = (96/u_beta^2 + 48 L_g1^2/w_gamma^2 + 24) L_g1^2
     (9)  p_2     = (96/u_beta^2 + 24) L_g1^2,     p_3 = (48 L_g1^2/w_gamma^2 + 12) L_g1^2
    (10)  d_1     = 12 U_lam^2 alpha/(w_beta beta),     d_2 = 12 L_g1^2 lam^2 alpha/(w_gamma gamma)
    (11)  d_j     = 4 p_(j-2) alpha lam^2/(1 - rho),  j = 3, 4, 5                        erratum 4
    (12)  b_y^2   = 2 (b_f^2 + lam^2 b_g^2), the heterogeneity of f_y + lam g_y at (x, y*(x))

Minimax, g = -f, so that L_f1 = L_g1 and b_f = b_g:  L = L_f1 (1 + L_y*),  C_in = C_ou = 0, and
since f + lam g = (lam - 1) g, the quantities of y are those of z times lam - 1:         erratum 13

    (13)  U_lam = L_lam = (lam - 1) L_g1,   mu_lam = (lam - 1) mu_g,   w_beta = (lam - 1) w_gamma,
          L_y*lam = L_y*,   b_y = (lam - 1) b_g;   nothing is singular at lam = 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from decibo.errors import InputError
from decibo.validate import at_least, positive


class Weights(NamedTuple):
    """The weights of the five errors in the potential, (10) and (11)."""

    d_1: float
    d_2: float
    d_3: float
    d_4: float
    d_5: float


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the paper assumes of a problem, on the region a run visits; the methods return what
    follows from it.

    mu_g        every g_i is mu_g-strongly convex in y
    L_f1, L_g1  the gradients of f_i and g_i are Lipschitz in (x, y)
    L_g2        the Hessian of g_i is Lipschitz in (x, y)
    C_fy        |f_y| at (x, y*(x)) is at most this
    b_f, b_g    heterogeneity of the outer and inner gradients at (x, y*(x))
    estimated   whether they were estimated rather than known
    minimax     whether g = -f
    """

    mu_g: float
    L_f1: float
    L_g1: float
    L_g2: float
    C_fy: float
    b_f: float
    b_g: float
    estimated: bool = False
    minimax: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[:7]:
            object.__setattr__(
                self, field.name, at_least(field.name, getattr(self, field.name), 0.0)
            )
        positive("mu_g, the strong convexity of the inner objectives,", self.mu_g)
        if self.mu_g > self.L_g1:
            raise InputError(
                "The curvature of g in y is at least mu_g and at most L_g1, so mu_g <= L_g1, "
                f"but mu_g = {self.mu_g:g} and L_g1 = {self.L_g1:g}."
            )
        # Estimates of the same constant from f and from -f may differ by rounding.
        if self.minimax and not math.isclose(self.L_f1, self.L_g1, rel_tol=1e-6):
            raise InputError(
                "The minimax case is g = -f, so the gradients of f and g have the same Lipschitz"
                f" constant, but L_f1 = {self.L_f1:g} and L_g1 = {self.L_g1:g}.",
                f"Pass L_f1 = L_g1 = {max(self.L_f1, self.L_g1):g}, or minimax=False if g is"
                " not -f.",
            )

    @property
    def kappa(self) -> float:
        return max(self.C_fy, self.L_f1, self.L_g1, self.L_g2) / self.mu_g  # (1)

    @property
    def L_ystar(self) -> float:
        return self.L_g1 / self.mu_g  # (2)

    def L_ystar_lam(self, lam: float) -> float:
        return self.L_ystar if self.minimax else self.L_lam(lam) / self.mu_lam(lam)  # (2), (13)

    @property
    def L(self) -> float:
        """The Lipschitz constant (3) of grad Phi; L_f1 (1 + L_y*) if g = -f."""
        if self.minimax:
            return self.L_f1 * (1 + self.L_ystar)
        by_gradients = (self.L_f1 * self.L_g1 + self.C_fy * self.L_g2) / self.mu_g
        by_hessian = self.C_fy * self.L_g1 * self.L_g2 / self.mu_g**2
        return (self.L_f1 + by_gradients + by_hessian) * (1 + self.L_ystar)  # (3)

    def U_lam(self, lam: float) -> float:
        """How fast the directions change with y."""
        # (4), (13)
        return abs(lam - 1) * self.L_g1 if self.minimax else math.hypot(self.L_f1, lam * self.L_g1)

    def L_lam(self, lam: float) -> float:
        """The smoothness of f + lam g."""
        return (lam - 1) * self.L_g1 if self.minimax else self.L_f1 + lam * self.L_g1  # (4), (13)

    def mu_lam(self, lam: float) -> float:
        """The strong convexity of f + lam g in y."""
        # If g = -f it is (lam - 1) g: lam/2 mu_g, as printed, would be too much below lam = 2.
        return (lam - 1 if self.minimax else lam / 2) * self.mu_g  # (4), (13)

    @property
    def w_gamma(self) -> float:
        """The contraction of z."""
        return self.mu_g * self.L_g1 / (2 * (self.mu_g + self.L_g1))  # (5)

    def w_beta(self, lam: float) -> float:
        """The contraction of y."""
        if self.minimax:
            return (lam - 1) * self.w_gamma  # (13)
        mu = self.mu_lam(lam)
        L = self.L_lam(lam)
        return mu * L / (2 * (mu + L))  # (5)

    def U_over_w(self, lam: float) -> float:
        """How much an error of the directions moves y; if g = -f also defined at lam = 1."""
        # (13)
        return self.L_g1 / self.w_gamma if self.minimax else self.U_lam(lam) / self.w_beta(lam)

    def u_beta(self, lam: float) -> float:
        """A number for which D_1 and D_2 of the proof are below p_1 lam^2 and p_2 lam^2."""
        moved = self.U_lam(lam) * self.U_over_w(lam)
        return lam * self.L_g1 / moved if moved > 0 else math.inf  # (7)

    def b_y2(self, lam: float) -> float:
        """The heterogeneity of the direction of y, squared."""
        if self.minimax:
            return ((lam - 1) * self.b_g) ** 2  # (13)
        return 2 * (self.b_f**2 + (lam * self.b_g) ** 2)  # (12)

    @property
    def C_in(self) -> float:
        """|y*(x) - y*(x; lam)| <= C_in/lam."""
        return 0.0 if self.minimax else 2 * self.C_fy / self.mu_g  # (6)

    @property
    def C_ou(self) -> float:
        """|grad Phi - grad p*| <= C_ou/lam."""
        return self.C_in * (1 + self.L_ystar) * (self.L_f1 + self.L_g2 * self.C_in / 2)  # (6)

    def p_1(self, lam: float) -> float:
        """The weight of the consensus error of x."""
        return self.p_2(lam) + 48 * self.L_g1**4 / self.w_gamma**2  # (8)

    def p_2(self, lam: float) -> float:
        """The weight of the consensus error of y."""
        return (96 / self.u_beta(lam) ** 2 + 24) * self.L_g1**2  # (9)

    @property
    def p_3(self) -> float:
        """The weight of the consensus error of z."""
        return (48 * (self.L_g1 / self.w_gamma) ** 2 + 12) * self.L_g1**2  # (9)

    def d(self, rho: float, *, alpha: float, beta: float, gamma: float, lam: float) -> Weights:
        """d_1 to d_5, the weights (10) and (11) of the potential."""
        mixed = 4 * alpha * lam**2 / (1 - network_rho(rho))
        d_1 = 12 * self.U_lam(lam) * self.U_over_w(lam) * alpha / beta  # (10)
        d_2 = 12 * self.L_g1**2 * lam**2 * alpha / (self.w_gamma * gamma)  # (10)
        # (11)
        return Weights(d_1, d_2, self.p_1(lam) * mixed, self.p_2(lam) * mixed, self.p_3 * mixed)


def network_rho(rho: float) -> float:
    """rho, if it is that of a connected network."""
    if isinstance(rho, bool) or not 0 <= rho < 1:
        raise InputError(
            "rho = ||W - 11'/m||^2 of a connected network is at least 0 and below 1, but it is"
            f" {rho!r}.",
            "Pass network.rho; it is the squared norm, not the gap 1 - rho.",
        )
    return float(rho)
