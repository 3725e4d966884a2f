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
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.algorithm.compose import moved
from decibo.network.mixing import Mixing, Reach
from decibo.network.network import Network
from decibo.problem.problem import Functions, Oracle
from decibo.pytree import Tree
from decibo.run.jaxpr_split import Pieces, cut, is_flat, opening, shapes, traced, types
from decibo.silo.mix import Host, SiloMix, is_sent, messages, neighbours_of, silo_mixing


class AgentInputs(NamedTuple):
    """What stays the same during a run."""

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
    """One step along a direction that is known."""
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

    @cached_property
    def inputs(self) -> AgentInputs:
        """The arguments of its programs."""
        mixing = silo_mixing(self.network, self.number, sums=self.sums)
        key = jax.random.key_data(jax.random.key(self.seed))
        return AgentInputs(self.method.core, mixing, self.data, key, jnp.int32(self.number))

    @cached_property
    def reach(self) -> Reach:
        """What every agent knows about the network."""
        width, slow = self.network.reach
        return Reach(int(width), float(slow))

    @cached_property
    def neighbours(self) -> list[int]:
        """The neighbours, in the order of the rows it receives."""
        return neighbours_of(self.network, self.number)

    def begin(self, start: dict[str, jax.Array], exchange: Host) -> Tree:
        """The state before the first step."""
        return self._run(begin, exchange, start)

    def step(self, state: Tree, k: int, exchange: Host) -> Tree:
        """The state after step k."""
        return self._run(step, exchange, state, np.int32(k))

    def direction(self, variables: Tree, k: int) -> Tree:
        """The direction at a point; nothing is exchanged."""
        return jax.block_until_ready(self._run(direction, _silence, variables, np.int32(k)))

    def move(self, state: Tree, d: Tree, k: int, exchange: Host) -> Tree:
        """The state after a step along a direction that is known."""
        return self._run(move, exchange, state, d, np.int32(k))

    def next_message(self, state: Tree, k: int) -> np.ndarray:
        """What it would send first in its next step."""
        arguments = (self.inputs, state, np.int32(k))
        if not self._openings:
            with _one_at_a_time:
                self._openings.append(_opening(self.functions, self.reach, *types(arguments)))
        return np.asarray(self._openings[0](*arguments))

    def messages(
        self, start: dict[str, jax.Array]
    ) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
        """What it sends to each neighbour before the first step and in every step: how often, how
        many numbers."""
        state = jax.eval_shape(
            lambda *parts: begin(self.functions, self.reach, *parts), self.inputs, start
        )
        return (
            messages(self._traced(begin, start)[0].jaxpr),
            messages(self._traced(step, state, np.int32(0))[0].jaxpr),
        )

    def _traced(self, program: Program, *rest: Tree) -> tuple[ClosedJaxpr, Any]:
        return _traced(program, self.functions, self.reach, *types((self.inputs, *rest)))

    def _run(self, program: Program, exchange: Host, *rest: Tree) -> Tree:
        if program not in self._found:
            with _one_at_a_time:
                self._found[program] = _pieces(
                    program, self.functions, self.reach, *types((self.inputs, *rest))
                )
        pieces = self._found[program]
        if pieces is not None:
            return pieces(lambda _, row: [exchange(np.asarray(row))], self.inputs, *rest)
        self._callbacks.exchange = exchange
        return self._callbacks.run(program, self, *rest)

    @cached_property
    def _found(self) -> dict[Program, Pieces | None]:
        return {}

    @cached_property
    def _openings(self) -> list[Callable[..., jax.Array]]:
        return []  # one, once it is needed

    @cached_property
    def _callbacks(self) -> HostCallbacks:
        return HostCallbacks()


class HostCallbacks:
    """Runs programs that call the host back, and keeps the exception of an exchange from being
    wrapped by JAX."""

    def __init__(self) -> None:
        self.exchange: Host = lambda vector: vector
        self.error: BaseException | None = None
        self.programs: dict[Program, Callable[..., Tree]] = {}

    def host(self, vector: np.ndarray, rows: int) -> np.ndarray:
        """What a compiled program calls. After an error it runs on to its end, on its own
        numbers."""
        own = np.asarray(vector)
        if self.error is None:
            try:
                return self.exchange(own)
            except BaseException as error:
                self.error = error
        return np.stack([own] * rows)

    def run(self, program: Program, agent: Agent, *rest: Tree) -> Tree:
        """Run a program as a whole."""
        if program not in self.programs:
            rows = 2 if agent.sums else 1 + len(agent.neighbours)
            mixing = silo_mixing(
                agent.network, agent.number, partial(self.host, rows=rows), sums=agent.sums
            )
            whole = lambda inputs, *rest: program(
                agent.functions, agent.reach, inputs._replace(mixing=mixing), *rest
            )
            self.programs[program] = jax.jit(whole)
        result = jax.block_until_ready(self.programs[program](agent.inputs, *rest))
        error = self.error
        self.error = None
        if error is not None:
            raise error
        return result


def _silence(vector: np.ndarray) -> np.ndarray:
    raise AssertionError("a direction is found without an exchange")


@cache
def _opening(
    functions: Functions, reach: Reach, structure: Any, kinds: tuple[Any, ...]
) -> Callable[..., jax.Array]:
    return opening(_traced(step, functions, reach, structure, kinds)[0], is_sent)


@cache
def _traced(
    program: Program, functions: Functions, reach: Reach, structure: Any, kinds: tuple[Any, ...]
) -> tuple[ClosedJaxpr, Any]:
    return traced(lambda *parts: program(functions, reach, *parts), *shapes(structure, kinds))


@cache
def _pieces(
    program: Program, functions: Functions, reach: Reach, structure: Any, kinds: tuple[Any, ...]
) -> Pieces | None:
    """The program in pieces; None if an exchange stands inside a loop."""
    closed, result = _traced(program, functions, reach, structure, kinds)
    return cut(closed, result, is_sent) if is_flat(closed.jaxpr, is_sent) else None
