r"""A site that does not wait: it moves at its own speed, with the newest message that it has from
each neighbour.

A move is a step of the method (robust tracking, (16) to (18) of consensus.py) in which

    (1)  mix(s)_i = s_i + sum_j w_ij (newest_j - s_i)    over the neighbours j that are not left out

and ends with sending the neighbours what the next one would mix. With a pace, a site goes on
mixing and sending while it computes:

    (2)  every `pace` seconds it moves along the last direction d that it has finished, 0 at first
    (3)  when a direction is finished, the next is computed at the point that this move has led to

so that a site slower than the pace does not slow down how the others agree; one that is faster
waits for the pace. This is what `networks.asynchronous` simulates: without a pace its agents, with
one its agents that relay. Without a pace,

    (4)  a site that has received nothing new since its last move waits for it, but at most for
         `again` seconds

so that it neither floods its neighbours nor runs far ahead of its news. A site that starts again
from its last checkpoint, or from nothing, only has to begin.

A site has nothing to do if it has made its steps, or if it is at rest, |h q| <= rest. But one that
has moved a few times with old messages, or along an old direction, is at rest with respect to
these, and the next ones move it. So

    (5)  it is at rest if |h q| <= rest at all its moves for 2 `again` seconds and 2 finished
         directions
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from decibo.formatting import listed
from decibo.parallel.signals import GracefulStop
from decibo.pytree import Tree
from decibo.run.checkpoint import RunState
from decibo.run.run import Ended
from decibo.run.solution import Status
from decibo.silo.async_mailbox import AsyncMailbox
from decibo.silo.lockstep import LockstepStepper, NotFiniteError, with_axis, without_axis
from decibo.silo.mailbox import LOOK
from decibo.silo.site_run import SiteRun

# times `again` seconds, and finished directions, for which a site at rest must have been so
LONG = 2


@dataclass
class AsyncSite:
    """One site that does not wait.

    steps   how many directions it has finished
    """

    site: SiteRun
    mailbox: AsyncMailbox
    state: Tree
    steps: int = 0
    d: Tree = field(default=None, init=False)
    begun: Tree = field(default=None, init=False)  # where it computes
    moved: tuple[float, int] = field(init=False)  # when it was not at rest last: time, steps

    def __post_init__(self) -> None:
        self.moved = (self.mailbox.clock(), self.steps)
        if self.site.job.pace is not None:
            self.begun = self.state.variables
            self.d = jax.tree.map(jnp.zeros_like, self.begun)

    def step(self) -> None:
        """Compute a direction, then mix what has arrived by then."""
        self.state = self.site.agent.step(self.state, self.steps, self._mixed)
        self.steps += 1

    def direction(self) -> Tree:
        return self.site.agent.direction(self.begun, self.steps)

    def relay(self, finished: Tree | None) -> None:
        """Move along the direction that was finished last, which is a new one unless this is
        None."""
        if finished is not None:
            self.d = finished
        self.state = self.site.agent.move(self.state, self.d, self.steps, self._mixed)  # (2)
        if finished is not None:
            self.steps += 1
            self.begun = self.state.variables  # (3)

    def publish(self) -> None:
        """Send the neighbours what the next move would mix, and whether this site could end."""
        message = self.site.agent.next_message(self.state, self.steps)
        if not np.isfinite(message).all():
            raise NotFiniteError
        self.mailbox.offer(message, busy=not self.is_done())

    def is_done(self) -> bool:
        """Whether it has nothing to do: no steps to make, or it is at rest."""
        job = self.site.job
        if job.rest is None or self.steps >= job.steps:
            return self.steps >= job.steps
        now = self.mailbox.clock()
        if self.steps == 0 or self.site.rest(self.state) > job.rest:
            self.moved = (now, self.steps)
        return now - self.moved[0] >= LONG * job.again and self.steps - self.moved[1] >= LONG  # (5)

    def _mixed(self, vector: np.ndarray) -> np.ndarray:
        newest = self.mailbox.newest()
        return np.stack([vector, *(newest.get(peer, vector) for peer in self.site.peers)])  # (1)


@dataclass(eq=False)
class AsyncStepper(LockstepStepper):
    """Makes the moves of a site that does not wait; a step is a direction that it has finished."""

    mover: AsyncSite = field(init=False)
    due: float = field(default=0.0, init=False)
    direction: Future[Tree] | None = field(default=None, init=False)
    worker: ThreadPoolExecutor | None = field(default=None, init=False)

    def start(self, state: RunState | None) -> RunState:
        """Begin to send: a site that starts again, from a checkpoint or from nothing, need not tell
        anybody."""
        if state is not None:
            self.mailbox.log(f"continuing after step {state.step} of {self.site.job.steps}")
        else:
            state = self.begin()
        assert isinstance(self.mailbox, AsyncMailbox)
        self.mover = AsyncSite(self.site, self.mailbox, without_axis(state.agents), state.step)
        self.mover.publish()
        self.mailbox.start()
        if self.site.job.pace is not None:
            self.worker = ThreadPoolExecutor(1, f"decibo-{self.site.site}-computes")
        return state

    def begin(self) -> RunState:
        own = self.site.agent.begin(self.site.first, lambda vector: vector[None])
        begun = RunState(0, own, self.template().history, self.clock.lap())
        return with_axis(self.recorded(begun))

    def moved(self, state: RunState) -> tuple[int, Tree]:
        self._move()
        self.mover.publish()
        return self.mover.steps, self.mover.state

    def judged(self, state: RunState) -> tuple[RunState, Ended | None]:
        if not self.mover.mailbox.over:
            return state, None
        if state.history["step"][-1] != state.step:
            state = self.recorded(state)
        return state, self._at_the_end(state.step)

    def _move(self) -> None:
        mover = self.mover
        pace = self.site.job.pace
        if pace is None:
            mover.mailbox.wait(self.site.job.again)  # (4)
            mover.step()
            return
        # The direction is computed in a thread of its own, while this one keeps the pace.
        assert self.worker is not None
        if self.direction is None:
            self.direction = self.worker.submit(self._direction)
        now = time.monotonic()
        self.due = max(now, (self.due or now) + pace)
        while (left := self.due - time.monotonic()) > 0 and not GracefulStop.asked():
            time.sleep(min(left, LOOK))
        finished = self.direction.result() if self.direction.done() else None
        mover.relay(finished)
        if finished is not None:
            self.direction = None

    def _direction(self) -> Tree:
        # the precision is a setting of each thread in JAX
        with jax.enable_x64(self.site.first["x"].dtype == jnp.float64):
            return self.mover.direction()

    def _at_the_end(self, steps: int) -> Ended:
        job = self.site.job
        gone = self.mover.mailbox.absent
        without = (
            f" Without {listed(gone)}, silent for more than {job.patience:g} seconds."
            if gone
            else ""
        )
        # One that says it is at rest and leaves is believed, and shows by the age of its word.
        ages = self.mover.mailbox.ages().items()
        without += f" Last messages: {', '.join(f'{peer} {age:.1f} s ago' for peer, age in ages)}."
        if steps < job.steps:
            return Ended(Status.converged, f"At rest after {steps} steps of this site.{without}")
        return Ended(
            Status.done, f"All sites have made {job.steps} steps, this one {steps}.{without}"
        )

    def over(self, state: RunState) -> Ended | None:
        done = state.step >= self.site.job.steps
        return Ended(Status.done if done else Status.converged)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.shutdown(wait=False, cancel_futures=True)
