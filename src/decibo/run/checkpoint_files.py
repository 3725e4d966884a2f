"""A checkpoint on disk: complete or not there, and used only if every byte is what was written.

    DIR/step-00001000/manifest.json     format, step, what the run is (fingerprint), versions,
                                        checksums of the files and of the manifest itself
    DIR/step-00001000/agents-0-4.npz    the state of agents 0 to 4; every process writes its own
                                        agents
    DIR/step-00001000/shared.npz        what is the same for all agents: the step and the history

Processes that have no file system in common have a folder each, with their own agents and all that
is shared. A checkpoint is written under another name and renamed when it is complete and on the
disk, so a crash at any instant leaves the one before. Plain arrays and JSON, nothing that could be
executed, and nothing about processes: any number of them can continue from it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.errors import CorruptedFileError, InputError, first_line, warn
from decibo.files import (
    PRIVATE,
    PUBLIC,
    encode_record,
    named,
    read_record,
    sha256,
    sync_folder,
    synced,
)
from decibo.parallel.processes import check_same, share
from decibo.run.lock import Lock

FORMAT = 5
KIND = "decibo checkpoint"
MANIFEST = "manifest.json"
SHARED = "shared.npz"
AGENTS = "agents-"  # how the names of the others begin
DONE = re.compile(r"step-(\d{8,})")
WRITING = ".writing-"
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint whose files are what was written.

    step         the steps that the state has behind it
    fingerprint  what the run was given, by name
    software     the versions that wrote it
    """

    folder: Path
    step: int
    fingerprint: dict[str, str]
    software: dict[str, str]
    files: tuple[str, ...]

    def rows(self, agents: np.ndarray, own: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The leaves with an axis of agents, by name, for the agents in `own`, in their order.

        agents   all that must be there; without `own`, all are wanted. Files that hold nobody's
                 rows are not read
        """
        own = agents if own is None else own
        paths = [self.folder / name for name in self.files if name.startswith(AGENTS)]
        numbers = [_load(path, ["agents"])["agents"] for path in paths]
        order = np.concatenate(numbers) if numbers else np.zeros(0, int)
        if order.dtype.kind != "i" or not np.array_equal(np.sort(order), agents):
            span = f"{agents[0]} to {agents[-1]}"
            raise damaged(self.folder, f"it does not hold the states of agents {span}, each once")
        needed = [place for place, there in enumerate(numbers) if np.isin(there, own).any()]
        parts = [_load(paths[place]) for place in needed]
        there = [part.pop("agents") for part in parts]
        for part, numbered in zip(parts, there, strict=True):
            lengths = {rows.shape[:1] for rows in part.values()}
            if part.keys() != parts[0].keys() or lengths - {numbered.shape}:
                raise damaged(self.folder, "the states of its agents do not have the same parts")
        read = np.concatenate(there)
        place = np.argsort(read)[np.searchsorted(np.sort(read), own)]
        joined = {}
        for name in list(parts[0]):  # leaf by leaf: what was joined is let go
            pieces = [part.pop(name) for part in parts]
            whole = len(pieces) == 1 and np.array_equal(read, own)
            joined[name] = pieces[0] if whole else np.concatenate(pieces)[place]
        return joined

    def shared(self) -> dict[str, np.ndarray]:
        """The leaves that are the same for all agents, by name: the step and the history."""
        return _load(self.folder / SHARED)


def damaged(folder: Path, why: str) -> CorruptedFileError:
    """The error for a checkpoint that cannot be used."""
    return CorruptedFileError(f"The checkpoint {folder} is damaged: {why}.")


def write(
    folder: Path,
    step: int,
    agents: np.ndarray,
    rows: Mapping[str, ArrayLike],
    shared: Mapping[str, np.ndarray],
    about: Mapping[str, Mapping[str, str]],
    *,
    lock: Lock,
    leader: bool,
    barrier: Callable[[str], None],
    keep: int,
    mode: int = PUBLIC,
) -> None:
    """Write a checkpoint together with all other processes; the leader completes it and removes old
    ones.

    Where each process has a folder of its own, each is the leader of its folder; old checkpoints
    are removed only when all have completed the new one, so that there is always a step that all of
    them have.

    about   the fingerprint of the run, and the software that runs it
    mode    who may read the files
    """
    draft = folder / f"{WRITING}{step:08d}-{lock.token}"
    final = folder / name_of(step)

    def save(name: str, arrays: Mapping[str, ArrayLike]) -> None:
        # One array after the other, so that no more than one of those that come from a device is
        # on the host.
        with synced(draft / name, mode) as file:
            np.savez(file, allow_pickle=False, **arrays)

    try:
        with named(final):
            if leader:
                lock.check()
                draft.mkdir(0o700 if mode == PRIVATE else 0o777)
            barrier("a checkpoint is begun")
            save(f"{AGENTS}{agents[0]}-{agents[-1]}.npz", {"agents": agents, **rows})
            barrier("all agents are written")
            if leader:
                save(SHARED, shared)
                files = {path.name: sha256(path) for path in sorted(draft.iterdir())}
                manifest = {"step": step, **about, "files": files}
                with synced(draft / MANIFEST, mode) as file:
                    file.write(encode_record(KIND, FORMAT, manifest))
                sync_folder(draft)
                lock.check()
                remove(final)  # one that is damaged
                draft.rename(final)
                sync_folder(folder)
    except BaseException:
        # others may be writing into it; the next run removes it
        if leader and jax.process_count() == 1:
            remove(draft)
        raise
    barrier("a checkpoint is complete")
    if leader:
        # The newest ones stay. Those beyond the step just written cannot be used, or the run would
        # have begun there.
        complete = steps(folder)
        upto = [path for path in complete if step_of(path) <= step]
        for old in (*complete[len(upto) :], *upto[:-keep]):
            remove(old)


def newest(
    folder: Path,
    take: Callable[[Saved], T],
    own: bool = False,
    share: Callable[[Any], list[Any]] = share,
) -> T | None:
    """What `take` returns for the newest checkpoint that is sound in all processes; None if there
    is none at all. All processes call it together.

    Those that cannot be read, or that `take` finds damaged, are named in a warning.

    own   whether each process has a folder of its own. A run that was killed before all had
          completed their first checkpoint has none, and begins again
    """
    everyone = share([step_of(path) for path in steps(folder)])
    if not own and any(there != everyone[0] for there in everyone):
        last = sorted({max(there, default=-1) for there in everyone})
        raise InputError(
            f"Processes see different checkpoints in {folder} (steps {last}), but all processes"
            " must see the same folder.",
            "Put it on a file system that all hosts share.",
        )
    broken: list[str] = []
    for step in sorted(set.intersection(*map(set, everyone)), reverse=True):
        taken = damage = failure = None
        try:
            taken = take(read(folder / name_of(step)))
        except CorruptedFileError as error:
            damage = error
        except InputError as error:
            failure = error
        check_same({}, failure)
        bad = [process for process, sound in enumerate(share(damage is None)) if not sound]
        if not bad:
            for sentence in broken:
                warn(f"{sentence} Continuing from step {step} instead.")
            return taken
        elsewhere = f"The checkpoint of step {step} is damaged in the folder of process {bad[0]}."
        broken.append(elsewhere if own or damage is None else str(damage))
    if own and all(everyone):  # else the first checkpoint was never completed
        raise CorruptedFileError(
            "The folders of the processes have no checkpoint of the same step that is sound in all"
            f" of them: they have steps {', '.join(map(str, everyone))}. Start a new run in another"
            " folder."
        )
    if broken and not own:
        others = f" The {len(broken) - 1} before it are damaged, too." if len(broken) > 1 else ""
        raise CorruptedFileError(f"{broken[0]}{others} Start a new run in another folder.")
    return None


def read(folder: Path) -> Saved:
    """A checkpoint, after all its checksums were compared."""
    try:
        # What is not a file, one had better not open: it may be a pipe.
        if not (folder / MANIFEST).is_file():
            raise damaged(folder, f"{MANIFEST} is missing")
        manifest = read_record(folder / MANIFEST, KIND, FORMAT)
        step = manifest["step"]
        files = manifest["files"]
        if folder.name != name_of(step):
            raise damaged(folder, f"it holds step {step}")
        tables = {name: manifest[name] for name in ("fingerprint", "software", "files")}
        for name, entries in tables.items():
            if not isinstance(entries, dict) or {*map(type, entries.values())} - {str}:
                raise damaged(folder, f"{name!r} in its manifest is not a table of words")
        if SHARED not in files:
            raise damaged(folder, f"{SHARED} is missing")
        for name, checksum in files.items():
            path = folder / name
            if Path(name).name != name or not path.is_file():
                raise damaged(folder, f"{name} is missing")
            if sha256(path) != checksum:
                raise damaged(folder, f"{name} is not what was written (checksum)")
        return Saved(folder, step, tables["fingerprint"], tables["software"], tuple(files))
    except (InputError, CorruptedFileError):
        raise
    except Exception as error:  # whatever a damaged file may lead to
        raise damaged(
            folder, f"its manifest cannot be used ({type(error).__name__}: {first_line(error)})"
        ) from error


def steps(folder: Path) -> list[Path]:
    """The completed checkpoints, oldest first."""
    there = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in there if DONE.fullmatch(path.name)), key=step_of)


def step_of(path: Path) -> int:
    """The step of a checkpoint, by its name."""
    return int(path.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """The name of a checkpoint's folder."""
    return f"step-{step:08d}"


def clear(folder: Path) -> None:
    """Remove what was left unfinished when an earlier run was killed; only for who holds the
    lock."""
    for draft in folder.glob(f"{WRITING}*"):
        remove(draft)


def remove(path: Path) -> None:
    """Remove a folder, or the link or file in its place; what cannot be removed stays."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _load(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in (file.files if names is None else names)}
    # numpy does not know bfloat16, and reads it as two bytes of no type
    restored = lambda array: array.view(jnp.bfloat16) if array.dtype == "V2" else array
    return {name: restored(array) for name, array in arrays.items()}
