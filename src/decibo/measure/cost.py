"""What a step costs, in every currency, found by tracing the step once.

The step is traced with an oracle and a mix whose calls leave a mark in the traced program; the
marks are then counted, inner loops as often as they run. Nothing is counted in the user's
functions, and nothing at run time. Where a step does one thing or another at random, the expected
numbers are counted (`sometimes`), and where it works on a minibatch, the share of the data that it
sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from decibo.data.stream import Streamed
from decibo.errors import InputError
from decibo.network.mixing import How, Mix
from decibo.network.per_variable import Share, places_of
from decibo.problem.problem import Functions, Gradient, Oracle
from decibo.programs import jitted
from decibo.pytree import Tree, Vector

MARK = "decibo:"
SOMETIMES = "sometimes:"
# What a call costs, in gradients. A product is one forward derivative of a gradient, be it J v, H v
# or both together.
PRODUCT = 2.0
VALUE = 0.5
WORK = {
    "outer": 1.0,
    "inner": 1.0,
    "products": PRODUCT,
    "hessian": PRODUCT,
    "jacobian": PRODUCT,
    "value": VALUE,
}
P = ParamSpec("P")
T = TypeVar("T")
Marks = dict[str, float]  # how often each mark was met


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

    With a network for each variable, what it sends is the mean over all links, which need not be a
    whole number.

    calls       of products with second derivatives: J v and H v together are two products, but one
                call
    share       of the agent's data that all these see, on average: 0.1 with minibatches of a tenth;
                1 with a stream
    state       numbers that one agent keeps from one step to the next
    seconds     of all steps, without compiling and measuring
    compiling   seconds of tracing and compiling, which a second run of the same kind does not need
    measuring   seconds of recording the measures

    What a step does only sometimes is counted by how often it is expected. The properties that end
    in `_total` are for the whole run and all agents.
    """

    outer_gradients: float = 0
    inner_gradients: float = 0
    hessian_products: float = 0
    jacobian_products: float = 0
    values: float = 0
    calls: float = 0
    share: float = 1
    messages: float = 0
    numbers: float = 0
    bytes: float = 0
    state: int = 0
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

    def at_speed(self, computing: float, talking: float) -> Cost:
        """The cost for agents that compute, and talk, only in such shares of the steps."""
        sent = ("messages", "numbers", "bytes")
        computed = (
            "outer_gradients", "inner_gradients", "hessian_products", "jacobian_products", "values",
            "calls"
        )  # fmt: skip
        shares = dict.fromkeys(computed, computing) | dict.fromkeys(sent, talking)
        return replace(
            self, **{name: _whole(share * getattr(self, name)) for name, share in shares.items()}
        )

    @property
    def gradients(self) -> float:
        """Gradients of f and g of one agent in one step."""
        return self.outer_gradients + self.inner_gradients

    @property
    def products(self) -> float:
        """Hessian- and Jacobian-vector products of one agent in one step."""
        return self.hessian_products + self.jacobian_products

    @property
    def work(self) -> float:
        """What one agent computes in one step, in gradients on all its data: a call of products
        counts PRODUCT, a value VALUE, and all of them the share of the data that they see.
        """
        return self.share * (self.gradients + PRODUCT * self.calls + VALUE * self.values)

    @property
    def gradients_total(self) -> float:
        """Gradients of all agents over the whole run."""
        return self.gradients * self.agents * self.steps

    @property
    def work_total(self) -> float:
        """What all agents compute over the whole run, in gradients."""
        return self.work * self.agents * self.steps

    @property
    def products_total(self) -> float:
        """Second-derivative products of all agents over the whole run."""
        return self.products * self.agents * self.steps

    def so_far(self, step: np.ndarray) -> dict[str, np.ndarray]:
        """What the run has spent after so many steps: the columns of every table of a history.

        Seconds are those of all steps, shared out equally; they are left out where they are not
        known.
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
    def numbers_total(self) -> float:
        """Numbers sent over all links, both ways, over the whole run."""
        return round(self.numbers * self.links * self.steps)

    @property
    def bytes_total(self) -> float:
        """Bytes sent over all links, both ways, over the whole run."""
        return round(self.bytes * self.links * self.steps)


@dataclass(frozen=True)
class ShapedOracle(Oracle):
    """An oracle whose derivatives have the right shapes and no meaning: most of the time of a trace
    goes into them."""

    def ask(self, question: str, *at: Vector) -> Any:
        if question.endswith("_value"):
            return super().ask(question, *at)
        gradient = Gradient(at[0] * 1, at[1] * 1)
        return {"hessian": gradient.y, "jacobian": gradient.x}.get(question, gradient)


@dataclass(frozen=True)
class MarkedOracle(Oracle):
    """An oracle whose calls can be counted in a traced program, with the share of the agent's data
    that it sees."""

    share: float = 1.0

    def ask(self, question: str, *at: Vector) -> Any:
        name = "value" if question.endswith("_value") else question
        return _marked(f"{name}:{self.share!r}", partial(super().ask, question))(*at)

    def on(self, data: Tree) -> Oracle:
        if isinstance(self.functions.sample, Streamed):  # of which nobody knows how much there is
            return replace(self, data=data)
        size = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))
        return replace(self, data=data, share=self.share * size(data) / size(self.data))


@dataclass(frozen=True)
class CountedOracle(MarkedOracle, ShapedOracle):
    """A marked oracle for those who only count: behind the marks there are no derivatives."""


@dataclass(frozen=True)
class ProbingOracle(Oracle):
    """An oracle that answers with zeros and remembers what it was asked.

    Nothing of the objectives is traced, so that it takes no time to find out what a method asks
    for.
    """

    asked: set[str] = field(default_factory=set)

    def ask(self, question: str, *at: Vector) -> Any:
        self.asked.add(question)
        zeros = Gradient(jnp.zeros_like(at[0]), jnp.zeros_like(at[1]))
        if question.endswith("_value"):
            return jnp.zeros((), at[1].dtype)
        return {"hessian": zeros.y, "jacobian": zeros.x}.get(question, zeros)


def asks_for_products(functions: Functions, data: Tree, core: Steps) -> bool:
    """Whether a method asks for products with second derivatives, in init or in a step. `data` is
    one agent's."""
    asked: set[str] = set()

    def run(data: Tree, start: Mapping[str, Vector], key: jax.Array) -> Tree:
        oracle = ProbingOracle(functions, data, asked)
        return core.step(
            oracle, MarkedMix(), core.init(oracle, MarkedMix(), start), jnp.int32(0), key
        )

    layouts = {"x": functions.x, "y": functions.y}
    start = {
        name: jax.ShapeDtypeStruct((layout.size,), layout.dtype) for name, layout in layouts.items()
    }
    with _by_mix_alone():
        jax.eval_shape(run, data, start, jax.random.key(0))
    return bool(asked & {"products", "hessian", "jacobian"})


@contextmanager
def _by_mix_alone() -> Iterator[None]:
    """While a step is traced: an axis of agents that is not there would be traffic that nobody
    counts."""
    try:
        yield
    except NameError as error:
        raise InputError(
            "The step looks at other agents by other means than mix, the only way that is counted.",
            "Replace collectives such as lax.pmean by mix.",
        ) from error


def sometimes(
    probability: float,
    due: jax.Array,
    then: Callable[[T], Tree],
    otherwise: Callable[[T], Tree],
    operand: T,
) -> Tree:
    """`lax.cond(due, then, otherwise, operand)`, counted with the probability that it is due."""
    choose = lambda due, operand: lax.cond(due, then, otherwise, operand)
    return _marked(f"{SOMETIMES}{probability!r}", choose)(due, operand)


def _marked(name: str, function: Callable[P, T]) -> Callable[P, T]:
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    call.__name__ = MARK + name
    return jax.jit(call)


class MarkedMix(Mix):
    """A mix whose messages can be counted. `bits` is what one message really carries, if less than
    its numbers.

    groups   variables that share a network, if not all do: their parts are messages of their own
    """

    def __init__(self, groups: tuple[tuple[str, ...], ...] = ()):
        self.groups = groups

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        if not self.groups:
            return self._message(tree, bits, 0)
        leaves, treedef = jax.tree.flatten(tree)
        for group, places in enumerate(places_of(tree, self.groups)):
            sent = self._message([leaves[i] for i in places], bits, group) if places else []
            for place, leaf in zip(places, sent, strict=True):
                leaves[place] = leaf
        return jax.tree.unflatten(treedef, leaves)

    def _message(self, tree: T, bits: int | None, group: int) -> T:
        leaves = jax.tree.leaves(tree)
        size = sum(leaf.size for leaf in leaves)
        if bits is None:
            bits = sum(leaf.size * leaf.dtype.itemsize * 8 for leaf in leaves)
        return _marked(
            f"mix:{size}:{bits}:{group}", lambda t: jax.tree.map(lambda leaf: leaf * 1, t)
        )(tree)


def step_cost(
    functions: Functions,
    data: Tree,
    start: Mapping[str, Tree],
    core: Steps,
    shares: Sequence[Share] = (),
) -> Cost:
    """The cost of one step of one agent. `data` and `start` are one agent's, or just their shapes.

    shares   with a network for each variable: how much of the traffic each group of variables has
    """
    marks: Marks = defaultdict(float)
    groups = tuple(share.group for share in shares)
    _count(
        trace_step(functions, data, start, core, groups, derivatives=False).jaxpr, 1, False, marks
    )
    calls: Marks = defaultdict(float)
    work = 0.0
    seen = 0.0
    messages: list[tuple[float, int, int]] = []
    for mark, times in marks.items():
        name, *numbers = mark.split(":")
        if name == "mix":
            sent = times * shares[int(numbers[2])].messages if shares else times
            messages.append((sent, int(numbers[0]), -(-int(numbers[1]) // 8)))
        else:
            calls[name] += times
            work += times * WORK[name]
            seen += times * WORK[name] * float(numbers[0])
    return Cost(
        outer_gradients=_whole(calls["outer"]),
        inner_gradients=_whole(calls["inner"]),
        hessian_products=_whole(calls["hessian"] + calls["products"]),
        jacobian_products=_whole(calls["jacobian"] + calls["products"]),
        values=_whole(calls["value"]),
        calls=_whole(calls["products"] + calls["hessian"] + calls["jacobian"]),
        share=_whole(seen / work) if work else 1,
        messages=_whole(sum(times for times, _, _ in messages)),
        numbers=_whole(sum(times * size for times, size, _ in messages)),
        bytes=_whole(sum(times * size for times, _, size in messages)),
        state=state_size(functions, data, start, core),
    )


def state_size(functions: Functions, data: Tree, start: Mapping[str, Tree], core: Steps) -> int:
    """The numbers that one agent keeps from one step to the next."""
    begin = lambda d, start: core.init(ShapedOracle(functions, d), MarkedMix(), start)
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(begin, data, start)))


def _whole(value: float) -> float:
    """The value without rounding errors in its last digits, and an integer where it is one."""
    value = round(value, 12)
    return round(value) if value == round(value) else value


def trace_step(
    functions: Functions,
    data: Tree,
    start: Mapping[str, Tree],
    core: Steps,
    groups: tuple[tuple[str, ...], ...] = (),
    derivatives: bool = True,
) -> ClosedJaxpr:
    """The first step of one agent as a traced program, whose arguments are the numbers of the
    method among others.

    derivatives   whether those of the objectives are part of it
    """
    with _by_mix_alone():
        return _traced.trace(
            functions, groups, derivatives, core, data, start, jax.random.key(0)
        ).jaxpr


@jitted(static=3)
def _traced(
    functions: Functions,
    groups: tuple[tuple[str, ...], ...],
    derivatives: bool,
    core: Steps,
    data: Tree,
    start: Mapping[str, Tree],
    key: jax.Array,
) -> Tree:
    """The first step. Only ever traced, and once for all numbers of a method."""
    mix = MarkedMix(groups)
    first, marked = (Oracle, MarkedOracle) if derivatives else (ShapedOracle, CountedOracle)
    state = core.init(first(functions, data), mix, start)
    return _marked("step", lambda s: core.step(marked(functions, data), mix, s, jnp.int32(0), key))(
        state
    )


def _count(
    jaxpr: Any, times: float, inside: bool, marks: Marks, chance: float | None = None
) -> None:
    """Add the marks of a traced program.

    inside   whether this is part of the step (and not of init)
    chance   the probability of the branch that is due, inside `sometimes`
    """
    for equation in jaxpr.eqns:
        name = str(equation.params.get("name", ""))
        mark = name.removeprefix(MARK) if name.startswith(MARK) else ""
        if mark.startswith(SOMETIMES):
            for sub in subprograms(equation.params):
                _count(sub, times, inside, marks, float(mark.removeprefix(SOMETIMES)))
            continue
        if mark and mark != "step":
            marks[mark] += times * inside
            continue
        repeats = (
            times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        )
        branches: list[Marks] = [defaultdict(float)]
        for sub in subprograms(equation.params):
            branch: Marks = defaultdict(float)
            _count(sub, repeats, inside or mark == "step", branch)
            branches.append(branch)
        if equation.primitive.name != "cond":
            _add(branches, [1.0] * len(branches), marks)
        elif chance is not None and len(branches) == 3:
            _add(branches, [0.0, 1 - chance, chance], marks)
        else:  # only one branch runs; count the more expensive
            _add([max(branches, key=lambda branch: sum(branch.values()))], [1.0], marks)


def _add(branches: list[Marks], weights: list[float], marks: Marks) -> None:
    for branch, weight in zip(branches, weights, strict=True):
        for mark, times in branch.items():
            marks[mark] += weight * times


def subprograms(params: dict[str, Any]) -> list[Any]:
    """The programs inside an equation, such as the body of a loop."""
    programs = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                programs.append(inner)
    return programs
