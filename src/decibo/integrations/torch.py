r"""PyTorch modules and losses as objectives: gradients by torch, the loop and the network by decibo.

    from decibo.integrations import torch as bridge

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))

    def inner(x, y, d):
        return cross_entropy(functional_call(model, y, d["images"]), d["digits"]) + x.exp() * penalty(y)

    problem = bridge.problem(outer, inner, data, x0=0.0, y0=model)
    solution = decibo.solve(problem, decibo.ring(5))
    bridge.load(model, solution.y)

outer and inner are functions (x, y, d) of ONE agent that take tensors and return a scalar that torch can differentiate.
x, y and d are shaped like x0, y0 and the data of one agent; a module in x0 or y0 stands for its trainable parameters,
a dictionary by their names. Tensors have the types that were passed, and lie on `device`.

The compiled loop hands its arrays to torch and takes the gradients back (`decibo.integrations.host`), on a CPU without
copying what it hands over. There are no second derivatives for the loop: methods that need them refuse such a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, first_line, missing, short
from decibo.integrations.host import on_all
from decibo.problem.problem import Problem, Sampler
from decibo.pytree import Tree
from decibo.validate import flag

try:
    import torch  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise missing("PyTorch", "decibo.integrations.torch", "torch") from error

__all__ = ["arrays", "load", "problem", "tensors"]

Loss = Callable[[Tree, Tree, Tree], Any]  # of tensors
BFLOAT16 = jnp.zeros((), jnp.bfloat16).dtype  # numpy has no such type of its own


class Extras(TypedDict, total=False):
    """The other arguments of `Problem`."""

    sample: Sampler | None
    solution: dict[str, Tree] | None
    name: str
    constants: dict[str, float] | None


def problem(
    outer: Loss,
    inner: Loss,
    data: Tree,
    x0: Tree,
    y0: Tree,
    *,
    together: bool = True,
    device: str = "cpu",
    **extras: Unpack[Extras],
) -> Problem:
    """A `Problem` whose objectives are computed by PyTorch.

    outer, inner   functions (x, y, d) of ONE agent, of tensors, that return a scalar tensor
    data           a tree of tensors or arrays whose leaves all have a leading axis of agents
    x0, y0         trees of tensors or arrays, or modules, which stand for their trainable parameters
    together       all agents in one call of torch (torch.func.vmap), or one after the other, for code that vmap does
                   not take; which is faster depends on the sizes
    device         where torch computes: "cpu", "cuda", "cuda:1"
    extras         sample, solution, name and constants of `Problem`; sample is a JAX function
    """
    where = _device(device)
    for name, function in (("outer", outer), ("inner", inner)):
        if not callable(function):
            raise InputError(f"{name} must be a function (x, y, d), but it is {short(repr(function))}.")
    kinds = tuple(tuple(_kind(leaf) for leaf in jax.tree.leaves(_opened(tree))) for tree in (x0, y0, data))
    start_x, start_y, stacked = (arrays(tree) for tree in (x0, y0, data))
    for name, tree in (("x0", start_x), ("y0", start_y)):
        _check_precision(name, tree)
    losses = [_Torch(function, kinds, flag("together", together), where) for function in (outer, inner)]
    for name, loss in zip(("outer", "inner"), losses, strict=True):
        _try(name, loss, start_x, start_y, jax.tree.map(lambda leaf: leaf[:1], stacked))
    f, g = losses
    return Problem(
        _Value(f),
        _Value(g),
        stacked,
        start_x,
        start_y,
        outer_gradient=_Gradient(f),
        inner_gradient=_Gradient(g),
        **extras,
    )


def arrays(tree: Tree) -> Tree:
    """Tensors and modules as numpy arrays, without copying where that is possible: y0 of a `Problem`."""
    return jax.tree.map(_array, _opened(tree))


def tensors(tree: Tree, device: str = "cpu") -> Tree:
    """Arrays as tensors of their own: a solution's x or y for torch."""
    return jax.tree.map(lambda leaf: _tensor(np.array(leaf), None, device), tree)


def load(module: Any, parameters: Tree) -> None:
    """Set a module's trainable parameters, in place: load(model, solution.y)."""
    own = _trainable(module)
    if not isinstance(parameters, dict) or set(parameters) != set(own):
        names = ", ".join(sorted(parameters)) if isinstance(parameters, dict) else short(repr(parameters))
        raise InputError(
            f"The parameters must be a dictionary with the names {', '.join(sorted(own))}, but they are {names}.",
            "Pass the y or x of a solution whose y0 or x0 was this module.",
        )
    for name, parameter in own.items():
        shape = tuple(np.shape(parameters[name]))
        if shape != tuple(parameter.shape):
            raise InputError(
                f"The parameter {name} has the shape {tuple(parameter.shape)}, but the new value has {shape}.",
                "Pass one answer, such as solution.y, and not those of all agents.",
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(_tensor(np.array(parameters[name]), None, "cpu"))


def _opened(tree: Tree) -> Tree:
    """The tree with every module replaced by its trainable parameters."""
    is_module = lambda node: isinstance(node, torch.nn.Module)
    return jax.tree.map(lambda node: _trainable(node) if is_module(node) else node, tree, is_leaf=is_module)


def _trainable(module: Any) -> dict[str, Any]:
    """Parameters by name, without those that are frozen (requires_grad=False)."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"A torch.nn.Module is needed here, but this is {short(repr(module))}.")
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _kind(leaf: Any) -> Any:
    """The type that torch computes with, where it differs from what JAX keeps; None leaves it as it is."""
    return leaf.dtype if isinstance(leaf, torch.Tensor) else None


def _array(leaf: Any) -> np.ndarray:
    if not isinstance(leaf, torch.Tensor):
        return np.asarray(leaf)
    leaf = leaf.detach().cpu()
    return leaf.view(torch.int16).numpy().view(BFLOAT16) if leaf.dtype == torch.bfloat16 else leaf.numpy()


def _tensor(array: np.ndarray, kind: Any, device: Any) -> Any:
    """An array as a tensor: the same memory where the device is the CPU, never written to."""
    try:
        if array.dtype == BFLOAT16:
            found = torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
        else:
            found = torch.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError):  # older versions do not take what must not be written to
        found = torch.tensor(array)
    if kind is None and array.dtype.kind in "iu":
        kind = torch.int64  # what torch counts classes and rows with
    return found.to(device=device, dtype=kind or found.dtype)


def _device(name: str) -> Any:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except Exception as error:
        raise InputError(
            f"PyTorch cannot compute on the device {name!r}: {first_line(error)}", "Use device='cpu'."
        ) from error
    return device


def _check_precision(name: str, tree: Tree) -> None:
    """Parameters in double precision would be rounded by JAX, and no longer go together with the user's tensors."""
    wide = [leaf for leaf in jax.tree.leaves(tree) if np.ndim(leaf) and np.asarray(leaf).dtype == np.float64]
    if wide and not jax.config.jax_enable_x64:
        raise InputError(
            f"{name} has tensors of type float64, but JAX is in single precision.",
            "Pass float32 (model.float()), or enable double precision: jax.config.update('jax_enable_x64', True).",
        )


def _try(name: str, loss: _Torch, x: Tree, y: Tree, data: Tree) -> None:
    """Evaluate an objective and its gradient once, so that what is wrong is said here and not in the compiled loop."""
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (x, y))
    try:
        value = loss.values(*one, data)
        if value.shape == (1,):
            loss.gradients(*one, data)
    except Exception as error:
        advice = "If torch.func.vmap does not take it, pass together=False." if loss.together else "It gets tensors."
        raise InputError(
            f"{name}(x0, y0, data of one agent) raised {type(error).__name__}: {first_line(error).rstrip('.')}.", advice
        ) from error
    if value.shape != (1,):
        raise InputError(
            f"An objective must return one number, but {name} returns a tensor of the shape {value.shape[1:]}.",
            "Sum or average inside the function.",
        )


@dataclass(frozen=True)
class _Torch:
    """A loss of one agent, evaluated for all of them; equal for equal functions, so that programs are shared."""

    function: Loss
    kinds: tuple[tuple[Any, ...], ...]  # the types of the tensors in x, y and d
    together: bool
    device: Any

    def values(self, x: Tree, y: Tree, d: Tree) -> np.ndarray:
        """f(x, y, d) of every agent."""
        with torch.no_grad():
            if self.together:
                return _array(torch.func.vmap(self.function)(*self._given(x, y, d)))
            return np.stack([_array(self.function(*one)) for one in self._each(x, y, d)])

    def gradients(self, x: Tree, y: Tree, d: Tree) -> tuple[Tree, Tree]:
        """The gradients in x and y of every agent."""
        if self.together:
            found = torch.func.vmap(torch.func.grad(self.function, argnums=(0, 1)))(*self._given(x, y, d))
            return jax.tree.map(_array, found)
        leaves, treedef = jax.tree.flatten((x, y))
        found = [np.empty_like(leaf) for leaf in leaves]
        for i, (own_x, own_y, own_d) in enumerate(self._each(x, y, d)):
            variables = [leaf.detach().requires_grad_() for leaf in jax.tree.leaves((own_x, own_y))]
            with torch.enable_grad():
                value = self.function(*jax.tree.unflatten(treedef, variables), own_d)
            slopes = torch.autograd.grad(value, variables, allow_unused=True, materialize_grads=True)
            for out, slope in zip(found, slopes, strict=True):
                out[i] = _array(slope)
        return jax.tree.unflatten(treedef, found)

    def _given(self, *trees: Tree) -> list[Tree]:
        """Arrays as tensors of the types that were passed."""
        given = []
        for tree, kinds in zip(trees, self.kinds, strict=True):
            leaves, treedef = jax.tree.flatten(tree)
            moved = [_tensor(leaf, kind, self.device) for leaf, kind in zip(leaves, kinds, strict=True)]
            given.append(jax.tree.unflatten(treedef, moved))
        return given

    def _each(self, *trees: Tree) -> list[list[Tree]]:
        """The tensors of one agent after the other."""
        leaves, treedef = jax.tree.flatten(self._given(*trees))
        return [jax.tree.unflatten(treedef, parts) for parts in zip(*leaves, strict=True)]


@dataclass(frozen=True)
class _Value:
    loss: _Torch

    def __call__(self, x: Tree, y: Tree, d: Tree) -> jax.Array:
        like = jax.ShapeDtypeStruct((), jnp.result_type(*jax.tree.leaves((x, y))))
        return on_all(self.loss.values, like, x, y, d, together=True)


@dataclass(frozen=True)
class _Gradient:
    loss: _Torch

    def __call__(self, x: Tree, y: Tree, d: Tree) -> tuple[Tree, Tree]:
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (x, y))
        return on_all(self.loss.gradients, like, x, y, d, together=True)
