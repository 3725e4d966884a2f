"""Many runs in one compiled program: lanes that differ in method settings, network or start, one problem.

A lane that stops being finite does not stop the others; from there on its records are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.execute import loop
from decibo.execute.solve import _variables
from decibo.execute.start import Start, starting_rows
from decibo.layout import Tree
from decibo.measure.measures import Measure, Snapshot
from decibo.network.network import Network
from decibo.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Sweep:
    """What lanes left behind: steps (records,), each measure (lanes, records, ...), finite (lanes,)."""

    steps: np.ndarray
    rows: dict[str, np.ndarray]
    finite: np.ndarray


def mean_y(s: Snapshot) -> jax.Array:
    """ybar, from which accuracy and losses are computed afterwards."""
    return s.mean("y")


def mean_x(s: Snapshot) -> jax.Array:
    """xbar."""
    return s.mean("x")


def sweep(
    problem: Problem,
    network: Network | Sequence[Network],
    method: Algorithm | Sequence[Algorithm],
    *,
    steps: int,
    every: int,
    measures: Mapping[str, Measure],
    start: Start | Sequence[Start] = None,
    seed: int = 0,
) -> Sweep:
    """Run all lanes; whichever of network, method and start is a list has one entry for each lane."""
    lanes, world, axes, rows = _worlds(problem, network, method, start, seed)
    program = loop.Program(problem.functions, tuple(measures.items()), ())
    records = steps // every
    seen, finite = _together(program, axes, world, rows, records, every)
    host = {name: np.asarray(leaf) for name, leaf in jax.device_get(seen).items()}
    return Sweep(np.arange(records + 1) * every, host, np.asarray(finite).reshape(lanes))


@partial(jax.jit, static_argnames=("program", "axes", "records", "every"))
def _together(
    program: loop.Program, axes: tuple, world: loop.World, start: Tree, records: int, every: int
) -> tuple[dict[str, jax.Array], jax.Array]:
    """All lanes at once."""
    core, mixing, first = axes
    over: Any = loop.World(core, mixing, *(None,) * 4)  # type: ignore[arg-type]
    one = lambda w, s: path(program, w, s, records, every)
    if core is mixing is first is None:
        seen, finite = one(world, start)
        return jax.tree.map(lambda leaf: leaf[None], seen), finite[None]
    return jax.vmap(one, in_axes=(over, first))(world, start)


def path(
    program: loop.Program, world: loop.World, start: Tree, records: int, every: int
) -> tuple[dict[str, jax.Array], jax.Array]:
    """One lane: the measures before the first step and after each `every` steps, and whether all stayed finite."""
    state = loop.begin(program, world, start)

    def segment(carry: tuple[Tree, jax.Array], at: jax.Array) -> tuple[Any, Any]:
        state, finite = carry
        state = lax.fori_loop(0, every, lambda i, s: loop.step(program, world, s, at * every + i), state)
        return (state, finite & loop.all_finite(state)), loop.observe(program, world, state, (at + 1) * every)

    first = loop.observe(program, world, state, jnp.int32(0))
    (_, finite), seen = lax.scan(segment, (state, loop.all_finite(state)), jnp.arange(records, dtype=jnp.int32))
    return {name: jnp.concatenate([first[name][None], seen[name]]) for name in seen}, finite


def single(problem: Problem, network: Network, method: Algorithm, start: Start = None) -> tuple[loop.World, Tree]:
    """World and starting rows of one run, for code that times it."""
    _, world, _, rows = _worlds(problem, network, method, start, 0)
    return world, rows


def _worlds(problem: Problem, network: Any, method: Any, start: Any, seed: int) -> tuple[int, loop.World, tuple, Tree]:
    parts = {"network": network, "method": method, "start": start}
    lists = {name: list(value) for name, value in parts.items() if isinstance(value, Sequence)}
    sizes = {name: len(value) for name, value in lists.items()}
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise InputError(f"lanes: {sizes}", "lists must have one entry for each lane", "Make them equally long.")
    one = lambda name: lists[name][0] if name in lists else parts[name]
    data = problem.local(range(one("network").m))
    variables = _variables(problem.functions, data, one("method").core)
    known = {name: jnp.ravel(jnp.asarray(tree)) for name, tree in (problem.solution or {}).items()}
    core, over_core = _stacked(lists, "method", lambda a: a.core, one)
    mixing, over_mixing = _stacked(lists, "network", lambda n: n.mixing("dense"), one)
    rows, over_rows = _stacked(lists, "start", lambda s: starting_rows(problem, one("network").m, s, variables), one)
    world = loop.World(core, mixing, data, jax.random.key(seed), known, {})
    return next(iter(sizes.values()), 1), world, (over_core, over_mixing, over_rows), rows


def _stacked(lists: dict[str, list], name: str, of: Any, one: Any) -> tuple[Tree, int | None]:
    """What lanes share, or their own stacked along a first axis, and that axis."""
    if name not in lists:
        return of(one(name)), None
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *map(of, lists[name])), 0
