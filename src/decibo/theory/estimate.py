r"""The constants of a problem, on the region a run visits.          [paper, Assumptions 1, 2 and 4]

    (1)  points: x where the run was, or around x0;  y = y*(x), y*(x) + radius u, |u| = 1, and y0
    (2)  L_f1, L_g1 = largest |eigenvalue| of the Hessians of f_i, g_i in (x, y);  mu_g = smallest
         of g_i in y
    (3)  L_g2 = largest |D3 g_i|
    (4)  C_fy = max |f_y|,   b_f^2, b_g^2 = largest heterogeneity,   of agents at (x, y*(x))

Curvature at a point comes from products with second and third derivatives:

    (5)  H v    = d/dt grad h(p + t v)                      one product costs about two gradients
    (6)  Lanczos: Q orthonormal in span(v, H v, H^2 v, ...);  extreme eigenvalues of Q H Q'
    (7)  |D3 h| = max over |v| = 1 of |D3 h[v, v, v]|       power iteration v <- D3 h[v, v]/|.|

(7) is the Lipschitz constant of the Hessian at p, since the largest value of a symmetric form is
reached with all arguments equal. Up to DENSE variables (6) is replaced by the dense matrix and is
exact; beyond, it lies within the spectrum and (7) may miss the largest of several maxima: both are
estimates from below.

A problem is quadratic if a product (5) is the same at all points, up to 1e3 roundings, and its own
derivative

    (8)  D3 h[u, v] = d/dt H(p + t u) v               is zero, up to 8 roundings, for random u and v

at each of them. Rounding hides a small change of H between points but not a small D3, which is
computed as zero for a quadratic; a function made of quadratic pieces has D3 = 0 but not the same H.
Then L_f1, L_g1, L_g2 and mu_g are exact everywhere, and (4) on the convex hull of the x, where
convex functions are largest at the corners.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.errors import InputError
from decibo.formatting import format_array
from decibo.problem.heterogeneity import gradient_spreads
from decibo.problem.newton import solve_inner
from decibo.problem.problem import Functions, Oracle, Problem, require_products
from decibo.problem.reference import reference
from decibo.programs import jitted
from decibo.pytree import Tree, Vector, one_of
from decibo.theory.constants import Constants
from decibo.validate import at_least, integer

DENSE = 64  # up to so many variables, eigenvalues are those of the dense matrix
KRYLOV = 48  # products of a Lanczos run
STARTS = 4  # of the power iteration (7)
SWEEPS = 30  # of the power iteration (7)
Scalar = Callable[[Vector], jax.Array]


def constants(
    problem: Problem,
    x: Tree = None,
    *,
    radius: float = 1.0,
    samples: int = 8,
    seed: int = 0,
    minimax: bool = False,
) -> Constants:
    """The constants of Theorem 1: exact for quadratics, otherwise estimates (`estimated` says
    which).

    x         points that a run visited, stacked: `solution.agents.x`, or a recorded path; by
              default x0, the solution if it is known, and points at distance `radius` from x0
    radius    how far from y*(x) and from x0 the points lie
    samples   how many of the points to measure curvature at
    minimax   whether to use the constants of the minimax case, g = -f
    """
    radius = at_least("radius", radius, 0.0)
    samples = integer("samples", samples)
    exact_problem = reference(problem)
    functions = exact_problem.functions
    data = exact_problem.data
    if problem.outer_gradient is not None or problem.inner_gradient is not None:
        raise InputError(
            "The constants are found from second and third derivatives of outer and inner, but this"
            " problem comes with gradients of its own.",
            "State the constants that are known: Problem(..., constants={...}).",
        )
    require_products("decibo.theory.constants", functions, one_of(data))
    key = jax.random.key(seed)
    # First order at all points, and pairs (x, y) around some of them for the rest, (1).
    points = _around(problem, radius, samples, key) if x is None else _visited(problem, x)
    start = problem.y_layout.ravel(problem.y0)
    ys, solved, slope, b_f2, b_g2 = map(np.asarray, _first_order(functions, data, points, start))
    subset = np.unique(np.linspace(0, len(points) - 1, samples).astype(int))
    xs = points[subset]
    near = jnp.asarray(np.where(solved[subset, None], ys[subset], start))
    away = jax.random.normal(jax.random.fold_in(key, 1), near.shape, start.dtype)
    away = near + radius * away / jnp.linalg.norm(away, axis=1, keepdims=True)
    pairs = jnp.concatenate([xs, xs, xs[:1]]), jnp.concatenate([near, away, start[None]])
    curvature = jax.device_get(_second_order(functions, data, *pairs, key))
    # Strong convexity before y*(x): where it fails, this is the better message.
    lows = curvature["g_yy"][..., 0]
    point, agent = np.unravel_index(np.argmin(np.where(np.isnan(lows), -np.inf, lows)), lows.shape)
    mu_g = float(lows[point, agent])
    if not mu_g > 0:
        at_x, at_y = (format_array(part[point]) for part in pairs)
        raise InputError(
            "Every g_i must be strongly convex in y where a run goes (Assumption 2), but the inner"
            f" Hessian of agent {agent} has the eigenvalue {mu_g:.4g} at x = {at_x}, y = {at_y}.",
            "Add a ridge term such as 0.5 * mu * |y|^2 to inner, or pass the points x of a run.",
        )
    for unsolved in points[~solved][:1]:
        exact_problem.at(problem.x_layout.unravel(unsolved))  # raises: there is no y*(x), and why
    # Quadratic: the same products at all points, and (8) zero; NaN, as of y**2.0 at y = 0, says
    # nothing.
    probes = curvature["probe"]
    bends = curvature["bend"]
    rounding = np.finfo(probes.dtype).eps * np.abs(probes).max()
    quadratic = np.ptp(probes, axis=0).max() <= 1e3 * rounding and bool(
        np.abs(bends[np.isfinite(bends)]).max(initial=0.0) <= 8 * rounding
    )
    exact = quadratic and functions.x.size + functions.y.size <= DENSE
    L_f1 = float(np.abs(curvature["f"]).max())  # (2)
    L_g1 = max(float(np.abs(curvature["g"]).max()), mu_g)  # (2)
    if minimax and np.isclose(L_f1, L_g1, rtol=1e-3):  # g = -f: equal but for rounding
        L_f1 = L_g1 = max(L_f1, L_g1)
    return Constants(
        mu_g=mu_g,
        L_f1=L_f1,
        L_g1=L_g1,
        # (3)
        L_g2=0.0 if quadratic else float(jnp.max(_third_order(functions, data, *pairs, key))),
        C_fy=float(slope.max()),
        b_f=float(b_f2.max()) ** 0.5,
        b_g=float(b_g2.max()) ** 0.5,  # (4)
        estimated=not exact,
        minimax=minimax,
    )


def _around(problem: Problem, radius: float, samples: int, key: jax.Array) -> jax.Array:
    """x0, the known solution, and points around x0: along the axes if they are few, else at
    random."""
    centre = problem.x_layout.ravel(problem.x0)
    axes = jnp.eye(centre.size, dtype=centre.dtype)
    if 2 * centre.size > max(samples, 64):
        axes = jax.random.normal(key, (samples, centre.size), centre.dtype)
    offsets = radius * axes / jnp.linalg.norm(axes, axis=1, keepdims=True)
    rows = [centre[None], centre + offsets, centre - offsets]
    if problem.solution and "x" in problem.solution:
        known = jax.tree.map(jnp.asarray, problem.solution["x"])
        rows.insert(1, problem.x_layout.ravel(known)[None])
    return jnp.concatenate(rows)  # (1)


def _visited(problem: Problem, x: Tree) -> jax.Array:
    """The points that the caller passed, as rows."""
    leaves, treedef = jax.tree.flatten(jax.tree.map(jnp.asarray, x))
    layout = problem.x_layout
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if treedef != layout.treedef and len(leaves) == 1 and leaves[0].shape[1:] == (layout.size,):
        return leaves[0].astype(layout.dtype)  # flat vectors
    shapes = tuple(leaf.shape[1:] for leaf in leaves)
    if treedef != layout.treedef or shapes != layout.shapes or len(counts) != 1 or counts == {0}:
        raise InputError(
            f"x must be points shaped like x0, {list(layout.shapes)}, stacked along a first axis, "
            f"but its shapes are {[leaf.shape for leaf in leaves]}.",
            "Pass solution.agents.x, or stack the points with jax.numpy.stack.",
        )
    rows = layout.ravel_agents(jax.tree.unflatten(treedef, leaves))
    if not bool(jnp.all(jnp.isfinite(rows))):
        raise InputError("The points x must be finite, but some of their entries are not.")
    return rows


@jitted()
def _first_order(
    functions: Functions, data: Tree, points: jax.Array, start: Vector
) -> tuple[jax.Array, ...]:
    """At each x: y*(x), whether it was found, the largest |f_y|, b_f^2 and b_g^2."""

    def one(x: Vector) -> tuple[jax.Array, ...]:
        y, solved = solve_inner(functions, data, x, start)
        slopes = jax.vmap(lambda d: jnp.linalg.norm(Oracle(functions, d).outer(x, y)[1]))(data)
        f_x, f_y, g_x, g_y = gradient_spreads(functions, data, x, y)
        return y, solved, jnp.max(slopes), jnp.maximum(f_x, f_y), jnp.maximum(g_x, g_y)  # (4)

    return lax.map(one, points)


@jitted()
def _second_order(
    functions: Functions, data: Tree, xs: jax.Array, ys: jax.Array, key: jax.Array
) -> dict[str, jax.Array]:
    """At each (x, y) every agent's extreme eigenvalues of f, of g and of g in y, and products that
    tell quadratics."""

    def one(d: Tree, x: Vector, y: Vector) -> dict[str, jax.Array]:
        oracle = Oracle(functions, d)
        f = joined(oracle.outer_value, x.size)
        g = joined(oracle.inner_value, x.size)
        p = jnp.concatenate([x, y.astype(x.dtype)])
        # The same directions at every point and for every agent: products are compared between
        # points.
        probe, other = jax.random.normal(jax.random.key(0), (2, p.size), p.dtype)
        products = lambda q: jnp.concatenate([product(f, q, probe), product(g, q, probe)])
        at_p, bend = jax.jvp(products, (p,), (other,))
        return {
            "f": extremes(f, p, key),
            "g": extremes(g, p, key),
            "g_yy": extremes(lambda u: oracle.inner_value(x, u), y, key),
            "probe": at_p,
            "bend": bend,  # (8)
        }

    # One point at a time: dense Hessians of all agents at all points would fill the memory.
    return lax.map(lambda pair: jax.vmap(lambda d: one(d, *pair))(data), (xs, ys))


@jitted()
def _third_order(
    functions: Functions, data: Tree, xs: jax.Array, ys: jax.Array, key: jax.Array
) -> jax.Array:
    """At each (x, y) every agent's |D3 g|."""

    def one(d: Tree, x: Vector, y: Vector) -> jax.Array:
        g = joined(Oracle(functions, d).inner_value, x.size)
        return third(g, jnp.concatenate([x, y.astype(x.dtype)]), key)

    return lax.map(lambda pair: jax.vmap(lambda d: one(d, *pair))(data), (xs, ys))


def product(h: Scalar, p: Vector, v: Vector) -> Vector:
    """The Hessian of h at p times v, (5)."""
    return jax.jvp(jax.grad(h), (p,), (v,))[1]


def extremes(h: Scalar, p: Vector, key: jax.Array) -> jax.Array:
    """The smallest and the largest eigenvalue of the Hessian of h at p."""
    if p.size <= DENSE:
        matrix = jax.vmap(lambda v: product(h, p, v))(jnp.eye(p.size, dtype=p.dtype))
        return jnp.linalg.eigvalsh(matrix)[jnp.array([0, -1])]

    # (6). Orthogonalised twice: once loses orthogonality to rounding as soon as an eigenvalue has
    # converged.
    def one(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        Q, HQ, v = carry
        for _ in range(2):
            v = v - Q.T @ (Q @ v)
        v = v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(p.dtype).tiny)
        Hv = product(h, p, v)
        return Q.at[i].set(v), HQ.at[i].set(Hv), Hv

    empty = jnp.zeros((KRYLOV, p.size), p.dtype)
    start = jax.random.normal(key, p.shape, p.dtype)
    Q, HQ, _ = lax.fori_loop(0, KRYLOV, one, (empty, empty, start))
    T = Q @ HQ.T
    return jnp.linalg.eigvalsh((T + T.T) / 2)[jnp.array([0, -1])]


def third(h: Scalar, p: Vector, key: jax.Array) -> jax.Array:
    """|D3 h| at p."""

    def form(v: Vector) -> Vector:
        return jax.jvp(lambda q: product(h, q, v), (p,), (v,))[1]

    def sweep(v: Vector, _: None) -> tuple[Vector, jax.Array]:
        w = form(v)
        size = jnp.linalg.norm(w)
        return jnp.where(size > 0, w / jnp.where(size > 0, size, 1), v), jnp.abs(v @ w)

    starts = jax.random.normal(key, (STARTS, p.size), p.dtype)
    starts = starts / jnp.linalg.norm(starts, axis=1, keepdims=True)
    # (7)
    # The largest of all sweeps, not the last: the iteration need not be monotone.
    return jnp.max(jax.vmap(lambda v: jnp.max(lax.scan(sweep, v, None, length=SWEEPS)[1]))(starts))


def joined(h: Callable[[Vector, Vector], jax.Array], n: int) -> Scalar:
    """A function of (x, y) as a function of one vector."""
    return lambda p: h(p[:n], p[n:])
