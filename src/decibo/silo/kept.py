"""What a site keeps on its own disk: the state of its agent, and what it has said since the
checkpoint before.

A checkpoint is one of `run.checkpoint_files` with one agent, written as a whole or not at all; besides
the state it holds the log of `Post`, so that the site can repeat after a crash what neighbours may
have missed. No site sees another's folder.

    DIR/step-00000120/    the state after 120 steps, the records, the log
    DIR/data-1-1.json     the mark of the data with which the run began (run.data_marks)
    DIR/finished          there once all neighbours have everything: nobody needs this site any more
    DIR/solution.json     how the run ended at this site, and its x and y
"""

from __future__ import annotations

import json
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

FINISHED = "finished"
SOLUTION = "solution.json"
KEPT = 2  # checkpoints: the one before the newest is used if that one is damaged


class Known(NamedTuple):
    """A state of the run: after so many steps, with its records and what was said."""

    step: int
    state: Tree
    history: dict[str, np.ndarray]
    said: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Kept:
    """The folder of one run at one site."""

    folder: Path
    agent: int
    data: Tree  # with a leading axis of one agent
    terms: dict[str, str]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes of this site out of the folder."""
        with hold(check_folder(self.folder), own=True):
            checkpoint_files.clear(self.folder)
            yield

    @property
    def finished(self) -> bool:
        """Whether the run is complete and all neighbours know it."""
        return (self.folder / FINISHED).is_file()

    def finish(self) -> None:
        """Remember that nobody needs this site any more."""
        atomic_write(self.folder / FINISHED, "All neighbours have what this site said.\n")

    def save(self, known: Known) -> None:
        """Write a checkpoint."""
        rows = {
            f"state.{name}": np.asarray(leaf)[None] for name, leaf in _named(known.state).items()
        }
        records = {f"history.{name}": values for name, values in known.history.items()}
        with hold(self.folder, own=True) as lock:
            checkpoint_files.write(
                self.folder,
                known.step,
                np.array([self.agent]),
                rows,
                records | known.said,
                {"fingerprint": self.terms, "software": software()},
                lock=lock,
                leader=True,
                barrier=lambda _: None,
                keep=KEPT,
            )

    def restore(self, shape: Tree) -> Known | None:
        """The newest sound checkpoint, of a state that looks like this; None, and the data marked,
        for a new run."""
        marks = Marks(self.folder, np.array([self.agent]), self.data)
        found = checkpoint_files.newest(self.folder, lambda saved: self._known(saved, shape))
        if found is None:
            marks.clear()
            marks.write()
        else:
            marks.check()
        return found

    def _known(self, saved: Saved, shape: Tree) -> Known:
        compare(saved, self.terms)
        try:
            rows = saved.rows(np.array([self.agent]))
            shared = saved.shared()
            names = _named(shape)
            leaves = [jnp.asarray(rows[f"state.{name}"][0]) for name in names]
            for name, leaf, wanted in zip(names, leaves, names.values(), strict=True):
                if leaf.shape != wanted.shape or leaf.dtype != wanted.dtype:
                    raise damaged(saved.folder, f"{name} cannot be {leaf.dtype}{list(leaf.shape)}")
            history = {
                key.removeprefix("history."): shared[key]
                for key in shared
                if key.startswith("history.")
            }
            said = {key: shared[key] for key in ("said.positions", "said.sizes", "said.numbers")}
        except CorruptedFileError:
            raise
        except Exception as error:  # whatever a damaged file may lead to
            raise damaged(
                saved.folder, f"its arrays cannot be read ({first_line(error)})"
            ) from error
        return Known(
            saved.step, jax.tree.unflatten(jax.tree.structure(shape), leaves), history, said
        )


def ended(site: str, solution: Solution) -> dict[str, object]:
    """How it ended at a site."""
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
    whole = ended(site, solution) | {"folder": str(folder)} | points
    return atomic_write(
        folder / SOLUTION,
        json.dumps(to_json(whole, nonfinite_as_text=True), indent=1) + "\n",
        PRIVATE,
    )


def _named(tree: Tree) -> dict[str, jax.Array]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
