"""solve: check what was given, prepare it, and run it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.algorithm.asynchronous import check_free, core_for
from decibo.algorithm.methods import ahead_exact
from decibo.algorithm.privacy import masks_of
from decibo.data.stream import Batches, FirstBatch, Stream
from decibo.errors import InputError, short, warn
from decibo.measure.cost import (
    Cost,
    MarkedMix,
    Seconds,
    ShapedOracle,
    asks_for_products,
    state_size,
    step_cost,
)
from decibo.measure.measures import SOLVED, Measure, Measures, resolve
from decibo.network.asynchronous import AsynchronousNetwork
from decibo.network.directed import DirectedNetwork
from decibo.network.graphs import is_graph
from decibo.network.mixing import Reach
from decibo.network.network import Network
from decibo.network.per_variable import EachNetwork, each
from decibo.network.sharded import sharded_mixing
from decibo.network.varying import VaryingNetwork
from decibo.parallel.failure_detection import inside, loading
from decibo.parallel.launch import report_agents
from decibo.parallel.placement import EVERYWHERE, Placement, place_agents
from decibo.parallel.processes import check_same, share
from decibo.problem.problem import BATCHES, Functions, Problem, require_products, why_no_products
from decibo.pytree import Tree, one_of
from decibo.run import loop
from decibo.run.checkpoint import Checkpointer, Checkpoints, check_folder
from decibo.run.compiled import Setup, begin, stepper_of
from decibo.run.data_marks import Marks
from decibo.run.diagnose import conclude
from decibo.run.fingerprint import PARTS, fingerprint
from decibo.run.loop import LARGE, Inputs, Program
from decibo.run.prefetch import Source, open_stream
from decibo.run.progress import Report
from decibo.run.run import Callbacks, Plan, reporting, run, saving, watched
from decibo.run.solution import DivergedError, Solution
from decibo.run.start import Start, starting_rows
from decibo.run.timing import Clock
from decibo.validate import MOST_STEPS, at_least, flag, integer
from decibo.validate import one_of as one_of_words
from decibo.validate import seed as check_seed

MEMORY = ("normal", "less", "low")
_ran_in: list[int] = []  # the process of the first run
LOST = 0.01  # lam times the rounding error of the type: above it, rounding is seen in the result


def solve(
    problem: Problem,
    network: Network | DirectedNetwork | Mapping[str, Network],
    method: Algorithm | None = None,
    *,
    steps: int = 1000,
    every: int | None = None,
    measures: Measures = None,
    start: Start = None,
    seed: int = 0,
    until: Mapping[str, float] | None = None,
    progress: bool | Report | None = None,
    throw: bool = False,
    devices: int | None = None,
    checkpoint: Checkpoints | None = None,
    memory: str = "normal",
    callbacks: Sequence[object] = (),
) -> Solution:
    """Let the agents of `network` solve `problem` together by `method`; without one, by
    `ahead_exact()`.

    network     a network, or one for each variable of the method: {"x": ring(10), "y":
                complete(10), "z": complete(10)}
    steps       the number of steps
    every       the number of steps between two records; by default there are about a hundred
                records
    measures    what to record: names and functions of a snapshot; ["cheap"] by default, ["all"]
                adds the exact ones
    start       stacked starting points {"x": ..., "y": ...}, or `random_start(seed)`; by default x0
                and y0
    seed        for methods and networks that draw random numbers
    until       stop as converged once all these measures are at or below their values:
                {"stationarity": 1e-8}; what already holds at the start, as consensus may, must have
                been missed in between
    progress    a line on the terminal (default: if there is one), or a function (step, steps,
                latest measures)
    throw       raise DivergedError if the run diverges or fails, instead of returning what was
                computed until then
    devices     the number of devices to use for the agents; by default all devices of all processes
    checkpoint  `Checkpoints(folder)`: save the state there, so that the run can be resumed after a
                crash
    memory      "less" computes one gradient after the other, so that the activations of one are in
                memory and not those at y and at z together. "low" does so for one agent of a device
                after the other, too, and takes longer
    callbacks   functions (step, measures), called at every record, that end the run by returning
                True or a reason; or objects with any of start(plan), record(step, measures) and
                end(solution), such as `decibo.callbacks.EarlyStopping("outer")`
    """
    clock = Clock()
    check_process()
    method = ahead_exact() if method is None else method
    network = each(network) if isinstance(network, Mapping) else network
    check_types(problem, network, method)
    steps = integer("steps", steps, most=MOST_STEPS)
    seed = check_seed(seed)
    throw = flag("throw", throw)
    one_of_words("memory", memory, MEMORY)
    every = max(1, steps // 100) if every is None else integer("every", every)
    if not isinstance(checkpoint, Checkpoints | None):
        raise InputError(
            f"checkpoint must be decibo.Checkpoints(folder), but it is {checkpoint!r}."
        )
    watchers = Callbacks(callbacks)
    check_fit(problem, network, method)
    several = devices is not None or jax.device_count() > 1
    placement = place_agents(network.agents, devices) if several else None
    if placement and isinstance(network, AsynchronousNetwork):
        raise InputError("Agents that do not wait are simulated on one device.", "Pass devices=1.")
    if checkpoint is not None:
        check_folder(checkpoint.path)
    with inside(), watched(progress) as report:
        setup = prepare(
            problem,
            network,
            method,
            steps=steps,
            every=every,
            measures=measures,
            start=start,
            seed=seed,
            until=until,
            placement=placement,
            checkpoints=checkpoint,
            memory=memory,
            callbacks=len(watchers),
        )
        compiling = clock.lap().compiling
        plan = Plan(steps, every, tuple(name for name, _ in setup.program.measures))
        with setup.checkpointer.held() if setup.checkpointer else nullcontext():
            state = begin(setup)
            state = state._replace(seconds=clock.lap().plus(Seconds(compiling=compiling)))
            looks = []
            if setup.checkpointer:
                state = setup.checkpointer.restore(state, steps)
                saves = setup.checkpointer.every
                plan = replace(plan, step=state.step, history=state.history, saves=saves)
            if len(watchers):
                watchers.start(plan)
                looks.append(watchers.look)
            if report is not None:
                looks.append(reporting(report, plan))
            if setup.checkpointer:
                looks.append(saving(setup.checkpointer, plan))
            stepper = stepper_of(setup, plan, clock)
            state, ended = run(stepper, plan, state, looks, at_records=len(watchers) > 0)
            solution = problem.restored(conclude(setup, state, ended, plan.step))
    watchers.end(solution)
    if throw and not solution.status.sound:
        raise DivergedError(solution)
    return solution


def check_process() -> None:
    """Reject a run in a process that was forked from one with runs: JAX's threads do not exist
    there, and the first computation would wait for them without an end."""
    _ran_in.append(os.getpid())
    if _ran_in[0] != os.getpid():
        raise InputError(
            f"This process was forked from process {_ran_in[0]} after a run there, and JAX does not"
            " work after a fork.",
            "Start processes with multiprocessing.get_context('spawn').",
        )
    del _ran_in[1:]


def check_types(problem: object, network: object, method: object) -> None:
    """Each of the three must be what it is called."""
    for name, value, kind, example in (
        ("problem", problem, Problem, "decibo.Problem(outer, inner, data, x0, y0)"),
        ("network", network, Network | DirectedNetwork, "decibo.ring(10)"),
        ("method", method, Algorithm, "decibo.ahead(alpha=..., beta=..., gamma=..., lam=...)"),
    ):
        if not isinstance(value, kind):
            wanted = f"a decibo {name} such as {example}"
            raise InputError(
                f"{name} must be {wanted}, but it is {short(repr(value))}.", _meant(name, value)
            )


def _meant(name: str, value: object) -> str:
    """What was probably meant, for what people pass in good faith."""
    if name == "network" and is_graph(value):
        return (
            "Use decibo.from_graph(graph), or decibo.networks.from_digraph for a directed one:"
            " links need weights."
        )
    if name == "network" and getattr(value, "ndim", 0) == 2:
        return "Use decibo.from_weights(W)."
    if name == "method" and callable(value):
        return "Call it with its settings."
    return ""


def check_fit(problem: Problem, network: Network | DirectedNetwork, method: Algorithm) -> None:
    """The method must be able to solve this problem on this network."""
    problem.check_agents(network.agents)
    if isinstance(network, EachNetwork):
        if method.told:
            raise InputError(
                f"{method!r} finds its step sizes over one network, but there is one for each"
                " variable.",
                "Pass alpha and gamma, or one network.",
            )
        network.check_variables(
            method.name, method.direction.variables if method.direction else None
        )
    if network.directed and not method.directed:
        raise InputError(
            f"{method.name} needs symmetric, doubly stochastic weights, which the directed"
            f" {network!r} does not have.",
            "Use a method with push_pull, such as decibo.methods.fab, or an undirected network.",
        )
    if method.stochastic and problem.sample is None:
        raise InputError(
            f"{method.name} draws minibatches, but the problem does not say how.",
            BATCHES if method.batches else "Pass Problem(..., sample=lambda d, key: ...).",
        )
    if method.batches and not isinstance(problem.sample, Batches):
        raise InputError(
            f"{method.name} remembers what it found on every batch, but the problem draws"
            " minibatches that have no number.",
            BATCHES,
        )
    if isinstance(problem.sample, Stream):
        _check_streamed(method)
    parts = network.networks if isinstance(network, EachNetwork) else (network,)
    if method.fixed_network and any(isinstance(part, VaryingNetwork) for part in parts):
        raise InputError(
            f"{method.name} keeps sums of what neighbours sent, which the changing links of"
            f" {network!r} would invalidate.",
            "Use a fixed network, or a method without compression.",
        )
    if isinstance(network, AsynchronousNetwork):
        check_free(method, network)
    if network not in parts and any(isinstance(part, AsynchronousNetwork) for part in parts):
        raise InputError(
            "There cannot be a network for each variable if agents do not wait for each other.",
            "Use one asynchronous network for all; with split=True variables are late by"
            " themselves.",
        )
    if method.centralised and network.agents > 1:
        raise InputError(
            f"{method.name} is a centralised method and runs on one agent, but the network has"
            f" {network.agents}.",
            "Use decibo.complete(1).",
        )
    _warn_of_small_lam(problem, method)
    _warn_of_large_lam(problem, method)


def _check_streamed(method: Algorithm) -> None:
    """A method for a problem whose minibatches come in a stream."""
    if not method.stochastic:
        raise InputError(
            f"{method.name} takes gradients on all data at every step, but the data comes in a"
            " stream.",
            "Use decibo.minibatch(method), or decibo.with_estimator(method,"
            " decibo.estimator.storm(0.1)).",
        )
    if method.full:
        raise InputError(
            f"{method.name} takes gradients on all data now and then, but the data comes in a"
            " stream.",
            "Use estimator.minibatch() or estimator.storm(a).",
        )


def check_products(problem: Problem, method: Algorithm, data: Tree) -> None:
    """A method with second derivatives needs an inner objective that has them. Only traces, and
    only if it must."""
    one = one_of(data)
    needed = (
        asks_for_products(problem.functions, one, method.core)
        if method.products is None
        else method.products
    )
    if needed:
        require_products(method.name, problem.functions, one)


def _warn_of_small_lam(problem: Problem, method: Algorithm) -> None:
    """The penalised inner level is surely strongly convex only if lam > 2 L_f1/mu_g (paper, Lemma
    2)."""
    lam = method.settings.get("lam")
    constants = problem.constants
    if constants is None or not isinstance(lam, int | float) or method.bias != "1/lam":
        return
    least = 2 * constants["L_f1"] / constants["mu_g"]
    if lam < least:
        warn(
            f"lam = {lam:g} is below 2 L_f1/mu_g = {least:.3g} of this problem: f + lam g need not"
            " be strongly convex in y, and the theory no longer bounds the bias of the penalty."
            " Raise lam, or use ahead_exact."
        )


def _warn_of_large_lam(problem: Problem, method: Algorithm) -> None:
    """The penalty multiplies differences of gradients, and their rounding errors, by lam."""
    lam = method.settings.get("lam")
    if not isinstance(lam, int | float) or not (method.bias or "").startswith("1/lam"):
        return
    dtype = problem.y_layout.dtype
    lost = lam * float(jnp.finfo(dtype).eps)
    if lost > LOST:
        advice = (
            "Lower lam"
            if dtype == jnp.float64
            else "Lower lam, or use double precision (jax_enable_x64)"
        )
        warn(
            f"lam = {lam:g} is too large for {dtype}: rounding errors, multiplied by it, reach"
            f" {lost:.1g} of what it should find. {advice}."
        )


def prepare(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    *,
    steps: int,
    every: int,
    measures: Measures = None,
    start: Start = None,
    seed: int = 0,
    until: Mapping[str, float] | None = None,
    placement: Placement | None = None,
    checkpoints: Checkpoints | None = None,
    memory: str = "normal",
    callbacks: int = 0,
) -> Setup:
    """Everything that a run needs, checked in all processes before any of them starts."""
    several = jax.process_count() > 1
    local = np.arange(network.agents) if placement is None else placement.own(jax.process_index())
    shared = {"steps": steps, "every": every, "checkpoint": checkpoints, "callbacks": callbacks}
    if checkpoints is not None and not checkpoints.shared:
        shared["checkpoint"] = replace(checkpoints, folder="one of its own")
    if several and placement is not None:
        report_agents(placement.names)
    try:
        given = _checked(problem, network, method, local, measures, start, seed, until)
    except Exception as error:
        if several:
            check_same(dict.fromkeys(PARTS, "") | shared, error)
        raise
    identity: dict[str, str] = {}
    if several or checkpoints:
        one = one_of(given.data)
        identity = fingerprint(
            problem, network, method, seed, given.names, given.rows, one, given.functions
        )
    if several:
        check_same(identity | shared)
    checkpointer = None
    if checkpoints:
        marks = Marks(checkpoints.path, local, given.marked)
        checkpointer = Checkpointer(checkpoints, placement, local, identity, marks)
    inputs = _inputs(given, network, method, seed, placement, local)
    program = Program(
        given.functions, given.measures, tuple(given.targets), placement, memory=memory
    )
    return Setup(
        problem,
        network,
        method,
        steps,
        every,
        program,
        inputs,
        given.rows,
        np.asarray(given.rows["x"]).mean(axis=0),
        _cost(given, network, method, inputs.mixing.rounds),
        given.targets,
        checkpointer,
        given.source,
    )


class Given(NamedTuple):
    """What a run was given, checked and in the form in which it is used.

    data   of this process's agents
    rows   the starting rows of all agents
    known  the solution, as far as the problem knows it
    """

    functions: Functions
    data: Tree
    rows: dict[str, jax.Array]
    known: dict[str, jax.Array]
    measures: tuple[tuple[str, Measure], ...]
    targets: dict[str, float]
    source: Source | None

    @property
    def names(self) -> list[str]:
        """Of the measures."""
        return [name for name, _ in self.measures]

    @property
    def marked(self) -> Tree:
        """The data by which a run is known again: of a stream also the first batch."""
        return self.data if self.source is None else (self.data, self.source.first)


def _checked(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    local: np.ndarray,
    measures: Measures,
    start: Start,
    seed: int,
    until: Mapping[str, float] | None,
) -> Given:
    """Read the data of these agents and check it, the start, the measures and the targets against
    each other."""
    functions = problem.functions
    source: Source | None = None
    data = (
        _agreed_data(problem, local.tolist())
        if jax.process_count() > 1
        else problem.local(local.tolist())
    )
    if isinstance(problem.sample, Stream):
        source = open_stream(problem.sample, local, network.agents, seed)
        functions = functions._replace(sample=source.sampler)
        problem.check_samples(
            jax.eval_shape(jax.vmap(lambda d: source.sampler(d, jax.random.key(0))), data)
        )
    check_products(problem, method, data)
    variables = variables_of(functions, data, method.core)
    rows = start_of(problem, network.agents, start, method, variables)
    rows = rows | masks_of(network, method, rows, seed)
    known = known_solution(problem)
    tells = {"has_direction": method.direction is not None, "has_rest": method.rest is not None}
    no_exact = partial(why_no_products, functions, one_of(data))
    recorded = resolve(measures, variables, known, **tells, no_exact=no_exact)
    names = [name for name, _ in recorded]
    _check_measurable(problem, names)
    targets = _targets(until, names)
    here = (
        rows if len(local) == network.agents else {name: row[local] for name, row in rows.items()}
    )
    key = jax.random.key(seed) if method.stochastic and source is None else None
    numbers = network.agents * state_size(functions, one_of(data), one_of(rows), method.core)
    # beyond, no second program is compiled for this
    if numbers * problem.y_layout.dtype.itemsize <= LARGE:
        finite_at_start(functions, data, here, local, key)
    if isinstance(problem.sample, Batches) and method.stochastic:
        batches_add_up(functions, problem.sample.count, data, here, local)
    return Given(functions, data, rows, known, recorded, targets, source)


def _inputs(
    given: Given,
    network: Network | DirectedNetwork,
    method: Algorithm,
    seed: int,
    placement: Placement | None,
    local: np.ndarray,
) -> Inputs:
    """What stays the same during the run, where its agents are."""
    goals = {name: jnp.asarray(value) for name, value in given.targets.items()}
    if placement is not None:
        return _placed(
            placement, network, method, placement.split(given.data, local), seed, given.known, goals
        )
    mixing = network.mixing()
    core = core_for(mixing, method)
    return Inputs(
        core, mixing, given.data, jax.random.key(seed), given.known, goals, told(network, method)
    )


def _cost(given: Given, network: Network | DirectedNetwork, method: Algorithm, rounds: int) -> Cost:
    """What one step costs one agent on this network."""
    shares = network.shares if isinstance(network, EachNetwork) else ()
    cost = step_cost(
        given.functions, one_of(given.data), one_of(given.rows), method.core, shares
    ).with_rounds(rounds)
    if not isinstance(network, AsynchronousNetwork):
        return cost
    speed = float(np.mean(network.speeds))
    return cost.at_speed(speed, 1.0 if network.relay else speed)


def _agreed_data(problem: Problem, agents: list[int]) -> Tree:
    """The data of this process's agents, of the shape that those of all processes have."""
    if not callable(problem.data):
        return problem.local(agents)
    parts: list[Tree] = []
    failure: Exception | None = None
    try:
        with loading():
            parts = problem.loaded(agents)
    except Exception as error:
        failure = error
    check_same({}, failure)
    return problem.stacked(parts, agents, share)


def variables_of(functions: Functions, data: Tree, core: Core) -> tuple[str, ...]:
    """The names of what the method shows of its state, found without computing anything."""
    layouts = {"x": functions.x, "y": functions.y}
    start = {
        name: jax.ShapeDtypeStruct((layout.size,), layout.dtype) for name, layout in layouts.items()
    }
    names = lambda d, start: core.view(core.init(ShapedOracle(functions, d), MarkedMix(), start))
    return tuple(jax.eval_shape(names, one_of(data), start))


def start_of(
    problem: Problem, agents: int, start: Start, method: Algorithm, variables: tuple[str, ...]
) -> dict[str, jax.Array]:
    """The starting rows of all agents: x and y always, other variables that the method keeps where
    they are given."""
    if start is None:
        return problem.start_rows(agents)
    return starting_rows(
        problem, agents, start, method.direction.variables if method.direction else variables
    )


def known_solution(problem: Problem) -> dict[str, jax.Array]:
    """The known x and y as flat vectors, where the problem has them."""
    layouts = {"x": problem.x_layout, "y": problem.y_layout}
    trees = problem.solution or {}
    return {
        name: layouts[name].ravel(jax.tree.map(jnp.asarray, tree)) for name, tree in trees.items()
    }


def finite_at_start(
    functions: Functions,
    data: Tree,
    rows: Mapping[str, jax.Array],
    agents: np.ndarray,
    key: jax.Array | None = None,
) -> None:
    """Reject a start where an objective of these agents is not a finite number; with a key on a
    minibatch only."""
    for name, row in zip(
        ("outer", "inner"), loop.values(functions, data, rows["x"], rows["y"], key), strict=True
    ):
        bad = np.flatnonzero(~np.isfinite(np.asarray(row)))
        if bad.size:
            raise InputError(
                f"Both objectives must be finite where a run starts, but {name} of agent"
                f" {agents[bad[0]]} is {float(row[bad[0]])} there ({bad.size} of {len(row)}"
                " agents).",
                "Check the data of this agent for NaN, or start elsewhere with start=.",
            )


def batches_add_up(
    functions: Functions, count: int, data: Tree, rows: Mapping[str, jax.Array], agents: np.ndarray
) -> None:
    """Reject batches over which an objective of these agents has another mean than it has on all
    data."""
    whole = loop.values(functions, data, rows["x"], rows["y"])
    means = loop.mean_values(functions, count, data, rows["x"], rows["y"])
    for name, value, mean in zip(("outer", "inner"), whole, means, strict=True):
        apart = np.abs(np.asarray(value) - np.asarray(mean))
        allowed = float(jnp.finfo(mean.dtype).eps) ** 0.5 * (
            np.abs(np.asarray(value)) + np.abs(np.asarray(mean))
        )
        bad = np.flatnonzero(apart > allowed)
        if bad.size:
            raise InputError(
                f"The mean of an objective over the {count} batches must be the objective itself,"
                f" but {name} of agent {agents[bad[0]]} is {float(value[bad[0]]):.6g} on all data"
                f" and {float(mean[bad[0]]):.6g} on average.",
                "Average over samples instead of summing, or weight them, or pass Batches(count,"
                " take=...).",
            )


def _check_measurable(problem: Problem, names: list[str]) -> None:
    """Exact measures solve the inner level on the data that stays on the device; one batch is not
    the problem."""
    exact = [name for name in names if name in SOLVED]
    if exact and isinstance(problem.data, FirstBatch):
        raise InputError(
            f"{exact[0]} solves the inner level exactly, but all data of this problem comes in a"
            " stream.",
            "Pass what it is to be solved on: Problem(outer, inner, data, x0, y0, sample=stream).",
        )


def _targets(until: Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    """What to wait for, if it is recorded and finite."""
    if not isinstance(until, Mapping | None):
        raise InputError(
            f"until must be a dictionary of measures and values, but it is {short(repr(until))}.",
            "Pass until={'stationarity': 1e-8}, for example.",
        )
    targets = {}
    for name, value in (until or {}).items():
        if name not in names:
            raise InputError(
                f"until names {name!r}, but a run can only wait for what it records:"
                f" {', '.join(names)}.",
                "Add it to measures.",
            )
        targets[name] = at_least(f"until[{name!r}]", value, -math.inf)
    return targets


def _placed(
    placement: Placement,
    network: Network | DirectedNetwork,
    method: Algorithm,
    data: Tree,
    seed: int,
    known: dict[str, jax.Array],
    targets: dict[str, jax.Array],
) -> Inputs:
    """The inputs of a run on several devices, every part where it belongs."""
    key = jax.jit(
        lambda: jax.random.key(seed), out_shardings=NamedSharding(placement.mesh, EVERYWHERE)
    )()
    mixing = placement.split_devices(sharded_mixing(network, placement))
    everywhere = [placement.everywhere(part) for part in (known, targets, told(network, method))]
    return Inputs(method.core, mixing, data, key, *everywhere)


def told(network: Network | DirectedNetwork, method: Algorithm) -> Reach | None:
    """What the agents are told about the network, if the method wants it, as arrays."""
    if not method.told or isinstance(network, DirectedNetwork):
        return None
    return Reach(*(jnp.asarray(number) for number in network.reach))
