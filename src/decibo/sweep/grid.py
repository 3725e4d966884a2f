"""The grid of a sweep as a list of points, checked before any work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.validate import integer, only_known

Settings = dict[str, Any]
Grid = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]]


class Point(NamedTuple):
    """One run: the settings that the grid asks for, the method with them, the seed, and which case of a list."""

    settings: Settings
    method: Algorithm
    seed: int
    case: int


def points(methods: Sequence[Algorithm], grid: Grid, seeds: Iterable[int] | None) -> list[Point]:
    """Every case with every combination of settings and every seed, seeds last."""
    combinations = _product(grid) if isinstance(grid, Mapping) else _listed(grid)
    numbers = [0] if seeds is None else _seeds(seeds)
    if combinations == [{}] and seeds is None and len(methods) == 1:
        raise InputError(
            "A sweep needs something to vary, but the grid is empty and there are no seeds.",
            "Pass grid={'alpha': [0.1, 0.2]}, for example.",
        )
    return [
        Point(settings, method, seed, case)
        for case, base in enumerate(methods)
        for settings, method in [(each, _with(base, each)) for each in combinations]
        for seed in numbers
    ]


def _product(grid: Mapping[str, Any]) -> list[Settings]:
    values = {name: _values(name, items) for name, items in grid.items()}
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def _listed(grid: Any) -> list[Settings]:
    if not isinstance(grid, Sequence) or isinstance(grid, str) or not all(isinstance(each, Mapping) for each in grid):
        raise InputError(
            f"grid must be a dictionary of lists or a list of dictionaries, but it is {grid!r:.60}.",
            "Pass {'alpha': [0.1, 0.2]}, for example.",
        )
    if not grid:
        raise InputError("grid must hold at least one dictionary of settings, but it is an empty list.")
    return [{name: _plain(value) for name, value in each.items()} for each in grid]


def _values(name: str, items: Any) -> list[Any]:
    if isinstance(items, str | Mapping) or (not isinstance(items, Iterable) and not np.ndim(items)):
        raise InputError(
            f"grid[{name!r}] must be a list of values, but it is {items!r:.60}.", f"Pass {{{name!r}: [0.1, 0.2]}}."
        )
    values = [_plain(value) for value in items]
    if not values:
        raise InputError(f"grid[{name!r}] must hold at least one value, but it is empty.")
    return values


def _plain(value: Any) -> Any:
    """Numbers of numpy and jax as numbers of Python, which take the type of what they are multiplied with."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value


def _seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InputError(f"seeds must be a list of integers, but it is {seeds!r:.60}.", "Pass range(5), for example.")
    numbers = [integer("A seed", seed, least=0) for seed in seeds]
    if not numbers:
        raise InputError("seeds must hold at least one seed, but it is empty.", "Leave it out for the seed 0.")
    if len(set(numbers)) < len(numbers):
        raise InputError(f"seeds must not repeat a seed, but it is {numbers!r:.60}.")
    return numbers


def _with(method: Algorithm, settings: Settings) -> Algorithm:
    if method.factory is not None:
        only_known(method.name, "setting", settings, method.settings)
    new = method.replace(**settings) if settings else method
    if new.controller is not None:
        missing = " and ".join(name for name, value in new.controller.settings.items() if value is None)
        raise InputError(
            f"{new!r} leaves out {missing}, but only `solve` chooses settings that are left out, one run at a time.",
            f"Put {missing} into the grid or the method.",
        )
    return new
