"""All experiments by name, each with the data and the precision it wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from decibo.errors import InputError
from decibo.paper import datasets as source
from decibo.paper import fig1, fig2, fig3, fig4, minimax, rates, table1
from decibo.paper.result import Progress, Result, Size, quiet


class Experiment(NamedTuple):
    """How to run one: with which data, if any, and whether in float64."""

    run: Callable[..., Result]
    data: Callable[[source.Folder], Any] | None
    x64: bool


EXPERIMENTS = {
    "fig1": Experiment(fig1.run, None, True),
    "fig2": Experiment(fig2.run, source.pair_of_digits, False),
    "table1": Experiment(table1.run, source.pair_of_digits, False),
    "fig3": Experiment(fig3.run, source.pair_of_digits, False),
    "fig4": Experiment(fig4.run, source.pair_of_digits, False),
    "rates": Experiment(rates.run, None, True),
    "minimax": Experiment(minimax.run, source.adults, True),
}


def chosen(name: str) -> list[str]:
    """The experiments that a name on the command line stands for."""
    if name == "all":
        return list(EXPERIMENTS)
    if name not in EXPERIMENTS:
        raise InputError(f"experiment {name!r}", f"known are {', '.join(EXPERIMENTS)}, all", "Use one of these.")
    return [name]


def load(names: Sequence[str], folder: source.Folder) -> dict[Callable, Any]:
    """All data that some experiments need, checked, before any of them runs."""
    loaders = dict.fromkeys(EXPERIMENTS[name].data for name in names)
    return {loader: loader(folder) for loader in loaders if loader is not None}


def run(name: str, data: dict[Callable, Any], size: Size, progress: Progress = quiet) -> Result:
    """One experiment; the same numbers whatever the caller's precision."""
    one = EXPERIMENTS[name]
    with jax.enable_x64(one.x64):
        return one.run(size, progress) if one.data is None else one.run(data[one.data], size, progress)
