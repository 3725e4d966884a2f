"""What carries frames between sites, and a wire in memory that can lose, double, delay and reorder
them.

A wire is authenticated, encrypted and best effort: it may lose a frame, deliver it twice, late or
out of order. That nothing depends on it is the business of `Mailbox`.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from decibo.errors import short
from decibo.validate import at_least, fraction, integer

Log = Callable[[str], None]  # gets lines for the log
FEW = 5  # lines of one kind in a second
LONGEST = 500  # letters of a line


def no_log(line: str) -> None:
    pass


class FewLines:
    """A log that gets a few lines of each kind in a second, none of them long, and then how many
    more there were: a flood must not fill the disk."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._seen: dict[str, tuple[float, int]] = {}  # kind -> since when, how many

    def __call__(self, kind: str, line: str) -> None:
        now = time.monotonic()
        count = self._seen.get(kind, (now, 0))[1]
        self._seen = {k: v for k, v in self._seen.items() if now - v[0] < 1}
        more = ""
        if kind not in self._seen:
            more = f" ({count - FEW} more like the last one)" if count > FEW else ""
            self._seen[kind] = (now, 0)
        since, number = self._seen[kind]
        self._seen[kind] = (since, number + 1)
        if number < FEW:
            self.log(short(line, LONGEST) + more)


class Receiver(Protocol):
    """Who gets what arrives; both may be called from any thread, and neither blocks or raises."""

    @property
    def longest(self) -> int:
        """The most bytes of a frame that could be of use."""
        ...

    def deliver(self, peer: str, content: bytes) -> None:
        """A frame has arrived from this site, as its certificate proves."""
        ...

    def connected(self, peer: str) -> None:
        """A connection to this site has been made, for the first time or again."""
        ...


class Wire(Protocol):
    """Carries frames between this site and its neighbours."""

    def start(self, receiver: Receiver) -> None:
        """Begin to connect and to receive."""
        ...

    def send(self, peer: str, content: bytes) -> None:
        """Send a frame, if there is a connection; never blocks, and never raises because a site is
        absent."""
        ...

    def close(self) -> None:
        """End all connections, after what was sent has left."""
        ...


@dataclass(frozen=True)
class Faults:
    """What a wire in memory does to frames, each with this probability.

    delay   the longest time, in seconds, that a frame is on its way; frames overtake each other
    """

    lose: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        fraction("lose", self.lose)
        fraction("double", self.double)
        at_least("delay", self.delay, 0.0)
        integer("seed", self.seed, least=0)

    @property
    def any(self) -> bool:
        return bool(self.lose or self.double or self.delay)


class Memory:
    """A network in memory, for sites that are threads of one process: `Memory().wire("north")`."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.wires: dict[str, MemoryWire] = {}
        self._random = np.random.default_rng(self.faults.seed)
        self._lock = threading.Condition()
        self._late: list[tuple[float, int, str, str, bytes]] = []
        self._number = itertools.count()
        self._ended = False
        if self.faults.any:
            threading.Thread(target=self._carry, daemon=True).start()

    def wire(self, name: str) -> MemoryWire:
        """The wire of a site; one that has it already loses it, as after a crash."""
        return MemoryWire(self, name)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._lock.notify()

    def send(self, sender: str, peer: str, content: bytes) -> None:
        """Deliver a frame, now or later, once, twice or not at all."""
        if not self.faults.any:
            self._deliver(sender, peer, content)
            return
        with self._lock:
            copies = 0 if self._random.random() < self.faults.lose else 1
            copies += int(self._random.random() < self.faults.double)
            for _ in range(copies):
                due = time.monotonic() + self.faults.delay * self._random.random()
                heapq.heappush(self._late, (due, next(self._number), sender, peer, content))
            self._lock.notify()

    def _deliver(self, sender: str, peer: str, content: bytes) -> None:
        wire = self.wires.get(peer)
        if wire is not None and wire.receiver is not None:
            wire.receiver.deliver(sender, content)

    def _carry(self) -> None:
        while True:
            with self._lock:
                if self._ended:
                    return
                wait = self._late[0][0] - time.monotonic() if self._late else None
                if wait is None or wait > 0:
                    self._lock.wait(wait)
                    continue
                _, _, sender, peer, content = heapq.heappop(self._late)
            self._deliver(sender, peer, content)


class MemoryWire:
    """The end of a network in memory that one site has."""

    def __init__(self, network: Memory, name: str) -> None:
        self.network = network
        self.name = name
        self.receiver: Receiver | None = None

    def start(self, receiver: Receiver) -> None:
        """Begin to receive; sites that are there already learn of it."""
        self.receiver = receiver
        self.network.wires[self.name] = self
        for other in list(self.network.wires.values()):
            if other is not self and other.receiver is not None:
                other.receiver.connected(self.name)
                receiver.connected(other.name)

    def send(self, peer: str, content: bytes) -> None:
        if self.network.wires.get(self.name) is self:
            self.network.send(self.name, peer, content)

    def close(self) -> None:
        if self.network.wires.get(self.name) is self:
            del self.network.wires[self.name]
