"""Jobs in several processes, until all are done or the time is over; and where and when that was.

As many jobs are under way as there are processes. With a time limit, a job is begun only if there
is time left for MARGIN times what jobs of its method took so far; at the limit, what is under way
is given up. Cells are written whole or not at all, so that the same jobs, run again, go on with
what is missing.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from decibo.formatting import plural
from decibo.runs.folder import versions
from studies.bench.suite import Job

SINGLE = "--xla_cpu_multi_thread_eigen=false"  # processes, not threads
MARGIN = 1.5
Work = Callable[[Job], int]  # makes the missing cells of a job and says how many they were
Report = Callable[[int], None]


class Done(NamedTuple):
    """How many cells were made, and how many jobs were not finished in time."""

    cells: int
    left: int


def run(
    todo: Sequence[Job],
    work: Work,
    jobs: int,
    *,
    prepare: Callable[[], None] | None = None,
    seconds: float = float("inf"),
    report: Report | None = None,
) -> Done:
    """All jobs, in so many processes, each of which calls `prepare` first; with one, in this
    process."""
    end = time.monotonic() + seconds
    told = report or (lambda done: None)
    if jobs == 1:
        made = 0
        for done, job in enumerate(todo):
            if time.monotonic() >= end:
                return Done(made, len(todo) - done)
            made += work(job)
            told(done + 1)
        return Done(made, 0)
    with _one_thread_each():
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            min(jobs, len(todo)), mp_context=context, initializer=prepare
        ) as pool:
            return _together(pool, list(todo), work, jobs, end, told)


def _together(
    pool: ProcessPoolExecutor, waiting: list[Job], work: Work, jobs: int, end: float, told: Report
) -> Done:
    """If a job fails, the others are finished first, and then its error is raised."""
    made = 0
    done = 0
    failed: list[BaseException] = []
    under_way: dict[Future[int], tuple[Job, float]] = {}
    taken: dict[str, list[float]] = {}
    try:
        while True:
            while (
                len(under_way) < jobs
                and (job := _next(waiting, taken, end - time.monotonic())) is not None
            ):
                waiting.remove(job)
                under_way[pool.submit(work, job)] = (job, time.monotonic())
            if not under_way:
                break
            finished, _ = wait(
                under_way,
                max(end - time.monotonic(), 0.0) if end < float("inf") else None,
                FIRST_COMPLETED,
            )
            if not finished:
                _give_up(pool)
                break
            for future in finished:
                job, begun = under_way.pop(future)
                taken.setdefault(job.method, []).append(time.monotonic() - begun)
                error = future.exception()
                made += future.result() if error is None else 0
                failed += [] if error is None else [error]
                done += 1
                told(done)
    except BaseException:
        _give_up(pool)
        raise
    if failed:
        raise failed[0]
    return Done(made, len(waiting) + len(under_way))


def _next(waiting: Sequence[Job], taken: Mapping[str, list[float]], left: float) -> Job | None:
    """The first job that is likely to be finished in the seconds that are left."""
    likely = {method: MARGIN * sum(each) / len(each) for method, each in taken.items()}
    return next((job for job in waiting if left > likely.get(job.method, 0.0)), None)


def _give_up(pool: ProcessPoolExecutor) -> None:
    pool.shutdown(wait=False, cancel_futures=True)
    for child in multiprocessing.active_children():
        child.terminate()


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


def here(jobs: int, version: str) -> dict[str, str]:
    """When, with what and where cells are made; every cell keeps it. `version` is that of
    decibo."""
    found = versions() | {"decibo": version}
    device = found.pop("device")
    where = (
        f"{plural(jobs, 'process').replace('processs', 'processes')} on {_processor() or device}"
    )
    software = ", ".join(f"{name} {value}" for name, value in found.items())
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"date": date, "software": software, "hardware": f"{where}, {os.cpu_count()} cores"}


def _processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
