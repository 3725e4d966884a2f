"""decibo bench: the benchmark of the field, in several processes, resumed where it was stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import jax

import decibo
from decibo.cli import cache, registry, terminal
from decibo.cli.errors import Exit
from decibo.cli.trust import Trust, trust_for
from decibo.errors import InputError
from decibo.files import atomic_write, check_writable
from decibo.formatting import format_seconds, listed, plural
from decibo.run.progress import Line
from decibo.validate import above, integer
from studies.bench import claims as others
from studies.bench import corner, page, penalty, pictures, pool, results, suite
from studies.bench.ranks import costs, standings
from studies.bench.results import AXES, Cell
from studies.bench.suite import Job

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
    minutes: float | None,
    render: bool,
    docs: Path | None,
    claimed: bool,
    cornered: bool,
    penalised: bool,
    as_json: bool,
) -> Exit:
    """Make the cells that are missing, then tables, pictures and the page of all that are there."""
    folder = check_writable(out or Path("out") / f"bench-{budget}")
    trust = trust_for(Path("benchmark"), trusted, as_json)
    for name in added:
        registry.own_factory(name, "--add", registry.methods(), trust)
    count = integer("jobs", _cores() if jobs is None else jobs)
    seconds = inf if minutes is None else 60 * above("minutes", minutes, 0.0)
    made = pool.here(count, decibo.__version__)
    todo = suite.plan(folder, budget, _words(tasks), _words(methods), _words(networks), added, made)
    allowed = replace(
        trust,
        modules=frozenset(name.partition(":")[0].partition(".")[0] for name in added),
        asks=False,
    )
    done = pool.Done(0, 0) if render else _run(todo, tuple(added), allowed, count, seconds)
    cells = _asked(results.read_all(folder), todo, added)
    if not cells:
        raise InputError(
            "No cell of the benchmark could be made: none of the methods takes part in any of the"
            " tasks."
        )
    with _double():
        verdicts = others.check(folder, cells) if claimed else []
        alone = corner.read(folder) if render else corner.kept(folder) if cornered else []
        weighed = (
            penalty.read(folder)
            if render
            else penalty.kept(folder, budget, made)
            if penalised
            else []
        )
    tables = results.write_tables(folder, cells)
    asked = {"tasks": tasks, "methods": methods, "networks": networks}
    words = (
        [f"--{name} {value}" for name, value in asked.items() if value]
        + ["--claims"] * claimed
        + ["--corner"] * bool(alone)
        + ["--penalty"] * bool(weighed)
    )
    told = page.made_by(
        " ".join([f"decibo bench --budget {budget}", *words]), budget, cells, suite.planned(todo)
    )
    further = [
        *([others.block(verdicts)] if verdicts else []),
        *([corner.block(alone)] if alone else []),
    ]
    blocks = [*page.blocks(cells), *(penalty.blocks(weighed) if weighed else []), *further]
    drawn = pictures.drawn(cells)
    target = page.write_html(folder / "benchmark.html", blocks, told, drawn)
    for name, content in drawn.items():
        atomic_write(folder / f"{name}.png", content)
    if docs is not None:
        atomic_write(docs / "benchmark.md", page.markdown(blocks, told))
        for name, content in drawn.items():
            atomic_write(docs / "figures" / f"benchmark_{name}.png", content)
    _show(cells, done, target, tables, verdicts, as_json)
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
    here = [
        cell
        for cell in cells
        if cell.method in methods and cell.task in tasks and cell.network in networks
    ]
    order = list(suite.NETWORKS)
    return sorted(
        here,
        key=lambda cell: (
            tasks.index(cell.task),
            order.index(cell.network),
            methods.index(cell.method),
        ),
    )


# The work


def _run(
    todo: Sequence[Job], added: tuple[str, ...], trust: Trust, jobs: int, seconds: float
) -> pool.Done:
    """All jobs, with a line that says how far they are."""
    work = partial(_work, added=added, trust=trust)
    label = nullcontext(None) if not sys.stderr.isatty() else Line("job")
    with label as line, _double() if jobs == 1 else nullcontext():
        report = lambda done: None if line is None else line(done, len(todo), {})
        return pool.run(todo, work, jobs, prepare=_prepare, seconds=seconds, report=report)


def _prepare() -> None:
    """A process of the pool: double precision, and the cache of compiled programs."""
    jax.config.update("jax_enable_x64", True)
    cache.enable()


def _work(job: Job, *, added: tuple[str, ...], trust: Trust) -> int:
    """One job, here or in another process; strangers' modules were agreed to when the command
    began."""
    factories = {
        name: registry.own_factory(name, "--add", registry.methods(), trust) for name in added
    }
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


# What is shown


def _show(
    cells: list[Cell],
    done: pool.Done,
    target: Path,
    written: Sequence[Path],
    verdicts: Sequence[others.Claim],
    as_json: bool,
) -> None:
    found = costs(cells)
    tables = {axis: standings(found, axis) for axis in AXES}
    if as_json:
        ranks = {axis: [row._asdict() for row in rows] for axis, rows in tables.items()}
        settings = [
            {
                "task": cell.task,
                "network": cell.network,
                "method": cell.method,
                "settings": cell.settings,
            }
            for cell in cells
        ]
        terminal.print_json(
            {
                "made": done.cells,
                "kept": len(cells) - done.cells,
                "left": done.left,
                "ranks": ranks,
                "settings": settings,
                "claims": [others.as_dict(claim) for claim in verdicts],
                "page": str(target),
                "tables": [str(path) for path in written],
            }
        )
        return
    by_work = tables["work"]
    rows = []
    for row in by_work:
        each = {
            axis: next(other for other in tables[axis] if other.entrant == row.entrant)
            for axis in SHOWN
        }
        rows.append(
            (
                row.entrant,
                *(f"{each[axis].rank:.1f}" for axis in SHOWN),
                f"{100 * row.solved:.0f} %",
            )
        )
    if rows:
        terminal.table(("mean rank in", *SHOWN, "solved"), rows)
    for claim in verdicts:
        terminal.say(f"{claim.verdict}: {claim.paper}; {claim.finding}")
    seconds = format_seconds(sum(cell.seconds for cell in cells))
    if done.left:
        terminal.say(
            f"The time was over: {plural(done.left, 'job')} left. The same command goes on."
        )
    terminal.say(
        f"{plural(len(cells), 'cell')}, {len(cells) - done.cells} of them kept from before;"
        f" {seconds} of one process in all.",
        f"Written to {terminal.path_of(target.parent)}: {_files(written)}",
        f"Next: open {terminal.path_of(target)}",
    )


def _files(written: Sequence[Path]) -> str:
    """The raw results by name, and what is missing if a package is."""
    names = listed([path.name for path in written])
    return (
        f"{names}."
        if any(path.suffix == ".parquet" for path in written)
        else f"{names}; Parquet needs pyarrow."
    )
