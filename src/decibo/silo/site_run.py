"""This site's part of a job, checked before anything is computed or sent: its data, its agent, its
messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Core
from decibo.algorithm.compose import MASK
from decibo.errors import InputError
from decibo.measure.cost import Cost, step_cost
from decibo.measure.measures import as_trees
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.run import loop
from decibo.run.solution import Solution, Status
from decibo.run.solve import finite_at_start, one_of
from decibo.silo.agent import Agent, begin
from decibo.silo.async_mailbox import AsyncMailbox
from decibo.silo.checkpoints import SiteState
from decibo.silo.job import Job
from decibo.silo.mailbox import Mailbox, MailboxSettings
from decibo.silo.wire import Log, Wire


@dataclass(frozen=True, eq=False)
class SiteRun:
    """A job as one site sees it, checked.

    rows, start    data and starting point, with a leading axis of one agent
    shape          what the state looks like
    before, during exchanges before the first step and in every step: how often, how many numbers
    """

    job: Job
    site: str
    agent: Agent
    rows: Tree
    start: dict[str, jax.Array]
    shape: Tree
    before: list[tuple[float, int]]
    during: list[tuple[float, int]]
    cost: Cost

    @property
    def peers(self) -> list[str]:
        """The names of the neighbours, in the order of the agents."""
        return [self.job.names[number] for number in self.agent.neighbours]

    @property
    def first(self) -> dict[str, jax.Array]:
        """Where this agent starts."""
        return {name: row[0] for name, row in self.start.items()}

    def mailbox(self, wire: Wire, log: Log = lambda line: None) -> Mailbox:
        """What this site sends and receives, on a wire."""
        job = self.job
        exchanges = [*self.before, *self.during]
        settings = MailboxSettings(
            self.site,
            job.names,
            self.peers,
            job.digest,
            job.terms,
            most=max((numbers for _, numbers in exchanges), default=1),
            again=job.again,
            patience=job.patience,
            log=log,
        )
        if job.is_asynchronous:
            return AsyncMailbox(wire, settings, width=job.network.width)
        calls = max(sum(often for often, _ in part) for part in (self.before, self.during))
        return Mailbox(wire, settings, keep=job.consortium.keep, calls=int(calls))

    def records(self, state: Tree) -> dict[str, float]:
        """This site's own objectives at its own point."""
        view = self.agent.method.core.view(state)
        answer = view[self.agent.method.answer]
        values = loop.values(self.agent.functions, self.rows, view["x"][None], answer[None])
        found = {
            name: float(value[0]) for name, value in zip(("outer", "inner"), values, strict=True)
        }
        return found | (
            {"rest": self.rest(state)}
            if self.job.is_asynchronous and self.agent.method.rest
            else {}
        )

    def rest(self, state: Tree) -> float:
        """By how much this agent would still move, for a method that can tell."""
        return float(_rest(self.agent.method.core, state))

    def solution(self, site: SiteState, status: Status, message: str, seconds: float) -> Solution:
        """The solution of this site."""
        functions = self.agent.functions
        method = self.agent.method
        rows = {name: jnp.asarray(row)[None] for name, row in method.core.view(site.state).items()}
        return Solution(
            x=functions.x.unravel(rows["x"][0]),
            y=functions.y.unravel(rows[method.answer][0]),
            agents=as_trees(functions, rows),
            history=site.history,
            cost=replace(
                self.cost, agents=1, links=len(self.peers), steps=site.step, seconds=seconds
            ),
            status=status,
            message=message,
            steps=site.step,
            method=method,
            network=self.job.network,
            state=jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], site.state),
        )


@jax.jit
def _rest(core: Core, state: Tree) -> jax.Array:
    assert core.rest is not None
    return core.rest(state)


def prepare(job: Job, site: str, data: Tree) -> SiteRun:
    """Check this site's data, and find out what it would send; nothing is computed or sent."""
    number = job.number(site)
    problem = job.problem if data is None else with_data(job.problem, job.network.agents, data)
    rows = problem.local([number])
    start = {name: row[:1] for name, row in problem.start_rows(job.network.agents).items()}
    finite_at_start(problem.functions, rows, start, np.array([number]))
    own = jax.tree.map(lambda leaf: leaf[0], rows)
    for name in job.method.masks:  # which follow from what the neighbours send first
        start[MASK + name] = jnp.zeros_like(start["x" if name == "x" else "y"])
    agent = Agent(
        problem.functions, job.method, job.network, number, own, job.seed, job.secure_sums
    )
    first = {name: row[0] for name, row in start.items()}
    shape = jax.eval_shape(
        lambda *parts: begin(agent.functions, agent.reach, *parts), agent.inputs, first
    )
    before, during = agent.messages(first)
    if job.is_asynchronous and (before or len(during) != 1 or during[0][0] != 1):
        raise InputError(
            f"A site that does not wait sends one message in each step, but {job.method.name} sends"
            f" {sum(often for often, _ in (*before, *during)):g}, of which some depend on answers"
            " to others.",
            "Use one consensus strategy for all variables.",
        )
    cost = step_cost(problem.functions, one_of(rows), one_of(start), job.method.core)
    return SiteRun(job, site, agent, rows, start, shape, before, during, cost)


def with_data(problem: Problem, agents: int, data: Tree) -> Problem:
    """The problem with one site's data in place of its own."""
    return replace(
        problem, data=lambda agent: data, agents=agents, solution=None, inner_solution=None
    )
