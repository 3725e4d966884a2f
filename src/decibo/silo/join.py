"""join: this site's part of a job, from its first step or from its last checkpoint to the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError, LostError
from decibo.execute import loop
from decibo.execute.progress import Report
from decibo.execute.run import watched
from decibo.execute.solution import Solution, Status
from decibo.execute.solve import finite_at_start, one_of
from decibo.formatting import listed
from decibo.measure.cost import Cost, step_cost
from decibo.measure.measures import as_trees
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.silo.agent import Agent, begin
from decibo.silo.home import Home
from decibo.silo.job import Job
from decibo.silo.kept import Kept, Known
from decibo.silo.post import DIVERGED, EndedError, Post
from decibo.silo.tls import TlsWire
from decibo.silo.wire import Wire
from decibo.validate import integer

Say = Callable[[str], None]


class NotFiniteError(ArithmeticError):
    """What this site was about to say is not finite."""


@dataclass
class Talk:
    """Carries the exchanges of a step to the neighbours, counting them."""

    post: Post
    peers: list[str]
    step: int = 0
    call: int = field(default=0, init=False)

    def of(self, step: int) -> Talk:
        """For the next step."""
        self.step = step
        self.call = 0
        return self

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        """Say this, and return it with what each neighbour says, in the order of the agents."""
        if not np.isfinite(vector).all():
            raise NotFiniteError
        heard = self.post.exchange(self.step, self.call, vector)
        self.call += 1
        return np.stack([vector, *(heard[peer] for peer in self.peers)])


def join(
    job: Job,
    *,
    site: str,
    data: Tree,
    home: str | Path | None = None,
    folder: str | Path | None = None,
    wire: Wire | None = None,
    every: int | None = None,
    progress: bool | Report | None = None,
    say: Say | None = None,
) -> Solution:
    """Take part in a job as this site, and return this site's solution; the same call continues after a crash.

    data       this site's own, without an axis of agents; None for what the job's problem has, in a rehearsal
    home       the folder that `decibo site init` made, with the key; ~/.decibo/site by default
    folder     where this run keeps its checkpoints; in the home folder by default
    wire       what carries the messages, TLS by default
    every      the number of steps between two records of this site's own objectives; about a hundred by default
    progress   as for `solve`
    say        gets the lines of the log: who connected, who was refused and why

    The solution holds this site's x and y, which are those of all sites to the precision that the run has reached.
    """
    if not isinstance(job, Job):
        raise InputError(f"job must be a decibo.silo.Job, but it is {job!r:.60}.", "Use decibo.silo.read_job(path).")
    run = prepare(job, site, data)
    say = say or (lambda line: None)
    every = max(1, job.steps // 100) if every is None else integer("every", every)
    own = Home.at(home) if wire is None or folder is None else None
    place = Path(folder) if folder is not None else own.run(job) if own is not None else Path()
    kept = Kept(place, run.agent.number, run.rows, job.terms | {"site": site})
    with watched(progress) as report, kept.held():
        known = kept.restore(run.shape)
        if known is not None and known.step == job.steps and kept.finished:
            return run.solution(known, Status.done, "This run was complete already.", 0.0)
        if wire is None:
            assert own is not None
            wire = TlsWire(job, site, own.credentials(job.sites[job.number(site)]), say, own.listen)
        return _Runner(run, kept, every, report, say).run(run.post(wire, say), known)


@dataclass(frozen=True, eq=False)
class Run:
    """A job as one site sees it, checked.

    rows, start    data and starting point, with a leading axis of one agent
    shape          what the state looks like
    calls, most    the most exchanges in a step, and the most numbers in one
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

    def post(self, wire: Wire, say: Say = lambda line: None) -> Post:
        """What this site says and hears, on a wire."""
        job = self.job
        exchanges = [*self.before, *self.during]
        calls = max(sum(often for often, _ in part) for part in (self.before, self.during))
        return Post(
            wire,
            self.site,
            job.names,
            self.peers,
            job=job.digest,
            terms=job.terms,
            keep=job.keep,
            calls=int(calls),
            most=max((numbers for _, numbers in exchanges), default=1),
            again=job.again,
            patience=job.patience,
            say=say,
        )

    def records(self, state: Tree) -> dict[str, float]:
        """This site's own objectives at its own point."""
        view = self.agent.method.core.view(state)
        answer = view[self.agent.method.answer]
        values = loop.values(self.agent.functions, self.rows, view["x"][None], answer[None])
        return {name: float(value[0]) for name, value in zip(("outer", "inner"), values, strict=True)}

    def solution(self, known: Known, status: Status, message: str, seconds: float) -> Solution:
        """The solution of this site."""
        functions = self.agent.functions
        method = self.agent.method
        rows = {name: jnp.asarray(row)[None] for name, row in method.core.view(known.state).items()}
        return Solution(
            x=functions.x.unravel(rows["x"][0]),
            y=functions.y.unravel(rows[method.answer][0]),
            agents=as_trees(functions, rows),
            history=known.history,
            cost=replace(self.cost, agents=1, links=len(self.peers), steps=known.step, seconds=seconds),
            status=status,
            message=message,
            steps=known.step,
            method=method,
            network=self.job.network,
            state=jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], known.state),
        )


def prepare(job: Job, site: str, data: Tree) -> Run:
    """Check this site's data, and find out what it would say; nothing is computed or sent."""
    number = job.number(site)
    problem = job.problem if data is None else with_data(job.problem, job.network.agents, data)
    rows = problem.local([number])
    start = {name: row[:1] for name, row in problem.start_rows(job.network.agents).items()}
    finite_at_start(problem.functions, rows, start, np.array([number]))
    own = jax.tree.map(lambda leaf: leaf[0], rows)
    agent = Agent(problem.functions, job.method, job.network, number, own, job.seed)
    first = {name: row[0] for name, row in start.items()}
    shape = jax.eval_shape(lambda *parts: begin(agent.functions, agent.told, *parts), agent.inputs, first)
    before, during = agent.messages(first)
    cost = step_cost(problem.functions, one_of(rows), one_of(start), job.method.core)
    return Run(job, site, agent, rows, start, shape, before, during, cost)


def with_data(problem: Problem, agents: int, data: Tree) -> Problem:
    """The problem with one site's data in place of its own."""
    return replace(problem, data=lambda agent: data, agents=agents, solution=None, inner_solution=None)


@dataclass(eq=False)
class _Runner:
    """The loop of one site."""

    site: Run
    kept: Kept
    every: int
    report: Report | None
    say: Say

    def run(self, post: Post, known: Known | None) -> Solution:
        """From the start or a checkpoint to the end."""
        job = self.site.job
        if known is not None:
            post.restore((known.step + 1, 0), known.said)
            self.say(f"continuing after step {known.step} of {job.steps}")
        begun = time.perf_counter()
        status = Status.done
        message = f"All {job.steps} steps done."
        try:
            post.start()
            talk = Talk(post, self.site.peers)
            if known is None:
                known = self._recorded(Known(0, self.site.agent.begin(self.site.first, talk.of(0)), {}, {}))
            before = known
            try:
                while known.step < job.steps:
                    after = self._advance(post, talk, known)
                    before = known
                    known = after
            except (NotFiniteError, EndedError) as error:
                status = Status.diverged
                message = self._diverged(post, known.step + 1, error)
                known = known if bool(loop.all_finite(known.state)) else before
            except LostError:
                self._keep(post, known)
                raise
            except KeyboardInterrupt:
                self._keep(post, known)
                status = Status.interrupted
                message = f"Interrupted after step {known.step} of {job.steps}; the same command goes on from there."
            if status is Status.done:
                self._finish(post)
        finally:
            with suppress(Exception):
                post.close()
        return self.site.solution(known, status, message, time.perf_counter() - begun)

    def _advance(self, post: Post, talk: Talk, known: Known) -> Known:
        job = self.site.job
        state = self.site.agent.step(known.state, known.step, talk.of(known.step + 1))
        known = self._recorded(known._replace(step=known.step + 1, state=state))
        if known.step % job.checkpoint_every == 0 or known.step == job.steps:
            self.kept.save(known._replace(said=post.said()))
        if self.report is not None:
            self.report(known.step, job.steps, {name: rows[-1] for name, rows in known.history.items()})
        return known

    def _keep(self, post: Post, known: Known) -> None:
        """Save a state between two checkpoints; there is none before the first step."""
        if known.step:
            self.kept.save(known._replace(said=post.said()))

    def _recorded(self, known: Known) -> Known:
        if known.step % self.every and known.step != self.site.job.steps:
            return known
        row = {"step": known.step} | self.site.records(known.state)
        so_far = lambda name, value: known.history.get(name, np.zeros(0, type(value)))
        joined = {name: np.append(so_far(name, value), value) for name, value in row.items()}
        return known._replace(history=joined)

    def _diverged(self, post: Post, step: int, error: Exception) -> str:
        """Why no site can go on, in words that all of them get."""
        if isinstance(error, EndedError):
            why = str(error)
            status = error.status
        else:
            why = f"The numbers of {self.site.site} stopped being finite in step {step}. Lower the step sizes."
            status = DIVERGED
        post.leave(status, why)
        return why

    def _finish(self, post: Post) -> None:
        """Stay until the neighbours have everything."""
        self.say("all steps done; staying until the neighbours have everything")
        complete = False
        with suppress(KeyboardInterrupt):
            complete = post.finish()
        if complete:
            self.kept.finish()
        else:
            self.say(f"not all of {listed(self.site.peers)} are done; start this site again if they ask for it")
