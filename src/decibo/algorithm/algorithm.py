"""An algorithm is a pair of pure functions of ONE agent, `init` and `step`.

    state = init(oracle, mix, start)                 start: {"x": vector, "y": vector, ...}
    state = step(oracle, mix, state, k, key)         k: the step, key: this agent's own randomness

`oracle` is what the agent can compute alone. `mix(tree)` returns sum_j w_ij tree_j and is the only way to see
another agent, so that being decentralised is a matter of the signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.tree_util import Partial

from decibo.algorithm.direction import Direction
from decibo.algorithm.schedules import number
from decibo.automatic.controller import Controller
from decibo.errors import InputError
from decibo.pytree import Tree, Vector
from decibo.validate import only_known


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Core:
    """What a compiled program needs of an algorithm, as one pytree whose leaves are the numbers it holds."""

    init: Partial
    step: Partial
    view: Partial
    direction: Direction | None
    answer: str = field(metadata={"static": True})


def fields_of(state: Tree) -> dict[str, Vector]:
    """All fields of a state that is a NamedTuple of vectors: the default view."""
    return state._asdict()


@dataclass(frozen=True, eq=False)
class Algorithm:
    """`init` and `step` of one agent, and `view`: which part of a state is x, y, z, ...

    init, step and view may be plain functions, or `jax.tree_util.Partial`s of module-level functions: numbers held
    by a Partial (step sizes, lam) can change without compiling again. The rest is declared: what a method needs of
    a network or a problem, and what is known about it.

    name            how reports call it
    settings        what its factory was called with; `replace` calls the factory again
    directed        whether it keeps its promise on a directed network
    centralised     whether it is for one agent only
    stochastic      whether it draws minibatches
    fixed_network   whether links must not come and go
    direction       what it follows, if it is a direction times a consensus strategy
    answer          the variable of the view that answers for y*(x)
    controller      what chooses its settings during a run
    bias            how far a penalty keeps it from the solution: "1/lam", "1/lam^2", "1/c", or None if exact
    theorem         which statement of the paper covers it: "Theorem 1", "Corollary 2", or None
    """

    init: Callable[..., Tree]
    step: Callable[..., Tree]
    view: Callable[[Tree], dict[str, Vector]] = fields_of
    name: str = "algorithm"
    settings: dict[str, Any] = field(default_factory=dict)
    factory: Callable[..., Algorithm] | None = None
    directed: bool = False
    centralised: bool = False
    stochastic: bool = False
    fixed_network: bool = False
    direction: Direction | None = None
    answer: str = "y"
    controller: Controller | None = None
    bias: str | None = None
    theorem: str | None = None

    @property
    def core(self) -> Core:
        """The functions and the direction as one pytree, whose leaves are the numbers they hold."""
        return Core(_partial(self.init), _partial(self.step), _partial(self.view), self.direction, self.answer)

    def replace(self, **settings: Any) -> Algorithm:
        """The same method with some settings changed: `method.replace(alpha=1e-3)`."""
        if self.factory is None:
            raise InputError(
                f"{self.name} was not created by a named method and has no settings.", "Construct a new one."
            )
        only_known(self.name, "setting", settings, self.settings)
        return self.factory(**{**self.settings, **settings})

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.settings.items() if value is not None)
        return f"{self.name}({shown})"


def _partial(function: Callable[..., Tree]) -> Partial:
    return function if isinstance(function, Partial) else Partial(function)


def _shown(value: Any) -> str:
    value = number(value)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, float | jnp.ndarray) and jnp.ndim(value) == 0 and not isinstance(value, Tracer):
        return f"{float(value):g}"
    return str(value)
