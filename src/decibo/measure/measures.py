r"""What can be recorded along a run. Every measure is a function of a `Snapshot`, inside the compiled program.

outer, inner     mean_i f_i(x_i, y_i) and mean_i g_i(x_i, y_i), each agent at its own point
gap              mean_i g_i(x_i, y_i) - g_i(x_i, z_i)                      (methods with a z)
direction_norm   |mean_i d_x,i|^2, d_x,i the direction of agent i's x      (methods with a direction)
consensus_s      sum_i |s_i - sbar|^2                                      (s any variable of the method)
phi              Phi(xbar)                                                 exact, by `decibo.reference`
stationarity     |grad Phi(xbar)|^2                                        exact
inner_error      |ybar - y*(xbar)|^2                                       exact
distance_x, _y   |xbar - x*|^2, |ybar - y*|^2                              (problems with a known solution)

ybar is the mean of the variable that answers for y*(x). direction_norm estimates stationarity at the cost of a few
gradients: it is as good as the inner variables are near their solutions, and no process needs all data for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from decibo.errors import InputError
from decibo.parallel.collectives import average, gather, is_spread, total
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions
from decibo.problem.reference import Exact, exact
from decibo.pytree import Tree, Vector


class Direction(Protocol):
    """What a measure needs of a direction, which is a `decibo.direction.Direction`."""

    @property
    def start(self) -> Callable[[Mapping[str, Vector]], Any]:
        """The variables of one agent from its rows."""
        ...

    @property
    def at(self) -> Callable[[Oracle, Any, Any], Any]:
        """The direction of each variable."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """All agents at one step, as a measure sees them.

    x, y        the means over the agents, shaped like x0 and y0
    agents      every agent's own: agents.x, agents.y, ... with a leading axis of agents
    average     (function) the mean over the agents of function(x, y, d), each at its own point
    data        the data of all agents, stacked; only where all of them are on one device
    step        the number of steps done
    rows        the variables as flat rows, one for each agent
    known       the known solution as flat vectors, if there is one
    direction   what the method follows, if it is composed of a direction and a consensus strategy
    answer      the name of the variable that answers for y*(x)
    """

    functions: Functions
    here: Tree  # the data of the agents on this device
    local: dict[str, jax.Array]  # their variables
    step: Any
    known: dict[str, jax.Array]
    direction: Direction | None = None
    answer: str = "y"

    @property
    def data(self) -> Tree:
        """The data of all agents, stacked."""
        if is_spread():
            raise InputError(
                "a measure asked for the data of all agents in a run on several devices",
                "data stays with its agents",
                "Use snapshot.average(lambda x, y, d: ...), the mean over the agents of a function of one agent.",
            )
        return self.here

    @cached_property
    def rows(self) -> dict[str, jax.Array]:
        """The variables as flat rows, one for each agent."""
        return {name: gather(rows) for name, rows in self.local.items()}

    def average(self, function: Callable[[Any, Any, Any], Any]) -> Any:
        """The mean over the agents of function(x_i, y_i, d_i)."""
        x, y = self.functions.x.unravel, self.functions.y.unravel
        values = jax.vmap(lambda d, a, b: function(x(a), y(b), d))(self.here, self.local["x"], self.local["y"])
        return jax.tree.map(average, values)

    @property
    def x(self) -> Tree:
        """The mean of the agents' x."""
        return self.functions.x.unravel(self.mean("x"))

    @property
    def y(self) -> Tree:
        """The mean of the agents' answers for y*(x)."""
        return self.functions.y.unravel(self.mean(self.answer))

    @property
    def agents(self) -> SimpleNamespace:
        """Every agent's own variables as pytrees."""
        return as_trees(self.functions, self.rows)

    def mean(self, name: str) -> jax.Array:
        """The mean over the agents of a variable, as a flat vector."""
        return average(self.local[name])

    @cached_property
    def mean_direction(self) -> Any:
        """The mean over the agents of the direction of each variable, each agent at its own point."""
        direction = self.direction
        if direction is None:
            raise InputError(
                "This method declares no direction, so that its mean is not defined.",
                "Compose the method with `decibo.compose`, or record other measures.",
            )
        one = lambda d, rows: direction.at(Oracle(self.functions, d), direction.start(rows), self.step)
        return jax.tree.map(average, jax.vmap(one)(self.here, self.local))

    @cached_property
    def exact(self) -> Exact:
        """y*, Phi and grad Phi at xbar: solved once, however many measures ask."""
        return exact(self.functions, self.here, self.mean("x"), self.mean(self.answer))


Measure = Callable[[Snapshot], Any]


def as_trees(functions: Functions, rows: Mapping[str, jax.Array]) -> SimpleNamespace:
    """Rows of flat vectors as the user's pytrees with a leading axis of agents; x like x0, all others like y0."""
    layouts = {name: functions.x if name == "x" else functions.y for name in rows}
    return SimpleNamespace(**{name: layouts[name].unravel_agents(row) for name, row in rows.items()})


def outer(s: Snapshot) -> jax.Array:
    """mean_i f_i(x_i, y_i)."""
    return average(
        jax.vmap(lambda d, x, y: Oracle(s.functions, d).outer_value(x, y))(s.here, s.local["x"], s.local["y"])
    )


def inner(s: Snapshot) -> jax.Array:
    """mean_i g_i(x_i, y_i)."""
    return _inner_at(s, "y")


def gap(s: Snapshot) -> jax.Array:
    """mean_i g_i(x_i, y_i) - g_i(x_i, z_i)."""
    return _inner_at(s, "y") - _inner_at(s, "z")


def direction_norm(s: Snapshot) -> jax.Array:
    """|mean_i d_x,i|^2."""
    return jnp.sum(s.mean_direction.x**2)


def phi(s: Snapshot) -> jax.Array:
    """Phi(xbar)."""
    return s.exact.phi


def stationarity(s: Snapshot) -> jax.Array:
    """|grad Phi(xbar)|^2."""
    return jnp.sum(s.exact.grad**2)


def inner_error(s: Snapshot) -> jax.Array:
    """|ybar - y*(xbar)|^2."""
    return jnp.sum((s.mean(s.answer) - s.exact.y) ** 2)


def distance_x(s: Snapshot) -> jax.Array:
    """|xbar - x*|^2."""
    return jnp.sum((s.mean("x") - s.known["x"]) ** 2)


def distance_y(s: Snapshot) -> jax.Array:
    """|ybar - y*|^2."""
    return jnp.sum((s.mean(s.answer) - s.known["y"]) ** 2)


@dataclass(frozen=True)
class Consensus:
    """sum_i |s_i - sbar|^2 of one variable s."""

    variable: str

    def __call__(self, s: Snapshot) -> jax.Array:
        rows = s.local[self.variable]
        squares = jnp.sum((rows - s.mean(self.variable)) ** 2, axis=1)
        return total(squares)


def _inner_at(s: Snapshot, name: str) -> jax.Array:
    return average(
        jax.vmap(lambda d, x, y: Oracle(s.functions, d).inner_value(x, y))(s.here, s.local["x"], s.local[name])
    )


def available(
    variables: Iterable[str], known: Iterable[str] = (), *, has_direction: bool = False
) -> dict[str, Measure]:
    """The built-in measures of a method with these variables, on a problem with this known solution.

    has_direction   whether the method declares its direction
    """
    found: dict[str, Measure] = {"outer": outer, "inner": inner}
    if "z" in variables:
        found["gap"] = gap
    if has_direction:
        found["direction_norm"] = direction_norm
    found |= {f"consensus_{name}": Consensus(name) for name in variables}
    found |= {"phi": phi, "stationarity": stationarity, "inner_error": inner_error}
    return found | {f"distance_{name}": {"x": distance_x, "y": distance_y}[name] for name in known}


EXACT = ("phi", "stationarity", "inner_error", "distance_x", "distance_y")


def resolve(
    asked: Iterable[Any] | Mapping[str, Any] | None,
    variables: Iterable[str],
    known: Iterable[str] = (),
    *,
    has_direction: bool = False,
) -> tuple[tuple[str, Measure], ...]:
    """Names and functions, checked. Nothing asked means every cheap measure; "all" adds the exact ones."""
    built_in = available(tuple(variables), known, has_direction=has_direction)
    cheap = [name for name in built_in if name not in EXACT]
    if asked is None:
        asked = cheap
    elif isinstance(asked, str) or callable(asked):
        asked = [asked]
    items = list(asked.items()) if isinstance(asked, Mapping) else [_named(item) for item in asked]
    items = [pair for item in items for pair in _expanded(item, list(built_in), cheap)]
    chosen: dict[str, Measure] = {}
    for name, measure in items:
        if measure is None and name not in built_in:
            raise InputError(
                f"measure {name!r}",
                f"known here are {', '.join(built_in)}, cheap, all",
                "Use one of these, or pass a function of a snapshot.",
            )
        if name == "step":
            raise InputError("a measure called 'step'", "the history keeps the steps under this name", "Rename it.")
        chosen[name] = built_in[name] if measure is None else measure
    return tuple(chosen.items())


def _named(item: Any) -> tuple[str, Any]:
    if isinstance(item, str):
        return item, None
    if callable(item):
        return getattr(item, "__name__", type(item).__name__), item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and callable(item[1]):
        return item
    raise InputError(
        f"measure {item!r}",
        "a measure is a name or a function of a snapshot",
        "Give measures=['outer', my_function].",
    )


def _expanded(item: tuple[str, Any], everything: list[str], cheap: list[str]) -> list[tuple[str, Any]]:
    name, measure = item
    if measure is None and name in ("all", "cheap"):
        return [(each, None) for each in (everything if name == "all" else cheap)]
    return [item]
