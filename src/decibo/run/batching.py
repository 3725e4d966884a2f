"""Batches: many runs of one problem in one compiled program, and how many of them run together.

The runs of a batch may differ in the method's numbers, the seed, the start and the network. A run
that stops being finite does not stop the others. How many run together is what fits into memory and
is faster than one after another:

    (1)  a batch may take a quarter of the memory that is free
    (2)  on a CPU it should fit into the cache, or not be larger than the data, which all runs read
         together
    (3)  if a long sweep lies ahead, one run alone is timed as well, and the faster way is taken

Runs that stream more memory than they share gain nothing from running together; then (2) gives 1.
What was found is remembered for the next sweep of the same program: a search makes many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from decibo.programs import jitted, weak
from decibo.pytree import Tree
from decibo.run import loop
from decibo.run.checkpoint import RunState
from decibo.run.jaxpr_split import types
from decibo.run.loop import Chunk, Inputs, Program, Progress
from decibo.run.outcome import SMALL_Y
from decibo.run.run import SECONDS, Clock, Ended, Plan
from decibo.run.solution import Status

INTERVALS = 64  # the most that a chunk of a batch can have: the size of its buffers
SHARE = 0.25  # of the free memory
CACHE = 8 << 20  # bytes
LONG = 20.0  # seconds from which on timing a run alone is worth its compilation
TRIAL = 0.02  # seconds that a trial should take at least
REMEMBERED = 64  # batch sizes: a search makes many sweeps of the same program

Result = TypeVar("Result")


class Batch(NamedTuple):
    """The inputs and starts of all runs; what is named in `own` has a leading axis of runs, the
    rest is shared."""

    inputs: Inputs
    start: dict[str, jax.Array]
    own: tuple[str, ...]  # of core, mixing, reach, key, start

    @property
    def size(self) -> int:
        """How many runs there are."""
        parts = [self.start if name == "start" else getattr(self.inputs, name) for name in self.own]
        return jax.tree.leaves(parts)[0].shape[0]

    def take(self, places: np.ndarray) -> Batch:
        """These runs only; all of them, in order, are taken as they are, which compiles nothing."""
        if np.array_equal(places, np.arange(self.size)):
            return self
        pick = lambda name, tree: (
            jax.tree.map(lambda leaf: leaf[places], tree) if name in self.own else tree
        )
        names = ("core", "mixing", "reach", "key")
        parts = {name: pick(name, getattr(self.inputs, name)) for name in names}
        return Batch(self.inputs._replace(**parts), pick("start", self.start), self.own)


def stack(trees: Sequence[Tree]) -> Tree:
    """Trees of one structure along a new first axis; numbers from Python stay weakly typed."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def _each(
    one: Callable[[Inputs, Tree], Result],
    own: tuple[str, ...],
    inputs: Inputs,
    other: Tree,
    own_other: bool,
) -> Result:
    """one(inputs, other) for every run."""
    axes = {name: 0 if name in own else None for name in Inputs._fields}
    separate = {name: getattr(inputs, name) for name in own if name in axes}
    parts = [*separate.values(), *([other] if own_other else [])]
    if {leaf.shape[0] for leaf in jax.tree.leaves(parts)} == {1}:
        # A single run goes as it would alone, without an axis of runs.
        first = lambda tree: jax.tree.map(lambda leaf: leaf[0], tree)
        alone = inputs._replace(**{name: first(part) for name, part in separate.items()})
        result = one(alone, first(other) if own_other else other)
        return jax.tree.map(lambda leaf: leaf[None], result)
    return jax.vmap(one, in_axes=(Inputs(**axes), 0 if own_other else None))(inputs, other)  # type: ignore[arg-type]


@jitted(static=2)
def _begin(program: Program, own: tuple[str, ...], inputs: Inputs, start: Tree) -> Tree:
    state = _each(partial(loop.begin, program), own, inputs, start, "start" in own)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)  # nothing weakly typed


@jitted(static=2)
def _advance(
    program: Program, own: tuple[str, ...], inputs: Inputs, state: Tree, k: jax.Array, chunk: Chunk
) -> Progress:
    one = lambda inputs, state: loop.advance(program, inputs, state, k, chunk)
    return _each(one, own, inputs, state, True)


def begin(program: Program, batch: Batch) -> Tree:
    """The states of all runs before the first step."""
    return _begin(program, batch.own, batch.inputs, batch.start)


def advance(
    program: Program, batch: Batch, state: Tree, k: int, steps: np.ndarray, record: np.ndarray
) -> Progress:
    """Run these intervals of all runs."""
    chunk = Chunk.of(steps, record, INTERVALS)
    return _advance(program, batch.own, batch.inputs, state, jnp.int32(k), chunk)


class BatchStepper:
    """Makes the steps of all runs of a batch. Their records, those of the first `count` runs, come
    with an axis of runs behind that of records, NaN from where a run is not finite."""

    def __init__(self, program: Program, batch: Batch, plan: Plan, count: int):
        self.program = program
        self.batch = batch
        self.plan = plan
        self.runs = count
        self.clock = Clock()
        self.count = 1  # intervals at a time
        self.alive = np.ones(batch.size, bool)

    def begin(self) -> RunState:
        state = begin(self.program, self.batch)
        history = {"step": np.zeros(0, int)}
        history |= {name: np.zeros((0, 0)) for name, _ in self.program.measures}
        return RunState(0, state, history)

    def advance(
        self, state: RunState, until: int, stop: str | None
    ) -> tuple[RunState, Ended | None]:
        self.clock.lap()
        begun = time.perf_counter()
        ends, record = self.plan.intervals(state, until, self.count)
        steps = np.diff(ends, prepend=state.step)
        end = advance(self.program, self.batch, state.agents, state.step, steps, record)
        finite = np.asarray(end.finite)[:, : len(ends)]  # waits for the device
        seconds = state.seconds.plus(self.clock.lap())

        # A run that was not finite once has no records from there on, even if it comes back.
        always = self.alive[:, None] & np.logical_and.accumulate(finite, axis=1)
        self.alive = always[:, -1]
        history = {"step": np.concatenate([state.history["step"], ends[record]])}
        for name, values in end.rows.items():
            row = np.asarray(values)[:, : len(ends)]
            if not always.all():
                row = np.where(always.reshape(*always.shape, *(1,) * (row.ndim - 2)), row, np.nan)
            new = np.moveaxis(row[: self.runs, record], 0, 1)
            old = state.history[name]
            history[name] = np.concatenate([old, new]) if len(old) else new
        state = RunState(int(ends[-1]), end.state, history, seconds)
        growth = min(8.0, SECONDS / max(time.perf_counter() - begun, 1e-6))
        self.count = int(np.clip(self.count * growth, 1, INTERVALS))
        if not finite[:, -1].any():
            return state, Ended(Status.diverged)
        if stop is not None and state.step < self.plan.steps:
            return state, Ended(Status.interrupted)
        return state, None

    def close(self) -> None:
        pass


@jitted(static=2)
def _seen(
    program: Program, own: tuple[str, ...], inputs: Inputs, state: Tree
) -> tuple[jax.Array, list[jax.Array]]:
    def one(inputs: Inputs, state: Tree) -> tuple[jax.Array, list[jax.Array]]:
        rows = jax.vmap(inputs.core.view)(state) if program.functions.y.size <= SMALL_Y else {}
        inner = [jnp.mean(rows[name], axis=0) for name in (inputs.core.answer, "z") if name in rows]
        return loop.largest(state), inner

    return _each(one, own, inputs, state, True)


def look(program: Program, batch: Batch, state: Tree) -> tuple[np.ndarray, list[np.ndarray]]:
    """The largest number of each run's state in absolute value; and the means of its y and z, if
    they are small."""
    return jax.tree.map(np.asarray, _seen(program, batch.own, batch.inputs, state))


# by program: the runs to run together, and the bytes that they take
_found: dict[Hashable, tuple[int, float]] = {}


def batch_size(program: Program, batch: Batch, count: int, data: Tree, steps: int) -> int:
    """Runs to run together, all batches being about equal."""
    limit = SHARE * free_memory()
    key = (weak(program), batch.own, types((batch.inputs, batch.start)), count, steps)
    if key in _found and _found[key][1] <= limit:
        return _found[key][0]
    # (1), (2): from a first guess, until the compiled program says what it needs.
    best = limit if jax.default_backend() != "cpu" else min(limit, max(CACHE, nbytes(data)))
    state = jax.eval_shape(lambda: begin(program, batch.take(np.arange(1))))
    need = max(1.0, 4 * nbytes(state))  # of one run
    size = _even(count, best / need)
    for _ in range(3):
        if size == 1:
            break
        need = memory(program, batch.take(np.arange(size))) / size
        if size * need <= 1.5 * best and size * need <= limit:
            break
        size = _even(count, best / need)
    # (3)
    if size > 1:
        together = _seconds(program, batch.take(np.arange(size))) / size
        is_long = together * steps * count >= LONG
        if is_long and _seconds(program, batch.take(np.arange(1))) < together:
            size = 1
    # Where memory is short now, there may be more the next time: then nothing is remembered.
    if best < limit or size == count:
        while len(_found) >= REMEMBERED:
            _found.pop(next(iter(_found)))
        _found[key] = (size, size * need if size > 1 else 0.0)
    return size


def memory(program: Program, batch: Batch) -> int:
    """Bytes that the compiled program of all these runs needs besides the data; compiles it, which
    is not wasted."""
    state = jax.eval_shape(partial(_begin, program, batch.own), batch.inputs, batch.start)
    none = Chunk.of(np.zeros(0, np.int32), np.zeros(0, bool), INTERVALS)
    lowered = _advance.lower(program, batch.own, batch.inputs, state, jnp.int32(0), none)
    analysis = lowered.compile().memory_analysis()
    own = nbytes(state)
    if analysis is None:
        return 4 * own
    return own + int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes)


def nbytes(tree: Tree) -> int:
    """Bytes of all leaves, arrays or shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def free_memory() -> float:
    """Bytes that are still free: of the device, or of this machine or container."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        free = 1024.0 * int(line.split()[1])
    except (OSError, StopIteration, ValueError):
        free = float(4 << 30)  # not Linux: a modest guess
    # A container sees the memory of the whole machine in /proc; its own limit is in its cgroup.
    with suppress(OSError, ValueError):  # "max", which is no number, where there is none
        most, used = (
            int(Path("/sys/fs/cgroup", name).read_text())
            for name in ("memory.max", "memory.current")
        )
        free = min(free, float(max(most - used, 0)))
    return free


def _even(count: int, most: float) -> int:
    """The smallest size that makes no more batches than the largest allowed one."""
    most = int(np.clip(most, 1, count))
    return -(-count // -(-count // most))


def _seconds(program: Program, batch: Batch) -> float:
    """Seconds of one step of all these runs."""
    state = begin(program, batch)
    silent = np.zeros(1, bool)
    n = 1
    once = lambda: jax.block_until_ready(
        advance(program, batch, state, 0, np.array([n], np.int32), silent)
    )
    once()
    while True:
        begun = time.perf_counter()
        once()
        taken = time.perf_counter() - begun
        if taken > TRIAL or n >= 1 << 16:
            return taken / n
        n *= 4
