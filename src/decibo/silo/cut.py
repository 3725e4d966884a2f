"""A step of one agent as compiled pieces, with the host in between wherever the step mixes.

The step is traced once. If all its exchanges stand at the top level of the program, the program is cut there,

    piece 0 | sent | piece 1 | sent | ... | piece n

and every piece is compiled; the host runs them one after another and carries out each exchange itself, so that waiting
for a neighbour can be interrupted, and ends in an exception that says who is missing. Where an exchange stands inside a
loop or a branch of the program (a `lax.scan` of inner steps), the step is compiled as a whole and calls the host back.

Pieces are the same for all sites whose data have the same shapes, and are kept, so that the same bits come out again
after a restart within a process; a new process compiles the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Atom
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from decibo.measure.cost import subprograms
from decibo.pytree import Tree
from decibo.silo.mix import sent

Exchanged = Callable[[np.ndarray], np.ndarray]  # what this site says -> rows, its own first


class Piece(NamedTuple):
    """A compiled part of a program, and what the host does after it.

    takes, gives   numbers of values; the host keeps the values of all pieces by number
    says, hears    the value that is sent after the piece, and where what arrives is put; None after the last
    """

    run: Callable[..., Sequence[jax.Array]]
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    says: int | None
    hears: int | None


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

    def __call__(self, exchange: Exchanged, *arguments: Tree) -> Tree:
        """Run it; `exchange` carries what is said between pieces."""
        values = self.fixed | dict(zip(self.ins, jax.tree.leaves(arguments), strict=True))
        for piece in self.pieces:
            made = piece.run(*[values[number] for number in piece.takes])
            values.update(zip(piece.gives, made, strict=True))
            if piece.says is not None and piece.hears is not None:
                values[piece.hears] = exchange(np.asarray(values[piece.says]))
        return jax.tree.unflatten(self.structure, [values[number] for number in self.outs])


def traced(function: Callable[..., Tree], *arguments: Tree) -> tuple[ClosedJaxpr, Any]:
    """The program of a function, and the structure of its result."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return closed, jax.tree.structure(shape)


def is_flat(jaxpr: Jaxpr) -> bool:
    """Whether all exchanges of a program stand at its top level."""
    inside = [sub for equation in jaxpr.eqns for sub in subprograms(equation.params)]
    return not any(messages(sub) for sub in inside)


def messages(jaxpr: Jaxpr) -> list[tuple[float, int]]:
    """The exchanges of a program: how often each is made, loops as often as they run, and how many numbers it sends.

    A loop without a fixed length counts once, and of the branches of a condition all of them.
    """
    found: list[tuple[float, int]] = []
    for equation in jaxpr.eqns:
        if equation.primitive is sent:
            found.append((1, int(np.prod(_shape(equation.invars[0])))))
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for sub in subprograms(equation.params):
            found += [(times * often, numbers) for often, numbers in messages(sub)]
    return found


def cut(closed: ClosedJaxpr, structure: Any) -> Pieces:
    """A program whose exchanges stand at its top level, in compiled pieces."""
    jaxpr = closed.jaxpr
    numbers: dict[Var, int] = {}
    number = lambda var: numbers.setdefault(var, len(numbers))
    groups: list[list[JaxprEqn]] = [[]]
    exchanges: list[JaxprEqn | None] = []
    for equation in jaxpr.eqns:
        if equation.primitive is sent:
            exchanges.append(equation)
            groups.append([])
        else:
            groups[-1].append(equation)
    exchanges.append(None)
    ins = tuple(map(number, jaxpr.invars))
    fixed = dict(zip(map(number, jaxpr.constvars), closed.consts, strict=True))
    outs = [-1 - place if isinstance(var, Literal) else number(var) for place, var in enumerate(jaxpr.outvars)]
    fixed |= {-1 - place: var.val for place, var in enumerate(jaxpr.outvars) if isinstance(var, Literal)}
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    pieces: list[Piece] = []
    for equations, exchange in zip(reversed(groups), reversed(exchanges), strict=True):  # a piece gives what is needed
        if exchange is not None:
            needed = (needed - set(exchange.outvars)) | _read([exchange])
        pieces.append(_piece(jaxpr, equations, needed, exchange, number))
        made = {var for equation in equations for var in equation.outvars}
        needed = (needed | _read(equations)) - made
    return Pieces(tuple(reversed(pieces)), ins, tuple(outs), fixed, structure)


def opening(closed: ClosedJaxpr) -> Callable[..., jax.Array]:
    """What a program says in its first exchange, as a compiled program of its own that computes nothing else."""
    jaxpr = closed.jaxpr
    place = next(place for place, equation in enumerate(jaxpr.eqns) if equation.primitive is sent)
    ins = [*jaxpr.constvars, *jaxpr.invars]
    said = jaxpr.eqns[place].invars[0]
    part = jaxpr.replace(constvars=[], invars=ins, outvars=[said], eqns=jaxpr.eqns[:place])
    run = jax.jit(jaxpr_as_fun(ClosedJaxpr(part, [])))
    return lambda *arguments: run(*closed.consts, *jax.tree.leaves(arguments))[0]


def _piece(
    jaxpr: Jaxpr,
    equations: list[JaxprEqn],
    needed: set[Var],
    exchange: JaxprEqn | None,
    number: Callable[[Var], int],
) -> Piece:
    made = {var for equation in equations for var in equation.outvars}
    gives = sorted(made & needed, key=number)
    takes = sorted(_read(equations) - made, key=number)
    part = jaxpr.replace(constvars=[], invars=takes, outvars=gives, eqns=equations)
    said = exchange.invars[0] if exchange is not None else None
    assert not isinstance(said, Literal)  # literals are scalars, and a message is a vector
    return Piece(
        jax.jit(jaxpr_as_fun(ClosedJaxpr(part, []))),
        tuple(map(number, takes)),
        tuple(map(number, gives)),
        None if said is None else number(said),
        None if exchange is None else number(exchange.outvars[0]),
    )


def _shape(atom: Atom) -> tuple[int, ...]:
    return getattr(atom.aval, "shape", ())


def _read(equations: list[JaxprEqn]) -> set[Var]:
    """The values that some equations use."""
    return {var for equation in equations for var in equation.invars if not isinstance(var, Literal)}
