"""Named methods: `@method` prepares a factory's arguments, records its settings and enters it in CATALOG.

    @method(provenance=READ)
    def dgda(*, alpha: Rate, beta: Rate) -> Algorithm:
        return compose(direction.minimax(), consensus.dgd(), x=alpha, y=beta)

The factory sees every argument annotated `Rate` as a function of the step, and every argument annotated `int` as a
checked integer that is part of the program. That is all it takes to add a method: tests, command line and reference
read CATALOG.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from textwrap import fill
from types import NoneType
from typing import Any, ParamSpec, Protocol, cast, get_args, get_type_hints, overload

import jax

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.schedules import Rate, Schedule, schedule
from decibo.errors import InputError
from decibo.validate import integer

P = ParamSpec("P")

# How sure we are of a rule. Runs were made with exact gradients and a known solution: they confirm where a rule lands,
# not that it is letter for letter the authors'.
READ = "The rule was read in the source."
ABSTRACT = "The paper's abstract confirms the ingredients; the equations are recalled."
RECALLED = "The rule is recalled from the paper and was not compared with it."
INFERRED = "The rule is inferred from what is known of the method."
RUN = "Run on a heterogeneous quadratic, it lands where stated."


class Method(Protocol[P]):
    """A named method: a function from settings to an `Algorithm`.

    provenance   how sure we are that this is the authors' rule
    """

    __name__: str
    provenance: str

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
    """Turn a factory of algorithms into a named method and enter it in CATALOG: `@method`, or with a provenance.

    provenance   how sure we are of the rule, in words; the docstring ends with it
    """

    def name(factory: Callable[P, Algorithm]) -> Method[P]:
        signature = inspect.signature(factory)
        kinds = get_type_hints(factory)

        @wraps(factory)
        def make(*args: P.args, **kwargs: P.kwargs) -> Algorithm:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            settings = dict(bound.arguments)
            for name, value in settings.items():
                bound.arguments[name] = _prepared(name, kinds.get(name), value)
            algorithm = factory(*bound.args, **bound.kwargs)
            return replace(algorithm, name=factory.__name__, settings=settings, factory=make)

        if provenance:
            make.__doc__ = f"{inspect.cleandoc(factory.__doc__ or '')}\n\n{fill(f'Provenance: {provenance}', 110)}"
        return _entered(cast("Method[P]", make), provenance)

    return name if factory is None else name(factory)


def _prepared(name: str, kind: Any, value: Any) -> Any:
    """An argument as the factory sees it: rates as schedules, integers checked and static."""
    options = get_args(kind)
    if Schedule in options:
        return None if value is None and NoneType in options else schedule(name, cast("Rate", value))
    return Count(integer(name, value)) if kind is int else value


def _entered(named: Method[P], provenance: str) -> Method[P]:
    """A notebook may define its own method again; nobody may replace another module's."""
    known = CATALOG.get(named.__name__)
    if known is not None and known.__module__ != named.__module__:
        raise InputError(f"There is a method called {named.__name__} in {known.__module__} already.", "Rename yours.")
    named.provenance = provenance
    CATALOG[named.__name__] = named
    return named
