"""Checkpoints: a folder for each, complete or not there at all. Plain arrays and JSON, nothing that could be executed.

    DIR/step-00001000/manifest.json       format, step, what the run is (fingerprint), checksums of the other files
    DIR/step-00001000/agents-0-4.npz      the state of agents 0 to 4; every process writes its own agents
    DIR/step-00001000/shared.npz          what is the same for all agents: history, settings, the controller's numbers

A checkpoint is written under another name and renamed when it is complete and on the disk, so a crash at any instant
leaves the one before. It says nothing of processes: any number of them can continue from it.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from decibo.errors import CorruptedFileError, InputError, short
from decibo.files import check_writable, encode, sha256, sync_folder, synced

FORMAT = 2
SHARED = "shared.npz"
KIND = "decibo checkpoint"
DONE = re.compile(r"step-(\d{8,})")
WRITING = ".writing-"


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
