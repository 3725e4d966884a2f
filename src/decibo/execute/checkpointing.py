"""When a run writes checkpoints, what they say of it, and how it resumes from one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.automatic.controller import RunState
from decibo.errors import CorruptedFileError, InputError
from decibo.execute import checkpoint
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.parallel.launch import RESTARTED
from decibo.parallel.placement import Placement
from decibo.parallel.processes import all_gather, barrier
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.validate import positive_int


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to save the state of a run, so that it can be resumed: `solve(..., checkpoint=...)`.

    folder   where to save it; all processes must be able to access the folder
    every    the number of steps between two checkpoints; there is also one at the end, and after Ctrl-C
    keep     how many of the newest checkpoints to keep
    resume   whether to continue from the newest checkpoint in the folder, on any number of processes
    """

    folder: str | os.PathLike[str]
    every: int = 1000
    keep: int = 3
    resume: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike) or not str(self.folder):
            raise InputError(f"The folder of checkpoints must be a path, but it is {self.folder!r}.")
        positive_int("every", self.every)
        positive_int("keep", self.keep)

    @property
    def path(self) -> Path:
        """The folder as a path."""
        return Path(self.folder)


@dataclass(frozen=True, eq=False)
class Checkpointer:
    """Writes and restores the state of one run, of which this process has the agents in `local`."""

    checkpoints: Checkpoints
    placement: Placement | None
    local: np.ndarray
    fingerprint: dict[str, str]

    @property
    def every(self) -> int:
        """How many steps between two checkpoints."""
        return self.checkpoints.every

    def save(self, run: RunState) -> None:
        """Write a checkpoint now, together with all other processes."""
        rows = {}
        shared = {}
        for name, leaf in _named(run).items():
            if isinstance(leaf, jax.Array):
                rows[name] = _local_rows(self.placement, leaf)
            else:
                shared[name] = np.asarray(leaf)
        checkpoint.write(
            self.checkpoints.path,
            run.step,
            self.local,
            rows,
            shared,
            self.fingerprint,
            leader=jax.process_index() == 0,
            barrier=barrier,
            keep=self.checkpoints.keep,
        )

    def restore(self, start: RunState) -> RunState:
        """The state to continue from: that of the newest checkpoint if the run resumes, otherwise the start."""
        folder = self.checkpoints.path
        resume = self.checkpoints.resume
        restarted = RESTARTED in os.environ  # by `decibo launch`, which starts processes again
        saved = checkpoint.newest(folder)
        steps = all_gather(np.array([-1 if saved is None else saved.step], np.int32))[:, 0]
        if (steps != steps[0]).any():
            raise InputError(
                f"Processes see different checkpoints in {folder} (steps {sorted(set(steps.tolist()))}), but all "
                "processes must see the same folder.",
                "Put it on a file system that all hosts share.",
            )
        if saved is None:
            if resume and not restarted:
                raise InputError(
                    f"There is no checkpoint in {folder} to resume from.", "Leave resume out to start a new run."
                )
            return start
        if not (resume or restarted):
            raise InputError(
                f"{folder} already holds a checkpoint, of step {saved.step}, and a new run does not overwrite it.",
                "Pass resume=True to continue from it, or choose another folder.",
            )
        checkpoint.compare(saved, self.fingerprint)
        return self._restored(start, saved)

    def _restored(self, start: RunState, saved: checkpoint.Saved) -> RunState:
        """The state in a checkpoint, in the structure of the state that the run would start from."""
        named = _named(start)
        arrays = saved.rows(self.local) | saved.shared()
        if set(arrays) != set(named):
            names = ", ".join(sorted(set(arrays) ^ set(named))[:5])
            raise CorruptedFileError(f"{saved.folder} does not hold the state of this run; it differs in {names}.")
        leaves = []
        for name, leaf in named.items():
            array = arrays[name]
            if not isinstance(leaf, jax.Array):
                leaves.append(array.item() if array.ndim == 0 else array)
            elif self.placement is None:
                leaves.append(jnp.asarray(array))
            else:
                leaves.append(self.placement.split(array, self.local))
        return jax.tree.unflatten(jax.tree.structure(start), leaves)


def _named(run: RunState) -> dict[str, object]:
    """The leaves of a state by their paths, in the order of the tree."""
    leaves = jax.tree_util.tree_flatten_with_path(run)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _local_rows(placement: Placement | None, leaf: jax.Array) -> np.ndarray:
    """The rows of this process's agents."""
    if placement is None:
        return np.asarray(leaf)
    block = int(placement.sizes.max())
    pieces = {}
    for shard in leaf.addressable_shards:
        device = (shard.index[0].start or 0) // block
        pieces[device] = np.asarray(shard.data)[: int(placement.sizes[device])]
    return np.concatenate([pieces[device] for device in sorted(pieces)])


def fingerprint(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    seed: int,
    measures: Iterable[str],
    start: Mapping[str, jax.Array],
) -> dict[str, str]:
    """What a run was given, by name: it must match across processes and on resume."""
    matrices = [network.pull, network.push] if isinstance(network, DirectedNetwork) else [network.weights]
    turns = getattr(network, "turns", ())
    parts = [part for matrix in (*matrices, *turns) for part in (matrix.indptr, matrix.indices, matrix.data)]
    settings = ", ".join(f"{name}={_setting(value)}" for name, value in method.settings.items())
    return {
        "problem": f"{problem.name}, x {_shapes(problem.x0)}, y {_shapes(problem.y0)}",
        "method": f"{method.name}({settings})",
        "network": f"{network!r} {digest(*parts, str(getattr(network, 'rate', '')))}",
        "start": digest(*(np.asarray(rows) for rows in start.values())),
        "seed": str(seed),
        "measures": ", ".join(measures),
    }


def data_fingerprint(data: Tree, local: np.ndarray, agents: int) -> str:
    """A checksum of the data of all agents, of which every process knows only its own."""
    marks = np.zeros(agents, np.uint32)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(data)]
    for row, agent in enumerate(local):
        marks[agent] = int(digest(*(leaf[row] for leaf in leaves))[:8], 16)
    return digest(all_gather(marks).sum(axis=0, dtype=np.uint32))


def digest(*parts: str | np.ndarray) -> str:
    """A short checksum of arrays and words."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(part.encode())
        else:
            array = np.ascontiguousarray(part)
            total.update(f"{array.dtype}{array.shape}".encode())
            total.update(array.tobytes())
    return total.hexdigest()[:12]


def _setting(value: object) -> str:
    return getattr(value, "__qualname__", type(value).__qualname__) if callable(value) else repr(value)


def _shapes(tree: Tree) -> str:
    leaves = jax.tree.leaves(tree)
    return " ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) + " " + digest(*map(np.asarray, leaves))
