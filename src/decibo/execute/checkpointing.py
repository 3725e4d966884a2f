"""When a run writes checkpoints, what they say of it, and how it goes on from one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.execute import checkpoint
from decibo.execute.pack import pack, unpack
from decibo.network import DirectedNetwork, Network
from decibo.parallel.launch import RESTARTED
from decibo.parallel.processes import all_gather, barrier
from decibo.problem.problem import Problem

if TYPE_CHECKING:
    from decibo.execute.run import Run


class Keeper:
    """The checkpoints of one run."""

    def __init__(self, folder: str | os.PathLike[str], every: int, keep: int, resume: bool):
        self.folder, self.every, self.keep = Path(folder), every, keep
        self.resume, self.again = resume, RESTARTED in os.environ
        self.fingerprint: dict[str, str] = {}
        self.last = -1

    def begin(self, run: Run, fields: Mapping[str, str], agents: np.ndarray, data: Any) -> None:
        """Look at the folder, and take the run to where its newest checkpoint is if it should go on from there."""
        self.agents = agents
        self.fingerprint = {**fields, "data": _data(data, agents, run.network.agents)}
        saved = checkpoint.newest(self.folder)
        steps = all_gather(np.array([-1 if saved is None else saved.step], np.int32))[:, 0]
        if (steps != steps[0]).any():
            raise InputError(
                f"processes see different checkpoints in {self.folder} (steps {sorted(set(steps.tolist()))})",
                "all processes must see the same folder",
                "Put it on a file system that all hosts share.",
            )
        if saved is None and self.resume and not self.again:
            raise InputError(
                f"no checkpoint in {self.folder}", "there is nothing to go on from", "Leave resume out to start anew."
            )
        if saved is not None and not (self.resume or self.again):
            raise InputError(
                f"{self.folder} already holds a checkpoint, of step {saved.step}",
                "a new run does not overwrite an old one",
                "Give resume=True to go on from it, or another folder.",
            )
        if saved is not None:
            checkpoint.compare(saved, self.fingerprint)
            self._take(run, saved)

    def next(self, k: int) -> int:
        """The step of the next checkpoint."""
        return (k // self.every + 1) * self.every

    def after(self, run: Run, end: bool = False) -> None:
        """Write a checkpoint if one is due, or if this is the end."""
        if run.k > max(self.last, 0) and (end or run.k % self.every == 0):
            self.save(run)

    def save(self, run: Run) -> None:
        """Write a checkpoint now."""
        arrays: list[Any] = []
        extra = {"seconds": run.seconds, "state": pack(run.state, arrays, run.state)}
        if run.tuner:
            settings = {name: run.method.settings[name] for name in ("alpha", "gamma")}
            extra |= {"tuner": pack(vars(run.tuner), arrays, run.state), "settings": settings}
        leaves = [self._rows(run, leaf) for leaf in arrays]
        leader = jax.process_index() == 0
        checkpoint.write(
            self.folder,
            run.k,
            self.agents,
            leaves,
            run.history,
            self.fingerprint,
            extra,
            leader=leader,
            barrier=barrier,
            keep=self.keep,
        )
        self.last = run.k

    def _rows(self, run: Run, leaf: Any) -> np.ndarray:
        """The rows of this process's agents."""
        if run.place is None:
            return np.asarray(leaf)
        pieces = {}
        block = int(run.place.sizes.max())
        for shard in leaf.addressable_shards:
            device = (shard.index[0].start or 0) // block
            size = int(run.place.sizes[device])
            pieces[device] = np.asarray(shard.data)[:size]
        return np.concatenate([pieces[device] for device in sorted(pieces)])

    def _take(self, run: Run, saved: checkpoint.Saved) -> None:
        leaves = saved.rows(self.agents)
        place = run.place
        arrays = [jnp.asarray(leaf) if place is None else place.split(leaf, self.agents) for leaf in leaves]
        if run.tuner:
            vars(run.tuner).update(unpack(saved.extra["tuner"], arrays, run.state))
            run.method = run.method.replace(**saved.extra["settings"])
            run.world = run.world._replace(core=run.method.core)
        run.state = unpack(saved.extra["state"], arrays, run.state)
        run.k = self.last = saved.step
        run.history = {name: list(values) for name, values in saved.history().items()}
        run.begun -= saved.extra["seconds"]


def describe(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Any,
    seed: int,
    measures: Any,
    start: Mapping[str, Any],
) -> dict[str, str]:
    """What a run was given, a line for each thing: what must be the same in all processes, and when it goes on."""
    both = [network.pull, network.push] if isinstance(network, DirectedNetwork) else [network.weights]
    turns = getattr(network, "turns", ())
    parts = [part for matrix in (*both, *turns) for part in (matrix.indptr, matrix.indices, matrix.data)]
    settings = ", ".join(f"{name}={_setting(value)}" for name, value in method.settings.items())
    return {
        "problem": f"{problem.name}, x {_shapes(problem.x0)}, y {_shapes(problem.y0)}",
        "method": f"{method.name}({settings})",
        "network": f"{network!r} {digest(*parts, str(getattr(network, 'rate', '')))}",
        "start": digest(*(np.asarray(rows) for rows in start.values())),
        "seed": str(seed),
        "measures": ", ".join(name for name, _ in measures),
    }


def digest(*parts: Any) -> str:
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


def _data(data: Any, agents: np.ndarray, m: int) -> str:
    """A checksum of the data of all agents, of which every process knows only its own."""
    marks = np.zeros(m, np.uint32)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(data)]
    for row, agent in enumerate(agents):
        marks[agent] = int(digest(*(leaf[row] for leaf in leaves))[:8], 16)
    return digest(all_gather(marks).sum(axis=0, dtype=np.uint32))


def _setting(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__qualname__) if callable(value) else repr(value)


def _shapes(tree: Any) -> str:
    leaves = jax.tree.leaves(tree)
    return " ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) + " " + digest(*map(np.asarray, leaves))
