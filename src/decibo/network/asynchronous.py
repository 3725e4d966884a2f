r"""Networks whose agents do not wait for each other, simulated tick by tick.

A tick is one step of an agent of speed 1. Every agent keeps the newest message that it has from
each neighbour:

    (1)  awake_i(k)  at every (1/speed_i)-th tick
    (2)  sent_j(k)   what agent j would send at tick k: it changes when j has made a step
    (3)  u           = k + 1 - a,  a drawn from 1, ..., delay for each link, direction and tick,
                                   unless it is lost
    (4)  newest_ij   = sent_j(u) if it arrived and u is later than that of the newest so far
    (5)  mix_i       = s_i + sum_j w_ij (newest_ij - s_i) over the neighbours that sent within the
                     last `patience` ticks

With speed 1, delay 1 and no loss this is lockstep. Agents repeat what they sent last at every tick,
so that a message that is lost is late and not gone for ever. Who is away neither sends nor receives
nor moves.

What is stored does not depend on how long messages have been lost: the last `delay` messages of
each agent, and one for each neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.capabilities import Need, Needs
from decibo.errors import InputError
from decibo.network.mixing import Mixing, Step
from decibo.network.network import Network, check_plain, entries
from decibo.network.varying import neighbour_slots
from decibo.validate import flag, fraction, integer, table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEVER = np.iinfo(np.int32).max
Away = Mapping[int, tuple[int, int | None]]


class Arrivals(NamedTuple):
    """What arrives for one agent at a tick, in one parcel: for each neighbour whether, and of which
    tick."""

    arrives: jax.Array  # (slots,)
    made: jax.Array  # (slots,)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Asynchronous(Mixing):
    """Neighbour lists, and how fast and how reliable agents and links are."""

    neighbours: jax.Array  # (D, agents); an agent with fewer has itself
    weights: jax.Array  # (D, agents); 0 where there is no neighbour
    links: jax.Array  # (D, agents): the number of each link and direction
    speeds: jax.Array  # (agents,)
    away: jax.Array  # (2, agents): the first tick away, and the first one back
    loss: jax.Array
    patience: jax.Array
    delay: int = field(metadata={"static": True})
    count: int = field(metadata={"static": True})  # of links, both directions
    relay: bool = field(metadata={"static": True})
    split: bool = field(metadata={"static": True})

    def present(self, agents: jax.Array, k: jax.Array) -> jax.Array:
        """Which of these agents are not away at these ticks."""
        return (k < self.away[0][agents]) | (k >= self.away[1][agents])

    def awake(self, agent: jax.Array, k: jax.Array) -> jax.Array:
        """Whether the agent ends a step at tick k."""
        ends = lambda ticks: jnp.floor(ticks * self.speeds[agent] + 1e-4)
        return (ends(k + 1) > ends(k)) & self.present(agent, k)  # (1)

    def arrivals(self, agent: jax.Array, k: jax.Array, key: jax.Array) -> Arrivals:
        """What arrives for an agent at tick k; `key` tells parcels apart."""
        own = self.links[:, agent]
        ages = jax.random.randint(jax.random.fold_in(key, 2), (self.count,), 1, self.delay + 1)
        lost = jax.random.bernoulli(jax.random.fold_in(key, 3), self.loss, (self.count,))
        made = k + 1 - ages[own]  # (3)
        there = (made >= 0) & self.present(self.neighbours[:, agent], made) & self.present(agent, k)
        return Arrivals(there & ~lost[own] & (self.weights[:, agent] != 0), made)

    def delivered(self, sent: jax.Array, made: jax.Array) -> jax.Array:
        """What neighbours sent at these ticks: sent is (agents, delay, ...), made is (agents,
        D)."""
        return sent[self.neighbours.T, made % self.delay]

    def differing(
        self, S: jax.Array, received: jax.Array, k: Step = None, key: jax.Array | None = None
    ) -> jax.Array:
        """Agents that do not wait have no common step."""
        raise InputError(
            "On an asynchronous network agents mix what they have, which depends on what they were"
            " sent before.",
            "Run the method with decibo.solve.",
        )

    largest_of = differing


@dataclass(frozen=True, eq=False, repr=False)
class AsynchronousNetwork(Network):
    """A network whose agents do not wait for each other; W, rho and edges are those of all
    links."""

    lacks: ClassVar[Needs] = frozenset({Need.LOCKSTEP})
    speeds: tuple[float, ...] = ()
    delay: int = 1
    loss: float = 0.0
    patience: int | None = None
    away: tuple[tuple[int, int, int], ...] = ()
    relay: bool = False
    split: bool = False

    @property
    def active(self) -> tuple[float, float]:
        """In which share of the ticks an agent computes, as fast as all are on average, and in
        which it talks: one that relays in every tick."""
        speed = float(np.mean(self.speeds))
        return speed, 1.0 if self.relay else speed

    def single(self, weights: csr_array, kernel: str | None) -> Mixing:
        """Follows the links, whatever the size."""
        neighbours, links, slot, row = neighbour_slots(self)
        values = np.zeros(neighbours.shape)
        values[slot, row] = entries(weights, row, neighbours[slot, row])
        links = 2 * links + (neighbours < np.arange(self.agents))  # a number for each direction
        away = np.full((2, self.agents), NEVER, np.int32)
        for agent, first, back in self.away:
            away[:, agent] = first, back
        arrays = neighbours, values, links, np.array(self.speeds), away, self.loss
        patience = np.int32(NEVER if self.patience is None else self.patience)
        kinds = {"relay": self.relay, "split": self.split}
        parts = [jnp.asarray(array) for array in (*arrays, patience)]
        return Asynchronous(*parts, delay=self.delay, count=2 * len(self.edges), **kinds)


def asynchronous(
    network: Network,
    *,
    speeds: float | Sequence[float] | Mapping[int, float] = 1.0,
    delay: int = 1,
    loss: float = 0.0,
    patience: int | None = None,
    away: Away | None = None,
    relay: bool = False,
    split: bool = False,
) -> AsynchronousNetwork:
    """The network with agents that do not wait for each other. A step of a run is then a tick.

    speeds     steps of each agent in a tick, at most 1: one number, one for each, or {agent: speed}
               for those below 1
    delay      a message takes from 1 to so many ticks, drawn anew for each link and tick
    loss       the probability that a message does not arrive
    patience   a neighbour that is silent for more ticks than this is left out until it sends
               again; by default never
    away       {agent: (first, back)}: who is away from one tick on, and back at another, or for
               good with None
    relay      whether a slow agent goes on talking while it computes, with the last direction that
               it has finished
    split      whether every variable travels by itself, so that those of one agent may be of
               different age
    """
    remedy = "Use a fixed undirected network, with delay and loss in place of failing links."
    check_plain("An asynchronous network", network, remedy=remedy)
    table("away", {} if away is None else away, "{3: (100, 200)}")
    if fraction("loss", loss) == 1:
        raise InputError("loss must be below 1, but it is 1.")
    return AsynchronousNetwork(
        network.weights,
        f"{network.name}, asynchronous",
        network.labels,
        network.shape,
        speeds=_speeds(speeds, network.agents),
        delay=integer("delay", delay),
        loss=float(loss),
        patience=None if patience is None else integer("patience", patience),
        away=tuple(_absence(agent, times, network.agents) for agent, times in (away or {}).items()),
        relay=flag("relay", relay),
        split=flag("split", split),
    )


def _speeds(
    speeds: float | Sequence[float] | Mapping[int, float], agents: int
) -> tuple[float, ...]:
    if isinstance(speeds, Mapping):
        _known(speeds, agents)
        given = [speeds.get(agent, 1.0) for agent in range(agents)]
    elif np.ndim(speeds) == 0:
        given = [speeds] * agents
    else:
        given = list(np.asarray(speeds).tolist())
    if len(given) != agents:
        raise InputError(
            f"speeds must have one number for each of the {agents} agents, but it has {len(given)}."
        )
    return tuple(
        fraction(f"The speed of agent {i}", speed, zero=False) for i, speed in enumerate(given)
    )


def _absence(agent: int, times: tuple[int, int | None], agents: int) -> tuple[int, int, int]:
    _known({agent: times}, agents)
    if not isinstance(times, tuple | list) or len(times) != 2:
        raise InputError(
            f"away[{agent}] must be a pair (first, back), but it is {times!r}.",
            "Pass None for never back.",
        )
    first = integer(f"The first tick of away[{agent}]", times[0], least=0)
    back = (
        NEVER
        if times[1] is None
        else integer(f"The end of away[{agent}]", times[1], least=first + 1)
    )
    return agent, first, back


def _known(agents: Mapping[int, object], count: int) -> None:
    for agent in agents:
        if not isinstance(agent, int | np.integer) or not 0 <= agent < count:
            raise InputError(f"Agents have the numbers 0 to {count - 1}, but {agent!r} is named.")
