"""This site's part of a job, checked before anything is computed or sent: its data, its agent, its
messages, what it measures; and at the end how that part ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Core
from decibo.algorithm.compose import MASK
from decibo.errors import InputError
from decibo.files import PRIVATE
from decibo.measure.cost import Cost, examine
from decibo.measure.measures import Measure, Measures, available, resolve
from decibo.problem.problem import why_no_products
from decibo.programs import jitted
from decibo.pytree import Tree, one_of
from decibo.run import loop, outcome
from decibo.run.checkpoint import Checkpointer, Checkpoints, RunState
from decibo.run.fingerprint import Marks
from decibo.run.loop import Inputs, Program
from decibo.run.run import Ended
from decibo.run.solution import Solution, Status
from decibo.run.solve import finite_at_start
from decibo.silo.agent import Agent, begin
from decibo.silo.async_mailbox import AsyncMailbox
from decibo.silo.collectives import tree_of
from decibo.silo.job import RESIDUAL, Job
from decibo.silo.mailbox import Mailbox
from decibo.silo.same_job import DATA, described, of_shapes
from decibo.silo.wire import Log, Wire

# What one site can measure honestly: all else is a property of all sites.
OWN = ("outer", "inner", "gap", "rest", "outer_local", "inner_local", "distance_x", "distance_y")
STORED = 2  # checkpoints: the one before the newest is used if that one is damaged


@dataclass(frozen=True, eq=False)
class SiteRun:
    """A job as one site sees it, checked.

    rows, start    data and starting point, with a leading axis of one agent
    shape          what the state looks like
    before, during numbers in each exchange before the first step, and in each of a step
    program        what this site measures alone
    every          steps between two records
    """

    job: Job
    site: str
    agent: Agent
    rows: Tree
    start: dict[str, jax.Array]
    shape: Tree
    before: list[int]
    during: list[int]
    cost: Cost
    program: Program
    inputs: Inputs
    every: int

    @property
    def peers(self) -> list[str]:
        return [self.job.names[number] for number in self.agent.neighbours]

    @property
    def first(self) -> dict[str, jax.Array]:
        return {name: row[0] for name, row in self.start.items()}

    @cached_property
    def terms(self) -> dict[str, str]:
        """What this site compares with its neighbours, and with its own checkpoints."""
        if not callable(self.job.problem.data):
            return self.job.terms
        own = self.agent.data
        return self.job.terms | {DATA: described(own)} | self.job.programs(own)

    def programs(self, data: str) -> Mapping[str, str] | None:
        """Checksums of this site's programs for the data of a neighbour, if it could be that of
        this job: it may have more samples, or fewer."""
        if data not in self._programs and len(self._programs) < len(self.job.sites):
            like = of_shapes(data, self.agent.data)
            found = None
            if like is not None:
                # JAX has the precision of each thread apart. Anything may be raised: the functions
                # are the user's, and the shapes somebody else's.
                with suppress(Exception), jax.enable_x64(self.job.problem.x_layout.dtype == "f8"):
                    found = self.job.programs(like)
            self._programs[data] = found
        return self._programs.get(data)

    @cached_property
    def _programs(self) -> dict[str, dict[str, str] | None]:
        return {}

    def mailbox(
        self, wire: Wire, log: Log = lambda line: None, *, same_programs: bool = False
    ) -> Mailbox:
        """What this site sends and receives, on a wire."""
        job = self.job
        consortium = replace(job.consortium, site=self.site, log=log, same_programs=same_programs)
        most = max([*self.before, *self.during, *self.at_records], default=1)
        options: dict[str, Any] = {"programs": self.programs, "most": most}
        agreed = (wire, consortium, job.digest, self.terms)
        if job.is_asynchronous:
            return AsyncMailbox(*agreed, width=job.network.width, **options)
        calls = max(len(self.before), len(self.during)) + len(self.at_records)
        return Mailbox(*agreed, keep=consortium.keep, calls=calls, **options)

    @property
    def at_records(self) -> list[int]:
        """Numbers in each exchange by which all sites find what they record together."""
        names = self.job.together
        if not names:
            return []
        tree = tree_of(self.job.network, self.agent.number)
        numbers = len([name for name in names if name != RESIDUAL])
        if RESIDUAL not in names:
            return [numbers] * 2 * tree.height
        functions = self.agent.functions
        numbers += 2 * (functions.x.size + functions.y.size)
        return [numbers] * 2 * tree.height + [1] * tree.width

    def measured(self, state: Tree, step: int) -> dict[str, np.ndarray]:
        found = _measured(self.program, self.inputs, state, jnp.int32(step))
        return {name: np.asarray(value) for name, value in found.items()}

    def rest(self, state: Tree) -> float:
        """By how much this agent would still move, for a method that can tell."""
        return float(_rest(self.agent.method.core, state))

    def checkpointer(self, folder: str | Path) -> Checkpointer:
        """What keeps the state of this site, for its user only."""
        agents = np.array([self.agent.number])
        return Checkpointer(
            Checkpoints(folder, self.job.checkpoint_every, STORED, resume="auto"),
            None,
            agents,
            self.terms | {"site": self.site},
            Marks(Path(folder), agents, self.rows),
            PRIVATE,
        )

    def solution(self, state: RunState, ended: Ended, resumed: int = 0) -> Solution:
        """The solution of this site, judged by the same rules as that of `solve`.

        resumed   the step of the checkpoint from which the run went on, 0 if there was none
        """
        method = self.agent.method
        steps = self.job.steps
        rows = {name: jnp.asarray(row) for name, row in _views(method.core, state.agents).items()}
        status = ended.status
        reasons = [ended.reason or f"All {steps} steps done."]
        if status is not Status.diverged:
            # Of x, y and what else the method shows: masks and sums that it keeps may be large.
            first = float(loop.largest({name: self.start[name] for name in ("x", "y")}))
            found, note = outcome.judge(state.history, first, float(loop.largest(rows)))
            moved = ""
            if found is None and state.step:
                moved = outcome.hardly_moved(np.asarray(self.start["x"]), np.asarray(rows["x"]))
            chosen = method.core.chosen
            sizes = {} if chosen is None else jax.vmap(chosen)(state.agents)
            if found is None and status is Status.done and outcome.returns(sizes):
                found = Status.failed
            if found is not None and status is not Status.interrupted:
                status = found
            if not status.sound:
                reasons = [f"The run produced no valid result after {state.step} steps."]
            elif status is Status.interrupted:
                again = "the same command continues from there."
                reasons = [f"Interrupted after step {state.step} of {steps}; {again}"]
            reasons += [note, moved, outcome.step_sizes(sizes)]
        if resumed:
            reasons.append(f"Resumed from the checkpoint of step {resumed}.")
        own = {name: row[0] for name, row in rows.items()}
        cost = replace(self.cost, agents=1, links=len(self.peers))
        solution = outcome.solution_of(
            self.agent.functions, method, self.job.network, cost, state, rows, own
        )
        return replace(solution, status=status, message=" ".join(filter(None, reasons)))


@jax.jit
def _rest(core: Core, state: Tree) -> jax.Array:
    assert core.rest is not None
    return core.rest(state)


@jax.jit
def _views(core: Core, agents: Tree) -> dict[str, jax.Array]:
    return jax.vmap(core.view)(agents)


@jitted()
def _measured(program: Program, inputs: Inputs, state: Tree, k: jax.Array) -> dict[str, jax.Array]:
    return loop.observe(program, inputs, jax.tree.map(lambda leaf: leaf[None], state), k)


def prepare(
    job: Job, site: str, data: Tree, *, measures: Measures = None, every: int | None = None
) -> SiteRun:
    """Check this site's data, and find out what it would send; nothing is computed or sent."""
    number = job.number(site)
    problem = job.problem
    if data is not None:  # in place of the problem's own
        of_one = {"data": lambda agent: data, "agents": job.network.agents}
        problem = replace(problem, solution=None, inner_solution=None, **of_one)
    functions = problem.functions
    rows = problem.local([number])
    start = {name: row[:1] for name, row in problem.start_rows(job.network.agents).items()}
    finite_at_start(functions, rows, start, np.array([number]))
    for name in job.method.masks:  # which follow from what the neighbours send first
        start[MASK + name] = jnp.zeros_like(start["x" if name == "x" else "y"])
    own, first = jax.tree.map(lambda leaf: leaf[0], (rows, start))
    agent = Agent(functions, job.method, job.network, number, own, job.seed, job.secure_sums)
    shape = jax.eval_shape(
        lambda *parts: begin(agent.functions, agent.reach, *parts), agent.inputs, first
    )
    before, during = agent.messages(first)
    if job.is_asynchronous and (before or len(during) != 1):
        raise InputError(
            f"A site that does not wait sends one message in each step, but {job.method.name} sends"
            f" {len(before) + len(during)}, of which some depend on answers to others.",
            "Use one consensus strategy for all variables.",
        )
    core = agent.inputs.core
    found = examine(functions, one_of(rows), one_of(start), core)
    recorded = own_measures(measures, job, found.variables, problem.known, rows)
    return SiteRun(
        job,
        site,
        agent,
        rows,
        start,
        shape,
        before,
        during,
        found.cost,
        Program(functions, recorded),
        Inputs(core, agent.inputs.mixing, rows, jax.random.key(job.seed), problem.known, {}),
        job.record_every if every is None else every,
    )


def own_measures(
    requested: Measures,
    job: Job,
    variables: Sequence[str],
    known: Mapping[str, jax.Array],
    rows: Tree,
) -> tuple[tuple[str, Measure], ...]:
    """What this site records of its own data and its own point; by default its objectives."""
    method = job.method
    tells = {"has_direction": method.direction is not None, "has_rest": method.rest is not None}
    built_in = available(variables, known, **tells)
    if requested is None:
        requested = ["outer", "inner", *(["rest"] if job.is_asynchronous and method.rest else [])]
    if isinstance(requested, Iterable) and not isinstance(requested, str | bytes | Mapping):
        requested = list(requested)
        for name in requested:
            if isinstance(name, str) and name in built_in and name not in OWN:
                raise InputError(
                    f"{name} is a property of all sites, and a site sees its own data only.",
                    f"Record {', '.join(each for each in OWN if each in built_in)}, or functions of"
                    ' a snapshot; or let all sites record "residual" or "mean_outer" together, with'
                    " measures of the job.",
                )
        own = [name for name in OWN if name in built_in]
        whole = lambda item: own if item in ("all", "cheap") else [item]
        requested = [each for item in requested for each in whole(item)]
    no_exact = lambda: why_no_products(job.problem.functions, one_of(rows))
    return resolve(requested, variables, known, **tells, no_exact=no_exact)
