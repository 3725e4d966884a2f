"""What works with what: methods say what they need; networks, problems and runtimes what they give.

A need that nobody gives is refused in one sentence with one remedy, before anything is computed.
Runtimes and wrappers of networks have needs, too, which are checked by the same function. To add a
kind of network, say what it `lacks`; to add a runtime, add a line below.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, Protocol

from decibo.errors import InputError


class Need(Enum):
    """What is needed, what makes a method need it, and what to do where it is missing; what is
    hardest to do without comes first."""

    ONE_AGENT = ("a single agent", "is a centralised method", "Use decibo.complete(1).")
    SYMMETRIC_WEIGHTS = (
        "symmetric, doubly stochastic weights",
        "",
        "Use a method with push_pull, such as decibo.methods.fab, or an undirected network.",
    )
    FIXED_LINKS = (
        "the same links in every step",
        "keeps sums of what neighbours sent",
        "Use a fixed network, or a method without compression.",
    )
    LOCKSTEP = (
        "all agents in lockstep",
        "is right only if both ends of a link mix every message once",
        "Use decibo.methods.ahead_free or consensus.robust_tracking(), which stay exact, or dgd or"
        " atc, which land O(step) off.",
    )
    NETWORK_CONSTANTS = (
        "one network whose width and gap all agents know",
        "finds its step sizes itself",
        "Pass alpha and gamma, or one network in lockstep.",
    )
    ONE_NETWORK = (
        "one network for all variables",
        "does not say which variable a message carries",
        "Use one network for all, or a method that is a direction times a consensus strategy.",
    )
    ONE_EXCHANGE = ("one exchange in each step", "", "Use the network inside it.")
    ALL_NEIGHBOURS = (
        "all neighbours in every exchange",
        "adds masks that cancel between neighbours",
        'Use mode = "lockstep", or leave out what hides messages.',
    )
    NUMBERED_BATCHES = (
        "a fixed list of batches",
        "remembers what it found on every batch",
        "Pass Problem(..., sample=decibo.data.Batches(count)).",
    )
    MINIBATCHES = (
        "a function that takes them",
        "draws minibatches",
        "Pass Problem(..., sample=lambda d, key: ...).",
    )
    FULL_DATA = (
        "data in memory in place of a stream",
        "takes gradients on all data",
        "Use decibo.minibatch(method), or decibo.with_estimator(method,"
        " decibo.estimator.storm(0.1)).",
    )
    SECOND_DERIVATIVES = (
        "products with second derivatives of inner",
        "",
        "Use a method that needs first gradients only: decibo.ahead_exact().",
    )

    @property
    def what(self) -> str:
        """What is needed, as a noun."""
        return self.value[0]

    @property
    def why(self) -> str:
        """What makes a method need it, as a verb; empty where that goes without saying."""
        return self.value[1]

    @property
    def remedy(self) -> str:
        """What to do where it is missing."""
        return self.value[2]


Needs = frozenset[Need]
OF_PROBLEM = frozenset(
    {Need.NUMBERED_BATCHES, Need.MINIBATCHES, Need.FULL_DATA, Need.SECOND_DERIVATIVES}
)
ON_NETWORK = frozenset(Need) - OF_PROBLEM
UNDIRECTED = frozenset({Need.SYMMETRIC_WEIGHTS, Need.LOCKSTEP, Need.ONE_NETWORK})
# What wrappers of networks start from: the same links in every step, and one exchange in it.
PLAIN = UNDIRECTED | {Need.FIXED_LINKS, Need.ONE_EXCHANGE}
# A method of which nobody has said more.
BY_DEFAULT = UNDIRECTED | {Need.FULL_DATA}
ALONE = BY_DEFAULT | {Need.ONE_AGENT}


class Runtime(NamedTuple):
    """Where a run takes place.

    name     as in a sentence
    needs    of the network and the problem
    lacks    what no method can have there, whatever network and problem give
    remedy   what to do where network or problem do not fit
    """

    name: str
    needs: Needs = frozenset()
    lacks: Needs = frozenset()
    remedy: str = ""


ONE_DEVICE = Runtime("One device")
SEVERAL_DEVICES = Runtime(
    "A run on several devices", frozenset({Need.LOCKSTEP}), remedy="Pass devices=1."
)
SWEEP = Runtime(
    "A sweep",
    frozenset({Need.FULL_DATA}),
    remedy="Use decibo.solve for each setting, or decibo.repeat for several seeds.",
)
SITES = Runtime(
    "A site",
    UNDIRECTED | {Need.FULL_DATA},
    remedy="Use one undirected network of agents that wait, and data in memory.",
)
FREE_SITES = Runtime(
    "A site without waiting",
    PLAIN | {Need.FULL_DATA},
    frozenset({Need.LOCKSTEP, Need.ALL_NEIGHBOURS}),
    "Use one fixed undirected network, and data in memory.",
)
SECURE_SUMS = Runtime(
    "A secure sum",
    PLAIN | {Need.ALL_NEIGHBOURS},
    frozenset({Need.NETWORK_CONSTANTS}),
    'Use one fixed network and mode = "lockstep".',
)


class Asker(Protocol):
    """A method or a runtime."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> Needs: ...


class Giver(Protocol):
    """A network or a problem."""

    @property
    def gives(self) -> Needs: ...


def require(
    who: str,
    needs: Collection[Need],
    gives: Collection[Need],
    giver: object,
    remedy: str | None = None,
    *,
    method: bool = False,
) -> None:
    """Reject `who` if it needs what `giver` does not give.

    remedy   what to do about it; by default what the need itself says
    method   whether it is a method, whose sentence says why it needs that
    """
    for need in Need:
        if need in needs and need not in gives:
            why = f"{need.why} and " if method and need.why else ""
            where = giver if isinstance(giver, str) else repr(giver)
            raise InputError(
                f"{who} {why}needs {need.what}, which {where} does not offer.",
                need.remedy if remedy is None else remedy,
            )


def check(who: Asker, problem: Giver, network: Giver, runtime: Runtime = ONE_DEVICE) -> None:
    """Reject a method that needs what neither network nor problem nor runtime gives; or a runtime
    that needs what network or problem do not give."""
    is_method = not isinstance(who, Runtime)
    remedy = who.remedy if isinstance(who, Runtime) else None
    require(who.name, who.needs & ON_NETWORK, network.gives, network, remedy, method=is_method)
    require(who.name, who.needs & OF_PROBLEM, problem.gives, problem, remedy, method=is_method)
    where = runtime.name[0].lower() + runtime.name[1:]
    require(who.name, who.needs & runtime.lacks, (), where, remedy, method=is_method)
