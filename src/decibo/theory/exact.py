r"""Theorems A and B: step sizes and a bound for ahead_exact   [studies/proofs/theorem.md]

Constants, on the region of a run, for every agent i; w* solves mean(H) w* = -mean(f_y) at (x,
y*(x))

    (1)  mu_g I <= H_i <= L_yy I,     |J_i| <= L_xy,     |w*| <= V
    (2)  M_y, M_x    Lipschitz constants in (x, y) of f_i,y + H_i w and f_i,x + J_i w, |w| <= V
    (3)  L_g2, L_g3  Lipschitz constants in y of H_i and J_i, and of their derivatives in y; for the
                     floor only
    (4)  L_y* = L_xy/mu_g,   s = sqrt(1 + L_y*^2),   L_w* = M_y s/mu_g,                      Lemma 0
         L_D = L_Phi = M_x s + L_xy L_w*
    (5)  L_yy = L_xy = L_g1,   V = C_fy/mu_g,   M_x = M_y = L_f1 + L_g2 V             of the paper's

Network; one agent has sigma = chi = 0

    (6)  sigma^2 = (1 + lambda_2(W))/2,  or (1 + sqrt rho)/2 if only rho is known
         chi     = sigma/sqrt(1 - sigma^2)

Steps

    (7)  q        = max(|1 - gamma mu_g|, |1 - gamma L_yy|, sigma),     tau = gamma mu_g/(1 - q)
    (8)  Lambda_c = |(L_y*, chi gamma (L_xy + L_yy L_y*))|
         Lambda_w = |(L_w*, chi gamma (M_y s + L_yy L_w*))|
    (9)  L_G      = M_x + tau L_xy M_y/mu_g,     N = L_G (1 + tau L_xy/mu_g)
    (10) G1       = (L_G Lambda_c + L_xy Lambda_w)/(1 - q),     G2 = N chi L_D/(1 - sigma)
    (11) gamma L_yy < 2,   alpha (L_Phi + 2 G1) + 2 alpha^2 G2 <= 1,   4 sigma alpha N <= 1 - sigma
    (12) the rule: gamma = min(1/L_yy, (1 - sigma)/mu_g), so that tau = 1,
                   alpha = min(1/(L_Phi + 2 G1 + sqrt(2 G2)), (1 - sigma)/(4 sigma N)), which
                   satisfies (11)

Bound; R bounds (mean_i |w_i|^4)^(1/4) along the run

    (13) nu   = alpha N sigma/(1 - sigma),     xi = (alpha G1 + alpha^2 G2)/(1 - nu)
    (14) zeta = (1 - alpha L_Phi)/((1 - alpha L_Phi - xi^2) (1 - nu)^2);   by (11) at most 16/5, for
         one agent 4/3
    (15) eps_c = L_g2 R^2/(2 lam^2),   eps_w = L_g3 V R^2/(6 lam^2), without L_g3 L_g2 V R/(2 lam)
    (16) F    = (tau/mu_g)(L_G eps_c + L_xy eps_w) + eps_w
    (17) I_0  = N e_x/sqrt(1 - sigma^2) + (L_G e_c + L_xy e_w)/sqrt(1 - q^2),   errors at the start
    (18) mean over k < K of |grad Phi(xbar_k)|^2
         <=  2 (Phi(xbar_0) - inf Phi)/(alpha K) + zeta (I_0/sqrt K + F)^2
    (19) R    = tau m^(1/4) C_f/mu_g   if y_0 = z_0 and |f_i,y(x_i, c_i)| <= C_f on the run  Lemma 4

The theorem holds where nu < 1 and xi^2 < 1 - alpha L_Phi. (11) is sufficient for that; no condition
contains lam.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.network.network import Network
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.problem.reference import reference
from decibo.programs import jitted
from decibo.pytree import Tree, Vector
from decibo.theory.constants import Constants, network_rho
from decibo.theory.theorem1 import BELOW, Slack
from decibo.validate import at_least, only_known, positive

REQUIRED = ("mu_g", "L_yy", "L_xy", "M_y", "M_x", "V")
DERIVED = ("L_ystar", "L_wstar", "L_Phi", "L_D")
OPTIONAL = ("L_g2", "L_g3", "C_f")


@dataclass(frozen=True, kw_only=True)
class FineConstants:
    """The constants (1) to (4). Use `fine_constants` to create them.

    L_g3   None if unknown: the floor F is then O(1/lam), not O(1/lam^2)
    C_f    bound of |f_i,y(x_i, c_i)| along a run, None if unknown; only for the R of (19)
    """

    mu_g: float
    L_yy: float
    L_xy: float
    M_y: float
    M_x: float
    V: float
    L_ystar: float
    L_wstar: float
    L_Phi: float
    L_D: float
    L_g2: float = 0.0
    L_g3: float | None = None
    C_f: float | None = None

    @property
    def s(self) -> float:
        """sqrt(1 + L_y*^2): how far (x, y*(x)) moves with x."""
        return math.hypot(1, self.L_ystar)  # (4)


def fine_constants(constants: Constants | None = None, **finer: float) -> FineConstants:
    """The constants of Theorems A and B: from the paper's by (5) and Lemma 0, or finer ones.

    finer   mu_g, L_yy, L_xy, M_y, M_x, V, L_g2, L_g3, C_f, L_ystar, L_wstar, L_Phi or L_D; without
            `constants` the first six are needed
    """
    only_known("fine_constants", "constant", finer, (*REQUIRED, *OPTIONAL, *DERIVED))
    given: dict[str, float] = {}
    if constants is not None:
        V = constants.C_fy / constants.mu_g
        M = constants.L_f1 + constants.L_g2 * V
        given = {"mu_g": constants.mu_g, "L_yy": constants.L_g1, "L_xy": constants.L_g1}
        given |= {"M_y": M, "M_x": M, "V": V, "L_g2": constants.L_g2}  # (5)
    given |= {
        name: at_least(name, value, 0.0) for name, value in finer.items() if value is not None
    }
    missing = [name for name in REQUIRED if name not in given]
    if missing:
        raise InputError(
            f"Without the constants of the paper, {', '.join(missing)} must be given.",
            "Pass decibo.theory.constants(problem) first, or these values.",
        )
    mu_g = positive("mu_g", given["mu_g"])
    if mu_g > given["L_yy"]:
        raise InputError(
            f"mu_g must be at most L_yy, but mu_g = {mu_g:g} and L_yy = {given['L_yy']:g}."
        )
    L_ystar = given.get("L_ystar", given["L_xy"] / mu_g)  # (4)
    s = math.hypot(1, L_ystar)
    L_wstar = given.get("L_wstar", given["M_y"] * s / mu_g)
    L_D = given.get("L_D", given["M_x"] * s + given["L_xy"] * L_wstar)
    derived = {"L_ystar": L_ystar, "L_wstar": L_wstar, "L_D": L_D, "L_Phi": given.get("L_Phi", L_D)}
    return FineConstants(**(given | derived))


@dataclass(frozen=True)
class ExactBound:
    """The parts of (18); `floor` is what no number of steps removes."""

    start: float  # 2 (Phi(xbar_0) - inf Phi)/(alpha K)
    I_0: float  # the initial errors of c, w and x, (17)
    F: float  # the error of the penalty, (16)
    zeta: float
    K: float

    @property
    def initial(self) -> float:
        """What the initial errors add: zeta ((I_0/sqrt K + F)^2 - F^2)."""
        # Multiplied out, since the two squares agree in most digits for a large K.
        error = self.I_0 / math.sqrt(self.K)
        return self.zeta * error * (error + 2 * self.F) if math.isfinite(self.zeta) else math.inf

    @property
    def floor(self) -> float:
        return self.zeta * self.F**2 if math.isfinite(self.zeta) else math.inf

    @property
    def total(self) -> float:
        """The right-hand side of (18)."""
        return self.start + self.initial + self.floor


@dataclass(frozen=True)
class ExactSteps:
    """Theorem B for a problem, a network and two step sizes; `ahead_exact_steps` creates one."""

    constants: FineConstants
    sigma: float
    alpha: float
    gamma: float
    agents: int | None = None

    @property
    def chi(self) -> float:
        return self.sigma / math.sqrt(1 - self.sigma**2)  # (6)

    @property
    def q(self) -> float:
        """What one step leaves of the errors of c and w."""
        c = self.constants
        return max(abs(1 - self.gamma * c.mu_g), abs(1 - self.gamma * c.L_yy), self.sigma)  # (7)

    @property
    def tau(self) -> float:
        """At least 1: how much longer errors live than in gradient descent on g."""
        return self.gamma * self.constants.mu_g / (1 - self.q)  # (7)

    @property
    def Lambda_c(self) -> float:
        """How fast the reference of c moves with x."""
        c = self.constants
        memory = self.chi * self.gamma
        return math.hypot(c.L_ystar, memory * (c.L_xy + c.L_yy * c.L_ystar))  # (8)

    @property
    def Lambda_w(self) -> float:
        """How fast the reference of w moves with x."""
        c = self.constants
        memory = self.chi * self.gamma
        return math.hypot(c.L_wstar, memory * (c.M_y * c.s + c.L_yy * c.L_wstar))  # (8)

    @property
    def L_G(self) -> float:
        """What an error of c does to the direction of x, by way of w too."""
        c = self.constants
        return c.M_x + self.tau * c.L_xy * c.M_y / c.mu_g  # (9)

    @property
    def N(self) -> float:
        """What a disagreement in x does to the direction of x, by way of c and w too."""
        return self.L_G * (1 + self.tau * self.constants.L_xy / self.constants.mu_g)  # (9)

    @property
    def G1(self) -> float:
        """How much the motion of x disturbs its own direction."""
        moved = self.L_G * self.Lambda_c + self.constants.L_xy * self.Lambda_w
        return moved / (1 - self.q)  # (10)

    @property
    def G2(self) -> float:
        """The same by way of disagreement."""
        return self.N * self.chi * self.constants.L_D / (1 - self.sigma)  # (10)

    @property
    def nu(self) -> float:
        return self.alpha * self.N * self.sigma / (1 - self.sigma)  # (13)

    @property
    def xi(self) -> float:
        moved = self.alpha * self.G1 + self.alpha**2 * self.G2
        return moved / (1 - self.nu) if self.nu < 1 else math.inf  # (13)

    @property
    def zeta(self) -> float:
        """The factor of the second term of the bound; infinite where the theorem does not hold."""
        room = 1 - self.alpha * self.constants.L_Phi
        if not self.gamma * self.constants.L_yy < 2 or not self.xi**2 < room:
            return math.inf
        return room / ((room - self.xi**2) * (1 - self.nu) ** 2)  # (14)

    @property
    def holds(self) -> bool:
        """Whether Theorem B covers these steps; the rows of `slacks` are sufficient for that."""
        return math.isfinite(self.zeta)

    @property
    def gammas(self) -> dict[str, float]:
        """The two numbers of which the rule (12) takes the smaller one for gamma."""
        c = self.constants
        gap = 1 - self.sigma
        return {"gamma <= 1/L_yy": 1 / c.L_yy, "gamma <= (1 - sigma)/mu_g": gap / c.mu_g}

    @property
    def alphas(self) -> dict[str, float]:
        """The two of which it takes the smaller one for alpha, with this gamma."""
        motion = self.constants.L_Phi + 2 * self.G1 + math.sqrt(2 * self.G2)
        mixing = 4 * self.sigma * self.N
        gap = 1 - self.sigma
        return {
            "alpha <= 1/(L_Phi + 2 G1 + sqrt(2 G2))": 1 / motion if motion > 0 else math.inf,
            "alpha <= (1 - sigma)/(4 sigma N)": gap / mixing if mixing > 0 else math.inf,
        }

    @property
    def binding(self) -> dict[str, str]:
        """Which bound limits each step."""
        bounds = {"gamma": self.gammas, "alpha": self.alphas}
        return {step: min(named, key=named.__getitem__) for step, named in bounds.items()}

    @property
    def slacks(self) -> dict[str, Slack]:
        """The rows of (11); those of alpha have a meaning only if the one of gamma holds."""
        alpha = self.alpha
        sigma = self.sigma
        rows = {"gamma L_yy < 2": Slack("gamma", self.gamma * self.constants.L_yy, 2.0)}
        if rows["gamma L_yy < 2"].holds:
            moved = alpha * (self.constants.L_Phi + 2 * self.G1) + 2 * alpha**2 * self.G2
            rows["alpha (L_Phi + 2 G1) + 2 alpha^2 G2 <= 1"] = Slack("alpha", moved, 1.0)
            mixed = Slack("alpha", 4 * sigma * alpha * self.N, 1 - sigma)
            rows["4 sigma alpha N <= 1 - sigma"] = mixed
        return rows

    @property
    def largest_alpha(self) -> float:
        """The largest alpha for which Theorem B holds with this gamma; zeta is infinite there."""
        # `holds` is monotone in alpha: nu and xi grow with it, and its room shrinks.
        low = 0.0
        high = 1.0
        while replace(self, alpha=high).holds and high < 1e300:
            high *= 2
        # high is 1, or at most twice the limit, so that this ends at 1e-60 or at rounding.
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if replace(self, alpha=middle).holds else (low, middle)
        return low

    def R(self, C_f: float | None = None) -> float:
        """A bound of (mean_i |w_i|^4)^(1/4) for runs that start with y = z, (19)."""
        C_f = self.constants.C_f if C_f is None else at_least("C_f", C_f, 0.0)
        if C_f is None or self.agents is None:
            raise InputError(
                "R = tau m^(1/4) C_f/mu_g needs C_f, a bound of |f_i,y| along the run, and the"
                " number of agents.",
                "Pass C_f to fine_constants and a network to ahead_exact_steps, or pass R to"
                " bound.",
            )
        return self.tau * self.agents**0.25 * C_f / self.constants.mu_g  # (19)

    def F(self, lam: float, R: float | None = None) -> float:
        """The error that the penalty leaves, (16): zero if g is quadratic in y for every x."""
        positive("lam", lam)
        c = self.constants
        # Before R, of which nothing has to be known if g is quadratic in y.
        if c.L_g2 == 0:
            return 0.0
        R = self.R() if R is None else at_least("R", R, 0.0)
        eps_c = c.L_g2 * R**2 / (2 * lam**2)
        eps_w = c.L_g2 * c.V * R / (2 * lam)  # (15)
        if c.L_g3 is not None:
            eps_w = c.L_g3 * c.V * R**2 / (6 * lam**2)
        return self.tau / c.mu_g * (self.L_G * eps_c + c.L_xy * eps_w) + eps_w  # (16)

    def I_0(self, e_c: float, e_w: float, e_x: float = 0.0) -> float:
        """The initial errors, from `start_errors`, as the direction of x sees them, (17)."""
        inner = (self.L_G * e_c + self.constants.L_xy * e_w) / math.sqrt(1 - self.q**2)
        return self.N * e_x / math.sqrt(1 - self.sigma**2) + inner  # (17)

    def bound(
        self,
        K: float,
        lam: float,
        *,
        fall: float = 0.0,
        e_c: float = 0.0,
        e_w: float = 0.0,
        e_x: float = 0.0,
        R: float | None = None,
    ) -> ExactBound:
        """The bound (18) after K steps, term by term; K = inf leaves the floor.

        fall            Phi(xbar_0) - inf Phi
        e_c, e_w, e_x   the errors of c, w and x at the start, as `start_errors` returns them
        R               a bound of (mean_i |w_i|^4)^(1/4) along the run, by default that of Lemma 4

        It is proven where `holds` is True; elsewhere zeta, and with it the bound, is infinite.
        """
        if not K > 0:
            raise InputError(f"K must be a positive number, but it is {K!r}.")
        start = 2 * at_least("fall", fall, 0.0) / (self.alpha * K)
        return ExactBound(start, self.I_0(e_c, e_w, e_x), self.F(lam, R), self.zeta, K)  # (18)


def ahead_exact_steps(
    constants: Constants | FineConstants,
    network: Network | float | None,
    *,
    alpha: float | None = None,
    gamma: float | None = None,
) -> ExactSteps:
    """Steps for `ahead_exact` with which Theorem B holds for every lam, or what it says of yours.

    network        a network, the rho of one if that is all you know, or None for one agent
    alpha, gamma   by default those of the rule (12), alpha for this gamma
    """
    fine = constants if isinstance(constants, FineConstants) else fine_constants(constants)
    agents = network.agents if isinstance(network, Network) else 1 if network is None else None
    rule = ExactSteps(fine, sigma_of(network), 1.0, 1.0, agents)
    least = min(rule.gammas.values()) if gamma is None else positive("gamma", gamma)
    rule = replace(rule, gamma=least)  # (12)
    if gamma is not None and not gamma * fine.L_yy < 2:
        return replace(rule, alpha=math.nan if alpha is None else positive("alpha", alpha))
    largest = BELOW * min(rule.alphas.values())
    if alpha is None and not math.isfinite(largest):
        raise InputError(
            "These constants put no limit on alpha: grad Phi is constant.", "Pass alpha."
        )
    return replace(rule, alpha=largest if alpha is None else positive("alpha", alpha))


def sigma_of(network: Network | float | None) -> float:
    """sigma: from the second eigenvalue of W, or from rho if that is all there is, (6)."""
    if network is None:
        return 0.0
    if not isinstance(network, Network):
        # rho is the square of the largest |eigenvalue|, which the second one may be.
        return math.sqrt((1 + math.sqrt(network_rho(network))) / 2)
    return 0.0 if network.agents == 1 else math.sqrt((1 + network.spectrum.high) / 2)


class StartErrors(NamedTuple):
    """The errors of (17) at x0 and y = z = y0 with memories of zero, and phi = Phi(x0)."""

    e_c: float
    e_w: float
    e_x: float
    phi: float


def start_errors(problem: Problem, network: Network | None, steps: ExactSteps) -> StartErrors:
    """The errors at the start of a run, for `steps.bound`; None as the network means one agent."""
    agents = 1 if network is None else network.agents
    exact = reference(problem, agents=agents if problem.agents is None else None)
    x = exact.flat(problem.x0)
    y0 = problem.y_layout.ravel(problem.y0)
    answer = exact.at(problem.x0)
    y = problem.y_layout.ravel(answer.y)
    w, g_y, rest_w, D = map(np.asarray, _at_rest(problem.functions, exact.data, x, y))
    # C'(U^+ - I) C for memories that sum to zero: on these the pseudo-inverse of U is the inverse
    # of U + 11'/m.
    W = np.eye(1) if network is None else network.W
    m = len(g_y)
    U = (np.eye(m) - W) / 2 + 1 / m
    of_memory = lambda C: float(np.sum(C * (np.linalg.solve(U, C) - C))) / m
    # With memories of zero at the start, each is as far from its reference as that one's memory
    # is from zero. Rounding may leave less than zero where all agents are alike.
    far = float(np.sum((np.asarray(y0) - y) ** 2))
    e_c = math.sqrt(far + steps.gamma**2 * of_memory(g_y - g_y.mean(0)))
    e_w = math.sqrt(float(np.sum(w**2)) + steps.gamma**2 * of_memory(rest_w - rest_w.mean(0)))
    e_x = steps.alpha * math.sqrt(max(of_memory(D - D.mean(0)), 0.0))
    return StartErrors(e_c, e_w, e_x, float(answer.phi))


@jitted()
def _at_rest(functions: Functions, data: Tree, x: Vector, y: Vector) -> tuple[jax.Array, ...]:
    """w*, and every agent's g_y, H w* + f_y and f_x + J w*, at (x, y*(x))."""
    each = lambda ask: jax.vmap(lambda d: ask(Oracle(functions, d)))(data)
    f_x, f_y = each(lambda oracle: oracle.outer(x, y))
    product = lambda v: jnp.mean(each(lambda oracle: oracle.hessian(x, y, v)), axis=0)
    w = -jnp.linalg.solve(jax.vmap(product)(jnp.eye(y.size, dtype=y.dtype)), jnp.mean(f_y, axis=0))
    Jw, Hw = each(lambda oracle: oracle.products(x, y, w))
    g_y = each(lambda oracle: oracle.inner(x, y)[1])
    return w, g_y, Hw + f_y, f_x + Jw
