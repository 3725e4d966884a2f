r"""A job whose problem the sites state together: first they agree on what they need, then they run.

    HELLO     (1)  neighbours compare `terms`; the first difference ends all that are connected, and
                   is named
    agree     (2)  exchanges (0, 0), (0, 1), ... of the job, in which sites find what they need to
                   state the problem (collectives.py)
    run       (3)  the method's own exchanges, from (0, n) on, as `join` makes them

A site that crashes before its first checkpoint begins again with (2), and receives the same
messages once more: neighbours keep them for as long as they may be asked (mailbox.py, (6)). One
that crashes later finds the results in its folder.

    DIR/agreed.json    the results of (2), and how many exchanges it had
    DIR/means.json     the means of all sites' x and y at the end
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.errors import InputError
from decibo.files import PRIVATE, read_record, write_record
from decibo.measure.measures import Snapshot
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.pytree import Tree
from decibo.run import checkpoint_files
from decibo.run.fingerprint import software
from decibo.run.solution import Solution, Status
from decibo.silo.checkpoints import SiteCheckpoints, SiteState, private
from decibo.silo.collectives import Collectives
from decibo.silo.consortium import Consortium
from decibo.silo.identity import Identity
from decibo.silo.job import Job
from decibo.silo.lockstep import Exchanger, LockstepRunner, NotFiniteError
from decibo.silo.mailbox import DIVERGED, EndedError, Mailbox, MailboxSettings
from decibo.silo.secret import agreed_secrets
from decibo.silo.secure_sum import SecureSums, TooLargeError
from decibo.silo.site_run import prepare
from decibo.silo.tls import TlsWire

AGREED = "agreed.json"
MEANS = "means.json"
FORMAT = 1
MOST = 1 << 22  # numbers in a message
CALLS = 64  # exchanges in a step, beyond which a neighbour's are not kept


def mailbox_of(consortium: Consortium, more: Mapping[str, str]) -> Mailbox:
    """The mailbox of a fit with these terms, which compares them with the neighbours' terms."""
    terms = consortium.terms(more)
    wire = consortium.wire
    if wire is None:
        own = Identity.at(consortium.home)
        credentials = own.credentials(consortium.sites[consortium.number(consortium.site)])
        wire = TlsWire(consortium, consortium.site, credentials, consortium.log, own.listen)
    settings = MailboxSettings(
        consortium.site,
        consortium.names,
        consortium.peers,
        sha256(json.dumps(terms, sort_keys=True).encode()).digest()[:16],
        terms | software(),
        most=MOST,
        again=consortium.again,
        patience=consortium.patience,
        log=consortium.log,
    )
    return Mailbox(wire, settings, keep=consortium.keep, calls=CALLS)


@contextmanager
def meet(
    consortium: Consortium, more: Mapping[str, str], data: Sequence[np.ndarray]
) -> Iterator[JointFit]:
    """Meet the other sites, if they agree on the terms of all jobs and on these; the same again
    after a crash.

    data   this site's own, of which only sums are sent
    """
    mailbox = mailbox_of(consortium, more)
    folder = (
        Identity.at(consortium.home).run(mailbox.job)
        if consortium.folder is None
        else Path(consortium.folder)
    )
    number = consortium.number(consortium.site)
    with private(folder):
        try:
            past = None
            if checkpoint_files.steps(folder):
                past = read_record(folder / AGREED, "decibo agreement", FORMAT)
            exchange = Exchanger(mailbox, consortium.peers, first=past["calls"] if past else 0)
            if past is None:
                mailbox.start()
            with _reported(mailbox):
                sums = None
                if consortium.secure_sums:
                    secrets = agreed_secrets(mailbox, folder, data, new=past is None)
                    sums = SecureSums(number, secrets, lambda: (exchange.step, exchange.call))
                results = past["results"] if past else None
                collectives = Collectives(
                    exchange, consortium.network, consortium.names, number, results, sums
                )
                yield JointFit(consortium, folder, collectives, mailbox, exchange)
        finally:
            with suppress(Exception):
                mailbox.close()


@contextmanager
def _reported(mailbox: Mailbox) -> Iterator[None]:
    """Tell the neighbours why this site cannot go on; what a neighbour reported is raised here."""
    try:
        yield
    except EndedError as error:
        mailbox.leave(DIVERGED, str(error))
        raise InputError(str(error)) from error
    except (NotFiniteError, TooLargeError) as error:
        why = (
            f"The numbers that {mailbox.me} wants to add to a sum {str(error) or 'are not finite'}."
        )
        mailbox.leave(DIVERGED, why)
        raise InputError(why) from error
    except InputError as error:
        mailbox.leave(DIVERGED, str(error))
        raise


@dataclass(eq=False)
class JointFit:
    """What the sites have agreed on, and the run that follows."""

    consortium: Consortium
    folder: Path
    collectives: Collectives
    mailbox: Mailbox
    exchange: Exchanger

    def solve(self, problem: Problem, method: Algorithm, *, steps: int, tol: float) -> Solution:
        """The run, until the residual of all sites together is below tol; x and y are the means
        over all sites."""
        own = self.consortium
        job = Job(
            own.sites,
            problem,
            own.network,
            method,
            steps,
            checkpoint_every=own.checkpoint_every,
            patience=own.patience,
            again=own.again,
            relay=own.relay,
        )
        run = prepare(job, own.site, None)
        checkpoints = SiteCheckpoints(
            self.folder, run.agent.number, run.rows, job.terms | {"site": own.site}
        )
        state = checkpoints.restore(run.shape)
        if self.collectives.past is None:  # write down what was agreed
            self.exchange.first = self.exchange.call
            content = {"calls": self.exchange.call, "results": self.collectives.results}
            write_record(self.folder / AGREED, "decibo agreement", FORMAT, content, PRIVATE)
        collectives = replace(self.collectives, past=None)
        functions = run.agent.functions
        means = self.folder / MEANS
        stopping = ResidualTest(functions, method.core, run.rows, collectives, means, steps, tol)
        every = max(1, steps // 100)
        runner = CollectiveRunner(run, checkpoints, every, None, own.log, stopping, self.exchange)
        if (
            state is not None
            and checkpoints.finished
            and (state.step == steps or runner.converged(state))
        ):
            status = Status.converged if runner.converged(state) else Status.done
            solution = run.solution(state, status, "This run was complete already.", 0.0)
        else:
            solution = runner.run(self.mailbox, state)
        if solution.status is Status.interrupted:
            raise KeyboardInterrupt(solution.message)
        if not solution.status.sound:
            return solution
        found = read_record(means, "decibo means", FORMAT)
        of = lambda name: jnp.asarray(found[name], run.start["x"].dtype)
        return replace(solution, x=functions.x.unravel(of("x")), y=functions.y.unravel(of("y")))


@partial(jax.jit, static_argnames="functions")
def _own(
    functions: Functions, core: Core, data: Tree, state: Tree, k: jax.Array
) -> dict[str, jax.Array]:
    """x and the answer of a site, and the directions in which its own data would move them."""
    rows = {name: row[None] for name, row in core.view(state).items()}
    here = Snapshot(functions, data, rows, k, {}, core.direction, core.answer)
    inner = lambda d, x, y: Oracle(functions, d).inner(x, y)[1]
    return {
        "x": rows["x"][0],
        "y": rows[core.answer][0],
        "outer": here.mean_direction.x,
        "inner": jax.vmap(inner)(data, rows["x"], rows[core.answer])[0],
    }


@dataclass(eq=False)
class ResidualTest:
    r"""How far the sites are from a fixed point, all of them together, by first gradients only.

        (4)  residual = max of |mean of the directions of x|, |mean of g_y|, |x_i - mean x|, |y_i -
             mean y|

    The means at the end of the run are written to a file, since they are the answer of all sites.
    """

    functions: Functions
    core: Core
    data: Tree
    collectives: Collectives
    place: Path
    steps: int
    tol: float

    def __call__(self, state: SiteState) -> np.ndarray:
        """All residuals so far, with the one of this step, which sums and maxima over all sites
        give."""
        found = _own(self.functions, self.core, self.data, state.state, np.int32(state.step))
        own = {name: np.asarray(row, np.float64) for name, row in found.items()}
        total = self.collectives.total(np.concatenate(list(own.values())))
        ends = np.cumsum([row.size for row in own.values()])
        parts = np.split(total / len(self.collectives.names), ends[:-1])
        mean = dict(zip(own, parts, strict=True))
        apart = max(float(np.abs(own[name] - mean[name]).max(initial=0)) for name in ("x", "y"))
        moves = [float(np.abs(mean[name]).max(initial=0)) for name in ("outer", "inner")]
        residual = max(*moves, float(self.collectives.largest(apart)))  # (4)
        so_far = np.append(state.history.get("residual", []), residual)
        if state.step == self.steps or self.passed(so_far):
            content = {name: mean[name].tolist() for name in ("x", "y")}
            write_record(self.place, "decibo means", FORMAT, content, PRIVATE)
        return so_far

    def passed(self, residuals: np.ndarray) -> bool:
        """Whether the residual is at most tol now and was not before, as `until` of `solve` has
        it."""
        return bool(residuals[-1] <= self.tol and (residuals > self.tol).any())


@dataclass(eq=False)
class CollectiveRunner(LockstepRunner):
    """The loop of a site that records together with the others, and ends with them when the
    residual of all is small enough."""

    stopping: ResidualTest
    begun: Exchanger  # with which the sites have agreed on the problem

    def begin(self, mailbox: Mailbox, state: SiteState | None) -> SiteState:
        mailbox.start()
        self.exchange = self.begun
        if state is not None:
            return state
        start = self.site.agent.begin(self.site.first, self.exchange.of(0))
        return self._recorded(SiteState(0, start, {}, {}))

    def converged(self, state: SiteState) -> bool:
        """Whether the run ends here, before all steps are done."""
        history = state.history
        return state.step == history["step"][-1] and self.stopping.passed(history["residual"])

    def ended(self, state: SiteState) -> bool:
        return super().ended(state) or self.converged(state)

    def result(self, mailbox: Mailbox, state: SiteState) -> tuple[SiteState, Status, str]:
        if not self.converged(state):
            return super().result(mailbox, state)
        message = f"Reached residual <= {self.stopping.tol:g} at step {state.step}."
        return state, Status.converged, message

    def _stepped(self, mailbox: Mailbox, state: SiteState) -> SiteState:
        state = super()._stepped(mailbox, state)
        if self.converged(state) and state.step % self.site.job.checkpoint_every:
            self._save(mailbox, state)
        return state

    def _recorded(self, state: SiteState, *, last: bool = False) -> SiteState:
        after = super()._recorded(state, last=last)
        if after is state:
            return state
        return after._replace(history=after.history | {"residual": self.stopping(state)})
