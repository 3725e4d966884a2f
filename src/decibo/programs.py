"""Compiled programs that do not keep the user's functions alive.

jax.jit holds static arguments as long as it lives, and with them whatever an objective closes
over. Here each program, which is named by what it depends on, has a jitted function of its own. It
knows the user's functions by weak references, and when one of them is gone, so are the jitted
function and what was compiled for it. As long as the functions live, an equal program finds what
was compiled. And what a traced program has inside.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import partial, update_wrapper
from types import FunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import jax

# The type of jitted functions, the last one, has no public name.
FUNCTIONS = (FunctionType, MethodType, partial, type(jax.jit(lambda: None)))
P = ParamSpec("P")
T = TypeVar("T")


class Weak(weakref.ref):
    """A function that is known as long as somebody else holds it; equal to those of the same
    function."""

    __slots__ = ("__weakref__",)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        # whoever runs a program has its functions
        return super().__call__()(*arguments, **options)  # pyright: ignore[reportOptionalCall]


class WeakMethod(weakref.WeakMethod):
    """The same of a bound method, which is made whenever it is asked for: what lives is its
    object."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return super().__call__()(*arguments, **options)  # pyright: ignore[reportOptionalCall]


def weak(value: Any) -> Any:
    """The same with weak references in place of functions, in tuples of tuples. Objects that are
    compared by what they hold stay as they are."""
    if isinstance(value, tuple):
        parts = map(weak, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not isinstance(value, FUNCTIONS):
        return value
    found = WeakMethod(value) if isinstance(value, MethodType) else Weak(value)
    hash(found)  # while it can be computed; the reference remembers it
    return found


class Jitted(Generic[P, T]):
    """jit(function) of which the first arguments, so many as `static` says, name the program."""

    def __init__(self, function: Callable[P, T], static: int = 1, **options: Any):
        self.function = function
        self.static = static
        self.options = options
        self.programs: dict[Hashable, Any] = {}
        update_wrapper(self, function)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> T:
        return self.of(arguments)(*arguments[self.static :], **named)

    def lower(self, *arguments: Any, **named: Any) -> jax.stages.Lowered:
        """As the method of a jitted function."""
        return self.of(arguments).lower(*arguments[self.static :], **named)

    def trace(self, *arguments: Any, **named: Any) -> Any:
        """As the method of a jitted function."""
        return self.of(arguments).trace(*arguments[self.static :], **named)

    def compiled(self) -> int:
        """How many compiled programs there are."""
        return sum(program._cache_size() for program in self.programs.values())

    def of(self, arguments: tuple[Any, ...]) -> Any:
        """The jitted function of one program."""
        program = weak(arguments[: self.static])
        found = self.programs.get(program)
        if found is None:
            found = jax.jit(partial(self.function, *program), **self.options)
            self.programs[program] = found
            for part in jax.tree.leaves(program):
                if isinstance(part, Weak | WeakMethod):
                    owner = weakref.ref.__call__(part)  # of a method its object
                    # At exit there is nothing left to save, and JAX may be gone before.
                    weakref.finalize(owner, self.programs.pop, program, None).atexit = False
        return found


def jitted(static: int = 1, **options: Any) -> Callable[[Callable[P, T]], Jitted[P, T]]:
    """jit as a decorator, for functions whose first arguments name the program."""
    return lambda function: Jitted(function, static, **options)


def subprograms(params: dict[str, Any]) -> list[Any]:
    """The programs inside an equation, such as the body of a loop."""
    listed = [value if isinstance(value, tuple | list) else (value,) for value in params.values()]
    programs = [getattr(item, "jaxpr", item) for items in listed for item in items]
    return [program for program in programs if hasattr(program, "eqns")]
