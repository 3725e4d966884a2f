"""repeat: the same run with several seeds, of its data, its network, its start and its method; as
one curve with a band and as one number with its deviation.

A seed s changes what is passed as a function of the seed: `problem(s)`, `network(s)`, `start(s)`;
and it is the seed of `solve`, from which methods (minibatches, compression) and networks (failing
links) draw. All else stays.

Runs are made one after another, each as `solve` makes it, so that their times are their own, step
sizes may be left out, and what ended is not lost when the next one fails. Compiled programs are
shared: functions that a factory creates again for every seed are recognised by what they compute.

    (1)  curve    at every recorded step the median over all seeds, within a band: the quartiles, so
                  that half of the seeds are inside it, the deciles, or the range, so that all are
    (2)  number   mean and standard deviation (n - 1 in the denominator) of the last values

No seed is left out in silence. In a curve of something that is to become small, a seed that
diverged or failed counts as infinite from its last finite record on: it raises the median and the
band. A run that converged stays where it stopped; one that was interrupted ends the curve. The
number is that of the seeds that gave an answer, with their count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.methods import ahead_exact
from decibo.data.stream import Stream
from decibo.errors import InputError, short
from decibo.formatting import format_number, in_notebook, plural
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.network.per_variable import each as for_each
from decibo.problem.problem import Problem
from decibo.run.fingerprint import same_programs
from decibo.run.observers import Report
from decibo.run.solution import Solution, Status, drawn, scalars_of
from decibo.run.solve import Measures, check_fit, check_types, solve
from decibo.run.start import Start
from decibo.validate import integer, one_of
from decibo.validate import seed as check_seed

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

AnyNetwork = Network | DirectedNetwork
FUNCTIONS = ("outer", "inner", "sample", "inner_solution", "outer_gradient", "inner_gradient")
T = TypeVar("T")
BANDS = {"quartiles": (0.25, 0.75), "deciles": (0.1, 0.9), "range": (0.0, 1.0)}
MOST = 10_000  # seeds
# measures whose names begin so are better the smaller they are
SMALL = ("stationarity", "direction_norm", "distance_x", "distance_y", "consensus_", "gap")
OBJECTIVES = ("phi", "outer", "inner")


class Course(NamedTuple):
    """One measure of one run: its value at each recorded step, and how the run ended."""

    step: np.ndarray
    values: np.ndarray
    status: str


class Band(NamedTuple):
    """(1): at each of these steps the lower end, the median and the upper end; infinite where seeds
    failed."""

    step: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Spread:
    """(2): of `count` values, those of the seeds that gave an answer; `of` is how many seeds there
    are."""

    mean: float
    deviation: float
    count: int
    of: int


@dataclass(frozen=True, eq=False, repr=False)
class Repeats:
    """The runs of one setting, one for each seed, in this order; `repeats[k]` is the k-th solution.

    method   as it was passed
    """

    seeds: tuple[int, ...]
    problems: tuple[Problem, ...]
    networks: tuple[AnyNetwork, ...]
    method: Algorithm
    solutions: tuple[Solution, ...]

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, place: int) -> Solution:
        return self.solutions[place]

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    @property
    def status(self) -> tuple[Status, ...]:
        """How each run ended."""
        return tuple(run.status for run in self.solutions)

    def spread(self, measure: str) -> Spread:
        """Mean and standard deviation of the last value over the seeds that gave an answer, and how
        many they are."""
        self._check(measure)
        ends = [
            run.history[measure][-1] if len(run.history[measure]) else None
            for run in self.solutions
        ]
        return spread(ends, [status.sound for status in self.status])

    def band(self, measure: str, kind: str = "quartiles") -> Band:
        """The median over the seeds at each recorded step, and the ends of a band: "quartiles" or
        "range"."""
        self._check(measure)
        one_of("kind", kind, ("quartiles", "range"))
        courses = [
            Course(run.history["step"], run.history[measure], run.status) for run in self.solutions
        ]
        return band(courses, kind, is_minimised(measure))

    def plot(self, *measures: str, kind: str = "quartiles", ax: Axes | None = None) -> Axes:
        """Draw medians and bands over the steps with matplotlib, by default of all measures that
        are never negative; returns the axes."""
        bands = {name: self.band(name, kind) for name in measures or self.scalars}
        return drawn(bands, ax, all_of_them=bool(measures))

    def to_pandas(self) -> pandas.DataFrame:
        """The histories below each other as a pandas DataFrame, with a column for the seed."""
        tables = [
            run.to_pandas().assign(seed=seed)
            for seed, run in zip(self.seeds, self.solutions, strict=True)
        ]
        import pandas

        return pandas.concat(tables, ignore_index=True)

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in Counter(self.status).items())
        ends = []
        for name in self.scalars:
            end = self.spread(name)
            of = "" if end.count == end.of else f" ({end.count} of {end.of} seeds)"
            ends.append(f"{name} {format_number(end.mean)} +- {format_number(end.deviation)}{of}")
        return (
            f"Repeats({plural(len(self), 'seed')} of {self.method!r}: {counts}; {', '.join(ends)})"
        )

    @property
    def scalars(self) -> list[str]:
        """The measures that are one number at each record."""
        return scalars_of(self.solutions[0].history)

    def _check(self, measure: str) -> None:
        one_of("The recorded measure", measure, self.scalars)


def seed_numbers(seeds: object, first: int = 0) -> list[int]:
    """The seeds that a number of them, or a list, stands for."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        count = integer("seeds", seeds, most=MOST)
        return [check_seed(number, "A seed") for number in range(first, first + count)]
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InputError(
            f"seeds must be a number or a list of integers, but it is {seeds!r:.60}.",
            "Pass seeds=5.",
        )
    numbers = [check_seed(seed, "A seed") for seed in seeds]
    if not numbers:
        raise InputError(
            "seeds must hold at least one seed, but it is empty.", "Leave it out for the seed 0."
        )
    if len(set(numbers)) < len(numbers):
        raise InputError(f"seeds must not repeat a seed, but it is {numbers!r:.60}.")
    return numbers


def repeat(
    problem: Problem | Callable[[int], Problem],
    network: (
        AnyNetwork | Mapping[str, Network] | Callable[[int], AnyNetwork | Mapping[str, Network]]
    ),
    method: Algorithm | None = None,
    *,
    seeds: int | Iterable[int] = 5,
    start: Start | Callable[[int], Start] = None,
    steps: int = 1000,
    every: int | None = None,
    measures: Measures = None,
    until: Mapping[str, float] | None = None,
    progress: bool | Report | None = None,
    devices: int | None = None,
    callbacks: Sequence[object] = (),
) -> Repeats:
    """Solve the same thing with several seeds: 0, ..., 4, or those of a list.

    problem, network, start   as in `solve`, or functions of the seed: `lambda seed:
                              make_problem(seed=seed)`, a factory whose first argument is the seed,
                              `decibo.random_start`
    seeds                     how many, or which; each is also the seed of `solve`
    callbacks                 as in `solve`; the same ones look at every run, one after another
    others                    as in `solve`

    What is not a function of the seed is the same in all runs. A run that diverges does not end the
    others; Ctrl-C ends them all, and what was made until then is returned.
    """
    numbers = seed_numbers(seeds)
    method = ahead_exact() if method is None else method
    problems: list[Problem] = []
    networks: list[AnyNetwork] = []
    for seed in numbers:  # all of them first: errors come before anything runs
        made = _of_seed("problem", problem, seed, Problem)
        over = _of_seed("network", network, seed, Network | DirectedNetwork | Mapping)
        over = for_each(over) if isinstance(over, Mapping) else over
        check_types(made, over, method)
        check_fit(made, over, method)
        problems.append(sharing(made, problems[0]) if problems else made)
        networks.append(over)
    solutions: list[Solution] = []
    for seed, each, over in zip(numbers, problems, networks, strict=True):
        begin = start(seed) if callable(start) else start
        run = solve(
            each, over, method, steps=steps, every=every, measures=measures, start=begin,
            seed=seed, until=until, progress=progress, devices=devices, callbacks=callbacks,
        )  # fmt: skip
        solutions.append(run)
        if run.status is Status.interrupted:  # the request is meant for the seeds after it, too
            break
    count = len(solutions)
    made = tuple(problems[:count]), tuple(networks[:count])
    return Repeats(tuple(numbers[:count]), *made, method, tuple(solutions))


def sharing(problem: Problem, first: Problem) -> Problem:
    """The problem with the functions of another one if they compute the same, so that they share a
    program."""
    if problem.functions == first.functions or callable(problem.data) or callable(first.data):
        return problem
    if not same_programs(problem, first):
        return problem
    functions = first.functions._asdict()
    names = [
        name for name in FUNCTIONS if name != "sample" or not isinstance(problem.sample, Stream)
    ]
    return replace(problem, **{name: functions[name] for name in names})


def _of_seed(name: str, value: T | Callable[[int], T], seed: int, kind: type | UnionType) -> T:
    """What a function of the seed returns; anything else as it is, for `check_types` to judge."""
    if isinstance(value, kind) or not callable(value):
        return cast("T", value)
    made = value(seed)
    if not isinstance(made, kind):
        raise InputError(
            f"{name} must be a {name} or a function of the seed that returns one, but"
            f" {name}({seed}) returned {short(repr(made))}.",
            f"For example: {name}=lambda seed: make_{name}(seed=seed).",
        )
    return cast("T", made)


def is_minimised(measure: str) -> bool:
    """Whether a measure is better the smaller it is, as all built-in ones are."""
    return measure.startswith((*SMALL, *OBJECTIVES))


def band(courses: Sequence[Course], kind: str = "quartiles", minimised: bool = True) -> Band:
    """(1). A measure that is not minimised has no worst value: there, lost seeds are missing from
    where they end."""
    longest = max(courses, key=lambda course: len(course.step)).step
    ends = [
        int(course.step[-1])
        for course in courses
        if course.status == Status.interrupted and len(course.step)
    ]
    step = longest[longest <= min(ends, default=longest[-1])] if len(longest) else longest
    rows = np.stack(
        [_followed(course, step, np.inf if minimised else np.nan) for course in courses]
    )
    low, high = BANDS[kind]
    return Band(step, *(_quantile(rows, q) for q in (low, 0.5, high)))


def spread(ends: Iterable[float | None], sound: Iterable[bool]) -> Spread:
    """(2)."""
    pairs = list(zip(ends, sound, strict=True))
    values = np.array(
        [end for end, fine in pairs if fine and end is not None and np.isfinite(end)], dtype=float
    )
    mean = float(values.mean()) if values.size else np.nan
    deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0 if values.size else np.nan
    return Spread(mean, deviation, int(values.size), len(pairs))


def _followed(course: Course, step: np.ndarray, worst: float) -> np.ndarray:
    """The values at these steps: those of the last record until then, and what becomes of a run
    after its end."""
    if not len(course.step):
        return np.full(len(step), worst)
    record = np.searchsorted(course.step, step, side="right") - 1
    values = np.asarray(course.values, dtype=float)[record.clip(min=0)]
    over = (step > course.step[-1]) & (course.status in (Status.diverged, Status.failed))
    return np.where(over | ~np.isfinite(values), worst, values)


def _quantile(rows: np.ndarray, q: float) -> np.ndarray:
    """Interpolated linearly between the sorted rows; infinite as soon as an infinite one takes
    part, NaN left out."""
    ordered = np.sort(rows, axis=0)  # NaN last
    count = np.sum(~np.isnan(rows), axis=0)
    place = q * np.maximum(count - 1, 0)
    below = np.floor(place).astype(int)
    weight = place - below
    lower = np.take_along_axis(ordered, below[None], axis=0)[0]
    upper = np.take_along_axis(ordered, np.ceil(place).astype(int)[None], axis=0)[0]
    with np.errstate(invalid="ignore"):
        between = lower + weight * (upper - lower)
    return np.where((weight == 0) | (lower == upper), lower, between)
