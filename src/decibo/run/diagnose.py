"""The solution of a run that has ended, and in words how it ended; after divergence also what to
change.

A run that diverged is repeated from its start with one setting at a time lowered, by 4, 16, ...
times, and those that keep it bounded are named. If the inner level has no curvature, no setting
helps, and the message says so instead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.asynchronous import core_for
from decibo.errors import InputError
from decibo.formatting import format_number, listed
from decibo.measure.measures import SOLVED, as_trees
from decibo.problem.reference import Reference, not_strongly_convex
from decibo.run import loop, outcome
from decibo.run.checkpoint import RunState
from decibo.run.compiled import Setup
from decibo.run.loop import INTERVALS, Chunk, Inputs, Program
from decibo.run.outcome import GROWN
from decibo.run.run import Ended
from decibo.run.solution import Solution, Status

FACTORS = (4, 16, 64, 256)
LIMIT = 20_000  # steps: a run that fails later than this is not repeated
SECONDS = 20.0  # no further trial is started after this time
PATIENCE = 5.0  # seconds: a run that took longer is not repeated to find out what to change
MOREAU = "1/c"  # the bias of methods for inner levels that need not be convex


def conclude(setup: Setup, run: RunState, ended: Ended, resumed: int) -> Solution:
    """The solution: whether the result is valid, and if not, why.

    resumed   the step of the checkpoint from which the run went on, 0 if there was none
    """
    status = ended.status
    goals = " and ".join(f"{name} <= {value:g}" for name, value in setup.targets.items())
    solution = _solution(setup, run)
    if status is Status.diverged:
        reasons = [ended.reason, _why_not_finite(setup, run, ended.failed)]
    else:
        last = float(loop.largest(run.agents))
        first = float(loop.largest(setup.start)) if last > outcome.WORSE else 0.0
        found, note = outcome.judge(run.history, first, last)
        moved = outcome.hardly_moved(
            setup.center, np.asarray(setup.program.functions.x.ravel(solution.x))
        )
        reasons = [note]
        if found is Status.diverged:
            reasons.append(_why_grown(setup, run))
        elif found is Status.failed:
            reasons.append(_why_failed(setup, run, solution))
        elif run.step:
            # No number gives it away, but a flat inner level would: looked for only where x or y
            # has stayed or the objective has risen, since it takes an eigenvalue.
            chooses = setup.method.chosen is not None
            suspect = (
                (chooses and bool(moved))
                or outcome.worsened(run.history)
                or _kept_y(setup, solution)
            )
            flat = _flat_inner(setup, solution) if suspect else ""
            found = Status.failed if flat else None
            reasons += [moved, flat]
        reasons.append(_chosen(setup, run))
        if found is not None and status is not Status.interrupted:
            status = found
        if not status.sound:
            headline = f"The run produced no valid result after {run.step} steps."
        elif status is Status.converged:
            headline = f"Reached {goals} at step {run.step}."
        elif status is Status.interrupted:
            headline = (
                f"Interrupted at step {run.step} of {setup.steps}; everything up to there is kept."
            )
        elif status is Status.stopped:
            headline = ended.reason
        else:
            headline = f"All {setup.steps} steps done."
            already = all(
                (run.history[name] <= value).all() for name, value in setup.targets.items()
            )
            if goals and already:
                headline += f" {goals} held from the start on, which does not end a run."
        reasons.insert(0, headline)
    if resumed:
        reasons.append(f"Resumed from the checkpoint of step {resumed}.")
    return replace(solution, status=status, message=" ".join(filter(None, reasons)))


def _solution(setup: Setup, run: RunState) -> Solution:
    functions = setup.program.functions
    method = setup.method
    rows = loop.rows_of(setup.program, setup.inputs, run.agents)
    if setup.placement:
        # here, for this process alone
        rows = {name: jnp.asarray(np.asarray(row)) for name, row in rows.items()}
    links = len(setup.network.edges) * (1 if setup.network.directed else 2)
    return Solution(
        x=functions.x.unravel(jnp.mean(rows["x"], axis=0)),
        y=functions.y.unravel(jnp.mean(rows[method.answer], axis=0)),
        agents=as_trees(functions, rows),
        history=run.history,
        cost=replace(
            setup.cost,
            agents=setup.network.agents,
            links=links,
            steps=run.step,
            seconds=run.seconds.steps,
            compiling=run.seconds.compiling,
            measuring=run.seconds.measuring,
        ),
        status=Status.done,
        message="",
        steps=run.step,
        method=method,
        network=setup.network,
        state=run.agents if setup.placement is None else None,
    )


def _chosen(setup: Setup, run: RunState) -> str:
    """Which step sizes the agents have come to, if they chose any."""
    if setup.method.chosen is None:
        return ""
    return step_sizes(loop.chosen_of(setup.program, setup.inputs, run.agents))


def step_sizes(rows: Mapping[str, jax.Array]) -> str:
    """The step sizes that agents have found, in a sentence."""
    found = {name: float(np.median(np.asarray(row))) for name, row in rows.items()}
    finite = [
        f"{name}={format_number(value)}" for name, value in found.items() if not np.isinf(value)
    ]
    unlimited = [name for name, value in found.items() if np.isinf(value)]
    sentences = [f"Step sizes found by the agents: {', '.join(finite)}."] if finite else []
    return " ".join(
        [*sentences, *(f"No curvature was seen that would limit {name}." for name in unlimited)]
    )


def _flat_inner(setup: Setup, end: Solution | None = None) -> str:
    """A sentence, if the inner level has no curvature at the start, or at the end; not looked at
    where data is spread over devices."""
    if setup.placement or setup.method.bias == MOREAU:
        return ""
    functions = setup.program.functions
    if end is None:
        x, y = (jnp.mean(setup.start[name], axis=0) for name in ("x", "y"))
    else:
        x = functions.x.ravel(end.x)
        y = functions.y.ravel(end.y)
    where = "at the start" if end is None else "where the run ended"
    found = not_strongly_convex(functions, setup.inputs.data, x, y, where)
    return "" if found is None else str(found)


def _kept_y(setup: Setup, solution: Solution) -> bool:
    """Whether y, or z, is where it began, as if the inner level did not depend on it; looked at
    where that is cheap."""
    layout = setup.program.functions.y
    if setup.placement or setup.method.one_level or layout.size > outcome.SMALL_Y:
        return False
    start = np.asarray(setup.start["y"]).mean(axis=0)
    z = jax.tree.map(lambda rows: np.asarray(rows).mean(axis=0), getattr(solution.agents, "z", ()))
    ends = [[np.ravel(leaf) for leaf in jax.tree.leaves(tree)] for tree in (solution.y, z)]
    return any(outcome.unmoved(start, np.concatenate(leaves)) for leaves in ends if leaves)


def _why_grown(setup: Setup, run: RunState) -> str:
    """What to do about numbers that grew without bound."""
    flat = _flat_inner(setup)
    if flat:
        return flat
    if setup.method.chosen:
        return "No step sizes kept it bounded: is the outer objective bounded below?"
    if run.seconds.steps > PATIENCE:
        return "Lower the step sizes, or check that the outer objective is bounded below."
    return _explained(setup, run, run.step)


def _why_failed(setup: Setup, run: RunState, solution: Solution) -> str:
    """Why a measure is not a finite number."""
    exact = any(not np.isfinite(run.history[name][-1]) for name in SOLVED if name in run.history)
    if exact and setup.placement is None:
        problem = setup.problem
        try:
            Reference(problem.functions, setup.inputs.data, problem.x0, problem.y0).at(solution.x)
        except InputError as error:
            return str(error)
    return "Check where the objectives and measures are defined."


def _why_not_finite(setup: Setup, run: RunState, failed: int | None) -> str:
    """What to do about a state that stopped being finite at this step; None if the one before is
    gone."""
    if failed is not None:
        return _flat_inner(setup) or _explained(setup, run, failed)
    # The objectives of a large run were not computed before it.
    if setup.placement is None:
        start = setup.rows()
        key = setup.inputs.key if setup.method.stochastic and setup.source is None else None
        both = loop.values(setup.program.functions, setup.inputs.data, start["x"], start["y"], key)
        for name, row in zip(("outer", "inner"), map(np.asarray, both), strict=True):
            for agent in np.flatnonzero(~np.isfinite(row))[:1]:
                return (
                    f"Already at the start {name} of agent {agent} was {row[agent]}: check the data"
                    " of this agent."
                )
    return "Lower the step sizes."


def _explained(setup: Setup, run: RunState, failed: int) -> str:
    """What to lower, found by trials from the same start, if it can be made again: a stream cannot
    be read from its beginning."""
    if setup.source is not None or loop.is_large(run.agents):
        return "Lower the step sizes."
    return explain(setup.program, setup.inputs, setup.method, setup.rows(), failed)


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
