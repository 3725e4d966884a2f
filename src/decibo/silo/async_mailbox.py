r"""The messages of a site that does not wait: the newest of each neighbour, and who is there.

    (1)  order of a frame   (boot, number): how often the site has started, and how often it has
                            moved since
    (2)  newest_j           the frame of j of the highest order so far; one of a lower order changes
                            nothing
    (3)  every `again` seconds a site repeats its newest frame, whether it computes or not: a frame
         that is lost is late, and silence means absence
    (4)  silent for `patience` seconds: j is left out until its next frame. So is a neighbour that
         has not sent any yet
    (5)  a site that receives frames of a lower order than it knows sends back which one it knows,
         and the sender starts counting above that, towards this neighbour only and by 1,000 starts
         at a time: a site that continues from an old checkpoint, or from nothing, needs no memory
         and no clock, and no neighbour can make it look old to another one

No site sees all others, so termination is detected by a counter that propagates. With D the width
of
the network,

    (6)  calm_i = 0 as long as i has something to do; then 1 + the smallest calm_j of the neighbours
         that are not left out, at every move, at most 2 D + 1
    (7)  calm_i = 2 D + 1, or a neighbour that has ended so: i ends as soon as it has nothing to do

A site with something to do keeps calm at distance k from it at k or below: so calm_i > D says that
all had nothing to do a while ago, and at 2 D + 1 that all of them had seen this of each other and
stayed so. Neighbours that never came count as busy until `patience` seconds have passed. When a
site has nothing to do is decided in asynchronous.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from decibo.silo.consortium import Consortium
from decibo.silo.frame import STEPS, Frame, Kind, pack
from decibo.silo.mailbox import DONE, Mailbox, Position
from decibo.silo.wire import Wire

Order = tuple[int, int]  # boot, number
BOOTS = (1 << 32) - 2  # the most
JUMP = 1_000  # starts that a neighbour is believed to know of, beyond those that are known here
# times `again`: how long to repeat the end to a neighbour that may not know it
LINGER = 10


class Received(NamedTuple):
    """The newest frame of a neighbour, and when the last one arrived."""

    order: Order
    numbers: np.ndarray
    calm: int
    when: float


class AsyncMailbox(Mailbox):
    """The messages of a site that does not wait.

    width   how many exchanges it takes until the news of one site have reached all
    clock   what patience is measured by, in seconds
    """

    def __init__(
        self,
        wire: Wire,
        consortium: Consortium,
        job: bytes,
        terms: Mapping[str, str],
        *,
        width: int,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> None:
        super().__init__(wire, consortium, job, terms, **more)
        self.limit = 2 * width + 1
        self.clock = clock
        self.calm = 0
        self._boots = dict.fromkeys(self.peers, 0)  # as each neighbour counts them
        self._moves = 0
        self._vector: np.ndarray | None = None
        self._newest: dict[str, Received] = {}
        self._news = False  # whether something new has arrived since it was asked for
        self._out: set[str] = set()  # who is left out, as the log has it
        self._began = clock()
        self._closed = False
        self._repeats = threading.Thread(
            target=self._repeat, name=f"decibo-{self.me}-repeats", daemon=True
        )

    def start(self) -> None:
        self._began = self.clock()
        super().start()
        self._repeats.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    # Sending and receiving

    def offer(self, vector: np.ndarray, *, busy: bool) -> None:
        """Send this to all neighbours in place of the last message; `busy` unless this site could
        end."""
        with self._changed:
            self._vector = vector
            self._moves += 1
            if self._moves > STEPS:
                self._boots = {peer: boot + 1 for peer, boot in self._boots.items()}
                self._moves = 0
            least = min(self._calms(), default=self.limit)
            self.calm = 0 if busy else min(self.limit, 1 + least)  # (6)
            frames = self._frames()
        self._send_all(frames)

    def newest(self) -> dict[str, np.ndarray]:
        """The newest message of each neighbour that is not left out."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._news = False
            there = {
                peer: received.numbers
                for peer, received in self._newest.items()
                if not self._is_out(peer)
            }
            changed = self._out ^ (set(self.peers) - set(there))
            self._out = set(self.peers) - set(there)
            known_before = set(self._newest)
        for peer in sorted(changed):
            if peer in there:
                self.log(f"{peer} takes part")
            elif peer in known_before:
                self.log(
                    f"{peer} has been silent for {self.patience:g} seconds and is left out until"
                    " its next message"
                )
        return there

    def wait(self, seconds: float) -> None:
        """Until something new has arrived, but not for longer than this; not at all if nothing new
        can come."""

        def over() -> bool:
            # all neighbours that are there have ended
            there = {peer for peer in self.peers if not self._is_out(peer)}
            ended = bool(there) and there <= set(self._departures)
            return self._news or self._failure is not None or ended

        with self._changed:
            self._changed.wait_for(over, seconds)

    @property
    def over(self) -> bool:
        """Whether this site ends if it has nothing to do."""
        with self._changed:
            ended = any(end.status == DONE for end in self._departures.values())
            return self.calm > 0 and (self.calm >= self.limit or ended)  # (7)

    @property
    def absent(self) -> list[str]:
        with self._changed:
            return [peer for peer in self.peers if self._is_out(peer)]

    def ages(self) -> dict[str, float]:
        """How many seconds ago the last message of each neighbour arrived."""
        with self._changed:
            return {peer: self.clock() - self._newest[peer].when for peer in sorted(self._newest)}

    def finish(self, all_done: Callable[[], object] = lambda: None) -> bool:
        """Stay until all neighbours that are there have ended too; False if one of them went away
        before."""
        with self._changed:
            self._over = DONE
        self._send_bye(self.peers)
        last = self.clock()
        while True:
            with self._changed:
                self._changed.wait(self.again)
                if self._failure is not None:
                    raise self._failure
                ends = {peer: self._departures.get(peer) for peer in self.peers}
                decided = {
                    peer for peer, received in self._newest.items() if received.calm >= self.limit
                }
                ending = {peer for peer, end in ends.items() if end is not None} | decided
                waits = [
                    peer for peer in self.peers if peer not in ending and not self._is_out(peer)
                ]
            deaf = [peer for peer, end in ends.items() if end is None or not end.acknowledged]
            if waits:
                last = self.clock()
            elif not ending & set(deaf) or self.clock() - last > LINGER * self.again:
                if len(ending) == len(self.peers):
                    all_done()
                return len(ending) == len(self.peers)
            self._send_bye(deaf)

    def _has_begun(self) -> bool:
        return bool(self._newest)

    def _is_out(self, peer: str) -> bool:
        received = self._newest.get(peer)
        end = self._departures.get(peer)
        if received is None:
            return True
        if end is not None and end.status == DONE:
            return False  # it is at rest there, and sends nothing more
        return self.clock() - received.when > self.patience  # (4)

    def _calms(self) -> list[int]:
        """How calm each neighbour is that counts."""
        found: list[int] = []
        for peer in self.peers:
            received = self._newest.get(peer)
            end = self._departures.get(peer)
            if end is not None and end.status == DONE:
                found.append(self.limit)
            elif received is None:
                found += [0] if self.clock() - self._began <= self.patience else []
            elif not self._is_out(peer):
                found.append(received.calm)
        return found

    def _frames(self, peers: Iterable[str] | None = None) -> dict[str, bytes]:
        """This site's newest frame, for each neighbour; nothing before there is one."""
        own = self.number[self.me]
        made = lambda peer: pack(
            Kind.DATA, self.job, own, self._moves, self._boots[peer],
            numbers=self._vector, calm=self.calm,
        )  # fmt: skip
        peers = self.peers if peers is None else peers
        return {} if self._vector is None else {peer: made(peer) for peer in peers}

    def _send_all(self, frames: Mapping[str, bytes]) -> None:
        for peer, content in frames.items():
            self.wire.send(peer, content)

    def _repeat(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, self.again)
                if self._closed:
                    return
                frames = self._frames()
            self._send_all(frames)  # (3)

    # What arrives

    def connected(self, peer: str) -> None:
        """Greet a neighbour, send the newest frame, and which of its own is known here."""
        if peer not in self._box:
            return
        self._unread.add(peer)
        self._send([peer], Kind.HELLO, words=self.terms)
        self._answer(peer, (0, 0))
        if self._over:
            self._send_bye([peer])

    def _on_data(self, peer: str, frame: Frame) -> None:
        order = (frame.call, frame.step)
        older = False
        problem = ""
        with self._changed:
            known = self._newest.get(peer)
            like = self._vector
            if like is None:
                return  # this site has nothing to mix it with
            if frame.numbers.size != like.size or frame.numbers.dtype.name != like.dtype.name:
                problem = (
                    f"{frame.numbers.size} numbers of type {frame.numbers.dtype} where others"
                    " were due"
                )
            elif not np.isfinite(frame.numbers).all():
                problem = "its numbers are not finite"
            elif known is None or order >= known.order:
                self._news = self._news or known is None or order > known.order
                # (2)
                self._newest[peer] = Received(
                    order, frame.numbers, min(frame.calm, self.limit), self.clock()
                )
                self._changed.notify_all()
            else:
                older = True
        if problem:
            self._refuse(peer, problem)
        elif older:
            self._answer(peer, (0, 0))  # (5)

    def _answer(self, peer: str, position: Position) -> None:
        """Repeat the newest frame, and report which one of the neighbour is known; not more often
        than needed."""
        now = time.monotonic()
        with self._changed:
            if now - self._answered.get(peer, -self.again) < self.again / 4:
                return
            self._answered[peer] = now
            frames = self._frames([peer])
            known = self._newest.get(peer)
        self._send_all(frames)
        if known is not None:
            self._send([peer], Kind.HERE, words={"newest": list(known.order)})

    def _on_here(self, peer: str, frame: Frame) -> None:
        newest = frame.words.get("newest")
        if not (
            isinstance(newest, list) and len(newest) == 2 and all(type(n) is int for n in newest)
        ):
            return
        boot, moves = newest
        with self._changed:
            known = self._boots[peer]
            behind = (boot, moves) > (known, self._moves)
            if behind:
                self._boots[peer] = min(boot + 1, known + JUMP, BOOTS)  # (5)
            frames = self._frames([peer]) if behind else {}
        self._send_all(frames)
