"""A site that waits for its neighbours in every step, as a stepper of the one host loop
(run/run.py)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import LostError
from decibo.parallel.signals import GracefulStop
from decibo.pytree import Tree
from decibo.run import loop
from decibo.run.checkpoint import RunState
from decibo.run.run import Clock, Ended
from decibo.run.solution import Status
from decibo.silo.mailbox import DIVERGED, LOOK, STOPPED, EndedError, Mailbox
from decibo.silo.network_measures import NetworkMeasures
from decibo.silo.secret import masks_of_site
from decibo.silo.secure_sum import NeighbourSums, TooLargeError
from decibo.silo.site_run import SiteRun


class NotFiniteError(ArithmeticError):
    """What this site was about to send is not finite."""


@dataclass
class Exchanger:
    """Carries the exchanges of a step to the neighbours, counting them.

    first   the number of the first exchange of step 0; others may have come before
    """

    mailbox: Mailbox
    sums: NeighbourSums | None = None  # for secure sums
    first: int = 0
    step: int = 0
    call: int = field(default=0, init=False)

    def of(self, step: int) -> Exchanger:
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
            return np.stack([vector, *(received[peer] for peer in self.mailbox.peers)])
        numbered = {self.mailbox.number[peer]: message for peer, message in received.items()}
        return np.stack([vector, self.sums.differing(vector, numbered)])


@dataclass(eq=False)
class LockstepStepper:
    """Makes the steps of one site, each with its exchanges.

    folder     where the shares of secrets are kept
    exchange   with which all exchanges are made, those before the first step too
    together   what all sites record, if they do
    lost       the error of a run that has ended since a neighbour was silent for too long
    gone       whether the neighbours know that this site cannot go on
    """

    site: SiteRun
    folder: Path
    exchange: Exchanger
    together: NetworkMeasures | None = None
    clock: Clock = field(default_factory=Clock)
    lost: LostError | None = field(default=None, init=False)
    gone: bool = field(default=False, init=False)
    secrets: dict[int, bytes] = field(default_factory=dict, init=False)
    before: RunState | None = field(default=None, init=False)

    @property
    def mailbox(self) -> Mailbox:
        return self.exchange.mailbox

    def template(self) -> RunState:
        """What a checkpoint of this site looks like: the state, the records, and the messages that
        a neighbour may ask for again."""
        agents = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape), leaf.dtype), self.site.shape)
        names = [name for name, _ in self.site.program.measures]
        names += self.together.names if self.together else ()
        history = {"step": np.zeros(0, int)} | {name: np.zeros(0) for name in names}
        means = {"mean.x": np.zeros(0), "mean.y": np.zeros(0)} if self.together else {}
        return RunState(0, agents, history, extra=means | self.mailbox.saved())

    def whole(self, state: RunState) -> RunState:
        """The state with what only a checkpoint has."""
        return state._replace(extra=(state.extra or {}) | self.mailbox.saved())

    def start(self, state: RunState | None) -> RunState:
        """Connect to the neighbours, and begin or go on from a checkpoint."""
        job = self.site.job
        number = self.site.agent.number
        if state is not None:
            # This site repeats its messages from the checkpoint, bit for bit, so that neighbours
            # one exchange ahead or behind need not know that it was gone (mailbox.py, (6)).
            self.mailbox.restore((state.step + 1, 0), state.extra or {})
            self.mailbox.log(f"continuing after step {state.step} of {job.steps}")
        if job.method.masks or job.secure_sums:
            data = [np.asarray(leaf) for leaf in jax.tree.leaves(self.site.rows)]
            self.secrets = self.mailbox.agreed_secrets(self.folder, data, new=state is None)
        if job.secure_sums:
            # Before a restored mailbox connects: no message may be repeated in the clear.
            sums = NeighbourSums(job.network, number, self.secrets)
            self.exchange.sums = sums
            self.mailbox.hide = lambda peer, at, vector: sums.hidden(job.number(peer), *at, vector)
        self.mailbox.start()
        return self.begin() if state is None else state

    def begin(self) -> RunState:
        first = self.site.first
        masks = self.site.job.method.masks
        if masks:
            first = first | masks_of_site(masks, first, self.site.agent.number, self.secrets)
            if len(self.secrets) == 1:
                self.mailbox.log(
                    f"{self.site.peers[0]} is the only neighbour and knows all masks: they hide"
                    " nothing from it"
                )
        own = self.site.agent.begin(first, self.exchange.of(0))
        history = self.template().history
        begun = RunState(0, own, history, self.clock.lap())
        return with_axis(self.recorded(begun))

    def advance(
        self, state: RunState, until: int, stop: str | None
    ) -> tuple[RunState, Ended | None]:
        """Steps until the host must look, or has not done so for a while."""
        job = self.site.job
        begun = time.monotonic()
        self.clock.lap()  # neither files nor callbacks are steps
        state = state._replace(agents=without_axis(state.agents))
        self.before = self.before or state
        ended: Ended | None = None
        try:
            while ended is None and state.step < until:
                step, own = self.moved(state)
                seconds = state.seconds.plus(self.clock.lap())
                after = state._replace(step=step, agents=own, seconds=seconds)
                if step > state.step and (step % self.site.every == 0 or step == job.steps):
                    after = self.recorded(after)
                after, ended = self.judged(after)
                # Only now: a step ends with the exchanges of its record, and a site that stops in
                # the middle of them must make all of the step again.
                self.before, state = state, after
                if GracefulStop.asked():
                    raise KeyboardInterrupt
                if time.monotonic() - begun >= LOOK:
                    break
        except (NotFiniteError, TooLargeError, EndedError) as error:
            # A step may have returned numbers that are not finite, which is noticed when they are
            # to be sent: then the state before is the last that can be used.
            ended = self._no_further(state.step + 1, error)
            state = state if bool(loop.all_finite(state.agents)) else self.before
        except LostError as error:
            self.lost = error
            ended = Ended(Status.interrupted, str(error))
        except KeyboardInterrupt:
            over = state.step >= job.steps and not job.is_asynchronous
            ended = None if over else Ended(Status.interrupted)
        return with_axis(state), ended

    def moved(self, state: RunState) -> tuple[int, Tree]:
        """The number of the next step, and the state after it."""
        own = self.site.agent.step(state.agents, state.step, self.exchange.of(state.step + 1))
        return state.step + 1, own

    def judged(self, state: RunState) -> tuple[RunState, Ended | None]:
        """Whether the run ends here, since the record of this step has reached all targets."""
        recorded = state.history["step"][-1] == state.step
        return state, self.together.ended(state.history) if self.together and recorded else None

    def over(self, state: RunState) -> Ended | None:
        """How a run has ended that was complete in this state, if it was."""
        done = Ended(Status.done) if state.step == self.site.job.steps else None
        return self.judged(state)[1] or done

    def close(self) -> None:
        """Nothing is open but the mailbox, which stays until the neighbours have everything."""

    def recorded(self, state: RunState) -> RunState:
        """With a record of this step: what this site measures alone, and what all find together."""
        row: Mapping[str, object] = self.site.measured(state.agents, state.step)
        extra = state.extra
        if self.together is not None:
            row = {**row, **self.together(state.agents, state.step)}
            extra = (extra or {}) | {f"mean.{n}": v for n, v in self.together.mean.items()}
        lap = self.clock.lap()
        seconds = state.seconds.plus(lap._replace(steps=0.0, measuring=lap.steps))
        new = {n: np.asarray(value)[None] for n, value in {"step": state.step, **row}.items()}
        both = lambda n, old: np.concatenate([old, new[n]]) if len(old) else new[n]
        history = {n: both(n, old) for n, old in state.history.items()}
        return state._replace(history=history, seconds=seconds, extra=extra)

    def _no_further(self, step: int, error: Exception) -> Ended:
        """Why no site can go on, in words that all of them get."""
        if isinstance(error, EndedError):
            why = str(error)
            status = error.status
        else:
            what = str(error) or "stopped being finite"
            why = f"The numbers of {self.site.site} {what} in step {step}. Lower the step sizes."
            status = DIVERGED
        self.mailbox.leave(status, why)
        self.gone = True
        return Ended(Status.stopped if status == STOPPED else Status.diverged, why)


@jax.jit
def _stacked(agents: Tree) -> Tree:
    return jax.tree.map(lambda leaf: leaf[None], agents)


@jax.jit
def without_axis(agents: Tree) -> Tree:
    """The state of one agent, as its step takes it."""
    return jax.tree.map(lambda leaf: leaf[0], agents)


def with_axis(state: RunState) -> RunState:
    """With a leading axis of one agent, as runs of several have it."""
    return state._replace(agents=_stacked(state.agents))
