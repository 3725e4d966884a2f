"""repeat: the same run with several seeds, of its data, its network, its start and its method.

A seed s changes what is passed as a function of the seed: `problem(s)`, `network(s)`, `start(s)`;
and it is the seed of `solve`, from which methods (minibatches, compression) and networks (failing
links) draw. All else stays.

Runs are made one after another, each as `solve` makes it, so that their times are their own, step
sizes may be left out, and what ended is not lost when the next one fails. Compiled programs are
shared: functions that a factory creates anew for every seed are recognised by what they compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import TYPE_CHECKING, TypeVar, cast

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.methods import ahead_exact
from decibo.data.stream import Stream
from decibo.errors import InputError, missing, short
from decibo.formatting import format_number, in_notebook, plural
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.network.per_variable import each as for_each
from decibo.problem.problem import Problem
from decibo.run.fingerprint import same_programs
from decibo.run.observers import Report
from decibo.run.seeds import Band, Course, Spread, band, is_minimised, seed_numbers, spread
from decibo.run.solution import Solution, Status, drawn, scalars_of
from decibo.run.solve import Measures, check_fit, check_types, solve
from decibo.run.start import Start
from decibo.validate import one_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

AnyNetwork = Network | DirectedNetwork
FUNCTIONS = ("outer", "inner", "sample", "inner_solution", "outer_gradient", "inner_gradient")
T = TypeVar("T")


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
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "Repeats.to_pandas", "table") from error
        tables = [
            run.to_pandas().assign(seed=seed)
            for seed, run in zip(self.seeds, self.solutions, strict=True)
        ]
        return pandas.concat(tables, ignore_index=True)

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in Counter(self.status).items())
        ends = [f"{name} {_plus_minus(self.spread(name))}" for name in self.scalars]
        return (
            f"Repeats({plural(len(self), 'seed')} of {self.method!r}: {counts}; {', '.join(ends)})"
        )

    @property
    def scalars(self) -> list[str]:
        """The measures that are one number at each record."""
        return scalars_of(self.solutions[0].history)

    def _check(self, measure: str) -> None:
        one_of("The recorded measure", measure, self.scalars)


def _plus_minus(numbers: Spread) -> str:
    of = "" if numbers.count == numbers.of else f" ({numbers.count} of {numbers.of} seeds)"
    return f"{format_number(numbers.mean)} +- {format_number(numbers.deviation)}{of}"


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
    for seed in numbers:  # all of them first: what is wrong is said before anything runs
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
