"""What a site keeps on its own disk: the state of its agent, and its messages since the checkpoint
before.

A checkpoint is one of `run.checkpoint_files` with one agent, written as a whole or not at all;
besides the state it holds what `Mailbox` has sent, so that the site can repeat after a crash what
neighbours may have missed. No site sees another's folder, and only its user may read it.

    DIR/step-00000120/    the state after 120 steps, the records, the messages
    DIR/data-1-1.json     the mark of the data with which the run began (run.data_marks)
    DIR/finished          there once all neighbours have everything: nobody needs this site any more
    DIR/solution.json     how the run ended at this site, and its x and y
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import CorruptedFileError, first_line
from decibo.files import PRIVATE, atomic_write
from decibo.formatting import to_json
from decibo.pytree import Tree
from decibo.run import checkpoint_files
from decibo.run.checkpoint import check_folder, compare
from decibo.run.checkpoint_files import Saved, damaged
from decibo.run.data_marks import Marks
from decibo.run.fingerprint import software
from decibo.run.lock import hold
from decibo.run.solution import Solution
from decibo.silo.mailbox import SAVED

FINISHED = "finished"
SOLUTION = "solution.json"
KEPT = 2  # checkpoints: the one before the newest is used if that one is damaged


class SiteState(NamedTuple):
    """Where a site is in a run: after so many steps, with its records and its messages."""

    step: int
    state: Tree
    history: dict[str, np.ndarray]
    sent: dict[str, np.ndarray]


@contextmanager
def private(folder: Path) -> Iterator[None]:
    """A folder that only its user may read, held by one process at a time."""
    check_folder(folder)
    # masks and shares of secrets are in it, and a folder of the caller's choice may be 0755
    os.chmod(folder, 0o700)
    with hold(folder, own=True):
        checkpoint_files.clear(folder)
        yield


@dataclass(frozen=True, eq=False)
class SiteCheckpoints:
    """The folder of one run at one site."""

    folder: Path
    agent: int
    data: Tree  # with a leading axis of one agent
    terms: dict[str, str]

    @property
    def finished(self) -> bool:
        """Whether the run is complete and all neighbours know it."""
        return (self.folder / FINISHED).is_file()

    def finish(self) -> None:
        atomic_write(self.folder / FINISHED, "All neighbours have all messages.\n", PRIVATE)

    def save(self, site: SiteState) -> None:
        rows = {
            f"state.{name}": np.asarray(leaf)[None] for name, leaf in _named(site.state).items()
        }
        records = {f"history.{name}": values for name, values in site.history.items()}
        with hold(self.folder, own=True) as lock:
            checkpoint_files.write(
                self.folder,
                site.step,
                np.array([self.agent]),
                rows,
                records | site.sent,
                {"fingerprint": self.terms, "software": software()},
                lock=lock,
                leader=True,
                barrier=lambda _: None,
                keep=KEPT,
                mode=PRIVATE,
            )

    def restore(self, shape: Tree) -> SiteState | None:
        """The newest sound checkpoint, of a state that looks like this; None, and the data marked,
        for a new run."""
        marks = Marks(self.folder, np.array([self.agent]), self.data)
        found = checkpoint_files.newest(self.folder, lambda saved: self._read(saved, shape))
        if found is None:
            marks.clear()
            marks.write()
        else:
            marks.check()
        return found

    def _read(self, saved: Saved, shape: Tree) -> SiteState:
        compare(saved, self.terms)
        try:
            rows = saved.rows(np.array([self.agent]))
            shared = saved.shared()
            names = _named(shape)
            leaves = [jnp.asarray(rows[f"state.{name}"][0]) for name in names]
            for name, leaf, wanted in zip(names, leaves, names.values(), strict=True):
                if leaf.shape != wanted.shape or leaf.dtype != wanted.dtype:
                    raise damaged(saved.folder, f"{name} cannot be {leaf.dtype}{list(leaf.shape)}")
            start = "history."
            history = {k.removeprefix(start): shared[k] for k in shared if k.startswith(start)}
            sent = {key: shared[key] for key in SAVED}
        except CorruptedFileError:
            raise
        except Exception as error:  # whatever a damaged file may lead to
            raise damaged(
                saved.folder, f"its arrays cannot be read ({first_line(error)})"
            ) from error
        state = jax.tree.unflatten(jax.tree.structure(shape), leaves)
        return SiteState(saved.step, state, history, sent)


def summary(site: str, solution: Solution) -> dict[str, object]:
    """How the run ended at a site, as JSON."""
    return {
        "site": site,
        "status": str(solution.status),
        "message": solution.message,
        "steps": solution.steps,
        "seconds": solution.cost.seconds,
    }


def write_solution(folder: Path, site: str, solution: Solution) -> Path:
    """Keep a site's x and y, and how it ended, where only its user can read them."""
    points = {"x": jax.tree.leaves(solution.x), "y": jax.tree.leaves(solution.y)}
    whole = summary(site, solution) | {"folder": str(folder)} | points
    return atomic_write(
        folder / SOLUTION,
        json.dumps(to_json(whole, nonfinite_as_text=True), indent=1) + "\n",
        PRIVATE,
    )


def _named(tree: Tree) -> dict[str, jax.Array]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
