r"""A distributed bilevel problem: every agent's two objectives and its private data.

    minimise over x   Phi(x) = mean_i f_i(x, y*(x))
    subject to        y*(x)  = argmin over y of mean_i g_i(x, y)              [paper, eq. P1]

with f_i(x, y) = outer(x, y, d_i) and g_i(x, y) = inner(x, y, d_i).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, first_line
from decibo.pytree import Layout, Tree

Objective = Callable[[Any, Any, Any], Any]


class Functions(NamedTuple):
    """What a compiled program depends on: the functions of one agent and the layouts of x and y."""

    outer: Objective
    inner: Objective
    sample: Callable[[Any, jax.Array], Any] | None
    inner_solution: Callable[[Any, Any], Any] | None
    x: Layout
    y: Layout


@dataclass(frozen=True, eq=False)
class Problem:
    """Two objectives, private data and a starting point.

    outer, inner    functions (x, y, d) of ONE agent that return a scalar
    data            a pytree whose leaves all have a leading axis of length m, or a function agent -> its data
    x0, y0          where to start, and the shapes of x and y: any pytrees of floating-point numbers
    sample          optional, (d, key) -> a minibatch that looks like d
    inner_solution  optional closed form (x, data of all agents) -> y*(x), used by `decibo.reference` only
    solution        optional known answer {"x": ..., "y": ...}, used by the measures distance_x and distance_y only
    agents          how many agents there are; needed only if data is a function
    constants       optional, what is known of the problem: mu_g, L_f1, ... as in decibo.theory
    """

    outer: Objective
    inner: Objective
    data: Any
    x0: Tree
    y0: Tree
    sample: Callable[[Any, jax.Array], Any] | None = None
    inner_solution: Callable[[Any, Any], Any] | None = None
    solution: dict[str, Tree] | None = None
    agents: int | None = None
    name: str = "problem"
    constants: dict[str, float] | None = None

    def __post_init__(self) -> None:
        for name in ("outer", "inner"):
            if not callable(getattr(self, name)):
                raise InputError(
                    f"{name} = {getattr(self, name)!r}", "it must be a function (x, y, d)", "Pass a function."
                )
        object.__setattr__(self, "x0", _floating("x0", self.x0))
        object.__setattr__(self, "y0", _floating("y0", self.y0))
        if not callable(self.data):
            object.__setattr__(self, "data", _stacked(self.data))
            count = jax.tree.leaves(self.data)[0].shape[0]
            if self.agents not in (None, count):
                raise InputError(
                    f"agents is {self.agents}, but data has entries for {count} agents.", "Leave agents out."
                )
            object.__setattr__(self, "agents", count)
            self.trace(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self.data))

    @cached_property
    def x_layout(self) -> Layout:
        """How x lies in a flat vector."""
        return Layout.of(self.x0)

    @cached_property
    def y_layout(self) -> Layout:
        """How y lies in a flat vector."""
        return Layout.of(self.y0)

    @property
    def functions(self) -> Functions:
        """The part of the problem that a compiled program depends on; the data is passed to it."""
        return Functions(self.outer, self.inner, self.sample, self.inner_solution, self.x_layout, self.y_layout)

    def start_rows(self, agents: int) -> dict[str, jax.Array]:
        """x0 and y0 as flat rows, the same for each of so many agents."""
        points = {"x": self.x_layout.ravel(self.x0), "y": self.y_layout.ravel(self.y0)}
        return {name: jnp.broadcast_to(point, (agents, *point.shape)) for name, point in points.items()}

    def local(self, agents: Sequence[int]) -> Tree:
        """The data of these agents, stacked. Calls a data function for these agents and no others."""
        if not callable(self.data):
            index = np.asarray(agents)
            if len(index) == self.agents and (index == np.arange(len(index))).all():
                return self.data
            return jax.tree.map(lambda leaf: leaf[index], self.data)
        parts = [jax.tree.map(jnp.asarray, self.data(int(agent))) for agent in agents]
        first = jax.tree.structure(parts[0]), [leaf.shape for leaf in jax.tree.leaves(parts[0])]
        for agent, part in zip(agents, parts, strict=True):
            other = jax.tree.structure(part), [leaf.shape for leaf in jax.tree.leaves(part)]
            if other != first:
                raise InputError(
                    f"data({agent}) has shapes {other[1]}, data({agents[0]}) has {first[1]}",
                    "the data of all agents must have the same structure and shapes",
                    "Pad the smaller ones and give padded samples weight 0 (decibo.data.shards does).",
                )
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
        self.trace(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stacked))
        return stacked

    def trace(self, d: Tree) -> None:
        """Check, without computing anything, that both objectives give one number for one agent's data."""
        x, y = _structs(self.x0), _structs(self.y0)
        for name, function in (("outer", self.outer), ("inner", self.inner)):
            try:
                value = jax.eval_shape(function, x, y, d)
            except Exception as error:
                raise InputError(
                    f"{name}(x0, y0, data of one agent) raised {type(error).__name__}: {first_line(error)}",
                    f"{name} must accept x shaped like x0, y shaped like y0 and the data of ONE agent",
                    "The data arrives without its leading axis of agents; write it with jax.numpy.",
                ) from error
            _scalar(name, value)


def _structs(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _scalar(name: str, value: Any) -> None:
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        found = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise InputError(
            f"{name} returns {found}",
            "an objective must return one floating-point number",
            "Sum or average inside the function, and return only the objective.",
        )


def _floating(name: str, tree: Tree) -> Tree:
    """The tree as arrays of floating-point numbers."""
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise InputError(f"{name} = {tree!r}", f"{name} must hold at least one number", "Give its starting value.")
    for leaf in leaves:
        try:
            array = np.asarray(leaf)
        except Exception as error:
            raise InputError(f"{name} holds {leaf!r}", "its leaves must be arrays of numbers", "Use arrays.") from error
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise InputError(
                f"{name} has a leaf of type {array.dtype}",
                f"{name} must be floating-point, since gradients are taken with respect to it",
                "Write 0.0 instead of 0, or convert with .astype(float).",
            )
        if not np.isfinite(np.asarray(array, dtype=np.float64)).all():
            raise InputError(
                f"{name} holds a number that is not finite", "a run starts from finite numbers", "Mend it."
            )
    # Not weakly typed: 0.0 from Python would otherwise change type inside a compiled loop.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.asarray(leaf).dtype), tree)


def _stacked(data: Tree) -> Tree:
    """The data as arrays, with its leading axes checked."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves:
        raise InputError(
            f"data = {data!r}",
            "data must hold at least one array with a leading axis of agents",
            "Give every agent its number, data=jnp.arange(m), if the agents need no data.",
        )
    sizes = {}
    for path, leaf in leaves:
        name = "data" + jax.tree_util.keystr(path)
        if np.ndim(leaf) == 0:
            raise InputError(
                f"{name} = {leaf!r}",
                "every leaf of data must have a leading axis with one entry for each agent",
                "Use an array of shape (m, ...), or close over constants that all agents share.",
            )
        sizes[name] = np.shape(leaf)[0]
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise InputError(
            f"leading axes of data: {listed}",
            "all leaves of data must have the same leading axis, one entry for each agent",
            "Reshape them to (m, ...).",
        )
    if next(iter(sizes.values())) == 0:
        raise InputError("data has a leading axis of length 0", "there must be at least one agent", "Give data.")
    return jax.tree.map(jnp.asarray, data)
