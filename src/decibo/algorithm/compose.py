r"""Direction x estimator x rule x consensus = algorithm; and what wraps an algorithm into another,
such as minibatches.

(1)  d  = the direction at the agent's own variables s, or what the estimator makes of it
(2)  a+ = a + theta (d - a),  d = a+           for variables with a moving average; a starts at 0
(3)  d  = d + b               b the agent's masks, which cancel over the agents (privacy.py), if any
(4)  t  = what the consensus strategy follows: d itself, or the tracked direction
(5)  h u = the rule's move along t; with a plain step size h it is h t
(6)  s+ = the strategy's step from s by h u, with the proximal map of each variable
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, Theory
from decibo.algorithm.consensus import Consensus
from decibo.algorithm.direction import Direction
from decibo.algorithm.estimator import Estimator
from decibo.algorithm.prox import Projection, Prox, as_prox, suits
from decibo.algorithm.rule import Rule, StepSize, as_rule, together
from decibo.algorithm.schedules import Rate, Scalar, Schedule, schedule
from decibo.capabilities import Need
from decibo.errors import InputError, short_repr
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector
from decibo.validate import table

MASK = "mask of "  # before the name of a variable: what its agents add to its direction, in a start


class ComposedState(NamedTuple):
    """The state of one agent: its variables, moving averages, and the memories of strategies,
    estimator and rule."""

    variables: Tree
    memory: tuple[Tree, ...]
    average: dict[str, Vector]
    estimate: Tree = ()  # the estimator's memory
    rule: Tree = ()  # the rule's memory
    mask: dict[str, Vector] = {}  # noqa: RUF012  (never changed) what is added to the direction


class Recipe(NamedTuple):
    """What an algorithm is made of."""

    direction: Direction
    # with the variables that each looks after
    strategies: tuple[tuple[Consensus, dict[str, Prox | None]], ...]
    rule: Rule  # for all variables together
    average: dict[str, Schedule]
    estimator: Estimator | None = None


def compose(
    direction: Direction,
    consensus: Consensus | Mapping[str, Consensus],
    *,
    estimator: Estimator | None = None,
    average: Mapping[str, Rate] | None = None,
    prox: Mapping[str, Prox | Projection] | None = None,
    rule: Rule | None = None,
    **steps: StepSize,
) -> Algorithm:
    """The algorithm that moves along `direction` and agrees by `consensus`.

    consensus   one strategy for all variables, or one for each: {"x": tracking(), "y": dgd(), "v":
                dgd()}
    estimator   from which samples the direction is found: estimator.saga(); by default from all
                data at every step
    average     variables that follow a moving average of their direction, with its weight: {"x":
                0.2}
    prox        variables with a projection or proximal map: {"x": prox.box(0, 1)}, or a function of
                the vector
    steps       the step size of each variable: compose(penalty(lam=20.0), dgd(), x=1e-3, y=1e-3,
                z=1e-2). A number, a function of the step, a rule such as
                decibo.rule.heavy_ball(0.1), or an optax GradientTransformation
    rule        one rule for all variables in place of step sizes: decibo.rule.tuning_free()
    """
    _check_parts(direction, consensus)
    table("average", {} if average is None else average, "{'x': 0.2}")
    table("prox", {} if prox is None else prox, "{'x': decibo.prox.box(0, 1)}")
    rules = _rules(direction, rule, steps)
    _among("moving average", average or {}, direction)
    _among("proximal map", prox or {}, direction)
    maps = {
        name: as_prox(name, prox[name]) if prox and name in prox else None
        for name in direction.variables
    }
    groups = _groups(direction, consensus)
    for strategy, names in groups:
        for name in names:
            _check_rule(name, rules[name], strategy, maps[name])
    recipe = Recipe(
        direction,
        tuple((strategy, {name: maps[name] for name in names}) for strategy, names in groups),
        together(rules) if rule is None else rule,
        {name: schedule(f"average of {name}", value) for name, value in (average or {}).items()},
        check_estimator(estimator),
    )
    names = " + ".join(strategy.name for strategy, _ in groups)
    # Without an estimator every step takes all data.
    data = frozenset({Need.FULL_DATA}) if estimator is None else estimator.needs
    return Algorithm(
        init=Partial(_init, recipe),
        step=Partial(_step, recipe),
        view=Partial(_view, direction),
        name=f"{direction.name} x {names}{f' + {estimator.name}' if estimator else ''}",
        needs=direction.needs.union(data, *(strategy.needs for strategy, _ in groups)),
        rest=Partial(_rest, recipe) if all(strategy.rest for strategy, _ in groups) else None,
        direction=direction,
        answer=direction.answer,
        theory=Theory(direction.bias),
    )


def _check_parts(direction: object, consensus: object) -> None:
    """Reject what is no direction, and what is neither a consensus strategy nor one for each
    variable."""
    if not isinstance(direction, Direction):
        raise InputError(
            "The direction must be one of decibo.direction, such as direction.penalty(20.0), but"
            f" it is {short_repr(direction)}."
        )
    if isinstance(consensus, Mapping):
        _exactly("strategies", consensus, direction)
    for strategy in consensus.values() if isinstance(consensus, Mapping) else [consensus]:
        if not isinstance(strategy, Consensus):
            raise InputError(
                "A strategy must be one of decibo.consensus, such as consensus.tracking(), but"
                f" this is {short_repr(strategy)}."
            )


def _groups(
    direction: Direction, consensus: Consensus | Mapping[str, Consensus]
) -> list[tuple[Consensus, list[str]]]:
    """Variables that agree in the same way share their messages."""
    if isinstance(consensus, Consensus):
        return [(consensus, list(direction.variables))]
    groups: dict[str, tuple[Consensus, list[str]]] = {}
    for name in direction.variables:
        groups.setdefault(consensus[name].name, (consensus[name], []))[1].append(name)
    return list(groups.values())


def _rules(
    direction: Direction, rule: Rule | None, steps: Mapping[str, StepSize]
) -> dict[str, Rule]:
    """The rule of each variable; a joint one for all of them."""
    if rule is None:
        _exactly("step sizes", steps, direction)
        return {name: as_rule(name, steps[name]) for name in direction.variables}
    if not isinstance(rule, Rule) or not rule.joint:
        raise InputError(
            "rule must be one rule for all variables, such as decibo.rule.tuning_free(), but it is"
            f" {rule!r}.",
            f"Pass the rules of single variables as their step sizes: {direction.variables[0]}=...",
        )
    if steps:
        raise InputError(
            f"With rule={rule} there are no step sizes, but they are given for {', '.join(steps)}."
        )
    if rule.variables and set(rule.variables) != set(direction.variables):
        raise InputError(
            f"{rule} is for the variables {', '.join(rule.variables)}, but the direction"
            f" {direction.name!r} moves {', '.join(direction.variables)}.",
            "Use it with the implicit direction.",
        )
    return dict.fromkeys(direction.variables, rule)


def _check_rule(name: str, rule: Rule, strategy: Consensus, prox: Prox | None) -> None:
    """Reject a rule that would lead the strategy, or the proximal map, to another point than the
    solution."""
    if strategy.needs_linear and not rule.linear:
        raise InputError(
            f"{strategy.name} is exact only if all agents move by the same multiple of their"
            f" directions, but with {rule} for {name} every agent has steps of its own: they would"
            " come to rest elsewhere.",
            "Use consensus.tracking() or atc_tracking(), where the direction itself vanishes at the"
            " solution.",
        )
    if prox is not None and not suits(prox, rule.sizes):
        raise InputError(
            f"{rule} does not move all entries of {name} by the same multiple of the direction, so"
            " that this proximal map would lead to another point than the solution.",
            "Use prox.box (or prox.l1 with adam and amsgrad), or a rule with one step for all"
            " entries.",
        )


def _exactly(what: str, names: Collection[str], direction: Direction) -> None:
    if set(names) != set(direction.variables):
        raise InputError(
            f"The direction {direction.name!r} moves {', '.join(direction.variables)}, but the"
            f" {what} are for {', '.join(names) or 'none of them'}.",
            "Pass exactly one for each variable.",
        )


def _among(what: str, names: Collection[str], direction: Direction) -> None:
    unknown = sorted(set(names) - set(direction.variables))
    if unknown:
        raise InputError(
            f"The direction {direction.name!r} moves {', '.join(direction.variables)}, but there is"
            f" a {what} for {', '.join(unknown)}."
        )


def _init(recipe: Recipe, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> ComposedState:
    s = recipe.direction.start(start)
    for _, maps in recipe.strategies:
        s = s._replace(**{name: prox(getattr(s, name), 0.0) for name, prox in maps.items() if prox})
    memory = tuple(
        strategy.start({name: getattr(s, name) for name in maps})
        for strategy, maps in recipe.strategies
    )
    average = {name: jnp.zeros_like(getattr(s, name)) for name in recipe.average}
    estimate = recipe.estimator.start(oracle, s) if recipe.estimator else ()
    mask = {name: start[MASK + name] for name in recipe.direction.variables if MASK + name in start}
    return ComposedState(s, memory, average, estimate, recipe.rule.start(s._asdict()), mask)


def _step(
    recipe: Recipe, oracle: Oracle, mix: Mix, state: ComposedState, k: jax.Array, key: jax.Array
) -> ComposedState:
    if recipe.estimator is None:
        # (1)
        return moved(recipe, mix, state, recipe.direction.at(oracle, state.variables, k), k)
    d, estimate = recipe.estimator.at(
        recipe.direction, oracle, state.variables, state.estimate, k, key
    )
    return moved(recipe, mix, state._replace(estimate=estimate), d, k)


def moved(recipe: Recipe, mix: Mix, state: ComposedState, d: Tree, k: jax.Array) -> ComposedState:
    """The state after a step along d."""
    s = state.variables
    average = {
        name: a + recipe.average[name](k) * (getattr(d, name) - a)
        for name, a in state.average.items()
    }
    d = d._replace(**average)  # (2)
    d = d._replace(**{name: getattr(d, name) + b for name, b in state.mask.items()})  # (3)
    along: dict[str, Vector] = {}
    followed: list[Tree] = []
    for (strategy, maps), memory in zip(recipe.strategies, state.memory, strict=True):
        t, memory = strategy.follow(mix, memory, {name: getattr(d, name) for name in maps})  # (4)
        along |= t
        followed.append(memory)
    rule, u, h = recipe.rule.step(state.rule, s._asdict(), along, k)  # (5)
    new: dict[str, Vector] = {}
    memories: list[Tree] = []
    for (strategy, maps), memory in zip(recipe.strategies, followed, strict=True):
        own, move, size = ({name: part[name] for name in maps} for part in (s._asdict(), u, h))
        moved, memory = strategy.step(mix, _Proxes(maps), own, memory, move, size)  # (6)
        new |= moved
        memories.append(memory)
    return ComposedState(
        d._replace(**new), tuple(memories), average, state.estimate, rule, state.mask
    )


class _Proxes(NamedTuple):
    """The proximal maps of a group of variables, applied to all at once."""

    maps: dict[str, Prox | None]

    def __call__(self, s: dict[str, Vector], h: dict[str, Scalar]) -> dict[str, Vector]:
        return s | {name: prox(s[name], h[name]) for name, prox in self.maps.items() if prox}


def _view(direction: Direction, state: ComposedState) -> dict[str, Vector]:
    return direction.view(state.variables)


def _rest(recipe: Recipe, state: ComposedState) -> jax.Array:
    """The largest entry of what the agent would still move."""
    moves = [
        strategy.rest({name: getattr(state.variables, name) for name in maps}, memory)
        for (strategy, maps), memory in zip(recipe.strategies, state.memory, strict=True)
        if strategy.rest
    ]
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(moves)]))


def recipe_of(method: Algorithm) -> Recipe | None:
    """What the method is composed of; None if it is not just a direction times a consensus
    strategy."""
    step = method.core.step
    return step.args[0] if step.func is _step else None


def minibatch(method: Algorithm) -> Algorithm:
    """The method with every gradient of a step taken on a minibatch drawn by the problem's
    `sample`."""
    check_wrappable(method)
    inside = method.sampled or method
    step = Partial(_sampled, inside.core.step)
    return wrapped(
        method,
        "minibatch",
        minibatch,
        inside.init,
        step,
        inside.view,
        needs=inside.needs - {Need.FULL_DATA} | {Need.MINIBATCHES},
        sampled=None,
    )


def _sampled(
    step: Partial, oracle: Oracle, mix: Mix, state: Tree, k: jax.Array, key: jax.Array
) -> Tree:
    draw, rest = jax.random.split(key)
    return step(oracle.sampled(draw), mix, state, k, rest)


def with_estimator(method: Algorithm, estimator: Estimator) -> Algorithm:
    """The method with its direction found by an estimator: with_estimator(ahead_exact(...),
    estimator.saga()).

    For methods that are a direction times a consensus strategy.
    """
    check_wrappable(method)
    if check_estimator(estimator) is None:
        raise InputError(
            "There is no estimator to find the direction by.",
            "Pass decibo.estimator.saga(), for example.",
        )
    recipe = recipe_of(method)
    if recipe is None:
        raise InputError(
            f"{method.name} is not just a direction times a consensus strategy, so that"
            f" {estimator.name} has no direction to estimate.",
            "Use decibo.minibatch(method), or wrap the estimator first and anything else"
            " around it.",
        )
    if recipe.estimator is not None:
        raise InputError(
            f"{method.name} has the estimator {recipe.estimator.name} already.", "Compose it anew."
        )
    recipe = recipe._replace(estimator=estimator)
    return wrapped(
        method,
        estimator.name,
        lambda method: with_estimator(method, estimator),
        Partial(_init, recipe),
        Partial(_step, recipe),
        method.view,
        needs=method.needs - {Need.FULL_DATA} | estimator.needs,
    )


def check_estimator(estimator: Estimator | None) -> Estimator | None:
    """Reject what is not an estimator."""
    if not isinstance(estimator, Estimator | None):
        raise InputError(
            "An estimator must be one of decibo.estimator, such as estimator.saga(), but this is"
            f" {estimator!r}."
        )
    return estimator


def check_wrappable(method: Algorithm) -> None:
    """Reject what is not an algorithm."""
    if not isinstance(method, Algorithm):
        raise InputError(f"Only an Algorithm can be wrapped, but this is {method!r}.")


def wrapped(
    method: Algorithm,
    word: str,
    wrap: Callable[[Algorithm], Algorithm],
    init: Callable[..., Tree],
    step: Callable[..., Tree],
    view: Callable[[Tree], dict[str, Vector]],
    **changes: Any,
) -> Algorithm:
    """A wrapped method: its settings are those of the method inside, and `wrap` wraps it again when
    one changes.

    What the paper proves of the method inside does not carry over.
    """
    inside = method.factory
    factory = inside and wraps(inside)(lambda **settings: wrap(inside(**settings)))
    name = f"{method.name} + {word}"
    if "sampled" not in changes and method.sampled is not None:
        changes["sampled"] = wrap(method.sampled)
    changes = {"theory": method.theory._replace(theorem=None), "rest": None} | changes
    return replace(method, init=init, step=step, view=view, name=name, factory=factory, **changes)
