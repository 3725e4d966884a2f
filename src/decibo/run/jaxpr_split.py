"""A program as compiled pieces, with the host in between.

The program is traced once. If all equations at which the host has something to do, the stops, stand
at its top level, the program is cut there,

    piece 0 | stop | piece 1 | stop | ... | piece n

and every piece is compiled; the host runs them one after another and computes what comes out of
each stop itself. A site exchanges messages so: waiting for a neighbour can be interrupted, and ends
in an exception that says who is missing. Gradients from outside JAX are computed so: arrays stay on
the device where they are. Where a stop stands inside a loop or a branch of the program (a
`lax.scan` of inner steps), the program is compiled as a whole and calls the host back.

Pieces are the same for all arguments of the same shapes, and callers cache them, so that the same
bits come out again after a restart within a process; a new process compiles the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.core import Atom
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from decibo.programs import subprograms
from decibo.pytree import Tree

At = Callable[[JaxprEqn], bool]  # whether an equation is a stop
Host = Callable[..., Sequence[Any]]  # (stop, values that go in) -> values that come out


class Piece(NamedTuple):
    """A compiled part of a program, and what the host does after it.

    takes, gives   numbers of values; the host keeps the values of all pieces by number
    stop           the equation after the piece; None after the last
    ins, outs      the values that go into the stop, and where those that come out are put
    """

    run: Callable[..., Sequence[jax.Array]]
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    stop: JaxprEqn | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]


class Pieces(NamedTuple):
    """A program in pieces.

    ins, outs   numbers of the values that go in and come out
    fixed       values that are always the same
    """

    pieces: tuple[Piece, ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    fixed: dict[int, Any]
    structure: Any  # of the result; JAX has no type for it

    def __call__(self, host: Host, *arguments: Tree) -> Tree:
        """Run it; `host` does what is to be done between pieces."""
        values = self.fixed | dict(zip(self.ins, jax.tree.leaves(arguments), strict=True))
        for piece in self.pieces:
            if piece.gives:
                made = piece.run(*[values[number] for number in piece.takes])
                values.update(zip(piece.gives, made, strict=True))
            if piece.stop is not None:
                found = host(piece.stop, *[values[number] for number in piece.ins])
                values.update(zip(piece.outs, found, strict=True))
        return jax.tree.unflatten(self.structure, [values[number] for number in self.outs])


def traced(function: Callable[..., Tree], *arguments: Tree) -> tuple[ClosedJaxpr, Any]:
    """The program of a function, and the structure of its result."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return closed, jax.tree.structure(shape)


def types(arguments: Tree) -> tuple[Any, tuple[Any, ...]]:
    """The structure of the arguments of a program, and the types of their leaves: what a traced
    program depends on."""
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple(map(jax.typeof, leaves))


def shapes(structure: Any, kinds: tuple[Any, ...]) -> Tree:
    """Arguments of these types, to trace with."""
    found = [
        jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type) for each in kinds
    ]
    return jax.tree.unflatten(structure, found)


def is_flat(jaxpr: Jaxpr, at: At) -> bool:
    """Whether all stops of a program stand at its top level."""
    inside = [sub for equation in jaxpr.eqns for sub in subprograms(equation.params)]
    return not any(stops(sub, at) for sub in inside)


def stops(jaxpr: Jaxpr, at: At) -> list[tuple[float, JaxprEqn]]:
    """The stops of a program and how often each is met, loops as often as they run.

    A loop without a fixed length counts once, and of the branches of a condition all of them.
    """
    found: list[tuple[float, JaxprEqn]] = []
    for equation in jaxpr.eqns:
        if at(equation):
            found.append((1, equation))
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for sub in subprograms(equation.params):
            found += [(times * often, stop) for often, stop in stops(sub, at)]
    return found


def cut(closed: ClosedJaxpr, structure: Any, at: At) -> Pieces:
    """A program whose stops stand at its top level, in compiled pieces."""
    jaxpr = closed.jaxpr
    numbers: dict[Var, int] = {}
    fixed: dict[int, Any] = {}

    def number(atom: Atom) -> int:
        if isinstance(atom, Literal):
            fixed[-1 - len(fixed)] = atom.val
            return -len(fixed)
        return numbers.setdefault(atom, len(numbers))

    groups: list[list[JaxprEqn]] = [[]]
    ends: list[JaxprEqn | None] = []
    for equation in jaxpr.eqns:
        if at(equation):
            ends.append(equation)
            groups.append([])
        else:
            groups[-1].append(equation)
    ends.append(None)
    ins = tuple(map(number, jaxpr.invars))
    outs = tuple(map(number, jaxpr.outvars))
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    pieces: list[Piece] = []
    # From the last to the first: a piece gives what is needed after it.
    for equations, stop in zip(reversed(groups), reversed(ends), strict=True):
        if stop is not None:
            needed = (needed - set(stop.outvars)) | _read([stop])
        made = {var for equation in equations for var in equation.outvars}
        gives = sorted(made & needed, key=number)
        takes = sorted(_read(equations) - made, key=number)
        part = jaxpr.replace(constvars=[], invars=takes, outvars=gives, eqns=equations)
        pieces.append(
            Piece(
                jax.jit(jaxpr_as_fun(ClosedJaxpr(part, []))),
                tuple(map(number, takes)),
                tuple(map(number, gives)),
                stop,
                () if stop is None else tuple(map(number, stop.invars)),
                () if stop is None else tuple(map(number, stop.outvars)),
            )
        )
        needed = (needed | _read(equations)) - made
    constants = dict(zip(map(number, jaxpr.constvars), closed.consts, strict=True))
    return Pieces(tuple(reversed(pieces)), ins, outs, fixed | constants, structure)


def opening(closed: ClosedJaxpr, at: At) -> Callable[..., jax.Array]:
    """What goes into the first stop of a program, as a compiled program of its own that computes
    nothing else."""
    jaxpr = closed.jaxpr
    place = next(place for place, equation in enumerate(jaxpr.eqns) if at(equation))
    ins = [*jaxpr.constvars, *jaxpr.invars]
    sent = jaxpr.eqns[place].invars[0]
    part = jaxpr.replace(constvars=[], invars=ins, outvars=[sent], eqns=jaxpr.eqns[:place])
    run = jax.jit(jaxpr_as_fun(ClosedJaxpr(part, [])))
    return lambda *arguments: run(*closed.consts, *jax.tree.leaves(arguments))[0]


def _read(equations: list[JaxprEqn]) -> set[Var]:
    """The values that some equations use."""
    return {
        var for equation in equations for var in equation.invars if not isinstance(var, Literal)
    }
