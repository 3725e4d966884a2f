"""decibo reproduce: all experiments by name; everything is checked first, then each is run, drawn and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax

from decibo.data.dataset import Dataset
from decibo.errors import InputError
from decibo.files import check_writable
from decibo.paper import datasets, fig1, fig2, fig3, fig4, minimax, plotting, rates, table1
from decibo.paper.result import Outcome, Progress, Result, Size, quiet
from decibo.paper.write import as_dict, write, write_page
from decibo.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Loader = Callable[[datasets.Folder], Dataset]
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
}


def reproduce(
    name: str,
    out: Path,
    data: Path | None = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    docs: Path | None = None,
    watch: Watch = lambda name: nullcontext(quiet),
) -> list[Outcome]:
    """Run one experiment or "all" and write each as soon as it is done; with `docs`, also the page about all.

    watch   for the name of an experiment, what shows its progress while it runs
    """
    names = list(EXPERIMENTS) if one_of("EXPERIMENT", name, [*EXPERIMENTS, "all"]) == "all" else [name]
    size = Size(quick, seeds)
    if docs is not None and name != "all":
        raise InputError("--docs writes a page about all experiments.", "Use: decibo reproduce all --docs DOCS.")
    plotting.check_installed()
    for folder in (out, docs):
        if folder is not None:
            check_writable(folder)
    loaded = load(names, data)
    outcomes = [_reproduce(name, loaded, size, out, watch) for name in names]
    if docs is not None:
        write_page(outcomes, docs, quick)
    return outcomes


def load(names: Sequence[str], folder: datasets.Folder) -> dict[Loader, Dataset]:
    """All data that some experiments need, checked, before any of them runs."""
    loaders = dict.fromkeys(EXPERIMENTS[name].data for name in names)
    return {loader: loader(folder) for loader in loaders if loader is not None}


def run(name: str, data: dict[Loader, Dataset], size: Size, progress: Progress = quiet) -> Result:
    """Run one experiment; the numbers do not depend on the caller's precision."""
    experiment = EXPERIMENTS[name]
    with jax.enable_x64(experiment.x64):
        if experiment.data is None:
            return experiment.run(size, progress)
        return experiment.run(data[experiment.data], size, progress)


def save(result: Result, folder: Path) -> Path:
    """Draw a result and write it to folder/NAME; returns that folder."""
    return write(result, folder, partial(plotting.save, EXPERIMENTS[result.name].draw))


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """What --json prints."""
    return [
        as_dict(outcome.result) | {"folder": str(outcome.folder), "seconds": outcome.seconds} for outcome in outcomes
    ]


def _reproduce(name: str, data: dict[Loader, Dataset], size: Size, out: Path, watch: Watch) -> Outcome:
    begun = time.perf_counter()
    with watch(name) as progress:
        result = run(name, data, size, progress)
    folder = save(result, out)
    return Outcome(result, folder, time.perf_counter() - begun)
