"""The grid of a sweep as a list of points, checked before any work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError


class Point(NamedTuple):
    """One lane: the settings that were asked for, the method with them, and the seed."""

    settings: dict[str, Any]
    method: Algorithm
    seed: int


def points(method: Algorithm, grid: Any, seeds: Iterable[int] | None) -> list[Point]:
    """Every combination of settings with every seed, seeds last."""
    asked = _product(grid) if isinstance(grid, Mapping) else _listed(grid)
    chosen = [0] if seeds is None else _seeds(seeds)
    if asked == [{}] and seeds is None:
        raise InputError("grid = {} without seeds", "a sweep needs something to vary", "Give grid={'alpha': [...]}.")
    made = [_with(method, settings) for settings in asked]
    return [Point(settings, new, seed) for settings, new in zip(asked, made, strict=True) for seed in chosen]


def _product(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = {name: _values(name, given) for name, given in grid.items()}
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def _listed(grid: Any) -> list[dict[str, Any]]:
    if not isinstance(grid, Sequence) or isinstance(grid, str) or not all(isinstance(each, Mapping) for each in grid):
        raise InputError(
            f"grid = {grid!r:.60}",
            "it must be a dictionary of lists or a list of dictionaries",
            "Give {'alpha': [0.1, 0.2]}.",
        )
    if not grid:
        raise InputError("grid = []", "it must hold at least one dictionary of settings", "Give [{'alpha': 0.1}].")
    return [{name: _plain(value) for name, value in each.items()} for each in grid]


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, str | Mapping) or (not isinstance(given, Iterable) and not np.ndim(given)):
        raise InputError(
            f"grid[{name!r}] = {given!r:.60}", "it must be a list of values", f"Give {{{name!r}: [0.1, 0.2]}}."
        )
    values = [_plain(value) for value in given]
    if not values:
        raise InputError(f"grid[{name!r}] = []", "it must hold at least one value", "Add one, or leave it out.")
    return values


def _plain(value: Any) -> Any:
    """Numbers of numpy and jax as numbers of Python, which take the type of what they are multiplied with."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value


def _seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InputError(f"seeds = {seeds!r}", "it must be a list of whole numbers", "Give seeds=range(5).")
    chosen = [_plain(seed) for seed in seeds]
    for seed in chosen:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InputError(f"seed {seed!r}", "seeds are whole numbers from 0 on", "Give seeds=range(5).")
    if not chosen:
        raise InputError("seeds = []", "it must hold at least one seed", "Leave it out for the seed 0.")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"seeds = {chosen}", "each seed may come once", "Remove those that are repeated.")
    return chosen


def _with(method: Algorithm, settings: dict[str, Any]) -> Algorithm:
    for name in settings:
        if method.factory is not None and name not in method.settings:
            near = get_close_matches(str(name), list(method.settings), n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else "Use one of these names."
            known = ", ".join(method.settings)
            raise InputError(f"{method.name} has no setting {name!r}", f"its settings are {known}", hint)
    new = method.replace(**settings) if settings else method
    if new.automatic:
        missing = " and ".join(name for name in ("alpha", "gamma") if new.settings.get(name) is None)
        raise InputError(
            f"{new!r} leaves out {missing}",
            "step sizes left out are chosen by `solve`, one run at a time",
            f"Put {missing} into the grid or the method.",
        )
    return new
