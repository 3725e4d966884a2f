r"""Corollaries 1 and 2: step sizes and lam for a given number of steps K.

    (1)  Corollary 1:  lam = 3 kappa K^(1/6),
                       gamma = c K^(-1/3),  beta = b K^(-1/2),  alpha = a K^(-2/3)
    (2)  Corollary 2:  g = -f, lam fixed,
                       gamma = c K^(-1/3),  beta = b K^(-1/3),  alpha = a K^(-1/3)

The paper leaves a, b and c open but for their powers of kappa. Here they are the largest that
Theorem 1 admits at K = 1, and then (1) and (2) satisfy it for every K, since each step falls at
least as fast as its bounds; or practical ones of your own, for which Theorem 1 promises nothing.
The rates that follow from Theorem 1 (common start; Phi bounded below, erratum 14) differ: with rho'
= 1 - rho, a, b, c are of the order of A, and then the mean of |grad Phi|^2 of R,

    (3)  (1), paper     A = kappa^-3, kappa^-1, 1
                        R = kappa^4/K^(1/3) + (kappa^2 b_f^2/K^(2/3) + kappa^4 b_g^2/K^(1/3))/rho'^2
    (4)  (1), here      A = rho' kappa^-4, rho' kappa^-2, rho' kappa^-1
                        R = kappa^4/(rho' K^(1/3)) + b_f^2/K^(2/3) + kappa^2 b_g^2/K^(1/3)
    (5)  (2), paper     A = kappa^-2, 1, 1
                        R = kappa^2/K^(2/3) (1 + b_f^2/rho'^2)
    (6)  (2), here      A = rho' kappa^-3, rho' kappa^-1, rho' kappa^-1
                        R = (kappa^3/rho' + b_f^2)/K^(2/3)

The paper's a, b and c satisfy Theorem 1 only from some K on (see the errata). The rule here has the
same powers of K; it pays 1/(1 - rho) in the first term and has none in the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from decibo.theory.constants import Constants, network_rho
from decibo.theory.theorem1 import BELOW, Theorem1, theorem1
from decibo.validate import only_known, positive


@dataclass(frozen=True)
class StepRule:
    """Step sizes and penalty for one K; `admitted` says whether Theorem 1's conditions hold."""

    alpha: float
    beta: float
    gamma: float
    lam: float
    admitted: bool

    @property
    def settings(self) -> dict[str, float]:
        """What `ahead(**settings)` takes."""
        return {name: getattr(self, name) for name in ("alpha", "beta", "gamma", "lam")}


def corollary1(
    constants: Constants, rho: float, K: float, *, first: Mapping[str, float] | None = None
) -> StepRule:
    """The step sizes of Corollary 1 for K steps, (1).

    first   {"alpha": a, "beta": b, "gamma": c, "lam": l} replaces some or all of the steps at K = 1
    """
    powers = {"alpha": -2 / 3, "beta": -1 / 2, "gamma": -1 / 3, "lam": 1 / 6}
    return _scaled(constants, rho, K, 3 * constants.kappa, powers, first)  # (1)


def corollary2(
    constants: Constants,
    rho: float,
    K: float,
    *,
    lam: float = 2.0,
    first: Mapping[str, float] | None = None,
) -> StepRule:
    """The step sizes of Corollary 2 for K steps, (2), for g = -f and any lam >= 1; `first` as in
    `corollary1`."""
    powers = {"alpha": -1 / 3, "beta": -1 / 3, "gamma": -1 / 3, "lam": 0.0}
    return _scaled(replace(constants, minimax=True), rho, K, lam, powers, first)  # (2)


def _scaled(
    constants: Constants,
    rho: float,
    K: float,
    lam: float,
    powers: Mapping[str, float],
    first: Mapping[str, float] | None,
) -> StepRule:
    network_rho(rho)
    positive("K", K)
    first = first or {}
    only_known("first", "step", first, powers)
    practical = {name: positive(f"first[{name!r}]", value) for name, value in first.items()}
    lam = practical.get("lam", lam)
    theorem = Theorem1 if practical else theorem1  # practical steps may break Theorem 1
    at_one = theorem(constants, rho, lam)
    steps = {"alpha": at_one.alpha, "beta": at_one.beta, "gamma": at_one.gamma, "lam": lam}
    steps |= practical
    scaled = {name: value * K ** powers[name] for name, value in steps.items()}
    at_K = theorem(constants, rho, scaled["lam"])
    # p_1 and p_2 change a little with lam, so that the first K may need a little less
    if not practical:
        scaled["gamma"] = min(scaled["gamma"], at_K.gamma)
        scaled["beta"] = min(scaled["beta"], at_K.beta)
        bounds = at_K.alphas(scaled["beta"], scaled["gamma"])
        scaled["alpha"] = min(scaled["alpha"], BELOW * min(bounds.values()))
    return StepRule(
        **scaled, admitted=at_K.admits(scaled["alpha"], scaled["beta"], scaled["gamma"])
    )
