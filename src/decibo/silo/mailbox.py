r"""The messages between a site and its neighbours, on any wire: all that correctness rests on.

Sites work in lockstep. Exchange (k, c) is call c of `mix` in step k, counted by the host; a site
that has made it has the messages of all its neighbours, so neighbours are never more than one
exchange apart:

    (1)  |position of i - position of j| <= 1        for neighbours i, j while both run
    (2)  box_j[k, c]                            the message of j, until it is taken; frames may come
                                                in any order, twice
    (3)  sent[k, c]                             the messages of this site in its last `keep` steps
    (4)  silent for `again` seconds: ASK (k, c) the answer is what was sent from (k, c) on, then
                                                HERE: where it is, whom it waits for. So the name of
                                                a site that is gone reaches all others
    (5)  silent for `patience`: LostError       with that name

A wire may therefore lose, double, delay and reorder frames. By (3) and (4) any set of sites may
crash, too: a site that starts again from its checkpoint of step s with the messages saved there
sends the same as before, bit for bit, and receives again what it has missed. Let checkpoints be E
steps apart. When i stops at step p, its newest checkpoint is of a step s > p - E; by (1) a
neighbour's is of a step s' <= p + 1, so s' <= s + E, and

    (6)  sent of the neighbour, saved or in memory, holds steps s' - E <= s and all after them
         if keep >= E + 2

With keep = 2 E + 4 this also holds for the checkpoint before the newest, in case that one is
damaged.

What a neighbour says of others is believed only where it fits what is known here: (4) must not put
the blame on somebody else. A neighbour whose frames were refused in this exchange, that answers
without the message that is due, or that says it waits for a site whose message is here already, is
the one to name. Its messages count only once its HELLO has shown that it runs the same job
(same_job.py); of these, one is read in each connection, and of all frames with words a few hundred
in a second, so that no neighbour can keep this site busy with them.

Before the first exchange of a job with masks, the two ends of each link send each other random
numbers, their shares of a secret that no third site has (secret.py). They are repeated until they
have arrived, and again for a neighbour that asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decibo.errors import InputError, LostError, plain, short
from decibo.formatting import listed
from decibo.silo.consortium import Consortium
from decibo.silo.frame import (
    CODES,
    HEADER,
    JSON_LIMIT,
    SHARE,
    BadFrame,
    Frame,
    Kind,
    kind_of,
    pack,
    unpack,
)
from decibo.silo.same_job import Programs, difference
from decibo.silo.secret import LINKS, MessageRecord, Position, keep_shares, link_secret, own_shares
from decibo.silo.wire import FewLines, Wire

FRESH = 3  # times `again`: an answer that is older says nothing about where a site is now
WORDS = 500  # frames with words in a second of one neighbour that are read
LOOK = 0.2  # seconds between two calls of `waits` while this site waits
DONE = "done"
DIVERGED = "diverged"
AMNESIA = "lost its state"
CHANGED = "a message has changed"  # of a neighbour, since this site was started again
LOST = "lost a neighbour"
STOPPED = "stopped"  # a callback of the site has ended the run
WHO = {"who": True}  # in an ASK: send a HELLO, too
REMEDY = (
    "Use the same job file, the same functions and the same versions at all sites; where you know"
    " that other versions compute the same, pass --same-programs."
)


class NeighbourStatus(NamedTuple):
    """Where a neighbour is, whom it waits for, and when it reported this."""

    at: Position
    waiting: tuple[str, ...]
    when: float


class Departure(NamedTuple):
    """How a neighbour left: done, or why it cannot go on; and whether it knows that this site has
    finished."""

    status: str
    why: str
    acknowledged: bool


class EndedError(RuntimeError):
    """Another site cannot go on, and says why; so no site can."""

    def __init__(self, message: str, status: str):
        super().__init__(message)
        self.status = status


class Mailbox:
    """The messages of one site.

    consortium   who sends to whom, as this site sees it, and with how much patience
    job          16 bytes that are the same at all sites of a job
    terms        what these bytes stand for, and with which programs: part -> what it is;
                 differences are named
    programs     the programs of this site for a neighbour's data (same_job.py)
    most         the most numbers in a message
    keep         how many steps of messages to keep
    calls        the most exchanges in a step
    """

    def __init__(
        self,
        wire: Wire,
        consortium: Consortium,
        job: bytes,
        terms: Mapping[str, str],
        *,
        programs: Programs | None = None,
        most: int = 1 << 27,
        keep: int = 1,
        calls: int = 1,
    ) -> None:
        self.wire = wire
        self.me = consortium.site
        self.number = {name: i for i, name in enumerate(consortium.names)}
        self.peers = tuple(consortium.peers)
        self.job = job
        self.terms = dict(terms)
        self.difference = partial(
            difference, self.terms, programs=programs, same_programs=consortium.same_programs
        )
        self.keep = keep
        self.room = keep * calls + 4
        self.most = most
        self.again = consortium.again
        self.patience = consortium.patience
        self.log = consortium.log
        self.lines = FewLines(self.log)
        self.sent: dict[Position, np.ndarray] = {}  # (3)
        self.greeted: dict[str, str] = {}  # peer -> how its job differs, "" if it does not
        self.notes: dict[str, str] = {}  # peer -> what to know of it, though its job is the same
        self.refused = 0
        self._started = False
        self._changed = threading.Condition()
        self._at: Position = (0, 0)
        self._missing: tuple[str, ...] = ()
        self._box: dict[str, dict[Position, np.ndarray]] = {peer: {} for peer in self.peers}  # (2)
        self._statuses: dict[str, NeighbourStatus] = {}
        self._departures: dict[str, Departure] = {}
        self._active: set[str] = set()  # who has sent numbers of this job
        self._answered: dict[str, float] = {}
        self._hellos: dict[str, bytes] = {}  # the last one of each
        self._unread = set(self.peers)  # whose next HELLO is read
        self._words: dict[str, tuple[float, int]] = {}  # since when how many frames with words
        self._faults: dict[str, str] = {}  # peer -> why a frame was refused in this exchange
        self._reasons: dict[str, str] = {}  # the same, and what follows from what it says
        # called while this site waits, with for whom and for how many seconds; what it raises ends
        # the waiting
        self.waits: Callable[[tuple[str, ...], float], None] = lambda names, seconds: None
        # what is sent to a neighbour instead of a vector
        self.hide: Callable[[str, Position, np.ndarray], np.ndarray] | None = None
        # what was sent before a crash, where messages are hidden and may not change
        self.record: MessageRecord | None = None
        # this site's share for each neighbour, and for no other
        self._shares: dict[str, bytes] = {}
        self.shares: dict[str, bytes] = {}  # those of the neighbours
        self._exchanged = False  # whether it has made an exchange since it was started
        self._failure: Exception | None = None
        self._over = ""  # the status in this site's BYE
        self._why = ""
        self._blamed: tuple[str, ...] = ()

    def start(self) -> None:
        """Begin to connect and to receive, unless that has begun."""
        if not self._started:
            self._started = True
            self.wire.start(self)

    def close(self) -> None:
        self.wire.close()

    @property
    def longest(self) -> int:
        """The most bytes of a frame that could be of use here."""
        return HEADER.size + max(JSON_LIMIT, 8 * self.most)

    # Sending and receiving

    def exchange(self, step: int, call: int, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Send this to all neighbours, and return the message of each in the same exchange."""
        at = (step, call)
        if self.record is not None:
            self._recorded(partial(self.record.sending, at, vector))
        with self._changed:
            self._at = at
            self._faults = {}
            self.sent[at] = vector
            for old in [position for position in self.sent if position[0] <= step - self.keep]:
                del self.sent[old]
            for box in self._box.values():
                for old in [position for position in box if position < at]:
                    del box[old]
        for peer in self.peers:
            self._send_data(peer, at, vector)
        begun = time.monotonic()
        asked = begun
        while True:
            with self._changed:
                missing = self._missing_at(at, vector)
                now = time.monotonic()
                if missing and self._failure is None and now - asked < self.again:
                    until = min(asked + self.again, begun + self.patience, now + LOOK)
                    self._changed.wait(max(0.001, until - now))
                    missing = self._missing_at(at, vector)
                    now = time.monotonic()
                if self._failure is not None:
                    raise self._failure
                if not missing:
                    found = {peer: self._box[peer].pop(at) for peer in self.peers}
                    break
                names = self._blamed_for(missing, now)
            if now - begun >= self.patience:
                raise self._lost(names, step)
            self.waits(names, now - begun)
            if now - asked >= self.again:
                asked = now
                self._send(missing, Kind.ASK, at)  # (4)
        if self.record is not None:
            self._recorded(partial(self.record.received, at, found))
        self._exchanged = True
        return found

    def _recorded(self, note: Callable[[], None]) -> None:
        """Note in the record, or end: what is hidden must not change."""
        try:
            note()
        except LostError as error:
            self.leave(CHANGED, str(error))
            raise

    def _missing_at(self, at: Position, vector: np.ndarray) -> tuple[str, ...]:
        """Whose message of this exchange has not arrived yet."""
        dtype = vector.dtype.name if self.hide is None else "uint64"
        for peer, box in self._box.items():
            if at in box and (box[at].size != vector.size or box[at].dtype.name != dtype):
                found = box.pop(at)
                self._refuse(
                    peer, f"{found.size} numbers of type {found.dtype} where {vector.size} were due"
                )
        self._missing = tuple(peer for peer in self.peers if at not in self._box[peer])
        return self._missing

    def _blamed_for(self, missing: Iterable[str], now: float) -> tuple[str, ...]:
        """Who keeps this site waiting in the end: a neighbour, or whoever the neighbour waits for,
        as far as that can be so."""
        names: list[str] = []
        why = {peer: self._faults[peer] for peer in missing if peer in self._faults}
        for peer in missing:
            report = self._statuses.get(peer)
            others: list[str] = []
            if report is not None and now - report.when <= FRESH * self.again:
                others = [name for name in report.waiting if name != self.me]
                here = [name for name in others if self._at in self._box.get(name, ())]
                if report.at >= self._at:
                    why.setdefault(peer, "it answers without the message that is due")
                elif here:
                    words = f"it says that it waits for {listed(here)}, whose message is here"
                    why.setdefault(peer, words)
            names += [peer] if peer in why else others or [peer]
        self._reasons = why
        return tuple(dict.fromkeys(names))

    def _lost(self, names: tuple[str, ...], step: int) -> LostError:
        self._blamed = names
        self.leave(LOST, "")
        why = [f" {name}: {self._reasons[name]}." for name in names if name in self._reasons]
        return LostError(
            f"{self.me} has waited {self.patience:g} seconds for {listed(names)} in step {step}."
            f"{''.join(why)} What was computed is kept: when that site is back, start this one"
            " again with the same command."
        )

    def agreed_secrets(
        self, folder: Path, data: Sequence[np.ndarray], *, new: bool
    ) -> dict[int, bytes]:
        """Agree with the neighbours on the secret of each link, by the number of the neighbour;
        from here on one message is sent in each exchange, ever (secret.py).

        data   this site's own, which must be those with which the shares were drawn
        new    whether the run has no checkpoint yet; otherwise nothing is sent, since the folder
               has all shares
        """
        number = self.number
        first = new and not (folder / LINKS).exists()
        self.record = MessageRecord(
            folder, sorted(number, key=number.__getitem__), self.me, new=first
        )
        own, theirs = own_shares(folder, self.peers, data, new=new)
        if new:
            self.start()
        theirs = self.share(own, theirs)
        keep_shares(folder, own, theirs, data)
        ends = lambda peer: (own[peer], theirs[peer])[
            :: 1 if number[self.me] < number[peer] else -1
        ]
        return {number[peer]: link_secret(self.job, *ends(peer)) for peer in self.peers}

    def share(self, own: Mapping[str, bytes], known: Mapping[str, bytes]) -> dict[str, bytes]:
        """Send each neighbour this site's share of the secret of their link, and return the share
        of each neighbour.

        known   those that arrived before this site was started again
        """
        with self._changed:
            self._shares = dict(own)
            for peer, share in known.items():
                if self.shares.setdefault(peer, share) != share and self._failure is None:
                    self._failure = self._forgotten(peer)
        begun = time.monotonic()
        while True:
            with self._changed:
                self._missing = tuple(peer for peer in self.peers if peer not in self.shares)
                missing = self._missing
                if self._failure is not None:
                    raise self._failure
            if not missing:
                return dict(self.shares)
            if time.monotonic() - begun >= self.patience:
                raise self._lost(missing, 0)
            self.waits(missing, time.monotonic() - begun)
            for peer in missing:
                self._send_share(peer)
            with self._changed:
                if all(peer not in self.shares for peer in missing) and self._failure is None:
                    self._changed.wait(self.again)

    def finish(self, all_done: Callable[[], object] = lambda: None) -> bool:
        """Wait for all neighbours to have all messages; False if one of them has been silent for
        too long.

        all_done   called as soon as no neighbour needs this site any more, before they know that
                   it knows: a site that is killed then need not wait for them again
        """
        with self._changed:
            self._over = DONE
            self._missing = ()
        self._send_bye(self.peers)
        begun = time.monotonic()
        grace: float | None = None
        while True:
            with self._changed:
                self._changed.wait(self.again)
                if self._failure is not None:
                    raise self._failure
                ends = {peer: self._departures.get(peer) for peer in self.peers}
            now = time.monotonic()
            gone = [peer for peer, end in ends.items() if end is not None and end.status == DONE]
            if len(gone) == len(ends):
                if grace is None:
                    all_done()
                    grace = now
                if (
                    all(end is not None and end.acknowledged for end in ends.values())
                    or now - grace > FRESH * self.again
                ):
                    return True
            elif now - begun > self.patience:
                return False
            self.waits(tuple(peer for peer in ends if peer not in gone), now - begun)
            self._send_bye(
                [peer for peer, end in ends.items() if end is None or not end.acknowledged]
            )

    def leave(self, status: str, why: str) -> None:
        """Tell the neighbours that this site cannot go on."""
        self._over = status
        self._why = why
        self._send_bye(self.peers)

    def _send_bye(self, peers: Iterable[str]) -> None:
        for peer in peers:
            words = {
                "status": self._over,
                "why": self._why,
                "received": peer in self._departures,
                "waiting": self._blamed,
            }
            self._send([peer], Kind.BYE, self._at, words)

    # What arrives

    def connected(self, peer: str) -> None:
        """Greet a neighbour, send it what is due, and ask it for its own."""
        if peer not in self._box:
            return
        self._unread.add(peer)
        with self._changed:
            at = self._at
            due = self.sent.get(at)
            shares = peer in self._shares and peer not in self.shares
            waits = peer in self._missing and not shares
        if not self._over:  # a neighbour that has begun its next job must not take this one for it
            self._send([peer], Kind.HELLO, words=self.terms)
        if shares:
            self._send_share(peer)
        if due is not None:
            self._send_data(peer, at, due)
        if waits:
            self._send([peer], Kind.ASK, at)
        if self._over:
            self._send_bye([peer])

    def deliver(self, peer: str, content: bytes) -> None:
        """Take a frame that has arrived; one that cannot be used is refused, with a line in the
        log."""
        if peer not in self._box:
            self._refuse(peer, "it is no neighbour")
            return
        kind = kind_of(content)
        if kind is not Kind.DATA and not self._is_read(peer, kind, content):
            return
        try:
            frame = unpack(content, self.most)
        except BadFrame as error:
            self._refuse(peer, str(error))
            return
        if frame.sender != self.number[peer]:
            self._refuse(
                peer,
                f"it says that it is site {frame.sender}, but its certificate is that of {peer}",
            )
        elif frame.kind is Kind.HELLO:
            self._on_hello(peer, frame)
        elif frame.job != self.job:
            self._refuse(peer, "it belongs to another job")
        elif frame.kind is Kind.DATA:
            differs = self.greeted.get(peer)
            if differs == "":
                self._active.add(peer)
                self._on_data(peer, frame)
            elif differs is not None:
                self._refuse(peer, f"it {differs}")
            elif time.monotonic() - self._answered.get(f"who is {peer}", 0.0) >= self.again:
                # its HELLO was lost on the way, and what it computes is not known yet
                self._answered[f"who is {peer}"] = time.monotonic()
                self._send([peer], Kind.ASK, self._at, WHO)
        elif frame.kind is Kind.ASK:
            if frame.words == WHO:
                self._send([peer], Kind.HELLO, words=self.terms)
            self._answer(peer, (frame.step, frame.call))
        elif frame.kind is Kind.HERE:
            self._on_here(peer, frame)
        elif frame.kind is Kind.SHARE:
            self._on_share(peer, frame)
        else:
            self._on_bye(peer, frame)

    def _is_read(self, peer: str, kind: Kind | None, content: bytes) -> bool:
        """Whether a frame with words is looked into: reading takes longer than sending."""
        if kind is Kind.HELLO and content == self._hellos.get(peer):
            return False  # again
        now = time.monotonic()
        since, count = self._words.get(peer, (now, 0))
        since, count = (now, 0) if now - since >= 1 else (since, count)
        self._words[peer] = (since, count + 1)
        if count >= WORDS:
            self._refuse(peer, f"it sends more than {WORDS} frames with words in a second")
            return False
        if kind is Kind.HELLO:
            if peer not in self._unread:
                self._refuse(peer, "it describes another job in the same connection, unread")
                return False
            self._unread.discard(peer)
            self._hellos[peer] = content
        return True

    def _on_hello(self, peer: str, frame: Frame) -> None:
        """Compare jobs. A neighbour with another job stops a run that it takes no part in, and no
        other."""
        equal = frame.job == self.job
        differs, note = self.difference(frame.words, equal=equal)
        with self._changed:
            new = note and self.notes.get(peer) != note
            self.greeted[peer] = differs
            self.notes[peer] = note
            busy = peer in self._active or (not equal and self._has_begun())
            if differs and not busy and self._failure is None:
                self._failure = InputError(f"{peer} {differs}.", REMEDY)
            self._changed.notify_all()
        if differs:
            self._refuse(peer, f"it {differs}")
        elif new:
            self.log(f"{peer} {note}")

    def _has_begun(self) -> bool:
        # before the first step sites may still find that they disagree
        return self._at[0] > 0

    def _on_data(self, peer: str, frame: Frame) -> None:
        position = (frame.step, frame.call)
        finite = bool(np.isfinite(frame.numbers).all())
        with self._changed:
            if not finite and self._failure is None:
                # No site sends such numbers; to go on with them would make this one look ill.
                words = f"{peer} has sent numbers that are not finite, in step {frame.step}."
                self._failure = EndedError(words, DIVERGED)
                self._changed.notify_all()
                return
            box = self._box[peer]
            if position < self._at or position in box:
                return  # again: what a site sends in an exchange is the same every time
            if position[0] > self._at[0] + self.keep or len(box) >= self.room:
                problem = f"it is at step {position[0]}, and this site at step {self._at[0]}"
            else:
                box[position] = frame.numbers
                self._changed.notify_all()
                return
        self._refuse(peer, problem)

    def _on_share(self, peer: str, frame: Frame) -> None:
        share = _share(frame.words.get("share"))
        if share is None:
            self._refuse(peer, "its share of a secret is malformed")
            return
        with self._changed:
            forgot = (
                self.shares.setdefault(peer, share) != share
                and self._failure is None
                and not self._over
            )
            answers = frame.words.get("wanted") is True and peer in self._shares
            if forgot:
                self._failure = self._forgotten(peer)
            self._changed.notify_all()
        if forgot:
            self.leave(AMNESIA, f"{peer} has lost the secret of its link with {self.me}")
        elif answers:
            self._send_share(peer)

    def _forgotten(self, peer: str) -> LostError:
        return LostError(
            f"{peer} has lost its share of the secret of its link with {self.me}, without which"
            " their masks do not cancel. Start a new job, from where the others are."
        )

    def _send_share(self, peer: str) -> None:
        words = {"share": self._shares[peer].hex(), "wanted": peer not in self.shares}
        self._send([peer], Kind.SHARE, words=words)

    def _answer(self, peer: str, position: Position) -> None:
        """Repeat the messages from there on, and report where this site is; not more often than
        needed."""
        now = time.monotonic()
        with self._changed:
            if now - self._answered.get(peer, -self.again) < self.again / 4:
                return
            self._answered[peer] = now
            due = [(at, vector) for at, vector in self.sent.items() if at >= position]
            first = min(self.sent, default=self._at)
            words = {"waiting": self._blamed_for(self._missing, now), "first": first}
            at = self._at
        for where, vector in due:
            self._send_data(peer, where, vector)
        self._send([peer], Kind.HERE, at, words)

    def _on_here(self, peer: str, frame: Frame) -> None:
        waiting = _names(frame.words.get("waiting"), self.number)
        first = _position(frame.words.get("first"))
        forgot = False
        with self._changed:
            self._statuses[peer] = NeighbourStatus(
                (frame.step, frame.call), waiting, time.monotonic()
            )
            gone = peer in self._missing and first > self._at
            # Neighbours are one exchange apart, so only a site that has just been started can be
            # where its neighbours have discarded their messages.
            if gone and not self._exchanged and self._failure is None:
                forgot = True
                self._failure = LostError(
                    f"{self.me} is at step {self._at[0]}, but {peer} keeps only its messages from"
                    f" step {first[0]} on: the state of {self.me} was lost, or is an old copy."
                    " Start a new job, from where the others are."
                )
            self._changed.notify_all()
        if forgot:
            self.leave(AMNESIA, f"it was back at step {self._at[0]}")
        elif gone and self._exchanged:
            self._refuse(peer, "it says that it has discarded the message that is due")

    def _on_bye(self, peer: str, frame: Frame) -> None:
        status = str(frame.words.get("status"))[:40]
        why = short(plain(frame.words.get("why", "")), 300)
        with self._changed:
            self._departures[peer] = Departure(status, why, frame.words.get("received") is True)
            ends = status in (AMNESIA, CHANGED, DIVERGED, STOPPED)
            if ends and self._failure is None and not self._over:
                words = (
                    f"{peer} has lost its state ({why}), so the job cannot go on."
                    if status == AMNESIA
                    else why
                )
                self._failure = EndedError(words, status)
            elif status == LOST:
                named = _names(frame.words.get("waiting"), self.number)
                self._statuses[peer] = NeighbourStatus(
                    (frame.step, frame.call), named, time.monotonic() + self.patience
                )
            finished = bool(self._over) and frame.words.get("received") is not True
            self._changed.notify_all()
        if finished:
            self._send_bye([peer])

    def _refuse(self, peer: str, why: str) -> None:
        """A line in the log, but not one for each frame of a flood."""
        self.refused += 1
        if peer in self._box:
            self._faults[peer] = short(why, 300)
        self.lines(peer, f"refused a frame from {peer}: {why}")

    def _send_data(self, peer: str, at: Position, vector: np.ndarray) -> None:
        numbers = vector if self.hide is None else self.hide(peer, at, vector)
        self.wire.send(peer, pack(Kind.DATA, self.job, self.number[self.me], *at, numbers=numbers))

    def _send(
        self,
        peers: Iterable[str],
        kind: Kind,
        at: Position = (0, 0),
        words: Mapping[str, object] | None = None,
    ) -> None:
        content = pack(kind, self.job, self.number[self.me], *at, words=words)
        for peer in peers:
            self.wire.send(peer, content)

    # What a checkpoint keeps

    def saved(self) -> dict[str, np.ndarray]:
        with self._changed:
            positions = np.array(list(self.sent), np.int64).reshape(-1, 2)
            vectors = list(self.sent.values())
        sizes = [[vector.size, CODES[vector.dtype.name]] for vector in vectors]
        raw = b"".join(vector.tobytes() for vector in vectors)
        return {
            "sent.positions": positions,
            "sent.sizes": np.array(sizes, np.int64).reshape(-1, 2),
            "sent.numbers": np.frombuffer(raw, np.uint8),
        }

    def restore(self, at: Position, arrays: Mapping[str, np.ndarray]) -> None:
        types = {code: np.dtype(name) for name, code in CODES.items()}
        raw = arrays["sent.numbers"].tobytes()
        place = 0
        with self._changed:
            self._at = at
            self.sent = {}
            for position, (size, code) in zip(
                arrays["sent.positions"].tolist(), arrays["sent.sizes"].tolist(), strict=True
            ):
                self.sent[(position[0], position[1])] = np.frombuffer(raw, types[code], size, place)
                place += size * types[code].itemsize


def _names(value: object, known: Mapping[str, int]) -> tuple[str, ...]:
    words = value[:1000] if isinstance(value, list) else []
    return tuple(name for name in words if isinstance(name, str) and name in known)


def _share(value: object) -> bytes | None:
    try:
        share = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return None
    return share if len(share) == SHARE else None


def _position(value: object) -> Position:
    """A step and a call in the words of a frame; the first of all if there is none."""
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        return (value[0], value[1])
    return (0, 0)
