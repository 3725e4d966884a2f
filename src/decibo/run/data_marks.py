"""Keyed checksums of the data, so that a resumed run can verify its data without revealing it.

Every process marks the data of its own agents with a key that it draws itself,

    mark of agent i = HMAC-SHA256(key, data of agent i)

and keeps both in a file of its own beside the checkpoints, which only its user may read. Marks are
compared where the data is; no other process sees them, and without the key they say nothing, not
even about a single bit.

    DIR/data-0-4.json     the key and the marks of agents 0 to 4
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from decibo.errors import CorruptedFileError, InputError, warn
from decibo.files import PRIVATE, read_record, write_record
from decibo.pytree import Tree

KIND = "decibo data marks"
FORMAT = 1
PATTERN = "data-*.json"
DRAFTS = ".data-*"


@dataclass(frozen=True, eq=False)
class Marks:
    """The data of this process's agents, and where their marks are kept."""

    folder: Path
    agents: np.ndarray
    data: Tree

    def write(self) -> None:
        """Mark the data of a new run, with a new key."""
        key = secrets.token_bytes(32)
        marks = {
            str(agent): mark for agent, mark in zip(self.agents, self._marks(key), strict=True)
        }
        write_record(
            self.folder / f"data-{self.agents[0]}-{self.agents[-1]}.json",
            KIND,
            FORMAT,
            {"key": key.hex(), "marks": marks},
            PRIVATE,
        )

    def clear(self) -> None:
        """Remove all marks and their drafts; for a new run, before any process writes its own."""
        for path in (*self.folder.glob(PATTERN), *self.folder.glob(DRAFTS)):
            path.unlink(missing_ok=True)

    def check(self) -> None:
        """Reject other data than those with which the run began; warn where this cannot be found
        out."""
        known = self._known()
        unknown = [int(agent) for agent in self.agents if int(agent) not in known]
        for key in {key for key, _ in known.values()}:
            for agent, mark in zip(self.agents.tolist(), self._marks(key), strict=True):
                if (
                    agent in known
                    and known[agent][0] == key
                    and not hmac.compare_digest(known[agent][1], mark)
                ):
                    raise InputError(
                        f"The run in {self.folder} began with other data of agent {agent}, and a"
                        " run resumes only with the same data.",
                        "Pass the same data, or choose another folder.",
                    )
        if unknown:
            warn(
                f"Whether agent {unknown[0]} still has the data with which the run in {self.folder}"
                f" began cannot be checked: no file {PATTERN} there that this process can read"
                f" knows it ({len(unknown)} such agents)."
            )

    def _known(self) -> dict[int, tuple[bytes, str]]:
        """The key and the mark of each agent, as far as this process may read them."""
        known: dict[int, tuple[bytes, str]] = {}
        for path in sorted(self.folder.glob(PATTERN)):
            # damage, or another version's file, does not mean other data
            with suppress(CorruptedFileError, InputError):
                content = read_record(path, KIND, FORMAT)
                key = bytes.fromhex(content["key"])
                known |= {int(agent): (key, str(mark)) for agent, mark in content["marks"].items()}
        return known

    def _marks(self, key: bytes) -> Iterator[str]:
        """The marks of this process's agents, in their order."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.data)]
        return (marked(key, [leaf[row] for leaf in leaves]) for row in range(len(self.agents)))


def marked(key: bytes, arrays: Iterable[np.ndarray]) -> str:
    """The mark of arrays of numbers or words."""
    total = hmac.new(key, digestmod=hashlib.sha256)
    for array in arrays:
        total.update(f"{array.dtype}{array.shape}".encode())
        if array.dtype == object:
            total.update(json.dumps(array.tolist(), default=str).encode())
        else:
            total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
