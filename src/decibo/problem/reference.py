r"""The exact reference of the averaged problem, for checking what agents reach without it.

    y*(x) = argmin over y of mean_i g_i(x, y),   Phi(x) = mean_i f_i(x, y*(x)),   grad Phi(x)

It sees the data of all agents, so it belongs to experiments and tests, not to a deployment.
`Reference` takes and returns the user's pytrees and raises where `exact` and `solve_inner`, made
for compiled loops, return flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, short
from decibo.formatting import in_notebook
from decibo.problem.newton import (
    Exact,
    InnerSolve,
    exact,
    hypergradient,
    mean_hessian,
    newton,
    solve_inner,
)
from decibo.problem.problem import (
    Functions,
    Problem,
    check_is_problem,
    require_products,
    why_no_products,
)
from decibo.programs import jitted
from decibo.pytree import Layout, Tree, Vector, one_of
from decibo.validate import integer

__all__ = [
    "Answer",
    "Exact",
    "Reference",
    "exact",
    "hypergradient",
    "not_strongly_convex",
    "reference",
    "solve_inner",
]

_newton = jitted()(newton)
_hessian = jitted()(mean_hessian)

ELSEWHERE = (
    "It has no exact answers to compare with: judge a run by its measures 'direction_norm' and"
    " 'outer'."
)
MOST = 4096  # inner variables whose Hessian is formed to explain a failure


class Answer(NamedTuple):
    """y*(x), Phi(x) and grad Phi(x) in the user's pytrees."""

    y: Tree
    phi: jax.Array
    grad: Tree


class Reference:
    """y*(x), Phi(x) and grad Phi(x) of the averaged problem; raises instead of returning an
    inaccurate value."""

    def __init__(self, functions: Functions, data: Tree, x0: Tree, y0: Tree):
        self.functions = functions
        self.data = data
        self.x0 = x0
        self.y0 = y0

    _repr_html_ = in_notebook

    def __repr__(self) -> str:
        agents = jax.tree.leaves(self.data)[0].shape[0]
        sizes = f"x of {self.functions.x.size} and y of {self.functions.y.size} numbers"
        return f"Reference({agents} agents, {sizes})"

    def at(self, x: Tree) -> Answer:
        """All three at once: one solve."""
        require_products("The exact reference", self.functions, one_of(self.data), ELSEWHERE)
        flat = self.flat(x)
        answer = exact(self.functions, self.data, flat, self.functions.y.ravel(self.y0))
        if not answer.converged:
            self._explain(flat)
        return Answer(
            self.functions.y.unravel(answer.y), answer.phi, self.functions.x.unravel(answer.grad)
        )

    def y(self, x: Tree) -> Tree:
        """y*(x), shaped like y0."""
        return self.at(x).y

    def phi(self, x: Tree) -> jax.Array:
        """Phi(x)."""
        return self.at(x).phi

    def grad(self, x: Tree) -> Tree:
        """grad Phi(x), shaped like x0."""
        return self.at(x).grad

    def check(self, x: Tree, *, directions: int = 3, seed: int = 0) -> float:
        """The largest error of grad Phi(x) against central differences of Phi, relative to |grad
        Phi(x)|."""
        flat = self.flat(x)
        gradient = self.functions.x.ravel(self.grad(x))
        h = float(jnp.finfo(flat.dtype).eps) ** (1 / 3) * (1 + float(jnp.linalg.norm(flat)))
        errors = []
        for key in jax.random.split(jax.random.key(seed), directions):
            d = jax.random.normal(key, flat.shape, flat.dtype)
            d = d / jnp.linalg.norm(d)
            up = self.phi(self.functions.x.unravel(flat + h * d))
            down = self.phi(self.functions.x.unravel(flat - h * d))
            errors.append(float(jnp.abs((up - down) / (2 * h) - gradient @ d)))
        return max(errors) / max(
            float(jnp.linalg.norm(gradient)), float(jnp.finfo(flat.dtype).tiny)
        )

    def flat(self, x: Tree) -> Vector:
        """x as a flat vector, if it looks like x0."""
        tree = jax.tree.map(jnp.asarray, x)
        layout = Layout.of(tree)
        if (layout.treedef, layout.shapes) != (self.functions.x.treedef, self.functions.x.shapes):
            raise InputError(
                f"x must look like x0, with structure {self.functions.x.treedef} and shapes"
                f" {list(self.functions.x.shapes)}, but it has structure {layout.treedef} and"
                f" shapes {list(layout.shapes)}.",
                "Pass one x, not one for each agent.",
            )
        return self.functions.x.ravel(tree)

    def _explain(self, x: Vector) -> NoReturn:
        """Say why there is no answer at x."""
        inner = _newton(self.functions, self.data, x, self.functions.y.ravel(self.y0))
        flat = not_strongly_convex(self.functions, self.data, x, inner.point.y, "at this x")
        if flat is not None:
            raise flat
        raise InputError(
            "The averaged inner problem was not solved: Newton's method stopped after"
            f" {int(inner.steps)} steps with |mean g_y| ="
            f" {float(jnp.linalg.norm(inner.point.gradient)):.3g}, while the agents' own |g_y| are"
            f" about {float(inner.point.gradient_size):.3g}.",
            self._remedy(inner),
        )

    def _remedy(self, inner: InnerSolve) -> str:
        if not bool(jnp.all(jnp.isfinite(inner.point.gradient))):
            return (
                "The gradient is not finite at this x: check x and the objectives (decibo needs"
                " smooth ones)."
            )
        return (
            "Start from a better y0, use float64 (jax_enable_x64), scale the data, "
            "or strengthen the convexity of inner."
        )


def reference(problem: Problem, *, agents: int | Sequence[int] | None = None) -> Reference:
    """The exact y*(x), Phi(x) and grad Phi(x) of a problem, or of some of its agents (a number of
    them or a list)."""
    check_is_problem(problem)
    requested = problem.agents if agents is None else agents
    if requested is None:
        raise InputError(
            "The reference averages over all agents, but the problem does not say how many agents"
            " it has.",
            "Pass agents= here or to Problem.",
        )
    if isinstance(requested, str) or not isinstance(requested, int | Iterable):
        raise InputError(
            f"agents must be a number of agents or a list of them, but it is {short(repr(agents))}."
        )
    listed = range(requested) if isinstance(requested, int) else requested
    indices = [integer("An agent's number", agent, least=0) for agent in listed]
    unknown = [
        agent
        for agent in indices
        if agent < 0 or (problem.agents is not None and agent >= problem.agents)
    ]
    if unknown or not indices:
        raise InputError(
            f"agents must name at least one and at most all of the {problem.agents} agents, but it"
            f" is {agents!r}.",
            "Leave it out for all agents.",
        )
    return Reference(problem.functions, problem.local(indices), problem.x0, problem.y0)


def not_strongly_convex(
    functions: Functions, data: Tree, x: Vector, y: Vector, where: str
) -> InputError | None:
    """What is wrong with the averaged inner objective at (x, y), if it can be told: it has no
    curvature somewhere."""
    if y.size > MOST or why_no_products(functions, one_of(data)):
        return None
    hessian = np.asarray(_hessian(functions, data, x, y), dtype=np.float64)
    if not np.isfinite(hessian).all():
        return None
    eigenvalues = np.linalg.eigvalsh((hessian + hessian.T) / 2)
    if eigenvalues[0] > y.size * float(jnp.finfo(y.dtype).eps) * max(eigenvalues[-1], 0.0):
        return None
    return InputError(
        "The averaged inner objective must be strongly convex in y, but its Hessian has the"
        f" eigenvalue {eigenvalues[0]:.3g} {where}.",
        "Add a ridge term such as 0.5 * mu * |y|^2 to inner, or check its sign.",
    )
