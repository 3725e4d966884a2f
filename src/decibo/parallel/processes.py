"""Several processes, one run: how they find each other, and how they make sure that they do the same.

The transport is JAX's (gloo on CPUs, NCCL on GPUs). It is neither encrypted nor authenticated: use a private network.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from decibo.errors import InputError, first_line, short

LOOPBACK = "127.0.0.1"
WAIT = 30  # seconds until the others must have been found
HEARTBEAT = 30.0  # seconds of silence after which a process counts as lost


@dataclass(frozen=True)
class Launcher:
    """What whoever started this process says: where process 0 is, how many there are and which one this is."""

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

    Does nothing in a process started alone. Finds `decibo launch`, mpiexec and srun by itself; otherwise give the
    coordinator as "host:port" of process 0, the number of processes and this one's.

    heartbeat   seconds of silence after which a process counts as lost and all others end, 30 unless given
    """
    if jax.distributed.is_initialized():
        return jax.process_index()
    given = coordinator, processes, process
    if any(each is not None for each in given) and None in given:
        raise InputError(
            f"coordinator={coordinator!r}, processes={processes!r}, process={process!r}",
            "these belong together",
            "Give all three, or none under decibo launch, mpiexec or srun.",
        )
    launcher = Launcher("arguments", *given) if coordinator else find_launcher(os.environ)
    if launcher is None or launcher.processes == 1:
        return 0
    silence = float(os.environ.get("DECIBO_HEARTBEAT", HEARTBEAT)) if heartbeat is None else heartbeat
    if not (np.isfinite(silence) and silence >= 1):
        raise InputError(f"heartbeat = {silence!r}", "it must be at least 1 second", "Give 30, for example.")
    _join(launcher, silence)
    return jax.process_index()


def find_launcher(env: Mapping[str, str]) -> Launcher | None:
    """Who started this process, as its environment tells; None if it was started alone."""
    if "DECIBO_COORDINATOR" in env:
        address, count, number = (env[f"DECIBO_{name}"] for name in ("COORDINATOR", "PROCESSES", "PROCESS"))
        return Launcher("decibo launch", address, int(count), int(number), address.startswith(LOOPBACK))
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
    """Ask MPI once for numbers and an address; all else goes over JAX."""
    if not _has_mpi4py():
        raise InputError(
            "several processes were started by mpiexec, and mpi4py is missing",
            "it tells the processes where to find each other",
            "pip install 'decibo[mpi]', or use decibo launch.",
        )
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
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


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
                "JAX was used before init_distributed()",
                "processes must find each other first",
                "Call decibo.init_distributed() at the top of the script, before making arrays.",
            ) from error
        raise _absent(launcher.coordinator or "", first_line(error)) from error
    if launcher.local:
        _stay_local()
    with _quiet():
        barrier("found each other")


def _wait_for(coordinator: str) -> None:
    """Wait until somebody listens there. JAX would end the process without an error that could be caught."""
    host, _, port = coordinator.rpartition(":")
    until, reason = time.monotonic() + WAIT, "no time"
    while time.monotonic() < until:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=WAIT).close()
            return
        except ValueError:
            raise InputError(
                f"coordinator = {coordinator!r}", "it must be an address and a port", "Give 'host:1234'."
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(0.1)
    raise _absent(coordinator, reason)


def _absent(coordinator: str, reason: str) -> InputError:
    return InputError(
        f"no answer from the coordinator {coordinator} within {WAIT} s ({reason})",
        "all processes must start within that time and reach process 0",
        "Check that process 0 is running and its port is not blocked.",
    )


def _stay_local() -> None:
    """Let gloo listen on the loopback address only. JAX has no public setting for this."""
    try:
        from jax._src import distributed, xla_bridge
        from jaxlib import _jax  # type: ignore[attr-defined]

        make = lambda: xla_bridge.make_cpu_client(
            _jax.make_gloo_tcp_collectives(distributed.global_state.client, hostname=LOOPBACK)  # type: ignore
        )
        xla_bridge.register_backend_factory("cpu", make, priority=0, fail_quietly=False)
    except (ImportError, AttributeError, TypeError):  # another version of JAX: gloo takes the host name's address
        pass


@contextmanager
def _quiet() -> Iterator[None]:
    """Whatever the transport prints when it connects goes to standard error: output is the user's."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def barrier(name: str) -> None:
    """Wait until all processes are here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def agreed(values: np.ndarray) -> np.ndarray:
    """What every process says, a row for each."""
    if jax.process_count() == 1:
        return np.asarray(values)[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(np.asarray(values)))


def same_everywhere(fields: Mapping[str, Any], failed: InputError | None = None) -> None:
    """Make sure that all processes were given the same, and that none of them has failed already.

    Every process must come here, also one that failed, or the others would wait for it.
    """
    names = [*fields]
    digests = [hashlib.sha256(str(fields[name]).encode()).digest()[:4] for name in names]
    mine = np.array([int.from_bytes(digest, "big") for digest in digests] + [failed is not None], np.uint32)
    said = agreed(mine)
    if failed is not None:
        raise failed
    lost = np.flatnonzero(said[:, -1])
    if lost.size:
        raise InputError(
            f"process {lost[0]} could not start", "all processes must be able to start", "Read its message."
        )
    for number, name in enumerate(names):
        other = np.flatnonzero(said[:, number] != said[0, number])
        if other.size:
            listed = ", ".join(map(str, other))
            raise InputError(
                f"{name} differs: process {jax.process_index()} has {short(fields[name])}, and process "
                f"{listed} not the same as process 0",
                "all processes of a run must be given the same",
                "Start every process with the same configuration and program.",
            )
