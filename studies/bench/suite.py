"""The benchmark: which cells there are, one after another or in several processes, and what is kept
of earlier ones.

A job of the small budget is a method on a family of tasks, whose cells share compiled programs; one
of the full budget is a single cell, so that many processes end together and little is lost when
they are stopped. Cells are written as soon as they are done. All randomness comes from the seeds: a
second benchmark gives the same numbers, seconds aside.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from decibo.errors import InputError
from decibo.network.graphs import complete, exponential, path, ring
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.run.fingerprint import software
from decibo.run.repeat import sharing
from decibo.validate import one_of, only_known
from studies.bench import entrants as field
from studies.bench import tasks as catalogue
from studies.bench.entrants import Entrant
from studies.bench.judging import judged_run, units
from studies.bench.results import finished, key_of, write_cell
from studies.bench.tasks import Task
from studies.bench.tuning import Search, Tuned, tune

NETWORKS: dict[str, Callable[[int], Network]] = {
    "ring": ring,
    "exponential": exponential,
    "path": path,
    "complete": complete,
}
SLOW = ("c2dfb", "ma_dsbo", "mdbo")  # methods with inner loops
TUNING = 1000  # the first tuning seed; judging seeds are 0, 1, 2, ...
KEPT = 16  # tasks whose problems a process keeps


@dataclass(frozen=True)
class Budget:
    """How much is computed, the same for every method.

    search   what tuning may try
    seeds    of judging
    length   the steps of every task are multiplied by it
    """

    name: str
    search: Search
    seeds: int
    length: float = 1.0

    @property
    def small(self) -> bool:
        """Whether tasks and networks are the small ones."""
        return self.name != "full"

    def steps(self, task: Task) -> int:
        """The steps of a run on this task."""
        return max(8, round(self.length * task.steps))


def _search(rounds: int, settings: int, seeds: int) -> Search:
    return Search(rounds, settings, tuple(range(TUNING, TUNING + seeds)))


BUDGETS = {
    "tiny": Budget("tiny", _search(2, 4, 1), 2, 0.1),
    "small": Budget("small", _search(4, 10, 3), 5),
    "full": Budget("full", _search(4, 12, 3), 5, 2.0),
}


class Job(NamedTuple):
    """A method on the tasks of one family; everything can be sent to another process."""

    method: str  # a name of the catalogue, or module:function of a module that may be imported
    tasks: tuple[str, ...]
    networks: tuple[str, ...]  # empty: those of the budget
    budget: Budget
    out: Path
    made: Mapping[str, str] = {}  # when, with what and where: every cell keeps it


def plan(
    out: Path,
    budget: str = "small",
    tasks: Sequence[str] = (),
    methods: Sequence[str] = (),
    networks: Sequence[str] = (),
    added: Sequence[str] = (),
    made: Mapping[str, str] | None = None,
) -> list[Job]:
    """All jobs, checked, long ones first, so that processes end together; of the full budget, all
    rings come first."""
    size = BUDGETS[one_of("budget", budget, BUDGETS)]
    only_known("The benchmark", "network", networks, NETWORKS)
    chosen = catalogue.chosen(list(tasks), size.small)
    names = [entrant.name for entrant in field.chosen(list(methods), size.small)] + list(added)
    names.sort(key=lambda name: name not in SLOW)
    told = dict(made or {})
    if not size.small:
        places = [(task, network) for task in chosen for network in tuple(networks) or task.more]
        places.sort(key=lambda place: place[1] != "ring")
        return [
            Job(name, (task.name,), (network,), size, out, told)
            for task, network in places
            for name in names
        ]
    families: dict[str, list[str]] = {}
    for task in chosen:
        families.setdefault(task.family, []).append(task.name)
    order = sorted(families.values(), key=lambda group: -len(group))
    return [
        Job(name, tuple(group), tuple(networks), size, out, told)
        for group in order
        for name in names
    ]


def entrant_of(method: str, factories: dict[str, Callable[..., object]]) -> Entrant:
    """The entrant of a job; `factories` are those of strangers' methods."""
    if method in factories:
        return field.from_factory(method, factories[method])  # type: ignore[arg-type]
    return field.chosen([method], False)[0]


def networks_of(job: Job, task: Task) -> tuple[str, ...]:
    """The networks on which a job solves a task."""
    return job.networks or (task.networks if job.budget.small else task.more)


def planned(todo: Sequence[Job]) -> int:
    """How many cells all jobs have together."""
    return sum(len(networks_of(job, catalogue.TASKS[name])) for job in todo for name in job.tasks)


def cells_of(job: Job, entrant: Entrant) -> list[tuple[Task, str, str]]:
    """Task, network and key of every cell of a job."""
    cells = []
    for task in (catalogue.TASKS[name] for name in job.tasks):
        names = networks_of(job, task)
        asked = {
            "task": task,
            "method": entrant,
            "budget": job.budget,
            "networks": names,
            "software": software(),
        }
        text = {name: repr(value) for name, value in asked.items()}
        cells += [(task, name, key_of(text | {"network": name})) for name in names]
    return cells


def missing_cells(job: Job, entrant: Entrant) -> list[tuple[Task, str, str]]:
    """Those that are not there yet."""
    return [
        (task, name, key)
        for task, name, key in cells_of(job, entrant)
        if not finished(job.out, task.name, name, entrant.name, key)
    ]


def carry_out(job: Job, entrant: Entrant, report: Callable[[str], None] | None = None) -> int:
    """Make the missing cells of a job; returns how many they were."""
    todo: dict[str, list[tuple[str, str]]] = {}
    for task, network, key in missing_cells(job, entrant):
        todo.setdefault(task.name, []).append((network, key))
    for name, places in todo.items():
        with warnings.catch_warnings():
            # a search tries what a user would be warned of
            warnings.simplefilter("ignore", UserWarning)
            _task(job, catalogue.TASKS[name], entrant, places)
        if report is not None:
            report(f"{name}: {entrant.name}")
    return sum(map(len, todo.values()))


def _task(job: Job, task: Task, entrant: Entrant, places: list[tuple[str, str]]) -> None:
    """Tune on all of these networks together, then judge on each; every cell is written when it is
    done."""
    begun = time.process_time()
    budget = job.budget
    steps = budget.steps(task)
    given = _given(task, budget.search.seeds, budget.seeds)
    networks = {name: network_of(name, given.tuning[0]) for name, _ in places}
    found = tune(task, entrant, networks, given.tuning, given.scales, budget.search, steps)
    spent = (time.process_time() - begun) / len(places)
    for name, key in places:
        begun = time.process_time()
        judged = _judge(task, entrant, networks[name], found[name], given.judging, steps)
        write_cell(
            job.out,
            {
                "key": key,
                "task": task.name,
                "network": name,
                "method": entrant.name,
                "settings": found[name].settings,
                "tried": found[name].tried,
                "notes": found[name].notes,
                "cost": judged[0]["cost"],
                "runs": judged,
                "seconds": spent + time.process_time() - begun,
                "made": dict(job.made),
            },
        )


def _judge(
    task: Task,
    entrant: Entrant,
    network: Network,
    tuned: Tuned,
    problems: Sequence[Problem],
    steps: int,
) -> list[dict[str, object]]:
    """The judged runs of all seeds."""
    method = entrant.method(tuned.settings, task.sampled)
    return [
        judged_run(task, problem, network, method, seed, steps)
        for seed, problem in enumerate(problems)
    ]


class Given(NamedTuple):
    """What a task gives to every method: the problems of the tuning and of the judging seeds, and
    units of dials."""

    tuning: tuple[Problem, ...]
    judging: tuple[Problem, ...]
    scales: Mapping[str, float]


@lru_cache(maxsize=KEPT)
def _given(task: Task, tuning: tuple[int, ...], judging: int) -> Given:
    """All of them share the functions of the first, so that the programs that judge are compiled
    once in a process."""
    first, *others = (task.make(seed) for seed in (*tuning, *range(judging)))
    problems = (first, *(sharing(each, first) for each in others))
    return Given(problems[: len(tuning)], problems[len(tuning) :], units(first, task.trained))


def network_of(name: str, problem: Problem) -> Network:
    """A network of the problem's agents."""
    if problem.agents is None:
        raise InputError("A task of the benchmark must say how many agents it has.")
    return NETWORKS[name](problem.agents)
