"""The benchmark of the field: tune and judge every method on its tasks.

python -m studies.bench
python -m studies.bench --tasks quadratic,l2-digits --methods ahead_exact,sparkle_ed
python -m studies.bench --add my_module:my_method --trust my_module
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated

import jax
import typer

import decibo
from decibo.cli import cache, terminal
from decibo.cli.app import Json, Trusted, main
from decibo.cli.errors import Exit
from decibo.errors import InputError
from decibo.files import atomic_write, check_writable
from decibo.formatting import format_seconds, listed, plural
from decibo.run.observers import Line
from decibo.silo.consent import Trust, own_factory, trust_for
from decibo.validate import above, integer
from studies.bench import claims as claims_of
from studies.bench import page, penalty, pictures, single_agent, storage, suite
from studies.bench.ranks import costs, standings
from studies.bench.storage import AXES, Result
from studies.bench.suite import Done, Job

SHOWN = ("steps", "work", "bytes", "seconds")

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


@app.command()
def bench(
    tasks: Annotated[str | None, typer.Option(metavar="A,B", help="Only these tasks.")] = None,
    methods: Annotated[str | None, typer.Option(metavar="A,B", help="Only these methods.")] = None,
    networks: Annotated[
        str | None, typer.Option(metavar="A,B", help="ring, exponential, path, complete.")
    ] = None,
    budget: Annotated[
        str, typer.Option(help="small (minutes), full (hours) or tiny (a trial).")
    ] = "small",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Default out/bench-BUDGET.")
    ] = None,
    added: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="MODULE:METHOD", help="A method of your own takes part."),
    ] = None,
    trusted: Trusted = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes; default: one for each core.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so long; the same command continues.")
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Compute nothing: tables and page of what is there.")
    ] = False,
    claims: Annotated[
        bool, typer.Option("--claims", help="Also test claims of other papers.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--single-agent", "--corner", help="Also one agent against benchmark_bilevel's solvers."
        ),
    ] = False,
    penalties: Annotated[
        bool, typer.Option("--penalty", help="Also how much the penalty lam matters.")
    ] = False,
    publish: Annotated[
        Path | None,
        typer.Option(
            "--results", "--docs", help="Also write the page and its tables here: studies/results."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Tune and judge every method on the tasks of the benchmark.

    Complete results are stored: the same command continues where it was stopped.
    """
    cache.enable()
    folder = check_writable(out or Path("out") / f"bench-{budget}")
    trust = trust_for(Path("benchmark"), trusted or (), as_json)
    for name in added or ():
        own_factory(name, "--add", decibo.Algorithm, trust)
    count = integer("jobs", _cores() if jobs is None else jobs)
    seconds = inf if minutes is None else 60 * above("minutes", minutes, 0.0)
    made = suite.provenance(count, decibo.__version__)
    filters = {"tasks": tasks, "methods": methods, "networks": networks}
    split = {
        name: [word.strip() for word in (text or "").split(",") if word.strip()]
        for name, text in filters.items()
    }
    todo = suite.plan(folder, budget, **split, added=added or (), made=made)
    done = Done(0, 0)
    if not render:
        # Consent was given above, once; processes of the pool cannot ask.
        modules = frozenset(name.partition(":")[0].partition(".")[0] for name in added or ())
        allowed = replace(trust, modules=modules, asks=False)
        done = _run(todo, tuple(added or ()), allowed, count, seconds)
    results = _wanted(storage.read_all(folder), todo)
    if not results:
        raise InputError(
            "There is no result of the benchmark: none of the methods takes part in any of the"
            " tasks."
        )
    with _double():
        verdicts = claims_of.check(folder, results) if claims else []
        rows = single_agent.read(folder) if render else []
        tried = penalty.read(folder) if render else []
        if alone and not render:
            rows = single_agent.compute(folder)
        if penalties and not render:
            tried = penalty.compute(folder, budget, made)
    tables = storage.write_tables(folder, results)
    options = {"--claims": claims, "--single-agent": bool(rows), "--penalty": bool(tried)}
    words = [
        f"python -m studies.bench --budget {budget}",
        *(f"--{name} {text}" for name, text in filters.items() if text),
        *(name for name, used in options.items() if used),
    ]
    planned = sum(len(job.scenarios()) for job in todo)
    about = page.made_by(" ".join(words), budget, results, planned)
    blocks = [
        *page.blocks(results),
        *(penalty.blocks(tried) if tried else []),
        *([claims_of.block(verdicts)] if verdicts else []),
        *([single_agent.block(rows)] if rows else []),
    ]
    drawn = pictures.drawn(results)
    target = page.write_html(folder / "benchmark.html", blocks, about, drawn)
    for name, content in drawn.items():
        atomic_write(folder / f"{name}.png", content)
    if publish is not None:
        page.publish(publish, blocks, about, drawn)
    _show(results, done, target, tables, verdicts, as_json)
    return Exit.RAN


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _wanted(results: Sequence[Result], todo: Sequence[Job]) -> list[Result]:
    """The results of this command, in its order; the folder may hold others as well."""
    methods = list(dict.fromkeys(job.method.rpartition(":")[2] for job in todo))
    tasks = list(dict.fromkeys(name for job in todo for name in job.tasks))
    networks = {name for job in todo for name in job.networks} or set(suite.NETWORKS)
    order = list(suite.NETWORKS)
    wanted = [
        result
        for result in results
        if result.method in methods and result.task in tasks and result.network in networks
    ]
    place = lambda result: (
        tasks.index(result.task),
        order.index(result.network),
        methods.index(result.method),
    )
    return sorted(wanted, key=place)


def _run(
    todo: Sequence[Job], added: tuple[str, ...], trust: Trust, processes: int, seconds: float
) -> Done:
    """All jobs, with a line that shows how far they are."""
    work = partial(suite.work, added=added, trust=trust)
    label = nullcontext(None) if not sys.stderr.isatty() else Line("job")
    with label as line, _double() if processes == 1 else nullcontext():
        report = lambda done: None if line is None else line(done, len(todo), {})
        return suite.run(
            todo, work, processes, prepare=suite.prepare, seconds=seconds, report=report
        )


@contextmanager
def _double() -> Iterator[None]:
    """Double precision while this process computes."""
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _show(
    results: list[Result],
    done: Done,
    target: Path,
    written: Sequence[Path],
    verdicts: Sequence[claims_of.Claim],
    as_json: bool,
) -> None:
    found = costs(results)
    tables = {axis: standings(found, axis) for axis in AXES}
    if as_json:
        names = ("task", "network", "method", "settings")
        terminal.print_json(
            {
                "made": done.results,
                "kept": len(results) - done.results,
                "left": done.left,
                "ranks": {axis: [row._asdict() for row in rows] for axis, rows in tables.items()},
                "settings": [{name: getattr(each, name) for name in names} for each in results],
                "claims": [claims_of.as_dict(claim) for claim in verdicts],
                "page": str(target),
                "tables": [str(path) for path in written],
            }
        )
        return
    ranks = {axis: {row.method: row.rank for row in tables[axis]} for axis in SHOWN}
    rows = [
        (row.method, *(f"{ranks[axis][row.method]:.1f}" for axis in SHOWN), f"{row.solved:.0%}")
        for row in tables["work"]
    ]
    if rows:
        terminal.table(("mean rank in", *SHOWN, "solved"), rows)
    for claim in verdicts:
        terminal.say(f"{claim.verdict}: {claim.paper}; {claim.finding}")
    if done.left:
        terminal.say(f"The time ended with {plural(done.left, 'job')} left: run the same command.")
    seconds = format_seconds(sum(result.seconds for result in results))
    files = listed([path.name for path in written])
    parquet = any(path.suffix == ".parquet" for path in written)
    terminal.say(
        f"{plural(len(results), 'result')}, {len(results) - done.results} of them from before;"
        f" {seconds} of one process in all.",
        f"Written to {terminal.path_of(target.parent)}: {files}"
        + ("." if parquet else "; Parquet needs pyarrow."),
        f"Next: open {terminal.path_of(target)}",
    )


if __name__ == "__main__":
    main(commands=app, name="python -m studies.bench")
