"""What a run was given, as one line of text for each part: all processes must agree on it, and so
must a resumed run. And marks of its data, which only those can compare who have the data.

Functions are compared by what they compute. An objective is traced together with its gradient, and
a method by its first step; the checksum is that of the traced program with every constant in it,
wherever it came from: a closure, a global variable, a default argument, a `functools.partial`, a
leaf of a callable. Another name, comment or layout of the code changes nothing. Functions that a
program calls back on the host (`jax.pure_callback`) count by name only. How a program is traced
depends on the versions of decibo and JAX, so programs are compared between equal versions.

Every process marks the data of its own agents with a key that it draws itself,

    mark of agent i = HMAC-SHA256(key, data of agent i)

and writes both to a file of its own beside the checkpoints, DIR/data-0-4.json, which only its user
may read. No other process sees the marks, and without the key they reveal nothing, not even a
single bit.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm
from decibo.data.stream import Stream
from decibo.errors import CorruptedFileError, InputError, warn
from decibo.files import PRIVATE, read_record, write_record
from decibo.measure.cost import first_step
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.problem.problem import Functions, GradientFunction, Objective, Problem, Sampler
from decibo.pytree import Tree, one_of

PROGRAMS = ("outer", "inner", "sample", "step")  # the parts that are traced programs
PARTS = ("problem", "method", "network", "start", "seed", "measures", *PROGRAMS)
# of an equation's parameters: what a function is called, and where it was traced
UNNAMED = ("name", "ctx_mesh")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
KIND = "decibo data marks"
FORMAT = 1
MARKS = "data-*.json"


def fingerprint(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    seed: int,
    measures: Iterable[str],
    start: Mapping[str, jax.Array],
    data: Tree,
    functions: Functions | None = None,
) -> dict[str, str]:
    """What a run was given, by the names in PARTS.

    data        has the shapes of one agent's
    functions   those of the problem, with what a stream looks like if it has one
    """
    words = settings(problem, network, method, seed, start) | {"measures": ", ".join(measures)}
    return words | programs(problem, method, start, data, functions)


def settings(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    seed: int,
    start: Mapping[str, jax.Array],
) -> dict[str, str]:
    """The parts that need no data."""
    chosen = ", ".join(f"{name}={_setting(value)}" for name, value in method.settings.items())
    return {
        "problem": f"{problem.name}, x {_shapes(problem.x0)}, y {_shapes(problem.y0)}",
        "method": f"{method.name}({chosen})",
        "network": f"{network!r} {digest(*_held(network))}",
        "start": digest(*(np.asarray(rows) for rows in start.values())),
        "seed": str(seed),
    }


def _held(part: Any) -> list[str | np.ndarray]:
    """All that a network consists of, but for the names of its agents."""
    if is_dataclass(part):
        rows = [getattr(part, each.name) for each in fields(part) if each.name != "labels"]
        return [type(part).__name__, *chain.from_iterable(map(_held, rows))]
    if isinstance(part, tuple):
        return [f"{len(part)}:", *chain.from_iterable(map(_held, part))]
    if hasattr(part, "indptr"):  # a sparse matrix
        return [part.indptr, part.indices, part.data]
    return [repr(part)]


def programs(
    problem: Problem,
    method: Algorithm,
    start: Mapping[str, jax.Array],
    data: Tree,
    functions: Functions | None = None,
) -> dict[str, str]:
    """Checksums of the traced programs, by the names in PROGRAMS, for one agent's data of these
    shapes."""
    functions = problem.functions if functions is None else functions
    row = {name: jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype) for name, rows in start.items()}
    step = first_step(functions, data, row, method.core)
    return {
        **_objectives(problem, data, functions.sample),
        "step": digest(*_parts(step), *map(np.asarray, jax.tree.leaves(method.core))),
    }


def software() -> dict[str, str]:
    """The versions that decide how a program is traced and compiled."""
    try:
        own = version("decibo")
    except PackageNotFoundError:  # run from a source tree
        own = "unknown"
    return {"decibo": own, "jax": jax.__version__}


def digest(*parts: str | np.ndarray) -> str:
    """A short checksum of arrays and words."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(part.encode())
        else:
            array = np.ascontiguousarray(part)
            total.update(f"{array.dtype}{array.shape}".encode())
            total.update(array.tobytes())
    return total.hexdigest()[:12]


def _objectives(problem: Problem, data: Tree, sampler: Sampler | None) -> dict[str, str]:
    """Checksums of both objectives with their gradients, and of how minibatches are drawn."""
    outer, inner = _traced(problem, data)
    sample = "none"
    if sampler is not None:
        words = problem.sample.words if isinstance(problem.sample, Stream) else ""
        sample = digest(words, *_parts(jax.make_jaxpr(sampler)(data, jax.random.key(0))))
    return {"outer": digest(*_parts(outer)), "inner": digest(*_parts(inner)), "sample": sample}


def _traced(problem: Problem, data: Tree) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Both objectives, each together with its gradient."""

    def both(value: Objective, gradient: GradientFunction | None) -> ClosedJaxpr:
        found = jax.value_and_grad(value, argnums=(0, 1))
        if gradient is not None:
            found = lambda x, y, d: (value(x, y, d), gradient(x, y, d))
        return jax.make_jaxpr(found)(problem.x0, problem.y0, data)

    return both(problem.outer, problem.outer_gradient), both(problem.inner, problem.inner_gradient)


def same_programs(one: Problem, other: Problem) -> bool:
    """Whether the functions of two problems with data in memory compute the same, whatever they are
    called.

    What is computed on the host is not looked into: such problems never count as the same.
    """
    if (one.x_layout, one.y_layout) != (other.x_layout, other.y_layout):
        return False
    digests = []
    for problem in (one, other):
        agent = one_of(problem.data)
        if any(map(_calls_host, _traced(problem, agent))):
            return False
        closed = "none"
        if problem.inner_solution is not None:
            closed = digest(
                *_parts(jax.make_jaxpr(problem.inner_solution)(problem.x0, problem.data))
            )
        digests.append(
            _objectives(problem, agent, problem.functions.sample) | {"closed form": closed}
        )
    return digests[0] == digests[1]


def _calls_host(program: ClosedJaxpr) -> bool:
    return any(isinstance(part, str) and part.endswith("callback") for part in _parts(program))


def _setting(value: object) -> str:
    """A number as it is, a schedule with its numbers, any other function by its name."""
    if isinstance(value, Partial):
        numbers = ", ".join(str(leaf) for leaf in jax.tree.leaves(value))
        return f"{_name(value.func).lstrip('_')}({numbers})"
    return _name(value) if callable(value) else repr(value)


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _shapes(tree: Tree) -> str:
    leaves = jax.tree.leaves(tree)
    words = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]
    return " ".join([*words, digest(*map(np.asarray, leaves))])


def _parts(value: object) -> Iterator[str | np.ndarray]:
    """A traced program, or a parameter of one of its equations, as words and arrays that are the
    same every time."""
    if isinstance(value, ClosedJaxpr):
        yield from _program(value.jaxpr)  # in later versions of JAX this is the same object
        yield from _parts(list(value.consts))
    elif isinstance(value, Jaxpr):
        yield from _program(value)
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            if name not in UNNAMED:
                yield f"{name}="
                yield from _parts(value[name])
    elif isinstance(value, list | tuple):
        yield f"{len(value)}("
        for item in value:
            yield from _parts(item)
        yield ")"
    elif isinstance(value, set | frozenset):
        yield from _parts(sorted(map(str, value)))
    elif hasattr(value, "__array__") and not isinstance(value, type):
        yield _array(value)
    else:
        yield (_name(value) if callable(value) else ADDRESS.sub("", repr(value))) + ";"


def _program(jaxpr: Jaxpr) -> Iterator[str | np.ndarray]:
    """Its equations, variables numbered as they appear."""
    numbers: dict[Var, int] = {}

    def atoms(found: Iterable[Var | Literal]) -> Iterator[str | np.ndarray]:
        for atom in found:
            if isinstance(atom, Literal):
                yield _array(atom.val)
            else:
                yield f"{numbers.setdefault(atom, len(numbers))}:"
            yield f"{atom.aval};"

    yield from atoms([*jaxpr.constvars, *jaxpr.invars])
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        yield from _parts(equation.params)
        yield from atoms(equation.invars)
        yield "->"
        yield from atoms(equation.outvars)
    yield from atoms(jaxpr.outvars)


def _array(value: object) -> np.ndarray:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


@dataclass(frozen=True, eq=False)
class Marks:
    """The data of this process's agents, and the folder of their marks."""

    folder: Path
    agents: np.ndarray
    data: Tree

    def write(self) -> None:
        """Mark the data of a new run, with a new key."""
        key = secrets.token_bytes(32)
        marks = dict(zip(map(str, self.agents), self._marks(key), strict=True))
        path = self.folder / f"data-{self.agents[0]}-{self.agents[-1]}.json"
        write_record(path, KIND, FORMAT, {"key": key.hex(), "marks": marks}, PRIVATE)

    def clear(self) -> None:
        """Remove all marks and their drafts; for a new run, before any process writes its own."""
        for path in (*self.folder.glob(MARKS), *self.folder.glob(".data-*")):
            path.unlink(missing_ok=True)

    def check(self) -> None:
        """Reject other data than those with which the run began; warn where this cannot be found
        out."""
        # The key and the mark of each agent, as far as this process may read them.
        known: dict[int, tuple[bytes, str]] = {}
        for path in sorted(self.folder.glob(MARKS)):
            # damage, or another version's file, does not mean other data
            with suppress(CorruptedFileError, InputError):
                content = read_record(path, KIND, FORMAT)
                key = bytes.fromhex(content["key"])
                known |= {int(agent): (key, str(mark)) for agent, mark in content["marks"].items()}
        agents = self.agents.tolist()
        for key in {key for key, _ in known.values()}:
            for agent, mark in zip(agents, self._marks(key), strict=True):
                theirs, expected = known.get(agent, (b"", ""))
                if theirs == key and not hmac.compare_digest(expected, mark):
                    raise InputError(
                        f"The run in {self.folder} began with other data of agent {agent}, and a"
                        " run resumes only with the same data.",
                        "Pass the same data, or choose another folder.",
                    )
        unknown = [agent for agent in agents if agent not in known]
        if unknown:
            warn(
                f"Whether agent {unknown[0]} still has the data with which the run in {self.folder}"
                f" began cannot be checked: no file {MARKS} there that this process can read"
                f" knows it ({len(unknown)} such agents)."
            )

    def _marks(self, key: bytes) -> Iterator[str]:
        """The marks of this process's agents, in their order."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.data)]
        return (marked(key, [leaf[row] for leaf in leaves]) for row in range(len(self.agents)))


def marked(key: bytes, arrays: Iterable[np.ndarray]) -> str:
    """The mark of arrays of numbers or words."""
    total = hmac.new(key, digestmod=hashlib.sha256)
    for array in arrays:
        total.update(f"{array.dtype}{array.shape}".encode())
        if array.dtype == object:
            total.update(json.dumps(array.tolist(), default=str).encode())
        else:
            total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
