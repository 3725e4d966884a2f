"""Checkpoints: when a run keeps its state, and how a run resumes.

Every process saves the rows of its own agents. A run resumes from the newest checkpoint that is
sound in every respect: its files are what was written (checkpoint_files.py), they are of this run
(fingerprint.py), and they hold what the state of this run consists of. A checkpoint of another run
is rejected; one that is damaged is named, and the one before is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import CorruptedFileError, InputError, first_line, short, warn
from decibo.files import PUBLIC, check_writable
from decibo.measure.cost import Seconds
from decibo.parallel.launch import RESTARTED
from decibo.parallel.placement import Placement
from decibo.parallel.processes import barrier, check_same, share
from decibo.pytree import Tree
from decibo.run import checkpoint_files
from decibo.run.checkpoint_files import Saved, damaged
from decibo.run.fingerprint import PROGRAMS, Marks, software
from decibo.run.lock import hold
from decibo.validate import flag, integer


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to save the state of a run, so that it can be resumed: `solve(...,
    checkpoint=...)`.

    folder   where to save it; all processes must be able to access the folder, unless it is not
             shared
    every    the number of steps between two checkpoints; there is also one at the end, and after
             Ctrl-C
    keep     how many of the newest checkpoints to keep
    resume   whether to continue from the newest checkpoint in the folder, on any number of
             processes; "auto" continues if there is one, and begins otherwise
    shared   False if each process passes a folder of its own, on a disk of its own: it saves its
             own agents there, and the run resumes from the newest step that all of them have, on
             the same processes
    """

    folder: str | os.PathLike[str]
    every: int = 1000
    keep: int = 3
    resume: bool | Literal["auto"] = False
    shared: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike) or not str(self.folder):
            raise InputError(
                f"The folder of checkpoints must be a path, but it is {self.folder!r}."
            )
        integer("every", self.every)
        integer("keep", self.keep)
        if self.resume != "auto":
            flag("resume", self.resume)
        flag("shared", self.shared)

    @property
    def path(self) -> Path:
        """The folder as a path."""
        return Path(self.folder)


class RunState(NamedTuple):
    """Everything that a checkpoint holds.

    step        the number of steps done
    agents      the state of all agents; every leaf has a leading axis of agents
    history     the records so far, by measure; "step" says when each was taken
    seconds     where the time of the run has gone so far
    extra       arrays that belong to no agent: the messages that a site has sent

    A pytree whose structure stays the same during a run: JAX arrays have a leading axis of agents,
    all other leaves are numbers of Python or numpy arrays of any length.
    """

    step: int
    agents: Tree
    history: dict[str, np.ndarray]
    seconds: Seconds = Seconds()
    extra: dict[str, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Checkpointer:
    """Writes and restores the state of one run, of which this process has the agents in `local`.

    mode   who may read the files
    """

    checkpoints: Checkpoints
    placement: Placement | None
    local: np.ndarray
    fingerprint: dict[str, str]
    marks: Marks
    mode: int = PUBLIC

    @property
    def own(self) -> bool:
        """Whether each process has a folder of its own."""
        return not self.checkpoints.shared and jax.process_count() > 1

    @property
    def leads(self) -> bool:
        """Whether this process completes checkpoints in its folder."""
        return self.own or jax.process_index() == 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder; all processes call it together."""
        with hold(self.checkpoints.path, self.own):
            if self.leads:
                checkpoint_files.clear(self.checkpoints.path)
            yield

    def save(self, run: RunState) -> None:
        """Write a checkpoint now, together with all other processes, while the folder is held."""
        rows: dict[str, ArrayLike] = {}
        shared: dict[str, np.ndarray] = {}
        for name, leaf in _named(run).items():
            if isinstance(leaf, jax.Array):
                rows[name] = _LocalRows(self.placement, leaf)
            else:
                shared[name] = np.asarray(leaf)
        with hold(self.checkpoints.path, self.own) as lock:
            checkpoint_files.write(
                self.checkpoints.path,
                run.step,
                self.local,
                rows,
                shared,
                {"fingerprint": self.fingerprint, "software": software()},
                lock=lock,
                leader=self.leads,
                barrier=barrier,
                keep=self.checkpoints.keep,
                mode=self.mode,
            )

    def restore(self, start: RunState, steps: int) -> RunState:
        """The state to continue from: that of the newest checkpoint if the run resumes, otherwise
        the start."""
        folder = self.checkpoints.path
        resume = self.checkpoints.resume
        restarted = RESTARTED in os.environ  # by `decibo launch`, which starts processes again
        there = checkpoint_files.steps(folder)
        failure: InputError | None = None
        if there and not (resume or restarted):
            failure = InputError(
                f"{folder} already holds a checkpoint, of step"
                f" {checkpoint_files.step_of(there[-1])}, and a"
                " new run does not overwrite it.",
                'Pass resume=True, or "auto", to continue from it, or choose another folder.',
            )
        check_same({}, failure)
        run = checkpoint_files.newest(folder, lambda saved: self._restored(start, saved), self.own)
        if run is None:
            # killed before all had completed their first checkpoint
            begun = self.own and any(share(bool(there)))
            if resume is True and not restarted and not begun:
                raise InputError(
                    f"There is no checkpoint in {folder} to resume from.",
                    'Leave resume out to start a new run, or pass resume="auto".',
                )
            # Mark the data of a new run, after the marks of one that never came to its first
            # checkpoint are gone.
            if self.leads:
                self.marks.clear()
            barrier("marks of earlier runs are gone")
            self.marks.write()
            return start
        if run.step > steps:
            raise InputError(
                f"The run in {folder} has already done {run.step} steps, but steps is {steps}.",
                f"Pass at least {run.step}, or start a new run in another folder.",
            )
        self.marks.check()
        return run

    def _restored(self, start: RunState, saved: Saved) -> RunState:
        """The state in a checkpoint, in the structure of the state that the run would start
        from."""
        self._check_identity(saved)
        named = _named(start)
        there = self.local
        if not self.own and self.placement is not None:
            there = np.arange(self.placement.count)
        if self.own and f"agents-{there[0]}-{there[-1]}.npz" not in saved.files:
            raise InputError(
                f"{saved.folder} holds other agents than this process now has ({there[0]} to"
                f" {there[-1]}).",
                "Resume with as many processes as before, each with its own folder.",
            )
        try:
            arrays = _checked(saved, named, there, self.local)
        except CorruptedFileError:
            raise
        except Exception as error:  # whatever a damaged file may lead to
            raise damaged(
                saved.folder, f"its arrays cannot be read ({first_line(error)})"
            ) from error
        leaves = []
        for name, leaf in named.items():
            array = arrays[name]
            if not isinstance(leaf, jax.Array):
                leaves.append(array.item() if array.ndim == 0 else array)
            elif self.placement is None:
                leaves.append(jnp.asarray(array))
            else:
                leaves.append(self.placement.split(array, self.local))
        if saved.software != software():
            listed = [
                " and ".join(f"{name} {version}" for name, version in versions.items())
                for versions in (saved.software, software())
            ]
            warn(
                f"{saved.folder} was written by {listed[0]}, and this is {listed[1]}: whether the"
                " objectives and the method are the same was not checked, and the result may"
                " differ from that of an uninterrupted run."
            )
        return jax.tree.unflatten(jax.tree.structure(start), leaves)

    def _check_identity(self, saved: Saved) -> None:
        """Reject a checkpoint of another run, and say what differs."""
        there = saved.fingerprint
        here = self.fingerprint
        keys = dict.fromkeys([*here, *there])
        other = [key for key in keys if there.get(key) != here.get(key)]
        if saved.software != software():  # which trace another program for the same function
            other = [key for key in other if key not in PROGRAMS]
        if {"problem", "method", "outer", "inner", "sample"} & set(other):
            other = [key for key in other if key != "step"]  # it follows from the others
        if other:
            both = {
                key: f"{short(there.get(key))} there, {short(here.get(key))} here" for key in other
            }
            both |= {key: "another function there than here" for key in other if key in PROGRAMS}
            raise InputError(
                f"{saved.folder} belongs to another run"
                f" ({'; '.join(f'{key}: {both[key]}' for key in other)}), and a run resumes only"
                " from a checkpoint of its own.",
                "Pass the same problem, network, method and seed, or choose another folder.",
            )


def _named(run: RunState) -> dict[str, object]:
    """The leaves of a state by their paths, in the order of the tree."""
    leaves = jax.tree_util.tree_flatten_with_path(run)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


@dataclass(frozen=True, eq=False)
class _LocalRows:
    """The rows of this process's agents, fetched from the devices when they are written."""

    placement: Placement | None
    leaf: jax.Array

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        if self.placement is None:
            return _fetched(self.leaf)
        block = int(self.placement.sizes.max())
        pieces = {}
        for shard in self.leaf.addressable_shards:
            device = (shard.index[0].start or 0) // block
            pieces[device] = _fetched(shard.data)[: int(self.placement.sizes[device])]
        return np.concatenate([pieces[device] for device in sorted(pieces)])


def _fetched(array: jax.Array) -> np.ndarray:
    """An array of a device on the host, where JAX would keep it beside the array itself; hence the
    copy."""
    return np.asarray(array if jax.default_backend() == "cpu" else array.copy())


def _checked(
    saved: Saved, named: Mapping[str, object], agents: np.ndarray, own: np.ndarray
) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint of `agents`, rows of `own` among them, if they can be the state
    that begins so."""
    rows = saved.rows(agents, own)
    shared = saved.shared()
    arrays = rows | shared
    if arrays.keys() != named.keys() or rows.keys() & shared.keys():
        listed = ", ".join(sorted(arrays.keys() ^ named.keys())[:5])
        raise damaged(
            saved.folder, f"it does not hold the state of this run; it differs in {listed}"
        )
    for name, leaf in named.items():
        if isinstance(leaf, jax.Array) != (name in rows) or not _fits(leaf, arrays[name]):
            found = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise damaged(saved.folder, f"{name} cannot be {found}")
    times = arrays["history.step"]
    lengths = {array.shape[0] for name, array in arrays.items() if name.startswith("history.")}
    if arrays["step"] != saved.step or arrays["step"].dtype.kind != "i":
        raise damaged(saved.folder, f"its state is of step {arrays['step']}")
    within = not times.size or 0 <= times[0] <= times[-1] <= saved.step
    ordered = times.dtype.kind == "i" and not (np.diff(times) < 0).any()
    if lengths != {len(times)} or not (within and ordered):
        raise damaged(saved.folder, "its records do not belong together")
    return arrays


def _fits(leaf: object, array: np.ndarray) -> bool:
    """Whether an array can be a later value of this leaf; arrays that begin empty get their shape
    later."""
    if isinstance(leaf, jax.Array):
        return array.dtype == leaf.dtype and array.shape[1:] == leaf.shape[1:]
    first = np.asarray(leaf)
    shaped = array.ndim == first.ndim and array.shape[1:] == first.shape[1:]
    return (shaped or (first.size == 0 and array.ndim > 0)) and (
        array.dtype.kind in "biufc" or array.dtype == jnp.bfloat16
    )


def check_folder(folder: Path) -> Path:
    """The folder, created if need be, if it can be written to."""
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
