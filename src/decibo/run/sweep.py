"""sweep: a grid of settings and seeds as runs of one compiled program, in batches that fit into
memory, and the table that it gives back.

Settings that are numbers of the method (step sizes, lam) share a program; those that change the
program (the length of an inner loop, a function of the step) get one each.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.asynchronous import core_for
from decibo.algorithm.direction import SINGLE
from decibo.algorithm.privacy import masks_of
from decibo.capabilities import SWEEP, Need, check
from decibo.errors import InputError, missing
from decibo.formatting import format_setting, in_notebook
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.network.per_variable import each
from decibo.problem.problem import Problem
from decibo.problem.reference import not_strongly_convex
from decibo.run.batching import Batch, BatchStepper, batch_size, look, stack
from decibo.run.checkpoint import RunState
from decibo.run.jaxpr_split import types
from decibo.run.loop import Inputs, Program
from decibo.run.observers import Callbacks, Report, watched
from decibo.run.outcome import MOREAU, judge, unmoved, worsened
from decibo.run.repeat import seed_numbers
from decibo.run.run import Clock, Ended, Observer, Plan, run
from decibo.run.solution import Status
from decibo.run.solve import (
    Measures,
    check_fit,
    check_process,
    check_types,
    examined,
    finite_at_start,
    network_constants,
    recorded_of,
)
from decibo.run.start import Start, starting_rows
from decibo.validate import MOST_STEPS, did_you_mean, integer, only_known

if TYPE_CHECKING:
    import pandas

AnyNetwork = Network | DirectedNetwork
SeededStart = Start | Callable[[int], Start]
Settings = dict[str, Any]
Grid = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]]
SHOWN = 10  # rows of a table


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The runs of a sweep, one for each case, combination of settings, and seed.

    settings   the settings of each run that the grid names; `seeds`, `cases` and `status` likewise
    cases      which entry of the lists of networks, methods and starts; all 0 without lists
    history    name of a measure -> array (runs, records, ...); history["step"] (records,) says when
    batches    how many runs each batch had; a shorter last one was padded
    seconds    of all runs with their records; `compiling` is separate
    """

    settings: tuple[Settings, ...]
    seeds: tuple[int, ...]
    cases: tuple[int, ...]
    status: tuple[Status, ...]
    history: dict[str, np.ndarray]
    steps: int
    method: str
    network: str
    batches: tuple[int, ...]
    seconds: float
    compiling: float = 0.0

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row for each run: its settings, seed and status, and the last value of every
        measure."""
        last = {name: values[:, -1] for name, values in self.history.items() if name != "step"}
        several = len(set(self.cases)) > 1
        rows = []
        for k, settings in enumerate(self.settings):
            case = {"case": self.cases[k]} if several else {}
            named = {"seed": self.seeds[k], "status": str(self.status[k])}
            rows.append(
                case | settings | named | {name: _plain(row[k]) for name, row in last.items()}
            )
        return rows

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The numbers and words of the table by the first recorded number, the lowest first; runs
        without a valid result come last."""
        name = next(iter(self._scalars()), None)
        bad = lambda row: not Status(row["status"]).sound
        rank = lambda row: (bad(row), *((np.isnan(row[name]), row[name]) if name else ()))
        plain = lambda row: {name: value for name, value in row.items() if np.ndim(value) == 0}
        return sorted(map(plain, self.table), key=rank)

    def best(self, measure: str) -> Settings:
        """The settings with the lowest last value, for `method.replace(**settings)`.

        With several seeds or cases it is the mean over them that counts; settings that diverged or
        failed with one of them are excluded.
        """
        scalars = self._scalars()
        if measure not in scalars:
            listed = ", ".join(scalars) or "none"
            raise InputError(
                f"{measure!r} is not among the recorded numbers, which are {listed}.",
                did_you_mean(measure, scalars) or "Add it to measures.",
            )
        sound = np.array([status.sound for status in self.status])
        values = np.where(sound, self.history[measure][:, -1], np.nan)
        # runs come case by case, setting by setting, seed by seed
        cases = len(set(self.cases))
        seeds = len(set(self.seeds))
        means = values.reshape(cases, -1, seeds).mean(axis=(0, 2))
        if not np.isfinite(means).any():
            raise InputError(
                f"No settings gave an answer, so none is best in {measure}: {self._counts()}.",
                "Lower the step sizes of the grid.",
            )
        return dict(self.settings[seeds * int(np.nanargmin(means))])

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "Sweep.to_pandas", "table") from error
        return pandas.DataFrame(self.table)

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        rows = self.ranked
        names = list(rows[0])
        cells = [names, *([format_setting(row[name], 4) for name in names] for row in rows[:SHOWN])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.rjust, line, widths)) for line in cells]
        more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
        first = (
            f"Sweep({len(self)} runs of {self.method} on {self.network}: {self._counts()};"
            f" {self.steps} steps each)"
        )
        return "\n".join([first, *lines, *more])

    def _counts(self) -> str:
        return ", ".join(f"{number} {status}" for status, number in Counter(self.status).items())

    def _scalars(self) -> list[str]:
        return [name for name, row in self.history.items() if name != "step" and row.ndim == 2]


def joined(sweeps: Sequence[Sweep]) -> Sweep:
    """Sweeps of the same grid on problems of different seeds as one, setting by setting."""
    first = sweeps[0]
    order = np.arange(len(sweeps) * len(first)).reshape(len(sweeps), -1).T.ravel()
    by_run = {
        name: [item for one in sweeps for item in getattr(one, name)]
        for name in ("settings", "seeds", "cases", "status")
    }
    rows = {
        name: np.concatenate([one.history[name] for one in sweeps])[order]
        for name in first.history.keys() - {"step"}
    }
    return replace(
        first,
        **{name: tuple(items[place] for place in order) for name, items in by_run.items()},
        history={name: rows.get(name, row) for name, row in first.history.items()},
        batches=tuple(size for one in sweeps for size in one.batches),
        seconds=sum(one.seconds for one in sweeps),
        compiling=sum(one.compiling for one in sweeps),
    )


class Cell(NamedTuple):
    """One run of a sweep: the settings that the grid asks for, the method with them, the seed, and
    which case of a list."""

    settings: Settings
    method: Algorithm
    seed: int
    case: int


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
    # A list has an entry for each case; what is not a list is the same in all cases.
    single = lambda one: each(one) if isinstance(one, Mapping) else one
    several = isinstance(network, list | tuple)
    networks = [single(one) for one in network] if several else single(network)
    parts = {"network": networks, "method": method, "start": start}
    lists = {name: list(part) for name, part in parts.items() if isinstance(part, list | tuple)}
    sizes = {len(part) for part in lists.values()}
    if len(sizes) > 1 or 0 in sizes:
        lengths = ", ".join(f"{name} has {len(part)}" for name, part in lists.items())
        raise InputError(
            f"Lists must have one entry for each case and be equally long, but {lengths}."
        )
    columns = [lists.get(name, [part] * max(sizes, default=1)) for name, part in parts.items()]
    cases: list[Any] = list(zip(*columns, strict=True))
    for over, by, _ in cases:
        check_types(problem, over, by)
    for over, _, _ in cases:
        check(SWEEP, problem, over)
    steps = integer("steps", steps, most=MOST_STEPS)
    every = max(1, steps // 100) if every is None else integer("every", every)
    agents = cases[0][0].agents
    if any(over.agents != agents for over, _, _ in cases):
        raise InputError(
            "All networks of a sweep must have the same number of agents, but these do not."
        )
    combinations = _combinations({} if grid is None else grid)
    if combinations == [{}] and seeds is None and not lists:
        raise InputError(
            "A sweep needs something to vary, but the grid is empty and there are no seeds.",
            "Pass grid={'alpha': [0.1, 0.2]}, for example.",
        )
    cells: list[Cell] = []
    for case, (over, by, _) in enumerate(cases):
        for settings in combinations:
            if by.factory is not None:
                only_known(by.name, "setting", settings, by.settings)
            one = by.replace(**settings) if settings else by
            check_fit(problem, over, one)
            numbers = [0] if seeds is None else seed_numbers(seeds)
            cells += [Cell(settings, one, number, case) for number in numbers]
    watchers = Callbacks(callbacks)
    with watched(progress) as report:
        swept = _run(problem, cases, cells, measures, steps, every, report, watchers)
    watchers.end(swept)
    return swept


def _run(
    problem: Problem,
    cases: list[Any],
    cells: list[Cell],
    measures: Measures,
    steps: int,
    every: int,
    report: Report | None,
    callbacks: Callbacks,
) -> Sweep:
    """Prepare the runs, and make them batch after batch; an interruption leaves what there is."""
    # What all runs share; and where they start, by case and seed. Cases with the same points share
    # their rows, which are then in memory once.
    functions = problem.functions
    agents = cases[0][0].agents
    data = problem.local(range(agents))
    found = [examined(problem, cell.method, functions, data) for cell in cells]
    # Of several methods, what all of them have can be measured.
    shown = [set(each.variables) for each in found]
    variables = tuple(name for name in found[0].variables if all(name in own for own in shown))
    shared: dict[int, dict[str, jax.Array]] = {}
    starts: dict[tuple[int, int], dict[str, jax.Array]] = {}
    for cell, own in zip(cells, found, strict=True):
        over, by, given = cases[cell.case]
        if (cell.case, cell.seed) in starts:
            continue
        rows = None if callable(given) else shared.get(id(given))
        if rows is None:
            points: Any = given(cell.seed) if callable(given) else given
            rows = problem.start_rows(agents)
            if points is not None:
                rows = starting_rows(problem, agents, points, by, own.variables)
            shared[id(given)] = rows
        finite_at_start(functions, data, rows, np.arange(agents))
        masks = masks_of(over, by, rows, cell.seed) if by.masks else {}
        starts[cell.case, cell.seed] = rows | masks if masks else rows
    several = len({id(over) for over, _, _ in cases}) > 1
    mixings = [over.mixing("dense") for over, _, _ in cases] if several else [cases[0][0].mixing()]
    reaches = [
        network_constants(over) if Need.NETWORK_CONSTANTS in by.needs else None
        for over, by, _ in cases
    ]
    methods = [cell.method for cell in cells]
    recorded = recorded_of(problem, methods, functions, data, variables, measures)

    # Runs that differ in numbers only share a program.
    kinds: dict[object, list[int]] = {}
    for place, cell in enumerate(cells):
        mixing = mixings[cell.case] if several else None
        kind = types((cell.method.core, mixing, starts[cell.case, cell.seed]))
        kinds.setdefault(kind, []).append(place)

    # What differs among the runs of a program gets an axis of runs; seeds, starts, networks and the
    # method that are the same in all of them stay as they are.
    groups = []
    for group in kinds.values():
        chosen = [cells[place] for place in group]
        keys = [jax.random.key(cell.seed) for cell in chosen]
        begun = [starts[cell.case, cell.seed] for cell in chosen]
        methods = [cell.method for cell in chosen]
        mixing = mixings[0]
        reach = reaches[chosen[0].case]
        if several:
            mixing = stack([mixings[cell.case] for cell in chosen])
            reach = stack([reaches[cell.case] for cell in chosen])
        differs = {
            "key": len({cell.seed for cell in chosen}) > 1,
            "mixing": several,
            "reach": several,
            "start": not all(rows is begun[0] for rows in begun),
        }
        same = all(by is methods[0] for by in methods)
        differs["core"] = len(cases) == 1 or not same
        # Something must have the axis of runs, and a method need not have a number.
        numbers = differs["core"] and jax.tree.leaves(methods[0].core)
        differs["key"] |= not (numbers or several or differs["start"])
        own = tuple(name for name, differ in differs.items() if differ)
        cores = [core_for(mixing, by) for by in (methods if differs["core"] else methods[:1])]
        core = stack(cores) if differs["core"] else cores[0]
        key = jnp.stack(keys) if differs["key"] else keys[0]
        start = stack(begun) if differs["start"] else begun[0]
        groups.append(
            (group, Batch(Inputs(core, mixing, data, key, problem.known, {}, reach), start, own))
        )

    # The places of the runs that are made together, with what they are given; the last batch of a
    # program is padded, and its places are fewer. How many fit together is found out when it is
    # their turn, since it takes a compilation.
    def batches() -> Iterator[tuple[np.ndarray, Batch]]:
        for group, batch in groups:
            size = batch_size(program, batch, len(group), data, steps)
            for at in range(0, len(group), size):
                members = np.arange(at, at + size).clip(max=len(group) - 1)
                yield np.array(group)[np.unique(members)], batch.take(members)

    clock = Clock()
    program = Program(functions, recorded, early=False)
    plan = Plan(steps, every, tuple(name for name, _ in recorded))
    count = len(cells)
    step = np.concatenate([np.arange(0, steps, every), [steps]])
    status = [Status.interrupted] * count
    records: dict[str, np.ndarray] = {}
    still = np.zeros(count, bool)  # whether y or z is where it began
    sizes: list[int] = []
    seconds = 0.0
    done = 0

    def reporting(state: RunState, ended: Ended | None) -> None:
        if report and state.step < steps:
            now = steps * done + state.step * len(places)
            report(now, steps * count, {"runs": count, "done": done})

    with suppress(KeyboardInterrupt):
        for places, batch in batches():
            stepper = BatchStepper(program, batch, plan, len(places))
            state = stepper.begin()
            before = look(program, batch, state.agents)
            stepper.clock.lap()
            observers: list[Observer] = [reporting]
            if len(callbacks):
                callbacks.start(replace(plan, runs=tuple(places.tolist())))
                observers.insert(0, callbacks.look)
            state, ended = run(stepper, plan, state, observers, at_records=len(callbacks) > 0)
            after = look(program, batch, state.agents)
            seconds += state.seconds.steps
            sizes.append(batch.size)

            # The records so far, run by run. Those of a batch that a callback has ended stay where
            # they are from then on; others that are missing are NaN.
            there = len(state.history["step"])
            for name in plan.measures:
                row = np.moveaxis(state.history[name], 1, 0)
                dtype = row.dtype if np.issubdtype(row.dtype, np.inexact) else np.float64
                shape = (count, len(step), *row.shape[2:])
                full = records.setdefault(name, np.full(shape, np.nan, dtype))
                full[places, :there] = row
                if ended.status is Status.stopped:
                    full[places, there:] = row[:, -1:]
            for number, place in enumerate(places):
                inner = zip(before[1], after[1], strict=True)
                still[place] = any(unmoved(one[number], other[number]) for one, other in inner)
                history = {"step": state.history["step"]}
                history |= {name: full[place, :there] for name, full in records.items()}
                judged, _ = judge(history, float(before[0][number]), float(after[0][number]))
                if not stepper.alive[number]:
                    status[place] = Status.diverged
                elif ended.status is not Status.interrupted:
                    status[place] = judged or ended.status
            if ended.status is Status.interrupted:
                break
            done += len(places)
            if report:
                report(steps * done, steps * count, {"runs": count, "done": done})

    # A run that got far worse, or whose y never moved, has failed if its inner level is flat.
    for place, cell in enumerate(cells):
        history = {name: values[place] for name, values in records.items()}
        direction = cell.method.direction
        two_levels = direction is None or direction.name != SINGLE
        suspect = worsened(history) or (still[place] and two_levels)
        if status[place] is Status.done and cell.method.theory.bias != MOREAU and suspect:
            x, y = (jnp.mean(starts[cell.case, cell.seed][name], axis=0) for name in ("x", "y"))
            if not_strongly_convex(program.functions, data, x, y, "at the start"):
                status[place] = Status.failed
    names = {by.name: None for _, by, _ in cases}
    networks = {repr(over): None for over, _, _ in cases}
    return Sweep(
        settings=tuple(cell.settings for cell in cells),
        seeds=tuple(cell.seed for cell in cells),
        cases=tuple(cell.case for cell in cells),
        status=tuple(status),
        history={"step": step, **records},
        steps=steps,
        method=", ".join(names),
        network=", ".join(networks) if len(networks) < 4 else f"{len(networks)} networks",
        batches=tuple(sizes),
        seconds=seconds,
        compiling=clock.lap().compiling,
    )


def _combinations(grid: Grid) -> list[Settings]:
    """The settings of each run: all combinations of lists of values, or a list as it is."""
    if isinstance(grid, Mapping):
        for name, items in grid.items():
            if isinstance(items, str | Mapping) or not (
                isinstance(items, Iterable) or np.ndim(items)
            ):
                raise InputError(
                    f"grid[{name!r}] must be a list of values, but it is {items!r:.60}.",
                    f"Pass {{{name!r}: [0.1, 0.2]}}.",
                )
        values = [[_plain(value) for value in items] for items in grid.values()]
        for name, items in zip(grid, values, strict=True):
            if not items:
                raise InputError(f"grid[{name!r}] must hold at least one value, but it is empty.")
        return [dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*values)]
    is_list = isinstance(grid, Sequence) and not isinstance(grid, str)
    if not is_list or not all(isinstance(one, Mapping) for one in grid):
        raise InputError(
            "grid must be a dictionary of lists or a list of dictionaries, but it is"
            f" {grid!r:.60}.",
            "Pass {'alpha': [0.1, 0.2]}, for example.",
        )
    if not grid:
        raise InputError(
            "grid must hold at least one dictionary of settings, but it is an empty list."
        )
    return [{name: _plain(value) for name, value in one.items()} for one in grid]


def _plain(value: Any) -> Any:
    """Numbers of numpy and jax as numbers of Python, which take the type of what they are
    multiplied with."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
