"""What solve checks before any work: that problem, network and method fit together."""

from __future__ import annotations

import warnings
from typing import Any

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.network import DirectedNetwork, Network
from decibo.network.varying import VaryingNetwork
from decibo.problem.problem import Problem


def check_kinds(problem: Any, network: Any, method: Any) -> None:
    """Each of the three must be what it is called."""
    for name, value, kind, remedy in (
        ("problem", problem, Problem, "decibo.Problem(outer, inner, data, x0, y0)"),
        ("network", network, Network | DirectedNetwork, "decibo.ring(10)"),
        ("algorithm", method, Algorithm, "decibo.ahead(alpha=..., beta=..., gamma=..., lam=...)"),
    ):
        if not isinstance(value, kind):
            given = "method" if name == "algorithm" else name
            raise InputError(f"{given} = {value!r}", f"it must be a decibo {name}", f"Make one, for instance {remedy}.")


def check_fit(problem: Problem, network: Network | DirectedNetwork, method: Algorithm) -> None:
    """The method must be able to solve this problem on this network."""
    if problem.agents is not None and problem.agents != network.agents:
        raise InputError(
            f"the data is for {problem.agents} agents, the network has {network.agents}",
            "every agent of the network needs its own data",
            f"Make a network of {problem.agents} agents, or split the data over {network.agents}.",
        )
    if network.directed and not method.directed:
        raise InputError(
            f"{method.name} on the directed {network!r}",
            "it needs weights that are symmetric and doubly stochastic",
            "Use a method with push_pull, such as fab, or an undirected network.",
        )
    if method.stochastic and problem.sample is None:
        raise InputError(
            f"{method.name} on a problem without `sample`",
            "minibatches need to know how to draw one",
            "Give Problem(..., sample=lambda d, key: ...).",
        )
    if method.fixed_network and isinstance(network, VaryingNetwork):
        raise InputError(
            f"{method.name} on {network!r}",
            "its agents keep sums of what neighbours sent, which links that come and go would falsify",
            "Use a fixed network, or a method without compression.",
        )
    if method.centralised and network.agents > 1:
        raise InputError(
            f"{method.name} on {network.agents} agents",
            "it is a centralised method",
            "Run it on one agent: decibo.complete(1).",
        )
    _warn_of_small_lam(problem, method)


def _warn_of_small_lam(problem: Problem, method: Algorithm) -> None:
    """The penalised inner level is strongly convex for sure only if lam > 2 L_f1/mu_g (paper, Lemma 2)."""
    lam, known = method.settings.get("lam"), problem.constants
    if known is None or not isinstance(lam, int | float) or method.name.startswith("ahead_exact"):
        return
    least = 2 * known["L_f1"] / known["mu_g"]
    if lam < least:
        warnings.warn(
            f"lam = {lam:g} is below 2 L_f1/mu_g = {least:.3g} of this problem: f + lam g need not be strongly convex "
            "in y, and the theory no longer bounds the bias of the penalty. Raise lam, or use ahead_exact.",
            stacklevel=4,
        )
