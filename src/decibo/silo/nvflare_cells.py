"""A wire over cells: endpoints that another system names, connects and authenticates, such as those
of NVFlare.

    who is it       the cell that a message comes from, as the system has proven it; never what the
                    message says
    what travels    FRAME and a frame; or KNOCK, the 8 random bytes that a site has drawn when it
                    started, and the 8 of the neighbour that it has heard last, zeros for none
    knocking        a site knocks every second until its neighbour has knocked too; a new number is
                    a connection made. A knock is answered if whoever knocks has not heard this
                    start of the site: answers may be lost

Each neighbour has a queue and a thread of its own, since handing a message to a cell may take long
if the other one is away. What does not fit into a queue is dropped: `Mailbox` repeats it when
asked.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from decibo.errors import first_line, plain
from decibo.silo.wire import FewLines, Receiver

KNOCK = b"K"
FRAME = b"F"
NUMBER = 8  # bytes that tell a start of a site from others
NOBODY = bytes(NUMBER)
BACKLOG = 1 << 26  # bytes that wait for a slow neighbour
EVERY = 1.0  # seconds between two knocks, and between two lines about one sender
LAST = 2.0  # seconds for what was sent before the end


class Endpoint(Protocol):
    """The endpoint of one site."""

    def listen(self, heard: Callable[[str, bytes, bool], None]) -> None:
        """Call heard(address, content, sealed) for every message; sealed: encrypted and signed by
        that address."""
        ...

    def send(self, address: str, content: bytes) -> None:
        """Send a message; may block, and may raise if the other one is away."""
        ...


class CellWire:
    """What one site says to its neighbours and hears from them, over its cell.

    peers    the address of each neighbour's cell
    sealed   whether messages that are not encrypted and signed from end to end are refused
    log      gets lines for the log
    """

    def __init__(
        self, cell: Endpoint, peers: Mapping[str, str], log: Callable[[str], None], *, sealed: bool
    ) -> None:
        self.cell = cell
        self.lines = {name: Outbox(self, name, address) for name, address in peers.items()}
        self.log = log
        self.sealed = sealed
        self.number = secrets.token_bytes(NUMBER)
        self.receiver: Receiver | None = None
        self._names = {address: name for name, address in peers.items()}
        self._few = FewLines(log)

    def start(self, receiver: Receiver) -> None:
        """Listen and knock."""
        self.receiver = receiver
        self.cell.listen(self._heard)
        for line in self.lines.values():
            line.put(line.knock())
            line.thread.start()

    def send(self, peer: str, content: bytes) -> None:
        """Hand a frame to the neighbour's thread, unless too much waits there."""
        if peer in self.lines:
            self.lines[peer].put(FRAME + content)

    def close(self) -> None:
        """End after what was sent has left."""
        until = time.monotonic() + LAST
        for line in self.lines.values():
            line.close(until)
        self.receiver = None

    def _heard(self, address: str, content: bytes, sealed: bool) -> None:
        receiver = self.receiver
        name = self._names.get(address)
        if receiver is None:
            return
        if name is None:
            self._refuse(address, "it is no neighbour")
        elif self.sealed and not sealed:
            self._refuse(address, "it is not encrypted and signed")
        elif len(content) > len(FRAME) + max(2 * NUMBER, receiver.longest):
            most = f"none of this job has more than {receiver.longest:,}"
            self._refuse(address, f"it has {len(content):,} bytes, and {most}")
        elif content[:1] == FRAME:
            receiver.deliver(name, content[1:])
        elif content[:1] == KNOCK and len(content) == 1 + 2 * NUMBER:
            self._knocked(
                self.lines[name], content[1 : 1 + NUMBER], content[1 + NUMBER :], receiver
            )
        else:
            self._refuse(address, "it is neither a frame nor a knock")

    def _knocked(self, line: Outbox, number: bytes, heard: bytes, receiver: Receiver) -> None:
        new = number != line.met
        line.met = number
        if heard != self.number:
            line.put(line.knock())
        if new:
            self.log(f"connected with {line.name}")
            receiver.connected(line.name)

    def _refuse(self, address: str, why: str) -> None:
        """A line in the log, but not one for each message of a flood, nor for each name that a
        flood makes up."""
        line = f"refused a message from the cell {plain(address)[:100]}: {why}"
        self._few(self._names.get(address, ""), line)


class Outbox:
    """What waits for one neighbour, and the thread that sends it.

    met   the number with which the neighbour has knocked last
    """

    def __init__(self, wire: CellWire, name: str, address: str) -> None:
        self.wire = wire
        self.name = name
        self.address = address
        self.met = NOBODY
        self.thread = threading.Thread(target=self._carry, name=f"decibo-to-{name}", daemon=True)
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._closing = False
        self._problem = ""

    def knock(self) -> bytes:
        """That this site is there, and which start of the neighbour it has heard."""
        return KNOCK + self.wire.number + self.met

    def put(self, content: bytes) -> None:
        """Send this next, unless too much waits already."""
        with self._changed:
            if self._size + len(content) <= BACKLOG or not self._queue:
                self._queue.append(content)
                self._size += len(content)
                self._changed.notify()

    def close(self, until: float) -> None:
        """Send what waits, and end; at `until` at the latest."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self.thread.is_alive():
            self.thread.join(max(0.0, until - time.monotonic()))

    def _next(self) -> bytes | None:
        """What to send next; None at the end."""
        with self._changed:
            waits = lambda: bool(self._queue) or self._closing
            if not self._changed.wait_for(waits, EVERY if self.met == NOBODY else None):
                return self.knock()  # the neighbour has not been there yet
            if not self._queue:
                return None
            content = self._queue.popleft()
            self._size -= len(content)
            return content

    def _carry(self) -> None:
        while (content := self._next()) is not None:
            try:
                self.wire.cell.send(self.address, content)
                self._problem = ""
            except Exception as error:  # whatever the other system raises for a cell that is away
                self._complain(first_line(error))

    def _complain(self, problem: str) -> None:
        if problem != self._problem and not self._closing:
            self.wire.log(f"{self.name} cannot be reached: {problem[:200]}")
        self._problem = problem
