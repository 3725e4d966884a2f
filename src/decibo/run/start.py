"""Where a run starts: at given points, or at points drawn at random from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.pytree import Layout, Tree
from decibo.validate import at_least, flag, only_known
from decibo.validate import seed as check_seed


@dataclass(frozen=True)
class RandomStart:
    """Starting points drawn from normal distributions around x0 and y0. Made by `random_start`."""

    seed: int
    scale: dict[str, float]
    common: bool


def random_start(
    seed: int, scale: float | Mapping[str, float] = 1.0, *, common: bool = False
) -> RandomStart:
    """A random start: x0 and y0 plus `scale` times standard normal numbers.

    scale   one number for x and y (then z starts where y does), or one for each variable: {"x":
            0.0, "y": 1.0, "z": 1.0} leaves x at x0 and draws y and z independently
    common  whether all agents start at the same point
    """
    scales = dict(scale) if isinstance(scale, Mapping) else {"x": scale, "y": scale}
    checked = {name: at_least(f"The scale of {name}", value, 0.0) for name, value in scales.items()}
    return RandomStart(check_seed(seed), checked, flag("common", common))


Start = Mapping[str, Tree] | RandomStart | None


def starting_rows(
    problem: Problem,
    agents: int,
    start: Mapping[str, Tree] | RandomStart,
    method: Algorithm,
    shown: tuple[str, ...],
) -> dict[str, jax.Array]:
    """The starting point of every agent: rows for x and y always, for other variables where they
    were given.

    shown   the variables that the method shows, all of which may begin somewhere unless it says
            which
    """
    variables = method.direction.variables if method.direction else shown
    points = start.scale if isinstance(start, RandomStart) else start
    if not isinstance(points, Mapping):
        raise InputError(
            "start must be a dictionary of stacked points or decibo.random_start(seed), but it is"
            f" {start!r:.60}."
        )
    only_known("The start of this method", "variable", points, sorted({"x", "y", *variables}))
    rows = problem.start_rows(agents)
    if isinstance(start, RandomStart):
        base = lambda name: rows["x" if name == "x" else "y"][0]
        return rows | {name: _drawn(start, name, base(name), agents) for name in points}
    layout = lambda name: problem.x_layout if name == "x" else problem.y_layout
    return rows | {
        name: _stacked(name, layout(name), tree, agents) for name, tree in points.items()
    }


def _drawn(start: RandomStart, name: str, base: jax.Array, agents: int) -> jax.Array:
    key = jax.random.fold_in(jax.random.key(start.seed), sum(map(ord, name)))
    noise = jax.random.normal(key, (1 if start.common else agents, base.size), base.dtype)
    return jnp.broadcast_to(base + start.scale[name] * noise, (agents, base.size))


def _stacked(name: str, layout: Layout, tree: Tree, agents: int) -> jax.Array:
    wanted = [(agents, *shape) for shape in layout.shapes]
    leaves, treedef = jax.tree.flatten(tree)
    shapes = [np.shape(leaf) for leaf in leaves]
    if treedef != layout.treedef or shapes != wanted:
        raise InputError(
            f"start[{name!r}] must have one point for each of the {agents} agents, that is shapes"
            f" {jax.tree.unflatten(layout.treedef, wanted)}, but it has"
            f" {jax.tree.unflatten(treedef, shapes)}.",
            "Stack the agents' points along a new first axis.",
        )
    for dtype in (np.asarray(leaf).dtype for leaf in leaves):
        if dtype.kind not in "biuf" and not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(f"start[{name!r}] must hold real numbers, but it holds {dtype}.")
    if not all(np.isfinite(np.asarray(leaf, dtype=np.float64)).all() for leaf in leaves):
        raise InputError(f"start[{name!r}] must be finite, but it holds a number that is not.")
    typed = [jnp.asarray(leaf, dtype) for leaf, dtype in zip(leaves, layout.dtypes, strict=True)]
    return layout.ravel_agents(jax.tree.unflatten(treedef, typed))
