"""The run folder: everything about one run, in plain files.

run.json              what was run, on what, with which settings and versions, and how it ended
config.toml           the resolved configuration, if there was one
history.csv|.parquet  one row a record: step, gradients, bytes, seconds, every measure
solution.npz          the means x and y and the agents' own, plain arrays
figures/, checkpoint/ when asked for

run.json is written last and holds checksums of the others, so a folder that has it is complete.
"""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.methods import ahead_exact
from decibo.errors import CorruptedFileError, InputError
from decibo.execute.solution import Solution
from decibo.files import atomic_write_all, encode, read_checked, sha256
from decibo.network import DirectedNetwork, Network
from decibo.problem.problem import Problem
from decibo.runs import describe
from decibo.runs import history as table
from decibo.runs.record import RunRecord, check_keys, damaged
from decibo.runs.toml import config_text

KIND, FORMAT = "decibo run", 1
OURS = {"run.json", "config.toml", "history.csv", "history.parquet", "solution.npz", "figures", "checkpoint"}


def write_run(
    folder: str | Path,
    solution: Solution,
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm | None = None,
    *,
    config: Mapping[str, Any] | str | None = None,
    label: str | None = None,
    seed: int | None = None,
    history: str = "csv",
) -> Path:
    """Write everything about a run into `folder`, which may be new, empty or hold an older run.

    method    what was given to solve; None is its default, ahead_exact()
    config    the resolved configuration: a mapping, a dataclass, or TOML as text
    label     what pages call this run; by default the method with its settings
    seed      the seed of the run; by default the one in the configuration
    history   "csv" or "parquet"

    Under several processes all must call it, and only process 0 writes.
    """
    folder, method = check_target(folder), ahead_exact() if method is None else method
    kind, configured = table.check_kind(history), config_text(config)
    arrays = _arrays(solution)
    if jax.process_index() != 0:
        return folder
    columns, measures = table.columns(solution.history, solution.cost)
    contents = {f"history.{kind}": table.as_bytes(columns, kind), "solution.npz": _npz(arrays)}
    if configured is not None:
        contents["config.toml"] = encode(configured)
    told = {
        "kind": KIND,
        "format": FORMAT,
        "label": repr(method) if label is None else str(label),
        "problem": describe.problem_words(problem),
        "method": describe.method_words(method),
        "network": describe.network_words(network),
        "seed": _seed(configured) if seed is None else int(seed),
        "steps": int(solution.steps),
        "every": _every(columns["step"]),
        "status": str(solution.status),
        "message": str(solution.message),
        "seconds": float(solution.cost.seconds),
        "seconds of a record": "the total, compilation included, shared out equally over the steps",
        "cost": {**asdict(solution.cost), "gradients": solution.cost.gradients, "products": solution.cost.products},
        "precision": str(jax.tree.leaves(solution.x)[0].dtype),
        "versions": describe.versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "measures": measures,
        "files": {name: sha256(content) for name, content in contents.items()},
    }
    contents["run.json"] = (json.dumps(told, indent=1) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    replaced = {"config.toml", "history.csv", "history.parquet"} - set(contents)
    atomic_write_all(folder, contents, outdated=["run.json", *sorted(replaced)])
    return folder


def read_run(folder: str | Path) -> RunRecord:
    """What a run folder says, checked; a foreign or damaged folder is refused with the file and the reason."""
    folder = Path(folder)
    path = folder / "run.json"
    told = _told(folder)
    check_keys(path, told)
    for name in told["files"]:
        if name not in OURS:
            raise damaged(path, f"'files' names {name!r}, which is no file of a run")
    kind = next((kind for kind in table.KINDS if f"history.{kind}" in told["files"]), None)
    if kind is None:
        raise damaged(path, "it names no history")
    columns = _history(folder / f"history.{kind}", told["files"][f"history.{kind}"], kind)
    measures = tuple(name for name in told["measures"] if name in columns)
    config = None
    if "config.toml" in told["files"]:
        config = read_checked(folder / "config.toml", told["files"]["config.toml"]).decode("utf-8", "replace")
    fields = {name: told[name] for name in RunRecord.__dataclass_fields__ if name in told}
    return RunRecord(**fields | {"folder": folder, "measures": measures, "config": config, "history": columns})


def is_run(folder: str | Path) -> bool:
    """Whether a folder says that it is a run; `read_run` says whether it is sound."""
    try:
        _told(Path(folder))
    except (InputError, CorruptedFileError):
        return False
    return True


def check_target(folder: str | Path) -> Path:
    """The folder, if a run may be written there. Worth calling before a long run as well."""
    folder = Path(folder)
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"{folder}", f"{nearest} is a file", "Choose another folder for the run.")
    if nearest == folder:
        foreign = sorted(each.name for each in folder.iterdir() if each.name not in OURS and each.name[0] != ".")
        if foreign and not is_run(folder):
            raise InputError(
                f"{folder}", f"it holds {foreign[0]!r} and is no folder of a run", "Choose a new or empty folder."
            )
    return folder


def _told(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not path.exists():
        what = "it is no folder of a run: it has no run.json" if folder.is_dir() else "there is no such folder"
        raise InputError(f"{folder}", what, "Give a folder that write_run or the command line has written.")
    try:
        told = json.loads(read_checked(path))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(told, dict) or told.get("kind") != KIND:
        raise InputError(f"{path}", f"its kind is not {KIND!r}", "Give a folder written by decibo.")
    if told.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {told.get('format')!r}", f"this decibo reads format {FORMAT}", "Use a newer decibo."
        )
    return told


def _history(path: Path, digest: str, kind: str) -> table.Table:
    content = read_checked(path, digest)
    try:
        return table.from_bytes(content, kind)
    except InputError:
        raise
    except Exception as error:  # csv.Error, UnicodeDecodeError, ValueError: all say what is wrong with the file
        raise damaged(path, str(error)) from error


def _arrays(solution: Solution) -> dict[str, np.ndarray]:
    trees = {"x": solution.x, "y": solution.y}
    trees |= {f"agents.{name}": tree for name, tree in vars(solution.agents).items()}
    leaves = {name: jax.tree_util.tree_leaves_with_path(tree) for name, tree in trees.items()}
    return {name + jax.tree_util.keystr(path): _host(leaf) for name, all_ in leaves.items() for path, leaf in all_}


def _host(leaf: Any) -> np.ndarray:
    """The array on this host; parts that other processes hold are fetched, which is why all must call."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        from jax.experimental.multihost_utils import process_allgather

        leaf = process_allgather(leaf, tiled=True)
    array = np.asarray(leaf)
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)  # bfloat16 is unknown to npz


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def _seed(config: str | None) -> int | None:
    """The seed in a configuration: at the top, or in its section [run]."""
    told = tomllib.loads(config or "")
    run = told.get("run")
    found = told.get("seed", run.get("seed") if isinstance(run, dict) else None)
    return found if type(found) is int else None


def _every(step: np.ndarray) -> int | None:
    return int(step[1] - step[0]) if len(step) > 1 else None
