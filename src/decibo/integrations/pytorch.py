r"""PyTorch modules and losses as objectives: gradients by torch, the loop and the network by
decibo.

    from decibo.integrations import pytorch as bridge

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))

    def inner(x, y, d):
        return cross_entropy(functional_call(model, y, d["images"]), d["digits"]) + x.exp() *
        penalty(y)

    problem = bridge.problem(outer, inner, data, x0=0.0, y0=model)
    solution = decibo.solve(problem, decibo.ring(5))
    bridge.load(model, solution.y)

outer and inner are functions (x, y, d) of ONE agent that take tensors and return a scalar that
torch can differentiate. x, y and d are shaped like x0, y0 and the data of one agent; a module in x0
or y0 stands for its trainable parameters, a dictionary by their names. Tensors have the types that
were passed, and lie on `device`.

The compiled loop hands its arrays to torch and takes the gradients back
(`decibo.integrations.host`), on a CPU without copying what it hands over. On a GPU that both share
torch is called between compiled pieces of a step instead (`decibo.run.host_gradients`): arrays stay
where they are, and each waits until the other is done. There are no second derivatives for the
loop: methods that need them refuse such a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import compress
from typing import Any, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, first_line, missing, short, warn
from decibo.integrations.host import on_all
from decibo.problem.check import difference_error, largest_error
from decibo.problem.dependence import STOPPED, check_used, leaf_names
from decibo.problem.problem import Problem, Sampler
from decibo.pytree import Layout, Tree, Vector
from decibo.validate import flag

try:
    torch: Any = import_module("torch")
except ImportError as error:
    raise missing("PyTorch", "decibo.integrations.pytorch", "torch") from error

__all__ = ["arrays", "load", "problem", "tensors"]

Loss = Callable[[Tree, Tree, Tree], Any]  # of tensors
CPU = torch.device("cpu")
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
    pieces: bool | None = None,
    **extras: Unpack[Extras],
) -> Problem:
    """A `Problem` whose objectives are computed by PyTorch.

    outer, inner   functions (x, y, d) of ONE agent, of tensors, that return a scalar tensor
    data           a tree of tensors or arrays whose leaves all have a leading axis of agents
    x0, y0         trees of tensors or arrays, or modules, which stand for their trainable
                   parameters
    together       all agents in one call of torch (torch.func.vmap), or one after the other, for
                   code that vmap does not take; which is faster depends on the sizes
    device         where torch computes: "cpu", "cuda", "cuda:1"
    pieces         run steps in compiled pieces with torch in between, so that arrays stay where
                   they are; None: where JAX and torch share a GPU. The compiled loop (False) is
                   faster on a CPU, and on a GPU up to ten times slower, because it hands arrays
                   over through the host's memory
    extras         sample, solution, name and constants of `Problem`; sample is a JAX function
    """
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except Exception as error:
        raise InputError(
            f"PyTorch cannot compute on the device {device!r}: {first_line(error)}",
            "Use device='cpu'.",
        ) from error
    in_pieces = _shared(where) if pieces is None else flag("pieces", pieces)
    for name, function in (("outer", outer), ("inner", inner)):
        if not callable(function):
            raise InputError(
                f"{name} must be a function (x, y, d), but it is {short(repr(function))}."
            )
    _check_parts(data, x0, y0)
    stacked = arrays(data)
    points = arrays(x0), arrays(y0)
    # Parameters in double precision would be rounded by JAX, and no longer go together with the
    # user's tensors.
    for name, tree in zip(("x0", "y0"), points, strict=True):
        wide = [leaf for leaf in jax.tree.leaves(tree) if np.ndim(leaf)]
        if any(leaf.dtype == np.float64 for leaf in wide) and jnp.zeros(()).dtype != np.float64:
            raise InputError(
                f"{name} has tensors of type float64, but JAX is in single precision.",
                "Pass float32 (model.float()), or use double precision in JAX too"
                " (jax_enable_x64).",
            )
    held = _tensors(stacked, _kinds(data), where) if extras.get("sample") is None else None
    f, g = (
        _Torch(
            function,
            _Parts.of(x0),
            _Parts.of(y0),
            _kinds(data),
            flag("together", together),
            where,
            held,
        )
        for function in (outer, inner)
    )
    leaves = leaf_names(*points)
    first = jax.tree.map(lambda leaf: leaf[:1], stacked)
    opened = jax.tree.leaves((_opened(x0), _opened(y0)))
    own = [leaf for leaf in opened if isinstance(leaf, torch.nn.Parameter)]
    used = {
        name: set(compress(leaves, _try(name, loss, points, first, own)))
        for name, loss in (("outer", f), ("inner", g))
    }
    check_used(used, leaves)
    agents = np.arange(len(jax.tree.leaves(stacked)[0]), dtype=np.int32)
    return Problem(
        _Value(f),
        _Value(g),
        stacked if held is None else {"agent": agents, "data": stacked},
        *points,
        outer_gradient=_Gradient(f, in_pieces),
        inner_gradient=_Gradient(g, in_pieces),
        **extras,
    )


def arrays(tree: Tree) -> Tree:
    """Tensors and modules as numpy arrays, without copying where that is possible: y0 of a
    `Problem`."""
    return jax.tree.map(_array, _opened(tree))


def tensors(tree: Tree, device: str = "cpu") -> Tree:
    """Arrays as tensors of their own: a solution's x or y for torch."""
    return jax.tree.map(lambda leaf: _tensor(np.array(leaf), None, torch.device(device)), tree)


def load(module: Any, parameters: Tree) -> None:
    """Set a module's trainable parameters, in place: load(model, solution.y)."""
    own = _trainable(module)
    if not isinstance(parameters, dict) or set(parameters) != set(own):
        names = (
            ", ".join(sorted(parameters))
            if isinstance(parameters, dict)
            else short(repr(parameters))
        )
        raise InputError(
            f"The parameters must be a dictionary with the names {', '.join(sorted(own))}, but they"
            f" are {names}.",
            "Pass the y or x of a solution whose y0 or x0 was this module.",
        )
    for name, parameter in own.items():
        shape = tuple(np.shape(parameters[name]))
        if shape != tuple(parameter.shape):
            raise InputError(
                f"The parameter {name} has the shape {tuple(parameter.shape)}, but the new value"
                f" has {shape}.",
                "Pass one answer, such as solution.y, and not those of all agents.",
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(_tensor(np.array(parameters[name]), None, CPU))


def _opened(tree: Tree) -> Tree:
    """The tree with every module replaced by its trainable parameters."""
    is_module = lambda node: isinstance(node, torch.nn.Module)
    return jax.tree.map(
        lambda node: _trainable(node) if is_module(node) else node, tree, is_leaf=is_module
    )


def _trainable(module: Any) -> dict[str, Any]:
    """Parameters by name, without those that are frozen (requires_grad=False)."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"A torch.nn.Module is needed here, but this is {short(repr(module))}.")
    return {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }


def _kinds(tree: Tree) -> tuple[Any, ...]:
    """The types that torch computes with: those of tensors, and None for what takes that of JAX."""
    leaves = jax.tree.leaves(_opened(tree))
    return tuple(leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in leaves)


def _array(leaf: Any) -> np.ndarray:
    if not isinstance(leaf, torch.Tensor):
        return np.asarray(leaf)
    leaf = leaf.detach().cpu()
    return (
        leaf.view(torch.int16).numpy().view(BFLOAT16)
        if leaf.dtype == torch.bfloat16
        else leaf.numpy()
    )


def _tensor(array: np.ndarray | jax.Array, kind: Any, device: Any) -> Any:
    """An array as a tensor: the same memory where the device is that of the array, never written
    to."""
    if isinstance(array, jax.Array) and next(iter(array.devices())).platform == "cpu":
        array = np.asarray(array)  # the same memory; waits until it is computed
    try:
        if isinstance(array, np.ndarray) and array.dtype == BFLOAT16:
            found = torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
        else:
            found = torch.from_dlpack(array)
    # older versions do not take what must not be written to
    except (BufferError, RuntimeError, TypeError):
        found = torch.tensor(np.asarray(array))
    if kind is None and array.dtype.kind in "iu":
        kind = torch.int64  # what torch counts classes and rows with
    return (
        found
        if kind is None and device == CPU
        else found.to(device=device, dtype=kind or found.dtype)
    )


def _on_device(tensor: Any, like: jax.Array) -> jax.Array:
    """A tensor as a JAX array on the device of another: the same memory where it is there
    already."""
    tensor = tensor.detach().contiguous()
    (device,) = like.devices()
    here = tensor if (tensor.device == CPU) == (device.platform == "cpu") else tensor.cpu()
    found = jnp.from_dlpack(here)
    return found if found.devices() == {device} else jax.device_put(found, device)


def _tensors(tree: Tree, kinds: tuple[Any, ...], device: Any) -> Tree:
    leaves, treedef = jax.tree.flatten(tree)
    moved = [_tensor(leaf, kind, device) for leaf, kind in zip(leaves, kinds, strict=True)]
    return jax.tree.unflatten(treedef, moved)


def _shared(device: Any) -> bool:
    """Whether it is a GPU on which JAX computes too."""
    return device.type == "cuda" and jax.default_backend() == "gpu"


def _check_parts(data: Tree, x0: Tree, y0: Tree) -> None:
    """Reject data that come in batches, and modules with a state that no gradient moves."""
    loaders = torch.utils.data.DataLoader, torch.utils.data.Dataset
    if any(isinstance(leaf, loaders) for leaf in jax.tree.leaves(data)):
        raise InputError(
            "data must be tensors with a leading axis of agents, but it holds a DataLoader or a"
            " Dataset of PyTorch.",
            "Stack the tensors of all agents, and draw minibatches by sample=, as"
            " docs/how-to/deep_learning.md shows.",
        )
    is_module = lambda node: isinstance(node, torch.nn.Module)
    for node in jax.tree.leaves((x0, y0), is_leaf=is_module):
        for name, layer in node.named_modules() if is_module(node) else ():
            if isinstance(layer, torch.nn.modules.batchnorm._NormBase) and layer.training:
                raise InputError(
                    f"The layer {name} is a {type(layer).__name__}, whose running statistics are"
                    " neither x nor y: agents would not agree on them.",
                    "Use LayerNorm or GroupNorm, or call eval() to keep the statistics of a"
                    " trained model.",
                )


def _try(
    name: str, loss: _Torch, points: tuple[Tree, Tree], data: Tree, own: Sequence[Any]
) -> list[bool]:
    """Evaluate an objective and its gradient, so that what is wrong is said here and not in the
    compiled loop; returns which leaves of x and y it uses.

    own   parameters of the modules, for which x and y stand
    """
    flat = [
        np.asarray(part.layout.ravel(tree))
        for part, tree in zip((loss.x, loss.y), points, strict=True)
    ]
    given = data if loss.held is None else np.zeros(1, int)

    def rows(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return at[None, : flat[0].size], at[None, flat[0].size :]

    value = lambda at: loss.values(*rows(at), given)
    try:
        point = np.concatenate(flat)
        found = value(point)
        if found.shape == (1,):
            loss.gradients(*rows(point), given)
    except Exception as error:
        advice = (
            "If torch.func.vmap does not take it, pass together=False."
            if loss.together
            else "It gets tensors."
        )
        raise InputError(
            f"{name}(x0, y0, data of one agent) raised {type(error).__name__}:"
            f" {first_line(error).rstrip('.')}.",
            advice,
        ) from error
    if found.shape != (1,):
        raise InputError(
            f"An objective must return one number, but {name} returns a tensor of the shape"
            f" {found.shape[1:]}.",
            "Sum or average inside the function.",
        )
    if not np.array_equal(found, value(point), equal_nan=True):
        raise InputError(
            f"{name} must return the same for the same arguments, but it draws random numbers.",
            "Call model.eval(), which switches dropout off.",
        )

    # One backward pass: on which leaves of x and y, and on which parameters of the modules, the
    # loss depends.
    (one,) = _each(loss._given(*rows(point), given))
    leaves, treedef = jax.tree.flatten((loss.x(one[0]), loss.y(one[1])))
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    x, y = jax.tree.unflatten(treedef, leaves)
    with torch.enable_grad():
        result = loss.function(x, y, one[2])
    slopes = [None] * (len(leaves) + len(own))
    if result.requires_grad:
        slopes = torch.autograd.grad(result, [*leaves, *own], allow_unused=True)
    if any(slope is not None for slope in slopes[len(leaves) :]):
        raise InputError(
            f"{name} uses the module's own weights, which no step changes, in place of those that"
            " it is given.",
            "Write torch.func.functional_call(model, y, inputs) for model(inputs), and detach()"
            " where the weights at the start are meant.",
        )

    # Along a direction in x and y together, near the start: at the start itself there may be kinks.
    random = np.random.default_rng(0)
    scale = 0.1 * (1 + np.linalg.norm(point)) / point.size**0.5
    near = (point + scale * random.normal(size=point.shape)).astype(point.dtype)
    found = [part[0].astype(point.dtype) for part in loss.gradients(*rows(near), given)]
    slope = np.concatenate(found)
    along = random.normal(size=point.shape).astype(point.dtype)
    error = difference_error(lambda at: value(at.astype(point.dtype))[0], slope, near, along)
    if float(error) > largest_error(point.dtype):
        warn(
            f"The gradient of {name} is not that of its values: they differ by"
            f" {100 * float(error):.2g} %. Is there a detach() of something that depends on x or"
            f" y? {STOPPED}"
        )
    return [slope is not None for slope in slopes[: len(leaves)]]


@dataclass(frozen=True)
class _Parts:
    """How x or y lies in a flat vector, and the types of its tensors."""

    layout: Layout
    kinds: tuple[Any, ...]

    @classmethod
    def of(cls, tree: Tree) -> _Parts:
        return cls(Layout.of(jax.tree.map(jnp.asarray, arrays(tree))), _kinds(tree))

    def __call__(self, vector: Any) -> Tree:
        """The tree of tensors that share the vector's memory, where types allow."""
        pieces = torch.split(vector, list(self.layout.sizes))
        shaped = [
            piece.reshape(shape) if kind is None else piece.reshape(shape).to(kind)
            for piece, shape, kind in zip(pieces, self.layout.shapes, self.kinds, strict=True)
        ]
        return jax.tree.unflatten(self.layout.treedef, shaped)


@dataclass(frozen=True, eq=False)
class _Torch:
    """A loss of one agent, evaluated at flat rows x and y of all of them.

    held   the data of all agents on the device, where an agent's number stands for it; None with
           minibatches, which come from the compiled loop
    """

    function: Loss
    x: _Parts
    y: _Parts
    kinds: tuple[Any, ...]  # the types of the tensors in d
    together: bool
    device: Any
    held: Tree | None

    def values(self, x: np.ndarray, y: np.ndarray, d: Tree) -> np.ndarray:
        """f(x, y, d) of every agent."""
        given = self._given(x, y, d)
        with torch.no_grad():
            if self.together:
                return _array(torch.func.vmap(self._one)(*given))
            return np.stack([_array(self._one(*one)) for one in _each(given)])

    def gradients(self, x: np.ndarray, y: np.ndarray, d: Tree) -> tuple[np.ndarray, np.ndarray]:
        """The gradients in x and y of every agent."""
        in_x, in_y = self._slopes(self._given(x, y, d))
        return _array(in_x), _array(in_y)

    def gradients_on_device(
        self, x: jax.Array, y: jax.Array, d: Tree
    ) -> tuple[jax.Array, jax.Array]:
        """The same where the arrays are."""
        jax.block_until_ready((x, y, d))  # JAX and torch order their work in streams of their own
        in_x, in_y = self._slopes(self._given(x, y, d))
        if self.device != CPU:
            torch.cuda.synchronize(self.device)
        return _on_device(in_x, x), _on_device(in_y, y)

    def _slopes(self, given: tuple[Any, Any, Tree]) -> tuple[Any, Any]:
        if self.together:
            return torch.func.vmap(torch.func.grad(self._one, argnums=(0, 1)))(*given)
        found = [torch.empty_like(part) for part in given[:2]]
        for i, (own_x, own_y, own_d) in enumerate(_each(given)):
            point = own_x.detach().requires_grad_(), own_y.detach().requires_grad_()
            with torch.enable_grad():
                value = self._one(*point, own_d)
            slopes = torch.autograd.grad(value, point, allow_unused=True, materialize_grads=True)
            for out, slope in zip(found, slopes, strict=True):
                out[i] = slope
        return found[0], found[1]

    def _one(self, x: Any, y: Any, d: Tree) -> Any:
        """The loss of one agent at flat vectors."""
        return self.function(self.x(x), self.y(y), d)

    def _given(
        self, x: np.ndarray | jax.Array, y: np.ndarray | jax.Array, d: Tree
    ) -> tuple[Any, Any, Tree]:
        """Rows and data as tensors on the device."""
        rows = [_tensor(part, None, self.device) for part in (x, y)]
        if self.held is None:
            return *rows, _tensors(d, self.kinds, self.device)
        agents = np.asarray(d)
        first, count = int(agents[0]), len(agents)
        if (np.diff(agents) == 1).all():  # a range of agents: nothing is copied
            return *rows, jax.tree.map(lambda leaf: leaf[first : first + count], self.held)
        index = torch.as_tensor(np.array(agents), device=self.device, dtype=torch.int64)
        return *rows, jax.tree.map(lambda leaf: leaf[index], self.held)

    def data_of(self, d: Tree) -> Tree:
        """What the compiled loop hands over for the data of an agent."""
        return d if self.held is None else d["agent"]


def _each(given: Tree) -> Iterator[Tree]:
    """The tensors of one agent after the other."""
    leaves, treedef = jax.tree.flatten(given)
    return (jax.tree.unflatten(treedef, parts) for parts in zip(*leaves, strict=True))


@dataclass(frozen=True)
class _Value:
    loss: _Torch

    def __call__(self, x: Tree, y: Tree, d: Tree) -> jax.Array:
        rows = [part.layout.ravel(tree) for part, tree in ((self.loss.x, x), (self.loss.y, y))]
        like = jax.ShapeDtypeStruct((), jnp.result_type(*rows))
        return on_all(self.loss.values, like, *rows, self.loss.data_of(d), together=True)


@dataclass(frozen=True)
class _Gradient:
    loss: _Torch
    on_device: bool  # whether steps run in pieces, with torch in between

    def __call__(self, x: Tree, y: Tree, d: Tree) -> tuple[Tree, Tree]:
        loss = self.loss
        in_x, in_y = self.flat(loss.x.layout.ravel(x), loss.y.layout.ravel(y), d)
        return loss.x.layout.unravel(in_x), loss.y.layout.unravel(in_y)

    def flat(self, x: Vector, y: Vector, d: Tree) -> tuple[Vector, Vector]:
        """The same in flat vectors, which the loop keeps: nothing is taken apart on the way to
        torch."""
        like = tuple(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in (x, y))
        direct = self.loss.gradients_on_device
        return on_all(
            self.loss.gradients, like, x, y, self.loss.data_of(d), together=True, on_device=direct
        )
