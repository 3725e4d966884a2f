"""Which step size to lower after a run blew up: found by trying, not by guessing.

The failed run is repeated from its start with one setting at a time lowered, by 4, 16, ... times; those that stay
finite are named.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.execute import loop

FACTORS = (4, 16, 64, 256)
KEPT = ("theta", "keep", "difference", "radius", "proximity")  # not step sizes
LIMIT = 20_000  # steps: a run that fails later than this is not repeated
SECONDS = 20.0  # no further trial is begun after this time


def explain(
    program: loop.Program, world: loop.World, method: Algorithm, start: dict[str, jax.Array], failed: int
) -> str:
    """One or two sentences: what keeps the run finite, or what was tried in vain."""
    names = [name for name, value in method.settings.items() if _lowerable(method, name, value)]
    if not names:
        return "Lower the step sizes."
    if failed > LIMIT:
        return f"Lower {_listed(names)}, one at a time, starting with the step size of x."
    patience, begun = max(4 * failed, 50), time.perf_counter()
    survives = lambda names, factor: _survives(program, world, _lowered(method, names, factor), start, patience)
    factor = FACTORS[0]
    for factor in FACTORS:
        helpful = [name for name in names if survives([name], factor)]
        if helpful:
            shown = " or ".join(f"{name} (try {method.settings[name] / factor:g})" for name in helpful)
            return f"Lower {shown}: that alone keeps {patience} steps from the same start finite."
        if time.perf_counter() - begun > SECONDS:
            break
    if survives(names, factor):
        return f"Lower {_listed(names)} together: one alone does not help, {factor} times less of all does."
    return f"Lower {_listed(names)} by more than {factor}: with that much less of all, it still blows up."


def _lowerable(method: Algorithm, name: str, value: Any) -> bool:
    """Whether it is a step size or penalty, as opposed to a length, a share or a switch."""
    if name in KEPT or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        method.replace(**{name: value / FACTORS[0]})
    except InputError:  # the length of a loop, for instance
        return False
    return True


def _lowered(method: Algorithm, names: list[str], factor: int) -> Algorithm:
    return method.replace(**{name: method.settings[name] / factor for name in names})


def _survives(
    program: loop.Program, world: loop.World, method: Algorithm, start: dict[str, jax.Array], patience: int
) -> bool:
    changed = world._replace(core=method.core)
    state = loop.begin(program, changed, start)
    _, _, failed = loop.locate(program, changed, state, jnp.int32(0), jnp.int32(patience))
    return not bool(failed)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
