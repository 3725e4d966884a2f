"""check: what Theorem 1 says of a problem, a network and a method, in a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.theory.constants import Constants
from decibo.theory.estimate import constants as constants_of
from decibo.theory.theorem1 import Bound, Slack, Theorem1, bound

SUFFICIENT = (
    "Theorem 1's conditions are sufficient, far from necessary: practice often\n"
    "exceeds them by orders of magnitude and converges."
)
MINIMAX = "Corollary 2"  # the case g = -f
LARGEST = 1e60  # of a setting: powers of larger ones are no numbers any more
STEPS = ("gamma", "beta", "alpha")


@dataclass(frozen=True)
class Check:
    """The result of `check`: print it, or use its parts.

    theorem   None if Theorem 1 is not about the method
    settings  alpha, beta, gamma and lam of the method, schedules at step 0
    slacks    every inequality by name
    floor     the penalty and heterogeneity parts of the bound
    advice    what to change first
    """

    problem: str
    network: str
    method: str
    rho: float | None
    constants: Constants
    theorem: Theorem1 | None
    settings: dict[str, float]
    slacks: dict[str, Slack]
    floor: Bound | None
    advice: str

    @property
    def holds(self) -> bool:
        """Whether Theorem 1 covers this run."""
        return self.theorem is not None and all(slack.holds for slack in self.slacks.values())

    @property
    def factors(self) -> dict[str, float]:
        """The steps over the largest ones that Theorem 1 admits (alpha for the largest beta and gamma)."""
        if self.theorem is None:
            return {}
        return {step: self.settings[step] / getattr(self.theorem, step) for step in STEPS}

    def to_json(self) -> str:
        """Everything as JSON."""
        parts: dict[str, Any] = {
            "problem": self.problem,
            "network": self.network,
            "method": self.method,
            "rho": self.rho,
            "constants": asdict(self.constants) | {"kappa": self.constants.kappa, "L": self.constants.L},
            "settings": self.settings,
            "holds": self.holds,
            "inequalities": {
                name: slack._asdict() | {"holds": slack.holds, "factor": slack.factor}
                for name, slack in self.slacks.items()
            },
            "factors": self.factors,
            "floor": None if self.floor is None else {**asdict(self.floor), "total": self.floor.floor},
            "advice": self.advice,
            "note": SUFFICIENT.replace("\n", " "),
        }
        if self.theorem is not None:
            parts["largest"] = {step: getattr(self.theorem, step) for step in STEPS}
            parts["binding"] = self.theorem.binding
        return json.dumps(parts, indent=2)

    def __str__(self) -> str:
        return "\n".join([*self._header(), *self._table(), "", *wrap(self.advice, 80), "", SUFFICIENT])

    def _header(self) -> list[str]:
        c = self.constants
        names = ("mu_g", "L_f1", "L_g1", "L_g2", "C_fy", "b_f", "b_g", "kappa", "L")
        values = [f"{name + ' =':>7} {getattr(c, name):<10.4g}" for name in names]
        values.append("  rho = " + ("unknown" if self.rho is None else f"{self.rho:.4g}"))
        kind = "estimated at sampled points" if c.estimated else "exact (the problem is quadratic)"
        rows = ["".join(values[i : i + 4]).rstrip() for i in range(0, len(values), 4)]
        return [*wrap(f"{self.problem}; {self.network}; {self.method}", 80), f"constants, {kind}:", *rows]

    def _table(self) -> list[str]:
        if self.theorem is None or self.floor is None:
            return []
        rows = ["", f"{'inequality of Theorem 1':<49}{'value':>8}{'bound':>9}{'ratio':>8} holds"]
        for name, slack in self.slacks.items():
            ratio = slack.value / slack.bound if slack.bound else float("inf")
            answer = "yes" if slack.holds else "NO"
            rows.append(f"{name:<49}{slack.value:>8.2g}{slack.bound:>9.2g}{ratio:>8.2g} {answer:>5}")
        rows.append("")
        for step in STEPS:
            setting = f"{step:<6} = {self.settings[step]:<9.3g}"
            factor = self.factors[step]
            times = f"{factor:.2g}" if factor < 10 or factor >= 1e6 else f"{factor:,.0f}"
            rows.append(f"{setting} the largest admitted is {getattr(self.theorem, step):.3g}: {times} times that")
        parts = f"penalty C {self.floor.penalty:.3g}, heterogeneity B {self.floor.heterogeneity:.3g}"
        rows.append(f"floor of |grad Phi|^2: {self.floor.floor:.3g} ({parts})")
        if not self.holds:
            rows.append("(the formula outside its conditions: no prediction for this run)")
        return rows


def check(
    problem: Problem, network: Network | DirectedNetwork, method: Algorithm, *, x: Tree = None, radius: float = 1.0
) -> Check:
    """What Theorem 1 says about these three; x and radius choose the points, as in `decibo.theory.constants`."""
    if not isinstance(problem, Problem) or not isinstance(method, Algorithm):
        types = ", ".join(type(argument).__name__ for argument in (problem, network, method))
        raise InputError(
            f"check takes a problem, a network and a method, in this order, but the arguments are of type {types}."
        )
    problem.check_agents(network.agents)
    constants = constants_of(problem, x, radius=radius, minimax=method.theorem == MINIMAX)
    rho = None if isinstance(network, DirectedNetwork) else float(network.rho)
    applies = method.theorem is not None
    theorem = None
    settings = {}
    slacks = {}
    floor = None
    if applies and rho is not None:
        settings = _settings(method)
        theorem = Theorem1(constants, rho, settings["lam"])
        floor = bound(constants, rho, **settings)
        slacks = theorem.slacks(settings["alpha"], settings["beta"], settings["gamma"])
        advice = _advice(theorem, slacks, floor)
    else:
        scope = "AHEAD (decibo.ahead, decibo.methods.ahead_minimax)" if rho is not None else "undirected networks"
        advice = f"Theorem 1 is about {scope} only; the constants and rho are all that can be said here."
    return Check(
        problem=problem.name,
        network=repr(network),
        method=repr(method),
        rho=rho,
        constants=constants,
        theorem=theorem,
        settings=settings,
        slacks=slacks,
        floor=floor,
        advice=advice,
    )


def _settings(method: Algorithm) -> dict[str, float]:
    """The numbers of the method, schedules at step 0."""
    values: dict[str, Any] = {name: value(0) if callable(value) else value for name, value in method.settings.items()}
    if values["beta"] is None:
        values["beta"] = values["gamma"] / values["lam"]
    settings = {name: float(values[name]) for name in ("alpha", "beta", "gamma", "lam")}
    for name, value in settings.items():
        if not 1 / LARGEST <= value <= LARGEST:
            raise InputError(f"{name} must be between {1 / LARGEST:g} and {LARGEST:g} for check, but it is {value:g}.")
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
        "heterogeneity: lower beta and gamma, or use ahead_exact, which has no such term": floor.heterogeneity,
    }
    lower = f"The largest part of the floor is {max(parts, key=parts.__getitem__)}."
    if not broken:
        return f"Theorem 1 covers this run. Change first: {lower[0].lower()}{lower[1:]}"
    steps = [step for step in STEPS if step in broken]
    named = ", then ".join(f"{step} (limited by {theorem.binding[step]})" for step in steps)
    return f"Theorem 1 does not cover this run. To be covered, lower first {named}. {lower}"
