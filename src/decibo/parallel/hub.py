"""The hub, a thread in process 0 where the lines of all processes meet, and the messages on these
lines.

A message is a line of JSON. From a process to the hub:

    process  its number, with a proof that it knows the secret of the run: nothing else counts
             before that
    inside   every few seconds: whether the process is inside a run
    broke    the run ended in an exception here, and the program goes on
    failed   the program ends, and why
    leaving  the program is at its end; it may go when all others are, too

and from the hub to all: `alive` every few seconds, `port` (of JAX's coordinator) when all have
joined, `failed` with the first failure, `released` when all are leaving. A line that breaks without
a word means that the process at its other end is gone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WAIT = 30.0  # seconds until all processes must have joined
LONGEST = 65536  # the most bytes of a message
TICK = 0.2  # seconds between two looks at the clock
_agents: dict[int, str] = {}  # the agents of each process, in words


@dataclass
class Peer:
    """One connection of the hub; its messages count once it has proved that it knows the secret."""

    line: socket.socket
    address: str
    begun: float
    last_seen: float
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    unread: bytes = b""
    process: int | None = None
    pid: int = 0
    host: str = ""
    inside: float | None = None  # since when it has been inside a run
    # since when it is out of a run that it did not finish, and why
    absent: tuple[float, str] | None = None
    busy: bool = False  # whether it may be in a long call that keeps Python's other threads out
    left: bool = False  # whether it is at its end

    @property
    def answers(self) -> bool:
        """Whether it is bound to answer."""
        return self.inside is not None and not self.busy


class Hub(threading.Thread):
    """The server: admits processes, detects lost ones, and passes the first failure on."""

    def __init__(
        self,
        server: socket.socket,
        processes: int,
        secret: bytes,
        heartbeat: float,
        port: int,
        wait: float = WAIT,
    ):
        super().__init__(name="decibo hub", daemon=True)
        self.server = server
        self.processes = processes
        self.secret = secret
        self.heartbeat = heartbeat
        self.port = port
        self.wait = wait
        self.begun = time.monotonic()
        self.members: dict[int, Peer] = {}
        self.complete = False
        self.failed = False
        self.refused = 0
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until the process ends."""
        self.server.setblocking(False)
        self.selector.register(self.server, selectors.EVENT_READ)
        before = spoke = time.monotonic()
        while True:
            for key, _ in self.selector.select(TICK):
                if key.data is not None:
                    self._read(key.data)
                    continue
                with suppress(OSError):
                    line, address = self.server.accept()
                    line.setblocking(False)
                    begun = time.monotonic()
                    peer = Peer(line, f"{address[0]}:{address[1]}", begun, begun)
                    self.selector.register(line, selectors.EVENT_READ, peer)
                    send(line, {"nonce": peer.nonce})
            now = time.monotonic()
            if now - before > self.heartbeat / 2:  # this process itself was suspended
                for peer in self.members.values():
                    peer.last_seen = now
            before = now
            if now - spoke > pulse(self.heartbeat):
                spoke = now
                self._tell_alive()
            self._judge(now)

    def has_company(self) -> bool:
        """Whether another process still has its line, and was seen lately."""
        now = time.monotonic()
        others = [peer for number, peer in list(self.members.items()) if number]
        return any(p.line.fileno() >= 0 and now - p.last_seen <= self.heartbeat for p in others)

    def _read(self, peer: Peer) -> None:
        """Handle the messages of a peer; a connection without more content is closed."""
        try:
            content = peer.line.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        peer.last_seen = time.monotonic()
        peer.unread += content
        messages, peer.unread = parse(peer.unread)
        for message in messages:
            self._handle(peer, message)
        if not content or len(peer.unread) > LONGEST:
            number = peer.process
            self._close(peer)
            if number is not None and self.members.get(number) is peer and not self._all_left():
                self._fail(gone(number), number)

    def _handle(self, peer: Peer, message: Mapping[str, object]) -> None:
        now = time.monotonic()
        if peer.process is None:
            self._admit(peer, message)
        elif "failed" in message:
            self._fail(str(message["failed"]), peer.process)
        elif "broke" in message:
            peer.absent = (now, str(message["broke"]))
        elif "leaving" in message:
            peer.left = True
            peer.absent = peer.absent or (
                now,
                f"{describe(peer.process)} ended before the run was over",
            )
            if self._all_left():
                self._tell({"released": True})
        elif message.get("inside"):
            peer.busy = bool(message.get("busy"))
            peer.absent = None if peer.inside is None else peer.absent
            peer.inside = peer.inside or now
        else:
            peer.inside = None
        if peer.process == 0 and "inside" in message:
            self._tell_alive()

    def _tell_alive(self) -> None:
        """Process 0 is alive, and whether it has to answer at the moment."""
        self._tell({"alive": 0 in self.members and self.members[0].answers})

    def _admit(self, peer: Peer, message: Mapping[str, object]) -> None:
        """Let a process in that knows the secret, whose number is free and which belongs to a run
        of this size."""
        number = message.get("process")
        count = message.get("processes")
        nonce = str(message.get("nonce"))
        proof = proof_of(self.secret, "process", peer.nonce, nonce, str(number))
        why = ""
        if (
            not isinstance(number, int)
            or not 0 <= number < self.processes
            or count != self.processes
        ):
            why = (
                f"it says that it is process {number!r} of {count!r}, and this run has"
                f" {self.processes} processes"
            )
        elif not hmac.compare_digest(proof, str(message.get("proof"))):
            why = (
                f"it says that it is process {number}, but it does not know the secret of this run"
            )
        elif number in self.members:
            why = f"it says that it is process {number}, but that one has joined already"
        if why or not isinstance(number, int):
            send(peer.line, {"refused": why})
            self.refused += 1
            if self.refused <= 10:
                say(f"refused a connection from {peer.address}: {why}; the run goes on")
            self._close(peer)
            return
        peer.process = number
        peer.pid = int(str(message.get("pid") or 0))
        peer.host = str(message.get("host"))
        peer.inside = time.monotonic()
        self.members[number] = peer
        mine = proof_of(self.secret, "hub", nonce, peer.nonce, str(number))
        send(peer.line, {"proof": mine, "pid": os.getpid(), "host": socket.gethostname()})
        if len(self.members) == self.processes:
            self.complete = True
            self._tell({"port": self.port})

    def _all_left(self) -> bool:
        return self.complete and all(peer.left for peer in self.members.values())

    def _close(self, peer: Peer) -> None:
        with suppress(KeyError, ValueError):
            self.selector.unregister(peer.line)
        peer.line.close()

    def _judge(self, now: float) -> None:
        """Who has not joined, who is silent, and who waits for a process that will not come?"""
        for key in list(self.selector.get_map().values()):
            peer = key.data
            if peer is not None and peer.process is None and now - peer.begun > WAIT / 3:
                self._close(peer)  # it never introduced itself
        if not self.complete and now - self.begun > self.wait:
            missing = [number for number in range(self.processes) if number not in self.members]
            listed = f"process{'es' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
            self._fail(f"{listed} did not start within {self.wait:g} s", -1)
        for number, peer in self.members.items():
            if is_silent(now - peer.last_seen, self.heartbeat, peer.answers, peer.host, peer.pid):
                self._fail(silent(number, self.heartbeat), number)
            if peer.absent is None or now - peer.absent[0] < self.heartbeat:
                continue
            waiting = [other.inside for other in self.members.values() if other.inside is not None]
            if any(peer.left or since < peer.absent[0] for since in waiting):
                self._fail(peer.absent[1], number)

    def _fail(self, sentence: str, process: int) -> None:
        if not self.failed:
            self.failed = True
            self._tell({"failed": sentence, "process": process})

    def _tell(self, message: Mapping[str, object]) -> None:
        # process 0 last: it may end at once
        for _, peer in sorted(self.members.items(), reverse=True):
            send(peer.line, message)


def proof_of(secret: bytes, *words: str) -> str:
    """A message authentication code, which proves knowledge of the secret."""
    return hmac.new(secret, "\n".join(words).encode(), hashlib.sha256).hexdigest()


def pulse(heartbeat: float) -> float:
    """Seconds between two signs of life."""
    return min(heartbeat / 5, 5.0)


def send(line: socket.socket, message: Mapping[str, object]) -> None:
    """Send a message."""
    # The reader of the line notices that it is broken. Messages are so short that a full buffer,
    # where the line does not wait, means that nobody at the other end reads any more.
    with suppress(OSError):
        line.sendall(json.dumps(message).encode() + b"\n")


def parse(unread: bytes) -> tuple[list[dict[str, object]], bytes]:
    """The complete messages in this content, and the rest; anything else is skipped."""
    *lines, rest = unread.split(b"\n")
    messages = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict):
                messages.append(message)
    return messages, rest


def next_message(line: socket.socket, unread: bytes) -> tuple[dict[str, object], bytes]:
    """The next message on a line, and what came after it."""
    while b"\n" not in unread:
        content = line.recv(4096)
        if not content or len(unread) > LONGEST:
            raise ValueError("the connection was closed")
        unread += content
    first, _, rest = unread.partition(b"\n")
    messages, _ = parse(first + b"\n")
    if not messages:
        raise ValueError("the server there does not speak decibo's protocol")
    return messages[0], rest


def is_silent(seconds: float, heartbeat: float, answers: bool, host: str, pid: int) -> bool:
    """Whether a process counts as lost. While it runs the user's code it need not answer, but it
    must not be frozen."""
    return seconds > heartbeat and (answers or (host == socket.gethostname() and is_stopped(pid)))


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is frozen (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def gone(process: int) -> str:
    """The sentence about a process whose line broke."""
    return (
        f"{describe(process)} is gone: its connection broke without a message, as after a kill or a"
        " crash"
    )


def silent(process: int, heartbeat: float) -> str:
    """The sentence about a process that does not answer."""
    return f"{describe(process)} has not answered for {heartbeat:g} s"


def introduce(agents: Mapping[int, str]) -> None:
    """The agents of each process, in words, for messages."""
    _agents.clear()
    _agents.update(agents)


def describe(process: int) -> str:
    """A process and, where they are known, its agents."""
    return f"process {process} ({_agents[process]})" if process in _agents else f"process {process}"


def say(line: str) -> None:
    """One line on standard error."""
    with suppress(OSError, ValueError):
        print(f"decibo: {line}", file=sys.stderr, flush=True)
