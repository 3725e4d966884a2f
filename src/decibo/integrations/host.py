r"""Objectives and gradients that are computed outside JAX: numpy and scipy code, an adjoint solver,
a legacy library.

    problem = decibo.Problem(
        host.value(f), host.value(g), data, x0, y0,
        outer_gradient=host.gradient(df), inner_gradient=host.gradient(dg),
    )

f and g are functions (x, y, d) -> number of one agent, df and dg functions (x, y, d) -> (gradient
in x, gradient in y). They receive numpy arrays, shaped like x0, y0 and the data of one agent, and
return what numpy takes for arrays. The compiled loop calls them (`jax.pure_callback`), all agents
in one call and never two calls at a time. They must not call JAX, whose threads may be waiting for
them, must not write into what they are given, and must return the same for the same arguments.

There are no second derivatives: methods that need them refuse such a problem.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, short
from decibo.problem.problem import GradientFunction, Objective
from decibo.pytree import Tree
from decibo.run.host_gradients import at_stop

__all__ = ["gradient", "on_all", "value"]

# one call at a time: few libraries may be entered twice, and many have threads of their own
TURN = threading.Lock()
Host = Callable[[Tree, Tree, Tree], Any]  # of numpy arrays


def value(function: Host, *, together: bool = False) -> Objective:
    """A function (x, y, d) -> number that is computed with numpy, as an objective of `Problem`.

    together   whether it takes all agents at once, with a leading axis of agents on every array,
               and returns one number for each; otherwise it is called for one agent after the other
    """
    return _Value(_checked(function), together)


def gradient(function: Host, *, together: bool = False) -> GradientFunction:
    """A function (x, y, d) -> (gradient in x, gradient in y) that is computed with numpy, as a
    gradient of `Problem`.

    together   whether it takes all agents at once, as in `value`
    """
    return _Gradient(_checked(function), together)


def _checked(function: Host) -> Host:
    if not callable(function):
        raise InputError(
            f"A function (x, y, d) is needed here, but this is {short(repr(function))}."
        )
    return function


@dataclass(frozen=True)
class _Value:
    """Equal for equal functions, so that programs are shared."""

    function: Host
    together: bool

    def __call__(self, x: Tree, y: Tree, d: Tree) -> jax.Array:
        like = jax.ShapeDtypeStruct((), jnp.result_type(*jax.tree.leaves((x, y))))
        return on_all(self.function, like, x, y, d, together=self.together)


@dataclass(frozen=True)
class _Gradient:
    function: Host
    together: bool

    def __call__(self, x: Tree, y: Tree, d: Tree) -> tuple[Tree, Tree]:
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (x, y))
        return on_all(self.function, like, x, y, d, together=self.together)


def on_all(
    function: Callable[..., Any],
    like: Tree,
    *args: Tree,
    together: bool = False,
    on_device: Callable[..., Any] | None = None,
) -> Tree:
    """Call a function of numpy arrays from a compiled program; mapped over agents, all of them in
    one call.

    like        shapes and types of what it returns for one agent
    together    whether it takes all agents at once
    on_device   the same for JAX arrays of all agents, which need not be in the host's memory: for a
                step in pieces
    """
    if jax.default_backend() == "cpu" and jax.local_device_count() > 1:
        raise InputError(
            f"Functions outside JAX cannot be called from {jax.local_device_count()} CPU devices of"
            " one process: the copies that JAX makes for them can wait for each other forever.",
            "Use one device in each process (no xla_force_host_platform_device_count), and several"
            " processes.",
        )
    ranks = tuple(np.ndim(leaf) for leaf in jax.tree.leaves(args))
    call = _Call(
        function, jax.tree.structure(like), tuple(jax.tree.leaves(like)), ranks, together, on_device
    )
    # expand_dims: what is the same for all agents arrives once, with an axis of length 1
    return jax.pure_callback(call, like, *args, vmap_method="expand_dims")


@dataclass(frozen=True)
class _Call:
    """What the compiled program calls: arrays with any leading axes (agents, runs of a sweep) in,
    the same out."""

    function: Callable[..., Any]
    treedef: Any  # of JAX, which has no type for it
    like: tuple[jax.ShapeDtypeStruct, ...]
    ranks: tuple[int, ...]  # of the arguments of one agent
    together: bool
    on_device: Callable[..., Any] | None = None

    def __call__(self, *args: Tree) -> Tree:
        with TURN:
            if self.on_device is not None and at_stop() and self._is_plain(args):
                return self.on_device(*args)
            return self._called(*args)

    def _is_plain(self, args: Tree) -> bool:
        """Whether there is one leading axis, of agents, and nothing is the same for all of them."""
        leads = {
            leaf.shape[: leaf.ndim - rank]
            for leaf, rank in zip(jax.tree.leaves(args), self.ranks, strict=True)
        }
        return len(leads) == 1 and len(leads.pop()) == 1

    def _called(self, *args: Tree) -> Tree:
        leaves, treedef = jax.tree.flatten(args)
        arrays = [np.asarray(leaf) for leaf in leaves]
        leads = [
            array.shape[: array.ndim - rank] for array, rank in zip(arrays, self.ranks, strict=True)
        ]
        lead = np.broadcast_shapes(*leads)
        flat = [
            np.broadcast_to(array, lead + array.shape[len(old) :]).reshape(
                -1, *array.shape[len(old) :]
            )
            for array, old in zip(arrays, leads, strict=True)
        ]
        if self.together:
            found = self._answer(
                self.function(*jax.tree.unflatten(treedef, flat)), flat[0].shape[:1]
            )
        else:
            each = (
                self.function(*jax.tree.unflatten(treedef, [leaf[i] for leaf in flat]))
                for i in range(len(flat[0]))
            )
            found = [
                np.stack(parts)
                for parts in zip(*(self._answer(one, ()) for one in each), strict=True)
            ]
        shaped = (
            leaf.reshape(lead + like.shape) for leaf, like in zip(found, self.like, strict=True)
        )
        return jax.tree.unflatten(self.treedef, shaped)

    def _answer(self, found: Any, lead: tuple[int, ...]) -> list[np.ndarray]:
        """What the function returned, as arrays of the right types and shapes."""
        leaves, treedef = jax.tree.flatten(found)
        arrays = [np.asarray(leaf) for leaf in leaves]
        wanted = [lead + like.shape for like in self.like]
        if treedef != self.treedef or [array.shape for array in arrays] != wanted:
            name = getattr(self.function, "__name__", repr(self.function))
            raise InputError(
                f"{name} must return arrays of the shapes {self._shown(wanted)}, but it returned "
                f"{jax.tree.unflatten(treedef, [array.shape for array in arrays])}."
            )
        return [
            np.asarray(array, like.dtype) for array, like in zip(arrays, self.like, strict=True)
        ]

    def _shown(self, shapes: list[tuple[int, ...]]) -> Tree:
        return jax.tree.unflatten(self.treedef, shapes)
