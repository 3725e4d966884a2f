"""solve: check what was given, and run it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.methods import ahead_exact
from decibo.cli import cache
from decibo.errors import InputError
from decibo.execute.checkpoint import check_folder
from decibo.execute.checkpointing import Keeper
from decibo.execute.checks import check_fit, check_kinds
from decibo.execute.progress import Report, reporter
from decibo.execute.run import Run
from decibo.execute.solution import Solution
from decibo.execute.start import Start
from decibo.network import DirectedNetwork, Network
from decibo.parallel.placement import place_agents
from decibo.problem.problem import Problem
from decibo.validate import positive_int


def solve(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm | None = None,
    *,
    steps: int = 1000,
    every: int | None = None,
    measures: Iterable[Any] | Mapping[str, Any] | None = None,
    start: Start = None,
    seed: int = 0,
    until: Mapping[str, float] | None = None,
    progress: bool | Report | None = None,
    throw: bool = False,
    devices: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    keep: int = 3,
    resume: bool = False,
) -> Solution:
    """Let the agents of `network` solve `problem` together by `method`; without one, by `ahead_exact()`.

    steps     how many steps to do
    every     how many steps between two records of the history; by default about a hundred records
    measures  what to record: names (see decibo.measure), functions of a snapshot, "cheap" (default) or "all"
    start     stacked starting points {"x": ..., "y": ...}, or `random_start(seed)`; by default x0 and y0
    seed      for methods and networks that draw random numbers
    until     stop as converged once all these measures are at or below their values: {"stationarity": 1e-8}
    progress  a line on the terminal (default: if there is one), or a function (step, steps, latest measures)
    throw     raise DivergedError when the state stops being finite, instead of returning what there is
    devices   over how many devices to spread the agents; by default all there are, in all processes

    checkpoint        a folder in which to keep the state, so that a run can go on after a crash
    checkpoint_every  how many steps between two checkpoints; there is one at the end, and after Ctrl-C, too
    keep              how many of the newest checkpoints stay
    resume            go on from the newest checkpoint there, on any number of processes
    """
    method = ahead_exact() if method is None else method
    check_kinds(problem, network, method)
    steps = positive_int("steps", steps)
    every = max(1, steps // 100) if every is None else positive_int("every", every)
    check_fit(problem, network, method)
    cache.enable()
    place, keeper = place_agents(network.agents, devices), _keeper(checkpoint, checkpoint_every, keep, resume)
    run = Run(problem, network, method, steps, every, measures, start, seed, until, place, keeper)
    view = reporter(progress)
    try:
        return run.go(view, throw)
    finally:
        close = getattr(view, "close", None)  # a line on the terminal ends with the run
        if close:
            close()


def _keeper(checkpoint: Any, every: Any, keep: Any, resume: bool) -> Keeper | None:
    if checkpoint is None and not resume:
        return None
    if checkpoint is None:
        raise InputError("resume=True without a checkpoint", "it says where to go on from", "Give checkpoint=FOLDER.")
    every, keep = positive_int("checkpoint_every", every), positive_int("keep", keep)
    return Keeper(check_folder(Path(checkpoint)), every, keep, resume)
