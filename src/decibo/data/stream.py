r"""What the objectives see of an agent's data: a padded table, one batch of a list, or a minibatch
that the host reads.

    return decibo.data.samples(features=..., labels=...)                from a data function
    decibo.Problem(..., sample=decibo.data.Batches(20))
    decibo.Problem(..., sample=decibo.data.Stream.from_arrays(arrays, batch=64))

**samples** pads agents with different numbers of samples to the size of the largest one, with
weights that are 0 where there is no sample.

**Batches** cuts the samples of every agent into batches of equal size. Drawing one is drawing its
number j, so that an estimator can remember what it found on batch j. The objectives must be means
over samples: then the mean of an objective over the batches is the objective.

**Stream** is for data that fits neither on a device nor into memory. There is one stream for each
agent. Batch k of an agent is a function of the seed of the run, the agent and k alone, so that a
run resumes with the very sample it would have used, and any number of processes sees the same
batches. From arrays with n samples, in batches of b:

    (1)  q_j = b k + j                          j = 0, ..., b - 1
    (2)  row j = P_e(q_j mod n),  e = q_j div n   P_e: a permutation of n rows, drawn from (seed,
                                                  agent, e)

Every sample is thus used once in each pass, whatever n and b are; a batch may end one pass and
begin the next. One permutation is kept in memory, 8 bytes for each sample of an agent.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from decibo.errors import InputError, short
from decibo.pytree import Layout, Tree
from decibo.validate import flag, integer

Reader = Callable[[int], Tree]  # a step -> the batch of one agent
Join = Callable[[Tree, Tree], Tree]  # (data of one agent, its batch) -> what the objectives see
WEIGHTS = "weights"
BYTES = 64 << 20  # of a block that is brought to the devices at once
MOST = 1000  # steps of a block


@jax.tree_util.register_pytree_with_keys_class
class Samples:
    """Arrays with one row for each sample of one agent; `samples` makes it."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = dict(arrays)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def shapes(self) -> str:
        """The shapes without the number of samples."""
        shape = lambda array: f"(samples, {str(array.shape[1:])[1:]}"
        return ", ".join(f"{name}: {shape(array)}" for name, array in self.arrays.items())

    def padded(self, size: int) -> dict[str, np.ndarray]:
        """The arrays with so many rows; those added repeat a sample of its own, and weigh 0."""
        rows = np.minimum(np.arange(size), len(self) - 1)
        arrays = {name: np.asarray(array)[rows] for name, array in self.arrays.items()}
        return arrays | {WEIGHTS: np.where(np.arange(size) < len(self), arrays[WEIGHTS], 0.0)}

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Hashable, object]], tuple[str, ...]]:
        key = jax.tree_util.DictKey
        return [(key(name), array) for name, array in self.arrays.items()], tuple(self.arrays)

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], arrays: Iterable[np.ndarray]) -> Samples:
        return cls(dict(zip(names, arrays, strict=True)))


def samples(**arrays: ArrayLike) -> Samples:
    """Arrays with one row for each sample of an agent, padded to the size of the largest agent.

    For a function `data` of `Problem`: return it, alone or inside a dictionary. The objectives see
    a dictionary of these arrays and "weights", 1 for samples and 0 for padding; weights of your own
    are kept.
    """
    tables = {name: np.asarray(array) for name, array in arrays.items()}
    lengths = {name: len(table) if table.ndim else None for name, table in tables.items()}
    sizes = set(lengths.values())
    if len(sizes) != 1 or None in sizes:
        listed = ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "nothing"
        raise InputError(
            "The arrays of samples must have one row for each sample, but their lengths are"
            f" {listed}."
        )
    if sizes == {0}:
        raise InputError("Every agent needs at least one sample, but this one has none.")
    return Samples(tables if WEIGHTS in tables else tables | {WEIGHTS: np.ones(sizes.pop() or 0)})


@dataclass(frozen=True)
class Batches:
    """A sampler that draws one of `count` batches, the same ones during the whole run.

    take   (data of one agent, j) -> batch j, which looks like the data; by default, every leaf has
           samples along its first axis and is cut into `count` equal pieces
    """

    count: int
    take: Callable[[Tree, jax.Array], Tree] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", integer("count", self.count))
        if not (self.take is None or callable(self.take)):
            raise InputError(f"take must be a function (d, j) or None, but it is {self.take!r}.")

    def draw(self, key: jax.Array) -> jax.Array:
        """The number of a batch, all equally likely (up to count/2^32): `randint` takes three times
        as long."""
        return (jax.random.bits(key, (), jnp.uint32) % jnp.uint32(self.count)).astype(jnp.int32)

    def batch(self, d: Tree, j: jax.Array) -> Tree:
        """Batch j of one agent's data."""
        if self.take:
            return self.take(d, j)
        size = lambda leaf: leaf.shape[0] // self.count
        return jax.tree.map(
            lambda leaf: lax.dynamic_slice_in_dim(leaf, j * size(leaf), size(leaf)), d
        )

    def __call__(self, d: Tree, key: jax.Array) -> Tree:
        return self.batch(d, self.draw(key))

    def check(self, data: Tree) -> None:
        """Reject data of all agents whose samples cannot be cut into `count` equal pieces."""
        if self.take is not None:
            return
        for path, leaf in jax.tree_util.tree_leaves_with_path(data):
            name = "data" + jax.tree_util.keystr(path)
            shape = np.shape(leaf)[1:]
            if not shape or shape[0] % self.count:
                found = f"{shape[0]} samples" if shape else "one number"
                divide = f"Use a count that divides {shape[0]}, or" if shape else "Pass"
                more = "" if shape else ", or close over what is not a sample"
                raise InputError(
                    f"Batches({self.count}) cuts every leaf of the data into {self.count} equal"
                    f" pieces, but {name} has {found} for each agent.",
                    f"{divide} Batches(count, take=lambda d, j: ...){more}.",
                )


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
        if callable(source):
            check_arguments("The arrays", source, (0,), "a function of an agent's number")
        elif not isinstance(source, Sequence) or not source:
            raise InputError(
                "The arrays must be a list with an entry for each agent, or a function of an"
                f" agent's number, but they are {short(repr(source))}.",
                "For stacked arrays with a leading axis of agents: [array[i] for i in"
                " range(agents)].",
            )
        else:
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

        def begin(agent: int, seed: int) -> Reader:
            arrays = source(agent)
            n = _rows_of(agent, arrays)
            orders: dict[int, np.ndarray] = {}  # of the passes that the last batch was part of

            def order(e: int) -> np.ndarray:
                random = np.random.default_rng((seed, agent, e))
                return random.permutation(n) if mixed else np.arange(n)

            def read(step: int) -> Tree:
                nonlocal orders
                passes, places = np.divmod(size * step + np.arange(size), n)  # (1)
                now = np.unique(passes).tolist()
                orders = {e: orders[e] if e in orders else order(e) for e in now}
                rows = np.concatenate([orders[e][places[passes == e]] for e in now])  # (2)
                return jax.tree.map(lambda array: np.asarray(array[rows]), arrays)

            return read

        words = f"{size} rows of arrays{'' if mixed else ' in their order'}"
        return cls(begin, words, agents, join, block)

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
        check_arguments(
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
        it is restarted.

        A resumed run restarts it and skips what it has used already, so that it takes as long as
        reading all of it. The seed of a run changes nothing here.
        """
        check_arguments("start", start, (0,), "a function of an agent's number")

        def begin(agent: int, seed: int) -> Reader:
            left: Iterator[Tree] = iter(())
            last: tuple[int, Tree] | None = None  # a step and its batch

            def read(step: int) -> Tree:
                nonlocal left, last
                if last and step == last[0]:
                    return last[1]
                if last is None or step < last[0]:  # an iterator cannot go back
                    left = iter(start(agent))
                    last = None
                skipped = step - last[0] - 1 if last else step
                found = list(itertools.islice(left, skipped, skipped + 1))
                if not found:
                    raise InputError(
                        f"The iterator of agent {agent} ended before it had a batch for step"
                        f" {step}.",
                        "Let it continue without end, by itertools.cycle for example, or make"
                        " fewer steps.",
                    )
                last = step, found[0]
                return found[0]

            return read

        return cls(begin, "batches of iterators", agents, join, block)

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
    with the data. As a sampler it stands for a batch of zeros, for whoever traces a step."""

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

    def numbers(leaf: object) -> np.ndarray:
        array = np.asarray(leaf)
        # bfloat16 and its kind are numbers of JAX whose kind numpy does not know
        if array.dtype.kind not in "biufc" and not jnp.issubdtype(array.dtype, jnp.number):
            raise InputError(
                f"A batch must hold arrays of numbers, but it holds {array.dtype}:"
                f" {short(repr(leaf))}."
            )
        return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)

    return jax.tree.map(numbers, tree)


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


def check_arguments(name: str, function: object, arguments: tuple[object, ...], rule: str) -> None:
    """Reject what cannot be called with these arguments."""
    try:
        if not callable(function):
            raise TypeError(f"it is {short(repr(function))}")
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise InputError(f"{name} must be {rule}, but it is not: {error}.") from error
    except ValueError:  # a function of C, whose signature is not known
        pass
