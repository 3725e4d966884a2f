"""Batches of a stream on their way to the devices: a thread reads the next block while the devices
work on this one.

A block holds the batches of all agents for a fixed number of steps, so that the compiled loop picks
the one of step k by its index and never waits for Python; chunks of steps end where a block does.
Each process reads for its own agents. What a batch is depends on neither blocks nor processes
(stream.py).

An error while reading is raised when the block is needed. With several processes the one that
failed runs the next chunk on zeros and votes for an end, and all of them end: none waits for it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from decibo.data.stream import Reader, Stream, Streamed, as_batch
from decibo.errors import InputError, StreamError, first_line
from decibo.formatting import Json
from decibo.parallel.failure_detection import loading
from decibo.parallel.placement import Placement
from decibo.parallel.processes import check_same, share
from decibo.pytree import Layout, Tree
from decibo.run.loop import Inputs
from decibo.run.run import Clock, CompiledStepper, Plan, Setup


@dataclass(frozen=True, eq=False)
class Source:
    """The readers of this process's agents, and their first batches, stacked."""

    readers: dict[int, Reader]
    first: Tree
    sampler: Streamed
    block: int  # steps


def open_stream(stream: Stream, agents: np.ndarray, count: int, seed: int) -> Source:
    """Begin to read, in all processes together; batches of all agents must look alike.

    agents   those of this process
    count    how many there are in all processes
    """
    readers: dict[int, Reader] = {}
    batches: list[Tree] = []
    failure: Exception | None = None
    try:
        with loading():
            for agent in agents.tolist():
                readers[agent] = stream.open(agent, seed)
                batches.append(_read(readers[agent], agent, 0))
    except Exception as error:
        failure = error
    check_same({}, failure)
    looks: list[Json] = [[agent, _looks(one)] for agent, one in zip(readers, batches, strict=True)]
    (first, whole), *rest = [found for process in share(looks) for found in process]
    for agent, other in rest:
        if other != whole:
            raise InputError(
                "The batches of all agents must have the same structure, shapes and types, but"
                f" agent {first} has {whole} and agent {agent} has {other}."
            )
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
    sampler = Streamed(Layout.of(batches[0]), stream.join)
    return Source(readers, stacked, sampler, stream.steps_of_block(batches[0], count))


class StreamStepper(CompiledStepper):
    """Makes steps with minibatches of a stream: chunks end where a block does. One block is in use,
    and one is being read."""

    def __init__(self, setup: Setup, plan: Plan, clock: Clock):
        super().__init__(setup, plan, clock)
        self.source: Source = setup.source
        self.block: Tree = None
        self.first = -1  # the step that the block begins with
        self.coming: _Reading | None = None

    def inputs_at(self, step: int, until: int) -> tuple[Inputs, int]:
        placement = self.setup.program.placement
        if not 0 <= self.first <= step < self.first + self.source.block:
            # Wait for the block that begins here, and have the next one read.
            if self.coming is not None and self.coming.step != step:
                self.close()
                self.coming.join()
                self.coming = None
            coming = self.coming or self._read(step)
            if coming.is_alive():
                with loading():
                    coming.join()
            self.first = step
            self.coming = None
            self.failure = coming.failure
            self.block = coming.block
            if self.failure is not None:
                if jax.process_count() == 1:
                    raise self.failure
                self.block = _placed(self.source, _rows(self.source), placement)
            elif step + self.source.block < self.setup.steps:
                self.coming = self._read(step + self.source.block)
        first: np.int32 | jax.Array = np.int32(self.first)
        if placement is not None:
            first = placement.everywhere(first)
        inputs = self.setup.inputs._replace(batches=self.block, first=first)
        return inputs, min(until, self.first + self.source.block)

    def close(self) -> None:
        """Stop reading: the thread ends after the batch that it is at."""
        if self.coming is not None:
            self.coming.stopped.set()

    def _read(self, step: int) -> _Reading:
        end = min(step + self.source.block, self.setup.steps)
        reading = _Reading(self.source, step, end, self.setup.program.placement)
        reading.start()
        return reading


class _Reading(threading.Thread):
    """Reads the batches of these steps; ends with a block, or with why there is none."""

    def __init__(self, source: Source, step: int, end: int, placement: Placement | None):
        super().__init__(name="decibo stream", daemon=True)
        self.source = source
        self.step = step
        self.end = end
        self.placement = placement
        self.stopped = threading.Event()
        self.block: Tree = None
        self.failure: StreamError | None = None

    def run(self) -> None:
        try:
            rows = _rows(self.source)
            wanted = self.source.sampler.layout
            for step in range(self.step, self.end):
                for row, (agent, reader) in enumerate(self.source.readers.items()):
                    if self.stopped.is_set():
                        return
                    batch = _read(reader, agent, step)
                    if Layout.of(batch) != wanted:
                        looks = _looks(jax.tree.unflatten(wanted.treedef, _shapes(wanted)))
                        raise StreamError(
                            f"All batches must look like the first one, {looks}, but that of agent"
                            f" {agent} for step {step} has {_looks(batch)}."
                        )
                    for leaf, part in zip(rows, jax.tree.leaves(batch), strict=True):
                        leaf[row, step - self.step] = part
            self.block = _placed(self.source, rows, self.placement)
        except StreamError as error:
            self.failure = error
        except Exception as error:
            self.failure = StreamError(
                f"The block of batches for steps {self.step} to {self.end - 1} could not be brought"
                f" to the devices: {type(error).__name__}: {first_line(error)}."
            )
            self.failure.__cause__ = error


def _read(reader: Reader, agent: int, step: int) -> Tree:
    try:
        return as_batch(reader(step))
    except Exception as error:
        raise StreamError(
            f"The batch of agent {agent} for step {step} could not be read: {type(error).__name__}:"
            f" {first_line(error)}"
        ) from error


def _shapes(layout: Layout) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(*part) for part in zip(layout.shapes, layout.dtypes, strict=True)]


def _looks(batch: Tree) -> str:
    """A batch in words: its structure, shapes and types."""
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", batch))


def _rows(source: Source) -> list[np.ndarray]:
    """Room for a block, leaf by leaf: (agents of this process, steps, ...). Never used twice: JAX
    may keep it."""
    size = (len(source.readers), source.block)
    return [np.zeros((*size, *leaf.shape), leaf.dtype) for leaf in _shapes(source.sampler.layout)]


def _placed(source: Source, rows: list[np.ndarray], placement: Placement | None) -> Tree:
    tree = jax.tree.unflatten(source.sampler.layout.treedef, rows)
    if placement is None:
        return jax.block_until_ready(jax.tree.map(jnp.asarray, tree))
    return placement.split(tree, np.array(list(source.readers)))
