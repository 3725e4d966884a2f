"""Where a run starts: the problem's own point, given points, or points drawn at random from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.pytree import Layout, Tree


@dataclass(frozen=True)
class RandomStart:
    """Starting points drawn from normal distributions around x0 and y0. Made by `random_start`."""

    seed: int
    scale: dict[str, float]
    common: bool


def random_start(seed: int, scale: float | Mapping[str, float] = 1.0, *, common: bool = False) -> RandomStart:
    """A random start: x0 and y0 plus `scale` times standard normal numbers.

    scale   one number for x and y (then z starts where y does), or one for each variable: {"x": 0.0, "y": 1.0,
            "z": 1.0} leaves x at x0 and draws y and z independently
    common  whether all agents start at the same point
    """
    scales = dict(scale) if isinstance(scale, Mapping) else {"x": scale, "y": scale}
    for name, value in scales.items():
        if not (isinstance(value, int | float) and np.isfinite(value) and value >= 0):
            raise InputError(
                f"scale of {name} = {value!r}", "it must be a finite number >= 0", "Give 1.0, for example."
            )
    return RandomStart(seed, {name: float(value) for name, value in scales.items()}, common)


Start = Mapping[str, Tree] | RandomStart | None


def starting_rows(problem: Problem, m: int, start: Start, variables: tuple[str, ...]) -> dict[str, jax.Array]:
    """The starting point of every agent: rows for x and y always, for other variables where they were given."""
    layouts = {name: problem.x_layout if name == "x" else problem.y_layout for name in {"x", "y", *variables}}
    base = {
        name: problem.x_layout.ravel(problem.x0) if name == "x" else problem.y_layout.ravel(problem.y0)
        for name in layouts
    }
    rows = {name: jnp.broadcast_to(base[name], (m, *base[name].shape)) for name in ("x", "y")}
    if start is None:
        return rows
    given = start.scale if isinstance(start, RandomStart) else start
    if not isinstance(given, Mapping):
        raise InputError(
            f"start = {start!r}", "it must be a dictionary of stacked points or a random_start", "Give one."
        )
    unknown = sorted(set(given) - set(layouts))
    if unknown:
        raise InputError(
            f"start for {', '.join(unknown)}",
            f"this method starts {', '.join(sorted(layouts))}",
            "Leave it out.",
        )
    if isinstance(start, RandomStart):
        return rows | {name: _drawn(start, name, base[name], m) for name in given}
    return rows | {name: _given(name, layouts[name], tree, m) for name, tree in given.items()}


def _drawn(start: RandomStart, name: str, base: jax.Array, m: int) -> jax.Array:
    key = jax.random.fold_in(jax.random.key(start.seed), sum(map(ord, name)))
    noise = jax.random.normal(key, (1 if start.common else m, base.size), base.dtype)
    return jnp.broadcast_to(base + start.scale[name] * noise, (m, base.size))


def _given(name: str, layout: Layout, tree: Tree, m: int) -> jax.Array:
    wanted = jax.tree.unflatten(layout.treedef, [(m, *shape) for shape in layout.shapes])
    leaves, treedef = jax.tree.flatten(tree)
    found = [np.shape(leaf) for leaf in leaves]
    if treedef != layout.treedef or found != [(m, *shape) for shape in layout.shapes]:
        raise InputError(
            f"start[{name!r}] has shapes {jax.tree.unflatten(treedef, found)}",
            f"it must have one point for each of the {m} agents: {wanted}",
            "Stack the agents' points along a new first axis.",
        )
    if not all(np.isfinite(np.asarray(leaf, dtype=np.float64)).all() for leaf in leaves):
        raise InputError(
            f"start[{name!r}] holds a number that is not finite",
            "a run starts from finite numbers",
            "Mend it.",
        )
    typed: list[Any] = [jnp.asarray(leaf, dtype) for leaf, dtype in zip(leaves, layout.dtypes, strict=True)]
    return layout.ravel_agents(jax.tree.unflatten(treedef, typed))
