"""The one loop: steps and recording in a compiled program, in stretches of which the host knows only the ends.

A stretch is a list of segments; a segment is some steps and, if marked, a record of the measures. Lengths are
arguments of the program, so that any number of steps and any `every` use the same compiled code.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from decibo.measure.measures import Measure, Snapshot
from decibo.network.mixing import AGENTS, mixer
from decibo.parallel.collectives import across, agent_numbers, all_true, gather, maximum
from decibo.parallel.placement import EVERYWHERE, SPLIT, Placement
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions
from decibo.pytree import Tree

SEGMENTS = 512  # the most segments a stretch can have: the size of its buffers


class Program(NamedTuple):
    """What a compiled program depends on besides shapes."""

    functions: Functions
    measures: tuple[tuple[str, Measure], ...]
    targets: tuple[str, ...]
    place: Placement | None = None  # where the agents are; None if all are on one device


class World(NamedTuple):
    """What stays the same during a run: the method's numbers, the network, the data, the seed."""

    core: Any
    mixing: Any
    data: Tree
    key: jax.Array
    known: dict[str, jax.Array]
    targets: dict[str, jax.Array]


class Stretch(NamedTuple):
    """Segments to run: how many steps each has and whether it ends with a record."""

    steps: jax.Array
    record: jax.Array
    length: jax.Array


class Progress(NamedTuple):
    """Where a stretch ended: the state, the steps done, what was recorded, and why it ended."""

    state: Tree
    k: jax.Array
    segment: jax.Array
    rows: dict[str, jax.Array]
    finite: jax.Array
    reached: jax.Array
    word: jax.Array  # of all that processes said, the largest of each number


# Which parts of a world are the same everywhere, and which are split over devices.
WORLD = World(EVERYWHERE, SPLIT, SPLIT, EVERYWHERE, EVERYWHERE, EVERYWHERE)  # type: ignore[arg-type]


@partial(jax.jit, static_argnames="program")
def begin(program: Program, world: World, start: dict[str, jax.Array]) -> Tree:
    """The state of all agents before the first step."""

    def here(world: World, start: dict[str, jax.Array]) -> Tree:
        mix = mixer(world.mixing, jnp.int32(0), world.key)
        one = jax.vmap(lambda d, s: world.core.init(Oracle(program.functions, d), mix, s), axis_name=AGENTS)
        state = one(world.data, start)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)  # nothing weakly typed

    return across(program.place, here, (WORLD, SPLIT), SPLIT)(world, start)


def step(program: Program, world: World, state: Tree, k: jax.Array) -> Tree:
    """One step of all agents."""
    network_key, agent_key = jax.random.split(jax.random.fold_in(world.key, k))
    mix = mixer(world.mixing, k, network_key)
    m = jax.tree.leaves(state)[0].shape[0]
    keys = jax.vmap(jax.random.fold_in, (None, 0))(agent_key, agent_numbers(m))
    one = lambda d, s, key: world.core.step(Oracle(program.functions, d), mix, s, k, key)
    new = jax.vmap(one, axis_name=AGENTS)(world.data, state, keys)
    return jax.tree.map(lambda old, leaf: leaf.astype(old.dtype), state, new)


def observe(program: Program, world: World, state: Tree, k: jax.Array) -> dict[str, jax.Array]:
    """All measures at a state."""
    core = world.core
    rows = jax.vmap(core.view)(state)
    snapshot = Snapshot(program.functions, world.data, rows, k, world.known, core.direction, core.answer)
    return {name: jnp.asarray(measure(snapshot)) for name, measure in program.measures}


def all_finite(tree: Tree) -> jax.Array:
    """Whether every floating-point number of a tree is finite, for all agents."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all_true(jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in floats])))


@jax.jit
def largest(tree: Tree) -> jax.Array:
    """The largest floating-point number of a tree in size."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.max(jnp.array([jnp.max(jnp.abs(leaf), initial=0) for leaf in floats]))


@partial(jax.jit, static_argnames="program")
def advance(
    program: Program, world: World, state: Tree, k: jax.Array, stretch: Stretch, say: jax.Array | None = None
) -> Progress:
    """Run a stretch; end early when the state stops being finite or every target is reached.

    `say` is for processes that must agree: a row of numbers from each device, of which all hear the largest.
    """
    run = across(
        program.place,
        partial(_advance, program),
        (WORLD, SPLIT, EVERYWHERE, EVERYWHERE, SPLIT),
        Progress(SPLIT, *(EVERYWHERE,) * 6),  # type: ignore[arg-type]
    )
    return run(world, state, k, stretch, jnp.zeros((1, 1)) if say is None else say)


def _advance(program: Program, world: World, state: Tree, k: jax.Array, stretch: Stretch, say: jax.Array) -> Progress:
    shapes = jax.eval_shape(partial(observe, program), world, state, k)
    rows = {name: jnp.zeros((SEGMENTS, *row.shape), row.dtype) for name, row in shapes.items()}
    word = maximum(say[0])

    def segment(at: Progress) -> Progress:
        n = stretch.steps[at.segment]
        state = lax.fori_loop(0, n, lambda i, s: step(program, world, s, at.k + i), at.state)
        k = at.k + n

        def record() -> tuple[dict[str, jax.Array], jax.Array]:
            seen = observe(program, world, state, k)
            rows = {name: at.rows[name].at[at.segment].set(seen[name]) for name in seen}
            reached = [jnp.all(seen[name] <= world.targets[name]) for name in program.targets]
            return rows, jnp.all(jnp.array(reached)) if reached else jnp.array(False)

        rows, reached = lax.cond(stretch.record[at.segment], record, lambda: (at.rows, jnp.array(False)))
        return Progress(state, k, at.segment + 1, rows, all_finite(state), reached, word)

    first = Progress(state, k, jnp.int32(0), rows, jnp.array(True), jnp.array(False), word)
    return lax.while_loop(lambda at: (at.segment < stretch.length) & at.finite & ~at.reached, segment, first)


@partial(jax.jit, static_argnames="program")
def locate(
    program: Program, world: World, state: Tree, k: jax.Array, limit: jax.Array
) -> tuple[Tree, jax.Array, jax.Array]:
    """Step by step until the state stops being finite: the last good state, its step, and whether it happened."""

    def more(carry: Any) -> jax.Array:
        _, _, at, finite, limit = carry
        return finite & (at < limit)

    def here(world: World, state: Tree, k: jax.Array, limit: jax.Array) -> tuple[Tree, jax.Array, jax.Array]:
        def one(carry: Any) -> Any:
            _, state, at, _, limit = carry
            new = step(program, world, state, at)
            return state, new, at + 1, all_finite(new), limit

        good, last, at, finite, _ = lax.while_loop(more, one, (state, state, k, all_finite(state), limit))
        kept = jax.tree.map(lambda g, s: jnp.where(finite, s, g), good, last)
        return kept, at - ~finite, ~finite

    run = across(program.place, here, (WORLD, SPLIT, EVERYWHERE, EVERYWHERE), (SPLIT, EVERYWHERE, EVERYWHERE))
    return run(world, state, k, limit)


@partial(jax.jit, static_argnames="functions")
def values(functions: Functions, data: Tree, X: jax.Array, Y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Every agent's f and g at its own point."""
    one = lambda d, x, y: (Oracle(functions, d).outer_value(x, y), Oracle(functions, d).inner_value(x, y))
    return jax.vmap(one)(data, X, Y)


@partial(jax.jit, static_argnames="program")
def rows_of(program: Program, world: World, state: Tree) -> dict[str, jax.Array]:
    """The variables of all agents as rows."""

    def here(world: World, state: Tree) -> dict[str, jax.Array]:
        return {name: gather(rows) for name, rows in jax.vmap(world.core.view)(state).items()}

    return across(program.place, here, (WORLD, SPLIT), EVERYWHERE)(world, state)
