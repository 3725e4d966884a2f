"""What a step costs, in every currency, found by tracing the step once.

The step is traced with an oracle and a mix whose calls leave a mark in the traced program; the marks are then
counted, inner loops as often as they run. Nothing is counted in the user's functions, and nothing at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from decibo.errors import InputError
from decibo.problem.problem import Functions, Oracle
from decibo.pytree import Tree, Vector

MARK = "decibo:"
# What a call costs, in gradients. A product is one forward derivative of a gradient, be it J v, H v or both together.
PRODUCT = 2.0
VALUE = 0.5
P = ParamSpec("P")
T = TypeVar("T")


class Steps(Protocol):
    """What is counted of an algorithm: a pytree with the functions `init` and `step`."""

    @property
    def init(self) -> Callable[..., Tree]:
        """The state before the first step."""
        ...

    @property
    def step(self) -> Callable[..., Tree]:
        """One step."""
        ...


class Seconds(NamedTuple):
    """Where the time of a run went; what is neither (files, progress) is not counted."""

    steps: float = 0.0
    compiling: float = 0.0
    measuring: float = 0.0

    def plus(self, other: Seconds) -> Seconds:
        """Both together."""
        return Seconds(*(mine + its for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Cost:
    """The cost of one step: what one agent computes, and what it sends to EACH neighbour.

    calls       of products with second derivatives: J v and H v together are two products, but one call
    seconds     of all steps, without compiling and measuring
    compiling   seconds of tracing and compiling, which a second run of the same kind does not need
    measuring   seconds of recording the measures

    The properties that end in `_total` are for the whole run and all agents.
    """

    outer_gradients: int = 0
    inner_gradients: int = 0
    hessian_products: int = 0
    jacobian_products: int = 0
    values: int = 0
    calls: int = 0
    messages: int = 0
    numbers: int = 0
    bytes: int = 0
    agents: int = 1
    links: int = 0
    steps: int = 0
    seconds: float = 0.0
    compiling: float = 0.0
    measuring: float = 0.0

    def with_rounds(self, rounds: int) -> Cost:
        """The cost where every exchange is this many messages to each neighbour."""
        sent = {"messages": self.messages, "numbers": self.numbers, "bytes": self.bytes}
        return replace(self, **{name: rounds * count for name, count in sent.items()})

    @property
    def gradients(self) -> int:
        """Gradients of f and g of one agent in one step."""
        return self.outer_gradients + self.inner_gradients

    @property
    def products(self) -> int:
        """Hessian- and Jacobian-vector products of one agent in one step."""
        return self.hessian_products + self.jacobian_products

    @property
    def work(self) -> float:
        """What one agent computes in one step, in gradients: a call of products counts PRODUCT, a value VALUE."""
        return self.gradients + PRODUCT * self.calls + VALUE * self.values

    @property
    def gradients_total(self) -> int:
        """Gradients of all agents over the whole run."""
        return self.gradients * self.agents * self.steps

    @property
    def work_total(self) -> float:
        """What all agents compute over the whole run, in gradients."""
        return self.work * self.agents * self.steps

    @property
    def products_total(self) -> int:
        """Second-derivative products of all agents over the whole run."""
        return self.products * self.agents * self.steps

    def so_far(self, step: np.ndarray) -> dict[str, np.ndarray]:
        """What the run has spent after so many steps: the columns of every table of a history.

        Seconds are those of all steps, shared out equally; they are left out where they are not known.
        """
        sums = {
            "work": step * (self.work * self.agents),
            "gradients": step * (self.gradients * self.agents),
            "products": step * (self.products * self.agents),
            "bytes": step * (self.bytes * self.links),
        }
        if self.seconds > 0 and self.steps > 0:
            sums["seconds"] = step * (self.seconds / self.steps)
        return sums

    @property
    def numbers_total(self) -> int:
        """Numbers sent over all links, both ways, over the whole run."""
        return self.numbers * self.links * self.steps

    @property
    def bytes_total(self) -> int:
        """Bytes sent over all links, both ways, over the whole run."""
        return self.bytes * self.links * self.steps


class MarkedOracle(Oracle):
    """An oracle whose calls can be counted in a traced program."""

    def outer_value(self, x: Vector, y: Vector) -> jax.Array:
        return _marked("value", super().outer_value)(x, y)

    def inner_value(self, x: Vector, y: Vector) -> jax.Array:
        return _marked("value", super().inner_value)(x, y)

    def outer(self, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        return _marked("outer", super().outer)(x, y)

    def inner(self, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        return _marked("inner", super().inner)(x, y)

    def products(self, x: Vector, y: Vector, v: Vector) -> tuple[Vector, Vector]:
        return _marked("products", super().products)(x, y, v)

    def hessian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        return _marked("hessian", super().hessian)(x, y, v)

    def jacobian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        return _marked("jacobian", super().jacobian)(x, y, v)

    def sampled(self, key: jax.Array) -> Oracle:
        plain = super().sampled(key)
        return MarkedOracle(plain.functions, plain.data)


def _marked(name: str, function: Callable[P, T]) -> Callable[P, T]:
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    call.__name__ = MARK + name
    return jax.jit(call)


class MarkedMix:
    """A mix whose messages can be counted. `bits` is what one message really carries, if less than its numbers."""

    def __call__(self, tree: T, bits: int | None = None) -> T:
        leaves = jax.tree.leaves(tree)
        size = sum(leaf.size for leaf in leaves)
        if bits is None:
            bits = sum(leaf.size * leaf.dtype.itemsize * 8 for leaf in leaves)
        return _marked(f"mix:{size}:{bits}", lambda t: jax.tree.map(lambda leaf: leaf * 1, t))(tree)

    push = __call__
    difference = __call__


def step_cost(functions: Functions, data: Tree, start: Mapping[str, Tree], core: Steps) -> Cost:
    """The cost of one step of one agent. `data` and `start` are one agent's, or just their shapes."""
    marks: Counter[str] = Counter()
    _count(trace_step(functions, data, start, core).jaxpr, 1, False, marks)
    cost = Cost(
        outer_gradients=marks["outer"],
        inner_gradients=marks["inner"],
        hessian_products=marks["hessian"] + marks["products"],
        jacobian_products=marks["jacobian"] + marks["products"],
        values=marks["value"],
        calls=marks["products"] + marks["hessian"] + marks["jacobian"],
    )
    for mark, times in marks.items():
        if mark.startswith("mix:"):
            _, size, bits = mark.split(":")
            cost = replace(
                cost,
                messages=cost.messages + times,
                numbers=cost.numbers + times * int(size),
                bytes=cost.bytes + times * -(-int(bits) // 8),
            )
    return cost


def trace_step(functions: Functions, data: Tree, start: Mapping[str, Tree], core: Steps) -> ClosedJaxpr:
    """The first step of one agent as a traced program, whose arguments are the numbers of the method among others."""
    try:
        return _traced.trace(functions, core, data, start, jax.random.key(0)).jaxpr
    except NameError as error:  # an axis of agents that is not there: it would be traffic that nobody counts
        raise InputError(
            "The step looks at other agents by other means than mix, the only way that is counted.",
            "Replace collectives such as lax.pmean by mix.",
        ) from error


@partial(jax.jit, static_argnames="functions")
def _traced(functions: Functions, core: Steps, data: Tree, start: Mapping[str, Tree], key: jax.Array) -> Tree:
    """The first step. Only ever traced, and once for all numbers of a method."""
    state = core.init(Oracle(functions, data), MarkedMix(), start)
    return _marked("step", lambda s: core.step(MarkedOracle(functions, data), MarkedMix(), s, jnp.int32(0), key))(state)


def _count(jaxpr: Any, times: int, inside: bool, marks: Counter[str]) -> None:
    """Add the marks of a traced program; `inside` says whether this is part of the step (and not of init)."""
    for equation in jaxpr.eqns:
        name = str(equation.params.get("name", ""))
        if name.startswith(MARK) and name != MARK + "step":
            marks[name.removeprefix(MARK)] += times * inside
            continue
        repeats = times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        branches: list[Counter[str]] = [Counter()]
        for sub in _subprograms(equation.params):
            branch: Counter[str] = Counter()
            _count(sub, repeats, inside or name == MARK + "step", branch)
            branches.append(branch)
        if equation.primitive.name == "cond":  # only one branch runs; count the more expensive
            marks.update(max(branches, key=lambda branch: sum(branch.values())))
        else:
            for branch in branches:
                marks.update(branch)


def _subprograms(params: dict[str, Any]) -> list[Any]:
    programs = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                programs.append(inner)
    return programs
