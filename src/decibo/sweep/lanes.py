"""Lanes: many runs of one problem in one compiled program, unlike in the method's numbers, seed, start or network.

A lane that stops being finite does not stop the others. Steps between two records are arguments of the program, as in
`loop`, so that any number of steps uses the same compiled code; the number of lanes is part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.execute import loop
from decibo.pytree import Tree

SEGMENTS = 64  # the most segments a stretch can have: the size of its buffers
SECONDS = 0.5  # how long a stretch should take: often enough for progress, too seldom to be felt
Report = Callable[[int, np.ndarray], None]


class Lanes(NamedTuple):
    """The worlds and starts of all lanes; what is named in `own` has a leading axis of lanes, the rest is shared."""

    world: loop.World
    start: dict[str, jax.Array]
    own: tuple[str, ...]  # of core, mixing, key, start


class Seen(NamedTuple):
    """Where a stretch of all lanes ended: states, what was recorded and which lanes were finite at each segment."""

    state: Tree
    rows: dict[str, jax.Array]  # (lanes, SEGMENTS, ...)
    finite: jax.Array  # (lanes, SEGMENTS)


def stack(trees: Sequence[Tree]) -> Tree:
    """Trees of one structure along a new first axis; numbers from Python stay weakly typed."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def take(lanes: Lanes, places: np.ndarray) -> Lanes:
    """These lanes only; all of them, in order, are taken as they are, which compiles nothing."""
    if len(places) == count(lanes) and (places == np.arange(len(places))).all():
        return lanes
    pick = lambda name, tree: jax.tree.map(lambda leaf: leaf[places], tree) if name in lanes.own else tree
    world = lanes.world._replace(**{name: pick(name, getattr(lanes.world, name)) for name in ("core", "mixing", "key")})
    return Lanes(world, pick("start", lanes.start), lanes.own)


def count(lanes: Lanes) -> int:
    """How many lanes there are."""
    parts = [lanes.start if name == "start" else getattr(lanes.world, name) for name in lanes.own]
    return jax.tree.leaves(parts)[0].shape[0]


def begin(program: loop.Program, lanes: Lanes) -> Tree:
    """The states of all lanes before the first step."""
    return _begin(program, lanes.own, lanes.world, lanes.start)


def advance(program: loop.Program, lanes: Lanes, state: Tree, k: int, steps: np.ndarray, record: np.ndarray) -> Seen:
    """Run these segments of all lanes."""
    return _advance(program, lanes.own, lanes.world, state, jnp.int32(k), stretch(steps, record))


def run(
    program: loop.Program, lanes: Lanes, steps: np.ndarray, record: np.ndarray, report: Report | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Run all segments: the records of each lane, NaN once it is lost, and whether it was finite after each segment.

    In between the host calls report(steps done, which lanes are finite); once none is, the rest is not run.
    """
    state, parts, finite, done, count = begin(program, lanes), [], [], 0, 1
    while done < len(steps):
        begun, part = time.perf_counter(), slice(done, done + count)
        seen = advance(program, lanes, state, int(steps[:done].sum()), steps[part], record[part])
        state, ran = seen.state, len(steps[part])
        finite.append(np.asarray(seen.finite)[:, :ran])
        parts.append({name: np.asarray(row)[:, :ran][:, record[part]] for name, row in seen.rows.items()})
        done += ran
        if report is not None:
            report(int(steps[:done].sum()), finite[-1][:, -1])
        if not finite[-1][:, -1].any():
            break
        count = int(np.clip(count * min(8.0, SECONDS / max(time.perf_counter() - begun, 1e-6)), 1, SEGMENTS))
    held = np.concatenate(finite, axis=1)
    alive = np.logical_and.accumulate(held, axis=1)[:, record[: held.shape[1]]]
    rows = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    return {name: _masked(row, alive) for name, row in rows.items()}, held


def _masked(row: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """NaN where a lane was not finite any more."""
    return row if alive.all() else np.where(alive.reshape(alive.shape + (1,) * (row.ndim - 2)), row, np.nan)


def stretch(steps: np.ndarray, record: np.ndarray) -> loop.Stretch:
    """Segments padded to the size of the buffers."""
    rest = (0, SEGMENTS - len(steps))
    lengths = jnp.asarray(np.pad(steps, rest), jnp.int32)
    return loop.Stretch(lengths, jnp.asarray(np.pad(record, rest)), jnp.int32(len(steps)))


def memory(program: loop.Program, lanes: Lanes) -> int:
    """Bytes that the compiled program of all these lanes needs besides the data; compiles it, which is not wasted."""
    state = jax.eval_shape(partial(_begin, program, lanes.own), lanes.world, lanes.start)
    none = stretch(np.zeros(0, np.int32), np.zeros(0, bool))
    found = _advance.lower(program, lanes.own, lanes.world, state, jnp.int32(0), none).compile().memory_analysis()
    own = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return own + int(found.temp_size_in_bytes + found.output_size_in_bytes) if found is not None else 4 * own


@partial(jax.jit, static_argnames=("program", "own"))
def _begin(program: loop.Program, own: tuple[str, ...], world: loop.World, start: Tree) -> Tree:
    state = _each(partial(loop.begin, program), own, world, start, "start" in own)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)  # nothing weakly typed


@partial(jax.jit, static_argnames=("program", "own"))
def _advance(
    program: loop.Program, own: tuple[str, ...], world: loop.World, state: Tree, k: jax.Array, asked: loop.Stretch
) -> Seen:
    return _each(lambda w, s: _path(program, w, s, k, asked), own, world, state, True)


def _each(one: Any, own: tuple[str, ...], world: loop.World, other: Tree, own_other: bool) -> Any:
    """one(world, other) for every lane; a single lane runs as it would alone, without an axis of lanes."""
    first = lambda tree: jax.tree.map(lambda leaf: leaf[0], tree)
    axes = [0 if name in own else None for name in loop.World._fields]
    parts = [part for part, axis in zip(world, axes, strict=True) if axis == 0] + [other] * own_other
    if {leaf.shape[0] for leaf in jax.tree.leaves(parts)} == {1}:
        chosen: Any = (first(part) if axis == 0 else part for part, axis in zip(world, axes, strict=True))
        lone = loop.World(*chosen)
        found = one(lone, first(other) if own_other else other)
        return jax.tree.map(lambda leaf: leaf[None], found)
    return jax.vmap(one, in_axes=(loop.World(*axes), 0 if own_other else None))(world, other)  # type: ignore[arg-type]


def _path(program: loop.Program, world: loop.World, state: Tree, k: jax.Array, asked: loop.Stretch) -> Seen:
    """The segments of one lane. Nothing here depends on a lane's numbers, so that lanes never wait for each other."""
    shapes = jax.eval_shape(partial(loop.observe, program), world, state, k)
    rows = {name: jnp.zeros((SEGMENTS, *row.shape), row.dtype) for name, row in shapes.items()}

    def segment(at: tuple[jax.Array, jax.Array, Seen]) -> tuple[jax.Array, jax.Array, Seen]:
        i, k, seen = at
        n = asked.steps[i]
        state = lax.fori_loop(0, n, lambda j, s: loop.step(program, world, s, k + j), seen.state)

        finite = loop.all_finite(state)

        def record() -> dict[str, jax.Array]:
            # A lane that is lost must not keep the others waiting: exact measures iterate until all lanes agree.
            usable = jax.tree.map(lambda leaf: jnp.where(finite, leaf, jnp.zeros_like(leaf)), state)
            now = loop.observe(program, world, usable, k + n)
            return {name: seen.rows[name].at[i].set(now[name]) for name in now}

        rows = lax.cond(asked.record[i], record, lambda: seen.rows)
        return i + 1, k + n, Seen(state, rows, seen.finite.at[i].set(finite))

    first = Seen(state, rows, jnp.zeros(SEGMENTS, bool))
    return lax.while_loop(lambda at: at[0] < asked.length, segment, (jnp.int32(0), k, first))[2]
