r"""Minibatches that the host reads while a run goes on, for data that fits neither on a device nor
into memory.

    stream = decibo.data.Stream.from_arrays([np.load(path, mmap_mode="r") for path in paths],
    batch=64) problem = decibo.Problem(outer, inner, held_out, x0, y0, sample=stream)

There is one stream for each agent. Batch k of an agent is a function of the seed of the run, the
agent and k alone, so that a run resumes with the very sample it would have used, and any number of
processes sees the same batches. From arrays with n samples, in batches of b:

    (1)  q_j = b k + j                          j = 0, ..., b - 1
    (2)  row j = P_e(q_j mod n),  e = q_j div n   P_e: a permutation of n rows, drawn from (seed, agent, e)

Every sample is thus used once in each pass, whatever n and b are; a batch may end one pass and
begin the next. One permutation is kept in memory, 8 bytes for each sample of an agent.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, short
from decibo.pytree import Layout, Tree
from decibo.validate import flag, integer

Reader = Callable[[int], Tree]  # a step -> the batch of one agent
Join = Callable[[Tree, Tree], Tree]  # (data of one agent, its batch) -> what the objectives see
BYTES = 64 << 20  # of a block that is brought to the devices at once
MOST = 1000  # steps of a block


@dataclass(frozen=True, eq=False)
class Stream:
    """Minibatches from the host, for `Problem(..., sample=stream)`, or as its data if there is no
    other.

    Made by `from_arrays`, `from_function` or `from_iterators`, which share these options:

    agents   how many agents there are, where it cannot be seen
    join     (d, batch) -> what the objectives get; by default the batch alone. With `lambda d,
             batch: d | batch` a part of the data stays on the device
    block    how many steps are read ahead and brought to the device at once; by default as many as
             take 64 MiB
    """

    open: Callable[[int, int], Reader]  # (agent, seed) -> its reader
    words: str  # what it is; the same in all processes
    agents: int | None = None
    join: Join | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        for name in ("agents", "block"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(name, getattr(self, name)))
        if not (self.join is None or callable(self.join)):
            raise InputError(
                f"join must be a function (d, batch) or None, but it is {short(repr(self.join))}."
            )

    def __repr__(self) -> str:
        return f"Stream({self.words})"

    @classmethod
    def from_arrays(
        cls,
        source: Sequence[Tree] | Callable[[int], Tree],
        batch: int,
        *,
        shuffle: bool = True,
        agents: int | None = None,
        join: Join | None = None,
        block: int | None = None,
    ) -> Stream:
        """Batches of rows of arrays, which may be memory-mapped: only the rows of a batch are read.

        source    one pytree of arrays for each agent, with a sample in each row; agents may have
                  any numbers of them. Or a function agent -> its arrays, which each process calls
                  for its own agents
        batch     the number of samples in a batch
        shuffle   whether each pass has an order of its own; otherwise rows come as they are
        """
        size = integer("batch", batch)
        mixed = flag("shuffle", shuffle)
        if not callable(source):
            if not isinstance(source, Sequence) or not source:
                raise InputError(
                    "The arrays must be a list with an entry for each agent, or a function of an"
                    f" agent's number, but they are {short(repr(source))}.",
                    "For stacked arrays with a leading axis of agents: [array[i] for i in"
                    " range(agents)].",
                )
            parts = list(source)
            if agents is not None and integer("agents", agents) != len(parts):
                raise InputError(
                    f"agents is {agents}, but there are arrays for {len(parts)}.",
                    "Leave agents out.",
                )
            for agent, part in enumerate(parts):
                _rows_of(agent, part)
            agents = len(parts)
            source = parts.__getitem__
        else:
            _check_arguments("The arrays", source, (0,), "a function of an agent's number")
        order = "" if mixed else " in their order"
        take = lambda agent, seed: _Rows(agent, source(agent), size, seed if mixed else None)
        return cls(take, f"{size} rows of arrays{order}", agents, join, block)

    @classmethod
    def from_function(
        cls,
        read: Callable[[int, int, np.random.Generator], Tree],
        *,
        agents: int | None = None,
        join: Join | None = None,
        block: int | None = None,
    ) -> Stream:
        """Batches from a function read(agent, step, random) -> a pytree of arrays, of the same
        shapes at all steps.

        random   a generator drawn from the seed of the run, the agent and the step. Draw from
                 nothing else, and a resumed run is the same run
        """
        _check_arguments(
            "read", read, (0, 0, np.random.default_rng(0)), "a function (agent, step, random)"
        )
        draw = lambda agent, seed: (
            lambda step: read(agent, step, np.random.default_rng((seed, agent, step)))
        )
        return cls(draw, "batches of a function", agents, join, block)

    @classmethod
    def from_iterators(
        cls,
        start: Callable[[int], Iterable[Tree]],
        *,
        agents: int | None = None,
        join: Join | None = None,
        block: int | None = None,
    ) -> Stream:
        """Batches from iterators: start(agent) begins one, which yields the same batches whenever
        it is begun anew.

        A resumed run begins anew and skips what it has used already, so that it takes as long as
        reading all of it. The seed of a run changes nothing here.
        """
        _check_arguments("start", start, (0,), "a function of an agent's number")
        return cls(
            lambda agent, seed: _Iterated(start, agent), "batches of iterators", agents, join, block
        )

    def steps_of_block(self, batch: Tree, agents: int) -> int:
        """How many steps to read ahead, for so many agents with batches like this one."""
        if self.block is not None:
            return self.block
        size = agents * sum(leaf.nbytes for leaf in jax.tree.leaves(batch))
        return min(MOST, max(1, BYTES // max(1, size)))


@dataclass(frozen=True, eq=False)
class FirstBatch:
    """Data of a problem that has only a stream: what an agent reads at step 0 with seed 0."""

    stream: Stream

    def __call__(self, agent: int) -> Tree:
        return as_batch(self.stream.open(agent, 0)(0))


@dataclass(frozen=True)
class Streamed:
    """What a compiled program knows of a stream: what batches look like, and how they are joined
    with the data.

    As a sampler it stands for a batch of zeros, for whoever traces a step; `bringing` replaces it
    by the real one.
    """

    layout: Layout
    join: Join | None = None

    def bringing(self, batch: Tree) -> Callable[[Tree, jax.Array], Tree]:
        """The sampler that has drawn this batch."""
        return lambda d, key: batch if self.join is None else self.join(d, batch)

    def __call__(self, d: Tree, key: jax.Array) -> Tree:
        """What a minibatch looks like."""
        parts = zip(self.layout.shapes, self.layout.dtypes, strict=True)
        zeros = jax.tree.unflatten(
            self.layout.treedef, [jnp.zeros(shape, dtype) for shape, dtype in parts]
        )
        return self.bringing(zeros)(d, key)


def as_batch(tree: Tree) -> Tree:
    """A batch as numpy arrays of the types that they will have on the device."""
    return jax.tree.map(_number, tree)


def _number(leaf: object) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biufc" and not jnp.issubdtype(array.dtype, jnp.number):
        raise InputError(
            f"A batch must hold arrays of numbers, but it holds {array.dtype}: {short(repr(leaf))}."
        )
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


class _Rows:
    """The reader of one agent's arrays."""

    def __init__(self, agent: int, arrays: Tree, batch: int, seed: int | None):
        self.agent = agent
        self.arrays = arrays
        self.size = _rows_of(agent, arrays)
        self.batch = batch
        self.seed = seed
        self.orders: dict[int, np.ndarray] = {}

    def __call__(self, step: int) -> Tree:
        rows = self.rows(step)
        return jax.tree.map(lambda array: np.asarray(array[rows]), self.arrays)

    def rows(self, step: int) -> np.ndarray:
        """The rows of a batch."""
        passes, places = np.divmod(self.batch * step + np.arange(self.batch), self.size)  # (1)
        self.orders = {
            e: self.orders[e] if e in self.orders else self._order(e)
            for e in np.unique(passes).tolist()
        }
        # (2)
        return np.concatenate([order[places[passes == e]] for e, order in self.orders.items()])

    def _order(self, e: int) -> np.ndarray:
        if self.seed is None:
            return np.arange(self.size)
        return np.random.default_rng((self.seed, self.agent, e)).permutation(self.size)


class _Iterated:
    """The reader of one agent's iterator; it remembers its last batch, and begins anew for an
    earlier one."""

    def __init__(self, start: Callable[[int], Iterable[Tree]], agent: int):
        self.start = start
        self.agent = agent
        self.left: Iterator[Tree] | None = None
        self.step = -1
        self.last: Tree = None

    def __call__(self, step: int) -> Tree:
        if step == self.step:
            return self.last
        if self.left is None or step < self.step:
            self.left = iter(self.start(self.agent))
            self.step = -1
        skipped = step - self.step - 1
        found = list(itertools.islice(self.left, skipped, skipped + 1))
        if not found:
            raise InputError(
                f"The iterator of agent {self.agent} ended before it had a batch for step {step}.",
                "Let it go on for ever, by itertools.cycle for example, or make fewer steps.",
            )
        self.step = step
        self.last = found[0]
        return self.last


def _rows_of(agent: int, arrays: Tree) -> int:
    """How many samples an agent's arrays have, if all of them have as many."""
    leaves = jax.tree.leaves(arrays)
    sizes = [np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in leaves]
    if not sizes or None in sizes or len(set(sizes)) > 1 or sizes[0] == 0:
        raise InputError(
            f"The arrays of agent {agent} must have one row for each sample, and at least one, but"
            f" their lengths are {short(sizes)}."
        )
    return int(sizes[0] or 0)


def _check_arguments(name: str, function: object, arguments: tuple[object, ...], rule: str) -> None:
    """Reject what cannot be called with these arguments."""
    try:
        if not callable(function):
            raise TypeError(f"it is {short(repr(function))}")
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise InputError(f"{name} must be {rule}, but it is not: {error}.") from error
    except ValueError:  # a function of C, whose signature is not known
        pass
