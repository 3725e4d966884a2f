"""What Theorem 1 or Theorem B says of a problem, a network and a method: a table, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, cast

from decibo.algorithm.algorithm import Algorithm
from decibo.capabilities import Need
from decibo.errors import InputError
from decibo.formatting import to_json
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.theory.constants import Constants
from decibo.theory.estimate import constants as constants_of
from decibo.theory.exact import ExactBound, ExactSteps, ahead_exact_steps, fine_constants
from decibo.theory.theorem1 import BELOW, Bound, Slack, Theorem1, bound

SUFFICIENT = (
    "Theorem 1's conditions are sufficient, far from necessary: practice often\n"
    "exceeds them by orders of magnitude and converges."
)
SUFFICIENT_EXACT = (
    "Theorem B's conditions are sufficient, not necessary. With exact constants the\n"
    "largest stable alpha is typically 5 (one agent) to 100 (network) times larger;\n"
    "with constants that follow from those above, 1,000 to 10 million times."
)
MINIMAX = "Corollary 2"  # the case g = -f
LARGEST = 1e60  # of a setting: powers of larger ones overflow
EXACT = "Theorem B"  # ahead_exact, and the implicit method that it is up to O(1/lam^2)
STEPS = ("gamma", "beta", "alpha")


@dataclass(frozen=True)
class Check:
    """The result of `check`: print it, or use its parts.

    theorem   Theorem 1 for AHEAD, Theorem B for ahead_exact, None if neither is about the method
    settings  alpha, beta, gamma and lam of the method, schedules at step 0
    slacks    every inequality by name
    floor     the parts of the bound that no number of steps removes
    advice    what to change first
    """

    problem: str
    network: str
    method: str
    rho: float | None
    constants: Constants
    theorem: Theorem1 | ExactSteps | None
    settings: dict[str, float]
    slacks: dict[str, Slack]
    floor: Bound | ExactBound | None
    advice: str

    @property
    def holds(self) -> bool:
        """Whether the theorem covers this run."""
        if isinstance(self.theorem, ExactSteps):
            return bool(self.slacks) and self.theorem.holds
        return self.theorem is not None and all(slack.holds for slack in self.slacks.values())

    @property
    def largest(self) -> dict[str, float]:
        """The largest steps: of Theorem 1 with alpha for the largest beta and gamma, of Theorem B
        for this gamma."""
        if isinstance(self.theorem, Theorem1):
            return {step: getattr(self.theorem, step) for step in STEPS}
        if self.theorem is None or not self.slacks:
            return {}
        largest = {"gamma": BELOW * 2 / self.theorem.constants.L_yy}
        if self.theorem.q < 1:
            largest["alpha"] = BELOW * min(self.theorem.alphas.values())
        return largest

    @property
    def factors(self) -> dict[str, float]:
        """The steps over the largest ones."""
        return {step: self.settings[step] / value for step, value in self.largest.items()}

    @property
    def note(self) -> str:
        """How far the conditions are from necessary ones."""
        return SUFFICIENT_EXACT if isinstance(self.theorem, ExactSteps) else SUFFICIENT

    def to_json(self) -> str:
        """Everything as JSON."""
        c = self.constants
        names = "problem", "network", "method", "rho", "settings", "holds", "factors", "advice"
        parts: dict[str, Any] = {name: getattr(self, name) for name in names}
        parts["constants"] = asdict(c) | {"kappa": c.kappa, "L": c.L}
        parts["inequalities"] = {
            name: slack._asdict() | {"holds": slack.holds, "factor": slack.factor}
            for name, slack in self.slacks.items()
        }
        parts["floor"] = self.floor and {**asdict(self.floor), "total": self.floor.floor}
        parts["note"] = self.note.replace("\n", " ")
        if self.theorem is not None:
            parts["theorem"] = EXACT if isinstance(self.theorem, ExactSteps) else "Theorem 1"
            parts["largest"] = self.largest
            parts["binding"] = self.theorem.binding
        return json.dumps(to_json(parts), indent=2)

    def __str__(self) -> str:
        # The constants, four in a row; of Theorem B also what its inequalities are written in.
        c = self.constants
        exact = isinstance(self.theorem, ExactSteps)
        names = ("mu_g", "L_f1", "L_g1", "L_g2", "C_fy", "b_f", "b_g", "kappa", "L")
        values = [f"{name + ' =':>7} {getattr(c, name):<10.4g}" for name in names]
        values.append("  rho = " + f"{'unknown' if self.rho is None else f'{self.rho:.4g}':<10}")
        if isinstance(self.theorem, ExactSteps):
            fine = self.theorem.constants
            derived = {"sigma": self.theorem.sigma, "L_yy": fine.L_yy, "L_Phi": fine.L_Phi}
            if self.theorem.q < 1:
                derived |= {name: getattr(self.theorem, name) for name in ("G1", "G2", "N")}
            values += [f"{name + ' =':>7} {value:<10.4g}" for name, value in derived.items()]
        kind = "estimated at sampled points" if c.estimated else "exact (the problem is quadratic)"
        rows = [
            *wrap(f"{self.problem}; {self.network}; {self.method}", 80),
            f"constants, {kind}:",
            *("".join(values[i : i + 4]).rstrip() for i in range(0, len(values), 4)),
        ]
        # Every inequality, the largest steps, and the floor.
        if self.theorem is not None and self.slacks:
            title = f"inequality of {EXACT if exact else 'Theorem 1'}"
            rows += ["", f"{title:<49}{'value':>8}{'bound':>9}{'ratio':>8} holds"]
            for name, slack in self.slacks.items():
                ratio = slack.value / slack.bound if slack.bound else float("inf")
                answer = "yes" if slack.holds else "NO"
                numbers = f"{slack.value:>8.2g}{slack.bound:>9.2g}{ratio:>8.2g}"
                rows.append(f"{name:<49}{numbers} {answer:>5}")
            rows.append("")
            for step, largest in self.largest.items():
                setting = f"{step:<6} = {self.settings[step]:<9.3g}"
                factor = self.factors[step]
                times = f"{factor:.2g}" if factor < 10 or factor >= 1e6 else f"{factor:,.0f}"
                rows.append(f"{setting} the largest admitted is {largest:.3g}: {times} times that")
            rows += self._floor()
        return "\n".join([*rows, "", *wrap(self.advice, 80), "", self.note])

    def _floor(self) -> list[str]:
        floor = self.floor
        title = "floor of |grad Phi|^2:"
        if isinstance(floor, Bound):
            parts = f"penalty C {floor.penalty:.3g}, heterogeneity B {floor.heterogeneity:.3g}"
            rows = [f"{title} {floor.floor:.3g} ({parts})"]
            if not self.holds:
                rows.append("(the formula outside its conditions: no prediction for this run)")
            return rows
        if floor is None or not isinstance(self.theorem, ExactSteps):
            return []
        if floor.F == 0:
            return [f"{title} 0 (no penalty, or g is quadratic in y)"]
        factor = f"zeta F^2 = {floor.floor:.3g}" if self.theorem.holds else "none proved"
        R = self.theorem.R()
        rows = [
            f"{title} {factor}; error of the penalty: F = {floor.F:.3g}",
            f"(if |f_y| <= C_fy along the run, and then |w| <= R = {R:.3g} on average)",
        ]
        if self.theorem.constants.L_g3 is None:
            rows.append("(L_g3 is not known, so F falls like 1/lam; with it, like 1/lam^2)")
        return rows


def check(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    *,
    x: Tree = None,
    radius: float = 1.0,
) -> Check:
    """What Theorem 1, or Theorem B, says about these three; x and radius choose the points, as in
    `constants`."""
    if not isinstance(problem, Problem) or not isinstance(method, Algorithm):
        types = ", ".join(type(argument).__name__ for argument in (problem, network, method))
        raise InputError(
            "check takes a problem, a network and a method, in this order, but the arguments are"
            f" of type {types}."
        )
    problem.check_agents(network.agents)
    constants = constants_of(problem, x, radius=radius, minimax=method.theory.theorem == MINIMAX)
    one_matrix = {Need.SYMMETRIC_WEIGHTS, Need.ONE_NETWORK} <= network.gives
    rho = float(cast("Network", network).rho) if one_matrix else None
    theorem: Theorem1 | ExactSteps | None = None
    floor: Bound | ExactBound | None = None
    settings: dict[str, float] = {}
    slacks: dict[str, Slack] = {}
    scope = _scope(network, method)
    exact = method.theory.theorem == EXACT or method.chosen is not None
    if exact and isinstance(network, Network) and scope is None:
        # Theorem B: alpha, gamma and lam as far as the method has them; agents find the others.
        names = [n for n in ("gamma", "alpha", "lam") if method.settings.get(n) is not None]
        settings = _settings(method, names)
        steps = {name: settings.get(name) for name in ("alpha", "gamma")}
        fine = fine_constants(constants, C_f=constants.C_fy)
        theorem = ahead_exact_steps(fine, network, **steps)
        slacks = {} if method.chosen else theorem.slacks
        if theorem.q < 1:  # without a penalty there is no floor
            zero = ExactBound(0.0, 0.0, 0.0, theorem.zeta, math.inf)
            floor = theorem.bound(math.inf, settings["lam"]) if "lam" in settings else zero
        advice = _exact_advice(theorem, slacks, ahead_exact_steps(fine, network))
    elif method.theory.theorem not in (None, EXACT) and rho is not None:
        settings = _settings(method, ("alpha", "beta", "gamma", "lam"))
        theorem = Theorem1(constants, rho, settings["lam"])
        floor = bound(constants, rho, **settings)
        slacks = theorem.slacks(settings["alpha"], settings["beta"], settings["gamma"])
        advice = _advice(theorem, slacks, floor)
    else:
        known = "the constants are" if rho is None else "the constants and rho are"
        advice = f"{scope}; {known} all that can be said here."
    names = problem.name, repr(network), repr(method)
    return Check(*names, rho, constants, theorem, settings, slacks, floor, advice)


def _settings(method: Algorithm, names: Sequence[str]) -> dict[str, float]:
    """The numbers of the method with these names, schedules at step 0."""
    settings = {}
    for name in names:
        value = method.settings[name]
        if name == "beta" and value is None:  # ahead without beta moves y and z alike
            inner = _settings(method, ("gamma", "lam"))
            value = inner["gamma"] / inner["lam"]
        number: Any = value(0) if callable(value) else value
        value = settings[name] = float(number)
        if not 1 / LARGEST <= value <= LARGEST:
            raise InputError(
                f"{name} must be between {1 / LARGEST:g} and {LARGEST:g} for check, but it is"
                f" {value:g}."
            )
    return settings


def _advice(theorem: Theorem1, slacks: dict[str, Slack], floor: Bound) -> str:
    broken = {slack.step for slack in slacks.values() if not slack.holds}
    if "lam" in broken:
        raised = "to 1 or more" if theorem.constants.minimax else f"above {theorem.least_lam:.4g}"
        return f"Change first: raise lam {raised}; below it nothing is guaranteed."
    gap = 2 * theorem.constants.C_ou**2 / theorem.lam**2
    parts = {
        "the penalty gap C_ou/lam: raise lam": gap,
        "the penalty in the consensus errors: lower beta and alpha": floor.penalty - gap,
        "heterogeneity: lower beta and gamma, or use ahead_exact, which has no such term": (
            floor.heterogeneity
        ),
    }
    lower = f"The largest part of the floor is {max(parts, key=parts.__getitem__)}."
    if not broken:
        return f"Theorem 1 covers this run. Change first: {lower[0].lower()}{lower[1:]}"
    steps = [step for step in STEPS if step in broken]
    named = ", then ".join(f"{step} (limited by {theorem.binding[step]})" for step in steps)
    return f"Theorem 1 does not cover this run. To be covered, lower first {named}. {lower}"


def _scope(network: Network | DirectedNetwork, method: Algorithm) -> str | None:
    """Why no theorem speaks of this method on this network; None if nothing is in the way."""
    about = {
        Need.SYMMETRIC_WEIGHTS: "undirected networks only",
        Need.ONE_NETWORK: "one network for all variables",
        Need.LOCKSTEP: "agents in lockstep",
    }
    for need, words in about.items():
        if need not in network.gives:
            return f"Theorem 1 and Theorem B are about {words}"
    if method.theory.theorem is None and method.chosen is None:
        ahead = "Theorem 1 is about AHEAD (decibo.ahead, decibo.methods.ahead_minimax) only"
        return (
            f"{ahead}, Theorem B about ahead_exact, and sparkle_ed with theta=None and beta=gamma"
        )
    if method.theory.theorem == EXACT and Need.FIXED_LINKS not in network.gives:
        return "Theorem B is about networks that do not change"
    if method.theory.theorem == EXACT and "beta" in method.settings:
        beta = method.settings["beta"]
        gamma = method.settings["gamma"]
        if beta is not gamma and beta != gamma:  # schedules are equal if they are the same one
            return "Theorem B covers sparkle_ed with beta = gamma only"
    return None


def _exact_advice(theorem: ExactSteps, slacks: dict[str, Slack], rule: ExactSteps) -> str:
    steps = f"gamma = {rule.gamma:.3g} and alpha = {rule.alpha:.3g}"
    free = "whatever lam is"
    if not slacks:
        found = "The agents find the step sizes that are left out"
        return f"{found}, and may go beyond {EXACT}, which covers {steps}, {free}."
    if not theorem.q < 1:
        limit = 2 / theorem.constants.L_yy
        return (
            f"{EXACT} does not cover this run. Lower gamma below 2/L_yy = {limit:.3g} first. It"
            f" covers {steps}, {free}."
        )
    if not theorem.holds:
        limited = theorem.binding["alpha"]
        return (
            f"{EXACT} does not cover this run. To be covered, lower alpha (limited by {limited}). "
            f"It covers {steps}, {free}."
        )
    if all(slack.holds for slack in slacks.values()):
        return f"{EXACT} covers this run, {free}."
    simple = (
        "although the inequalities above, which are a simple sufficient condition, do not all hold"
    )
    return f"{EXACT} covers this run, {free}, with zeta = {theorem.zeta:.3g}, {simple}."
