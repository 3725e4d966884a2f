r"""Judging: the exact reference at every recorded point, and what a step costs.

    stationarity   |grad Phi(xbar)|^2           phi         Phi(xbar)
    gap            mean_i g_i(xbar, ybar) - g_i(xbar, y*(xbar)), the gap of the lower level
    inner_error    |ybar - y*(xbar)|^2          accuracy    of ybar on the test set, where there is one
    consensus      sum_i |x_i - xbar|^2

Runs record only xbar, ybar and the consensus error; the reference is solved afterwards, by a program that belongs to
the task and not to the method. So a method's compiled program is small, and all methods are judged by the same code.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.algorithm.algorithm import Algorithm
from decibo.bench.tasks import Task
from decibo.execute.solution import Status
from decibo.execute.solve import solve
from decibo.measure.cost import MarkedMix
from decibo.measure.measures import Snapshot
from decibo.network.network import Network
from decibo.problem.newton import exact
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.problems.logistic import accuracy
from decibo.pytree import Tree

CHUNK = 48  # points that are judged together: one shape, one program
RECORDS = 120  # of a judged run
BEYOND = 1e6  # numbers of a run that is lost, finite or not
Columns = dict[str, np.ndarray]


def mean_x(s: Snapshot) -> jax.Array:
    """xbar."""
    return s.mean("x")


def mean_y(s: Snapshot) -> jax.Array:
    """ybar: the mean of the variable that answers for y*(x)."""
    return s.mean(s.answer)


MEASURES = ["consensus_x", mean_x, mean_y]


def points(problem: Problem, X: np.ndarray, Y: np.ndarray) -> Columns:
    """The columns above at points with these rows; what left all bounds, or has no y*, is infinite."""
    sound = (np.abs(X).max(axis=1) < BEYOND) & (np.abs(Y).max(axis=1) < BEYOND)  # False for NaN
    start = np.asarray(problem.functions.y.ravel(jax.tree.map(jnp.asarray, problem.y0)))
    columns = _exact_at(problem, X, Y, Y, sound)
    lost = sound & ~np.isfinite(columns["phi"])
    if lost.any():  # Newton's method from ybar went astray: from the start then
        again = _exact_at(problem, X, Y, np.broadcast_to(start, Y.shape), lost)
        columns = {name: np.where(lost, again[name], values) for name, values in columns.items()}
    return columns


def _exact_at(problem: Problem, X: np.ndarray, Y: np.ndarray, guess: np.ndarray, wanted: np.ndarray) -> Columns:
    """The columns at the wanted points, infinite elsewhere; chunk by chunk, the last one padded."""
    places = np.flatnonzero(wanted)
    names = ("stationarity", "phi", "gap", "inner_error")
    columns = {name: np.full(len(X), np.inf) for name in names}
    for at in range(0, len(places), CHUNK):
        part = places[at : at + CHUNK]
        rows = part[np.arange(CHUNK).clip(max=len(part) - 1)]
        found = _chunk(problem.functions, problem.data, X[rows], Y[rows], guess[rows])
        for name, values in zip(names, found, strict=True):
            values = np.asarray(values)[: len(part)]
            columns[name][part] = np.where(np.isfinite(values), values, np.inf)
    return columns


@partial(jax.jit, static_argnums=0)
def _chunk(functions: Functions, data: Tree, X: jax.Array, Y: jax.Array, guess: jax.Array) -> tuple[jax.Array, ...]:
    def one(point: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        x, y, near = point
        answer = exact(functions, data, x, near)
        inner = jax.vmap(
            lambda d: Oracle(functions, d).inner_value(x, y) - Oracle(functions, d).inner_value(x, answer.y)
        )
        return jnp.sum(answer.grad**2), answer.phi, jnp.mean(inner(data)), jnp.sum((y - answer.y) ** 2)

    return lax.map(one, (X, Y, guess))


def units(problem: Problem) -> dict[str, float]:
    """The units of dials: outer = sqrt(n)/|grad Phi(x0)|, inner = 1/L."""
    functions = problem.functions
    x = functions.x.ravel(jax.tree.map(jnp.asarray, problem.x0))
    y = functions.y.ravel(jax.tree.map(jnp.asarray, problem.y0))
    start = points(problem, np.asarray(x)[None], np.asarray(y)[None])
    curvature = float(_curvature(functions, problem.data, x, y))
    slope = float(np.sqrt(start["stationarity"][0]))
    return {"outer": np.sqrt(x.size) / slope, "inner": 1.0 / curvature, "one": 1.0}


@partial(jax.jit, static_argnums=0)
def _curvature(functions: Functions, data: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    """The largest curvature in y of any agent's inner level, by power iteration."""

    def one(d: Tree) -> jax.Array:
        step = lambda _, v: (lambda w: w / (jnp.linalg.norm(w) + 1e-300))(Oracle(functions, d).hessian(x, y, v))
        v = lax.fori_loop(0, 50, step, jax.random.normal(jax.random.key(0), y.shape, y.dtype))
        return jnp.linalg.norm(Oracle(functions, d).hessian(x, y, v))

    return jnp.max(jax.vmap(one)(data))


def judged_run(
    task: Task, problem: Problem, network: Network, method: Algorithm, seed: int, steps: int
) -> dict[str, object]:
    """One run with this seed, judged at all of its records."""
    every = max(1, steps // RECORDS)
    found = solve(problem, network, method, steps=steps, every=every, measures=MEASURES, seed=seed, progress=False)
    if found.status is Status.interrupted:
        raise KeyboardInterrupt
    history = found.history
    columns = points(problem, history["mean_x"], history["mean_y"])
    columns["consensus"] = history["consensus_x"]
    if task.held_out is not None:
        features, labels = task.held_out(seed)
        columns["accuracy"] = _accuracies(problem, history["mean_y"], features, labels)
    cost = asdict(found.cost)
    cost |= {"gradients": found.cost.gradients, "products": found.cost.products, "work": found.cost.work}
    return {
        "seed": seed,
        "status": str(found.status),
        "message": found.message,
        "seconds": found.cost.seconds,
        "cost": cost | {"state": state_size(problem, method)},
        "history": {"step": history["step"], **columns},
    }


def _accuracies(problem: Problem, Y: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    unravel = problem.functions.y.unravel
    return np.array([float(accuracy(unravel(jnp.asarray(y)), features, labels)) for y in Y])


def state_size(problem: Problem, method: Algorithm) -> float:
    """How many numbers an agent keeps between steps, in copies of (x, y): its memory besides the data."""
    functions = problem.functions
    layouts = {"x": functions.x, "y": functions.y}
    start = {name: jax.ShapeDtypeStruct((layout.size,), layout.dtype) for name, layout in layouts.items()}
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), problem.data)
    state = jax.eval_shape(lambda d, s: method.core.init(Oracle(functions, d), MarkedMix(), s), one, start)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(state))
    return round(numbers / (functions.x.size + functions.y.size), 2)
