"""Final states as checksums, to compare two commits bit for bit: run it on both and compare what it
prints.

    python benchmarks/bits.py > after.txt       (and the same script on the other commit >
                                                before.txt)
    diff before.txt after.txt

Five methods on three networks, automatic step sizes on two problems, and runs that were resumed
from a checkpoint; all in one process and in double precision. It runs on commits before and after
the regrouping of the library, which is why it looks names up.
"""

from __future__ import annotations

import hashlib
import inspect
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import decibo  # noqa: E402  (after the precision is chosen)


def named(name: str) -> Any:
    """A public name, flat or in one of the namespaces."""
    for room in (
        decibo,
        *(getattr(decibo, space, None) for space in ("methods", "networks", "problems")),
    ):
        if room is not None and hasattr(room, name):
            return getattr(room, name)
    raise SystemExit(f"decibo has no {name}.")


def digest(*trees: Any) -> str:
    """The SHA-256 of all numbers of some trees."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(trees):
        array = np.ascontiguousarray(leaf)
        total.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return total.hexdigest()[:24]


def answer(solution: Any) -> str:
    """The digest of everything a run computed."""
    # not in old commits
    history = {name: row for name, row in solution.history.items() if name != "direction_norm"}
    return digest(vars(solution.agents), solution.x, solution.y, history, solution.state)


def agents(count: int, factory: Any) -> dict[str, int]:
    """The number of agents under the name that this commit uses."""
    return {
        name: count for name in ("agents", "m") if name in inspect.signature(factory).parameters
    }


def checkpoints(folder: str, every: int, resume: bool) -> dict[str, Any]:
    """Arguments of solve for checkpoints, as this commit takes them."""
    if hasattr(decibo, "Checkpoints"):
        return {"checkpoint": decibo.Checkpoints(folder, every=every, resume=resume)}
    return {"checkpoint": folder, "checkpoint_every": every, "resume": resume}


METHODS = {
    "ahead": {"alpha": 0.02, "beta": 0.01, "gamma": 0.1, "lam": 10.0},
    "ahead_exact": {"alpha": 0.05, "gamma": 0.1, "lam": 10.0},
    "sparkle_gt": {"alpha": 0.05, "beta": 0.1, "gamma": 0.1},
    "ma_dsbo": {"alpha": 0.02, "beta": 0.1, "gamma": 0.1, "T": 3, "N": 3},
    "c2dfb": {"alpha": 0.01, "beta": 0.02, "gamma": 0.05, "lam": 5.0},
}


def main() -> None:
    quadratic, synthetic = named("quadratic"), named("synthetic")
    problem = quadratic(**agents(8, quadratic), heterogeneity=1.0)
    networks = {
        "ring": named("ring")(8),
        "path": named("path")(8),
        "erdos_renyi": named("erdos_renyi")(8, 0.5, seed=1),
    }
    for name, settings in METHODS.items():
        for graph, network in networks.items():
            solution = decibo.solve(
                problem, network, named(name)(**settings), steps=300, progress=False
            )
            print(f"{name:12} {graph:12} {answer(solution)} {solution.status}", flush=True)
    automatic = {
        "quadratic": (problem, networks["path"]),
        "synthetic": (synthetic(), named("path")(10)),
    }
    for name, (made, network) in automatic.items():
        solution = decibo.solve(made, network, steps=1000, progress=False)
        print(
            f"{'automatic':12} {name:12} {answer(solution)} {solution.status} {solution.method}",
            flush=True,
        )
    for name, method in {
        "sparkle_gt": named("sparkle_gt")(**METHODS["sparkle_gt"]),
        "automatic": None,
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {"progress": False, "every": 50}
            run = partial(decibo.solve, problem, networks["ring"], method, steps=500, **options)
            run(**checkpoints(folder, 100, False))
            # as if it had been killed after step 300
            for newer in sorted(Path(folder).glob("step-*"))[1:]:
                shutil.rmtree(newer)
            solution = run(**checkpoints(folder, 100, True))
            whole = run()
            same = (
                "resumed = uninterrupted"
                if answer(solution) == answer(whole)
                else "RESUMED DIFFERS"
            )
            print(f"{'resumed':12} {name:12} {answer(solution)} {same}", flush=True)


if __name__ == "__main__":
    main()
