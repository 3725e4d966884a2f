r"""What can be recorded along a run. Every measure is a function of a `Snapshot`, inside the
compiled program.

outer, inner     mean_i f_i(xbar, ybar) and mean_i g_i(xbar, ybar)     at the answer that `solve`
                                                                       returns
outer_local, inner_local   mean_i f_i(x_i, y_i) and mean_i g_i(x_i, y_i), each agent at its own
                           point
gap              mean_i g_i(x_i, y_i) - g_i(x_i, z_i)                  (methods with a z)
rest             max_i |h q|, the largest entry that an agent will still move  (methods with
                 robust_tracking)
direction_norm   |mean_i d_x,i|^2, d_x,i the direction of agent i's x  (methods with a direction)
consensus_s      sum_i |s_i - sbar|^2                                  (s any variable of the
                                                                       method)
phi              Phi(xbar)                                             exact, by `decibo.reference`
stationarity     |grad Phi(xbar)|^2                                    exact
inner_error      |ybar - y*(xbar)|^2                                   exact
distance_x, _y   |xbar - x*|^2, |ybar - y*|^2                          (problems with a known
                                                                       solution)

ybar is the mean of the variable that answers for y*(x). outer_local falls where agents fit their
own data and disagree, so that the smallest may be the worst answer: judge by outer. direction_norm
estimates stationarity at the cost of a few gradients: it is as good as the inner variables are near
their solutions, and no process needs all data for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp

from decibo.errors import InputError, short_repr
from decibo.parallel.collectives import average, gather
from decibo.problem.problem import Functions, NoSecondDerivativesError, Oracle
from decibo.problem.reference import Exact, exact
from decibo.pytree import Tree
from decibo.validate import did_you_mean

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from decibo.algorithm.direction import Direction


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
    left        by how much each agent here will still move, for methods that can tell
    """

    functions: Functions
    here: Tree  # the data of the agents on this device
    local: dict[str, jax.Array]  # their variables
    step: jax.Array
    known: dict[str, jax.Array]
    direction: Direction | None = None
    answer: str = "y"
    left: jax.Array | None = None

    def averaged(self, rows: jax.Array) -> jax.Array:
        """The mean over all agents of what has a row for each agent of this device."""
        return jnp.mean(rows, axis=0)

    def gathered(self, rows: jax.Array) -> jax.Array:
        """The rows of all agents, from those of this device."""
        return rows

    @property
    def data(self) -> Tree:
        """The data of all agents, stacked."""
        return self.here

    @cached_property
    def rows(self) -> dict[str, Float[Array, "agents n"]]:
        """The variables as flat rows, one for each agent."""
        return {name: self.gathered(rows) for name, rows in self.local.items()}

    def average(self, function: Callable[[Tree, Tree, Tree], Tree]) -> Tree:
        """The mean over the agents of function(x_i, y_i, d_i)."""
        x = self.functions.x.unravel
        y = self.functions.y.unravel
        values = jax.vmap(lambda d, a, b: function(x(a), y(b), d))(
            self.here, self.local["x"], self.local["y"]
        )
        return jax.tree.map(self.averaged, values)

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

    def mean(self, name: str) -> Float[Array, " n"]:
        """The mean over the agents of a variable, as a flat vector."""
        return self.averaged(self.local[name])

    def mean_of(self, question: str, x: jax.Array, y: jax.Array) -> jax.Array:
        """The mean over the agents of what an oracle answers: each agent at its own point, or all
        at one."""
        axes = tuple(0 if point.ndim > 1 else None for point in (x, y))
        ask = lambda d, x, y: Oracle(self.functions, d).ask(question, x, y)
        return self.averaged(jax.vmap(ask, (0, *axes))(self.here, x, y))

    @cached_property
    def mean_direction(self) -> Tree:
        """The mean over the agents of the direction of each variable, each agent at its own
        point."""
        direction = self.direction
        if direction is None:
            raise InputError(
                "This method declares no direction whose mean could be measured.",
                "Compose the method with `decibo.compose`, or record other measures.",
            )
        one = lambda d, rows: direction.at(
            Oracle(self.functions, d), direction.start(rows), self.step
        )
        return jax.tree.map(self.averaged, jax.vmap(one)(self.here, self.local))

    @cached_property
    def exact(self) -> Exact:
        """y*, Phi and grad Phi at xbar: solved once, however many measures use it."""
        return exact(self.functions, self.here, self.mean("x"), self.mean(self.answer))


@dataclass(frozen=True)
class SpreadSnapshot(Snapshot):
    """The same where agents are on several devices, each of which has a block of them."""

    def averaged(self, rows: jax.Array) -> jax.Array:
        return average(rows)

    def gathered(self, rows: jax.Array) -> jax.Array:
        return gather(rows)

    @property
    def data(self) -> Tree:
        raise InputError(
            "A measure uses the data of all agents in a run on several devices, but data stays"
            " with its agents.",
            "Use snapshot.average(lambda x, y, d: ...), the mean over the agents of a function"
            " of one agent.",
        )


Measure = Callable[[Snapshot], jax.Array]
Measures = Iterable[str | Measure | tuple[str, Measure]] | None  # what users pass


def as_trees(functions: Functions, rows: Mapping[str, jax.Array]) -> SimpleNamespace:
    """Rows of flat vectors as the user's pytrees with a leading axis of agents; x like x0, all
    others like y0."""
    layouts = {name: functions.x if name == "x" else functions.y for name in rows}
    return SimpleNamespace(
        **{name: layouts[name].unravel_agents(row) for name, row in rows.items()}
    )


def outer(s: Snapshot) -> jax.Array:
    """The outer objective at the answer, the mean x and y: mean_i f_i(xbar, ybar)."""
    return s.mean_of("outer_value", s.mean("x"), s.mean(s.answer))


def inner(s: Snapshot) -> jax.Array:
    """The inner objective at the answer: mean_i g_i(xbar, ybar)."""
    return s.mean_of("inner_value", s.mean("x"), s.mean(s.answer))


def outer_local(s: Snapshot) -> jax.Array:
    """The outer objective with every agent at its own point: mean_i f_i(x_i, y_i). Disagreement may
    lower it."""
    return s.mean_of("outer_value", s.local["x"], s.local["y"])


def inner_local(s: Snapshot) -> jax.Array:
    """The inner objective with every agent at its own point: mean_i g_i(x_i, y_i)."""
    return s.mean_of("inner_value", s.local["x"], s.local["y"])


def gap(s: Snapshot) -> jax.Array:
    """How far y is from solving the inner level, for methods with a z: mean_i g_i(x_i, y_i) -
    g_i(x_i, z_i)."""
    return inner_local(s) - s.mean_of("inner_value", s.local["x"], s.local["z"])


def direction_norm(s: Snapshot) -> jax.Array:
    """The method's own estimate of stationarity: |mean_i d_x,i|^2. It vanishes wherever the method
    comes to rest."""
    return jnp.sum(s.mean_direction.x**2)


def rest(s: Snapshot) -> jax.Array:
    """The largest entry that an agent will still move, for methods with robust_tracking: each can
    tell by itself."""
    assert s.left is not None
    return jnp.max(s.gathered(s.left))


def phi(s: Snapshot) -> jax.Array:
    """The outer objective at the mean x and the exact answer to it: Phi(xbar) = mean_i f_i(xbar,
    y*(xbar))."""
    return s.exact.phi


def stationarity(s: Snapshot) -> jax.Array:
    """The exact gradient of the problem: |grad Phi(xbar)|^2. Zero at a solution."""
    return jnp.sum(s.exact.grad**2)


def inner_error(s: Snapshot) -> jax.Array:
    """How far the mean y is from the exact answer to the mean x: |ybar - y*(xbar)|^2."""
    return jnp.sum((s.mean(s.answer) - s.exact.y) ** 2)


def distance_x(s: Snapshot) -> jax.Array:
    """How far the mean x is from the known solution: |xbar - x*|^2."""
    return jnp.sum((s.mean("x") - s.known["x"]) ** 2)


def distance_y(s: Snapshot) -> jax.Array:
    """How far the mean y is from the known solution: |ybar - y*|^2."""
    return jnp.sum((s.mean(s.answer) - s.known["y"]) ** 2)


@dataclass(frozen=True)
class ConsensusError:
    """How far apart the agents are in one variable s: sum_i |s_i - sbar|^2."""

    variable: str

    def __call__(self, s: Snapshot) -> jax.Array:
        squares = jnp.sum((s.local[self.variable] - s.mean(self.variable)) ** 2, axis=1)
        return jnp.sum(s.gathered(squares))


def available(
    variables: Iterable[str],
    known: Iterable[str] = (),
    *,
    has_direction: bool = False,
    has_rest: bool = False,
) -> dict[str, Measure]:
    """The built-in measures of a method with these variables, on a problem with this known
    solution.

    has_direction   whether the method declares its direction
    has_rest        whether it can tell how far from rest it is
    """
    measures: dict[str, Measure] = {"outer": outer, "inner": inner}
    if "z" in variables:
        measures["gap"] = gap
    if has_direction:
        measures["direction_norm"] = direction_norm
    if has_rest:
        measures["rest"] = rest
    measures |= {f"consensus_{name}": ConsensusError(name) for name in variables}
    measures |= {"outer_local": outer_local, "inner_local": inner_local}
    measures |= {"phi": phi, "stationarity": stationarity, "inner_error": inner_error}
    return measures | {
        f"distance_{name}": {"x": distance_x, "y": distance_y}[name] for name in known
    }


# by Newton's method, with second derivatives of inner
SOLVED = ("phi", "stationarity", "inner_error")
EXACT = (*SOLVED, "distance_x", "distance_y")
LOCAL = ("outer_local", "inner_local")


def resolve(
    requested: Measures,
    variables: Iterable[str],
    known: Iterable[str] = (),
    *,
    has_direction: bool = False,
    has_rest: bool = False,
    no_exact: Callable[[], str] = str,
) -> tuple[tuple[str, Measure], ...]:
    """Measures with their names, checked: by default every cheap one; "all" adds the exact and the
    local ones.

    A function is recorded under its `__name__`; a pair (name, function) gives it another.

    no_exact   why there are no second derivatives of inner, which SOLVED need; asked only if they
               are wanted. Without them, "all" leaves these measures out
    """
    built_in = available(tuple(variables), known, has_direction=has_direction, has_rest=has_rest)
    groups = {
        "all": list(built_in),
        "cheap": [name for name in built_in if name not in (*EXACT, *LOCAL)],
    }
    wrong = isinstance(requested, str | bytes | Mapping) or callable(requested)
    if wrong or not isinstance(requested, Iterable | None):
        raise InputError(
            f"measures must be a list of names and functions, but it is {short_repr(requested)}.",
            "Pass measures=['outer', my_function], for example.",
        )
    measures: dict[str, Measure] = {}
    for item in ["cheap"] if requested is None else requested:
        # A name, or that of a group.
        if isinstance(item, str):
            if item in SOLVED and (reason := no_exact()):
                raise NoSecondDerivativesError(
                    f"The measure {item!r}", reason, "Record 'direction_norm' or 'outer'."
                )
            if item not in groups and item not in built_in:
                raise InputError(
                    f"There is no measure {item!r} here. Available are {', '.join(built_in)}, cheap"
                    " and all.",
                    did_you_mean(item, built_in),
                )
            if item == "all" and no_exact():
                groups["all"] = [name for name in groups["all"] if name not in SOLVED]
            measures |= {name: built_in[name] for name in groups.get(item, [item])}
            continue
        # A function of the user's, with a name of its own or that of a pair.
        if isinstance(item, tuple) and not (len(item) == 2 and isinstance(item[0], str)):
            raise InputError(
                f"A measure must be a pair (name, function), but it is {short_repr(item)}."
            )
        own = getattr(item, "__name__", type(item).__name__)
        name, measure = cast(
            "tuple[str, Measure]", item if isinstance(item, tuple) else (own, item)
        )
        if not callable(measure):
            raise InputError(
                f"A measure must be a name or a function of a snapshot, but it is"
                f" {short_repr(measure)}."
            )
        if name == "step":
            raise InputError(
                "A measure cannot be called 'step', under which the history keeps the steps.",
                "Rename it.",
            )
        if measures.setdefault(name, measure) != measure:
            raise InputError(f"Two measures are called {name!r}.", "Rename one of them.")
    return tuple(measures.items())
