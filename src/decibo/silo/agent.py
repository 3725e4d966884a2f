"""One agent of a method as a program of its own: the state before the first step, and a step,
exchange by exchange.

    key_k           = split(fold_in(key, k))      as in the simulation: one for the network, one for
    state           = init(oracle, mix, start)    agents, into which the agent's number is folded
    state           = step(oracle, mix, state, k, fold_in(key_k, i))

An agent that does not wait may go on mixing while it computes, so that its step comes in two
programs:

    d               = direction(oracle, variables, k)  where it would go from where it began to
                                                       compute
    state           = move(mix, state, d, k)           a step along the last direction that it has

Numbers of the method, weights and data are arguments of the program, so that sites whose data have
the same shapes, and a site that starts again, run the same compiled code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.algorithm.compose import moved
from decibo.errors import InputError
from decibo.network.mixing import Mixing, Reach
from decibo.network.network import Network
from decibo.problem.problem import Functions, Oracle
from decibo.pytree import Tree
from decibo.run.jaxpr_split import Pieces, cut, is_flat, opening, shapes, traced, types
from decibo.silo.mix import Exchange, SiloMix, is_sent, messages, neighbours_of, silo_mixing


class AgentInputs(NamedTuple):
    core: Core
    mixing: Mixing
    data: Tree
    key: jax.Array  # its two words, which a compiled program takes faster than a key
    number: jax.Array


def begin(
    functions: Functions, reach: Reach, inputs: AgentInputs, start: dict[str, jax.Array]
) -> Tree:
    mix = SiloMix(inputs.mixing, jnp.int32(0), jax.random.wrap_key_data(inputs.key), reach)
    state = inputs.core.init(Oracle(functions, inputs.data), mix, start)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)


def step(
    functions: Functions, reach: Reach, inputs: AgentInputs, state: Tree, k: jax.Array
) -> Tree:
    network_key, agent_key = jax.random.split(
        jax.random.fold_in(jax.random.wrap_key_data(inputs.key), k)
    )
    mix = SiloMix(inputs.mixing, k, network_key, reach)
    key = jax.random.fold_in(agent_key, inputs.number)
    new = inputs.core.step(Oracle(functions, inputs.data), mix, state, k, key)
    return jax.tree.map(lambda old, leaf: leaf.astype(old.dtype), state, new)


def direction(
    functions: Functions, reach: Reach, inputs: AgentInputs, variables: Tree, k: jax.Array
) -> Tree:
    """The direction at a point, for a method that is a direction times a consensus strategy."""
    return inputs.core.step.args[0].direction.at(Oracle(functions, inputs.data), variables, k)


def move(
    functions: Functions, reach: Reach, inputs: AgentInputs, state: Tree, d: Tree, k: jax.Array
) -> Tree:
    mix = SiloMix(inputs.mixing, k, jax.random.wrap_key_data(inputs.key), reach)
    new = moved(inputs.core.step.args[0], mix, state, d, k)
    return jax.tree.map(lambda old, leaf: leaf.astype(old.dtype), state, new)


Program = Callable[..., Tree]  # begin, step, direction or move
# sites that are threads of a process do not trace the same program twice
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, eq=False)
class Agent:
    """Agent `number` of a network, with its own data and nothing of the others'."""

    functions: Functions
    method: Algorithm
    network: Network
    number: int
    data: Tree
    seed: int
    sums: bool = False  # whether it receives sums over its neighbours only
    _compiled: dict[object, Any] = field(default_factory=dict, init=False)

    @cached_property
    def inputs(self) -> AgentInputs:
        mixing = silo_mixing(self.network, self.number, sums=self.sums)
        key = jax.random.key_data(jax.random.key(self.seed))
        return AgentInputs(self.method.core, mixing, self.data, key, jnp.int32(self.number))

    @cached_property
    def reach(self) -> Reach:
        width, slow = self.network.reach
        return Reach(int(width), float(slow))

    @cached_property
    def neighbours(self) -> list[int]:
        """The neighbours, in the order of the rows it receives."""
        return neighbours_of(self.network, self.number)

    def begin(self, start: dict[str, jax.Array], exchange: Exchange) -> Tree:
        """The state before the first step."""
        return self._run(begin, exchange, start)

    def step(self, state: Tree, k: int, exchange: Exchange) -> Tree:
        return self._run(step, exchange, state, np.int32(k))

    def direction(self, variables: Tree, k: int) -> Tree:
        """The direction at a point; nothing is exchanged."""
        no_exchange = lambda vector: vector[None]
        return jax.block_until_ready(self._run(direction, no_exchange, variables, np.int32(k)))

    def move(self, state: Tree, d: Tree, k: int, exchange: Exchange) -> Tree:
        return self._run(move, exchange, state, d, np.int32(k))

    def next_message(self, state: Tree, k: int) -> np.ndarray:
        """What it would send first in its next step."""
        arguments = (state, np.int32(k))
        return np.asarray(self._program(_opening, step, *arguments)(self.inputs, *arguments))

    def messages(self, start: dict[str, jax.Array]) -> tuple[list[int], list[int]]:
        """How many numbers it sends to each neighbour in each exchange before the first step, and
        in each of a step."""
        state = jax.eval_shape(
            lambda *parts: begin(self.functions, self.reach, *parts), self.inputs, start
        )
        programs = [
            self._program(_traced, program, *rest)[0].jaxpr
            for program, rest in ((begin, (start,)), (step, (state, np.int32(0))))
        ]
        if not all(is_flat(program, is_sent) for program in programs):
            raise InputError(
                f"{self.method.name} exchanges messages inside a loop of its step, but between"
                " sites the host makes each exchange between two compiled pieces of a step.",
                "Use a method without inner rounds of messages, such as ahead_exact.",
            )
        return messages(programs[0]), messages(programs[1])

    def _program(self, make: Callable[..., Any], program: Program, *rest: Tree) -> Any:
        """The program as `make` makes it, for arguments of these types."""
        if (make, program) not in self._compiled:
            with _one_at_a_time:
                self._compiled[make, program] = make(
                    program, self.functions, self.reach, *types((self.inputs, *rest))
                )
        return self._compiled[make, program]

    def _run(self, program: Program, exchange: Exchange, *rest: Tree) -> Tree:
        pieces = self._program(_pieces, program, *rest)
        return pieces(lambda _, row: [exchange(np.asarray(row))], self.inputs, *rest)


@cache
def _traced(
    program: Program, functions: Functions, reach: Reach, structure: Any, kinds: tuple[Any, ...]
) -> tuple[ClosedJaxpr, Any]:
    return traced(lambda *parts: program(functions, reach, *parts), *shapes(structure, kinds))


@cache
def _opening(*of: Any) -> Callable[..., jax.Array]:
    return opening(_traced(*of)[0], is_sent)


@cache
def _pieces(*of: Any) -> Pieces:
    return cut(*_traced(*of), is_sent)
