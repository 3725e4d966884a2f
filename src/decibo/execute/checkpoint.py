"""Checkpoints: a folder for each, complete or not there at all. Plain arrays and JSON, nothing that could be executed.

    DIR/step-00001000/manifest.json       format, step, what the run is (fingerprint), checksums of the other files
    DIR/step-00001000/agents-0-4.npz      the state of agents 0 to 4; every process writes its own agents
    DIR/step-00001000/history.npz         what was recorded so far

A checkpoint is written under another name and renamed when it is complete and on the disk, so a crash at any instant
leaves the one before. It says nothing of processes: any number of them can go on from it.
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
from typing import Any

import numpy as np

from decibo.errors import InputError, short

FORMAT = 1
KIND = "decibo checkpoint"
DONE = re.compile(r"step-(\d{8,})")
WRITING = ".writing-"


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint that was found sound.

    step         the steps that the state has behind it
    fingerprint  what the run was given, by field
    extra        whatever else the run noted (JSON)
    """

    folder: Path
    step: int
    fingerprint: dict[str, str]
    extra: dict[str, Any]
    files: tuple[str, ...]

    def rows(self, agents: np.ndarray) -> list[np.ndarray]:
        """The leaves of the state of these agents, in the order in which they were written."""
        found: dict[int, tuple[Any, int]] = {}
        parts = [np.load(self.folder / name, allow_pickle=False) for name in self.files if name.startswith("agents-")]
        try:
            for part in parts:
                found |= {int(agent): (part, row) for row, agent in enumerate(part["agents"])}
            missing = [int(agent) for agent in agents if int(agent) not in found]
            if missing:
                raise damaged(self.folder, f"the state of agent {missing[0]} is not in it")
            count = sum(name.startswith("leaf") for name in parts[0].files)
            return [self._leaf(f"leaf{n}", agents, found) for n in range(count)]
        finally:
            for part in parts:
                part.close()

    def _leaf(self, name: str, agents: np.ndarray, found: Mapping[int, tuple[Any, int]]) -> np.ndarray:
        loaded = {id(part): part[name] for part in {id(part): part for part, _ in found.values()}.values()}
        return np.stack([loaded[id(found[int(agent)][0])][found[int(agent)][1]] for agent in agents])

    def history(self) -> dict[str, np.ndarray]:
        """What was recorded, by measure."""
        with np.load(self.folder / "history.npz", allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def damaged(folder: Path, why: str) -> InputError:
    """The error for a checkpoint that cannot be used."""
    return InputError(
        f"{folder}: {why}",
        "a checkpoint is used only if it is whole",
        "Delete this folder to go on from the one before, or start anew without resume.",
    )


def check_folder(folder: Path) -> Path:
    """The folder, made if it is not there, if it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"{WRITING}probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"checkpoint = {str(folder)!r}: {error.strerror or error}",
            "checkpoints need a folder that can be written to",
            "Choose another folder, or change its permissions.",
        ) from error
    return folder


def write(
    folder: Path,
    step: int,
    agents: np.ndarray,
    leaves: Iterable[np.ndarray],
    history: Mapping[str, Any],
    fingerprint: Mapping[str, str],
    extra: Mapping[str, Any],
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
    arrays = {f"leaf{n}": leaf for n, leaf in enumerate(leaves)}
    _save(draft / f"agents-{agents[0]}-{agents[-1]}.npz", {"agents": agents, **arrays})
    barrier("all agents are written")
    if leader:
        _save(draft / "history.npz", {name: np.asarray(values) for name, values in history.items()})
        files = {path.name: _digest(path) for path in sorted(draft.iterdir())}
        manifest = {
            "kind": KIND,
            "format": FORMAT,
            "step": step,
            "fingerprint": dict(fingerprint),
            "extra": dict(extra),
        }
        text = json.dumps(manifest | {"files": files}, indent=1)
        _flush(draft / "manifest.json", text.encode())
        _sync(draft)
        final = folder / f"step-{step:08d}"
        if final.exists():  # an earlier run came this far too
            shutil.rmtree(final)
        draft.rename(final)
        _sync(folder)
        for old in _steps(folder)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)


def newest(folder: Path) -> Saved | None:
    """The newest sound checkpoint; damaged ones are named in a warning. None if there is none at all."""
    problems: list[InputError] = []
    for path in reversed(_steps(folder)):
        try:
            found = read(path)
        except InputError as error:
            problems.append(error)
            continue
        for problem in problems:
            warnings.warn(f"{problem} Going on from step {found.step} instead.", stacklevel=2)
        return found
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
    files, step = manifest.get("files"), manifest.get("step")
    fingerprint, extra = manifest.get("fingerprint"), manifest.get("extra")
    if not (isinstance(files, dict) and isinstance(fingerprint, dict) and isinstance(extra, dict)):
        raise damaged(folder, "its manifest lacks an entry")
    if not isinstance(step, int) or "history.npz" not in files:
        raise damaged(folder, "its manifest lacks an entry")
    for name, digest in files.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise damaged(folder, f"{name} is missing")
        if _digest(path) != digest:
            raise damaged(folder, f"{name} is not what was written (checksum)")
    return Saved(folder, step, fingerprint, extra, tuple(files))


def compare(saved: Saved, fingerprint: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another run, and say what differs."""
    keys = [*dict.fromkeys([*fingerprint, *saved.fingerprint])]
    other = [key for key in keys if saved.fingerprint.get(key) != fingerprint.get(key)]
    if other:
        lines = "; ".join(
            f"{key}: {short(saved.fingerprint.get(key))} there, {short(fingerprint.get(key))} here" for key in other
        )
        raise InputError(
            f"{saved.folder} belongs to another run ({lines})",
            "a run can go on only from a checkpoint of the same problem, network and method",
            "Give the same problem, network, method and seed, or another checkpoint folder.",
        )


def _steps(folder: Path) -> list[Path]:
    """The completed checkpoints, oldest first."""
    found = [path for path in folder.iterdir() if DONE.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())


def _flush(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
