"""[network] of a configuration: one network for all variables, or a table for each of them.

[network]    name = "ring", agents = 10, failing = 0.1     one for all; AROUND are options of every network
[network.x]  name = "ring"                                 one for each variable of the method; other keys of [network]
[network.y]  name = "complete"                             are options of all that have them and do not set their own
[network.z]  name = "complete"

Equal tables stand for one network, so that its variables share their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import decibo
from decibo.cli import registry
from decibo.cli.registry import (
    Choice,
    Table,
    at_place,
    choose,
    convert,
    options_of,
    own_factory,
    shown,
    table_of,
    unknown,
)
from decibo.cli.trust import NOBODY, Trust
from decibo.errors import InputError
from decibo.network.per_variable import each

# options of every network: decibo.networks.failing
AROUND = {"failing": float, "sleeping": float, "chebyshev": int}

AnyNetwork = decibo.Network | decibo.DirectedNetwork
Place = Callable[..., str]  # (table, key) -> where it was set


@dataclass(frozen=True)
class Link:
    """One network, and what may happen on its links."""

    choice: Choice
    around: dict[str, float]

    def as_table(self) -> Table:
        """As a table of a configuration."""
        return self.choice.as_table() | self.around

    def make(self) -> AnyNetwork:
        """The network."""
        network = self.choice.make()
        if not isinstance(network, AnyNetwork):
            raise InputError(
                f"{self.choice.where}: {self.choice.name} must return a decibo.Network, "
                f"but it returned a {type(network).__name__}."
            )
        with at_place(self.choice.where):
            for name, option in self.around.items():
                network = getattr(decibo.networks, name)(network, option)
        return network


@dataclass(frozen=True)
class Links:
    """The network of a configuration; or, if `variables` are named, one for each of them."""

    links: tuple[Link, ...]
    variables: tuple[str, ...] = ()
    where: str = ""

    @property
    def choices(self) -> list[tuple[str, Choice]]:
        """What was chosen, each by the key of its table."""
        keys = [f"network.{name}" for name in self.variables] or ["network"]
        return [(key, link.choice) for key, link in zip(keys, self.links, strict=True)]

    def changed(self, change: Callable[[Choice], Choice]) -> Links:
        """The same with every choice changed."""
        return replace(
            self, links=tuple(replace(link, choice=change(link.choice)) for link in self.links)
        )

    def agents(self) -> int | None:
        """How many agents the networks have that say so, while others do not."""
        sized = [link for link in self.links if "agents" not in link.choice.missing()]
        return sized[0].make().agents if sized else None

    @property
    def complete(self) -> bool:
        """Whether all networks say how many agents they have."""
        return all("agents" not in link.choice.missing() for link in self.links)

    def as_table(self) -> Table:
        """As the table [network] of a configuration."""
        tables = [link.as_table() for link in self.links]
        return dict(zip(self.variables, tables, strict=True)) if self.variables else tables[0]

    def make(self) -> AnyNetwork:
        """The network, or the networks as one."""
        if not self.variables:
            return self.links[0].make()
        made = {str(link.as_table()): link for link in self.links}
        networks = {text: link.make() for text, link in made.items()}
        named = zip(self.variables, self.links, strict=True)
        with at_place(self.where):
            return each({name: networks[str(link.as_table())] for name, link in named})  # type: ignore[misc]


def ring(where: str) -> Links:
    """What a configuration without [network] has."""
    return Links((Link(choose("ring", registry.networks(), where), {}),))


def with_agents(choice: Choice, agents: int) -> Choice:
    """The choice with so many agents, if it needs to be told."""
    return choice.with_defaults(agents=agents) if "agents" in choice.missing() else choice


def drawn(choice: Choice) -> Choice:
    """A random network without a seed is drawn with 0."""
    return choice.with_defaults(seed=0) if "seed" in choice.missing() else choice


def read_networks(
    value: object, at: Place, places: Mapping[str, str], trust: Trust = NOBODY
) -> Links | None:
    """What [network] says, checked; `places` are those of keys that the command line set."""
    if value is None:
        return None
    where = at("network")
    table = _named(value, where)
    named = _variables(table, where)
    if not named:
        return Links(
            (_link(table, where, lambda key: at("network", key), places, trust),), where=where
        )
    shared = {key: option for key, option in table.items() if key not in named}
    links = [_link_of(name, table[name], shared, at, trust) for name in named]
    known = {key for link in links for key in (*link.choice.parameters, *AROUND)}
    for key in shared:
        if key not in known:
            raise unknown(at("network", key), key, "option of these networks", sorted(known))
    return Links(tuple(links), tuple(named), where)


def _link_of(variable: str, value: object, shared: Table, at: Place, trust: Trust) -> Link:
    """The network of one variable, from its table and from what all share."""
    place = at("network", variable)
    by_option = place.startswith("--set")
    table = _named(value, place)
    places = {
        key: f"--set network.{variable}.{key}" if by_option else f"{place}.{key}" for key in table
    }
    place = f"--set network.{variable}" if by_option else place
    completed = _completed(table, shared, place, trust)
    return _link(completed, place, lambda key: places.get(key, at("network", key)), places, trust)


def _named(value: object, where: str) -> Table:
    """A table with a name, or the name alone."""
    return {"name": value} if isinstance(value, str) else table_of(value, where)


def _variables(table: Table, where: str) -> list[str]:
    """The variables that have a table; none if the table is that of one network."""
    tables = [key for key, value in table.items() if isinstance(value, Mapping) or key == "x"]
    if "x" in tables:  # its name alone may stand for a network
        options = {
            option
            for factory in registry.networks().factories.values()
            for option in options_of(factory)
        }
        words = [
            key
            for key, value in table.items()
            if isinstance(value, str) and key not in {*options, "name"}
        ]
        tables = [key for key in table if key in tables or key in words]
    name = table.get("name")
    if name is None or not tables:
        return tables
    if ":" not in str(name):  # options of an own network may be anything
        raise InputError(
            f"{where} names the network {shown(name)} and has a table for {', '.join(tables)}.",
            "Name one network for all variables, or leave out the name and write [network.x],"
            " [network.y], ...",
        )
    return []


def _completed(own: Table, shared: Table, where: str, trust: Trust) -> Table:
    """A table with the options of [network] that its network has."""
    name = str(own.get("name", "ring"))
    factory = own_factory(name, where, registry.networks(), trust) if ":" in name else None
    factory = factory or registry.networks().factories.get(name)
    fits = {*AROUND, *(options_of(factory, ":" in name) if factory else ())}
    return {key: value for key, value in shared.items() if key in fits} | own


def _link(
    table: Table, where: str, at: Callable[[str], str], places: Mapping[str, str], trust: Trust
) -> Link:
    around = {
        name: convert(table[name], kind, at(name)) for name, kind in AROUND.items() if name in table
    }
    options = {"name": "ring"} | {key: value for key, value in table.items() if key not in AROUND}
    return Link(choose(options, registry.networks(), where, places, trust), around)
