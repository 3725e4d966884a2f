r"""The same problem with the inner variable measured in other units, in which its curvature cannot
move.

    (1)  y = s(x) v                                       entry by entry, s(x) > 0
    (2)  f~(x, v) = f(x, s(x) v),   g~(x, v) = g(x, s(x) v)

For every x, v -> y is a bijection, so y*(x) = s(x) v*(x), and Phi, its gradient and the start are
those of the problem itself. What changes is the Hessian of the inner level, S H S with S = diag
s(x). Where x holds logarithms of penalties, H moves by orders of magnitude while a run goes on, and
no constant step size suits both ends: upwards it diverges, downwards y lags behind y*(x), and a
lagging y is early stopping, which tells x to shrink further. With s = 1/sqrt(diag H) the diagonal
stays 1.

Every agent must use the same s(x), since they agree on v: s may read their data only where all have
the same, such as numbers that were exchanged once. Without s, a constant one is found at the start,

    (3)  s_j = 1/sqrt(max(H_jj, max_k H_kk / 1000)),   H = mean_i d2 g_i / dy dy  at (x0, y0)
    (4)  H_jj ~ mean over signs u of u_j (H u)_j       (H u)_j by products, or by secants of g_y

with every unit vector in place of u where y has up to EXACT numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from decibo.data.stream import Stream
from decibo.errors import InputError, first_line
from decibo.problem.problem import Objective, Oracle, Problem, check_is_problem, why_no_products
from decibo.pytree import Tree, one_of

if TYPE_CHECKING:
    from decibo.run.solution import Solution

Scale = Callable[[Tree, Tree], Tree]  # (x, data of one agent) -> s(x), shaped like y
EXACT = 256
PROBES = 64
SMALLEST = 1e-3


@dataclass(frozen=True)
class _Rescaled:
    """An objective, or its gradient, of (x, v): equal for equal ones, so that programs are
    shared."""

    of: Callable[..., Any]
    scale: Scale

    def __call__(self, x: Tree, v: Tree, d: Tree) -> jax.Array:
        return self.of(x, _times(self.scale(x, d), v), d)  # (2)


class _RescaledGradient(_Rescaled):
    def __call__(self, x: Tree, v: Tree, d: Tree) -> Any:
        y, back = jax.vjp(lambda x, v: _times(self.scale(x, d), v), x, v)
        in_x, in_y = self.of(x, y, d)
        more, in_v = back(jax.tree.map(lambda g, like: g.astype(like.dtype), in_y, y))
        return jax.tree.map(jnp.add, in_x, more), in_v


class _RescaledSolution(_Rescaled):
    def __call__(self, x: Tree, d: Tree) -> Any:  # type: ignore[override]
        s = self.scale(x, jax.tree.map(lambda leaf: leaf[0], d))
        return jax.tree.map(jnp.divide, self.of(x, d), s)


@dataclass(frozen=True, eq=False)
class RescaledProblem(Problem):
    """A problem in v; its solutions are in y again."""

    scale: Scale = lambda x, d: 1.0

    def original(self, x: Tree, v: Tree) -> Tree:
        """y = s(x) v, in the units of the problem as it was stated."""
        return _times(self.scale(x, jax.tree.map(lambda leaf: leaf[0], self.data)), v)

    def restored(self, solution: Solution) -> Solution:
        """The solution with y, and every agent's own, in the units of the problem as it was
        stated."""
        own = vars(solution.agents)
        points = {
            name: jax.vmap(self.original)(own["x"], own[name]) for name in ("y", "z") if name in own
        }
        y = self.original(solution.x, solution.y)
        agents = SimpleNamespace(**own | points)
        return replace(cast("Any", solution), y=y, agents=agents)


def rescaled(problem: Problem, scale: Scale | None = None) -> Problem:
    """The problem with its inner variable in other units: y = scale(x, d) v, entry by entry. Phi,
    its gradient and x are the same; solutions are in the units of the problem itself, what measures
    see is v.

    scale   (x, data of one agent) -> positive factors shaped like y0, the same for every agent;
            without it, constants that make the diagonal of the inner Hessian 1 at the start, found
            by products with second derivatives, or by secants of first gradients where there are
            none
    """
    check_is_problem(problem)
    if callable(problem.data) or isinstance(problem.sample, Stream):
        raise InputError(
            "The data of all agents must be at hand, but that of this problem is read by a"
            " function or a stream.",
            "Rescale inside outer and inner: y = s(x) v, with v in place of y.",
        )
    if scale is None:
        found = _found(problem)
        scale = lambda x, d: found
    first = lambda d: jax.tree.map(lambda leaf: leaf[0], d)
    try:
        everyone = jax.vmap(lambda d: scale(problem.x0, d))(problem.data)
        v0 = jax.tree.map(jnp.divide, problem.y0, first(everyone))
    except (TypeError, ValueError) as error:
        raise InputError(
            "scale(x0, data of one agent) must return factors shaped like y0, but it raised"
            f" {type(error).__name__}: {first_line(error)}."
        ) from error
    for leaf in map(np.asarray, jax.tree.leaves(everyone)):
        if not (np.isfinite(leaf) & (leaf > 0)).all():
            raise InputError(
                f"scale(x0, d) must be positive, but its smallest entry is {leaf.min():.3g}."
            )
        if np.ptp(leaf, axis=0).max() > 1e-6 * leaf.max():
            raise InputError(
                "scale(x, d) must be the same for every agent, since they agree on y, but at x0 it"
                f" differs by up to {np.ptp(leaf, axis=0).max():.3g}.",
                "Exchange what it reads first: put the mean of all agents into the data of each.",
            )
    functions: dict[str, Any] = {
        name: kind(getattr(problem, name), scale)
        for name, kind in {
            "outer": _Rescaled,
            "inner": _Rescaled,
            "outer_gradient": _RescaledGradient,
            "inner_gradient": _RescaledGradient,
            "inner_solution": _RescaledSolution,
        }.items()
        if getattr(problem, name) is not None
    }
    known = None
    if problem.solution is not None:
        known = dict(problem.solution)
        if known.keys() == {"x", "y"}:
            s = scale(known["x"], first(problem.data))
            known["y"] = jax.tree.map(jnp.divide, known["y"], s)
        else:
            known.pop("y", None)
    kept = {name: getattr(problem, name) for name in ("data", "x0", "sample", "agents", "name")}
    return RescaledProblem(
        y0=v0, solution=known, **{k: cast("Objective", f) for k, f in functions.items()}, **kept,
        scale=scale,
    )  # fmt: skip


def _times(s: Tree, v: Tree) -> Tree:
    """(1); factors of one number serve every entry."""
    return jax.tree.map(lambda factor, entry: (factor * entry).astype(entry.dtype), s, v)


def _found(problem: Problem) -> Tree:
    """(3), (4)."""
    functions = problem.functions
    start = problem.start_rows(1)
    x = start["x"][0]
    y = start["y"][0]
    secants = bool(why_no_products(functions, one_of(problem.data)))
    h = float(jnp.finfo(y.dtype).eps) ** (1 / 3) * (1 + float(jnp.linalg.norm(y)))
    n = y.size
    if n <= EXACT:
        probes = jnp.eye(n, dtype=y.dtype)
    else:
        probes = jax.random.rademacher(jax.random.key(0), (PROBES, n), y.dtype)

    def along(u: jax.Array, d: Tree) -> jax.Array:
        oracle = Oracle(functions, d)
        if secants:
            return (oracle.inner(x, y + h * u).y - oracle.inner(x, y - h * u).y) / (2 * h)
        return oracle.hessian(x, y, u)

    one = lambda u: u * jnp.mean(jax.vmap(lambda d: along(u, d))(problem.data), axis=0)
    parts = jax.jit(lambda us: jax.lax.map(one, us))(probes)
    diagonal = jnp.sum(parts, axis=0) if n <= EXACT else jnp.mean(parts, axis=0)  # (4)
    most = jnp.max(diagonal)
    if not (jnp.isfinite(most) & (most > 0)):
        raise InputError(
            f"The inner level must be strongly convex at the start, but its largest curvature along"
            f" a coordinate is {float(most):.3g}.",
            "Pass scale, or start from a better y0.",
        )
    return problem.y_layout.unravel(1 / jnp.sqrt(jnp.maximum(diagonal, SMALLEST * most)))  # (3)
