"""A network for each variable: x may agree over other links than y and z.

Every variable is mixed by its own W. A message says what it carries: the trees that a strategy
mixes are dictionaries with one entry for each variable, and each entry travels over the links of
its variable. Variables with the same network share their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import jax

from decibo.capabilities import Need, Needs
from decibo.errors import InputError, short
from decibo.network.mixing import Mixing
from decibo.network.network import Exchange, Network, Share, check_plain

T = TypeVar("T")
Group = tuple[str, ...]  # variables that share a network


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Each(Mixing):
    """One mixing for each group of variables."""

    mixings: tuple[Mixing, ...]
    groups: tuple[Group, ...] = field(metadata={"static": True})

    def shared_out(
        self, tree: T, exchange: Callable[[Mixing, list[jax.Array]], list[jax.Array]]
    ) -> T:
        """Exchange the part of each group by its own mixing."""
        leaves, treedef = jax.tree.flatten(tree)
        for mixing, places in zip(self.mixings, places_of(tree, self.groups), strict=True):
            if places:
                for place, leaf in zip(
                    places, exchange(mixing, [leaves[i] for i in places]), strict=True
                ):
                    leaves[place] = leaf
        return jax.tree.unflatten(treedef, leaves)


@dataclass(frozen=True, eq=False, repr=False)
class EachNetwork(Network):
    """A network for each group of variables; W, rho and edges are those of all links together, W
    their mean."""

    networks: tuple[Network, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def gives(self) -> Needs:
        """What all of them give."""
        apart = {Need.ONE_NETWORK, Need.NETWORK_CONSTANTS}
        return super().gives.intersection(*(one.gives for one in self.networks)) - apart

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """How much of the traffic between neighbours each group has."""
        links = len(self.edges)
        rounds = [network.mixing().rounds for network in self.networks]
        return tuple(
            Share(group, rounds * len(network.edges) / links if links else 0.0)
            for group, network, rounds in zip(self.groups, self.networks, rounds, strict=True)
        )

    def made_of(self, exchange: Exchange) -> Mixing:
        """Each variable by its own network."""
        return Each(tuple(network.made_of(exchange) for network in self.networks), self.groups)


def check_variables(name: str, variables: Group, shares: Sequence[Share]) -> None:
    """Reject a method, called so, with other variables than those that have a network."""
    own = {variable for share in shares for variable in share.group}
    if own != set(variables):
        raise InputError(
            f"{name} moves {', '.join(variables)}, but there are networks for"
            f" {', '.join(sorted(own))}.",
            "Pass exactly one for each variable.",
        )


def each(networks: Mapping[str, Network]) -> EachNetwork:
    """A network for each variable of the method: each({"x": ring(10), "y": complete(10), "z":
    complete(10)}).

    `solve` takes the dictionary itself. Networks may change during the run or have several rounds,
    and need not be alike; all must be undirected and have the same agents.
    """
    if (
        not isinstance(networks, Mapping)
        or not networks
        or not all(isinstance(name, str) for name in networks)
    ):
        raise InputError(
            "A network for each variable is a dictionary {'x': ..., 'y': ...}, but it is"
            f" {short(repr(networks))}."
        )
    for name, network in networks.items():
        needs = {Need.SYMMETRIC_WEIGHTS, Need.ONE_NETWORK, Need.LOCKSTEP}
        check_plain(f"A network for each variable, such as {name},", network, needs)
    sizes = sorted({network.agents for network in networks.values()})
    if len(sizes) > 1:
        raise InputError(
            f"The networks of all variables must have the same agents, but there are {sizes} of"
            " them."
        )
    groups: dict[int, list[str]] = {}
    for name, network in networks.items():
        groups.setdefault(id(network), []).append(name)
    apart = {id(network): network for network in networks.values()}
    members = [apart[key] for key in groups]
    mean = sum([network.weights for network in members[1:]], start=members[0].weights) / len(
        members
    )
    name = ", ".join(
        f"{' '.join(group)}: {network.name}"
        for group, network in zip(groups.values(), members, strict=True)
    )
    return EachNetwork(
        mean,
        name,
        members[0].labels,
        networks=tuple(members),
        groups=tuple(tuple(group) for group in groups.values()),
    )


def places_of(tree: object, groups: tuple[Group, ...]) -> list[list[int]]:
    """Which leaves of a message are for which group, by the names on the way to them."""
    found: list[list[int]] = [[] for _ in groups]
    for place, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(tree)[0]):
        names = [getattr(key, "key", getattr(key, "name", None)) for key in path]
        owner = next(
            (i for i, group in enumerate(groups) if any(name in group for name in names)), None
        )
        if owner is None:
            raise InputError(
                "A message does not say which variable it is for, so there cannot be a network for"
                " each.",
                "Mix dictionaries with one entry for each variable, or use one network for all.",
            )
        found[owner].append(place)
    return found
