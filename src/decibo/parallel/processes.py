"""Several processes, one run: how they find each other, make sure that they do the same, and stop when asked to.

The transport is JAX's (gloo on CPUs, NCCL on GPUs). It is neither encrypted nor authenticated, and on CPUs every
process listens on the address that the machine's own name resolves to, even if all processes are on one machine: use a
private network.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Self

import jax
import numpy as np

from decibo.errors import InputError, UnreachableError, first_line, missing, short
from decibo.validate import at_least

LOOPBACK = "127.0.0.1"
WAIT = 30  # seconds until the others must have been found
HEARTBEAT = 30.0  # seconds of silence after which a process counts as lost


@dataclass(frozen=True)
class Launcher:
    """What the program that started this process says: where process 0 is, how many there are and which one this is."""

    name: str
    coordinator: str | None
    processes: int | None
    process: int | None
    local: bool = False  # all on this machine


def init_distributed(
    *,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    heartbeat: float | None = None,
) -> int:
    """Join the other processes of this run; call it before anything else touches JAX. Returns this process's number.

    Does nothing in a process started alone. Recognises `decibo launch`, mpiexec and srun; otherwise pass the
    coordinator as "host:port" of process 0, the number of processes and the number of this one.

    heartbeat   seconds of silence after which a process counts as lost and all others end, 30 by default

    The traffic between processes is neither encrypted nor authenticated: use a private network.
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
    launcher = Launcher("arguments", *arguments) if coordinator else find_launcher(os.environ)
    if launcher is None or launcher.processes == 1:
        return 0
    if heartbeat is None:
        heartbeat = float(os.environ.get("DECIBO_HEARTBEAT", HEARTBEAT))
    _join(launcher, at_least("heartbeat", heartbeat, 1))
    return jax.process_index()


def find_launcher(env: Mapping[str, str]) -> Launcher | None:
    """What started this process, according to its environment; None if it was started alone."""
    if "DECIBO_COORDINATOR" in env:
        address = env["DECIBO_COORDINATOR"]
        count = int(env["DECIBO_PROCESSES"])
        return Launcher("decibo launch", address, count, int(env["DECIBO_PROCESS"]), address.startswith(LOOPBACK))
    mpi = next((int(env[name]) for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if name in env), 1)
    slurm = all(name in env for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID"))
    if mpi > 1 and (_has_mpi4py() or not slurm):
        return _from_mpi()
    if slurm and int(env["SLURM_NTASKS"]) > 1:
        return Launcher("srun", None, None, None)  # JAX knows how
    return None


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
    host = LOOPBACK if local else bytes(all_names[0]).rstrip(b"\0").decode()
    return Launcher("mpiexec", f"{host}:{port[0]}", world.Get_size(), world.Get_rank(), local)


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def _join(launcher: Launcher, heartbeat: float) -> None:
    bind = launcher.coordinator if launcher.local and launcher.process == 0 else None
    if launcher.coordinator and launcher.process:
        _wait_for(launcher.coordinator)
    try:
        jax.distributed.initialize(
            launcher.coordinator,
            launcher.processes,
            launcher.process,
            initialization_timeout=WAIT,
            heartbeat_timeout_seconds=int(heartbeat),
            coordinator_bind_address=bind,
        )
    except RuntimeError as error:
        if "must be called before" in str(error):
            raise InputError(
                "JAX was used before init_distributed(), but the processes must find each other first.",
                "Call decibo.init_distributed() at the top of the script, before any array is created.",
            ) from error
        raise _unreachable(launcher.coordinator or "", first_line(error)) from error
    with _quiet():
        barrier("found each other")


def _wait_for(coordinator: str) -> None:
    """Wait until process 0 listens there. JAX would end the process without an error that could be caught."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"coordinator must be an address and a port such as 'host:1234', but it is {coordinator!r}.")
    reason = "no time"
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=WAIT).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(0.1)
    raise _unreachable(coordinator, reason)


def _unreachable(coordinator: str, reason: str) -> UnreachableError:
    return UnreachableError(
        f"There was no answer from the coordinator {coordinator} within {WAIT} s ({reason}), but all processes must "
        "start within that time and reach process 0. Check that process 0 is running and that its port is not blocked."
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """What the transport prints when it connects goes to standard error: standard output is the user's."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def barrier(name: str) -> None:
    """Wait until all processes have come here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def all_gather(values: np.ndarray) -> np.ndarray:
    """The values of every process, one row for each."""
    if jax.process_count() == 1:
        return np.asarray(values)[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.asarray(values)))


def check_same(fields: Mapping[str, object], failure: InputError | None = None) -> None:
    """Raise unless all processes have the same fields and none of them has failed.

    Every process must come here, even one that failed, or the others would wait for it; its own failure is raised.
    """
    digests = [hashlib.sha256(str(value).encode()).digest()[:4] for value in fields.values()]
    numbers = [int.from_bytes(digest, "big") for digest in digests]
    votes = all_gather(np.array([*numbers, failure is not None], np.uint32))
    if failure is not None:
        raise failure
    failed = np.flatnonzero(votes[:, -1])
    if failed.size:
        raise InputError(f"Process {failed[0]} failed to start; see its error message.")
    for column, (name, value) in enumerate(fields.items()):
        others = np.flatnonzero(votes[:, column] != votes[0, column])
        if others.size:
            listed = ", ".join(map(str, others))
            raise InputError(
                f"{name} differs between processes, but all processes of a run must have the same: process "
                f"{jax.process_index()} has {short(value)}, and process {listed} something else than process 0.",
                "Start every process with the same configuration and program.",
            )


class GracefulStop:
    """Inside `with GracefulStop() as stop`, Ctrl-C and SIGTERM set `stop.requested` instead of ending the process.

    patience   how many signals are only recorded; the next Ctrl-C then raises KeyboardInterrupt. With 0 either signal
               raises it at once, and with None nothing ever does.

    Previous handlers are restored at the end. Outside the main thread, where Python allows none, nothing happens.
    """

    def __init__(self, patience: int | None = 1) -> None:
        self.patience = patience
        self.received: list[int] = []
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> str | None:
        """The name of the first signal, None as long as there was none."""
        return signal.Signals(self.received[0]).name if self.received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not installed from Python
        self._previous.clear()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if self.patience is None or len(self.received) <= self.patience:
            return
        if number == signal.SIGINT or self.patience == 0:
            raise KeyboardInterrupt
