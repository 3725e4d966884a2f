r"""Direction x consensus = algorithm.

(1)  d  = the direction at the agent's own variables s
(2)  a+ = a + theta (d - a),  d = a+           for variables with a moving average; a starts at 0
(3)  s+ = the consensus strategy's step from s along d, with the step size and proximal map of each variable
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.consensus import Consensus
from decibo.algorithm.direction import Direction
from decibo.algorithm.prox import Prox, as_prox
from decibo.algorithm.schedules import Schedule, schedule
from decibo.errors import InputError
from decibo.problem.oracle import Oracle
from decibo.pytree import Vector


class State(NamedTuple):
    """The state of one agent: its variables, the strategies' memories, and the moving averages."""

    variables: Any
    memory: tuple[Any, ...]
    average: dict[str, Vector]


class Recipe(NamedTuple):
    """What an algorithm is made of."""

    direction: Direction
    strategies: tuple[tuple[Consensus, dict[str, Prox]], ...]  # with the variables that each looks after
    rates: dict[str, Schedule]
    average: dict[str, Schedule]


def compose(
    direction: Direction,
    consensus: Consensus | Mapping[str, Consensus],
    *,
    average: Mapping[str, float | Schedule] | None = None,
    prox: Mapping[str, Any] | None = None,
    **steps: float | Schedule,
) -> Algorithm:
    """The algorithm that moves along `direction` and agrees by `consensus`.

    consensus   one strategy for all variables, or one for each: {"x": tracking(), "y": dgd(), "v": dgd()}
    average     variables that follow a moving average of their direction, with its weight: {"x": 0.2}
    prox        variables with a projection or proximal map: {"x": prox.box(0, 1)}, or a function of the vector
    steps       the step size of each variable: compose(penalty(lam=20.0), dgd(), x=1e-3, y=1e-3, z=1e-2)
    """
    _exactly("step sizes", steps, direction)
    if isinstance(consensus, Mapping):
        _exactly("strategies", consensus, direction)
    for what, given in (("a moving average", average or {}), ("a proximal map", prox or {})):
        _among(what, given, direction)
    maps = {name: as_prox(name, (prox or {}).get(name)) for name in direction.variables}
    groups = _groups(direction, consensus)
    recipe = Recipe(
        direction,
        tuple((strategy, {name: maps[name] for name in names}) for strategy, names in groups),
        {name: schedule(name, steps[name]) for name in direction.variables},
        {name: schedule(f"average of {name}", value) for name, value in (average or {}).items()},
    )
    names = " + ".join(strategy.name for strategy, _ in groups)
    return Algorithm(
        init=Partial(_init, recipe),
        step=Partial(_step, recipe),
        view=Partial(_view, direction),
        name=f"{direction.name} x {names}",
        directed=all(strategy.directed for strategy, _ in groups),
        direction=direction,
        answer=direction.answer,
    )


def _groups(direction: Direction, consensus: Consensus | Mapping[str, Consensus]) -> list[tuple[Consensus, list[str]]]:
    """Variables that agree in the same way share their messages."""
    if isinstance(consensus, Consensus):
        return [(consensus, list(direction.variables))]
    groups: dict[str, tuple[Consensus, list[str]]] = {}
    for name in direction.variables:
        groups.setdefault(consensus[name].name, (consensus[name], []))[1].append(name)
    return list(groups.values())


def _exactly(what: str, given: Mapping[str, Any], direction: Direction) -> None:
    if set(given) != set(direction.variables):
        raise InputError(
            f"{what} for {', '.join(given) or 'nothing'}",
            f"the direction {direction.name!r} moves {', '.join(direction.variables)}",
            "Give exactly one for each of these.",
        )


def _among(what: str, given: Mapping[str, Any], direction: Direction) -> None:
    unknown = sorted(set(given) - set(direction.variables))
    if unknown:
        raise InputError(
            f"{what} for {', '.join(unknown)}",
            f"the direction {direction.name!r} moves {', '.join(direction.variables)}",
            "Use these names.",
        )


def _init(recipe: Recipe, oracle: Oracle, mix: Any, start: dict[str, Vector]) -> State:
    s = recipe.direction.start(start)
    s = s._replace(
        **{name: prox(getattr(s, name), 0.0) for _, maps in recipe.strategies for name, prox in maps.items()}
    )
    memory = tuple(strategy.start({name: getattr(s, name) for name in maps}) for strategy, maps in recipe.strategies)
    return State(s, memory, {name: jnp.zeros_like(getattr(s, name)) for name in recipe.average})


def _step(recipe: Recipe, oracle: Oracle, mix: Any, state: State, k: jax.Array, key: jax.Array) -> State:
    s = state.variables
    d = recipe.direction.at(oracle, s, k)  # (1)
    average = {name: a + recipe.average[name](k) * (getattr(d, name) - a) for name, a in state.average.items()}
    d = d._replace(**average)  # (2)
    new, memories = {}, []
    for (strategy, maps), memory in zip(recipe.strategies, state.memory, strict=True):
        own = {name: getattr(s, name) for name in maps}
        along = {name: getattr(d, name) for name in maps}
        h = {name: recipe.rates[name](k) for name in maps}
        moved, memory = strategy.step(mix, _Proxes(maps), own, memory, along, h)  # (3)
        new |= moved
        memories.append(memory)
    return State(type(s)(**new), tuple(memories), average)


class _Proxes(NamedTuple):
    """The proximal maps of a group of variables, applied to all at once."""

    maps: dict[str, Prox]

    def __call__(self, s: dict[str, Vector], h: dict[str, Any]) -> dict[str, Vector]:
        return {name: self.maps[name](s[name], h[name]) for name in s}


def _view(direction: Direction, state: State) -> dict[str, Vector]:
    return direction.view(state.variables)
