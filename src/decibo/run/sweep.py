"""sweep: a grid of settings and seeds as runs of one compiled program, in batches that fit into
memory.

Settings that are numbers of the method (step sizes, lam) share a program; those that change the
program (the length of an inner loop, a function of the step) get one each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.asynchronous import core_for
from decibo.algorithm.privacy import masks_of
from decibo.data.stream import Stream
from decibo.errors import InputError
from decibo.measure.cost import Seconds
from decibo.measure.measures import resolve
from decibo.network.directed import DirectedNetwork
from decibo.network.mixing import Mixing, Reach
from decibo.network.network import Network
from decibo.network.per_variable import each
from decibo.problem.problem import Problem, why_no_products
from decibo.problem.reference import not_strongly_convex
from decibo.pytree import Tree, one_of
from decibo.run.batching import Batch, BatchStepper, batch_size, look, stack
from decibo.run.checkpoint import RunState
from decibo.run.diagnose import MOREAU
from decibo.run.loop import Inputs, Program
from decibo.run.outcome import judge, worsened
from decibo.run.progress import Report
from decibo.run.run import Callbacks, Ended, Look, Plan, run, watched
from decibo.run.seeds import seed_numbers
from decibo.run.solution import Status
from decibo.run.solve import (
    Measures,
    check_fit,
    check_process,
    check_products,
    check_types,
    finite_at_start,
    known_solution,
    start_of,
    told,
    variables_of,
)
from decibo.run.start import Start
from decibo.run.sweep_result import Sweep
from decibo.run.timing import Clock
from decibo.validate import MOST_STEPS, integer, only_known

AnyNetwork = Network | DirectedNetwork
SeededStart = Start | Callable[[int], Start]
Settings = dict[str, Any]
Grid = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]]


def sweep(
    problem: Problem,
    network: AnyNetwork | Mapping[str, Network] | Sequence[AnyNetwork | Mapping[str, Network]],
    method: Algorithm | Sequence[Algorithm],
    grid: Grid | None = None,
    *,
    seeds: int | Iterable[int] | None = None,
    steps: int = 1000,
    every: int | None = None,
    measures: Measures = None,
    start: SeededStart | Sequence[Start] = None,
    progress: bool | Report | None = None,
    callbacks: Sequence[object] = (),
) -> Sweep:
    """Run `method` with every combination of settings in `grid` and every seed; each is the run
    that `solve` makes.

    grid      settings of the method and their values, {"alpha": [0.1, 0.2], "gamma": [0.1, 0.3]}
              for all four pairs, or a list of dictionaries for exactly these; leave it out if the
              runs differ in something else
    seeds     how many, or a list of them: one run for each setting and seed; just seed 0 by default
    start     as in `solve`, or a function of the seed such as `decibo.random_start`
    steps, every, measures, progress   as in `solve`; progress counts the steps of all runs
    callbacks  as in `solve`, begun for every batch of runs: its measures are arrays with an entry
               for each of the runs in `plan.runs`. A callback that ends the batch stops them all;
               their later records repeat the last one

    network, method and start may be lists, equally long: their entries are the cases, each of which
    is run with the whole grid. The networks of a list are mixed by matrix products.

    A run that stops being finite is marked as diverged, and its records from there on are NaN. So
    is one that grows without bound; a run with a measure that is not a finite number at the end has
    failed.
    """
    check_process()
    cases = _cases(network, method, start)
    for one, by, _ in cases:
        check_types(problem, one, by)
    if isinstance(problem.sample, Stream):
        raise InputError(
            "A sweep runs many settings in one program, and a stream of minibatches feeds one run.",
            "Use decibo.solve for each setting, or decibo.repeat for several seeds.",
        )
    steps = integer("steps", steps, most=MOST_STEPS)
    every = max(1, steps // 100) if every is None else integer("every", every)
    if len({one.agents for one, _, _ in cases}) > 1:
        raise InputError(
            "All networks of a sweep must have the same number of agents, but these do not."
        )
    listed = any(isinstance(part, list | tuple) for part in (network, method, start))
    runs = points([by for _, by, _ in cases], {} if grid is None else grid, seeds, listed)
    for point in runs:
        check_fit(problem, cases[point.case][0], point.method)
    watchers = Callbacks(callbacks)
    state = _prepare(problem, cases, runs, measures)
    plan = Plan(steps, every, tuple(name for name, _ in state.program.measures))
    with watched(progress) as report:
        swept = _run(state, plan, report, watchers)
    watchers.end(swept)
    return swept


Case = tuple[AnyNetwork, Algorithm, SeededStart]


def _cases(network: object, method: object, start: object) -> list[Any]:
    """(network, method, start) of each case; what is not a list is the same in all."""
    parts = {"network": network, "method": method, "start": start}
    parts["network"] = _by_variable(network)
    lists = {name: list(part) for name, part in parts.items() if isinstance(part, list | tuple)}
    sizes = {len(part) for part in lists.values()}
    if len(sizes) > 1 or 0 in sizes:
        lengths = ", ".join(f"{name} has {len(part)}" for name, part in lists.items())
        raise InputError(
            f"Lists must have one entry for each case and be equally long, but {lengths}."
        )
    count = sizes.pop() if sizes else 1
    columns = [lists.get(name, [part] * count) for name, part in parts.items()]
    return list(zip(*columns, strict=True))


def _by_variable(network: object) -> object:
    """A network, or a list of them, with dictionaries turned into networks for each variable."""
    if isinstance(network, list | tuple):
        return [_by_variable(one) for one in network]
    return each(network) if isinstance(network, Mapping) else network


@dataclass(frozen=True, eq=False)
class _Prepared:
    """What a sweep was given, checked; mixings and starts by case, and by seed."""

    cases: list[Case]
    runs: list[Point]
    program: Program
    data: Tree
    known: dict[str, jax.Array]
    mixings: list[Mixing]
    reaches: list[Reach | None]
    starts: dict[tuple[int, int], dict[str, jax.Array]]


def _prepare(
    problem: Problem, cases: list[Case], runs: list[Point], measures: Measures
) -> _Prepared:
    agents = cases[0][0].agents
    data = problem.local(range(agents))
    known = known_solution(problem)
    first = runs[0].method
    for point in runs:
        check_products(problem, point.method, data)
    variables = variables_of(problem.functions, data, first.core)
    shared: dict[int, dict[str, jax.Array]] = {}  # the rows of starts that several cases share
    starts = {}
    for point in runs:
        network, by, start = cases[point.case]
        if (point.case, point.seed) in starts:
            continue
        if callable(start):
            rows = start_of(problem, agents, start(point.seed), by, variables)
        else:
            rows = shared.get(id(start))
            rows = start_of(problem, agents, start, by, variables) if rows is None else rows
            shared[id(start)] = rows
        finite_at_start(problem.functions, data, rows, np.arange(agents))
        starts[point.case, point.seed] = (
            rows | masks_of(network, by, rows, point.seed) if by.masks else rows
        )
    mixings = [cases[0][0].mixing()]
    if len({id(network) for network, _, _ in cases}) > 1:
        mixings = [network.mixing("dense") for network, _, _ in cases]
    reaches = [told(network, method) for network, method, _ in cases[: len(mixings)]]
    tells = {"has_direction": first.direction is not None, "has_rest": first.rest is not None}
    no_exact = partial(why_no_products, problem.functions, one_of(data))
    recorded = resolve(measures, variables, known, **tells, no_exact=no_exact)
    program = Program(problem.functions, recorded, early=False)
    return _Prepared(cases, runs, program, data, known, mixings, reaches, starts)


def _run(sweep: _Prepared, plan: Plan, report: Report | None, callbacks: Callbacks) -> Sweep:
    """Batch after batch; what an interruption leaves is kept."""
    clock = Clock()
    count = len(sweep.runs)
    step = np.concatenate([np.arange(0, plan.steps, plan.every), [plan.steps]])
    status = [Status.interrupted] * count
    rows: dict[str, np.ndarray] = {}
    kept = np.zeros(count, bool)  # whether y or z is where it began
    sizes: list[int] = []
    seconds = Seconds()
    done = 0
    with suppress(KeyboardInterrupt):
        for places, batch in _batches(sweep, plan):
            places = np.unique(places)  # without those that pad the batch, which come last
            stepper = BatchStepper(sweep.program, batch, plan, len(places))
            state = stepper.begin()
            first = look(sweep.program, batch, state.agents)
            state = state._replace(seconds=stepper.clock.lap())
            looks = []
            if len(callbacks):
                callbacks.start(replace(plan, runs=tuple(places.tolist())))
                looks.append(callbacks.look)
            if report:
                looks.append(_reporting(report, plan, done, len(places), count))
            state, ended = run(stepper, plan, state, looks, at_records=len(callbacks) > 0)
            last = look(sweep.program, batch, state.agents)
            seconds = seconds.plus(state.seconds)
            sizes.append(batch.size)

            # The records so far, run by run. Those of a batch that a callback has ended stay where
            # they are from then on; others that are missing are NaN.
            there = len(state.history["step"])
            for name, values in state.history.items():
                if name == "step":
                    continue
                row = np.moveaxis(values, 1, 0)
                dtype = row.dtype if np.issubdtype(row.dtype, np.inexact) else np.float64
                full = rows.setdefault(
                    name, np.full((count, len(step), *row.shape[2:]), np.nan, dtype)
                )
                full[places, :there] = row
                if ended.status is Status.stopped:
                    full[places, there:] = row[:, -1:]
            kept[places] = last.kept_since(first)[: len(places)]
            for number, place in enumerate(places):
                history = {"step": state.history["step"]} | {
                    name: full[place, :there] for name, full in rows.items()
                }
                judged = judge(history, float(first.largest[number]), float(last.largest[number]))
                if not stepper.alive[number]:
                    status[place] = Status.diverged
                elif ended.status is not Status.interrupted:
                    status[place] = judged.status or ended.status
            if ended.status is Status.interrupted:
                break
            done += len(places)
            if report:
                report(plan.steps * done, plan.steps * count, {"runs": count, "done": done})
    status = [_examined(sweep, rows, kept, place, found) for place, found in enumerate(status)]
    names = {method.name: None for _, method, _ in sweep.cases}
    networks = {repr(network): None for network, _, _ in sweep.cases}
    return Sweep(
        settings=tuple(point.settings for point in sweep.runs),
        seeds=tuple(point.seed for point in sweep.runs),
        cases=tuple(point.case for point in sweep.runs),
        status=tuple(status),
        history={"step": step, **rows},
        steps=plan.steps,
        method=", ".join(names),
        network=", ".join(networks) if len(networks) < 4 else f"{len(networks)} networks",
        batches=tuple(sizes),
        seconds=seconds.steps,
        compiling=clock.lap().compiling,
        measuring=seconds.measuring,
    )


def _reporting(report: Report, plan: Plan, done: int, fresh: int, count: int) -> Look:
    """Progress within a batch, after which so many runs more are done."""

    def look(state: RunState, ended: Ended | None) -> None:
        if state.step < plan.steps:
            now = plan.steps * done + state.step * fresh
            report(now, plan.steps * count, {"runs": count, "done": done})

    return look


def _examined(
    sweep: _Prepared, rows: dict[str, np.ndarray], kept: np.ndarray, place: int, found: Status
) -> Status:
    """The status of a run; one that got far worse, or whose y never moved, has failed if its inner
    level is flat."""
    point = sweep.runs[place]
    history = {name: values[place] for name, values in rows.items()}
    suspect = worsened(history) or (kept[place] and not point.method.one_level)
    if found is not Status.done or point.method.bias == MOREAU or not suspect:
        return found
    x, y = (jnp.mean(sweep.starts[point.case, point.seed][name], axis=0) for name in ("x", "y"))
    flat = not_strongly_convex(sweep.program.functions, sweep.data, x, y, "at the start")
    return found if flat is None else Status.failed


def _batches(sweep: _Prepared, plan: Plan) -> Iterator[tuple[np.ndarray, Batch]]:
    """The places of the runs that are made together, with what they are given."""
    for group in _alike(sweep):
        batch = _stacked(sweep, group)
        size = batch_size(sweep.program, batch, len(group), sweep.data, plan.steps)
        for at in range(0, len(group), size):
            # the last batch is padded, so that all have one program
            members = np.arange(at, at + size).clip(max=len(group) - 1)
            yield np.array(group)[members], batch.take(members)


def _stacked(sweep: _Prepared, group: list[int]) -> Batch:
    """The runs of one program; seeds, starts, networks and the cases' method are shared if all are
    the same."""
    runs = [sweep.runs[place] for place in group]
    own = []
    keys = [jax.random.key(point.seed) for point in runs]
    key = keys[0]
    if len({point.seed for point in runs}) > 1:
        own.append("key")
        key = jnp.stack(keys)
    mixing = sweep.mixings[0]
    reach = sweep.reaches[0]
    if len(sweep.mixings) > 1:
        own += ["mixing", "reach"]
        mixing = stack([sweep.mixings[point.case] for point in runs])
        reach = stack([sweep.reaches[point.case] for point in runs])
    starts = [sweep.starts[point.case, point.seed] for point in runs]
    start = starts[0]
    if not all(rows is starts[0] for rows in starts):
        own.append("start")
        start = stack(starts)
    core = core_for(mixing, runs[0].method)
    if (
        len(sweep.cases) == 1
        or not own
        or not all(point.method is runs[0].method for point in runs)
    ):
        own.append("core")
        core = stack([core_for(mixing, point.method) for point in runs])
    return Batch(Inputs(core, mixing, sweep.data, key, sweep.known, {}, reach), start, tuple(own))


def _alike(sweep: _Prepared) -> list[list[int]]:
    """Places of runs that differ in numbers only, and so can share a program."""
    kinds: dict[object, list[int]] = {}
    for place, point in enumerate(sweep.runs):
        mixing = sweep.mixings[point.case] if len(sweep.mixings) > 1 else None
        leaves, kind = jax.tree.flatten(
            (point.method.core, mixing, sweep.starts[point.case, point.seed])
        )
        kinds.setdefault((kind, *map(_type, leaves)), []).append(place)
    return list(kinds.values())


def _type(leaf: object) -> tuple[object, ...]:
    array = jnp.asarray(leaf)
    return array.shape, array.dtype, array.weak_type


class Point(NamedTuple):
    """One run: the settings that the grid asks for, the method with them, the seed, and which case
    of a list."""

    settings: Settings
    method: Algorithm
    seed: int
    case: int


def points(
    methods: Sequence[Algorithm], grid: Grid, seeds: int | Iterable[int] | None, listed: bool
) -> list[Point]:
    """Every case with every combination of settings and every seed, seeds last."""
    combinations = _product(grid) if isinstance(grid, Mapping) else _listed(grid)
    numbers = [0] if seeds is None else seed_numbers(seeds)
    if combinations == [{}] and seeds is None and not listed:
        raise InputError(
            "A sweep needs something to vary, but the grid is empty and there are no seeds.",
            "Pass grid={'alpha': [0.1, 0.2]}, for example.",
        )
    return [
        Point(settings, method, seed, case)
        for case, base in enumerate(methods)
        for settings, method in [(each, _with(base, each)) for each in combinations]
        for seed in numbers
    ]


def _product(grid: Mapping[str, Any]) -> list[Settings]:
    values = {name: _values(name, items) for name, items in grid.items()}
    return [
        dict(zip(values, combination, strict=True))
        for combination in itertools.product(*values.values())
    ]


def _listed(grid: Any) -> list[Settings]:
    if (
        not isinstance(grid, Sequence)
        or isinstance(grid, str)
        or not all(isinstance(each, Mapping) for each in grid)
    ):
        raise InputError(
            "grid must be a dictionary of lists or a list of dictionaries, but it is"
            f" {grid!r:.60}.",
            "Pass {'alpha': [0.1, 0.2]}, for example.",
        )
    if not grid:
        raise InputError(
            "grid must hold at least one dictionary of settings, but it is an empty list."
        )
    return [{name: _plain(value) for name, value in each.items()} for each in grid]


def _values(name: str, items: Any) -> list[Any]:
    if isinstance(items, str | Mapping) or (not isinstance(items, Iterable) and not np.ndim(items)):
        raise InputError(
            f"grid[{name!r}] must be a list of values, but it is {items!r:.60}.",
            f"Pass {{{name!r}: [0.1, 0.2]}}.",
        )
    values = [_plain(value) for value in items]
    if not values:
        raise InputError(f"grid[{name!r}] must hold at least one value, but it is empty.")
    return values


def _plain(value: Any) -> Any:
    """Numbers of numpy and jax as numbers of Python, which take the type of what they are
    multiplied with."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value


def _with(method: Algorithm, settings: Settings) -> Algorithm:
    if method.factory is not None:
        only_known(method.name, "setting", settings, method.settings)
    return method.replace(**settings) if settings else method
