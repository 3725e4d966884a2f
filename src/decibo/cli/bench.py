"""decibo bench: the benchmark of the field, in several processes, resumed where it was stopped."""

from __future__ import annotations

import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import jax

from decibo.bench import claims as others
from decibo.bench import page, pictures, results, suite
from decibo.bench.ranks import costs, standings
from decibo.bench.results import AXES, Cell
from decibo.bench.suite import Job
from decibo.cli import cache, registry, terminal
from decibo.cli.errors import Exit
from decibo.cli.trust import Trust, trust_for
from decibo.errors import InputError
from decibo.execute.progress import Line
from decibo.files import atomic_write, check_writable
from decibo.formatting import format_seconds, plural
from decibo.runs.folder import versions
from decibo.validate import integer

SINGLE = "--xla_cpu_multi_thread_eigen=false"  # processes, not threads
SHOWN = ("steps", "work", "bytes", "seconds")


def bench(
    tasks: str | None,
    methods: str | None,
    networks: str | None,
    budget: str,
    out: Path | None,
    added: Sequence[str],
    trusted: Sequence[str],
    jobs: int | None,
    docs: Path | None,
    claimed: bool,
    as_json: bool,
) -> Exit:
    """Make the cells that are missing, then tables, pictures and the page of all that are there."""
    folder = check_writable(out or Path("out") / f"bench-{budget}")
    trust = trust_for(Path("benchmark"), trusted, as_json)
    for name in added:
        registry.own_factory(name, "--add", registry.methods(), trust)
    todo = suite.plan(folder, budget, _words(tasks), _words(methods), _words(networks), added)
    count = integer("jobs", _cores() if jobs is None else jobs)
    allowed = replace(trust, modules=frozenset(name.partition(":")[0].partition(".")[0] for name in added), asks=False)
    begun = time.perf_counter()
    made = _run(todo, tuple(added), allowed, count, folder)
    cells = _asked(results.read_all(folder), todo, added)
    if not cells:
        raise InputError("No cell of the benchmark could be made: none of the methods takes part in any of the tasks.")
    with _double():
        verdicts = others.check(folder, cells) if claimed else []
    results.write_tables(folder, cells)
    asked = {"tasks": tasks, "methods": methods, "networks": networks}
    words = [f"--{name} {value}" for name, value in asked.items() if value] + ["--claims"] * claimed
    told = _made(budget, time.perf_counter() - begun, count, words)
    blocks = [*page.blocks(cells), *([others.block(verdicts)] if verdicts else [])]
    drawn = pictures.drawn(cells)
    target = page.write_html(folder / "benchmark.html", blocks, told, drawn)
    for name, content in drawn.items():
        atomic_write(folder / f"{name}.png", content)
    if docs is not None:
        atomic_write(docs / "benchmark.md", page.markdown(blocks, told))
        for name, content in drawn.items():
            atomic_write(docs / "figures" / f"benchmark_{name}.png", content)
    _show(cells, made, target, verdicts, as_json)
    return Exit.RAN


def _words(text: str | None) -> list[str]:
    """Names that are separated by commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _asked(cells: Sequence[Cell], todo: Sequence[Job], added: Sequence[str]) -> list[Cell]:
    """The cells of this command, in its order; a folder may hold those of others as well."""
    methods = list(dict.fromkeys(job.method.rpartition(":")[2] for job in todo))
    tasks = list(dict.fromkeys(name for job in todo for name in job.tasks))
    networks = {name for job in todo for name in job.networks} or set(suite.NETWORKS)
    here = [cell for cell in cells if cell.method in methods and cell.task in tasks and cell.network in networks]
    order = list(suite.NETWORKS)
    return sorted(
        here, key=lambda cell: (tasks.index(cell.task), order.index(cell.network), methods.index(cell.method))
    )


# The work


def _run(todo: Sequence[Job], added: tuple[str, ...], trust: Trust, jobs: int, folder: Path) -> int:
    """All jobs; returns how many cells were made."""
    label = nullcontext(None) if not sys.stderr.isatty() else Line("job")
    with label as line:
        report = lambda done: None if line is None else line(done, len(todo), {})
        if jobs == 1:
            made = 0
            for done, job in enumerate(todo, start=1):
                with _double():
                    made += _work(job, added, trust)
                report(done)
            return made
        with _environment():
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(jobs, len(todo)), mp_context=context, initializer=_prepare) as pool:
                return _together(pool, todo, added, trust, report)


def _together(
    pool: ProcessPoolExecutor, todo: Sequence[Job], added: tuple[str, ...], trust: Trust, report: Callable[[int], None]
) -> int:
    """Jobs in several processes; if one fails, the others are finished first, and then its error is raised."""
    made = 0
    failed: list[BaseException] = []
    futures = [pool.submit(_work, job, added, trust) for job in todo]
    try:
        for done, future in enumerate(as_completed(futures), start=1):
            error = future.exception()
            if error is None:
                made += future.result()
            else:
                failed.append(error)
            report(done)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():  # cells are written whole or not at all
            child.terminate()
        raise
    if failed:
        raise failed[0]
    return made


def _prepare() -> None:
    """A process of the pool: double precision, and the cache of compiled programs."""
    jax.config.update("jax_enable_x64", True)
    cache.enable()


def _work(job: Job, added: tuple[str, ...], trust: Trust) -> int:
    """One job, here or in another process; strangers' modules were agreed to when the command began."""
    factories = {name: registry.own_factory(name, "--add", registry.methods(), trust) for name in added}
    return suite.carry_out(job, suite.entrant_of(job.method, factories))


@contextmanager
def _double() -> Iterator[None]:
    """Double precision while this process works."""
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@contextmanager
def _environment() -> Iterator[None]:
    """Processes that use one thread each."""
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{before or ''} {SINGLE}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def _made(budget: str, seconds: float, jobs: int, words: Sequence[str]) -> page.Made:
    size = suite.BUDGETS[budget]
    tried = f"{size.search.rounds} x {size.search.settings} settings on {plural(len(size.search.seeds), 'tuning seed')}"
    found = versions()
    hardware = (
        f"{plural(jobs, 'process').replace('processs', 'processes')} on {platform.machine()}, {found.pop('device')}"
    )
    if hasattr(os, "getloadavg"):
        hardware += f", {os.cpu_count()} cores, load {os.getloadavg()[2]:.0f}"
    text = f"Budget {budget}: {tried} for every method, judged on {size.seeds} other seeds."
    command = " ".join([f"decibo bench --budget {budget}", *words])
    return page.Made(command, page.today(), found, hardware, seconds, text)


# What is shown


def _show(cells: list[Cell], made: int, target: Path, verdicts: Sequence[others.Claim], as_json: bool) -> None:
    found = costs(cells)
    tables = {axis: standings(found, axis) for axis in AXES}
    if as_json:
        ranks = {axis: [row._asdict() for row in rows] for axis, rows in tables.items()}
        settings = [
            {"task": cell.task, "network": cell.network, "method": cell.method, "settings": cell.settings}
            for cell in cells
        ]
        terminal.print_json(
            {
                "made": made,
                "kept": len(cells) - made,
                "ranks": ranks,
                "settings": settings,
                "claims": [others.as_dict(claim) for claim in verdicts],
                "page": str(target),
            }
        )
        return
    by_work = tables["work"]
    rows = []
    for row in by_work:
        each = {axis: next(other for other in tables[axis] if other.entrant == row.entrant) for axis in SHOWN}
        rows.append((row.entrant, *(f"{each[axis].rank:.1f}" for axis in SHOWN), f"{100 * row.solved:.0f} %"))
    if rows:
        terminal.table(("mean rank in", *SHOWN, "solved"), rows)
    for claim in verdicts:
        terminal.say(f"{claim.verdict}: {claim.paper}; {claim.finding}")
    seconds = format_seconds(sum(cell.seconds for cell in cells))
    terminal.say(
        f"{plural(len(cells), 'cell')}, {len(cells) - made} of them kept from before; {seconds} of one process in all.",
        f"Written to {terminal.path_of(target.parent)}",
        f"Next: open {terminal.path_of(target)}",
    )
