"""`decibo launch`: start local processes, watch them, start them again from the last checkpoint if one is lost.

JAX itself ends all processes of a run when one of them dies or falls silent. The supervisor makes that quick, says
who was lost with which agents, and leaves no process behind, also if it is killed itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from decibo.errors import InputError
from decibo.execute.checkpointing import AGAIN
from decibo.parallel.processes import HEARTBEAT, LOOPBACK, free_port
from decibo.parallel.status import STATUS
from decibo.validate import positive_int

LOOK = 0.05  # seconds between two looks at the processes
GRACE = 2.0  # seconds for survivors to say something before they are ended
FINAL = (0, 2, 130)  # exit statuses after which starting again would mend nothing
LOST = 71  # the exit status when a process was lost for good
Say = Callable[[str], None]


def _tell(line: str) -> None:
    print(f"decibo launch: {line}", file=sys.stderr, flush=True)


@dataclass
class Crew:
    """The processes of one attempt."""

    members: list[subprocess.Popen[bytes]]
    status: Path
    frozen_since: dict[int, float] = field(default_factory=dict)

    def codes(self) -> list[int | None]:
        """How each has ended, None while it runs."""
        return [member.poll() for member in self.members]

    def signal(self, number: int) -> None:
        """Pass a signal on to all that still run, and to what they started."""
        for member in self.members:
            if member.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(member.pid, number)

    def end(self) -> None:
        """End all, and wait until they are gone."""
        self.signal(signal.SIGKILL)
        for member in self.members:
            member.wait()

    def frozen(self, seconds: float) -> list[int]:
        """Those that have been stopped for so long."""
        now = time.monotonic()
        for number, member in enumerate(self.members):
            if member.poll() is None and _is_stopped(member.pid):
                self.frozen_since.setdefault(number, now)
            else:
                self.frozen_since.pop(number, None)
        return [number for number, since in self.frozen_since.items() if now - since >= seconds]

    def name(self, number: int) -> str:
        """A process and its agents, in words."""
        try:
            agents = json.loads((self.status / f"process-{number}.json").read_text())["agents"]
        except (OSError, ValueError, KeyError):
            return f"process {number}"
        return (
            f"process {number} (agents {agents[0]} to {agents[-1]})"
            if len(agents) > 1
            else (f"process {number} (agent {agents[0]})")
        )


def launch(
    command: Sequence[str],
    processes: int,
    *,
    restarts: int = 0,
    heartbeat: float = HEARTBEAT,
    host: str = LOOPBACK,
    say: Say = _tell,
) -> int:
    """Run a command in several processes that find each other; returns the exit status.

    command    a decibo command such as ["run", "config.toml"], or any other such as ["python", "script.py"]
    restarts   how often to start again, from the last checkpoint, after a process was lost
    heartbeat  seconds of silence after which a process counts as lost
    host       the address on which processes talk; the loopback address keeps it within this machine

    The status is 0 if all ended well, 71 if a process was lost for good, otherwise the first that failed had it.
    """
    count = positive_int("the number of processes", processes)
    if isinstance(restarts, bool) or restarts < 0:
        raise InputError(f"restarts = {restarts!r}", "it must be 0 or more", "Give 3, for example.")
    if not heartbeat >= 1:
        raise InputError(f"heartbeat = {heartbeat!r}", "it must be at least 1 second", "Give 30, for example.")
    whole, own = _whole(command)
    final = (*FINAL, 1) if own else FINAL  # decibo's own commands end with 1 after a run that diverged
    with _Signals() as heard:
        for attempt in range(restarts + 1):
            code = _attempt(whole, count, attempt > 0, heartbeat, host, heard, say)
            if code in final or heard.numbers or attempt == restarts:
                return code
            say(f"starting again from the last checkpoint ({attempt + 1} of {restarts})")
    raise AssertionError


def _whole(command: Sequence[str]) -> tuple[list[str], bool]:
    """What to start, and whether it is a command of decibo."""
    if not command:
        raise InputError("no command", "there must be something to start", "decibo launch -n 4 -- run config.toml")
    first, *rest = command
    if first in ("python", "python3"):
        return [sys.executable, *rest], False
    if first in ("run", "resume", "compare", "sweep", "demo"):
        return [sys.executable, "-m", "decibo", first, *rest], True
    return ([sys.executable, "-m", *command], True) if first == "decibo" else (list(command), False)


def _attempt(
    command: list[str], count: int, again: bool, heartbeat: float, host: str, heard: _Signals, say: Say
) -> int:
    with tempfile.TemporaryDirectory(prefix="decibo-") as status:
        crew = _start(command, count, again, heartbeat, host, Path(status))
        try:
            return _watch(crew, heartbeat, heard, say)
        finally:
            crew.end()


def _start(command: list[str], count: int, again: bool, heartbeat: float, host: str, status: Path) -> Crew:
    shared = {
        "DECIBO_COORDINATOR": f"{host}:{free_port()}",
        "DECIBO_PROCESSES": str(count),
        "DECIBO_HEARTBEAT": str(heartbeat),
        STATUS: str(status),
    }
    members = []
    try:
        for number in range(count):
            env = os.environ | shared | {"DECIBO_PROCESS": str(number)} | ({AGAIN: "1"} if again else {})
            cores = _cores(number, count)
            members.append(
                subprocess.Popen(
                    command, env=env, start_new_session=True, preexec_fn=lambda cores=cores: _prepare(cores)
                )
            )
    except OSError as error:
        Crew(members, status).end()
        raise InputError(
            f"{command[0]}: {error.strerror or error}", "the command must exist", "Check its name."
        ) from error
    return Crew(members, status)


def _watch(crew: Crew, heartbeat: float, heard: _Signals, say: Say) -> int:
    """Wait until all have ended well, or one has not; then end the others and say what happened."""
    passed = 0
    deadline = float("inf")
    while True:
        codes = crew.codes()
        if all(code is not None for code in codes) and not any(codes):
            return 0
        if len(heard.numbers) > passed:  # a signal: pass it on, and give them time to write a checkpoint
            number = heard.numbers[passed]
            passed += 1
            crew.signal(number if passed < 3 else signal.SIGKILL)
            deadline = time.monotonic() + heartbeat + GRACE
        ended = [number for number, code in enumerate(codes) if code]
        frozen = crew.frozen(heartbeat)
        if passed and (all(code is not None for code in codes) or time.monotonic() > deadline):
            return 128 + heard.numbers[0] if any(codes) or None in codes else 0
        if (ended or frozen) and not passed:
            return _lost(crew, say)
        time.sleep(LOOK)


def _lost(crew: Crew, say: Say) -> int:
    """Find out who was lost first and who only followed, say it, and give the exit status."""
    until = time.monotonic() + GRACE
    while time.monotonic() < until and any(code is None for code in crew.codes()):
        time.sleep(LOOK)
    codes = crew.codes()
    stopped = crew.frozen(0)
    killed = [n for n, code in enumerate(codes) if code is not None and code < 0 and -code != signal.SIGABRT]
    for number in stopped:
        say(f"{crew.name(number)} stopped answering (it is frozen)")
    for number in killed:
        say(f"{crew.name(number)} was killed by {signal.Signals(-codes[number]).name}")  # type: ignore[operator]
    others = [(n, code) for n, code in enumerate(codes) if code and n not in killed]
    if not stopped and not killed:
        for number, code in others:
            how = f"exit status {code}" if code > 0 else signal.Signals(-code).name
            say(f"{crew.name(number)} ended with {how}")
    running = [n for n, code in enumerate(codes) if code is None and n not in stopped]
    if running:
        say(f"ending process {', '.join(map(str, running))}")
    wrong = [code for _, code in others]
    return wrong[0] if wrong and not stopped and not killed and wrong[0] > 0 else LOST


class _Signals:
    """Ctrl-C and SIGTERM, kept to be passed on."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __enter__(self) -> _Signals:
        hear = lambda number, _: self.numbers.append(number)
        self._before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


def _cores(number: int, count: int) -> set[int] | None:
    """A process's share of the cores, if there is one for each: threads of two processes do not wait for each other."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // count
    return set(cores[number * each : (number + 1) * each]) if each else None


def _prepare(cores: set[int] | None) -> None:
    """In the new process: its cores, and an end when the supervisor ends, however that happens (Linux)."""
    if cores:
        os.sched_setaffinity(0, cores)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _is_stopped(pid: int) -> bool:
    """Whether a process is frozen (Linux; elsewhere JAX's heartbeat finds out)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False
