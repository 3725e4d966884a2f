"""A conformance check that anybody can run on an algorithm of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import ConformanceError, InputError, first_line
from decibo.measure.cost import step_cost
from decibo.network.constructors import from_weights
from decibo.network.graphs import path, ring
from decibo.network.mixing import AGENTS, Mixing, mixer
from decibo.network.network import Network
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions, Problem

STEPS = 3
AGENTS_CHECKED = 9  # far enough apart for two steps with two exchanges each


def check_method(algorithm: Algorithm) -> list[str]:
    """Check that a method behaves as decibo expects; raises a ConformanceError that lists every failure.

    signature     init(oracle, mix, start), step(oracle, mix, state, k, key), view(state) with x and y
    stability     a step keeps the structure, shapes and types of the state, in every precision that is enabled
    compilation   a second step needs no second compilation
    light cone    nothing travels further than one link for each exchange
    relabelling   renaming the agents renames the answer
    agreement     equal agents that start equal stay equal
    one agent     m = 1 works

    Returns the names of the checks that passed. Nested pytrees and unequal agents are part of every check.
    """
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"{algorithm!r}", "only a decibo Algorithm can be checked", "Wrap init and step in Algorithm.")
    checks: dict[str, Callable[[Algorithm], str | None]] = {
        "signature": _signature,
        "stability": _stability,
        "compilation": _compilation,
        "light cone": _light_cone,
        "relabelling": _relabelling,
        "agreement": _agreement,
        "one agent": _one_agent,
    }
    failures = {}
    for name, check in checks.items():
        try:
            failure = check(algorithm)
        except Exception as error:  # whatever a stranger's code raises is a finding, not a crash of the check
            failure = _raised(error)
        if failure:
            failures[name] = failure
        if failure and name in ("signature", "stability"):
            break  # the others would only repeat it
    if failures:
        listed = "".join(f"\n  {name}: {failure}" for name, failure in failures.items())
        raise ConformanceError(f"{algorithm.name} fails {len(failures)} of {len(checks)} checks:{listed}")
    return list(checks)


def _raised(error: Exception) -> str:
    if isinstance(error, NameError) and "axis name" in str(error):
        return "looks at other agents by other means than mix, the only way that is counted and travels"
    return f"raised {type(error).__name__}: {first_line(error)}"


def _outer(x: Any, y: Any, d: Any) -> Any:
    return (
        0.5 * jnp.sum((y["c"] - d["b"]) ** 2)
        + 0.5 * jnp.sum(y["e"] ** 2)
        + 0.1 * jnp.sum(x["a"] ** 2)
        + 0.1 * x["s"] ** 2
    )


def _inner(x: Any, y: Any, d: Any) -> Any:
    pulled = y["c"] - d["a"] * x["s"] - jnp.array([1.0, 0.5, 0.0], y["c"].dtype) * x["a"][0]
    return 0.5 * d["a"] * jnp.sum(pulled**2) + 0.5 * jnp.sum((y["e"] - x["a"]) ** 2) + 0.05 * jnp.sum(jnp.cos(y["e"]))


def _problem(m: int, dtype: Any = None, equal: bool = False) -> Problem:
    """Small, heterogeneous, not quite quadratic, with nested x and y."""
    dtype = dtype or jnp.zeros(()).dtype
    random = np.random.default_rng(0)
    rows = 1 if equal else m
    data = {"a": random.uniform(0.8, 1.2, rows), "b": random.normal(size=(rows, 3))}
    data = {name: jnp.asarray(np.broadcast_to(leaf, (m, *leaf.shape[1:])), dtype) for name, leaf in data.items()}
    x0 = {"a": jnp.array([0.3, -0.2], dtype), "s": jnp.array(0.5, dtype)}
    y0 = {"c": jnp.array([0.1, 0.4, -0.3], dtype), "e": jnp.array([0.2, -0.1], dtype)}
    return Problem(_outer, _inner, data, x0, y0)


def _pieces(problem: Problem) -> tuple[Any, dict[str, Any]]:
    """The shapes of one agent's data and start."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), problem.data)
    layouts = {"x": problem.x_layout, "y": problem.y_layout}
    return one, {name: jax.ShapeDtypeStruct((layout.size,), layout.dtype) for name, layout in layouts.items()}


def _alone(tree: Any, bits: int | None = None) -> Any:
    return tree


_alone.push = _alone  # type: ignore[attr-defined]


def _run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    steps: int,
    order: Any = None,
    same_keys: bool = False,
) -> Any:
    """The states of all agents after some steps, as plain arrays."""
    order = np.arange(network.agents) if order is None else np.asarray(order)
    keys = jax.random.split(jax.random.key(1), network.agents)[np.zeros(network.agents, int) if same_keys else order]
    start = {"x": problem.x_layout.ravel(problem.x0), "y": problem.y_layout.ravel(problem.y0)}
    state = _steps(problem.functions, algorithm.core, network.mixing("dense"), problem.data, start, keys, steps)
    return jax.tree.map(np.asarray, state)


@partial(jax.jit, static_argnums=0)  # one program for all runs of an algorithm on as many agents
def _steps(
    functions: Functions, core: Any, mixing: Mixing, data: Any, start: dict[str, Any], keys: Any, steps: Any
) -> Any:
    mix = mixer(mixing, jnp.int32(0), jax.random.key(2))
    state = jax.vmap(lambda d: core.init(Oracle(functions, d), mix, start), axis_name=AGENTS)(data)

    def advance(k: Any, state: Any) -> Any:
        mix = mixer(mixing, k, jax.random.key(2))
        one = lambda d, s, key: core.step(Oracle(functions, d), mix, s, k, jax.random.fold_in(key, k))
        return jax.vmap(one, axis_name=AGENTS)(data, state, keys)

    return jax.lax.fori_loop(0, steps, advance, jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state))


def _signature(algorithm: Algorithm) -> str | None:
    problem = _problem(3)
    d, start = _pieces(problem)
    for name, wanted in (("init", 3), ("step", 5), ("view", 1)):
        function = getattr(algorithm, name)
        try:
            inspect.signature(function).bind(*range(wanted))
        except TypeError as error:
            return f"{name} does not take {wanted} arguments ({error})"
    view = jax.eval_shape(
        lambda d, s: algorithm.view(algorithm.init(Oracle(problem.functions, d), _alone, s)), d, start
    )
    if not isinstance(view, dict) or not {"x", "y"} <= set(view):
        return f"view(state) gives {view!r}, it must give a dictionary with at least x and y"
    for name, leaf in view.items():
        size = problem.x_layout.size if name == "x" else problem.y_layout.size
        if leaf.shape != (size,):
            return f"view(state)[{name!r}] has shape {leaf.shape}, it must be a flat vector of {size} numbers"
    return None


def _stability(algorithm: Algorithm) -> str | None:
    for dtype in {jnp.float32, jnp.zeros(()).dtype.type}:
        problem = _problem(3, dtype)
        d, start = _pieces(problem)
        functions = problem.functions
        before = jax.eval_shape(lambda d, s, f=functions: algorithm.init(Oracle(f, d), _alone, s), d, start)
        one = lambda d, s, f=functions: algorithm.step(Oracle(f, d), _alone, s, jnp.int32(0), jax.random.key(0))
        after = jax.eval_shape(one, d, before)
        if jax.tree.structure(before) != jax.tree.structure(after):
            old, new = jax.tree.structure(before), jax.tree.structure(after)
            return f"a step changes the structure of the state from {old} to {new}"
        for (where, old), new in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                name = jax.tree_util.keystr(where)
                return f"a step changes state{name} from {old.dtype}{list(old.shape)} to {new.dtype}{list(new.shape)}"
    return None


def _compilation(algorithm: Algorithm) -> str | None:
    problem, network, traces = _problem(3), path(3), []
    core = algorithm.core
    mixing, functions = network.mixing(), problem.functions
    start = {"x": functions.x.ravel(problem.x0), "y": functions.y.ravel(problem.y0)}

    @jax.jit
    def begin(init: Any, data: Any) -> Any:
        mix = mixer(mixing, jnp.int32(0), jax.random.key(0))
        state = jax.vmap(lambda d: init(Oracle(functions, d), mix, start), axis_name=AGENTS)(data)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

    @jax.jit
    def advance(step: Any, data: Any, state: Any, k: Any) -> Any:
        traces.append(k)
        mix = mixer(mixing, k, jax.random.key(0))
        one = lambda d, s: step(Oracle(functions, d), mix, s, k, jax.random.key(0))
        return jax.vmap(one, axis_name=AGENTS)(data, state)

    state = begin(core.init, problem.data)
    for k in range(2):
        state = jax.eval_shape(advance, core.step, problem.data, state, jnp.int32(k))
    return f"{len(traces)} compilations for two steps" if len(traces) > 1 else None


def _light_cone(algorithm: Algorithm) -> str | None:
    """Change the last agent's data on a path and see who notices."""
    m, steps = AGENTS_CHECKED, 2
    problem, network = _problem(m), path(m)
    data, start = _pieces(problem)
    reach = steps * step_cost(problem.functions, data, start, algorithm.core).messages
    changed = jax.tree.map(lambda leaf: leaf.at[-1].add(0.5), problem.data)
    other = Problem(_outer, _inner, changed, problem.x0, problem.y0)
    one, two = (_run(algorithm, each, network, steps) for each in (problem, other))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        moved = np.abs(np.subtract(a, b, dtype=float)) > _tolerance() * 1e-3 * (1 + np.abs(a))
        noticed = np.flatnonzero(moved.reshape(m, -1).any(axis=1))
        too_far = [i for i in noticed if m - 1 - i > reach]
        if too_far:
            return (
                f"after {steps} steps with {reach} exchanges agent {too_far[0]} knows the data of agent {m - 1}, "
                f"{m - 1 - too_far[0]} links away"
            )
    return None


def _relabelling(algorithm: Algorithm) -> str | None:
    m = AGENTS_CHECKED
    problem, network = _problem(m), path(m)
    order = np.random.default_rng(1).permutation(m)
    renamed = Problem(_outer, _inner, jax.tree.map(lambda leaf: leaf[order], problem.data), problem.x0, problem.y0)
    W = network.W[np.ix_(order, order)]
    one = _run(algorithm, problem, network, STEPS)
    two = _run(algorithm, renamed, from_weights(W), STEPS, order)
    worst = _difference(jax.tree.map(lambda leaf: leaf[order], one), two)
    return f"renaming the agents changes the answer by {worst:.1e}" if worst > _tolerance() else None


def _agreement(algorithm: Algorithm) -> str | None:
    state = _run(algorithm, _problem(AGENTS_CHECKED, equal=True), ring(AGENTS_CHECKED), STEPS, same_keys=True)
    worst = _difference(state, jax.tree.map(lambda leaf: np.broadcast_to(leaf[:1], leaf.shape), state))
    return f"equal agents drift apart by {worst:.1e}" if worst > _tolerance() else None


def _one_agent(algorithm: Algorithm) -> str | None:
    state = _run(algorithm, _problem(1), path(1), STEPS)
    finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state) if np.issubdtype(leaf.dtype, np.floating))
    return None if finite else "with one agent the state is not finite"


def _tolerance() -> float:
    return 1e-10 if jnp.zeros(()).dtype == jnp.float64 else 1e-4


def _difference(one: Any, two: Any) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    gaps = [np.max(np.abs(a - b) / (1 + np.abs(a)), initial=0) for a, b in pairs if np.issubdtype(a.dtype, np.floating)]
    return float(max(gaps, default=0.0))
