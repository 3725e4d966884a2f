"""A conformance check that anybody can run on a method of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.capabilities import Need
from decibo.errors import ConformanceError, InputError, first_line
from decibo.measure.cost import MarkedMix, examine
from decibo.network.graphs import from_weights, path, ring
from decibo.network.mixing import AGENTS, AgentMix, Mixing, Reach
from decibo.network.network import Network
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.problems.quadratic import quadratic
from decibo.pytree import Tree, one_of

STEPS = 3
AGENTS_CHECKED = 9  # far enough apart for two steps with two exchanges each
LANDING_AGENTS = 5
LANDING_STEPS = 6000
LOST = 100.0  # times the distance at the start
# of the distance half way: a method that gets below it in the second half is on its way
STILL = 0.9
NEARER = 0.8  # of the distance: what helps, helps at least that much
PENALTY = "lam"  # the setting that is not lowered but raised


def check_method(method: Algorithm, *, landing: bool | Problem = True) -> list[str]:
    """Check that a method behaves as decibo expects; raises a ConformanceError that lists every
    failure.

    signature     init(oracle, mix, start), step(oracle, mix, state, k, key), view(state) with x and
                  y
    stability     a step keeps the structure, shapes and types of the state, in every precision that
                  is enabled
    compilation   a second step needs no second compilation
    light cone    nothing travels further than one link for each exchange
    relabelling   renaming the agents renames the answer
    agreement     equal agents that start equal stay equal
    one agent     a network of one agent works
    landing       it comes to rest at the solution of a quadratic problem with unequal agents on a
                  path: exactly, or as close as its step sizes are small or its lam is large

    landing   False leaves the last check out, for methods that solve something else; a problem with
              a known solution is where to try it instead

    Returns the names of the checks that passed, the last one with where it landed. Nested pytrees
    and unequal agents are part of every check.
    """
    if not isinstance(method, Algorithm):
        raise InputError(
            f"Only an Algorithm can be checked, but this is {method!r}.",
            "Wrap init and step in one.",
        )
    checks: dict[str, Callable[[Algorithm], str | None]] = {
        "signature": _signature,
        "stability": _stability,
        "compilation": _compilation,
        "light cone": _light_cone,
        "relabelling": _relabelling,
        "agreement": _agreement,
        "one agent": _one_agent,
    }
    landed: list[str] = []
    if landing is not False:
        checks["landing"] = partial(_landing, on=landing, landed=landed)
    failures: dict[str, str] = {}
    for name, check in checks.items():
        try:
            failure = check(method)
        # whatever a stranger's code raises is a failed check, not a crash of this one
        except Exception as error:
            failure = _raised(error)
        if failure:
            failures[name] = failure
        if failure and name in ("signature", "stability"):
            break  # the others would only repeat it
    if failures:
        listed = "".join(f"\n  {name}: {failure}" for name, failure in failures.items())
        raise ConformanceError(
            f"{method.name} fails {len(failures)} of {len(checks)} checks:{listed}"
        )
    return [name for name in checks if name != "landing"] + landed


Links = tuple[Mixing, Reach]


def _raised(error: Exception) -> str:
    if isinstance(error, NameError) and "axis name" in str(error):
        return (
            "looks at other agents by other means than mix, the only way that is counted and"
            " travels"
        )
    return f"raised {type(error).__name__}: {first_line(error)}"


def _outer(x: Tree, y: Tree, d: Tree) -> jax.Array:
    return (
        0.5 * jnp.sum((y["c"] - d["b"]) ** 2)
        + 0.5 * jnp.sum(y["e"] ** 2)
        + 0.1 * jnp.sum(x["a"] ** 2)
        + 0.1 * x["s"] ** 2
    )


def _inner(x: Tree, y: Tree, d: Tree) -> jax.Array:
    pulled = y["c"] - d["a"] * x["s"] - jnp.array([1.0, 0.5, 0.0], y["c"].dtype) * x["a"][0]
    return (
        0.5 * d["a"] * jnp.sum(pulled**2)
        + 0.5 * jnp.sum((y["e"] - x["a"]) ** 2)
        + 0.05 * jnp.sum(jnp.cos(y["e"]))
    )


def _problem(agents: int, dtype: np.dtype | type | None = None, equal: bool = False) -> Problem:
    """Small, heterogeneous, not quite quadratic, with nested x and y."""
    dtype = dtype or jnp.zeros(()).dtype
    random = np.random.default_rng(0)
    rows = 1 if equal else agents
    data = {"a": random.uniform(0.8, 1.2, rows), "b": random.normal(size=(rows, 3))}
    data = {
        name: jnp.asarray(np.broadcast_to(leaf, (agents, *leaf.shape[1:])), dtype)
        for name, leaf in data.items()
    }
    x0 = {"a": jnp.array([0.3, -0.2], dtype), "s": jnp.array(0.5, dtype)}
    y0 = {"c": jnp.array([0.1, 0.4, -0.3], dtype), "e": jnp.array([0.2, -0.1], dtype)}
    return Problem(_outer, _inner, data, x0, y0)


def _pieces(problem: Problem) -> tuple[Tree, dict[str, jax.ShapeDtypeStruct]]:
    """The shapes of one agent's data and start."""
    start = {"x": problem.x_layout.struct, "y": problem.y_layout.struct}
    return one_of(problem.data), start


def _begin(
    functions: Functions, core: Core, links: Links, data: Tree, start: dict[str, jax.Array]
) -> Tree:
    """The states of all agents before the first step."""
    mix = AgentMix(links[0], jnp.int32(0), jax.random.key(2), links[1])
    state = jax.vmap(lambda d: core.init(Oracle(functions, d), mix, start), axis_name=AGENTS)(data)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)


def _step(
    functions: Functions,
    core: Core,
    links: Links,
    data: Tree,
    keys: jax.Array,
    k: jax.Array,
    state: Tree,
) -> Tree:
    """One step of all agents."""
    mix = AgentMix(links[0], k, jax.random.key(2), links[1])
    one = lambda d, s, key: core.step(Oracle(functions, d), mix, s, k, jax.random.fold_in(key, k))
    return jax.vmap(one, axis_name=AGENTS)(data, state, keys)


@partial(jax.jit, static_argnums=0)  # one program for all runs of a method on as many agents
def _steps(
    functions: Functions,
    core: Core,
    links: Links,
    data: Tree,
    start: dict[str, jax.Array],
    keys: jax.Array,
    steps: int,
) -> Tree:
    state = _begin(functions, core, links, data, start)
    return jax.lax.fori_loop(0, steps, partial(_step, functions, core, links, data, keys), state)


def _run(
    method: Algorithm,
    problem: Problem,
    network: Network,
    steps: int,
    order: np.ndarray | None = None,
    same_keys: bool = False,
) -> Tree:
    """The states of all agents after some steps, as numpy arrays."""
    places = np.arange(network.agents) if order is None else order
    keys = jax.random.split(jax.random.key(1), network.agents)[
        np.zeros(network.agents, int) if same_keys else places
    ]
    links = network.mixing("dense"), Reach(*map(jnp.asarray, network.reach))
    state = _steps(
        problem.functions, method.core, links, problem.data, _start(problem), keys, steps
    )
    return jax.tree.map(np.asarray, state)


def _start(problem: Problem) -> dict[str, jax.Array]:
    return {name: rows[0] for name, rows in problem.start_rows(1).items()}


def _signature(method: Algorithm) -> str | None:
    problem = _problem(3)
    d, start = _pieces(problem)
    for name, wanted in (("init", 3), ("step", 5), ("view", 1)):
        function = getattr(method, name)
        try:
            inspect.signature(function).bind(*range(wanted))
        except TypeError as error:
            return f"{name} does not take {wanted} arguments ({error})"
    view = jax.eval_shape(
        lambda d, s: method.view(method.init(Oracle(problem.functions, d), MarkedMix(), s)),
        d,
        start,
    )
    if not isinstance(view, dict) or not {"x", "y"} <= set(view):
        return f"view(state) gives {view!r}, it must give a dictionary with at least x and y"
    for name, leaf in view.items():
        size = problem.x_layout.size if name == "x" else problem.y_layout.size
        if leaf.shape != (size,):
            return (
                f"view(state)[{name!r}] has shape {leaf.shape}, it must be a flat vector of {size}"
                " numbers"
            )
    return None


def _stability(method: Algorithm) -> str | None:
    for dtype in {jnp.float32, jnp.zeros(()).dtype.type}:
        problem = _problem(3, dtype)
        d, start = _pieces(problem)
        functions = problem.functions
        before = jax.eval_shape(
            lambda d, s, f=functions: method.init(Oracle(f, d), MarkedMix(), s), d, start
        )
        one = lambda d, s, f=functions: method.step(
            Oracle(f, d), MarkedMix(), s, jnp.int32(0), jax.random.key(0)
        )
        after = jax.eval_shape(one, d, before)
        if jax.tree.structure(before) != jax.tree.structure(after):
            return (
                f"a step changes the structure of the state from {jax.tree.structure(before)} to "
                f"{jax.tree.structure(after)}"
            )
        for (where, old), new in zip(
            jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
        ):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                name = jax.tree_util.keystr(where)
                return (
                    f"a step changes state{name} from {old.dtype}{list(old.shape)} to"
                    f" {new.dtype}{list(new.shape)}"
                )
    return None


def _compilation(method: Algorithm) -> str | None:
    problem = _problem(3)
    links = path(3).mixing(), Reach(*map(jnp.asarray, path(3).reach))
    keys = jax.random.split(jax.random.key(0), 3)
    traces = 0

    @jax.jit
    def step(core: Core, data: Tree, k: jax.Array, state: Tree) -> Tree:
        nonlocal traces
        traces += 1
        return _step(problem.functions, core, links, data, keys, k, state)

    begin = partial(_begin, problem.functions, method.core, links)
    state = jax.eval_shape(begin, problem.data, _start(problem))
    for k in range(2):
        state = jax.eval_shape(step, method.core, problem.data, jnp.int32(k), state)
    return f"{traces} compilations for two steps" if traces > 1 else None


def _light_cone(method: Algorithm) -> str | None:
    """Change the last agent's data on a path and see who notices."""
    if Need.NETWORK_CONSTANTS in method.needs:
        return None  # what agents agree on before the first step comes from everywhere
    agents = AGENTS_CHECKED
    steps = 2
    problem = _problem(agents)
    network = path(agents)
    data, start = _pieces(problem)
    reach = steps * examine(problem.functions, data, start, method.core).cost.messages
    changed = jax.tree.map(lambda leaf: leaf.at[-1].add(0.5), problem.data)
    other = Problem(_outer, _inner, changed, problem.x0, problem.y0)
    states = [_run(method, each, network, steps) for each in (problem, other)]
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        moved = np.abs(np.subtract(a, b, dtype=float)) > _tolerance() * 1e-3 * (1 + np.abs(a))
        noticed = np.flatnonzero(moved.reshape(agents, -1).any(axis=1))
        too_far = [i for i in noticed if agents - 1 - i > reach]
        if too_far:
            return (
                f"after {steps} steps with {reach} exchanges agent {too_far[0]} knows the data of"
                f" agent {agents - 1}, {agents - 1 - too_far[0]} links away"
            )
    return None


def _relabelling(method: Algorithm) -> str | None:
    problem = _problem(AGENTS_CHECKED)
    network = path(AGENTS_CHECKED)
    order = np.random.default_rng(1).permutation(AGENTS_CHECKED)
    renamed = Problem(
        _outer, _inner, jax.tree.map(lambda leaf: leaf[order], problem.data), problem.x0, problem.y0
    )
    W = network.W[np.ix_(order, order)]
    one = _run(method, problem, network, STEPS)
    two = _run(method, renamed, from_weights(W), STEPS, order)
    worst = _difference(jax.tree.map(lambda leaf: leaf[order], one), two)
    return (
        f"renaming the agents changes the answer by {worst:.1e}" if worst > _tolerance() else None
    )


def _agreement(method: Algorithm) -> str | None:
    state = _run(
        method, _problem(AGENTS_CHECKED, equal=True), ring(AGENTS_CHECKED), STEPS, same_keys=True
    )
    worst = _difference(
        state, jax.tree.map(lambda leaf: np.broadcast_to(leaf[:1], leaf.shape), state)
    )
    return f"equal agents drift apart by {worst:.1e}" if worst > _tolerance() else None


def _one_agent(method: Algorithm) -> str | None:
    state = _run(method, _problem(1), path(1), STEPS)
    finite = all(
        np.isfinite(leaf).all()
        for leaf in jax.tree.leaves(state)
        if np.issubdtype(leaf.dtype, np.floating)
    )
    return None if finite else "with one agent the state is not finite"


# Where it lands


def _landing(method: Algorithm, on: bool | Problem, landed: list[str]) -> str | None:
    passed, words = lands(method, None if isinstance(on, bool) else on)
    landed += [f"landing: {words}"] if passed else []
    return None if passed else words


def lands(method: Algorithm, problem: Problem | None = None) -> tuple[bool, str]:
    """Whether the mean of x rests at the solution, or closer to it with smaller steps or a larger
    lam; and where."""
    if Need.MINIBATCHES in method.needs:
        return True, "not tried, since it draws minibatches"
    problem = problem or quadratic(1 if Need.ONE_AGENT in method.needs else LANDING_AGENTS)
    if problem.agents is None or callable(problem.data) or not problem.solution:
        return (
            False,
            f"needs a problem with data in memory and a known solution, but {problem!r} has none",
        )
    far, moving = _distance(method, problem, LANDING_STEPS)
    if not far < LOST:
        return (
            False,
            f"the numbers blow up on {problem.name}: lower the steps, or pass landing=False",
        )
    if moving:
        where = f"at {far:.2g} times its first distance to the solution"
        return False, f"still on its way after {LANDING_STEPS:,} steps, {where}: larger steps?"
    if far <= _exact():
        return True, "exact"
    for words, other, factor in _variants(method):
        nearer, _ = _distance(other, problem, LANDING_STEPS * factor)
        if nearer < NEARER * far:
            return (
                True,
                f"at {far:.2g} times its first distance to the solution, {nearer:.2g} with {words}",
            )
    tried = " or ".join(words for words, _, _ in _variants(method))
    if tried:
        reason = (
            f"and {tried} does not change that: it solves something else, or misses if agents are"
            " unequal"
        )
    else:
        reason = (
            "and has no settings that could be changed (@decibo.method) to see whether smaller"
            " steps help"
        )
    where = (
        f"{far:.2g} times its first distance to the solution of {problem.name} with unequal agents"
    )
    return False, f"comes to rest at {where}, {reason}. If that is meant, pass landing=False"


def _distance(method: Algorithm, problem: Problem, steps: int) -> tuple[float, bool]:
    """How far the mean of x is from the solution, relative to the start, and whether it is still on
    its way."""
    assert problem.agents is not None
    assert problem.solution is not None
    solution = np.asarray(problem.x_layout.ravel(jax.tree.map(jnp.asarray, problem.solution["x"])))
    begun = float(np.max(np.abs(np.asarray(_start(problem)["x"]) - solution))) or 1.0
    network = path(problem.agents)
    far = []
    for part in (steps // 2, steps):
        x = np.asarray(jax.vmap(method.view)(_run(method, problem, network, part))["x"]).mean(
            axis=0
        )
        far.append(float(np.max(np.abs(x - solution))) / begun)
    return far[1], bool(_exact() < far[1] < STILL * far[0])


def _variants(method: Algorithm) -> list[tuple[str, Algorithm, int]]:
    """The method with half the step sizes and twice the steps, and with four times the penalty."""
    numbers = {
        name: value for name, value in method.settings.items() if isinstance(value, int | float)
    }
    steps = {
        name: value / 2
        for name, value in numbers.items()
        if name in method.step_sizes and name != PENALTY
    }
    found = []
    if steps:
        found.append(("half the step sizes", method.replace(**steps), 2))
    if PENALTY in numbers:
        found.append(
            (f"four times {PENALTY}", method.replace(**{PENALTY: 4 * numbers[PENALTY]}), 1)
        )
    return found


def _exact() -> float:
    return 1e-5 if jnp.zeros(()).dtype == jnp.float64 else 1e-2


def _tolerance() -> float:
    return 1e-10 if jnp.zeros(()).dtype == jnp.float64 else 1e-4


def _difference(one: Tree, two: Tree) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    gaps = [
        np.max(np.abs(a - b) / (1 + np.abs(a)), initial=0)
        for a, b in pairs
        if np.issubdtype(a.dtype, np.floating)
    ]
    return float(max(gaps, default=0.0))
