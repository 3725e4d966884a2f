"""Many runs of an experiment in one compiled program: lanes that differ in method, network or start, one problem.

A lane that stops being finite does not stop the others; from there on its records are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.execute import loop
from decibo.execute.prepare import variables_of
from decibo.execute.start import Start, starting_rows
from decibo.measure.measures import Measure, Snapshot
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.sweep import lanes


@dataclass(frozen=True, eq=False)
class Sweep:
    """What lanes left behind: steps (records,), each measure (lanes, records, ...), finite (lanes,)."""

    steps: np.ndarray
    rows: dict[str, np.ndarray]
    finite: np.ndarray


def mean_y(s: Snapshot) -> jax.Array:
    """ybar, from which accuracy and losses are computed afterwards."""
    return s.mean("y")


def mean_x(s: Snapshot) -> jax.Array:
    """xbar."""
    return s.mean("x")


def sweep(
    problem: Problem,
    network: Network | Sequence[Network],
    method: Algorithm | Sequence[Algorithm],
    *,
    steps: int,
    every: int,
    measures: Mapping[str, Measure],
    start: Start | Sequence[Start] = None,
    seed: int = 0,
) -> Sweep:
    """Run all lanes; whichever of network, method and start is a list has one entry for each lane."""
    every_lane = _lanes(problem, network, method, start, seed)
    program = loop.Program(problem.functions, tuple(measures.items()), ())
    lengths = np.full(steps // every + 1, every, np.int32)
    lengths[0] = 0
    seen, finite = lanes.run(program, every_lane, lengths, np.ones(len(lengths), bool))
    missing = len(lengths) - finite.shape[1]  # after all lanes stopped being finite
    seen = {name: _extended(row, missing) for name, row in seen.items()}
    return Sweep(np.cumsum(lengths), seen, finite.all(axis=1) & (missing == 0))


def single(problem: Problem, network: Network, method: Algorithm, start: Start = None) -> tuple[loop.World, Tree]:
    """World and starting rows of one run, for code that times it."""
    lone = _lanes(problem, network, [method], start, 0)
    return lone.world._replace(core=method.core), lone.start


def _extended(row: np.ndarray, missing: int) -> np.ndarray:
    if not missing:
        return row
    return np.concatenate([row, np.full((row.shape[0], missing, *row.shape[2:]), np.nan, row.dtype)], axis=1)


def _lanes(problem: Problem, network: Any, method: Any, start: Any, seed: int) -> lanes.Lanes:
    parts = {"mixing": network, "core": method, "start": start}
    lists = {name: list(value) for name, value in parts.items() if isinstance(value, Sequence)}
    sizes = {name: len(value) for name, value in lists.items()}
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise InputError(f"lanes: {sizes}", "lists must have one entry for each lane", "Make them equally long.")
    if not lists:
        lists["core"] = [method]
    one = lambda name: lists[name][0] if name in lists else parts[name]
    data, m = problem.local(range(one("mixing").agents)), one("mixing").agents
    variables = variables_of(problem.functions, data, one("core").core)
    known = {name: jnp.ravel(jnp.asarray(tree)) for name, tree in (problem.solution or {}).items()}
    made = {
        "core": lambda a: a.core,
        "mixing": lambda n: n.mixing("dense"),
        "start": lambda s: starting_rows(problem, m, s, variables),
    }
    found = {
        name: lanes.stack([of(each) for each in lists[name]]) if name in lists else of(parts[name])
        for name, of in made.items()
    }
    world = loop.World(found["core"], found["mixing"], data, jax.random.key(seed), known, {})
    return lanes.Lanes(world, found["start"], tuple(lists))
