r"""A distributed bilevel problem: every agent's two objectives and private data, and what an agent
can compute of it.

    minimise over x   Phi(x) = mean_i f_i(x, y*(x))
    subject to        y*(x)  = argmin over y of mean_i g_i(x, y)              [paper, eq. P1]

with f_i(x, y) = outer(x, y, d_i) and g_i(x, y) = inner(x, y, d_i). One agent alone computes first
gradients and products with second derivatives of its own f and g, in flat vectors x, y and v:

    (1)  outer(x, y)        = (f_x, f_y)
    (2)  inner(x, y)        = (g_x, g_y)
    (3)  products(x, y, v)  = (J v, H v),   J = d2 g / dx dy,   H = d2 g / dy dy

(1) and (2) are found by differentiating outer and inner, or by functions that come with the
problem. (3) is the forward derivative of (2), which not every objective has: kernels whose
backward pass is written by hand cannot be differentiated again (fused attention, a
`jax.custom_vjp` around a call of the host), nor can gradients from outside JAX. Methods that follow
first gradients alone solve such problems; `require_products` stops the others in one sentence,
before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    TypedDict,
    Unpack,
    cast,
    runtime_checkable,
)

import jax
import jax.numpy as jnp
import numpy as np

from decibo.capabilities import Need, Needs
from decibo.data.stream import Batches, FirstBatch, Samples, Stream, check_arguments
from decibo.errors import InputError, first_line, short
from decibo.formatting import in_notebook
from decibo.problem.dependence import check_traces
from decibo.programs import weak
from decibo.pytree import Layout, Tree, Vector, one_of
from decibo.validate import integer, only_known

if TYPE_CHECKING:
    from jaxtyping import Array, Float


Objective = Callable[[Tree, Tree, Tree], jax.Array]  # (x, y, data of one agent) -> a scalar
# the same -> its gradients, shaped like x and like y
GradientFunction = Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]
# (data of one agent, key) -> a minibatch that looks like it
Sampler = Callable[[Tree, jax.Array], Tree]
ClosedForm = Callable[[Tree, Tree], Tree]  # (x, data of all agents) -> y*(x)
Share = Callable[[Any], list[Any]]  # what this process has -> what each process has

# how JAX begins when asked to differentiate a call of the host
OUTSIDE_JAX = "Pure callbacks do not support JVP"
OUTSIDE = "it is computed outside JAX"


class Gradient(NamedTuple):
    """The parts in x and in y: of a gradient, or J v and H v."""

    x: Vector
    y: Vector


@runtime_checkable
class FlatGradient(Protocol):
    """A `GradientFunction` that takes and returns flat vectors as well."""

    def flat(self, x: Vector, y: Vector, d: Tree) -> tuple[Vector, Vector]:
        """The gradients in x and y."""
        ...


class Functions(NamedTuple):
    """What a compiled program depends on: the functions of one agent and the layouts of x and y."""

    outer: Objective
    inner: Objective
    sample: Sampler | None
    inner_solution: ClosedForm | None
    x: Layout
    y: Layout
    outer_gradient: GradientFunction | None = None
    inner_gradient: GradientFunction | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """Two objectives, private data and a starting point.

    outer, inner    functions (x, y, d) of ONE agent that return a scalar
    data            a pytree whose leaves all have a leading axis of agents, or a function agent ->
                    its data; or a `decibo.data.Stream`, whose first batches are then what the
                    measures see
    x0, y0          where to start, and the shapes of x and y: any pytrees of floating-point numbers
    sample          optional, (d, key) -> a minibatch that looks like d; or
                    `decibo.data.Batches(count)`, a fixed list; or a `decibo.data.Stream` of
                    minibatches from the host, beside which data is for the measures
    inner_solution  optional closed form (x, data of all agents) -> y*(x), used by
                    `decibo.reference` only
    solution        optional known answer {"x": ..., "y": ...}, used by the measures distance_x and
                    distance_y only
    agents          how many agents there are; needed only if data is a function
    constants       optional, what is known of the problem: mu_g, L_f1, ... as in decibo.theory
    outer_gradient, inner_gradient   optional functions (x, y, d) of ONE agent that return a pair,
                                     the gradients of
                    outer or inner in x and in y, shaped like x0 and y0: for gradients that JAX
                    cannot find itself
    """

    outer: Objective
    inner: Objective
    data: Tree  # or a function agent -> its data
    x0: Tree
    y0: Tree
    sample: Sampler | Stream | None = None
    inner_solution: ClosedForm | None = None
    solution: dict[str, Tree] | None = None
    agents: int | None = None
    name: str = "problem"
    constants: dict[str, float] | None = None
    outer_gradient: GradientFunction | None = None
    inner_gradient: GradientFunction | None = None
    x_layout: Layout = field(init=False)  # how x and y lie in flat vectors
    y_layout: Layout = field(init=False)

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        sizes = f"x of {self.x_layout.size} and y of {self.y_layout.size} numbers"
        agents = "" if self.agents is None else f"{self.agents} agents, "
        return f"Problem({self.name}: {agents}{sizes})"

    def __post_init__(self) -> None:
        if self.agents is not None:
            object.__setattr__(self, "agents", integer("agents", self.agents))
        if isinstance(self.data, Stream) or isinstance(self.sample, Stream):
            self._take_stream()
        for name in ("outer", "inner"):
            if not callable(getattr(self, name)):
                raise InputError(
                    f"{name} must be a function (x, y, d), but it is"
                    f" {short(repr(getattr(self, name)))}."
                )
        for name in ("sample", "inner_solution", "outer_gradient", "inner_gradient"):
            value = getattr(self, name)
            if not (value is None or callable(value) or isinstance(value, Stream)):
                raise InputError(
                    f"{name} must be a function or None, but it is {short(repr(value))}."
                )
        if not isinstance(self.constants, Mapping | None):
            raise InputError(
                "constants must be a dictionary such as {'mu_g': 1.0}, but it is"
                f" {self.constants!r}."
            )
        object.__setattr__(self, "x0", _floating("x0", self.x0))
        object.__setattr__(self, "y0", _floating("y0", self.y0))
        object.__setattr__(self, "x_layout", Layout.of(self.x0))
        object.__setattr__(self, "y_layout", Layout.of(self.y0))
        self._check_solution()
        if not callable(self.data):
            object.__setattr__(self, "data", _stacked(self.data))
            count = jax.tree.leaves(self.data)[0].shape[0]
            if self.agents not in (None, count):
                raise InputError(
                    f"agents is {self.agents}, but data has entries for {count} agents.",
                    "Leave agents out.",
                )
            object.__setattr__(self, "agents", count)
            self.check_data(self.data)

    @property
    def functions(self) -> Functions:
        """The part of the problem that a compiled program depends on; the data is passed to it."""
        # what it looks like is known when it is read
        sample = None if isinstance(self.sample, Stream) else self.sample
        return Functions(
            self.outer,
            self.inner,
            sample,
            self.inner_solution,
            self.x_layout,
            self.y_layout,
            self.outer_gradient,
            self.inner_gradient,
        )

    @property
    def gives(self) -> Needs:
        """What methods and runtimes have of this problem. Whether there are second derivatives is
        found out by a trace: `require_products`."""
        gives = {Need.SECOND_DERIVATIVES}
        if self.sample is not None:
            gives |= {Need.MINIBATCHES}
        if isinstance(self.sample, Batches):
            gives |= {Need.NUMBERED_BATCHES}
        if not isinstance(self.sample, Stream):
            gives |= {Need.FULL_DATA}
        return frozenset(gives)

    def restored(self, solution: Any) -> Any:
        """A run's solution as its caller stated the problem; `decibo.rescaled` changes it."""
        return solution

    @cached_property
    def known(self) -> dict[str, jax.Array]:
        """The known x and y as flat vectors, where the problem has them."""
        layouts = {"x": self.x_layout, "y": self.y_layout}
        trees = self.solution or {}
        return {
            name: layouts[name].ravel(jax.tree.map(jnp.asarray, tree))
            for name, tree in trees.items()
        }

    def start_rows(self, agents: int) -> dict[str, Float[Array, "agents size"]]:
        """x0 and y0 as flat rows, the same for each of so many agents; in memory they are there
        once."""
        points = {"x": self.x_layout.ravel(self.x0), "y": self.y_layout.ravel(self.y0)}
        return {
            name: cast("jax.Array", np.broadcast_to(p, (agents, p.size)))
            for name, p in points.items()
        }

    def check_agents(self, agents: int) -> None:
        """Reject a number of agents for which there is no data."""
        if self.agents not in (None, agents):
            raise InputError(
                f"The data is for {self.agents} agents, but the network has {agents}.",
                f"Make a network of {self.agents} agents, or split the data over {agents}.",
            )

    def local(self, agents: Sequence[int]) -> Tree:
        """The data of these agents, stacked. Calls a data function for these agents and no
        others."""
        if not callable(self.data):
            index = np.asarray(agents)
            if len(index) == self.agents and (index == np.arange(len(index))).all():
                return self.data
            return jax.tree.map(lambda leaf: leaf[index], self.data)
        return self.stacked(self.loaded(agents), agents)

    def loaded(self, agents: Sequence[int]) -> list[Tree]:
        """The data of each of these agents, from a data function."""
        return [_numbers_of(agent, self.data) for agent in agents]

    def stacked(self, parts: list[Tree], agents: Sequence[int], share: Share | None = None) -> Tree:
        """The data of these agents with a leading axis, if that of all agents has one shape;
        `Samples` are padded.

        share   tells all processes what this one has found, and returns what each has
        """
        mine = [[int(agent), *_described(part)] for agent, part in zip(agents, parts, strict=True)]
        everyone = [found for process in (share(mine) if share else [mine]) for found in process]
        first, words, _ = everyone[0]
        for agent, other, _ in everyone:
            if other != words:
                raise InputError(
                    "The data of all agents must have the same structure and shapes, but "
                    f"data({first}) has {words} and data({agent}) has {other}.",
                    "Where only the number of samples differs, return"
                    " decibo.data.samples(features=..., labels=...): it pads them to one size and"
                    " adds weights, 0 for padding.",
                )
        largest = np.max([sizes for _, _, sizes in everyone], axis=0)
        padded = [_padded(part, largest) for part in parts]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
        self.check_data(stacked)
        return stacked

    def _take_stream(self) -> None:
        """A stream in place of the data: minibatches come from it, and the first ones are what
        measures see."""
        if isinstance(self.data, Stream):
            if self.sample is not None or self.data.join is not None:
                raise InputError(
                    "Where a stream is the data, there is nothing else to draw from or to join it"
                    " with.",
                    "Pass what stays on the device as data, and the stream as sample.",
                )
            object.__setattr__(self, "sample", self.data)
            object.__setattr__(self, "data", FirstBatch(self.data))
        assert isinstance(self.sample, Stream)
        if self.agents is None:
            object.__setattr__(self, "agents", self.sample.agents)
        elif self.sample.agents not in (None, self.agents):
            raise InputError(
                f"agents is {self.agents}, but the stream is for {self.sample.agents} agents."
            )

    def _check_solution(self) -> None:
        """The known answer looks like x0 and y0."""
        if not isinstance(self.solution, Mapping | None):
            raise InputError(
                "solution must be a dictionary {'x': ..., 'y': ...}, but it is"
                f" {self.solution!r:.60}."
            )
        only_known("The solution of a problem", "variable", self.solution or {}, ("x", "y"))
        for name, tree in (self.solution or {}).items():
            layout = Layout.of(_floating(f"solution[{name!r}]", tree))
            wanted = self.x_layout if name == "x" else self.y_layout
            if (layout.treedef, layout.shapes) != (wanted.treedef, wanted.shapes):
                raise InputError(
                    f"solution[{name!r}] must look like {name}0, with shapes {list(wanted.shapes)},"
                    f" but it has {list(layout.shapes)}."
                )

    def check_data(self, data: Tree) -> None:
        """Check, without computing anything, that both objectives return one number for the data,
        or the minibatch, of one agent, and that a fixed list of batches fits."""
        x = jax.tree.map(_struct, self.x0)
        y = jax.tree.map(_struct, self.y0)
        d = one_of(data)
        given = {"outer_gradient": self.outer_gradient, "inner_gradient": self.inner_gradient}
        gradients = {name: function for name, function in given.items() if function is not None}
        traces = {}
        for name, function in {"outer": self.outer, "inner": self.inner, **gradients}.items():
            try:
                traces[name], value = jax.make_jaxpr(function, return_shape=True)(x, y, d)
            except InputError:
                raise
            except Exception as error:
                raise InputError(
                    f"{name}(x0, y0, data of one agent) raised {type(error).__name__}:"
                    f" {first_line(error)} ({name} must accept x shaped like x0, y shaped like y0"
                    " and the data of ONE agent.)",
                    "The data arrives without its leading axis of agents; write it with jax.numpy,"
                    " or wrap what is not JAX with decibo.integrations.host or"
                    " decibo.integrations.pytorch.",
                ) from error
            if name in gradients:
                _check_gradient(name, value, (x, y))
            else:
                _check_scalar(name, value)
        if not gradients and self.inner is not _half_square:
            check_traces(traces, x, y)
        if isinstance(self.sample, Batches):
            self.sample.check(data)


class ProblemOptions(TypedDict, total=False):
    """The optional arguments of `Problem` that make sense without an inner level."""

    sample: Sampler | None
    solution: dict[str, Tree] | None
    agents: int | None
    name: str
    constants: dict[str, float] | None


def single_level(
    objective: Callable[[Tree, Tree], jax.Array],
    data: Tree,
    x0: Tree,
    **extras: Unpack[ProblemOptions],
) -> Problem:
    """The problem min_x mean_i objective(x, d_i), as a bilevel problem whose inner level is a dummy
    y of one number.

    For the one-level methods of the catalogue. `extras` are the other arguments of `Problem`.
    """
    return Problem(
        _IgnoringY(objective), _half_square, data, x0, jnp.zeros((), jnp.zeros(()).dtype), **extras
    )


class _IgnoringY:
    """The objective with a y that it ignores; equal for equal objectives, so that programs are
    shared."""

    def __init__(self, objective: Callable[[Tree, Tree], jax.Array]):
        self.objective = objective

    def __call__(self, x: Tree, y: jax.Array, d: Tree) -> jax.Array:
        return self.objective(x, d) + 0.0 * y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IgnoringY) and other.objective is self.objective

    def __hash__(self) -> int:
        return hash(self.objective)


def _half_square(x: Tree, y: jax.Array, d: Tree) -> jax.Array:
    return 0.5 * y**2


def _struct(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _check_scalar(name: str, value: Tree) -> None:
    leaves = jax.tree.leaves(value)
    alone = jax.tree_util.treedef_is_leaf(jax.tree.structure(value))
    if (
        not alone
        or not leaves
        or leaves[0].shape != ()
        or not jnp.issubdtype(leaves[0].dtype, jnp.floating)
    ):
        listed = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        listed = listed if alone or not leaves else f"a {type(value).__name__} of {listed}"
        raise InputError(
            f"An objective must return one floating-point number, but {name} returns {listed}.",
            "Sum or average inside the function, and return only the objective.",
        )


def _check_gradient(name: str, value: Tree, wanted: tuple[Tree, Tree]) -> None:
    """A gradient is a pair of trees like x0 and y0."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(
            f"{name} must return the pair (gradient in x, gradient in y), but it returns a"
            f" {type(value).__name__}.",
            "Where the objective does not depend on one of them, return zeros for it.",
        )
    for variable, found, like in zip(("x", "y"), value, wanted, strict=True):
        words = [_shapes_of(tree) for tree in (found, like)]
        if words[0] != words[1]:
            raise InputError(
                f"The gradient in {variable} that {name} returns must look like {variable}0, that"
                f" is {words[1]}, but it is {words[0]}."
            )


def _shapes_of(tree: Tree) -> str:
    return str(jax.tree.map(lambda leaf: tuple(leaf.shape), tree))


def _floating(name: str, tree: Tree) -> Tree:
    """The tree as arrays of floating-point numbers."""
    leaves = jax.tree.leaves(tree)
    if not sum(map(np.size, leaves)):
        raise InputError(f"{name} must hold at least one number, but it is {short(repr(tree))}.")
    for leaf in leaves:
        if callable(leaf):
            raise InputError(
                f"The leaves of {name} must be arrays, but one is the function"
                f" {getattr(leaf, '__name__', leaf)}.",
                "Pass the arrays only, and put the model together inside outer and inner; for an"
                f" equinox module: {name}, static = equinox.partition(model,"
                " equinox.is_inexact_array), then equinox.combine.",
            )
        try:
            array = np.asarray(leaf)
        except Exception as error:
            raise InputError(
                f"The leaves of {name} must be arrays, but one is {short(repr(leaf))}."
            ) from error
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise InputError(
                f"{name} must be floating-point, since gradients are taken with respect to it, but"
                f" it has a leaf of type {array.dtype}.",
                "Write 0.0 instead of 0, or convert with .astype(float).",
            )
        if not np.isfinite(array).all():
            raise InputError(f"{name} must be finite, but it has an entry that is not.")
    # Not weakly typed: 0.0 from Python would otherwise change type inside a compiled loop.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.asarray(leaf).dtype), tree)


def _stacked(data: Tree) -> Tree:
    """The data as arrays, with its leading axes checked."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves:
        raise InputError(
            "data must hold at least one array with a leading axis of agents, but it is"
            f" {short(repr(data))}.",
            "If the agents need no data, give every agent its number: data=jnp.arange(agents).",
        )
    sizes = {}
    for path, leaf in leaves:
        name = "data" + jax.tree_util.keystr(path)
        _check_numbers(name, leaf)
        if np.ndim(leaf) == 0:
            raise InputError(
                "Every leaf of data must have a leading axis with one entry for each agent, but "
                f"{name} is {short(repr(leaf))}.",
                "Use an array of shape (agents, ...), or close over constants that all agents"
                " share.",
            )
        sizes[name] = np.shape(leaf)[0]
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{size} of {name}" for name, size in sizes.items())
        raise InputError(
            "All leaves of data must have the same leading axis, one entry for each agent, but"
            f" their lengths are {listed}.",
            "Reshape them to (agents, ...).",
        )
    if 0 in sizes.values():
        raise InputError(
            "There must be at least one agent, but the leading axis of data has length 0."
        )
    return jax.tree.map(jnp.asarray, data)


def _numbers_of(agent: int, data: Callable[[int], Tree]) -> Tree:
    """The data of one agent as arrays."""
    check_arguments("data", data, (agent,), "a function of an agent's number")
    own = data(int(agent))
    for path, leaf in jax.tree_util.tree_leaves_with_path(own):
        _check_numbers(f"data({agent}){jax.tree_util.keystr(path)}", leaf)
    return jax.tree.map(jnp.asarray, own)


def _is_samples(node: object) -> bool:
    return isinstance(node, Samples)


def _described(part: Tree) -> tuple[str, list[int]]:
    """The structure and shapes of an agent's data, and how many samples it has where that may
    differ."""
    nodes = jax.tree.leaves(part, is_leaf=_is_samples)
    shapes = jax.tree.map(
        lambda node: node.shapes() if _is_samples(node) else jnp.shape(node),
        part,
        is_leaf=_is_samples,
    )
    return str(shapes), [len(node) for node in nodes if isinstance(node, Samples)]


def _padded(part: Tree, sizes: np.ndarray) -> Tree:
    """The data with `Samples` as dictionaries of arrays of these sizes, in the order of the
    tree."""
    left = iter(sizes.tolist())
    pad = lambda node: node.padded(next(left)) if isinstance(node, Samples) else node
    return jax.tree.map(jnp.asarray, jax.tree.map(pad, part, is_leaf=_is_samples))


def _check_numbers(name: str, leaf: object) -> None:
    """A leaf of data must be an array of numbers: no text, no objects, nothing masked."""
    if np.ma.isMaskedArray(leaf):
        raise InputError(
            f"{name} is a masked array, whose mask the objectives would not see.",
            "Fill it, and give missing samples weight 0.",
        )
    dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
    if dtype.kind in "OSUMm" and not jnp.issubdtype(dtype, jax.dtypes.extended):
        kind = "text" if dtype.kind in "SU" else f"of type {dtype}"
        raise InputError(
            f"Data must be numbers, but {name} is {kind}: {short(repr(leaf))}.",
            "Encode labels as integers, with numpy.unique(labels, return_inverse=True)[1], for"
            " example.",
        )


class NoSecondDerivativesError(InputError):
    """The inner objective has first gradients only, and `reason` is why; `what` needs more."""

    def __init__(self, what: str, reason: str, remedy: str = Need.SECOND_DERIVATIVES.remedy):
        has = "which has first gradients only"
        super().__init__(
            f"{what} needs products with second derivatives of inner, {has}: {reason}.", remedy
        )
        self.reason = reason


def _differentiated(
    gradient: Callable[..., Tree], at: tuple[Vector, ...], along: tuple[Vector, ...]
) -> Tree:
    """The forward derivative of a gradient, which fused kernels and functions on the host do not
    have."""
    try:
        return jax.jvp(gradient, at, along)[1]
    except InputError:
        raise
    except (NotImplementedError, TypeError, ValueError) as error:
        reason = (
            OUTSIDE if OUTSIDE_JAX in str(error) else f"JAX says {first_line(error).rstrip('.')!r}"
        )
        raise NoSecondDerivativesError("What is computed here", reason) from error


@dataclass(frozen=True)
class Oracle:
    """One agent's objectives and derivatives, in flat vectors. Nothing here knows of other
    agents."""

    functions: Functions
    data: Tree

    def ask(self, question: str, *at: Vector) -> Any:
        """The answer to one question at (x, y) or (x, y, v). Whoever wraps an oracle overrides this
        and `on`; the other methods stand on it."""
        functions = self.functions
        unravel = lambda x, y: (functions.x.unravel(x), functions.y.unravel(y), self.data)
        f = lambda x, y: functions.outer(*unravel(x, y))
        g = lambda x, y: functions.inner(*unravel(x, y))

        def gradient(h: Callable, supplied: GradientFunction | None, x: Vector, y: Vector):
            if supplied is None:
                return Gradient(*jax.grad(h, argnums=(0, 1))(x, y))  # (1), (2)
            if isinstance(supplied, FlatGradient):
                return Gradient(*supplied.flat(x, y, self.data))
            in_x, in_y = supplied(*unravel(x, y))
            return Gradient(functions.x.ravel(in_x), functions.y.ravel(in_y))

        def part_of_inner(x: Vector, y: Vector, part: int) -> Vector:
            if functions.inner_gradient is not None:
                return gradient(g, functions.inner_gradient, x, y)[part]
            return jax.grad(g, argnums=part)(x, y)

        x, y, *along = at
        match question:
            case "outer_value":
                return f(x, y)
            case "inner_value":
                return g(x, y)
            case "outer":
                return gradient(f, functions.outer_gradient, x, y)
            case "inner":
                return gradient(g, functions.inner_gradient, x, y)
            case "products":
                inner = partial(gradient, g, functions.inner_gradient)
                return _differentiated(inner, (x, y), (jnp.zeros_like(x), *along))  # (3)
            case "hessian":
                return _differentiated(lambda y: part_of_inner(x, y, 1), (y,), tuple(along))
            case "jacobian":
                return _differentiated(lambda y: part_of_inner(x, y, 0), (y,), tuple(along))
        raise InputError(f"An oracle cannot answer {question!r}.")

    def outer_value(self, x: Vector, y: Vector) -> jax.Array:
        """f(x, y)."""
        return self.ask("outer_value", x, y)

    def inner_value(self, x: Vector, y: Vector) -> jax.Array:
        """g(x, y)."""
        return self.ask("inner_value", x, y)

    def outer(self, x: Vector, y: Vector) -> Gradient:
        """The gradient of f: (f_x, f_y)."""
        return self.ask("outer", x, y)

    def inner(self, x: Vector, y: Vector) -> Gradient:
        """The gradient of g: (g_x, g_y)."""
        return self.ask("inner", x, y)

    def products(self, x: Vector, y: Vector, v: Vector) -> Gradient:
        """Second derivatives of g times v, without forming them: (J v, H v)."""
        return self.ask("products", x, y, v)

    def hessian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        """H v alone."""
        return self.ask("hessian", x, y, v)

    def jacobian(self, x: Vector, y: Vector, v: Vector) -> Vector:
        """J v alone."""
        return self.ask("jacobian", x, y, v)

    def sampled(self, key: jax.Array) -> Oracle:
        """The same agent on a minibatch, if the problem says how to draw one."""
        sample = self.functions.sample
        return self if sample is None else self.on(sample(self.data, key))

    @property
    def batches(self) -> Batches:
        """The fixed list of batches, if minibatches are drawn from one."""
        if not isinstance(self.functions.sample, Batches):
            raise InputError(
                "This needs a fixed list of batches, which the problem does not have.",
                Need.NUMBERED_BATCHES.remedy,
            )
        return self.functions.sample

    def batch(self, j: jax.Array) -> Oracle:
        """The same agent on batch j of a fixed list."""
        return self.on(self.batches.batch(self.data, j))

    def on(self, data: Tree) -> Oracle:
        """The same agent on some of its data."""
        return replace(self, data=data)


def why_no_products(functions: Functions, data: Tree) -> str:
    """Why there are no products with second derivatives of the inner objective; empty if there are.

    data   that of one agent, or its shapes
    """
    leaves, treedef = jax.tree.flatten(data)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return _why_no_products(weak(functions), treedef, shapes)


def require_products(
    what: str, functions: Functions, data: Tree, remedy: str = Need.SECOND_DERIVATIVES.remedy
) -> None:
    """Reject an inner objective without second derivatives, on behalf of `what`, which needs
    them."""
    reason = why_no_products(functions, data)
    if reason:
        raise NoSecondDerivativesError(what, reason, remedy)


# The functions are weak references: a cache of them would keep what they close over alive.
@lru_cache(maxsize=64)
def _why_no_products(
    functions: Functions, treedef: Any, shapes: tuple[jax.ShapeDtypeStruct, ...]
) -> str:
    # Traced under vmap over agents, as it will run: without it, JAX notices a missing derivative
    # only when it compiles.
    one = lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype)
    x, y = one(functions.x.struct), one(functions.y.struct)
    data = jax.tree.unflatten(treedef, [one(leaf) for leaf in shapes])
    products = lambda d, x, y, v: Oracle(functions, d).products(x, y, v)
    try:
        jax.eval_shape(jax.vmap(products), data, x, y, y)
    except NoSecondDerivativesError as error:
        return error.reason
    return ""


def check_is_problem(problem: object) -> None:
    """It must be a problem."""
    if not isinstance(problem, Problem):
        raise InputError(
            "problem must be a decibo problem such as decibo.Problem(outer, inner, data, x0, y0),"
            f" but it is {short(repr(problem))}."
        )
