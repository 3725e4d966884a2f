r"""A method whose agents do not wait for each other: every agent mixes the newest messages that it
has.

What an agent sends is what its step hands to `mix`; network/asynchronous.py says which of it
arrives when. In a tick

    (1)  every agent says what it would mix in its next step
    (2)  what has arrived takes the place of older messages, variable by variable if they travel
         apart
    (3)  mix(s) = s + sum_j w_ij (newest_ij - s) over the neighbours that are not left out
    (4)  agents that are awake make their step by (3), the others stay where they are

An agent computes its direction at its own point, while it is not awake, and reads messages when
that is done. One that relays reads and writes at every tick, and moves along the last direction it
has finished:

    (5)  d = the direction at the point where the agent began to compute, once it is awake; until
         then the old one

Only strategies that do without LOCKSTEP are allowed: robust_tracking is exact, dgd and atc land
O(h) off as in lockstep. The memories of tracking, EXTRA and exact diffusion are right only if every
message is mixed exactly once by both ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.algorithm.compose import Recipe, moved, recipe_of
from decibo.algorithm.compression import asked_inside, messages_of
from decibo.algorithm.prox import is_projection
from decibo.errors import InputError
from decibo.network.asynchronous import Arrivals, Asynchronous, AsynchronousNetwork
from decibo.network.mixing import AGENTS, AgentMix, How, Mixing, WrappedMix, own_row
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector

T = TypeVar("T")
TOGETHER = ""  # the parcel of all variables, where they travel together


class AsynchronousState(NamedTuple):
    """An agent that does not wait."""

    state: Tree  # of the method
    steps: jax.Array  # how many it has made
    sent: list[Tree]  # its last messages, a ring with one entry for each tick of the longest delay
    received: list[Tree]  # the newest message of each neighbour
    newest: dict[str, jax.Array]  # the ticks at which these were sent, for each parcel; -1 for none
    # if it relays: where it is computing, and the last direction that it has finished
    busy: Tree = ()


def check_asynchronous(method: Algorithm, network: AsynchronousNetwork) -> None:
    """Reject a method that needs agents in lockstep."""
    recipe = recipe_of(method)
    if network.relay and (recipe is None or recipe.estimator is not None):
        raise InputError(
            "An agent that relays follows the last direction that it has finished, but"
            f" {method.name} is not just a direction times a consensus strategy.",
            "Leave relay out, or compose the method without an estimator or wrapper.",
        )
    for strategy, maps in recipe.strategies if recipe else ():
        for name, prox in maps.items():
            if strategy.exact and prox is not None and not is_projection(prox):
                raise InputError(
                    f"The proximal map of {name} is not a projection. Agents that do not wait have"
                    " q of different size where it acts, so that only projections lead to the"
                    " solution.",
                    "Use prox.box, prox.ball or prox.simplex, or a network in lockstep.",
                )


def asynchronous_core(method: Algorithm) -> Core:
    """The method for agents that do not wait, as a compiled program needs it."""
    core = method.core
    recipe = recipe_of(method)
    return replace(
        core,
        init=Partial(_begin, core.init, core.step, recipe),
        step=Partial(_tick, core.step, recipe),
        view=Partial(asked_inside, core.view),
        chosen=None,
        rest=None if core.rest is None else Partial(asked_inside, core.rest),
    )


def core_for(mixing: Mixing, method: Algorithm) -> Core:
    """The method as a program on a network with this mixing needs it."""
    return asynchronous_core(method) if isinstance(mixing, Asynchronous) else method.core


def _mixing(mix: AgentMix) -> Asynchronous:
    return cast("Asynchronous", mix.mixing)


def _begin(
    init: Partial,
    step: Partial,
    recipe: Recipe | None,
    oracle: Oracle,
    mix: AgentMix,
    start: dict[str, Vector],
) -> AsynchronousState:
    mixing = _mixing(mix)
    state = init(oracle, mix, start)
    messages = messages_of(step, oracle, state)
    empty = lambda rows: jax.tree.map(
        lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), messages
    )
    slots = mixing.neighbours.shape[0]
    parcels = {_parcel(mixing, path) for path, _ in jax.tree_util.tree_leaves_with_path(messages)}
    never = {name: jnp.full(slots, -1, jnp.int32) for name in sorted(parcels)}
    busy: Tree = ()
    if mixing.relay and recipe is not None:
        busy = state.variables, jax.tree.map(jnp.zeros_like, state.variables)
    return AsynchronousState(state, jnp.int32(0), empty(mixing.delay), empty(slots), never, busy)


def _parcel(mixing: Asynchronous, path: tuple) -> str:
    """The parcel in which a leaf of a message travels: that of its variable, or the one of all."""
    names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
    return str(names[-1]) if mixing.split and names else TOGETHER


def _tick(
    step: Partial,
    recipe: Recipe | None,
    oracle: Oracle,
    mix: AgentMix,
    s: AsynchronousState,
    k: jax.Array,
    key: jax.Array,
) -> AsynchronousState:
    mixing = _mixing(mix)
    agent = lax.axis_index(AGENTS)
    awake = mixing.awake(agent, k)
    newest = NewestMix(mix, agent, k, s)
    busy = s.busy
    if mixing.relay:
        assert recipe is not None, "check_asynchronous refuses this"
        new, busy = _relayed(recipe, oracle, newest, s, awake)  # (5)
        moves = mixing.present(agent, k)
    else:
        new = step(oracle, newest, s.state, s.steps, key)
        moves = awake
    # (4)
    state = jax.tree.map(
        lambda new, old: jnp.where(moves, new, old).astype(old.dtype), new, s.state
    )
    return AsynchronousState(
        state, s.steps + awake, newest.sent, newest.received, newest.newest, busy
    )


def _relayed(
    recipe: Recipe, oracle: Oracle, mix: NewestMix, s: AsynchronousState, awake: jax.Array
) -> tuple[Tree, Tree]:
    begun, d = s.busy
    fresh = recipe.direction.at(oracle, begun, s.steps)
    pick = lambda new, old: jax.tree.map(lambda a, b: jnp.where(awake, a, b), new, old)
    d = pick(fresh, d)
    new = moved(recipe, mix, s.state, d, s.steps)
    return new, (pick(new.variables, begun), d)


class NewestMix(WrappedMix):
    """The mix of an agent that does not wait; used once, for the messages of one tick in their
    order."""

    def __init__(self, mix: AgentMix, agent: jax.Array, k: jax.Array, s: AsynchronousState):
        super().__init__(mix)
        self.mixing = _mixing(mix)
        self.key = mix.key
        self.agent = agent
        self.k = k
        self.before = s
        self.sent: list[Tree] = []
        self.received: list[Tree] = []
        arrivals = {name: self._arrivals(number) for number, name in enumerate(s.newest)}
        self.newer = {
            name: arrival.arrives & (arrival.made >= s.newest[name])
            for name, arrival in arrivals.items()
        }
        self.made = {name: arrival.made for name, arrival in arrivals.items()}
        self.newest = {
            name: jnp.where(self.newer[name], self.made[name], s.newest[name]) for name in arrivals
        }

    def _arrivals(self, number: int) -> Arrivals:
        assert self.key is not None
        return self.mixing.arrivals(self.agent, self.k, jax.random.fold_in(self.key, number))

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        assert how is not How.LARGEST, "only methods in lockstep ask for it"
        number = len(self.sent)
        paths, treedef = jax.tree_util.tree_flatten_with_path(tree)
        rings = jax.tree.leaves(self.before.sent[number])
        boxes = jax.tree.leaves(self.before.received[number])
        apart: list[jax.Array] = []
        for place, (path, leaf) in enumerate(paths):
            parcel = _parcel(self.mixing, path)
            rings[place] = rings[place].at[self.k % self.mixing.delay].set(leaf)  # (1)
            boxes[place] = self._received(parcel, rings[place], boxes[place])
            apart.append(self._apart(parcel, leaf, boxes[place]))
        self.sent.append(jax.tree.unflatten(treedef, rings))
        self.received.append(jax.tree.unflatten(treedef, boxes))
        change = jax.tree.unflatten(treedef, apart)
        return change if how is How.DIFFERENCE else jax.tree.map(jnp.add, tree, change)

    def _received(self, parcel: str, ring: jax.Array, box: jax.Array) -> jax.Array:
        everyone = lax.all_gather(ring, AGENTS)
        made = lax.all_gather(self.made[parcel], AGENTS)
        arrived = own_row(self.agent, self.mixing.delivered(everyone, made))
        # (2)
        return jnp.where(self.newer[parcel].reshape(-1, *(1,) * (box.ndim - 1)), arrived, box)

    def _apart(self, parcel: str, leaf: jax.Array, box: jax.Array) -> jax.Array:
        newest = self.newest[parcel]
        counts = (newest >= 0) & (self.k - newest <= self.mixing.patience)
        weights = jnp.where(counts, self.mixing.weights[:, self.agent], 0).astype(leaf.dtype)
        return jnp.tensordot(weights, box - leaf, axes=1)  # (3)
