"""The loop of one site: in lockstep here, without waiting in free.py."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

import jax
import numpy as np

from decibo.errors import LostError
from decibo.formatting import listed
from decibo.run import loop
from decibo.run.progress import Report
from decibo.run.solution import Solution, Status
from decibo.silo.kept import Kept, Known
from decibo.silo.mailbox import DIVERGED, EndedError, Post
from decibo.silo.secret import Shares, keep_shares, masks_of_site, own_shares, secrets_of
from decibo.silo.secure_sum import TooLargeError, Veil
from decibo.silo.site_run import Run, Say


class NotFiniteError(ArithmeticError):
    """What this site was about to say is not finite."""


@dataclass
class Talk:
    """Carries the exchanges of a step to the neighbours, counting them."""

    post: Post
    peers: list[str]
    veil: Veil | None = None  # for secure sums
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
        if self.veil is None:
            heard = self.post.exchange(self.step, self.call, vector)
            rows = [vector, *(heard[peer] for peer in self.peers)]
        else:
            self.veil.check(vector)
            heard = self.post.exchange(self.step, self.call, vector)
            numbered = {self.post.number[peer]: message for peer, message in heard.items()}
            rows = [vector, self.veil.differing(vector, numbered)]
        self.call += 1
        return np.stack(rows)


@dataclass(eq=False)
class Runner:
    """The loop of one site."""

    site: Run
    kept: Kept
    every: int
    report: Report | None
    say: Say
    talk: Talk = field(init=False)

    def run(self, post: Post, known: Known | None) -> Solution:
        """From the start or a checkpoint to the end."""
        job = self.site.job
        if known is not None:
            post.restore((known.step + 1, 0), known.said)
            self.say(f"continuing after step {known.step} of {job.steps}")
        begun = time.perf_counter()
        try:
            try:
                known = self.begin(post, known)
            except EndedError as error:
                raise LostError(str(error)) from error
            before = known
            try:
                while not self.ended(post, known):
                    after = self.advance(post, known)
                    before = known
                    known = after
                known, status, message = self.result(post, known)
            except (NotFiniteError, TooLargeError, EndedError) as error:
                status = Status.diverged
                message = self._diverged(post, known.step + 1, error)
                known = known if bool(loop.all_finite(known.state)) else before
            except LostError:
                self._keep(post, known)
                raise
            except KeyboardInterrupt:
                self._keep(post, known)
                status = Status.interrupted
                message = (
                    f"Interrupted after step {known.step} of {job.steps}; the same command goes on"
                    " from there."
                )
            if status in (Status.done, Status.converged):
                self._finish(post)
        finally:
            self.close()
            with suppress(Exception):
                post.close()
        return self.site.solution(known, status, message, time.perf_counter() - begun)

    # What differs without waiting

    def begin(self, post: Post, known: Known | None) -> Known:
        """Begin to talk, and find the state to go on from."""
        job = self.site.job
        number = self.site.agent.number
        self.talk = Talk(post, self.site.peers)
        secret_of: dict[int, bytes] = {}
        if job.method.masks or job.secure_sums:
            data = [np.asarray(leaf) for leaf in jax.tree.leaves(self.site.rows)]
            own, heard = own_shares(self.kept.folder, self.site.peers, data, new=known is None)
            if known is not None and job.secure_sums:  # nothing may be repeated in the clear
                self._hide(post, self._secrets(own, heard))
            post.start()
            heard = post.share(own, heard)
            keep_shares(self.kept.folder, own, heard, data)
            secret_of = self._secrets(own, heard)
        else:
            post.start()
        if job.secure_sums:
            self._hide(post, secret_of)
        if known is not None:
            return known
        first = self.site.first
        if job.method.masks:
            first = first | masks_of_site(job.method.masks, first, number, secret_of)
            if len(secret_of) == 1:
                self.say(
                    f"{self.site.peers[0]} is the only neighbour and knows all masks: they hide"
                    " nothing from it"
                )
        return self._recorded(Known(0, self.site.agent.begin(first, self.talk.of(0)), {}, {}))

    def ended(self, post: Post, known: Known) -> bool:
        """Whether all is done."""
        return known.step >= self.site.job.steps

    def advance(self, post: Post, known: Known) -> Known:
        """One step."""
        state = self.site.agent.step(known.state, known.step, self.talk.of(known.step + 1))
        return self._stepped(post, known._replace(step=known.step + 1, state=state))

    def result(self, post: Post, known: Known) -> tuple[Known, Status, str]:
        """How the run has ended, in words."""
        return known, Status.done, f"All {self.site.job.steps} steps done."

    def close(self) -> None:
        """Whatever happened."""

    # What does not

    def _secrets(self, own: Shares, heard: Shares) -> dict[int, bytes]:
        """The secret of the link to each neighbour."""
        job = self.site.job
        numbers = {peer: job.number(peer) for peer in self.site.peers}
        return secrets_of(job.digest, self.site.agent.number, numbers, own, heard)

    def _hide(self, post: Post, secret_of: dict[int, bytes]) -> None:
        """Say from now on what only sums can be read from."""
        job = self.site.job
        veil = Veil(job.network, self.site.agent.number, secret_of)
        self.talk.veil = veil
        post.veil = lambda peer, at, vector: veil.hidden(job.number(peer), *at, vector)

    def _stepped(self, post: Post, known: Known) -> Known:
        """Record, save and report what is due after a step."""
        job = self.site.job
        known = self._recorded(known)
        if known.step % job.checkpoint_every == 0 or known.step == job.steps:
            self.kept.save(known._replace(said=post.said()))
        if self.report is not None:
            self.report(
                min(known.step, job.steps),
                job.steps,
                {name: rows[-1] for name, rows in known.history.items()},
            )
        return known

    def _keep(self, post: Post, known: Known) -> None:
        """Save a state between two checkpoints; there is none before the first step."""
        if known.step:
            self.kept.save(known._replace(said=post.said()))

    def _recorded(self, known: Known, *, last: bool = False) -> Known:
        due = known.step % self.every == 0 or known.step == self.site.job.steps
        done = known.history.get("step", np.zeros(0))[-1:] == known.step
        if done.any() or not (due or last):
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
            what = str(error) or "stopped being finite"
            why = f"The numbers of {self.site.site} {what} in step {step}. Lower the step sizes."
            status = DIVERGED
        post.leave(status, why)
        return why

    def _finish(self, post: Post) -> None:
        """Stay until the neighbours have everything."""
        self.say("done; staying until the neighbours have everything")
        complete = False
        with suppress(KeyboardInterrupt):
            complete = post.finish()
        if complete:
            self.kept.finish()
        else:
            self.say(
                f"not all of {listed(self.site.peers)} are done; start this site again if they ask"
                " for it"
            )
