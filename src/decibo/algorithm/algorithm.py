"""An algorithm is a pair of pure functions of ONE agent, `init` and `step`.

    state = init(oracle, mix, start)                 start: {"x": vector, "y": vector, ...}
    state = step(oracle, mix, state, k, key)         k: the step, key: this agent's own randomness

`oracle` is what the agent can compute alone. `mix(tree)` returns sum_j w_ij tree_j and is the only way to see
another agent, so that being decentralised is a matter of the signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.tree_util import Partial

from decibo.algorithm.direction import Direction
from decibo.algorithm.schedules import constant
from decibo.automatic.controller import Controller
from decibo.errors import InputError

P = ParamSpec("P")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Core:
    """What a compiled program needs of an algorithm, as one pytree whose leaves are the numbers it holds."""

    init: Partial
    step: Partial
    view: Partial
    direction: Direction | None
    answer: str = field(metadata={"static": True})


@dataclass(frozen=True, eq=False)
class Algorithm:
    """`init` and `step` of one agent, and `view`: which part of a state is x, y, z, ...

    init, step and view may be plain functions, or `jax.tree_util.Partial`s of module-level functions: numbers held
    by a Partial (step sizes, lam) can change without compiling again.
    """

    init: Callable[..., Any]
    step: Callable[..., Any]
    view: Callable[[Any], dict[str, jax.Array]] = lambda state: state._asdict()
    name: str = "algorithm"
    settings: dict[str, Any] = field(default_factory=dict)
    factory: Callable[..., Algorithm] | None = None
    directed: bool = False  # whether it keeps its promise on a directed network
    centralised: bool = False  # whether it is for one agent only
    stochastic: bool = False  # whether it draws minibatches
    fixed_network: bool = False  # whether links must not come and go
    direction: Direction | None = None  # what it follows, if it is a direction times a consensus strategy
    answer: str = "y"  # the variable of `view` that answers for y*(x)
    controller: Controller | None = None  # what chooses its settings during a run

    @property
    def core(self) -> Core:
        """The functions and the direction as one pytree, whose leaves are the numbers they hold."""
        return Core(_partial(self.init), _partial(self.step), _partial(self.view), self.direction, self.answer)

    def replace(self, **settings: Any) -> Algorithm:
        """The same method with some settings changed: `method.replace(alpha=1e-3)`."""
        if self.factory is None:
            raise InputError(f"{self.name}", "it was not made by a named method, so it has no settings", "Make anew.")
        unknown = sorted(set(settings) - set(self.settings))
        if unknown:
            raise InputError(
                f"{self.name} has no setting {', '.join(unknown)}",
                f"its settings are {', '.join(self.settings)}",
                "Use one of these names.",
            )
        return self.factory(**{**self.settings, **settings})

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.settings.items() if value is not None)
        return f"{self.name}({shown})"


def method(factory: Callable[P, Algorithm]) -> Callable[P, Algorithm]:
    """Make a factory's algorithms carry its name and the settings they were made with."""
    signature = inspect.signature(factory)

    @wraps(factory)
    def make(*args: P.args, **kwargs: P.kwargs) -> Algorithm:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        made = factory(*args, **kwargs)
        return replace(made, name=factory.__name__, settings=dict(bound.arguments), factory=make)

    return make


def _partial(function: Callable[..., Any]) -> Partial:
    return function if isinstance(function, Partial) else Partial(function)


def _shown(value: Any) -> str:
    if isinstance(value, Partial) and value.func is constant:
        value = value.args[0]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, float | jnp.ndarray) and jnp.ndim(value) == 0 and not isinstance(value, Tracer):
        return f"{float(value):g}"
    return str(value)
