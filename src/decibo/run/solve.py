"""solve: check what was given, prepare it, and run it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.asynchronous import asynchronous_core, check_asynchronous
from decibo.algorithm.compose import MASK
from decibo.algorithm.methods import ahead_exact
from decibo.algorithm.privacy import masks_of
from decibo.capabilities import SEVERAL_DEVICES, Need, check
from decibo.data.stream import Batches, FirstBatch, Stream
from decibo.errors import InputError, short_repr, warn
from decibo.measure.cost import Found, Seconds, examine
from decibo.measure.measures import SOLVED, Measure, Measures, resolve
from decibo.network.asynchronous import AsynchronousNetwork
from decibo.network.directed import DirectedNetwork
from decibo.network.graphs import is_graph
from decibo.network.mixing import Reach
from decibo.network.network import AnyNetwork, Network, Share
from decibo.network.per_variable import check_variables, each
from decibo.network.sharded import sharded_mixing
from decibo.parallel.failure_detection import inside, loading
from decibo.parallel.launch import report_agents
from decibo.parallel.placement import EVERYWHERE, Placement, place_agents
from decibo.parallel.processes import check_same, share
from decibo.parallel.signals import GracefulStop
from decibo.problem.problem import Functions, Problem, require_products, why_no_products
from decibo.pytree import Tree, one_of
from decibo.run import loop
from decibo.run.checkpoint import Checkpointer, Checkpoints, check_folder
from decibo.run.fingerprint import PARTS, Marks, fingerprint
from decibo.run.host_gradients import PiecesStepper, are_wanted
from decibo.run.loop import LARGE, Inputs, Program
from decibo.run.observers import Callbacks, Report, reporting, saving, watched
from decibo.run.outcome import conclude
from decibo.run.prefetch import Source, StreamStepper, open_stream
from decibo.run.run import Clock, CompiledStepper, Plan, Setup, SpreadStepper, begin, run
from decibo.run.solution import DivergedError, Solution, Status
from decibo.run.start import Start, starting_rows
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
    if placement:
        check(SEVERAL_DEVICES, problem, network)
    if checkpoint is not None:
        check_folder(checkpoint.path)

    with GracefulStop(patience=0) as stop, ExitStack() as stack:
        if jax.process_count() > 1:
            stack.enter_context(inside())
        report = stack.enter_context(watched(progress))
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
            callbacks=len(callbacks),
        )
        checkpointer = setup.checkpointer
        if checkpointer is not None:
            stack.enter_context(checkpointer.held())
        compiling = Seconds(compiling=clock.lap().compiling)  # reading data is no step
        state = begin(setup)
        state = state._replace(seconds=clock.lap().plus(compiling))
        plan = Plan(steps, every, tuple(name for name, _ in setup.program.measures))
        if checkpointer is not None:
            state = checkpointer.restore(state, steps)
            saves = checkpointer.checkpoints.every
            plan = replace(plan, step=state.step, history=state.history, saves=saves)

        # What makes the steps, and what looks at them; checkpoints last, so that what is saved has
        # been judged.
        kinds: list[type[CompiledStepper]] = []
        if setup.source is not None:
            kinds.append(StreamStepper)
        if problem.outer_gradient or problem.inner_gradient:
            kinds += [PiecesStepper] if are_wanted(setup.program) else []
        if placement is not None:
            kinds.append(SpreadStepper)
        kind = type("Stepper", (*kinds, CompiledStepper), {}) if kinds else CompiledStepper
        observers = []
        watchers.start(plan)
        if len(watchers):
            observers.append(watchers.look)
        if report is not None:
            observers.append(reporting(report, plan))
        if checkpointer is not None:
            observers.append(saving(checkpointer, plan))
        stepper = kind(setup, plan, clock)
        state, ended = run(stepper, plan, state, observers, at_records=len(watchers) > 0)
        if ended.status is Status.interrupted:
            stop.received.clear()  # a request that Python dropped before the loop: answered there
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
        if isinstance(value, kind):
            continue
        # What was probably meant, for what people pass in good faith.
        remedy = ""
        if name == "network" and is_graph(value):
            remedy = (
                "Use decibo.from_graph(graph), or decibo.networks.from_digraph for a directed one:"
                " links need weights."
            )
        elif name == "network" and getattr(value, "ndim", 0) == 2:
            remedy = "Use decibo.from_weights(W)."
        elif name == "method" and callable(value):
            remedy = "Call it with its settings."
        wanted = f"a decibo {name} such as {example}"
        raise InputError(f"{name} must be {wanted}, but it is {short_repr(value)}.", remedy)


def check_fit(problem: Problem, network: AnyNetwork, method: Algorithm) -> None:
    """The method must be able to solve this problem on this network."""
    problem.check_agents(network.agents)
    check(method, problem, network)
    if Need.LOCKSTEP not in network.gives:
        check_asynchronous(method, cast("AsynchronousNetwork", network))
    if network.shares:
        assert method.direction is not None  # or it would need one network for all variables
        check_variables(method.name, method.direction.variables, network.shares)

    # The penalised inner level is surely strongly convex only if lam > 2 L_f1/mu_g
    # (paper, Lemma 2).
    lam, constants, bias = method.settings.get("lam"), problem.constants, method.theory.bias or ""
    if not isinstance(lam, int | float) or not bias.startswith("1/lam"):
        return
    least = 2 * constants["L_f1"] / constants["mu_g"] if constants and bias == "1/lam" else lam
    if lam < least:
        warn(
            f"lam = {lam:g} is below 2 L_f1/mu_g = {least:.3g} of this problem: f + lam g need not"
            " be strongly convex in y, and the theory no longer bounds the bias of the penalty."
            " Raise lam, or use ahead_exact."
        )

    # The penalty multiplies differences of gradients, and their rounding errors, by lam.
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
    if several and placement is not None:
        report_agents(placement.names)
    # What all processes must be given alike; what is wrong in one of them ends all.
    shared = {"steps": steps, "every": every, "checkpoint": checkpoints, "callbacks": callbacks}
    if checkpoints is not None and not checkpoints.shared:
        shared["checkpoint"] = replace(checkpoints, folder="one of its own")
    try:
        functions = problem.functions
        if several and callable(problem.data):
            data = _agreed_data(problem, local.tolist())
        else:
            data = problem.local(local.tolist())
        source: Source | None = None
        if isinstance(problem.sample, Stream):
            source = open_stream(problem.sample, local, network.agents, seed)
            functions = functions._replace(sample=source.sampler)
            problem.check_data(
                jax.eval_shape(jax.vmap(lambda d: source.sampler(d, jax.random.key(0))), data)
            )

        # The method, traced once: what it needs of the problem, what it shows and what it costs.
        found = examined(problem, method, functions, data, network.shares)
        rows = problem.start_rows(network.agents)
        if start is not None:
            rows = starting_rows(problem, network.agents, start, method, found.variables)
        if method.masks:
            rows = rows | masks_of(network, method, rows, seed)

        # What is recorded, and what to wait for.
        known = problem.known
        recorded = recorded_of(problem, [method], functions, data, found.variables, measures)
        names = [name for name, _ in recorded]
        if not isinstance(until, Mapping | None):
            raise InputError(
                "until must be a dictionary of measures and values, but it is"
                f" {short_repr(until)}.",
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

        # The objectives where the run starts; beyond LARGE, no second program is compiled for this.
        draws = Need.MINIBATCHES in method.needs
        own = rows
        if len(local) < network.agents:
            own = {name: row[local] for name, row in rows.items()}
        if network.agents * found.cost.state * problem.y_layout.dtype.itemsize <= LARGE:
            key = jax.random.key(seed) if draws and source is None else None
            finite_at_start(functions, data, own, local, key)
        if draws and isinstance(problem.sample, Batches):
            batches_add_up(functions, problem.sample.count, data, own, local)
    except Exception as error:
        if several:
            check_same(dict.fromkeys(PARTS, "") | shared, error)
        raise

    # By which a checkpoint, and other processes, know that this is the same run.
    checkpointer = None
    if several or checkpoints:
        identity = fingerprint(problem, network, method, seed, names, rows, one_of(data), functions)
        if several:
            check_same(identity | shared)
        if checkpoints:
            marked = data if source is None else (data, source.first)
            marks = Marks(checkpoints.path, local, marked)
            checkpointer = Checkpointer(checkpoints, placement, local, identity, marks)

    # What stays the same during the run, where its agents are.
    reach = network_constants(network) if Need.NETWORK_CONSTANTS in method.needs else None
    goals = {name: jnp.asarray(value) for name, value in targets.items()}
    if placement is None:
        mixing = network.mixing()
        core = method.core if Need.LOCKSTEP in network.gives else asynchronous_core(method)
        inputs = Inputs(core, mixing, data, jax.random.key(seed), known, goals, reach)
    else:
        everywhere = NamedSharding(placement.mesh, EVERYWHERE)
        key = jax.jit(lambda: jax.random.key(seed), out_shardings=everywhere)()
        mixing = placement.split_devices(sharded_mixing(network, placement))
        here = [placement.everywhere(part) for part in (known, goals, reach)]
        inputs = Inputs(method.core, mixing, placement.split(data, local), key, *here)
    cost = found.cost.with_rounds(mixing.rounds)
    if Need.LOCKSTEP not in network.gives:
        cost = cost.at_speed(*cast("AsynchronousNetwork", network).active)
    program = Program(functions, recorded, tuple(targets), placement, memory=memory)
    return Setup(
        problem, network, method, steps, every, program, inputs, rows, cost, targets,
        checkpointer, source,
    )  # fmt: skip


def examined(
    problem: Problem,
    method: Algorithm,
    functions: Functions,
    data: Tree,
    shares: Sequence[Share] = (),
) -> Found:
    """What a trace of the method's first step finds out, if the problem has what the step needs.
    Only traces, and no derivatives."""
    start = {"x": functions.x.struct, "y": functions.y.struct}
    start |= {MASK + name: start["x" if name == "x" else "y"] for name in method.masks}
    found = examine(functions, one_of(data), start, method.core, shares)
    if found.products:
        require_products(method.name, problem.functions, one_of(data))
    return found


def recorded_of(
    problem: Problem,
    methods: Sequence[Algorithm],
    functions: Functions,
    data: Tree,
    variables: tuple[str, ...],
    measures: Measures,
) -> tuple[tuple[str, Measure], ...]:
    """The measures of a run by name. Exact ones solve the inner level on the data that stays on the
    device, of which one batch is none."""
    tells = {
        "has_direction": all(method.direction is not None for method in methods),
        "has_rest": all(method.rest is not None for method in methods),
    }
    no_exact = lambda: why_no_products(functions, one_of(data))
    recorded = resolve(measures, variables, problem.known, **tells, no_exact=no_exact)
    exact = [name for name, _ in recorded if name in SOLVED]
    if exact and isinstance(problem.data, FirstBatch):
        raise InputError(
            f"{exact[0]} solves the inner level exactly, but all data of this problem comes in a"
            " stream.",
            "Pass what it is to be solved on: Problem(outer, inner, data, x0, y0, sample=stream).",
        )
    return recorded


def _agreed_data(problem: Problem, agents: list[int]) -> Tree:
    """The data of this process's agents, of the shape that those of all processes have."""
    parts: list[Tree] = []
    failure: Exception | None = None
    try:
        with loading():
            parts = problem.loaded(agents)
    except Exception as error:
        failure = error
    check_same({}, failure)
    return problem.stacked(parts, agents, share)


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


def network_constants(network: AnyNetwork) -> Reach:
    """The width and the spectral gap of a network as arrays, for methods that use them."""
    return Reach(*(jnp.asarray(number) for number in cast("Network", network).reach))
