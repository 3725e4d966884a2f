"""If one process of a run fails, all of them end soon, and all give the same reason.

Every process keeps a line, a TCP connection, to the hub in process 0 (hub.py). The thread that
reads it ends its process when another one has failed, even while the main thread waits for a
message of JAX's runtime that will never come. Exceptions that nobody catches, signals and the end
of the program are announced on the line.
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
        self.hub_answers = False  # whether process 0 is bound to answer
        self.unread = unread
        self.port = 0
        self.joined = threading.Event()
        self.decided = threading.Event()
        self.released = threading.Event()
        self.verdict: tuple[int, str] | None = None  # who failed first, and the sentence about it
        self.since = 0.0
        # since when process 0 is gone, without which JAX's runtime soon ends this one
        self.alone: float | None = None
        self.inside = 1  # how many blocks of code are open in which only the others can help
        self.busy = False  # whether the user's own code is loading data
        self.ending = threading.Lock()  # whoever has it ends this process, and never gives it back
        self.signals: list[tuple[float, int]] = []  # when, and which
        self.wake, self.alarm = socket.socketpair()

    def run(self) -> None:
        """Read the line, tell the hub that this process is alive, and end the process when it is
        time to."""
        self.wake.setblocking(False)
        heard = sent = before = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.line, selectors.EVENT_READ)
            selector.register(self.wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(TICK):
                    if key.fileobj is self.line:
                        heard = time.monotonic()
                        if not self._read():
                            selector.unregister(self.line)
                            self._decide(0, gone(0))
                            self.alone = time.monotonic()
                    else:
                        self.signals += [
                            (time.monotonic(), number)
                            for number in self._alarms()
                            if number in SIGNALS
                        ]
                now = time.monotonic()
                # it was this process that slept
                heard = now if now - before > self.heartbeat / 2 else heard
                before = now
                if now - sent > pulse(self.heartbeat):
                    sent = now
                    self.report()
                if is_silent(now - heard, self.heartbeat, self.hub_answers, *self.hub):
                    self._decide(0, silent(0, self.heartbeat))
                self._end_if_due(now)

    def report(self) -> None:
        """Tell the hub whether this process is inside a run."""
        send(self.line, {"inside": bool(self.inside), "busy": self.busy})

    def _alarms(self) -> bytes:
        with suppress(OSError):
            return self.wake.recv(4096)
        return b""

    def _read(self) -> bool:
        """Take what the hub has sent; False when it is gone."""
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
        """Inside a run the end comes at once; outside, the program has the time of a heartbeat to
        finish what it does.

        Without process 0 it has no such time, since JAX's runtime would end it. A signal asks a run
        to stop after the steps under way. If these do not end in time, or if Ctrl-C follows, the
        process ends without them.
        """
        if self.ending.locked():
            return
        if self.verdict is not None:
            late = now - self.since > self.heartbeat or (
                self.alone is not None and now - self.alone > PATIENCE
            )
            if self.inside or late or self.verdict[0] == 0:
                self.claim()
                end(LOST, conclusion(self.verdict[1]))
        if not self.inside:
            self.signals.clear()
        elif self._is_overdue(now):
            self.claim()
            sentence = (
                f"{describe(self.process)} was interrupted before the steps under way were done"
            )
            self.tell_failure(sentence)
            end(INTERRUPTED, sentence)

    def _is_overdue(self, now: float) -> bool:
        """Whether a signal has waited too long, or Ctrl-C has followed it."""
        again = [since for since, number in self.signals[1:] if number == signal.SIGINT]
        first = [since for since, _ in self.signals[:1]]
        return any(now - since > TICK for since in again) or any(
            now - since > self.heartbeat for since in first
        )

    def claim(self) -> None:
        """From now on only this thread ends the process; a thread that comes later waits for
        that."""
        self.ending.acquire()

    def tell_failure(self, sentence: str) -> None:
        """Tell the hub that this process fails, and the supervisor why."""
        write_status(f"process-{self.process}.failed", sentence)
        send(self.line, {"failed": sentence})


SIGNALS = (signal.SIGINT, signal.SIGTERM)
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
) -> int:
    """Meet the other processes at this address, where process 0 listens; returns the port for JAX's
    coordinator.

    From then on this process ends when another one does, and the others end when this one does.
    """
    global _member, _hub
    key = secret.encode()
    host, _, number = address.rpartition(":")
    if process == 0:
        _hub = Hub(_listen(bind, int(number), address), processes, key, heartbeat, port())
        _hub.start()
    member = _call(host, int(number), processes, process, key, heartbeat)
    _member = member
    _install(member)
    member.start()
    member.joined.wait()  # or the end of this process, if somebody does not come
    return member.port


def _listen(bind: str, port: int, address: str) -> socket.socket:
    try:
        dual = not bind and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in bind else socket.AF_INET
        return socket.create_server((bind, port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise InputError(
            f"Process 0 cannot listen at {address}: {error.strerror or error}.",
            "Choose another port.",
        ) from error


def _call(
    host: str, port: int, processes: int, process: int, secret: bytes, heartbeat: float
) -> Member:
    """Connect to the hub, prove to each other that both know the secret, and return the open
    line."""
    line = connect(host, port)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        return _greet(line, f"{host}:{port}", processes, process, secret, heartbeat)
    except BaseException:
        line.close()
        raise


def connect(host: str, port: int) -> socket.socket:
    """A connection, as soon as somebody listens there."""
    reason = "no time"
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            return socket.create_connection((host.strip("[]"), port), timeout=WAIT)
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(0.1)
    raise unreachable(f"{host}:{port}", reason)


def _greet(
    line: socket.socket, address: str, processes: int, process: int, secret: bytes, heartbeat: float
) -> Member:
    nonce = secrets.token_hex(16)
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
    if not hmac.compare_digest(
        str(answer.get("proof")), proof_of(secret, "hub", nonce, theirs, str(process))
    ):
        raise InputError(
            f"Whoever listens at {address} does not know the secret of this run.",
            "Choose another port, and give every process the same DECIBO_SECRET.",
        )
    line.settimeout(None)
    return Member(line, process, heartbeat, (str(answer["host"]), int(str(answer["pid"]))), unread)


def unreachable(coordinator: str, reason: str) -> UnreachableError:
    """The error for a coordinator that does not answer."""
    return UnreachableError(
        f"There was no answer from the coordinator {coordinator} within {WAIT:g} s ({reason}), but"
        " all processes must start within that time and reach process 0. Check that process 0 is"
        " running and that its port is not blocked."
    )


def _install(member: Member) -> None:
    """Be told of exceptions, of signals and of the end of the program."""
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
            # When process 0 is gone, JAX's runtime aborts the others. Its thread calls sleep(6)
            # first, since SIGABRT is 6: time enough for the thread above to give the reason and to
            # end the process in order.
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
            libc.signal(int(signal.SIGABRT), ctypes.cast(libc.sleep, ctypes.c_void_p))


@contextmanager
def inside() -> Iterator[None]:
    """A block of code in which this process waits for the others, and they for it.

    An error of the transport is what a process notices first when another one is gone: the reason
    follows at once.
    """
    member = _member
    if member is None:
        yield
        return
    member.inside += 1
    member.report()
    try:
        yield
    except BaseException as error:
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
        member.inside -= 1
        member.report()


@contextmanager
def loading() -> Iterator[None]:
    """Code of the user's that may take long: it counts as alive without an answer, unless it is
    frozen."""
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
    """All processes have met and JAX's runtime has started: this process no longer waits for the
    others."""
    if _member is not None:
        _member.inside -= 1
        _member.report()


def announce(error: BaseException, text: str | None = None) -> str | None:
    """Tell all other processes that this one fails. Returns a reason to say nothing more here, or
    None.

    That reason is the same error in another process, or the failure of another one of which this is
    only the effect.
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
        member.tell_failure(sentence)
    member.decided.wait(PATIENCE)
    first, reason = member.verdict or (member.process, sentence)
    if first == member.process:
        return None
    same = reason.endswith(f" failed: {words}")
    if is_lost(error) and not same:
        _tell(conclusion(reason))
    return reason if same or is_lost(error) else None


def is_watched() -> bool:
    """Whether this process has a line to the others."""
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
    line = (
        " ".join(str(error).split())[:500]
        if isinstance(error, InputError)
        else first_line(error)[:300]
    )
    kind = type(error).__name__
    return line if isinstance(error, InputError) or line == kind else f"{kind}: {line}"


def _leave() -> None:
    """At the end of the program: wait until all others are there, or until one has failed."""
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
    """Print a line, unless a supervisor prints it for all processes, and end this process at once.

    At a normal end, JAX's runtime would wait for the others, which wait for this one.
    """
    flushing = threading.Thread(target=_flush, args=(line,), daemon=True)
    flushing.start()
    flushing.join(PATIENCE)  # nobody may read what this process prints
    if _hub is not None:
        _go_last(_hub, PATIENCE + (_hub.heartbeat if code == LOST else 0))
    os._exit(code)


def _go_last(hub: Hub, most: float) -> None:
    """Wait until the others have ended: JAX's coordinator is in this process, and its runtime
    aborts who is without it.

    If another process failed, one that is outside a run has the time of a heartbeat; if it was this
    one, it has none.
    """
    deadline = time.monotonic() + most
    while hub.has_company() and time.monotonic() < deadline:
        time.sleep(TICK / 4)


def _tell(line: str) -> None:
    """Print why the run ends, or leave it to the supervisor, which prints it once for all
    processes."""
    if STATUS in os.environ:
        write_status(f"process-{_member.process if _member else 0}.said", line)
    else:
        say(line)


def _flush(line: str) -> None:
    if line:
        _tell(line)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def write_status(name: str, text: str) -> None:
    """Leave a word for the supervisor, if there is one: only the wording of its messages depends on
    it."""
    if folder := os.environ.get(STATUS):
        with suppress(OSError):
            Path(folder, name).write_text(text, encoding="utf-8", errors="replace")


def conclusion(sentence: str) -> str:
    """The reason, and what follows from it."""
    return f"{sentence.rstrip('.')}. All processes of the run end."
