"""All experiments by name: everything is checked first, then each is run, drawn and written.

On disk a result is a folder of CSV, JSON and figures; studies/results/paper.md is a page about all
of them, and paper.json beside it has the same as data.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

import decibo
from decibo.errors import InputError
from decibo.files import atomic_write, check_writable, sync_folder, temporary
from decibo.formatting import listed, to_csv, to_json
from decibo.validate import one_of
from studies.machine import in_words, machine
from studies.paper import (
    datasets,
    fig1,
    fig2,
    fig3,
    fig4,
    future,
    minimax,
    plotting,
    rates,
    remarks,
    table1,
)
from studies.paper.experiment import Outcome, Progress, Result, Size, Verdict, quiet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Loader = Callable[[datasets.Folder], decibo.data.Dataset]
Watch = Callable[[str], AbstractContextManager[Progress]]


class Experiment(NamedTuple):
    """How to run and draw an experiment, on which data, if any, and whether in float64."""

    run: Callable[..., Result]
    draw: Callable[[Result], Figure]
    data: Loader | None
    x64: bool


EXPERIMENTS = {
    "fig1": Experiment(fig1.run, fig1.draw, None, True),
    "fig2": Experiment(fig2.run, fig2.draw, datasets.pair_of_digits, False),
    "table1": Experiment(table1.run, table1.draw, datasets.pair_of_digits, False),
    "fig3": Experiment(fig3.run, fig3.draw, datasets.pair_of_digits, False),
    "fig4": Experiment(fig4.run, fig4.draw, datasets.pair_of_digits, False),
    "rates": Experiment(rates.run, rates.draw, None, True),
    "minimax": Experiment(minimax.run, minimax.draw, datasets.adults, True),
    "remarks": Experiment(remarks.run, remarks.draw, None, True),
    "future": Experiment(future.run, future.draw, None, True),
}
COMMAND = "python -m studies.paper all --results studies/results"
PAGE = """# The paper, claim by claim

The paper is Niu, Xu, Sun, Chai & Chen, *Hessian-Free Distributed Bilevel Optimization via
Penalization with Time-Scale Separation*, IEEE Transactions on Automatic Control,
[arXiv 2412.11218](https://arxiv.org/abs/2412.11218).

This page is written by `{command}`; please do not edit it. It was
measured {measured}, in {minutes} minutes. The same seeds give the same numbers, except for wall times.
`python -m studies.paper table1` runs a single experiment.

Of {total} claims, {verdicts}.

| experiment | holds | does not hold | undecided |
|---|---|---|---|
{rows}

A claim that is tested on several seeds holds if it is true for at least 80 % of them (60 % for
whether a column of Table I converges), does not hold if it is true for at most 20 % (40 %), and is
undecided between. How we read a claim, or why it fails, follows in parentheses where it helps.
[The paper, reproduced](../../docs/reproduction.md) sums it up and lists the errata.

{sections}"""
SECTION = """## {title}

Data: {data}.

![{title}](figures/{name}.png)

| the paper says | measured | verdict |
|---|---|---|
{claims}
{table}
{notes}

<details><summary>Settings</summary>

```json
{settings}
```

</details>
"""
PLURAL = {Verdict.holds: "hold", Verdict.fails: "do not hold", Verdict.open: "are undecided"}
# Tables that are shown on the page, and the sentence above them.
MEANS = (
    "Means over the seeds that did not diverge, beside what the paper prints (ce: consensus error):"
)
SHOWN = {"table1": ("columns", MEANS), "fig4": ("cost", "What a step of one agent costs:")}


def reproduce(
    name: str,
    out: Path,
    data: Path | None = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    results: Path | None = None,
    watch: Watch = lambda name: nullcontext(quiet),
) -> list[Outcome]:
    """Run one experiment or "all" and write each as soon as it is done; with `results`, also
    the page about all.

    watch   for the name of an experiment, what shows its progress while it runs
    """
    names = (
        list(EXPERIMENTS) if one_of("EXPERIMENT", name, [*EXPERIMENTS, "all"]) == "all" else [name]
    )
    size = Size(quick, seeds)
    if results is not None and name != "all":
        raise InputError(
            f"--results writes a page about all experiments, but only {name} is asked for.",
            "Use: python -m studies.paper all --results DIR.",
        )
    plotting.check_installed()
    for folder in (out, results):
        if folder is not None:
            check_writable(folder)
    loaded = load(names, data)
    outcomes = []
    for each in names:
        begun = time.perf_counter()
        with watch(each) as progress:
            result = run(each, loaded, size, progress)
        folder = save(result, out)
        outcomes.append(Outcome(result, folder, time.perf_counter() - begun))
    if results is not None:
        write_page(outcomes, results, quick)
    return outcomes


def load(names: Sequence[str], folder: datasets.Folder) -> dict[Loader, decibo.data.Dataset]:
    """All data that some experiments need, checked, before any of them runs."""
    loaders = dict.fromkeys(EXPERIMENTS[name].data for name in names)
    return {loader: loader(folder) for loader in loaders if loader is not None}


def run(
    name: str, data: dict[Loader, decibo.data.Dataset], size: Size, progress: Progress = quiet
) -> Result:
    """Run one experiment; the numbers do not depend on the caller's precision."""
    experiment = EXPERIMENTS[name]
    with jax.enable_x64(experiment.x64):
        if experiment.data is None:
            return experiment.run(size, progress)
        return experiment.run(data[experiment.data], size, progress)


def save(result: Result, folder: Path) -> Path:
    """Draw a result and write it to folder/NAME, which is replaced as a whole; returns that
    folder."""
    target = folder / result.name
    with replace_folder(target) as draft:
        for name, table in result.tables.items():
            (draft / f"{name}.csv").write_text(to_csv(table))
        (draft / f"{result.name}.json").write_text(json.dumps(as_dict(result), indent=2) + "\n")
        plotting.save(EXPERIMENTS[result.name].draw, result, draft)
    return target


@contextlib.contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """A new folder that takes the place of the target at the end; if anything fails, the target
    stays as it was."""
    missing = [parent for parent in target.parents if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = temporary(target)
    old = temporary(target)
    draft.mkdir()
    try:
        yield draft
        if os.path.lexists(target):
            os.replace(target, old)
        try:
            os.replace(draft, target)
        except BaseException:
            if os.path.lexists(old):
                os.replace(old, target)
            raise
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        with contextlib.suppress(OSError):
            for parent in missing:
                parent.rmdir()
        raise
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)


def as_dict(result: Result) -> dict[str, object]:
    """A result as plain Python objects, without the numbers of its tables."""
    return {
        "name": result.name,
        "title": result.title,
        "data": result.data,
        "claims": [asdict(claim) | {"verdict": str(claim.verdict)} for claim in result.claims],
        "settings": to_json(result.settings),
        "notes": list(result.notes),
        "tables": [f"{name}.csv" for name in result.tables],
    }


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """What --json prints."""
    return [
        as_dict(outcome.result) | {"folder": str(outcome.folder), "seconds": outcome.seconds}
        for outcome in outcomes
    ]


# The page about all experiments


def write_page(outcomes: Sequence[Outcome], results: Path, quick: bool) -> Path:
    """Write the page, the same as data, and copies of the figures."""
    for outcome in outcomes:
        name = f"{outcome.result.name}.png"
        atomic_write(results / "figures" / name, (outcome.folder / name).read_bytes())
    record = {
        "measured": machine(),
        "experiments": [
            as_dict(each.result) | {"seconds": round(each.seconds)} for each in outcomes
        ],
    }
    atomic_write(results / "paper.json", json.dumps(record, indent=2) + "\n")
    return atomic_write(results / "paper.md", page(outcomes, quick))


def page(outcomes: Sequence[Outcome], quick: bool) -> str:
    """The text of the page."""
    rows = []
    total: Counter[Verdict] = Counter()
    for outcome in outcomes:
        title = outcome.result.title
        counts = Counter(claim.verdict for claim in outcome.result.claims)
        anchor = "".join(c for c in title.lower() if c.isalnum() or c in " -").replace(" ", "-")
        cells = " | ".join(str(counts[verdict]) for verdict in Verdict)
        rows.append(f"| [{title}](#{anchor}) | {cells} |")
        total += counts
    return PAGE.format(
        command=COMMAND + (" --quick" if quick else ""),
        measured=in_words(machine()),
        minutes=max(1, round(sum(outcome.seconds for outcome in outcomes) / 60)),
        total=sum(total.values()),
        verdicts=listed([f"{total[verdict]} {PLURAL[verdict]}" for verdict in Verdict]),
        rows="\n".join(rows),
        sections="\n".join(_section(outcome.result) for outcome in outcomes),
    )


def _section(result: Result) -> str:
    cell = lambda text: text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
    claims = [f"| {cell(c.paper)} | {cell(c.finding)} | {c.verdict} |" for c in result.claims]
    table = []
    if result.name in SHOWN:
        name, sentence = SHOWN[result.name]
        shown = result.tables[name]
        head = " | ".join(column.replace("_", " ") for column in shown)
        table = ["", sentence, "", f"| {head} |", "|" + "---|" * len(shown)]
        for row in zip(*(values.tolist() for values in shown.values()), strict=True):
            table.append(f"| {' | '.join(map(_number, row))} |")
        table.append("")
    # Settings as JSON, with each list of numbers or words on one line.
    settings = json.dumps(to_json(result.settings), indent=2)
    one_line = lambda match: f"[{' '.join(match[1].split())}]"
    return SECTION.format(
        title=result.title,
        data=result.data,
        name=result.name,
        claims="\n".join(claims),
        table="\n".join(table),
        notes="\n".join(f"* {cell(note)}" for note in result.notes),
        settings=re.sub(r"\[\s+([^][{}]*?)\s+\]", one_line, settings),
    )


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if np.isfinite(value) else "N.A."
    return str(value)
