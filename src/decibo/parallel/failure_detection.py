"""If one process of a run fails, all of them end soon, and all give the same reason.

Every process keeps a line, a TCP connection, to the hub in process 0 (hub.py). The thread that
reads it ends its process when another one has failed, even while the main thread waits for a
message of JAX's runtime that will never arrive. Uncaught exceptions, signals and the end of the
program are announced on the line.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import hmac
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from decibo.errors import InputError, LostError, UnreachableError, first_line
from decibo.parallel.hub import (
    LONGEST,
    TICK,
    WAIT,
    Hub,
    describe,
    gone,
    is_silent,
    next_message,
    parse,
    proof_of,
    pulse,
    say,
    send,
    silent,
)

LOST = 71  # the exit code of a process that ends because another one failed
INTERRUPTED = 130
# an environment variable: the folder of the supervisor, which then prints for all
STATUS = "DECIBO_STATUS"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 2.0  # seconds for an answer from the hub


class Member(threading.Thread):
    """This process's end of its line to the hub, and its end of life."""

    def __init__(
        self,
        line: socket.socket,
        process: int,
        heartbeat: float,
        hub: tuple[str, int],
        unread: bytes,
    ):
        super().__init__(name="decibo line", daemon=True)
        self.line = line
        self.process = process
        self.heartbeat = heartbeat
        self.hub = hub  # the host and the pid of process 0
        self.hub_answers = False  # whether process 0 has to answer at the moment
        self.unread = unread
        self.port = 0
        self.joined = threading.Event()
        self.decided = threading.Event()
        self.released = threading.Event()
        self.verdict: tuple[int, str] | None = None  # who failed first, and the sentence about it
        self.since = 0.0
        # since when process 0 is gone, without which JAX's runtime soon ends this one
        self.hub_gone: float | None = None
        # > 0 while inside a collective call that cannot return without the other processes
        self.collective_depth = 1
        self.busy = False  # whether the user's own code is loading data
        self.ending = threading.Lock()  # its owner ends this process, and never releases it
        self.signals: list[tuple[float, int]] = []  # when, and which
        self.wake, self.alarm = socket.socketpair()

    def run(self) -> None:
        """Read the line, send signs of life, and end the process when that is due."""
        self.wake.setblocking(False)
        last_seen = sent = before = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.line, selectors.EVENT_READ)
            selector.register(self.wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(TICK):
                    if key.fileobj is self.line:
                        last_seen = time.monotonic()
                        if not self._read():
                            selector.unregister(self.line)
                            self._decide(0, gone(0))
                            self.hub_gone = time.monotonic()
                    else:
                        with suppress(OSError):
                            numbers = [n for n in self.wake.recv(4096) if n in SIGNALS]
                            self.signals += [(time.monotonic(), n) for n in numbers]
                now = time.monotonic()
                # A long gap: this process itself was suspended, and the hub was not silent.
                last_seen = now if now - before > self.heartbeat / 2 else last_seen
                before = now
                if now - sent > pulse(self.heartbeat):
                    sent = now
                    self.report()
                if is_silent(now - last_seen, self.heartbeat, self.hub_answers, *self.hub):
                    self._decide(0, silent(0, self.heartbeat))
                self._end_if_due(now)

    def report(self) -> None:
        """Send whether this process waits for the others, or may be busy for long."""
        send(self.line, {"inside": bool(self.collective_depth), "busy": self.busy})

    def _read(self) -> bool:
        """Handle the hub's messages; False when the hub is gone."""
        try:
            content = self.line.recv(LONGEST)
        except OSError:
            content = b""
        messages, self.unread = parse(self.unread + content)
        for message in messages:
            if "port" in message:
                self.port = int(str(message["port"]))
                self.joined.set()
            elif "alive" in message:
                self.hub_answers = bool(message["alive"])
            elif "released" in message:
                self.released.set()
            elif "failed" in message:
                self._decide(int(str(message["process"])), str(message["failed"]))
        return bool(content)

    def _decide(self, process: int, sentence: str) -> None:
        if self.verdict is None and not self.released.is_set():
            self.verdict = (process, sentence)
            self.since = time.monotonic()
            self.decided.set()

    def _end_if_due(self, now: float) -> None:
        """End the process if another one has failed, or if a signal has waited too long."""
        if self.ending.locked():
            return
        # Inside a collective call the end comes at once. Outside, the program has the time of a
        # heartbeat to finish, unless process 0 is gone: JAX's runtime would abort this process.
        if self.verdict is not None:
            late = now - self.since > self.heartbeat or (
                self.hub_gone is not None and now - self.hub_gone > PATIENCE
            )
            if self.collective_depth or late or self.verdict[0] == 0:
                self.claim()
                end(LOST, conclusion(self.verdict[1]))
        # A signal asks a run to stop after the steps under way. If these do not end in time, or if
        # Ctrl-C follows, the process ends without them.
        if not self.collective_depth:
            self.signals.clear()
        again = any(
            number == signal.SIGINT and now - since > TICK for since, number in self.signals[1:]
        )
        if again or any(now - since > self.heartbeat for since, _ in self.signals[:1]):
            self.claim()
            sentence = (
                f"{describe(self.process)} was interrupted before the steps under way were done"
            )
            self.announce_failure(sentence)
            end(INTERRUPTED, sentence)

    def claim(self) -> None:
        """From now on only this thread ends the process; a later thread waits here."""
        self.ending.acquire()

    def announce_failure(self, sentence: str) -> None:
        """Send the hub and the supervisor the reason why this process fails."""
        write_status(f"process-{self.process}.failed", sentence)
        send(self.line, {"failed": sentence})


_member: Member | None = None
_hub: Hub | None = None  # in process 0


def join(
    address: str,
    processes: int,
    process: int,
    secret: str,
    heartbeat: float,
    bind: str,
    port: Callable[[], int],
    wait: float,
) -> int:
    """Join the other processes at this address, where process 0 listens; returns the port for JAX's
    coordinator.

    From then on this process ends when another one does, and the others end when this one does.
    """
    global _member, _hub
    key = secret.encode()
    host, _, number = address.rpartition(":")
    if process == 0:
        # An empty address means all, over IPv4 and IPv6 where the machine has both.
        dual = not bind and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in bind else socket.AF_INET
        try:
            server = socket.create_server((bind, int(number)), family=family, dualstack_ipv6=dual)
        except OSError as error:
            raise InputError(
                f"Process 0 cannot listen at {address}: {error.strerror or error}.",
                "Choose another port.",
            ) from error
        _hub = Hub(server, processes, key, heartbeat, port(), wait)
        _hub.start()
    member = _call(host, int(number), processes, process, key, heartbeat, wait)
    _member = member
    _install(member)
    member.start()
    member.joined.wait()  # or the end of this process, if another one does not join
    return member.port


def _call(
    host: str,
    port: int,
    processes: int,
    process: int,
    secret: bytes,
    heartbeat: float,
    wait: float = WAIT,
) -> Member:
    """Connect to the hub and authenticate each other with the secret of the run."""
    address = f"{host}:{port}"
    line = connect(host, port, wait)
    # A reason must not wait in a buffer for the acknowledgement of the last sign of life (Nagle).
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    nonce = secrets.token_hex(16)
    try:
        try:
            greeting, unread = next_message(line, b"")
            theirs = str(greeting.get("nonce"))
            proof = proof_of(secret, "process", theirs, nonce, str(process))
            me = {"process": process, "processes": processes, "nonce": nonce, "proof": proof}
            send(line, me | {"pid": os.getpid(), "host": socket.gethostname()})
            answer, unread = next_message(line, unread)
        except (OSError, ValueError) as error:
            raise unreachable(address, first_line(error)) from error
        if "refused" in answer:
            raise InputError(
                f"Process 0 at {address} refused this process: {answer['refused']}.",
                "Start every process of a run once, with the same number of processes and the same"
                " DECIBO_SECRET.",
            )
        expected = proof_of(secret, "hub", nonce, theirs, str(process))
        if not hmac.compare_digest(str(answer.get("proof")), expected):
            raise InputError(
                f"The server at {address} failed authentication: it does not know the secret of"
                " this run.",
                "Choose another port, and give every process the same DECIBO_SECRET.",
            )
        line.settimeout(None)
    except BaseException:
        line.close()
        raise
    return Member(line, process, heartbeat, (str(answer["host"]), int(str(answer["pid"]))), unread)


def connect(host: str, port: int, wait: float = WAIT) -> socket.socket:
    """A connection, as soon as a server listens there."""
    reason = "no time"
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        try:
            return socket.create_connection((host.strip("[]"), port), timeout=WAIT)
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(0.1)
    raise unreachable(f"{host}:{port}", reason, wait)


def unreachable(coordinator: str, reason: str, wait: float = WAIT) -> UnreachableError:
    """The error for a coordinator that does not answer."""
    return UnreachableError(
        f"There was no answer from the coordinator {coordinator} within {wait:g} s ({reason}), but"
        " all processes must start within that time and reach process 0. Check that process 0 is"
        " running and that its port is not blocked; the environment variable DECIBO_WAIT sets"
        " another time, in seconds."
    )


def _install(member: Member) -> None:
    """Hooks for exceptions, for signals and for the end of the program."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if announce(error) is None:
            before(kind, error, trace)
        end(INTERRUPTED if isinstance(error, KeyboardInterrupt) else LOST if is_lost(error) else 1)

    sys.excepthook = hook
    atexit.register(_leave)
    if threading.current_thread() is threading.main_thread():
        member.alarm.setblocking(False)
        other = signal.set_wakeup_fd(member.alarm.fileno(), warn_on_full_buffer=False)
        if other != -1:  # an event loop needs it
            signal.set_wakeup_fd(other)
        if signal.getsignal(signal.SIGABRT) is signal.SIG_DFL and not faulthandler.is_enabled():
            # When process 0 is gone, JAX's runtime aborts the others with SIGABRT
            # (https://github.com/openxla/xla/pull/38624). With libc's sleep as the handler, which
            # gets the number of the signal, its thread first sleeps for 6 seconds: enough for
            # the thread above to print the reason and to end the process in order.
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
            libc.signal(int(signal.SIGABRT), ctypes.cast(libc.sleep, ctypes.c_void_p))


@contextmanager
def inside() -> Iterator[None]:
    """A block of code in which this process waits for the others, and they for it."""
    member = _member
    if member is None:
        yield
        return
    member.collective_depth += 1
    member.report()
    try:
        yield
    except BaseException as error:
        # An error of the transport is the first sign that another process is gone; the reason
        # follows at once.
        if is_transport(error):
            member.decided.wait(PATIENCE + TICK)
            time.sleep(PATIENCE)  # the line's own thread ends this process in the meantime
            raise LostError(
                f"{describe(member.process)} lost contact with another process:"
                f" {first_line(error)}."
            ) from error
        send(member.line, {"broke": f"{describe(member.process)} failed: {summary(error)}"})
        raise
    finally:
        member.collective_depth -= 1
        member.report()


@contextmanager
def loading() -> Iterator[None]:
    """Code of the user's that may take long: the process counts as alive without an answer, unless
    it is frozen."""
    if _member is None:
        yield
        return
    _member.busy = True
    _member.report()
    try:
        yield
    finally:
        _member.busy = False
        _member.report()


def left_start() -> None:
    """JAX's runtime has started: this process no longer waits for the others."""
    if _member is not None:
        _member.collective_depth -= 1
        _member.report()


def announce(error: BaseException, text: str | None = None) -> str | None:
    """Announce to all other processes that this one fails.

    Returns None if this process has to print its error, otherwise the reason why not: the same
    error in another process, or the failure of another process of which this is only the effect.
    """
    member = _member
    if member is None:
        return None
    member.claim()
    words = text or summary(error)
    sentence = f"{describe(member.process)} failed: {words}"
    if isinstance(error, KeyboardInterrupt):
        sentence = f"{describe(member.process)} was interrupted"
    if not is_lost(error):
        member.announce_failure(sentence)
    member.decided.wait(PATIENCE)
    first, reason = member.verdict or (member.process, sentence)
    if first == member.process:
        return None
    same = reason.endswith(f" failed: {words}")
    if is_lost(error) and not same:
        _report(conclusion(reason))
    return reason if same or is_lost(error) else None


def is_watched() -> bool:
    """Whether this process is one of several."""
    return _member is not None


def is_lost(error: BaseException) -> bool:
    """Whether an error is only the effect of another process's failure."""
    return isinstance(error, LostError) or is_transport(error)


def is_transport(error: BaseException) -> bool:
    """Whether an error is one of JAX's runtime about a connection."""
    text = str(error)
    return (
        "Gloo" in text
        or "NCCL" in text
        or ("UNAVAILABLE" in text and "Error" in type(error).__name__)
    )


def summary(error: BaseException) -> str:
    """An error in one line: its message if it is a sentence of decibo's, otherwise its type too."""
    if isinstance(error, InputError):
        return " ".join(str(error).split())[:500]
    line = first_line(error)[:300]
    kind = type(error).__name__
    return line if line == kind else f"{kind}: {line}"


def _leave() -> None:
    """At the end of the program: wait until all others have ended too, or one has failed."""
    member = _member
    if member is None:
        return
    send(member.line, {"leaving": True})
    try:
        while not member.released.wait(TICK):
            if member.verdict is not None:
                member.claim()
                end(LOST, conclusion(member.verdict[1]))
    except KeyboardInterrupt:
        end(
            INTERRUPTED,
            f"{describe(member.process)} was interrupted while it waited for the others to end",
        )


def end(code: int, line: str = "") -> NoReturn:
    """Print a line, unless a supervisor prints it for all processes, and end this process at once:
    at a normal end, JAX's runtime would wait for the others, which wait for this one."""

    def flush() -> None:
        if line:
            _report(line)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()

    flushing = threading.Thread(target=flush, daemon=True)
    flushing.start()
    flushing.join(PATIENCE)  # a full pipe that is not read would block for good
    if _hub is not None:
        # JAX's coordinator is in process 0, and its runtime aborts processes without it, so that
        # process 0 ends last. If another process failed, the others may need a heartbeat to finish
        # what they write.
        deadline = time.monotonic() + PATIENCE + (_hub.heartbeat if code == LOST else 0)
        while _hub.has_company() and time.monotonic() < deadline:
            time.sleep(TICK / 4)
    os._exit(code)


def _report(line: str) -> None:
    """Print why the run ends, or leave it to the supervisor, which prints it once for all
    processes."""
    if STATUS in os.environ:
        write_status(f"process-{_member.process if _member else 0}.last", line)
    else:
        say(line)


def write_status(name: str, text: str) -> None:
    """Leave a text for the supervisor, if there is one; only the wording of its messages depends on
    it."""
    if folder := os.environ.get(STATUS):
        with suppress(OSError):
            Path(folder, name).write_text(text, encoding="utf-8", errors="replace")


def conclusion(sentence: str) -> str:
    """The reason, and what follows from it."""
    return f"{sentence.rstrip('.')}. All processes of the run end."
