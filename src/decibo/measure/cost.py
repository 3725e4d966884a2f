"""What a step costs, in every currency, found by tracing the step once.

The step is traced with an oracle and a mix whose calls leave a mark in the traced program; the
marks are then counted, inner loops as often as they run. Nothing is counted in the user's
functions, and nothing at run time. Where a step does one thing or another at random, the expected
numbers are counted (`sometimes`), and where it works on a minibatch, the share of the data that it
sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from decibo.data.stream import Streamed
from decibo.errors import InputError
from decibo.network.mixing import How, Mix
from decibo.network.network import Share
from decibo.network.per_variable import places_of
from decibo.problem.problem import Functions, Gradient, Oracle
from decibo.programs import jitted, subprograms
from decibo.pytree import Tree, Vector

if TYPE_CHECKING:
    from decibo.algorithm.algorithm import Core

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

        Seconds are those of all steps, divided equally; they are left out where they are not
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
class MarkedOracle(Oracle):
    """An oracle whose calls can be counted in a traced program, with the share of the agent's data
    that it sees."""

    share: float = 1.0

    def ask(self, question: str, *at: Vector) -> Any:
        name = "value" if question.endswith("_value") else question
        return _marked(f"{name}:{self.share!r}", partial(self.answer, question))(*at)

    def answer(self, question: str, *at: Vector) -> Any:
        """What stands behind the mark."""
        return super().ask(question, *at)

    def on(self, data: Tree) -> Oracle:
        if isinstance(self.functions.sample, Streamed):  # of which nobody knows how much there is
            return replace(self, data=data)
        size = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))
        return replace(self, data=data, share=self.share * size(data) / size(self.data))


@dataclass(frozen=True)
class CountedOracle(MarkedOracle):
    """A marked oracle whose answers have the right shapes and no meaning: nothing of the objectives
    is traced, which is where most of the time of a trace goes."""

    def answer(self, question: str, *at: Vector) -> Any:
        if question.endswith("_value"):
            return jnp.zeros((), at[1].dtype)
        gradient = Gradient(at[0] * 1, at[1] * 1)
        return {"hessian": gradient.y, "jacobian": gradient.x}.get(question, gradient)


@dataclass(frozen=True)
class MarkedMix(Mix):
    """A mix whose messages can be counted. `bits` is what one message really carries, if less than
    its numbers.

    groups   variables that share a network, if not all do: their parts are messages of their own
    """

    groups: tuple[tuple[str, ...], ...] = ()

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        leaves, treedef = jax.tree.flatten(tree)
        parts = places_of(tree, self.groups) if self.groups else [list(range(len(leaves)))]
        for group, places in enumerate(parts):
            sent = [leaves[place] for place in places]
            if bits is None:
                carried = sum(leaf.size * leaf.dtype.itemsize * 8 for leaf in sent)
            else:
                carried = bits
            if sent or not self.groups:
                name = f"mix:{sum(leaf.size for leaf in sent)}:{carried}:{group}"
                sent = _marked(name, lambda sent: [leaf * 1 for leaf in sent])(sent)
            for place, leaf in zip(places, sent, strict=True):
                leaves[place] = leaf
        return jax.tree.unflatten(treedef, leaves)


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

    # A jitted function is one equation of the program that calls it, with its name, in loops and
    # under vmap too.
    call.__name__ = MARK + name
    return jax.jit(call)


class Found(NamedTuple):
    """What is found out about a method by tracing its first step once.

    variables   the names of what it shows of its state
    products    whether it asks for products with second derivatives, in a step or before the first
    cost        of one step of one agent
    """

    variables: tuple[str, ...]
    products: bool
    cost: Cost


def examine(
    functions: Functions,
    data: Tree,
    start: Mapping[str, Tree],
    core: Core,
    shares: Sequence[Share] = (),
) -> Found:
    """Trace the first step of one agent, and count. `data` and `start` are one agent's, or just
    their shapes.

    shares   with a network for each variable: how much of the traffic each group of variables has
    """
    groups = tuple(share.group for share in shares)
    traced = _trace(functions, groups, False, core, data, start)
    marks: Marks = defaultdict(float)
    _count(traced.jaxpr.jaxpr, 0, marks)
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
    state, shown, _ = traced.out_info
    cost = Cost(
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
        state=sum(leaf.size for leaf in jax.tree.leaves(state)),
    )
    asked = {mark.partition(":")[0] for mark in marks}  # in branches that never run, too
    return Found(tuple(shown), bool(asked & {"products", "hessian", "jacobian"}), cost)


def first_step(
    functions: Functions, data: Tree, start: Mapping[str, Tree], core: Core
) -> ClosedJaxpr:
    """The first step of one agent as a traced program, derivatives and all, whose arguments are the
    numbers of the method among others."""
    return _trace(functions, (), True, core, data, start).jaxpr


def _trace(*arguments: Any) -> Any:
    try:
        return _first_step.trace(*arguments, jax.random.key(0))
    except NameError as error:
        # An axis of agents that is not there would be traffic that nobody counts.
        raise InputError(
            "The step looks at other agents by other means than mix, the only way that is counted.",
            "Replace collectives such as lax.pmean by mix.",
        ) from error


@jitted(static=3)
def _first_step(
    functions: Functions,
    groups: tuple[tuple[str, ...], ...],
    derivatives: bool,
    core: Core,
    data: Tree,
    start: Mapping[str, Tree],
    key: jax.Array,
) -> tuple[Tree, dict[str, Vector], Tree]:
    """The state before the first step, what the method shows of it, and the state after. Only ever
    traced, and once for all numbers of a method."""
    mix = MarkedMix(groups)
    oracle = (MarkedOracle if derivatives else CountedOracle)(functions, data)
    state = core.init(oracle, mix, start)
    step = _marked("step", lambda s: core.step(oracle, mix, s, jnp.int32(0), key))
    return state, core.view(state), step(state)


def _whole(value: float) -> float:
    """The value without rounding errors in its last digits, and an integer where it is one."""
    value = round(value, 12)
    return round(value) if value == round(value) else value


def _count(jaxpr: Any, times: float, marks: Marks, chance: float | None = None) -> None:
    """Add the marks of a traced program, each as often as it is met in a step: `times` is 0 before
    the step begins.

    chance   the probability of the branch that is due, inside `sometimes`
    """
    for equation in jaxpr.eqns:
        name = str(equation.params.get("name", ""))
        mark = name.removeprefix(MARK) if name.startswith(MARK) else ""
        if mark.startswith(SOMETIMES):
            for sub in subprograms(equation.params):
                _count(sub, times, marks, float(mark.removeprefix(SOMETIMES)))
            continue
        if mark and mark != "step":
            marks[mark] += times
            continue
        often = 1 if mark == "step" else times
        if equation.primitive.name == "scan":
            often *= equation.params["length"]
        branches: list[Marks] = []
        for sub in subprograms(equation.params):
            branches.append(defaultdict(float))
            _count(sub, often, branches[-1])
        # Of the branches of a condition only one runs: the one that is due has a known chance, or
        # the most expensive counts.
        weights = [1.0] * len(branches)
        if equation.primitive.name == "cond":
            dear = max(range(len(branches)), key=lambda place: sum(branches[place].values()))
            weights = [float(place == dear) for place in range(len(branches))]
            if chance is not None and len(branches) == 2:
                weights = [1 - chance, chance]
        for branch, weight in zip(branches, weights, strict=True):
            for each, met in branch.items():
                marks[each] += weight * met
