"""Many runs of an experiment in one compiled program: lanes that differ in method, network or start, one problem.

A lane that stops being finite does not stop the others; from there on its records are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.execute.run import Setup
from decibo.execute.solve import prepare
from decibo.execute.start import Start
from decibo.measure.measures import Measure, Snapshot
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.sweep.sweep import sweep as run_cases


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
    """Run all cases; whichever of network, method and start is a list has one entry for each run."""
    result = run_cases(
        problem,
        network,
        method,
        steps=steps // every * every,
        every=every,
        measures=measures,  # type: ignore[arg-type]
        start=start,
        seeds=[seed],
        progress=False,
    )
    rows = {name: row for name, row in result.history.items() if name != "step"}
    finite = np.array([status == "done" for status in result.status])
    return Sweep(result.history["step"], rows, finite)


def single(problem: Problem, network: Network, method: Algorithm, start: Start = None) -> Setup:
    """One run, for code that times it."""
    return prepare(problem, network, method, steps=1, every=1, measures=[], start=start)
