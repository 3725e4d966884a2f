"""The one loop: steps and records in a compiled program, in chunks of which the host knows only the
ends.

A chunk is a list of intervals; an interval is a number of steps and, if marked, a record of the
measures at its end. Lengths are arguments of the program, so that any number of steps and any
`every` use the same compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.algorithm.algorithm import Core
from decibo.data.stream import Streamed
from decibo.measure.measures import Measure, Snapshot, SpreadSnapshot
from decibo.network.mixing import AGENTS, AgentMix, Mixing, Reach
from decibo.parallel.collectives import across, agent_numbers, all_true, gather, maximum
from decibo.parallel.placement import EVERYWHERE, SPLIT, Placement
from decibo.problem.low_memory import LowMemoryOracle
from decibo.problem.problem import Functions, Oracle
from decibo.programs import jitted
from decibo.pytree import Tree

INTERVALS = 512  # the most that a chunk of one run can have: the size of its buffers
# bytes of all agents' states: beyond, a chunk changes them in place, and the state before is gone
LARGE = 1 << 28


class Program(NamedTuple):
    """What a compiled program depends on besides shapes.

    early   whether a chunk ends early, when the state stops being finite or all targets are
            reached. Runs of a batch do not, so that they never wait for each other
    memory  "normal"; "less": one gradient after another; "low": of one agent after the other, too
    """

    functions: Functions
    measures: tuple[tuple[str, Measure], ...]
    targets: tuple[str, ...] = ()
    placement: Placement | None = None
    early: bool = True
    memory: str = "normal"


class Inputs(NamedTuple):
    """What stays the same during a chunk: the method with its numbers, the network, the data, the
    seed.

    reach     width and spectral gap of the network, for methods that use them
    batches   a block of minibatches of all agents from a stream, (agents, steps, ...), if there is
              one
    first     the step that the first of them is for
    """

    core: Core
    mixing: Mixing
    data: Tree
    key: jax.Array
    known: dict[str, jax.Array]
    targets: dict[str, jax.Array]
    reach: Reach | None = None
    batches: Tree = None
    first: jax.Array | None = None


class Chunk(NamedTuple):
    """Intervals to run: how many steps each has, whether it ends with a record, and how many there
    are.

    missed   whether the targets were missed at an earlier record; without that, reaching them does
             not end a run
    """

    steps: np.ndarray
    record: np.ndarray
    length: np.int32
    missed: np.bool_

    @classmethod
    def of(
        cls, steps: np.ndarray, record: np.ndarray, size: int = INTERVALS, *, missed: bool = False
    ) -> Chunk:
        """Intervals padded to the size of the buffers."""
        rest = (0, size - len(steps))
        return cls(
            np.pad(steps, rest).astype(np.int32),
            np.pad(record, rest),
            np.int32(len(steps)),
            np.bool_(missed),
        )

    @classmethod
    def silent(cls, steps: int, intervals: int = 1) -> Chunk:
        """So many steps in intervals of nearly equal length, without a record."""
        lengths = np.diff(np.arange(intervals + 1) * steps // intervals)
        return cls.of(lengths, np.zeros(intervals, bool))


class Progress(NamedTuple):
    """Where a chunk ended."""

    state: Tree
    k: jax.Array  # the steps done
    interval: jax.Array  # the intervals done
    rows: dict[str, jax.Array]  # the records, one entry for each interval
    finite: jax.Array  # whether the state was finite at the end of each interval
    alive: jax.Array  # whether it has always been
    missed: jax.Array  # whether a target has been missed at some record
    reached: jax.Array  # whether all targets are, after that
    votes: jax.Array  # the element-wise maximum of the processes' votes


# Which parts of the inputs are the same everywhere, and which are split over devices.
INPUTS: Any = Inputs(*(EVERYWHERE, SPLIT, SPLIT, *(EVERYWHERE,) * 4, SPLIT, EVERYWHERE))  # type: ignore[arg-type]
PROGRESS: Any = Progress(SPLIT, *(EVERYWHERE,) * 8)  # type: ignore[arg-type]


@jitted()
def begin(program: Program, inputs: Inputs, start: dict[str, jax.Array]) -> Tree:
    """The state of all agents before the first step."""

    def here(inputs: Inputs, start: dict[str, jax.Array]) -> Tree:
        mix = AgentMix(inputs.mixing, jnp.int32(0), inputs.key, inputs.reach)
        one = lambda d, s: inputs.core.init(Oracle(program.functions, d), mix, s)
        state = jax.vmap(one, axis_name=AGENTS)(inputs.data, start)
        # not shared, not weakly typed
        own = lambda leaf: lax.optimization_barrier(jnp.asarray(leaf, leaf.dtype))
        return jax.tree.map(own, state)

    if program.placement is None:
        return here(inputs, start)
    return across(program.placement, here, (INPUTS, SPLIT), SPLIT)(inputs, start)


def step(program: Program, inputs: Inputs, state: Tree, k: jax.Array) -> Tree:
    """One step of all agents."""
    network_key, agent_key = jax.random.split(jax.random.fold_in(inputs.key, k))
    mix = AgentMix(inputs.mixing, k, network_key, inputs.reach)
    count = jax.tree.leaves(state)[0].shape[0]
    numbers = jnp.arange(count) if program.placement is None else agent_numbers()
    keys = jax.vmap(jax.random.fold_in, (None, 0))(agent_key, numbers)

    def one(d: Tree, batches: Tree, s: Tree, key: jax.Array) -> Tree:
        functions = program.functions
        if isinstance(functions.sample, Streamed) and inputs.first is not None:
            place = k - inputs.first
            pick = lambda leaf: lax.dynamic_index_in_dim(leaf, place, keepdims=False)
            batch = functions.sample.bringing(jax.tree.map(pick, batches))
            functions = functions._replace(sample=batch)
        oracle = Oracle(functions, d)
        if program.memory != "normal":
            oracle = LowMemoryOracle(functions, d, one_agent_at_a_time=program.memory == "low")
        return inputs.core.step(oracle, mix, s, k, key)

    new = jax.vmap(one, axis_name=AGENTS)(inputs.data, inputs.batches, state, keys)
    return jax.tree.map(lambda old, leaf: leaf.astype(old.dtype), state, new)


def observe(program: Program, inputs: Inputs, state: Tree, k: jax.Array) -> dict[str, jax.Array]:
    """All measures at a state."""
    core = inputs.core
    rows = jax.vmap(core.view)(state)
    left = None if core.rest is None else jax.vmap(core.rest)(state)
    kind = Snapshot if program.placement is None else SpreadSnapshot
    snapshot = kind(
        program.functions, inputs.data, rows, k, inputs.known, core.direction, core.answer, left
    )
    return {name: jnp.asarray(measure(snapshot)) for name, measure in program.measures}


def _chunk(
    program: Program,
    inputs: Inputs,
    state: Tree,
    k: jax.Array | np.int32,
    chunk: Chunk,
    votes: jax.Array | None = None,
) -> Progress:
    """Run a chunk from step k.

    `votes` is for processes that must agree: a row of numbers from each device, of which all get
    the maximum.
    """
    if program.placement is None:
        return _intervals(program, inputs, state, k, chunk, jnp.zeros(1))
    ins = (INPUTS, SPLIT, EVERYWHERE, EVERYWHERE, SPLIT)
    here = lambda inputs, state, k, chunk, votes: _intervals(
        program, inputs, state, k, chunk, maximum(votes[0])
    )
    return across(program.placement, here, ins, PROGRESS)(inputs, state, k, chunk, votes)


advance = jitted()(_chunk)
# the state before is gone
advance_in_place = jitted(donate_argnames="state")(_chunk)


def _intervals(
    program: Program, inputs: Inputs, state: Tree, k: Any, chunk: Chunk, agreed: jax.Array
) -> Progress:
    size = chunk.steps.shape[0]
    measured = jax.jit(partial(observe, program))  # traced once, for the shapes and for the records
    shapes = jax.eval_shape(measured, inputs, state, k)
    rows = {name: jnp.zeros((size, *row.shape), row.dtype) for name, row in shapes.items()}

    def more(at: Progress) -> jax.Array:
        left = at.interval < chunk.length
        return left & at.alive & ~at.reached if program.early else left

    def interval(at: Progress) -> Progress:
        n = chunk.steps[at.interval]
        state = lax.fori_loop(0, n, lambda i, s: step(program, inputs, s, at.k + i), at.state)
        k = at.k + n
        finite = all_finite(state)
        if program.placement is not None:
            finite = all_true(finite)

        def record() -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
            # A lost run must not keep others of its batch waiting: exact measures iterate until all
            # have converged.
            clean = lambda leaf: (
                leaf if program.early else jnp.where(finite, leaf, jnp.zeros_like(leaf))
            )
            records = measured(inputs, jax.tree.map(clean, state), k)
            rows = {name: at.rows[name].at[at.interval].set(records[name]) for name in records}
            met = [jnp.all(records[name] <= inputs.targets[name]) for name in program.targets]
            all_met = jnp.all(jnp.array(met)) if met else jnp.array(False)
            return rows, at.missed | ~all_met, at.missed & all_met

        rows, missed, reached = lax.cond(
            chunk.record[at.interval], record, lambda: (at.rows, at.missed, jnp.array(False))
        )
        always = at.finite.at[at.interval].set(finite)
        return Progress(
            state, k, at.interval + 1, rows, always, at.alive & finite, missed, reached, agreed
        )

    finite = jnp.zeros(size, bool)
    missed = jnp.asarray(chunk.missed)
    start = Progress(
        state, k, jnp.int32(0), rows, finite, jnp.array(True), missed, jnp.array(False), agreed
    )
    return lax.while_loop(more, interval, start)


def last_finite(
    program: Program, inputs: Inputs, state: Tree, step: int, limit: int
) -> tuple[Tree, int]:
    """The last state before a number stops being finite, and its step; or the state at `limit`."""
    while step < limit:
        count = min(INTERVALS, limit - step)
        end = advance(program, inputs, state, np.int32(step), Chunk.silent(count, count))
        if not end.alive:
            good = int(end.interval) - 1
            last = advance(program, inputs, state, np.int32(step), Chunk.silent(good))
            return last.state, step + good
        state = end.state
        step += count
    return state, step


def is_large(state: Tree) -> bool:
    """Whether there should be only one such state at a time."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) > LARGE


def all_finite(tree: Tree) -> jax.Array:
    """Whether every floating-point number of a tree is finite."""
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in _floats(tree)]))


def largest(tree: Tree) -> jax.Array:
    """The largest floating-point number of a tree in absolute value."""
    # On several CPU devices each of these is a collective, and XLA runs on one pool of threads what
    # does not wait: with threads of two collectives in it, neither comes together, and after 40 s
    # the process is ended (jaxlib 0.10.2, a busy machine, 30 leaves on eight devices).
    leaves = _floats(jax.block_until_ready(tree))
    return reduce(jnp.maximum, (jax.block_until_ready(_largest(leaf)) for leaf in leaves))


# Compiled for every shape and not for every tree: most methods keep arrays of the same shapes.
_largest = jax.jit(lambda leaf: jnp.max(jnp.abs(leaf), initial=0))


def _floats(tree: Tree) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


@jitted()
def values(
    functions: Functions, data: Tree, X: jax.Array, Y: jax.Array, key: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Every agent's f and g at its own point; with a key on a minibatch, where all data would be
    too much."""

    def one(d: Tree, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        oracle = Oracle(functions, d) if key is None else Oracle(functions, d).sampled(key)
        return oracle.outer_value(x, y), oracle.inner_value(x, y)

    return jax.vmap(one)(data, X, Y)


@jitted(static=2)
def mean_values(
    functions: Functions, count: int, data: Tree, X: jax.Array, Y: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The means of every agent's f and g over a fixed list of batches, at its own point."""

    def one(d: Tree, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        on = lambda j: Oracle(functions, d).batch(j)
        values = lax.map(
            lambda j: (on(j).outer_value(x, y), on(j).inner_value(x, y)), jnp.arange(count)
        )
        return jnp.mean(values[0]), jnp.mean(values[1])

    return jax.vmap(one)(data, X, Y)


@jitted()
def chosen_of(program: Program, inputs: Inputs, state: Tree) -> dict[str, jax.Array]:
    """The step sizes that all agents have come to, of a method that chooses them."""
    return _gathered(program, lambda core: core.chosen, inputs, state)


@jitted()
def rows_of(program: Program, inputs: Inputs, state: Tree) -> dict[str, jax.Array]:
    """The variables of all agents as rows."""
    return _gathered(program, lambda core: core.view, inputs, state)


def _gathered(
    program: Program, part: Callable[[Core], Any], inputs: Inputs, state: Tree
) -> dict[str, jax.Array]:
    here = lambda inputs, state: jax.vmap(part(inputs.core))(state)
    if program.placement is None:
        return here(inputs, state)
    everyone = lambda inputs, state: jax.tree.map(gather, here(inputs, state))
    return across(program.placement, everyone, (INPUTS, SPLIT), EVERYWHERE)(inputs, state)
