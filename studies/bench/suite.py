"""The benchmark: which results there are, computed one after another or in several processes.

A job of the small budget is a method on a family of tasks, whose results share compiled programs;
one of the full budget is a single result, so that many processes end together and little is lost
when they are stopped. Results are written as soon as they are done. All randomness comes from the
seeds: a second benchmark gives the same numbers, seconds aside.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax

from decibo.errors import InputError
from decibo.formatting import plural
from decibo.network.graphs import complete, exponential, path, ring
from decibo.network.network import Network
from decibo.problem.problem import Problem
from decibo.run.fingerprint import software
from decibo.run.repeat import sharing
from decibo.runs.folder import versions
from decibo.validate import one_of, only_known
from studies.bench import methods as methods_of
from studies.bench import tasks as tasks_of
from studies.bench.judging import judged_run, units
from studies.bench.methods import TunableMethod
from studies.bench.storage import finished, key_of, write_result
from studies.bench.tasks import TASKS, Task
from studies.bench.tuning import Search, tune

if TYPE_CHECKING:
    from decibo.silo.consent import Trust

NETWORKS: dict[str, Callable[[int], Network]] = {
    "ring": ring,
    "exponential": exponential,
    "path": path,
    "complete": complete,
}
SLOW = ("c2dfb", "ma_dsbo", "mdbo")  # methods with inner loops
TUNING = 1000  # the first tuning seed; judging seeds are 0, 1, 2, ...
# Several processes of one thread each are faster than one process of several threads: the arrays
# of most tasks are too small for a thread pool.
SINGLE = "--xla_cpu_multi_thread_eigen=false"


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
    """A method on the tasks of one family; it can be sent to another process."""

    method: str  # a name of the catalogue, or module:function of a module that may be imported
    tasks: tuple[str, ...]
    networks: tuple[str, ...]  # empty: those of the budget
    budget: Budget
    out: Path
    made: Mapping[str, str] = {}  # when, with what and where: stored with every result

    def scenarios(self) -> list[tuple[Task, str]]:
        """All tasks on all networks."""
        tasks = [TASKS[name] for name in self.tasks]
        default = lambda task: task.networks if self.budget.small else task.more
        return [(task, name) for task in tasks for name in self.networks or default(task)]


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
    chosen = tasks_of.chosen(tasks, size.small)
    names = [method.name for method in methods_of.chosen(methods, size.small)] + list(added)
    names.sort(key=lambda name: name not in SLOW)
    job = lambda name, group, where: Job(name, tuple(group), where, size, out, dict(made or {}))
    if not size.small:
        pairs = [(task.name, where) for task in chosen for where in tuple(networks) or task.more]
        pairs.sort(key=lambda pair: pair[1] != "ring")
        return [job(name, (task,), (where,)) for task, where in pairs for name in names]
    families: dict[str, list[str]] = {}
    for task in chosen:
        families.setdefault(task.family, []).append(task.name)
    order = sorted(families.values(), key=lambda group: -len(group))
    return [job(name, group, tuple(networks)) for group in order for name in names]


def method_named(name: str, factories: Mapping[str, Callable[..., object]]) -> TunableMethod:
    """The method of a job; `factories` are the user's own."""
    if name in factories:
        return methods_of.from_factory(name, factories[name])  # type: ignore[arg-type]
    return methods_of.chosen([name], False)[0]


def missing_results(job: Job, method: TunableMethod) -> list[tuple[Task, str, str]]:
    """Task, network and key of every result that is not there yet."""
    missing = []
    for task, network in job.scenarios():
        asked = {
            "task": repr(task),
            "method": repr(method),
            "budget": repr(job.budget),
            # all networks of a task are tuned in one program, with the same random numbers
            "networks": repr([name for each, name in job.scenarios() if each == task]),
            "network": network,
            "software": repr(software()),
        }
        if not finished(job.out, task.name, network, method.name, key_of(asked)):
            missing.append((task, network, key_of(asked)))
    return missing


def carry_out(job: Job, method: TunableMethod) -> int:
    """Compute the missing results of a job; returns how many they were."""
    missing = missing_results(job, method)
    for task in dict.fromkeys(task for task, _, _ in missing):
        keys = {network: key for each, network, key in missing if each == task}
        with warnings.catch_warnings():
            # a search tries what a user would be warned of
            warnings.simplefilter("ignore", UserWarning)
            _compute(job, task, method, keys)
    return len(missing)


def _compute(job: Job, task: Task, method: TunableMethod, keys: Mapping[str, str]) -> None:
    """Tune on all of these networks together, then judge on each and write the result."""
    begun = time.process_time()
    search, steps = job.budget.search, job.budget.steps(task)
    given = _instances(task, search.seeds, job.budget.seeds)
    networks = {name: network_of(name, given.tuning[0]) for name in keys}
    tuned = tune(task, method, networks, given.tuning, given.scales, search, steps)
    tuning = (time.process_time() - begun) / len(keys)
    for name, key in keys.items():
        begun = time.process_time()
        algorithm = method.method(tuned[name].settings, task.sampled)
        runs = [
            judged_run(task, problem, networks[name], algorithm, seed, steps)
            for seed, problem in enumerate(given.judging)
        ]
        result = {
            "key": key,
            "task": task.name,
            "network": name,
            "method": method.name,
            "settings": tuned[name].settings,
            "tried": tuned[name].tried,
            "notes": tuned[name].notes,
            "cost": runs[0]["cost"],
            "runs": runs,
            "seconds": tuning + time.process_time() - begun,
            "made": dict(job.made),
        }
        write_result(job.out, result)


class Instances(NamedTuple):
    """What all methods get of a task: the problems of tuning and judging, and the units of
    hyper-parameters."""

    tuning: tuple[Problem, ...]
    judging: tuple[Problem, ...]
    scales: Mapping[str, float]


@lru_cache(maxsize=16)
def _instances(task: Task, tuning: tuple[int, ...], judging: int) -> Instances:
    first, *others = (task.make(seed) for seed in (*tuning, *range(judging)))
    # All share the functions of the first: jit compiles a function once, and by identity.
    problems = (first, *(sharing(each, first) for each in others))
    return Instances(problems[: len(tuning)], problems[len(tuning) :], units(first, task.trained))


def network_of(name: str, problem: Problem) -> Network:
    """A network of the problem's agents."""
    if problem.agents is None:
        raise InputError("A task of the benchmark must say how many agents it has.")
    return NETWORKS[name](problem.agents)


# Several processes


class Done(NamedTuple):
    """How many results were computed, and how many jobs were not finished in time."""

    results: int
    left: int


def run(
    jobs: Sequence[Job],
    work: Callable[[Job], int],
    processes: int,
    *,
    prepare: Callable[[], None] | None = None,
    seconds: float = float("inf"),
    report: Callable[[int], None] = lambda done: None,
) -> Done:
    """All jobs, in so many processes, each of which calls `prepare` first; one: this process.

    At the end of the time, unfinished jobs are abandoned; the same call computes them later. If a
    job fails, the others are finished first.
    """
    end = time.monotonic() + seconds
    computed = 0
    if processes == 1:
        for done, job in enumerate(jobs):
            if time.monotonic() >= end:
                return Done(computed, len(jobs) - done)
            computed += work(job)
            report(done + 1)
        return Done(computed, 0)
    failed: list[BaseException] = []
    done = 0
    with _one_thread_each():
        # spawn, since a fork of a process in which JAX has threads can hang
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(
            min(processes, max(len(jobs), 1)), mp_context=context, initializer=prepare
        )
        futures: list[Future[int]] = [pool.submit(work, job) for job in jobs]
        limit = None if seconds == float("inf") else seconds
        try:
            for done, future in enumerate(as_completed(futures, limit), 1):
                error = future.exception()
                failed += [] if error is None else [error]
                computed += future.result() if error is None else 0
                report(done)
        except TimeoutError:
            pass
        finally:
            pool.shutdown(wait=done == len(jobs), cancel_futures=True)
            if done < len(jobs):
                # Not terminate: a run takes SIGTERM as a request to stop, and the process would
                # go on with the jobs that the pool has already sent to it. Results are written
                # whole or not at all.
                for child in multiprocessing.active_children():
                    child.kill()
    if failed:
        raise failed[0]
    return Done(computed, len(jobs) - done)


def prepare() -> None:
    """Set up a process of the pool: double precision, and the cache of compiled programs."""
    from decibo.cli import cache

    jax.config.update("jax_enable_x64", True)
    cache.enable()


def work(job: Job, added: Sequence[str] = (), trust: Trust | None = None) -> int:
    """One job, here or in another process. `added` are methods of the user's, whose modules `trust`
    allows to import.

    Not in __main__.py: a spawned process does not import the __main__ of a package.
    """
    factories = {}
    if trust is not None:
        from decibo.algorithm.algorithm import Algorithm
        from decibo.silo.consent import own_factory

        factories = {name: own_factory(name, "--add", Algorithm, trust) for name in added}
    return carry_out(job, method_named(job.method, factories))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started here use one thread each; XLA reads the size of its pools from
    NPROC."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {SINGLE}".strip()
    before = {name: os.environ.get(name) for name in ("XLA_FLAGS", "NPROC")}
    os.environ |= {"XLA_FLAGS": flags, "NPROC": "1"}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def provenance(processes: int, version: str) -> dict[str, str]:
    """When, with what and where results are computed; `version` is that of decibo."""
    found = versions() | {"decibo": version}
    device = found.pop("device")
    count = plural(processes, "process").replace("processs", "processes")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "software": ", ".join(f"{name} {value}" for name, value in found.items()),
        "hardware": f"{count} on {_processor() or device}, {os.cpu_count()} cores",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
