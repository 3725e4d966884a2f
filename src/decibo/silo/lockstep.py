"""The loop of one site: in lockstep here, without waiting in free.py."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

import jax
import numpy as np

from decibo.errors import LostError
from decibo.execute import loop
from decibo.execute.progress import Report
from decibo.execute.solution import Solution, Status
from decibo.formatting import listed
from decibo.silo.kept import Kept, Known
from decibo.silo.part import Run, Say
from decibo.silo.post import DIVERGED, EndedError, Post
from decibo.silo.secret import keep_shares, link_secret, masks_of_site, own_shares


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
            known = self.begin(post, known)
            before = known
            try:
                while not self.ended(post, known):
                    after = self.advance(post, known)
                    before = known
                    known = after
                status, message = self.result(post, known)
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
        post.start()
        self.talk = Talk(post, self.site.peers)
        first = self.site.first
        if self.site.job.method.masks:
            first = first | self._masks(post)
        if known is None:
            known = self._recorded(Known(0, self.site.agent.begin(first, self.talk.of(0)), {}, {}))
        return known

    def ended(self, post: Post, known: Known) -> bool:
        """Whether all is done."""
        return known.step >= self.site.job.steps

    def advance(self, post: Post, known: Known) -> Known:
        """One step."""
        state = self.site.agent.step(known.state, known.step, self.talk.of(known.step + 1))
        return self._stepped(post, known._replace(step=known.step + 1, state=state))

    def result(self, post: Post, known: Known) -> tuple[Status, str]:
        """How the run has ended, in words."""
        return Status.done, f"All {self.site.job.steps} steps done."

    def close(self) -> None:
        """Whatever happened."""

    # What does not

    def _masks(self, post: Post) -> dict[str, jax.Array]:
        """This site's masks, once it has the shares of all neighbours."""
        job = self.site.job
        number = self.site.agent.number
        own, known = own_shares(self.kept.folder, self.site.peers)
        heard = post.share(own, known)
        keep_shares(self.kept.folder, own, heard)
        secret_of: dict[int, bytes] = {}
        for peer in self.site.peers:
            other = job.number(peer)
            shares = (own[peer], heard[peer]) if number < other else (heard[peer], own[peer])
            secret_of[other] = link_secret(job.digest, *shares)
        if len(secret_of) == 1:
            self.say(f"{self.site.peers[0]} is the only neighbour and knows all masks: they hide nothing from it")
        return masks_of_site(job.method.masks, self.site.first, number, secret_of)

    def _stepped(self, post: Post, known: Known) -> Known:
        """Record, save and report what is due after a step."""
        job = self.site.job
        known = self._recorded(known)
        if known.step % job.checkpoint_every == 0 or known.step == job.steps:
            self.kept.save(known._replace(said=post.said()))
        if self.report is not None:
            self.report(min(known.step, job.steps), job.steps, {name: rows[-1] for name, rows in known.history.items()})
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
        self.say("done; staying until the neighbours have everything")
        complete = False
        with suppress(KeyboardInterrupt):
            complete = post.finish()
        if complete:
            self.kept.finish()
        else:
            self.say(f"not all of {listed(self.site.peers)} are done; start this site again if they ask for it")
