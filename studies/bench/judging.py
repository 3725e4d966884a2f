r"""Judging: the exact reference at every recorded point, and what a step costs.

    stationarity   |grad Phi(xbar)|^2           phi         Phi(xbar)
    gap            mean_i g_i(xbar, ybar) - g_i(xbar, y*(xbar)), the gap of the lower level
    inner_error    |ybar - y*(xbar)|^2          accuracy    of ybar on the test set, if any
    consensus      sum_i |x_i - xbar|^2

Where the inner level has many minima there is no y*(x), and Phi is not defined. Such tasks are
judged by what a user of x would see: the model is trained from the start with xbar, always in the
same way, and

    phi            the validation loss of that model, mean_i f_i(xbar, y_T(xbar))
    gap            mean_i g_i(xbar, ybar) - g_i(xbar, y_T(xbar)), below 0 where the method trained
                   better than that
    y_T            TRAINING steps of gradient descent with momentum on mean_i g_i(xbar, .) from y0

They have no |grad Phi|.

Runs record only xbar, ybar and the consensus error; the reference is solved afterwards, by a
program that belongs to the task and not to the method. So a method's compiled program is small, and
all methods are judged by the same code.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from decibo.algorithm.algorithm import Algorithm
from decibo.measure.cost import MarkedMix
from decibo.measure.measures import Snapshot
from decibo.network.network import Network
from decibo.problem.newton import exact, mean
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.problems.logistic import accuracy
from decibo.pytree import Tree
from decibo.run.solution import Status
from decibo.run.solve import solve
from studies.bench.sceptic import judged
from studies.bench.tasks import Task

CHUNK = 48  # points that are judged together: one shape, one program
RECORDS = 120  # of a judged run; half of them where models are retrained
TRAINING = 100  # steps of y_T
RATE = 0.5  # of these steps, in 1/L of the start
MOMENTUM = 0.9
BEYOND = 1e6  # a run with larger entries counts as diverged, finite or not
Columns = dict[str, np.ndarray]


def mean_x(s: Snapshot) -> jax.Array:
    """xbar."""
    return s.mean("x")


def mean_y(s: Snapshot) -> jax.Array:
    """ybar: the mean of the variable that estimates y*(x)."""
    return s.mean(s.answer)


MEASURES = ["consensus_x", mean_x, mean_y]


def points(problem: Problem, X: np.ndarray, Y: np.ndarray, trained: bool = False) -> Columns:
    """The columns above at points with these rows; infinite out of bounds or without y*.

    trained   whether the model is retrained, since there is no y*
    """
    sound = (np.abs(X).max(axis=1) < BEYOND) & (np.abs(Y).max(axis=1) < BEYOND)  # False for NaN
    start = np.asarray(problem.functions.y.ravel(jax.tree.map(jnp.asarray, problem.y0)))
    if trained:
        return _columns_at(problem, X, Y, np.broadcast_to(start, Y.shape), sound, trained)
    columns = _columns_at(problem, X, Y, Y, sound)
    lost = sound & ~np.isfinite(columns["phi"])
    if lost.any():  # Newton's method from ybar did not converge: try from the start
        again = _columns_at(problem, X, Y, np.broadcast_to(start, Y.shape), lost)
        columns = {name: np.where(lost, again[name], values) for name, values in columns.items()}
    return columns


def _columns_at(
    problem: Problem,
    X: np.ndarray,
    Y: np.ndarray,
    guess: np.ndarray,
    wanted: np.ndarray,
    trained: bool = False,
) -> Columns:
    """The columns at the wanted points, infinite elsewhere; chunk by chunk, the last one padded."""
    indices = np.flatnonzero(wanted)
    names = (
        ("phi", "gap", "inner_error") if trained else ("phi", "gap", "inner_error", "stationarity")
    )
    columns = {name: np.full(len(X), np.inf) for name in names}
    program = _trained_chunk if trained else _chunk
    for at in range(0, len(indices), CHUNK):
        part = indices[at : at + CHUNK]
        rows = part[np.arange(CHUNK).clip(max=len(part) - 1)]
        found = program(problem.functions, problem.data, X[rows], Y[rows], guess[rows])
        for name, values in zip(names, found, strict=True):
            values = np.asarray(values)[: len(part)]
            columns[name][part] = np.where(np.isfinite(values), values, np.inf)
    return columns


@partial(jax.jit, static_argnums=0)
def _chunk(
    functions: Functions, data: Tree, X: jax.Array, Y: jax.Array, guess: jax.Array
) -> tuple[jax.Array, ...]:
    def one(point: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        x, y, near = point
        answer = exact(functions, data, x, near)
        return (
            answer.phi,
            _gap(functions, data, x, y, answer.y),
            _square(y - answer.y),
            _square(answer.grad),
        )

    return lax.map(one, (X, Y, guess))


@partial(jax.jit, static_argnums=0)
def _trained_chunk(
    functions: Functions, data: Tree, X: jax.Array, Y: jax.Array, start: jax.Array
) -> tuple[jax.Array, ...]:
    rate = RATE / _curvature(functions, data, jnp.zeros_like(X[0]), start[0])

    def one(x: jax.Array, y: jax.Array, y0: jax.Array) -> tuple[jax.Array, ...]:
        answer = trained(functions, data, x, y0, rate)
        phi = mean(functions, data, lambda oracle: oracle.outer_value(x, answer))
        return phi, _gap(functions, data, x, y, answer), _square(y - answer)

    return jax.vmap(one)(X, Y, start)


def trained(
    functions: Functions, data: Tree, x: jax.Array, y0: jax.Array, rate: jax.Array
) -> jax.Array:
    """y_T(x)."""

    def step(_: int, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        y, velocity = at
        velocity = MOMENTUM * velocity - rate * mean(
            functions, data, lambda oracle: oracle.inner(x, y)[1]
        )
        return y + velocity, velocity

    return lax.fori_loop(0, TRAINING, step, (y0, jnp.zeros_like(y0)))[0]


def _gap(
    functions: Functions, data: Tree, x: jax.Array, y: jax.Array, best: jax.Array
) -> jax.Array:
    return mean(
        functions, data, lambda oracle: oracle.inner_value(x, y) - oracle.inner_value(x, best)
    )


def _square(v: jax.Array) -> jax.Array:
    return jnp.sum(v**2)


def units(problem: Problem, trained: bool = False) -> dict[str, float]:
    """The units of hyper-parameters: outer = sqrt(n)/|grad Phi(x0)|, inner = 1/L; Phi is that of
    y_T if models are trained."""
    functions = problem.functions
    x = functions.x.ravel(jax.tree.map(jnp.asarray, problem.x0))
    y = functions.y.ravel(jax.tree.map(jnp.asarray, problem.y0))
    curvature = _curvature(functions, problem.data, x, y)
    if trained:
        slope = float(_trained_slope(functions, problem.data, x, y, RATE / curvature))
    else:
        slope = float(
            np.sqrt(points(problem, np.asarray(x)[None], np.asarray(y)[None])["stationarity"][0])
        )
    return {"outer": np.sqrt(x.size) / slope, "inner": 1.0 / float(curvature), "one": 1.0}


@partial(jax.jit, static_argnums=0)
def _trained_slope(
    functions: Functions, data: Tree, x: jax.Array, y: jax.Array, rate: jax.Array
) -> jax.Array:
    """|grad Phi(x0)| with y_T for y*: backwards through all steps, once for a task."""

    def phi(x: jax.Array) -> jax.Array:
        answer = trained(functions, data, x, y, rate)
        return mean(functions, data, lambda oracle: oracle.outer_value(x, answer))

    return jnp.linalg.norm(jax.grad(phi)(x))


@partial(jax.jit, static_argnums=0)
def _curvature(functions: Functions, data: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    """The largest curvature in y of any agent's inner level, by power iteration."""

    def one(d: Tree) -> jax.Array:
        step = lambda _, v: (lambda w: w / (jnp.linalg.norm(w) + 1e-300))(
            Oracle(functions, d).hessian(x, y, v)
        )
        v = lax.fori_loop(0, 50, step, jax.random.normal(jax.random.key(0), y.shape, y.dtype))
        return jnp.linalg.norm(Oracle(functions, d).hessian(x, y, v))

    return jnp.max(jax.vmap(one)(data))


def judged_run(
    task: Task, problem: Problem, network: Network, method: Algorithm, seed: int, steps: int
) -> dict[str, object]:
    """One run with this seed, judged at all of its records."""
    every = max(1, steps // (RECORDS // 2 if task.trained else RECORDS))
    found = solve(
        problem,
        network,
        method,
        steps=steps,
        every=every,
        measures=MEASURES,
        seed=seed,
        progress=False,
    )
    if found.status is Status.interrupted:
        raise KeyboardInterrupt
    history = found.history
    columns = points(problem, history["mean_x"], history["mean_y"], task.trained)
    columns["consensus"] = history["consensus_x"]
    if task.held_out is not None:
        features, labels = task.held_out(seed)
        columns["accuracy"] = _accuracies(problem, task, history["mean_y"], features, labels)
        if not task.trained:
            answers = jax.vmap(problem.functions.y.unravel)(jnp.asarray(history["mean_y"]))
            columns["loss"] = np.array([judged(w, features, labels)[0] for w in answers])
    cost = asdict(found.cost)
    cost |= {
        "gradients": found.cost.gradients,
        "products": found.cost.products,
        "work": found.cost.work,
    }
    return {
        "seed": seed,
        "status": str(found.status),
        "message": found.message,
        "seconds": found.cost.seconds,
        "cost": cost | {"state": state_size(problem, method)},
        "history": {"step": history["step"], **columns},
    }


def _accuracies(
    problem: Problem, task: Task, Y: np.ndarray, features: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    answers = jax.vmap(problem.functions.y.unravel)(jnp.asarray(Y))
    if task.scores is None:
        return np.asarray(jax.vmap(lambda y: accuracy(y, features, labels))(answers))
    scores = task.scores
    guesses = jax.vmap(lambda y: jnp.argmax(scores(y, jnp.asarray(features)), axis=1))(answers)
    return np.mean(np.asarray(guesses) == np.maximum(labels, 0), axis=1)


def state_size(problem: Problem, method: Algorithm) -> float:
    """How many numbers an agent keeps between steps, in copies of (x, y): its memory besides the
    data."""
    functions = problem.functions
    layouts = {"x": functions.x, "y": functions.y}
    start = {
        name: jax.ShapeDtypeStruct((layout.size,), layout.dtype) for name, layout in layouts.items()
    }
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), problem.data)
    state = jax.eval_shape(
        lambda d, s: method.core.init(Oracle(functions, d), MarkedMix(), s), one, start
    )
    numbers = sum(leaf.size for leaf in jax.tree.leaves(state))
    return round(numbers / (functions.x.size + functions.y.size), 2)
