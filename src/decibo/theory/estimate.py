r"""The constants of a problem, on the region a run visits.                  [paper, Assumptions 1, 2 and 4]

    (1)  points: x where the run was, or around x0;  y = y*(x), y*(x) + radius u, |u| = 1, and y0 at the first
    (2)  L_f1, L_g1 = largest |eigenvalue| of the Hessians of f_i, g_i in (x, y);  mu_g = smallest of g_i in y
    (3)  L_g2 = largest |D3 g_i|
    (4)  C_fy = max |f_y|,   b_f^2, b_g^2 = largest heterogeneity,   of agents at (x, y*(x))

A problem whose second derivatives do not change between the points is quadratic: L_f1, L_g1, L_g2 and mu_g are
then exact everywhere, and (4) on the convex hull of the x, where convex functions are largest at the corners.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.problem.heterogeneity import gradient_spreads as spreads
from decibo.problem.newton import solve_inner
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions, Problem
from decibo.problem.reference import reference
from decibo.pytree import Tree, Vector
from decibo.theory.constants import Constants
from decibo.theory.curvature import DENSE, agents, thirds
from decibo.validate import at_least, integer


def constants(
    problem: Problem,
    x: Tree = None,
    *,
    radius: float = 1.0,
    samples: int = 8,
    seed: int = 0,
    minimax: bool = False,
) -> Constants:
    """Exact for quadratics, estimated for others: `estimated` says which.

    x         points a run visited, stacked: `solution.agents.x`, or a recorded path; by default x0, the known
              solution if there is one, and points at distance `radius` from x0
    radius    how far from y*(x), and from x0, to look
    samples   at how many of the points to measure curvature
    minimax   whether to use the constants of the minimax case, g = -f
    """
    radius, samples = at_least("radius", radius, 0.0), integer("samples", samples)
    everyone = reference(problem)
    functions, data = everyone.functions, everyone.data
    key = jax.random.key(seed)
    points = _around(problem, radius, samples, key) if x is None else _given(problem, x)
    start = problem.y_layout.ravel(problem.y0)
    ys, solved, slope, b_f2, b_g2 = map(np.asarray, _first_order(functions, data, points, start))
    chosen = np.unique(np.linspace(0, len(points) - 1, samples).astype(int))
    places = _places(points[chosen], np.where(solved[chosen, None], ys[chosen], start), start, radius, key)
    seen = jax.device_get(_second_order(functions, data, *places, key))
    mu_g = _convex(problem, places, seen["g_yy"][..., 0])
    for place in points[~solved][:1]:
        everyone.at(problem.x_layout.unravel(place))  # says why there is no y*(x)
    quadratic = _unchanging(seen["probe"])
    exact = quadratic and functions.x.size + functions.y.size <= DENSE
    return Constants(
        mu_g=mu_g,
        L_f1=float(np.abs(seen["f"]).max()),  # (2)
        L_g1=max(float(np.abs(seen["g"]).max()), mu_g),  # (2)
        L_g2=0.0 if quadratic else float(jnp.max(_third_order(functions, data, *places, key))),  # (3)
        C_fy=float(slope.max()),
        b_f=float(b_f2.max()) ** 0.5,
        b_g=float(b_g2.max()) ** 0.5,  # (4)
        estimated=not exact,
        minimax=minimax,
    )


def _around(problem: Problem, radius: float, samples: int, key: jax.Array) -> jax.Array:
    """x0, the known solution, and points around x0: along the axes if they are few, else at random."""
    centre = problem.x_layout.ravel(problem.x0)
    axes = jnp.eye(centre.size, dtype=centre.dtype)
    if 2 * centre.size > max(samples, 64):
        axes = jax.random.normal(key, (samples, centre.size), centre.dtype)
    offsets = radius * axes / jnp.linalg.norm(axes, axis=1, keepdims=True)
    rows = [centre[None], centre + offsets, centre - offsets]
    if problem.solution and "x" in problem.solution:
        rows.insert(1, problem.x_layout.ravel(jax.tree.map(jnp.asarray, problem.solution["x"]))[None])
    return jnp.concatenate(rows)  # (1)


def _given(problem: Problem, x: Tree) -> jax.Array:
    leaves, treedef = jax.tree.flatten(jax.tree.map(jnp.asarray, x))
    layout = problem.x_layout
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if treedef != layout.treedef and len(leaves) == 1 and leaves[0].shape[1:] == (layout.size,):
        return leaves[0].astype(layout.dtype)  # flat vectors
    shapes = tuple(leaf.shape[1:] for leaf in leaves)
    if treedef != layout.treedef or shapes != layout.shapes or len(counts) != 1 or counts == {0}:
        raise InputError(
            f"x has shapes {[leaf.shape for leaf in leaves]}",
            f"it must be points shaped like x0, {list(layout.shapes)}, stacked along a first axis",
            "Pass solution.agents.x, or jax.numpy.stack the points.",
        )
    rows = layout.ravel_agents(jax.tree.unflatten(treedef, leaves))
    if not bool(jnp.all(jnp.isfinite(rows))):
        raise InputError("x holds a number that is not finite", "points must be finite", "Leave them out.")
    return rows


def _places(x: Any, ys: Any, start: Vector, radius: float, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Pairs (x, y), (1)."""
    away = jax.random.normal(jax.random.fold_in(key, 1), ys.shape, start.dtype)
    away = jnp.asarray(ys) + radius * away / jnp.linalg.norm(away, axis=1, keepdims=True)
    x = jnp.asarray(x)
    return jnp.concatenate([x, x, x[:1]]), jnp.concatenate([jnp.asarray(ys), away, start[None]])


def _at_solution(functions: Functions, data: Tree, points: jax.Array, start: Vector) -> Any:
    def one(x: Vector) -> Any:
        y, solved = solve_inner(functions, data, x, start)
        slopes = jax.vmap(lambda d: jnp.linalg.norm(Oracle(functions, d).outer(x, y)[1]))(data)
        f_x, f_y, g_x, g_y = spreads(functions, data, x, y)
        return y, solved, jnp.max(slopes), jnp.maximum(f_x, f_y), jnp.maximum(g_x, g_y)  # (4)

    return jax.lax.map(one, points)


def _everywhere(functions: Functions, data: Tree, xs: jax.Array, ys: jax.Array, key: jax.Array) -> Any:
    return jax.lax.map(lambda place: agents(functions, data, place[0], place[1], key), (xs, ys))


def _bends(functions: Functions, data: Tree, xs: jax.Array, ys: jax.Array, key: jax.Array) -> jax.Array:
    return jax.lax.map(lambda place: thirds(functions, data, place[0], place[1], key), (xs, ys))


_first_order = jax.jit(_at_solution, static_argnums=0)
_second_order = jax.jit(_everywhere, static_argnums=0)
_third_order = jax.jit(_bends, static_argnums=0)


def _convex(problem: Problem, places: tuple[jax.Array, jax.Array], lows: np.ndarray) -> float:
    """mu_g, if it is positive at every point."""
    point, agent = np.unravel_index(np.argmin(np.where(np.isnan(lows), -np.inf, lows)), lows.shape)
    low = float(lows[point, agent])
    if not low > 0:
        x, y = (_shown(place[point]) for place in places)
        raise InputError(
            f"the inner Hessian of agent {agent} has the eigenvalue {low:.4g} at x = {x}, y = {y}",
            "every g_i must be strongly convex in y where a run goes (Assumption 2)",
            "Add a ridge term such as 0.5 * mu * |y|^2 to inner, or pass the points x of a run.",
        )
    return low


def _unchanging(probes: np.ndarray) -> bool:
    """Whether a product with the second derivatives is the same at all points, up to rounding."""
    scale = np.abs(probes).max()
    return bool(np.ptp(probes, axis=0).max() <= 1e3 * np.finfo(probes.dtype).eps * scale)


def _shown(vector: jax.Array) -> str:
    text = np.array2string(np.asarray(vector), precision=4, threshold=8, edgeitems=3, separator=", ")
    return " ".join(text.split())
