"""Checkpoints: when a run keeps its state, how it is written to disk, and how a run resumes.

    DIR/step-00001000/manifest.json       format, step, what the run is (fingerprint), checksums of the other files
    DIR/step-00001000/agents-0-4.npz      the state of agents 0 to 4; every process writes its own agents
    DIR/step-00001000/shared.npz          what is the same for all agents: history, settings, the controller's numbers

A checkpoint is written under another name and renamed when it is complete and on the disk, so a crash at any instant
leaves the one before. Plain arrays and JSON, nothing that could be executed, and nothing about processes: any number of
them can continue from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.automatic.controller import RunState
from decibo.errors import CorruptedFileError, InputError, short
from decibo.files import check_writable, encode, sha256, sync_folder, synced
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.parallel.launch import RESTARTED
from decibo.parallel.placement import Placement
from decibo.parallel.processes import all_gather, barrier
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.validate import integer

FORMAT = 2
SHARED = "shared.npz"
KIND = "decibo checkpoint"
DONE = re.compile(r"step-(\d{8,})")
WRITING = ".writing-"


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
        integer("every", self.every)
        integer("keep", self.keep)

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
        write(
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
        saved = newest(folder)
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
        compare(saved, self.fingerprint)
        return self._restored(start, saved)

    def _restored(self, start: RunState, saved: Saved) -> RunState:
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


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint whose files are sound.

    step         the steps that the state has behind it
    fingerprint  what the run was given, by name
    """

    folder: Path
    step: int
    fingerprint: dict[str, str]
    files: tuple[str, ...]

    def rows(self, agents: np.ndarray) -> dict[str, np.ndarray]:
        """The leaves with an axis of agents, by name, for these agents."""
        where: dict[int, tuple[int, int]] = {}  # agent -> part, row
        names = [name for name in self.files if name.startswith("agents-")]
        parts = [_load(self.folder / name) for name in names]
        for number, part in enumerate(parts):
            where |= {int(agent): (number, row) for row, agent in enumerate(part["agents"])}
        missing = [int(agent) for agent in agents if int(agent) not in where]
        if missing:
            raise damaged(self.folder, f"the state of agent {missing[0]} is not in it")
        pick = lambda name: np.stack([parts[where[int(agent)][0]][name][where[int(agent)][1]] for agent in agents])
        return {name: pick(name) for name in parts[0] if name != "agents"}

    def shared(self) -> dict[str, np.ndarray]:
        """The leaves that are the same for all agents, by name: history, settings, the controller's numbers."""
        return _load(self.folder / SHARED)


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def damaged(folder: Path, why: str) -> CorruptedFileError:
    """The error for a checkpoint that cannot be used."""
    return CorruptedFileError(
        f"The checkpoint {folder} cannot be used: {why}. Delete this folder to continue from the one before, or start "
        "a new run without resume."
    )


def check_folder(folder: Path) -> Path:
    """The folder, created if need be, if it can be written to."""
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(
    folder: Path,
    step: int,
    agents: np.ndarray,
    rows: Mapping[str, np.ndarray],
    shared: Mapping[str, np.ndarray],
    fingerprint: Mapping[str, str],
    *,
    leader: bool,
    barrier: Callable[[str], None],
    keep: int,
) -> None:
    """Write a checkpoint together with all other processes; the leader completes it and removes old ones."""
    draft = folder / f"{WRITING}{step:08d}"
    if leader:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
    barrier("a checkpoint is begun")
    _save(draft / f"agents-{agents[0]}-{agents[-1]}.npz", {"agents": agents, **rows})
    barrier("all agents are written")
    if leader:
        _save(draft / SHARED, shared)
        files = {path.name: sha256(path) for path in sorted(draft.iterdir())}
        manifest = {"kind": KIND, "format": FORMAT, "step": step, "fingerprint": dict(fingerprint), "files": files}
        with synced(draft / "manifest.json") as file:
            file.write(encode(json.dumps(manifest, indent=1)))
        sync_folder(draft)
        final = folder / f"step-{step:08d}"
        if final.exists():  # an earlier run came this far too
            shutil.rmtree(final)
        draft.rename(final)
        sync_folder(folder)
        for old in _steps(folder)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)


def newest(folder: Path) -> Saved | None:
    """The newest sound checkpoint; damaged ones are named in a warning. None if there is none at all."""
    problems: list[CorruptedFileError] = []
    for path in reversed(_steps(folder)):
        try:
            saved = read(path)
        except CorruptedFileError as error:
            problems.append(error)
            continue
        for problem in problems:
            warnings.warn(f"{problem} Continuing from step {saved.step} instead.", stacklevel=2)
        return saved
    if problems:
        raise problems[0]
    return None


def read(folder: Path) -> Saved:
    """A checkpoint, after its checksums were compared."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise damaged(folder, f"its manifest cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise damaged(folder, "this is not a checkpoint of decibo")
    if manifest.get("format") != FORMAT:
        raise damaged(folder, f"it has format {manifest.get('format')!r}, and this version reads format {FORMAT}")
    files = manifest.get("files")
    step = manifest.get("step")
    fingerprint = manifest.get("fingerprint")
    if not (isinstance(files, dict) and isinstance(fingerprint, dict) and isinstance(step, int) and SHARED in files):
        raise damaged(folder, "its manifest lacks an entry")
    for name, digest in files.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise damaged(folder, f"{name} is missing")
        if sha256(path) != digest:
            raise damaged(folder, f"{name} is not what was written (checksum)")
    return Saved(folder, step, fingerprint, tuple(files))


def compare(saved: Saved, fingerprint: Mapping[str, str]) -> None:
    """Reject a checkpoint of another run, and say what differs."""
    keys = dict.fromkeys([*fingerprint, *saved.fingerprint])
    other = [key for key in keys if saved.fingerprint.get(key) != fingerprint.get(key)]
    if other:
        lines = "; ".join(
            f"{key}: {short(saved.fingerprint.get(key))} there, {short(fingerprint.get(key))} here" for key in other
        )
        raise InputError(
            f"{saved.folder} belongs to another run ({lines}), and a run resumes only from a checkpoint of its own.",
            "Pass the same problem, network, method and seed, or choose another folder.",
        )


def _steps(folder: Path) -> list[Path]:
    """The completed checkpoints, oldest first."""
    complete = [path for path in folder.iterdir() if DONE.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(complete, key=lambda path: int(path.name.removeprefix("step-")))


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with synced(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
