"""`decibo launch`: start local processes, watch them, and restart them from the last checkpoint if
one is lost.

The processes themselves end when one of them fails (failure_detection.py). The supervisor reports
once, for all of them, who failed, with which agents and why, and leaves no process behind, even if
it is killed itself.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jax

from decibo.errors import InputError
from decibo.parallel.failure_detection import INTERRUPTED, LOST, STATUS, write_status
from decibo.parallel.hub import introduce, is_stopped
from decibo.parallel.processes import HEARTBEAT, LOOPBACK, OURS, SECRET, free_port, seconds
from decibo.parallel.signals import GracefulStop
from decibo.validate import integer

RESTARTED = "DECIBO_RESUME"  # an environment variable that is set when processes are started again
INTERVAL = 0.05  # seconds between two checks of the processes
GRACE = 2.0  # seconds for survivors to say something before they are ended
FINAL = (0, 2, 3, 74, 130)  # exit codes for which a restart cannot help
Report = Callable[[str], None]


def _to_stderr(line: str) -> None:
    print(f"decibo launch: {line}", file=sys.stderr, flush=True)


def report_agents(agents: Mapping[int, str]) -> None:
    """Let messages name the agents of each process, in words; those of the supervisor too, if there
    is one."""
    introduce(agents)
    write_status(f"process-{jax.process_index()}.agents", agents[jax.process_index()])


@dataclass
class ProcessGroup:
    """The processes of one attempt."""

    members: list[subprocess.Popen[bytes]]
    status: Path
    frozen_since: dict[int, float] = field(default_factory=dict)

    def codes(self) -> list[int | None]:
        """The exit code of each, None while it runs."""
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
            if member.poll() is None and is_stopped(member.pid):
                self.frozen_since.setdefault(number, now)
            else:
                self.frozen_since.pop(number, None)
        return [number for number, since in self.frozen_since.items() if now - since >= seconds]

    def word(self, number: int, what: str) -> str:
        """What a process has written into the supervisor's folder, or nothing."""
        try:
            return (self.status / f"process-{number}.{what}").read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""

    def name(self, number: int) -> str:
        agents = self.word(number, "agents")
        return f"process {number} ({agents})" if agents else f"process {number}"


def launch(
    command: Sequence[str],
    processes: int,
    *,
    restarts: int = 0,
    heartbeat: float = HEARTBEAT,
    host: str = LOOPBACK,
    report: Report = _to_stderr,
) -> int:
    """Run a command in several processes that find each other; returns the exit code.

    command    a decibo command such as ["run", "config.toml"], or any other such as ["python",
               "script.py"]
    restarts   how often to restart from the last checkpoint after a process was lost
    heartbeat  seconds of silence after which a process counts as lost
    host       the address of the process that the others find each other through

    The code is 0 if all processes succeeded, 130 if they were asked to stop and did, 71 if one was
    lost for good, otherwise that of the process that failed first.
    """
    count = integer("the number of processes", processes)
    attempts = integer("restarts", restarts, least=0) + 1
    heartbeat = seconds(heartbeat)
    arguments, is_decibo = _arguments(command)
    # decibo's own commands end with 1 after a run that diverged
    final = (*FINAL, 1) if is_decibo else FINAL
    code = LOST
    with GracefulStop(patience=None) as stop:
        for attempt in range(attempts):
            if attempt:
                report(f"restarting from the last checkpoint ({attempt} of {restarts})")
            shared = {
                OURS[0]: f"{host}:{free_port()}",
                OURS[1]: str(count),
                SECRET: secrets.token_hex(32),
                "DECIBO_HEARTBEAT": str(heartbeat),
            } | ({RESTARTED: "1"} if attempt else {})
            with tempfile.TemporaryDirectory(prefix="decibo-") as folder:
                group = _start(arguments, shared | {STATUS: folder}, count, Path(folder))
                try:
                    code = _watch(group, heartbeat, stop, report)
                finally:
                    group.end()
            if code in final or stop.requested:
                break
    return code


def _arguments(command: Sequence[str]) -> tuple[list[str], bool]:
    """What to start, and whether it is a command of decibo."""
    if not command:
        raise InputError(
            "There is no command to start.", "For example: decibo launch -n 4 -- run config.toml"
        )
    first, *rest = command
    if first in ("python", "python3"):
        return [sys.executable, *rest], False
    if first in ("run", "resume", "compare", "sweep", "demo"):
        # -P: imports nothing from this folder
        return [sys.executable, "-P", "-m", "decibo", first, *rest], True
    return ([sys.executable, "-m", *command], True) if first == "decibo" else (list(command), False)


def _start(command: list[str], shared: Mapping[str, str], count: int, status: Path) -> ProcessGroup:
    """Start the processes; each gets a share of the cores, if there is one core for each, so that
    threads of two processes do not wait for each other."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(cores) // count
    group = ProcessGroup([], status)

    def prepare(number: int) -> None:  # in the new process
        if share:
            os.sched_setaffinity(0, cores[number * share : (number + 1) * share])
        if sys.platform == "linux":
            # PR_SET_PDEATHSIG: it ends when the supervisor ends, however that happens
            # (https://man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    try:
        for number in range(count):
            env = os.environ | shared | {OURS[2]: str(number)}
            group.members.append(
                subprocess.Popen(
                    command, env=env, start_new_session=True, preexec_fn=partial(prepare, number)
                )
            )
    except OSError as error:
        group.end()
        raise InputError(
            f"{command[0]} cannot be started: {error.strerror or error}.",
            "Check the name of the command.",
        ) from error
    return group


def _watch(group: ProcessGroup, heartbeat: float, stop: GracefulStop, report: Report) -> int:
    """Wait until all have succeeded or one has not; then end the others and report what
    happened."""
    passed_on = 0
    deadline = float("inf")
    while True:
        codes = group.codes()
        if all(code is not None for code in codes) and not any(codes):
            return 0
        # pass the signal on, and leave the processes time for a checkpoint
        if len(stop.received) > passed_on:
            number = stop.received[passed_on]
            passed_on += 1
            group.signal(number if passed_on < 3 else signal.SIGKILL)
            deadline = time.monotonic() + heartbeat + GRACE
        ended = [number for number, code in enumerate(codes) if code]
        frozen = group.frozen(heartbeat)
        if passed_on and (all(code is not None for code in codes) or time.monotonic() > deadline):
            return INTERRUPTED if any(codes) or None in codes else 0
        if (ended or frozen) and not passed_on:
            return _lost(group, report)
        time.sleep(INTERVAL)


def _lost(group: ProcessGroup, report: Report) -> int:
    """Find out which process failed first and which only followed, report it, and return the exit
    code."""
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and None in group.codes():
        time.sleep(INTERVAL)
    codes = group.codes()
    stopped = group.frozen(0)
    by_signal = {number: -code for number, code in enumerate(codes) if code and code < 0}
    killed = {number: what for number, what in by_signal.items() if what != signal.SIGABRT}
    failed = {number: code for number, code in enumerate(codes) if code and 0 < code != LOST}
    for number in stopped:
        report(f"{group.name(number)} stopped answering (it is frozen)")
    for number, what in killed.items():
        report(f"{group.name(number)} was killed by {signal.Signals(what).name}")
    if not stopped and not killed:
        # Why they failed, each reason once: in their own words, or by their exit codes. Those that
        # only followed have left a last line; JAX's runtime aborts processes that were too slow.
        own = {number: group.word(number, "failed") for number in failed}
        words = [text for text in own.values() if text]
        reasons = {text.partition(" failed: ")[2] or text: text for text in reversed(words)}
        last = [group.word(number, "last") for number in range(len(codes))]
        for reason in (
            [*reversed(reasons.values())]
            or [f"{group.name(n)} ended with exit code {failed[n]}" for n in own]
            or [text for text in last if text][:1]
            or [f"{group.name(number)} ended with SIGABRT" for number in by_signal]
        ):
            report(reason)
    running = [
        number for number, code in enumerate(codes) if code is None and number not in stopped
    ]
    if running:
        report(f"ending process {', '.join(map(str, running))}")
    return LOST if stopped or killed else next(iter(failed.values()), LOST)
