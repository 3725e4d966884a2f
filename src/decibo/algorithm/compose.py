r"""Direction x consensus = algorithm; and what wraps an algorithm into another, such as minibatches.

(1)  d  = the direction at the agent's own variables s, or what the estimator makes of it
(2)  a+ = a + theta (d - a),  d = a+           for variables with a moving average; a starts at 0
(3)  s+ = the consensus strategy's step from s along d, with the step size and proximal map of each variable
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.consensus import Consensus
from decibo.algorithm.direction import Direction
from decibo.algorithm.estimator import Estimator
from decibo.algorithm.prox import Projection, Prox, as_prox
from decibo.algorithm.schedules import Rate, Scalar, Schedule, schedule
from decibo.errors import InputError
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector


class State(NamedTuple):
    """The state of one agent: its variables, the memories of strategies and estimator, and the moving averages."""

    variables: Tree
    memory: tuple[Tree, ...]
    average: dict[str, Vector]
    estimate: Tree = ()  # the estimator's memory


class Recipe(NamedTuple):
    """What an algorithm is made of."""

    direction: Direction
    strategies: tuple[tuple[Consensus, dict[str, Prox | None]], ...]  # with the variables that each looks after
    rates: dict[str, Schedule]
    average: dict[str, Schedule]
    estimator: Estimator | None = None


def compose(
    direction: Direction,
    consensus: Consensus | Mapping[str, Consensus],
    *,
    estimator: Estimator | None = None,
    average: Mapping[str, Rate] | None = None,
    prox: Mapping[str, Prox | Projection] | None = None,
    **steps: Rate,
) -> Algorithm:
    """The algorithm that moves along `direction` and agrees by `consensus`.

    consensus   one strategy for all variables, or one for each: {"x": tracking(), "y": dgd(), "v": dgd()}
    estimator   from which samples the direction is found: estimator.saga(); by default from all data at every step
    average     variables that follow a moving average of their direction, with its weight: {"x": 0.2}
    prox        variables with a projection or proximal map: {"x": prox.box(0, 1)}, or a function of the vector
    steps       the step size of each variable: compose(penalty(lam=20.0), dgd(), x=1e-3, y=1e-3, z=1e-2)
    """
    _exactly("step sizes", steps, direction)
    if isinstance(consensus, Mapping):
        _exactly("strategies", consensus, direction)
    _among("moving average", average or {}, direction)
    _among("proximal map", prox or {}, direction)
    maps = {name: as_prox(name, prox[name]) if prox and name in prox else None for name in direction.variables}
    groups = _groups(direction, consensus)
    recipe = Recipe(
        direction,
        tuple((strategy, {name: maps[name] for name in names}) for strategy, names in groups),
        {name: schedule(name, steps[name]) for name in direction.variables},
        {name: schedule(f"average of {name}", value) for name, value in (average or {}).items()},
        check_estimator(estimator),
    )
    names = " + ".join(strategy.name for strategy, _ in groups)
    return Algorithm(
        init=Partial(_init, recipe),
        step=Partial(_step, recipe),
        view=Partial(_view, direction),
        name=f"{direction.name} x {names}{f' + {estimator.name}' if estimator else ''}",
        directed=all(strategy.directed for strategy, _ in groups),
        direction=direction,
        answer=direction.answer,
        bias=direction.bias,
        stochastic=estimator is not None and estimator.sampled,
        batches=estimator is not None and estimator.batches,
    )


def _groups(direction: Direction, consensus: Consensus | Mapping[str, Consensus]) -> list[tuple[Consensus, list[str]]]:
    """Variables that agree in the same way share their messages."""
    if isinstance(consensus, Consensus):
        return [(consensus, list(direction.variables))]
    groups: dict[str, tuple[Consensus, list[str]]] = {}
    for name in direction.variables:
        groups.setdefault(consensus[name].name, (consensus[name], []))[1].append(name)
    return list(groups.values())


def _exactly(what: str, names: Collection[str], direction: Direction) -> None:
    if set(names) != set(direction.variables):
        raise InputError(
            f"The direction {direction.name!r} moves {', '.join(direction.variables)}, but the {what} are for "
            f"{', '.join(names) or 'none of them'}.",
            "Pass exactly one for each variable.",
        )


def _among(what: str, names: Collection[str], direction: Direction) -> None:
    unknown = sorted(set(names) - set(direction.variables))
    if unknown:
        raise InputError(
            f"The direction {direction.name!r} moves {', '.join(direction.variables)}, but there is a {what} for "
            f"{', '.join(unknown)}."
        )


def _init(recipe: Recipe, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    s = recipe.direction.start(start)
    for _, maps in recipe.strategies:
        s = s._replace(**{name: prox(getattr(s, name), 0.0) for name, prox in maps.items() if prox})
    memory = tuple(strategy.start({name: getattr(s, name) for name in maps}) for strategy, maps in recipe.strategies)
    average = {name: jnp.zeros_like(getattr(s, name)) for name in recipe.average}
    return State(s, memory, average, recipe.estimator.start(oracle, s) if recipe.estimator else ())


def _step(recipe: Recipe, oracle: Oracle, mix: Mix, state: State, k: jax.Array, key: jax.Array) -> State:
    s = state.variables
    estimate = state.estimate
    if recipe.estimator is None:
        d = recipe.direction.at(oracle, s, k)  # (1)
    else:
        d, estimate = recipe.estimator.at(recipe.direction, oracle, s, estimate, k, key)
    average = {name: a + recipe.average[name](k) * (getattr(d, name) - a) for name, a in state.average.items()}
    d = d._replace(**average)  # (2)
    new: dict[str, Vector] = {}
    memories: list[Tree] = []
    for (strategy, maps), memory in zip(recipe.strategies, state.memory, strict=True):
        own = {name: getattr(s, name) for name in maps}
        along = {name: getattr(d, name) for name in maps}
        h = {name: recipe.rates[name](k) for name in maps}
        moved, memory = strategy.step(mix, _Proxes(maps), own, memory, along, h)  # (3)
        new |= moved
        memories.append(memory)
    return State(type(s)(**new), tuple(memories), average, estimate)


class _Proxes(NamedTuple):
    """The proximal maps of a group of variables, applied to all at once."""

    maps: dict[str, Prox | None]

    def __call__(self, s: dict[str, Vector], h: dict[str, Scalar]) -> dict[str, Vector]:
        return s | {name: prox(s[name], h[name]) for name, prox in self.maps.items() if prox}


def _view(direction: Direction, state: State) -> dict[str, Vector]:
    return direction.view(state.variables)


def minibatch(method: Algorithm) -> Algorithm:
    """The method with every gradient of a step taken on a minibatch drawn by the problem's `sample`."""
    check_wrappable(method)
    step = Partial(_sampled, method.core.step)
    return wrapped(method, "minibatch", minibatch, method.init, step, method.view, stochastic=True)


def _sampled(step: Partial, oracle: Oracle, mix: Mix, state: Tree, k: jax.Array, key: jax.Array) -> Tree:
    draw, rest = jax.random.split(key)
    return step(oracle.sampled(draw), mix, state, k, rest)


def with_estimator(method: Algorithm, estimator: Estimator) -> Algorithm:
    """The method with its direction found by an estimator: with_estimator(ahead_exact(...), estimator.saga()).

    For methods that are a direction times a consensus strategy.
    """
    check_wrappable(method)
    check_estimator(estimator)
    recipe = method.core.step.args[0] if method.core.step.func is _step else None
    if recipe is None:
        raise InputError(
            f"{method.name} is not just a direction times a consensus strategy, so that {estimator.name} has no "
            "direction to estimate.",
            "Use decibo.minibatch(method), or wrap the estimator first and anything else around it.",
        )
    if recipe.estimator is not None:
        raise InputError(f"{method.name} has the estimator {recipe.estimator.name} already.", "Compose it anew.")
    recipe = recipe._replace(estimator=estimator)
    return wrapped(
        method,
        estimator.name,
        lambda method: with_estimator(method, estimator),
        Partial(_init, recipe),
        Partial(_step, recipe),
        method.view,
        stochastic=estimator.sampled,
        batches=estimator.batches,
    )


def check_estimator(estimator: Estimator | None) -> Estimator | None:
    """Reject what is not an estimator."""
    if not isinstance(estimator, Estimator | None):
        raise InputError(
            f"An estimator must be one of decibo.estimator, such as estimator.saga(), but this is {estimator!r}."
        )
    return estimator


def check_wrappable(method: Algorithm) -> None:
    """Reject what is not an algorithm, and methods whose step sizes are still to be chosen."""
    if not isinstance(method, Algorithm):
        raise InputError(f"Only an Algorithm can be wrapped, but this is {method!r}.")
    if method.controller is not None:
        raise InputError(f"{method!r} cannot be wrapped without its step sizes.", "Pass alpha and gamma.")


def wrapped(
    method: Algorithm,
    word: str,
    wrap: Callable[[Algorithm], Algorithm],
    init: Callable[..., Tree],
    step: Callable[..., Tree],
    view: Callable[[Tree], dict[str, Vector]],
    **changes: Any,
) -> Algorithm:
    """A wrapped method: its settings are those of the method inside, and `wrap` wraps it again when one changes.

    What the paper proves of the method inside does not carry over.
    """
    inside = method.factory
    factory = None if inside is None else (lambda **settings: wrap(inside(**settings)))
    name = f"{method.name} + {word}"
    return replace(method, init=init, step=step, view=view, name=name, factory=factory, theorem=None, **changes)
