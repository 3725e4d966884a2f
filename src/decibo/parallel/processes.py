"""Several processes, one run: how they find each other, make sure that they do the same, and stop
when asked to.

How they end together if one of them fails is in failure_detection.py. The transport is JAX's (gloo on CPUs,
NCCL on GPUs). It is not encrypted, and on CPUs every process listens on the address that the
machine's own name resolves to, even if all processes are on one machine: use a private network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self, TypeVar

import jax
import numpy as np

from decibo.errors import InputError, LostError, first_line, missing, short
from decibo.formatting import Json
from decibo.parallel import failure_detection
from decibo.parallel.hub import WAIT, describe
from decibo.validate import at_least, integer

LOOPBACK = "127.0.0.1"
HEARTBEAT = 30.0  # seconds of silence after which a process counts as lost
LONGEST = 86400.0  # a day
SLACK = 10  # seconds after which JAX's runtime finds out by itself what the watch has missed
OURS = ("DECIBO_COORDINATOR", "DECIBO_PROCESSES", "DECIBO_PROCESS")
SECRET = "DECIBO_SECRET"
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Launcher:
    """What the program that started this process says: where process 0 is, how many there are and
    which one this is."""

    name: str
    coordinator: str
    processes: int
    process: int
    local: bool = False  # all on this machine
    secret: str = ""  # what only the processes of this run know


def init_distributed(
    *,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    heartbeat: float | None = None,
) -> int:
    """Join the other processes of this run; call it before anything else touches JAX. Returns this
    process's number.

    Does nothing in a process started alone. Recognises `decibo launch`, mpiexec and srun; otherwise
    pass the coordinator as "host:port" of process 0, the number of processes and the number of this
    one.

    heartbeat   seconds of silence after which a process counts as lost, 30 by default

    From then on the processes end together: after an exception, a kill or a crash in one of them,
    all others print the reason and end with exit code 71. The traffic is not encrypted: use a
    private network.
    """
    if jax.distributed.is_initialized():
        return jax.process_index()
    arguments = (coordinator, processes, process)
    if arguments != (None, None, None) and None in arguments:
        raise InputError(
            "coordinator, processes and process belong together, but they are "
            f"{coordinator!r}, {processes!r} and {process!r}.",
            "Pass all three, or none under decibo launch, mpiexec or srun.",
        )
    if coordinator is None:
        launcher = find_launcher(os.environ)
    else:
        count = integer("processes", processes)
        number = integer("process", process, least=0)
        launcher = Launcher(
            "arguments", coordinator, count, number, secret=os.environ.get(SECRET, "")
        )
    if launcher is None or launcher.processes == 1:
        return 0
    if launcher.process >= launcher.processes:
        raise InputError(
            f"process must be below processes = {launcher.processes}, but it is {launcher.process}."
        )
    if heartbeat is None:
        heartbeat = _number(os.environ, "DECIBO_HEARTBEAT", float, HEARTBEAT)
    _join(launcher, seconds(heartbeat))
    return jax.process_index()


def seconds(heartbeat: float) -> float:
    """The heartbeat timeout, if it is one."""
    if at_least("heartbeat", heartbeat, 1) > LONGEST:
        raise InputError(
            f"heartbeat must be at most {LONGEST:.0f} seconds (a day), but it is {heartbeat:g}."
        )
    return float(heartbeat)


def find_launcher(env: Mapping[str, str]) -> Launcher | None:
    """What started this process, according to its environment; None if it was started alone."""
    given = [name for name in OURS if name in env]
    if given:
        missing_names = [name for name in OURS if name not in env]
        if missing_names:
            raise InputError(
                f"{', '.join(given)} is set in the environment but {', '.join(missing_names)} is"
                " not, and they belong together.",
                "Start the processes with decibo launch, or unset all three.",
            )
        address = env[OURS[0]]
        count = _number(env, OURS[1], int)
        return Launcher(
            "decibo launch",
            address,
            count,
            _number(env, OURS[2], int),
            address.startswith(LOOPBACK),
            env.get(SECRET, ""),
        )
    mpi = next(
        (_number(env, name, int) for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if name in env), 1
    )
    slurm = all(
        name in env
        for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID")
    )
    if mpi > 1 and (_has_mpi4py() or not slurm):
        return _from_mpi()
    if slurm and _number(env, "SLURM_NTASKS", int) > 1:
        return _from_slurm(env)
    return None


def _number(
    env: Mapping[str, str], name: str, kind: type[Number], default: Number | None = None
) -> Number:
    """A number from the environment."""
    if name not in env and default is not None:
        return default
    try:
        return kind(env[name])
    except ValueError as error:
        rule = "an integer" if kind is int else "a number"
        raise InputError(
            f"The environment variable {name} must be {rule}, but it is {short(repr(env[name]))}.",
            "Unset it, or let the launcher set it.",
        ) from error


def _from_slurm(env: Mapping[str, str]) -> Launcher:
    """Process 0 is on the first of the nodes, as in 'node[001,007-015],host2', and the port follows
    from the job."""
    first = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", env["SLURM_STEP_NODELIST"])
    host = "".join(part or "" for part in first.groups()) if first else ""
    port = _number(env, "SLURM_JOB_ID", int) % 2**12 + 2**16 - 2**12
    count = _number(env, "SLURM_NTASKS", int)
    return Launcher(
        "srun",
        f"{host}:{port}",
        count,
        _number(env, "SLURM_PROCID", int),
        secret=env.get(SECRET, ""),
    )


def _has_mpi4py() -> bool:
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None


def _from_mpi() -> Launcher:
    """Ask MPI once for the numbers and an address; everything else goes through JAX."""
    if not _has_mpi4py():
        raise missing("mpi4py", "A run under mpiexec", "mpi")
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]  (an extra)

    world = MPI.COMM_WORLD
    here = np.zeros(256, np.uint8)
    name = socket.gethostname().encode()[:256]
    here[: len(name)] = np.frombuffer(name, np.uint8)
    all_names = np.zeros((world.Get_size(), 256), np.uint8)
    world.Allgather(here, all_names)  # arrays only: nothing is unpickled
    local = bool((all_names == all_names[0]).all())
    port = np.array([free_port() if world.Get_rank() == 0 else 0])
    world.Bcast(port, root=0)
    secret = np.frombuffer(secrets.token_bytes(32), np.uint8).copy()
    world.Bcast(secret, root=0)
    host = LOOPBACK if local else bytes(all_names[0]).rstrip(b"\0").decode()
    return Launcher(
        "mpiexec",
        f"{host}:{port[0]}",
        world.Get_size(),
        world.Get_rank(),
        local,
        bytes(secret).hex(),
    )


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def _join(launcher: Launcher, heartbeat: float) -> None:
    host, _, port = launcher.coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(
            "coordinator must be an address and a port such as 'host:1234', but it is"
            f" {launcher.coordinator!r}."
        )
    bind = LOOPBACK if launcher.local else ""
    number = failure_detection.join(
        launcher.coordinator,
        launcher.processes,
        launcher.process,
        launcher.secret,
        heartbeat,
        bind,
        free_port,
    )
    coordinator = f"{host}:{number}"
    if launcher.process:  # JAX would end the process without an error that could be caught
        failure_detection.connect(host, number).close()
    try:
        jax.distributed.initialize(
            coordinator,
            launcher.processes,
            launcher.process,
            initialization_timeout=int(WAIT),
            heartbeat_timeout_seconds=int(heartbeat) + SLACK,
            shutdown_timeout_seconds=int(heartbeat) + SLACK,
            coordinator_bind_address=(
                coordinator if launcher.local and launcher.process == 0 else None
            ),
        )
    except RuntimeError as error:
        if "must be called before" in str(error):
            raise InputError(
                "JAX was used before init_distributed(), but the processes must find each other"
                " first.",
                "Call decibo.init_distributed() at the top of the script, before any array is"
                " created.",
            ) from error
        raise failure_detection.unreachable(coordinator, first_line(error)) from error
    with _quiet():
        barrier("found each other")
    failure_detection.left_start()


@contextmanager
def _quiet() -> Iterator[None]:
    """What the transport prints when it connects is not shown: standard output is the user's."""
    sys.stdout.flush()
    output = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    try:
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def barrier(name: str) -> None:
    """Wait until all processes have come here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        with failure_detection.inside():
            multihost_utils.sync_global_devices(name)


def all_gather(values: np.ndarray) -> np.ndarray:
    """The values of every process, one row for each."""
    if jax.process_count() == 1:
        return np.asarray(values)[None]
    from jax.experimental import multihost_utils

    with failure_detection.inside():
        return np.asarray(multihost_utils.process_allgather(np.asarray(values)))


def share(value: Json) -> list[Any]:
    """What each process passes, in their order: a few numbers and words, as JSON. All processes
    call it together."""
    content = json.dumps(value).encode()
    longest = int(all_gather(np.array([len(content)], np.int32)).max())
    rows = all_gather(np.frombuffer(content.ljust(longest), np.uint8))
    return [json.loads(bytes(row.astype(np.uint8))) for row in rows]


def check_same(fields: Mapping[str, object], failure: Exception | None = None) -> None:
    """Raise unless all processes have the same fields and none of them has failed.

    Every process must come here, even one that failed, or the others would wait for it; its own
    failure is raised there, and a LostError with the same sentence in all others.
    """
    digests = [hashlib.sha256(str(value).encode()).digest()[:4] for value in fields.values()]
    numbers = [int.from_bytes(digest, "big") for digest in digests]
    votes = all_gather(np.array([*numbers, failure is not None], np.uint32))
    failed = np.flatnonzero(votes[:, -1])
    if failed.size:
        reasons = all_gather(_padded("" if failure is None else failure_detection.summary(failure)))
        if failure is not None:
            raise failure
        words = bytes(reasons[failed[0]].astype(np.uint8)).rstrip(b"\0").decode("utf-8", "replace")
        raise LostError(f"{describe(int(failed[0]))} failed: {words}")
    for column, (name, value) in enumerate(fields.items()):
        others = np.flatnonzero(votes[:, column] != votes[0, column])
        if others.size:
            listed = ", ".join(map(str, others))
            raise InputError(
                f"{name} differs between processes, but all processes of a run must have the same:"
                f" process {jax.process_index()} has {short(value)}, and in process {listed} it is"
                " not what it is in process 0.",
                "Start every process with the same configuration and program.",
            )


def _padded(text: str, length: int = 500) -> np.ndarray:
    """Text as an array of one length, so that all processes can share it."""
    content = text.encode("utf-8", "replace")[:length]
    return np.frombuffer(content.ljust(length, b"\0"), np.uint8)


class GracefulStop:
    """Inside `with GracefulStop() as stop`, Ctrl-C and SIGTERM set `stop.requested` instead of
    ending the process.

    patience   how many signals are only recorded; the next Ctrl-C then raises KeyboardInterrupt.
               With 0 either signal raises it at once, and with None nothing ever does.

    Previous handlers are restored at the end. Outside the main thread, where Python allows none,
    nothing happens. Python drops an exception that is raised while it collects garbage. No request
    is lost that way: a block inside another one begins with what the outer one has received, and
    without patience the block ends in KeyboardInterrupt.
    """

    active: ClassVar[list[GracefulStop]] = []

    def __init__(self, patience: int | None = 1) -> None:
        self.patience = patience
        self.received: list[int] = []
        self._inherited = 0  # how many of them the block around this one had received before
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> str | None:
        """The name of the first signal, None as long as there was none."""
        return signal.Signals(self.received[0]).name if self.received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.received += GracefulStop.active[-1].received if GracefulStop.active else []
            self._inherited = len(self.received)
            GracefulStop.active.append(self)
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            # None: not installed from Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._previous:
            GracefulStop.active.remove(self)
            self._previous.clear()
            if self.patience == 0 and self.received and error is None:
                raise KeyboardInterrupt

    def pass_on(self) -> None:
        """Leave what came too late for this block to the block around it, if there is one."""
        around = [stop for stop, inside in pairwise(GracefulStop.active) if inside is self]
        for stop in around:
            stop.received += self.received[self._inherited :]
        self._inherited = len(self.received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if self.patience is None or len(self.received) <= self.patience:
            return
        if number == signal.SIGINT or self.patience == 0:
            raise KeyboardInterrupt
