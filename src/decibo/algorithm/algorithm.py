"""An algorithm is a pair of pure functions of ONE agent, `init` and `step`; a method is an
algorithm with a name.

    state = init(oracle, mix, start)                 start: {"x": vector, "y": vector, ...}
    state = step(oracle, mix, state, k, key)         k: the step, key: this agent's own randomness

`oracle` is what the agent can compute alone. `mix(tree)` returns sum_j w_ij tree_j and is the only
way to see another agent, so that being decentralised is a matter of the signature.

    @method(provenance=READ)
    def dgda(*, alpha: StepSize, beta: StepSize) -> Algorithm:
        return compose(direction.minimax(), consensus.dgd(), x=alpha, y=beta)

`@method` prepares a factory's arguments and records its settings. The factory sees every argument
annotated `Rate` as a function of the step, one annotated `StepSize` as that or as a rule, and every
`int` as a checked integer that is part of the program. Methods of this package are also entered in
CATALOG, and that is all it takes to add one: tests, command line and reference read CATALOG.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from textwrap import fill
from types import NoneType, SimpleNamespace
from typing import (
    Any,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    overload,
)

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.direction import Direction
from decibo.algorithm.rule import Rule, as_rule, is_rule
from decibo.algorithm.schedules import Rate, Schedule, number, schedule, unless_traced
from decibo.capabilities import BY_DEFAULT, Needs
from decibo.errors import InputError, short_repr
from decibo.formatting import format_setting, in_notebook
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector
from decibo.validate import at_least, integer, only_known

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Core:
    """What a compiled program needs of an algorithm, as one pytree whose leaves are the numbers it
    holds."""

    init: Partial
    step: Partial
    view: Partial
    direction: Direction | None
    chosen: Partial | None
    rest: Partial | None
    answer: str = field(metadata={"static": True})


def fields_of(state: Tree) -> dict[str, Vector]:
    """All fields of a state that is a NamedTuple of vectors: the default view."""
    return state._asdict()


class Theory(NamedTuple):
    """What is proved of a method.

    bias      how far a penalty keeps it from the solution: "1/lam", "1/lam^2", "1/c", or None if
              exact
    theorem   which statement covers it: "Theorem 1" or "Corollary 2" of the paper, "Theorem B" of
              docs/explanation/theorem.md, or None
    """

    bias: str | None = None
    theorem: str | None = None


UNPROVED = Theory()


@dataclass(frozen=True, eq=False)
class Algorithm:
    """`init` and `step` of one agent, and `view`: which part of a state is x, y, z, ...

    init, step and view may be plain functions, or `jax.tree_util.Partial`s of module-level
    functions: numbers held by a Partial (step sizes, lam) can change without compiling again. The
    rest is declared: what a method needs of a network or a problem, and what is known about it.

    name            what reports call it
    settings        what its factory was called with; `replace` calls the factory again
    needs       what network, problem and runtime must give, `decibo.capabilities.Need`
    sampled     what `minibatch` uses in its place, if noise in gradients asks for something else
    masks       for each variable, the size of what neighbours add to its direction, one +, the
                other -
    direction   what it follows, if it is a direction times a consensus strategy
    answer      the variable of the view that answers for y*(x)
    chosen      for a method that finds step sizes itself: which ones a state of one agent has come
                to
    rest        for a method that can tell: by how much an agent in this state would still move
    theory      what is proved of it
    """

    init: Callable[..., Tree]
    step: Callable[..., Tree]
    view: Callable[[Tree], dict[str, Vector]] = fields_of
    name: str = "algorithm"
    settings: dict[str, Any] = field(default_factory=dict)
    factory: Callable[..., Algorithm] | None = None
    needs: Needs = BY_DEFAULT
    sampled: Algorithm | None = None
    masks: dict[str, float] = field(default_factory=dict)
    direction: Direction | None = None
    answer: str = "y"
    chosen: Callable[[Tree], dict[str, jax.Array]] | None = None
    rest: Callable[[Tree], jax.Array] | None = None
    theory: Theory = UNPROVED

    def __post_init__(self) -> None:
        _ = self.core

    @cached_property
    def core(self) -> Core:
        """The functions and the direction as one pytree."""
        parts = [
            part if part is None or isinstance(part, Partial) else Partial(part)
            for part in (self.init, self.step, self.view, self.chosen, self.rest)
        ]
        init, step, view, chosen, rest = cast("list[Any]", parts)
        return Core(init, step, view, self.direction, chosen, rest, self.answer)

    @property
    def step_sizes(self) -> tuple[str, ...]:
        """The settings that are step sizes or penalties: what to lower when a run diverges."""
        return getattr(self.factory, "step_sizes", ())

    def replace(self, **settings: Any) -> Algorithm:
        """The same method with some settings changed: `method.replace(alpha=1e-3)`."""
        if self.factory is None:
            raise InputError(
                f"{self.name} was not created by a named method and has no settings.",
                "Construct a new one.",
            )
        only_known(self.name, "setting", settings, self.settings)
        return self.factory(**{**self.settings, **settings})

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={format_setting(number(value), literal=True)}"
            for name, value in self.settings.items()
            if value is not None
        )
        return f"{self.name}({shown})"


Settings = Any  # what a step reads its settings from, by their names


def by_name(
    step: Callable[[Oracle, Mix, Tree, Settings], Tree], rates: Mapping[str, Rate], **rest: Tree
) -> Partial:
    """The step of a method that is not composed: step(oracle, mix, state, p), where p.alpha is the
    number that the rate alpha has at this step, and p.k the step.

    rest   whatever else the step needs, as it is: a pytree, whose numbers may be traced
    """
    return Partial(ByName(step), {name: schedule(name, rate) for name, rate in rates.items()}, rest)


@dataclass(frozen=True)
class ByName:
    """What `by_name` makes of a step; equal for equal steps, so that programs are shared."""

    step: Callable[[Oracle, Mix, Tree, Settings], Tree]

    def __call__(
        self,
        rates: dict[str, Schedule],
        rest: dict[str, Any],
        oracle: Oracle,
        mix: Mix,
        state: Tree,
        k: jax.Array,
        key: jax.Array,
    ) -> Tree:
        # A rate may be a strongly typed array, which would widen what it multiplies: it gets the
        # narrowest type of the state, so that the carry of a loop keeps its own.
        kinds = {leaf.dtype for leaf in jax.tree.leaves(state)}
        dtype = min(
            (kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)),
            key=lambda kind: kind.itemsize,
        )
        now = {name: jnp.asarray(rate(k), dtype) for name, rate in rates.items()}
        return self.step(oracle, mix, state, SimpleNamespace(k=k, **now, **rest))


def repeat(count: int, once: Callable[[T], T], state: T) -> T:
    """`once`, so many times; a loop whose length is part of the program, and so of its cost."""
    return lax.scan(lambda state, _: (once(state), None), state, length=count)[0]


P = ParamSpec("P")

# How sure we are of a rule. Runs were made with exact gradients and a known solution: they confirm
# where a rule lands, not that it is letter for letter the authors'.
READ = "The rule was read in the source of the paper."
ABSTRACT = "The paper's abstract confirms the ingredients; the equations are recalled."
RECALLED = "The rule is recalled from the paper and was not compared with it."
INFERRED = "The rule is inferred from what is known of the method."
RUN = "On a heterogeneous quadratic, runs end where the description says."


class Method(Protocol[P]):
    """A named method: a function from settings to an `Algorithm`.

    provenance   how sure we are that this is the authors' rule
    step_sizes   which of its settings are step sizes or penalties
    """

    __name__: str
    provenance: str
    step_sizes: tuple[str, ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Algorithm: ...


CATALOG: dict[str, Method[...]] = {}


@jax.tree_util.register_static
class Count(int):
    """An integer that is part of the program, such as the length of a loop: it is never traced."""


@overload
def method(factory: Callable[P, Algorithm], /) -> Method[P]: ...


@overload
def method(*, provenance: str) -> Callable[[Callable[P, Algorithm]], Method[P]]: ...


def method(factory: Any = None, /, *, provenance: str = "") -> Any:
    """Turn a function of settings that returns an `Algorithm` into a named method:
    `@decibo.method`.

    Its settings can then be replaced, swept and compared, and set in a configuration. Annotations
    say what they are:

    Rate           a positive number or a function of the step; the function receives it as a
                   function of the step
    StepSize       the same, or a rule such as `decibo.rule.adam()`, for step sizes that are passed
                   on to `compose`
    Rate | None    the same, or None, which is passed on
    int            a positive integer that is part of the program, such as the length of a loop
    float          a finite number

    All else is passed as it is. The first two are `decibo.schedules.Rate` and
    `decibo.rule.StepSize`.

    provenance     how sure we are of the rule, in words; the docstring ends with it
    """

    def name(factory: Callable[P, Algorithm]) -> Method[P]:
        signature = inspect.signature(factory)
        kinds = get_type_hints(factory)
        named = get_type_hints(factory, include_extras=True)  # tells Rate from Weight
        step_sizes = tuple(
            name
            for name, kind in named.items()
            if kind == kinds[name] and Schedule in get_args(kind)
        )

        @wraps(factory)
        def make(*args: P.args, **kwargs: P.kwargs) -> Algorithm:
            try:
                bound = signature.bind_partial(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{factory.__name__} {error}.") from None
            absent = [
                each.name
                for each in signature.parameters.values()
                if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
                and each.default is each.empty
                and each.name not in bound.arguments
            ]
            if absent:
                raise TypeError(
                    f"{factory.__name__} needs {', '.join(f'{name}=...' for name in absent)}."
                )
            bound.apply_defaults()
            # Optax's transformations, which are functions without a name, are shown as rules.
            settings = {
                name: as_rule("", value) if is_rule(value) else value
                for name, value in bound.arguments.items()
            }
            for name, value in settings.items():
                bound.arguments[name] = _prepared(name, kinds.get(name), value)
            algorithm = factory(*bound.args, **bound.kwargs)
            if not isinstance(algorithm, Algorithm):
                raise InputError(
                    f"{factory.__name__} must return a decibo.Algorithm, but it returned"
                    f" {short_repr(algorithm)}."
                )
            # what a factory has settled itself is shown, too
            settings |= algorithm.settings
            return replace(algorithm, name=factory.__name__, settings=settings, factory=make)

        if provenance:
            words = fill(f"Provenance: {provenance}", 100)
            make.__doc__ = f"{inspect.cleandoc(factory.__doc__ or '')}\n\n{words}"
        named_method = cast("Method[P]", make)
        named_method.step_sizes = step_sizes
        return _entered(named_method, provenance)

    return name if factory is None else name(factory)


def _prepared(name: str, kind: Any, value: Any) -> Any:
    """An argument as the factory sees it: rates as schedules or rules, integers checked and
    static."""
    options = get_args(kind)
    if Schedule in options:
        if value is None and NoneType in options:
            return None
        return (
            as_rule(name, cast("Rule", value))
            if Rule in options and is_rule(value)
            else schedule(name, cast("Rate", value))
        )
    if kind is float or (float in options and value is not None):
        return unless_traced(at_least, name, value, -math.inf)
    return Count(integer(name, value)) if kind is int else value


def _entered(named: Method[P], provenance: str) -> Method[P]:
    """The catalogue has the methods of the core; others, and contrib's, may have any name."""
    named.provenance = provenance
    if not named.__module__.startswith("decibo.algorithm."):
        return named
    known = CATALOG.get(named.__name__)
    if known is not None and known.__module__ != named.__module__:
        raise InputError(
            f"A method called {named.__name__} already exists in {known.__module__}.",
            "Rename yours.",
        )
    CATALOG[named.__name__] = named
    return named
