"""The loop of one site: in lockstep here, without waiting in asynchronous.py, and recording
together with all sites in joint_fit.py."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

import jax
import numpy as np

from decibo.errors import LostError
from decibo.formatting import listed
from decibo.run import loop, outcome
from decibo.run.progress import Report
from decibo.run.solution import Solution, Status
from decibo.silo.checkpoints import SiteCheckpoints, SiteState
from decibo.silo.mailbox import DIVERGED, EndedError, Mailbox
from decibo.silo.secret import agreed_secrets, masks_of_site
from decibo.silo.secure_sum import NeighbourSums, TooLargeError
from decibo.silo.site_run import SiteRun
from decibo.silo.wire import Log


class NotFiniteError(ArithmeticError):
    """What this site was about to send is not finite."""


@dataclass
class Exchanger:
    """Carries the exchanges of a step to the neighbours, counting them.

    first   the number of the first exchange of step 0; others may have come before
    """

    mailbox: Mailbox
    peers: list[str]
    sums: NeighbourSums | None = None  # for secure sums
    first: int = 0
    step: int = 0
    call: int = field(default=0, init=False)

    def of(self, step: int) -> Exchanger:
        """For the next step."""
        self.step = step
        self.call = 0 if step else self.first
        return self

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        """Send this, and return it with the messages of the neighbours, in the order of the
        agents."""
        if not np.isfinite(vector).all():
            raise NotFiniteError
        if self.sums is not None:
            self.sums.check(vector)
        received = self.mailbox.exchange(self.step, self.call, vector)
        self.call += 1
        if self.sums is None:
            return np.stack([vector, *(received[peer] for peer in self.peers)])
        numbered = {self.mailbox.number[peer]: message for peer, message in received.items()}
        return np.stack([vector, self.sums.differing(vector, numbered)])


@dataclass(eq=False)
class LockstepRunner:
    """The loop of one site; subclasses differ in how it begins, what a step is, and when it ends.

    every    steps between two records
    report   called with the latest records after every step
    """

    site: SiteRun
    checkpoints: SiteCheckpoints
    every: int
    report: Report | None
    log: Log
    exchange: Exchanger = field(init=False)

    def run(self, mailbox: Mailbox, state: SiteState | None) -> Solution:
        """From the start or a checkpoint to the end."""
        job = self.site.job
        if state is not None:
            mailbox.restore((state.step + 1, 0), state.sent)
            self.log(f"continuing after step {state.step} of {job.steps}")
        begun = time.perf_counter()
        try:
            try:
                state = self.begin(mailbox, state)
            except EndedError as error:
                raise LostError(str(error)) from error
            # The state before the last step: a step may return numbers that are not finite, which
            # is noticed when they are to be sent.
            before = state
            try:
                while not self.ended(state):
                    after = self.advance(mailbox, state)
                    before = state
                    state = after
                state, status, message = self.result(mailbox, state)
            except (NotFiniteError, TooLargeError, EndedError) as error:
                status = Status.diverged
                message = self._diverged(mailbox, state.step + 1, error)
                state = state if bool(loop.all_finite(state.state)) else before
            except LostError:
                self._save(mailbox, state)
                raise
            except KeyboardInterrupt:
                self._save(mailbox, state)
                status = Status.interrupted
                message = (
                    f"Interrupted after step {state.step} of {job.steps}; the same command"
                    " continues from there."
                )
            if status in (Status.done, Status.converged):
                self._finish(mailbox)
                status, message = self._judged(state, status, message)
        finally:
            self.close()
            with suppress(Exception):
                mailbox.close()
        return self.site.solution(state, status, message, time.perf_counter() - begun)

    def begin(self, mailbox: Mailbox, state: SiteState | None) -> SiteState:
        """Begin to send, and find the state to continue from."""
        job = self.site.job
        number = self.site.agent.number
        self.exchange = Exchanger(mailbox, self.site.peers)
        secrets: dict[int, bytes] = {}
        if job.method.masks or job.secure_sums:
            data = [np.asarray(leaf) for leaf in jax.tree.leaves(self.site.rows)]
            secrets = agreed_secrets(mailbox, self.checkpoints.folder, data, new=state is None)
        if job.secure_sums:
            # Before a restored mailbox connects: no message may be repeated in the clear.
            sums = NeighbourSums(job.network, number, secrets)
            self.exchange.sums = sums
            mailbox.hide = lambda peer, at, vector: sums.hidden(job.number(peer), *at, vector)
        mailbox.start()
        if state is not None:
            return state
        first = self.site.first
        if job.method.masks:
            first = first | masks_of_site(job.method.masks, first, number, secrets)
            if len(secrets) == 1:
                self.log(
                    f"{self.site.peers[0]} is the only neighbour and knows all masks: they hide"
                    " nothing from it"
                )
        start = self.site.agent.begin(first, self.exchange.of(0))
        return self._recorded(SiteState(0, start, {}, {}))

    def ended(self, state: SiteState) -> bool:
        """Whether all is done."""
        return state.step >= self.site.job.steps

    def advance(self, mailbox: Mailbox, state: SiteState) -> SiteState:
        """One step."""
        new = self.site.agent.step(state.state, state.step, self.exchange.of(state.step + 1))
        return self._stepped(mailbox, state._replace(step=state.step + 1, state=new))

    def result(self, mailbox: Mailbox, state: SiteState) -> tuple[SiteState, Status, str]:
        """How the run has ended, in words."""
        return state, Status.done, f"All {self.site.job.steps} steps done."

    def close(self) -> None:
        """Whatever happened."""

    def _stepped(self, mailbox: Mailbox, state: SiteState) -> SiteState:
        """Record, save and report what is due after a step."""
        job = self.site.job
        state = self._recorded(state)
        if state.step % job.checkpoint_every == 0 or state.step == job.steps:
            self._save(mailbox, state)
        if self.report is not None:
            latest = {name: rows[-1] for name, rows in state.history.items()}
            self.report(min(state.step, job.steps), job.steps, latest)
        return state

    def _save(self, mailbox: Mailbox, state: SiteState) -> None:
        if state.step:  # there is no state to save before the first step
            self.checkpoints.save(state._replace(sent=mailbox.saved()))

    def _recorded(self, state: SiteState, *, last: bool = False) -> SiteState:
        due = state.step % self.every == 0 or state.step == self.site.job.steps
        done = state.history.get("step", np.zeros(0))[-1:] == state.step
        if done.any() or not (due or last):
            return state
        row = {"step": state.step} | self.site.records(state.state)
        so_far = lambda name, value: state.history.get(name, np.zeros(0, type(value)))
        joined = {name: np.append(so_far(name, value), value) for name, value in row.items()}
        return state._replace(history=joined)

    def _judged(self, state: SiteState, status: Status, message: str) -> tuple[Status, str]:
        """The status by the same rule as that of `solve`: numbers may have grown without bound, or
        an objective may have stopped being finite."""
        view = self.site.agent.method.core.view(state.state)
        start = {name: self.site.first[name] for name in ("x", "y")}
        found, why = outcome.judge(
            state.history, float(loop.largest(start)), float(loop.largest(view))
        )
        return found or status, f"{message} {why}".strip()

    def _diverged(self, mailbox: Mailbox, step: int, error: Exception) -> str:
        """Why no site can go on, in words that all of them get."""
        if isinstance(error, EndedError):
            why = str(error)
            status = error.status
        else:
            what = str(error) or "stopped being finite"
            why = f"The numbers of {self.site.site} {what} in step {step}. Lower the step sizes."
            status = DIVERGED
        mailbox.leave(status, why)
        return why

    def _finish(self, mailbox: Mailbox) -> None:
        """Wait for the neighbours to have all messages."""
        self.log("done; waiting for the neighbours to have all messages")
        complete = False
        with suppress(KeyboardInterrupt):
            complete = mailbox.finish()
        if complete:
            self.checkpoints.finish()
        else:
            self.log(
                f"not all of {listed(self.site.peers)} have finished; restart this site if they"
                " ask for it"
            )
