"""What a run folder says, read again."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from decibo.errors import CorruptedFileError
from decibo.files import read_checked

Number = (int, float)
KEYS: dict[str, tuple[type, ...]] = {
    "label": (str,),
    "problem": (dict,),
    "method": (dict,),
    "network": (dict,),
    "seed": (int, type(None)),
    "steps": (int,),
    "every": (int, type(None)),
    "status": (str,),
    "message": (str,),
    "seconds": Number,
    "cost": (dict,),
    "precision": (str,),
    "versions": (dict,),
    "finished": (str,),
    "measures": (list,),
    "files": (dict,),
}
INNER: dict[str, dict[str, tuple[type, ...]]] = {
    "problem": {"name": (str,)},
    "method": {"name": (str,), "text": (str,), "settings": (dict,)},
    "network": {
        "name": (str,),
        "agents": (int,),
        "links": (int,),
        "edges": (list, type(None)),
        "shape": (list,),
        "rho": (*Number, type(None)),
        "directed": (bool,),
    },
    "cost": {"gradients": Number, "bytes": Number, "agents": Number, "links": Number},
}


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run as its folder tells it.

    history   column -> array with one entry a record: step, gradients, bytes, seconds if known, and every measure
    measures  the columns of history worth a curve
    cost      what a step costs, in every currency, as in Solution.cost
    config    the text of config.toml, if the run had one
    """

    folder: Path
    label: str
    problem: dict[str, Any]
    method: dict[str, Any]
    network: dict[str, Any]
    seed: int | None
    steps: int
    every: int | None
    status: str
    message: str
    seconds: float
    cost: dict[str, Any]
    precision: str
    versions: dict[str, str]
    finished: str
    measures: tuple[str, ...]
    config: str | None
    history: dict[str, np.ndarray] = field(repr=False)
    files: dict[str, str] = field(repr=False)

    def arrays(self) -> dict[str, np.ndarray]:
        """solution.npz: the means x and y, and every agent's own as agents.x, agents.y, ..."""
        path = self.folder / "solution.npz"
        content = read_checked(path, self.files.get("solution.npz"))
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                return dict(stored)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise damaged(path, f"it holds no plain arrays ({error})") from error


def damaged(path: Path, reason: str) -> CorruptedFileError:
    """The error for a file of a run folder."""
    return CorruptedFileError(f"{path} is damaged: {reason}. Repeat the run, or leave this folder out.")


def check_keys(path: Path, told: Mapping[str, Any]) -> None:
    """Everything that a page relies on must be there and of its type."""
    _typed(path, "", told, KEYS)
    for name, keys in INNER.items():
        _typed(path, name + ".", told[name], keys)
    if not all(isinstance(name, str) for name in told["measures"]):
        raise damaged(path, "'measures' must be names")
    for name in ("versions", "files"):
        if not all(isinstance(value, str) for value in told[name].values()):
            raise damaged(path, f"'{name}' must hold text only")
    _edges(path, told["network"])


def _typed(path: Path, prefix: str, told: Mapping[str, Any], keys: Mapping[str, tuple[type, ...]]) -> None:
    for name, kinds in keys.items():
        if name not in told:
            raise damaged(path, f"'{prefix}{name}' is missing")
        value = told[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise damaged(path, f"'{prefix}{name}' must not be of type {type(value).__name__}")


def _edges(path: Path, network: Mapping[str, Any]) -> None:
    m = network["agents"]
    for edge in network["edges"] or []:
        ends = edge[:2] if isinstance(edge, list) and len(edge) == 3 else []
        if not (ends and all(type(end) is int and 0 <= end < m for end in ends) and isinstance(edge[2], Number)):
            raise damaged(path, f"'network.edges' holds {edge!r}, which is no [agent, agent, weight]")
