"""How a run ended, judged by its numbers: one rule for single runs, for batches and for every
method; the solution, with the outcome in words, and after divergence also what to change.

    diverged   the largest number of the state has grown GROWN times; or WORSE times, while what is
               to be minimised has not become smaller either. (A state that is not finite has
               diverged, too; the loop sees that itself.)
    failed     a measure is not a finite number at the last record

Growth is relative to 1 + the largest number at the start: a solution may be far from a start at
zero.

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
from decibo.algorithm.automatic import RETURNS
from decibo.algorithm.direction import SINGLE
from decibo.capabilities import Need
from decibo.errors import InputError
from decibo.formatting import format_number, listed
from decibo.measure.cost import Cost
from decibo.measure.measures import SOLVED, as_trees
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.problem.problem import Functions
from decibo.problem.reference import Reference, not_strongly_convex
from decibo.run import loop
from decibo.run.checkpoint import RunState
from decibo.run.loop import INTERVALS, Chunk
from decibo.run.run import Ended, Setup
from decibo.run.solution import Solution, Status

GROWN = 1e9  # times the start: finite, but no answer
WORSE = 1e5  # times the start, where nothing has improved
# one of them falls in a run that works
MINIMISED = ("outer", "phi", "stationarity", "direction_norm", "distance_x")
STILL = "x has hardly moved"
SMALL = 1e-6  # a measure below this is no sign of trouble
ROUNDING = 1e-12  # of 1 + the largest number of a variable
SMALL_Y = 10_000  # numbers of y: beyond, whether y has moved is not looked at
FAR = 10.0  # times 1 + the largest number of the start: an entry that has run away
MOVED = 1e-6  # of 1 + the largest number of x0: less than this is hardly a move

FACTORS = (4, 16, 64, 256)
LIMIT = 20_000  # steps: a run that fails later than this is not repeated
SECONDS = 20.0  # no further trial is started after this time
PATIENCE = 5.0  # seconds: a run that took longer is not repeated to find out what to change
MOREAU = "1/c"  # the bias of methods for inner levels that need not be convex


def judge(
    history: Mapping[str, np.ndarray], first: float, last: float
) -> tuple[Status | None, str]:
    """The status, if the numbers say another one than the loop, and why; the note may also be about
    a run that is sound. From the records and the largest number of the state, at the start and at
    the end."""
    if grown(history, first, last):
        return Status.diverged, f"The largest number has grown from {first:.1g} to {last:.1g}."
    bad = {name: _bad_records(values) for name, values in history.items() if name != "step"}
    ended = [name for name, records in bad.items() if records[-1:].any()]
    if ended:
        # since when all records are bad
        since = [np.append(0, np.flatnonzero(~bad[name]) + 1)[-1] for name in ended]
        step = int(history["step"][min(since)])
        when = f"from step {step} on" if step else "from the start"
        are = "are not finite numbers" if len(ended) > 1 else "is not a finite number"
        return Status.failed, f"{listed(ended)} {are} {when}."
    some = {name: int(records.sum()) for name, records in bad.items() if records.any()}
    if not some:
        return None, ""
    name, count = max(some.items(), key=lambda pair: pair[1])
    rest = [each for each in some if each != name]
    others = f" (and {listed(rest)} in some)" if rest else ""
    records = len(bad[name])
    return None, f"{name} was not a finite number in {count} of {records} records{others}."


def grown(history: Mapping[str, np.ndarray], first: float, last: float) -> bool:
    """Whether the numbers of a run grew without bound."""
    if not last <= GROWN * (1 + first):
        return True
    if last <= WORSE * (1 + first):
        return False
    rows = [
        history[name]
        for name in MINIMISED
        if name in history and len(history[name]) and history[name].ndim == 1
    ]
    return bool(rows) and not any(row[-1] < row[0] for row in rows)


def worsened(history: Mapping[str, np.ndarray]) -> bool:
    """Whether an objective ended far above its start: no growth without bound, but suspect."""
    rows = [history[name] for name in ("outer", "phi") if name in history and len(history[name])]
    return any(row[-1] > 10 * abs(row[0]) + SMALL for row in rows)


def hardly_moved(start: np.ndarray, end: np.ndarray) -> str:
    """A sentence, if x is where it was."""
    distance = float(np.max(np.abs(end - start)))
    if not distance <= MOVED * (1 + float(np.max(np.abs(start)))):
        return ""
    return f"{STILL}, by {distance:.1g} at most: if x0 is no solution, it needs larger steps."


def unmoved(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether a variable is where it was, but for rounding."""
    return start.shape == end.shape and bool(
        np.max(np.abs(end - start)) <= ROUNDING * (1 + np.max(np.abs(start)))
    )


def _bad_records(values: np.ndarray) -> np.ndarray:
    """Which records hold a number that is not finite."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.inexact):
        return np.zeros(len(array), bool)
    # axes and not -1, which cannot be found if there is no record
    return np.asarray(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))


def conclude(setup: Setup, run: RunState, ended: Ended, resumed: int) -> Solution:
    """The solution: whether the result is valid, and if not, why.

    resumed   the step of the checkpoint from which the run went on, 0 if there was none
    """
    status = ended.status
    goals = " and ".join(f"{name} <= {value:g}" for name, value in setup.targets.items())
    rows = loop.rows_of(setup.program, setup.inputs, run.agents)
    if setup.program.placement:
        # here, for this process alone
        rows = {name: jnp.asarray(np.asarray(row)) for name, row in rows.items()}
    answer = setup.method.answer
    means = {name: jnp.mean(rows[name], axis=0) for name in {"x", "y", "z", answer} & rows.keys()}
    links = len(setup.network.edges) * (1 if setup.network.directed else 2)
    cost = replace(setup.cost, agents=setup.network.agents, links=links)
    functions = setup.program.functions
    solution = solution_of(functions, setup.method, setup.network, cost, run, rows, means)
    if setup.program.placement is not None:
        solution = replace(solution, state=None)
    if status is Status.diverged:
        why = _why_not_finite(setup, run, ended.failed)
        reasons = [ended.reason, why, ran_away(setup, solution, means)]
    else:
        last = float(loop.largest(run.agents))
        first = float(loop.largest(setup.start)) if last > WORSE else 0.0
        found, note = judge(run.history, first, last)
        moved = hardly_moved(_start_of(setup, "x"), np.asarray(means["x"]))
        reasons = [note]
        if found is Status.diverged:
            reasons.append(_why_grown(setup, run))
        elif found is Status.failed:
            reasons.append(_why_failed(setup, run, solution))
        elif run.step:
            # No number gives it away, but a flat inner level would: looked for only where x or y
            # has stayed or the objective has risen, since it takes an eigenvalue.
            chooses = setup.method.chosen is not None
            suspect = (chooses and bool(moved)) or worsened(run.history) or _kept_y(setup, means)
            flat = _flat_inner(setup, means) if suspect else ""
            found = Status.failed if flat else None
            reasons += [moved, flat]
        reasons.append(_far_apart(setup, means))
        if setup.method.chosen is not None:
            chosen = loop.chosen_of(setup.program, setup.inputs, run.agents)
            reasons.append(step_sizes(chosen))
            if found is None and status is Status.done and returns(chosen):
                found = Status.failed
        if found is not None and status is not Status.interrupted:
            status = found
        if status is Status.converged:
            headline = f"Reached {goals} at step {run.step}."
        elif status is Status.interrupted:
            headline = (
                f"Interrupted at step {run.step} of {setup.steps}; everything up to there is kept."
            )
        elif status is Status.stopped:
            headline = ended.reason
        elif status is not Status.done:
            headline = f"The run produced no valid result after {run.step} steps."
            reasons.append(ran_away(setup, solution, means))
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


def solution_of(
    functions: Functions,
    method: Algorithm,
    network: Network | DirectedNetwork,
    cost: Cost,
    run: RunState,
    rows: dict[str, jax.Array],
    means: dict[str, jax.Array],
) -> Solution:
    """The solution of a run at these means of the agents' rows; its status is for others to say."""
    return Solution(
        x=functions.x.unravel(means["x"]),
        y=functions.y.unravel(means[method.answer]),
        agents=as_trees(functions, rows),
        history=run.history,
        cost=replace(
            cost,
            steps=run.step,
            seconds=run.seconds.steps,
            compiling=run.seconds.compiling,
            measuring=run.seconds.measuring,
        ),
        status=Status.done,
        message="",
        steps=run.step,
        method=method,
        network=network,
        state=run.agents,
    )


def _start_of(setup: Setup, name: str) -> np.ndarray:
    """The mean of the agents' starts."""
    return np.asarray(setup.start[name]).mean(axis=0)


def ran_away(setup: Setup, solution: Solution, means: Mapping[str, jax.Array]) -> str:
    """Which entries of x and y are far from where they began, if most others are not: often a
    direction in which the objective has no minimum."""
    found = []
    for name, tree in (("x", solution.x), ("y", solution.y)):
        start = _start_of(setup, name)
        ends = np.asarray(means["x" if name == "x" else setup.method.answer])
        if ends.shape != start.shape or not ends.size:
            continue
        moved = np.abs(ends - start)
        far = ~(moved <= FAR * (1 + np.max(np.abs(start))))
        if not far.any():
            continue
        first = int(np.argmax(np.where(np.isfinite(moved), moved, np.inf)))
        place, entry = first, ""
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if place < np.size(leaf):
                index = np.unravel_index(place, np.shape(leaf))
                at = f"[{', '.join(map(str, index))}]" if index else ""
                entry = f"{name}{jax.tree_util.keystr(path)}{at}"
                break
            place -= np.size(leaf)
        if far.size > 1 and 2 * far.sum() > far.size:
            return ""
        others = f", and {far.sum() - 1} more of {far.size} entries far" if far.sum() > 1 else ""
        found.append(f"{entry} ran to {format_number(float(ends[first]))}{others}")
    return f"{'; '.join(found)}." if found else ""


def returns(rows: Mapping[str, jax.Array]) -> int:
    """How often agents that find their step sizes had to go back."""
    return int(np.max(np.asarray(rows.get(RETURNS, 0))))


def step_sizes(rows: Mapping[str, jax.Array]) -> str:
    """The step sizes that agents have found, in a sentence; and whether they had to go back."""
    found = {name: float(np.median(np.asarray(rows[name]))) for name in rows if name != RETURNS}
    # Where a direction is nothing but rounding, a step of any size is as good: in single precision
    # it is infinite, in double 1e150, say.
    unlimited = [name for name, value in found.items() if value > float(np.finfo("f4").max)]
    limited = [f"{name}={format_number(found[name])}" for name in found if name not in unlimited]
    sentences = [f"Step sizes found by the agents: {', '.join(limited)}."] if limited else []
    if number := returns(rows):
        sentences.append(
            "Directions grew to a thousand times those at the start: the agents went back to it"
            f" {number} time{'s' * (number > 1)}, with slower steps. A target in `until` would say"
            " whether where they are now is good enough."
        )
    return " ".join(
        [*sentences, *(f"No curvature was seen that would limit {name}." for name in unlimited)]
    )


def _flat_inner(setup: Setup, means: Mapping[str, jax.Array] | None = None) -> str:
    """A sentence, if the inner level has no curvature at the start, or at the end; not looked at
    where data is spread over devices."""
    if setup.program.placement or setup.method.theory.bias == MOREAU:
        return ""
    if means is None:
        x, y = (jnp.mean(setup.start[name], axis=0) for name in ("x", "y"))
    else:
        x, y = means["x"], means[setup.method.answer]
    where = "at the start" if means is None else "where the run ended"
    found = not_strongly_convex(setup.program.functions, setup.inputs.data, x, y, where)
    return "" if found is None else str(found)


def _kept_y(setup: Setup, means: Mapping[str, jax.Array]) -> bool:
    """Whether y, or z, is where it began, as if the inner level did not depend on it; looked at
    where that is cheap."""
    direction = setup.method.direction
    one_level = direction is not None and direction.name == SINGLE
    if setup.program.placement or one_level or setup.program.functions.y.size > SMALL_Y:
        return False
    start = _start_of(setup, "y")
    ends = {setup.method.answer, "z"} & means.keys()
    return any(unmoved(start, np.asarray(means[name])) for name in ends)


def _far_apart(setup: Setup, means: Mapping[str, jax.Array]) -> str:
    """A sentence, if y and z of a penalty have run away from each other: they leave along
    directions in which g bends down, where lam (y - z) does not settle, and nothing else shows
    it, since their mean stays."""
    if not (setup.method.theory.bias or "").startswith("1/lam") or not {"y", "z"} <= means.keys():
        return ""
    y, z = (np.asarray(means[name]) for name in ("y", "z"))
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverged
        apart, centre = (float(np.linalg.norm(part)) / 2 for part in (y - z, y + z))
    if not apart > FAR * (1 + centre):
        return ""
    return (
        f"y and z are far from each other, |y - z|/2 = {apart:.1g} where |y + z|/2 = {centre:.1g}:"
        " unless g is quadratic in y, x has moved along no derivative. Raise lam, or give y and z"
        " an Adam each, as docs/explanation/hessian_free.md describes."
    )


def _why_grown(setup: Setup, run: RunState) -> str:
    """What to do about numbers that grew without bound."""
    flat = _flat_inner(setup)
    if flat:
        return flat
    if setup.method.chosen:
        return "No step sizes kept it bounded: is the outer objective bounded below?"
    if run.seconds.steps > PATIENCE:
        return "Lower the step sizes, or check that the outer objective is bounded below."
    return explain(setup, run, run.step)


def _why_failed(setup: Setup, run: RunState, solution: Solution) -> str:
    """Why a measure is not a finite number."""
    exact = any(not np.isfinite(run.history[name][-1]) for name in SOLVED if name in run.history)
    if exact and setup.program.placement is None:
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
        return _flat_inner(setup) or explain(setup, run, failed)
    # The objectives of a large run were not computed before it.
    if setup.program.placement is None:
        start = setup.rows()
        key = (
            setup.inputs.key
            if Need.MINIBATCHES in setup.method.needs and setup.source is None
            else None
        )
        both = loop.values(setup.program.functions, setup.inputs.data, start["x"], start["y"], key)
        for name, row in zip(("outer", "inner"), map(np.asarray, both), strict=True):
            for agent in np.flatnonzero(~np.isfinite(row))[:1]:
                where = f"{name} of agent {agent} was {row[agent]}"
                return f"Already at the start {where}: check the data of this agent."
    return "Lower the step sizes."


def explain(setup: Setup, run: RunState, failed: int) -> str:
    """What keeps the run bounded, or what was tried without success: found by trials from the same
    start, if it can be made again. A stream cannot be read from its beginning."""
    program = setup.program
    inputs = setup.inputs
    method = setup.method
    settings = {name: method.settings[name] for name in method.step_sizes}
    names = [name for name, value in settings.items() if isinstance(value, int | float)]
    if setup.source is not None or loop.is_large(run.agents) or not names:
        return "Lower the step sizes."
    if failed > LIMIT:
        return f"Lower {listed(names)}, one at a time, starting with the step size of x."
    patience = max(4 * failed, 50)
    start = setup.rows()
    bound = GROWN * (1 + float(loop.largest(start)))
    chunk = Chunk.silent(patience, min(patience, INTERVALS))

    def survives(names: list[str], factor: int) -> bool:
        lowered = method.replace(**{name: settings[name] / factor for name in names})
        changed = inputs._replace(core=core_for(inputs.mixing, lowered))
        state = loop.begin(program, changed, start)
        end = loop.advance(program, changed, state, np.int32(0), chunk)
        return bool(end.alive) and float(loop.largest(end.state)) <= bound

    begun = time.perf_counter()
    factor = FACTORS[0]
    for factor in FACTORS:
        helpful = [name for name in names if survives([name], factor)]
        if helpful:
            values = " or ".join(f"{name} (try {settings[name] / factor:g})" for name in helpful)
            return f"Lower {values}: that alone keeps {patience} steps from the same start finite."
        if time.perf_counter() - begun > SECONDS:
            break
    if survives(names, factor):
        enough = f"one alone does not help, {factor} times less of all does"
        return f"Lower {listed(names)} together: {enough}."
    still = "with that much less of all, it still blows up"
    return f"Lower {listed(names)} by more than {factor}: {still}."
