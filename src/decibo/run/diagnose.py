"""What to change after a run that came to nothing: found by trying, not by guessing.

A run that blew up is repeated from its start with one setting at a time lowered, by 4, 16, ...
times; those that stay bounded are named. If the inner level has no curvature, no setting helps, and
that is said instead.
"""

from __future__ import annotations

import time

import jax
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.asynchronous import core_for
from decibo.errors import InputError
from decibo.formatting import listed
from decibo.problem.problem import Problem
from decibo.problem.reference import Reference
from decibo.pytree import Tree
from decibo.run import loop
from decibo.run.loop import INTERVALS, Chunk, Inputs, Program
from decibo.run.outcome import GROWN

FACTORS = (4, 16, 64, 256)
LIMIT = 20_000  # steps: a run that fails later than this is not repeated
SECONDS = 20.0  # no further trial is started after this time


def last_finite(
    program: Program, inputs: Inputs, state: Tree, step: int, limit: int
) -> tuple[Tree, int]:
    """The last state before a number stops being finite, and its step; or the state at `limit`."""
    while step < limit:
        count = min(INTERVALS, limit - step)
        end = loop.advance(program, inputs, state, np.int32(step), Chunk.silent(count, count))
        if not end.alive:
            good = int(end.interval) - 1
            return (
                loop.advance(program, inputs, state, np.int32(step), Chunk.silent(good)).state,
                step + good,
            )
        state = end.state
        step += count
    return state, step


def unsolved_inner(problem: Problem, inputs: Inputs, x: Tree) -> str:
    """Why there is no exact answer at x; empty if there is one after all."""
    try:
        Reference(problem.functions, inputs.data, problem.x0, problem.y0).at(x)
    except InputError as error:
        return str(error)
    return ""


def explain(
    program: Program, inputs: Inputs, method: Algorithm, start: dict[str, jax.Array], failed: int
) -> str:
    """One or two sentences: what keeps the run bounded, or what was tried without success."""
    names = [name for name in method.step_sizes if _is_number(method.settings[name])]
    if not names:
        return "Lower the step sizes."
    if failed > LIMIT:
        return f"Lower {listed(names)}, one at a time, starting with the step size of x."
    patience = max(4 * failed, 50)
    begun = time.perf_counter()
    survives = lambda names, factor: _survives(
        program, inputs, _lowered(method, names, factor), start, patience
    )
    factor = FACTORS[0]
    for factor in FACTORS:
        helpful = [name for name in names if survives([name], factor)]
        if helpful:
            values = " or ".join(
                f"{name} (try {method.settings[name] / factor:g})" for name in helpful
            )
            return f"Lower {values}: that alone keeps {patience} steps from the same start finite."
        if time.perf_counter() - begun > SECONDS:
            break
    if survives(names, factor):
        return (
            f"Lower {listed(names)} together: one alone does not help, {factor} times less of all"
            " does."
        )
    return (
        f"Lower {listed(names)} by more than {factor}: with that much less of all, it still"
        " blows up."
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lowered(method: Algorithm, names: list[str], factor: int) -> Algorithm:
    return method.replace(**{name: method.settings[name] / factor for name in names})


def _survives(
    program: Program, inputs: Inputs, method: Algorithm, start: dict[str, jax.Array], patience: int
) -> bool:
    changed = inputs._replace(core=core_for(inputs.mixing, method))
    state = loop.begin(program, changed, start)
    chunk = Chunk.silent(patience, min(patience, INTERVALS))
    end = loop.advance(program, changed, state, np.int32(0), chunk)
    return bool(end.alive) and float(loop.largest(end.state)) <= GROWN * (
        1 + float(loop.largest(start))
    )
