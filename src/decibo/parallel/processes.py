"""Several processes, one run: how they find each other and make sure that they do the same.

How they end together if one of them fails is in failure_detection.py. The transport is JAX's (gloo
on CPUs, NCCL on GPUs). It is not encrypted, and gloo listens on the address that the machine's own
name resolves to (https://github.com/pytorch/gloo/issues/223), even if all processes are on one
machine: use a private network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

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
SLACK = 10  # seconds more until JAX's runtime finds a failure that was not detected here
OURS = ("DECIBO_COORDINATOR", "DECIBO_PROCESSES", "DECIBO_PROCESS")
SECRET = "DECIBO_SECRET"
# Who sets them, and where each has: the host, the port, how many processes, and which one this is.
CLUSTERS = (
    ("torchrun", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),  # SageMaker, PyTorchJob too
    ("Kubernetes", "JAX_COORDINATOR_ADDRESS", "", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("Kubernetes", "JAX_COORDINATOR_ADDRESS", "", "JAX_NUM_PROCESSES", "JOB_COMPLETION_INDEX"),
    ("JAXJob", "COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID"),
    ("GKE", "TPU_WORKER_HOSTNAMES", "", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"),
)
PORT = 8482  # where an address has none; the one that JAX takes on TPUs
HIGH = 2**16 - 2**12  # ports from here on are not given to programs that ask for any
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Launcher:
    """From the program that started this process: where process 0 is, how many there are, and which
    one this is."""

    name: str
    coordinator: str
    processes: int
    process: int
    local: bool = False  # all on this machine
    secret: str = ""  # known to the processes of this run only
    device: int | None = None  # the only one for this process, where JAX cannot find out itself


def init_distributed(
    *,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    heartbeat: float | None = None,
) -> int:
    """Join the other processes of this run; call it before anything else touches JAX. Returns this
    process's number.

    Does nothing in a process started alone. Recognises `decibo launch`, mpiexec, srun, torchrun and
    what sets the variables of torchrun, Kubeflow, Kubernetes or GKE; otherwise pass the coordinator
    as "host:port" of process 0, the number of processes and the number of this one. Where
    jax.distributed is initialised already, its processes are used, and watched if heartbeat is
    given.

    heartbeat   seconds of silence after which a process counts as lost, 30 by default

    From then on the processes end together: after an exception, a kill or a crash in one of them,
    all others print the reason and end with exit code 71. The traffic is not encrypted: use a
    private network.
    """
    wait = _number(os.environ, "DECIBO_WAIT", float, WAIT)
    if jax.distributed.is_initialized():
        if heartbeat is not None and jax.process_count() > 1 and not failure_detection.is_watched():
            _watch(seconds(heartbeat), wait)
        return jax.process_index()
    arguments = (coordinator, processes, process)
    if arguments != (None, None, None) and None in arguments:
        raise InputError(
            "coordinator, processes and process belong together, but they are "
            f"{coordinator!r}, {processes!r} and {process!r}.",
            "Pass all three, or none under decibo launch, mpiexec, srun or torchrun.",
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
    _join(launcher, seconds(heartbeat), wait)
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
        absent = [name for name in OURS if name not in env]
        if absent:
            raise InputError(
                f"{', '.join(given)} is set in the environment but {', '.join(absent)} is"
                " not, and they belong together.",
                "Start the processes with decibo launch, or unset all three.",
            )
        address = env[OURS[0]]
        count, process = (_number(env, name, int) for name in OURS[1:])
        local = address.startswith(LOOPBACK)
        return Launcher("decibo launch", address, count, process, local, env.get(SECRET, ""))
    # Before MPI and Slurm, since srun or mpiexec may have started a torchrun on each machine.
    for name, host_at, port_at, count_at, process_at in CLUSTERS:
        if not {host_at, count_at, process_at} <= env.keys():
            continue
        hosts = env[host_at].split(",")
        count = len(hosts) if count_at == host_at else _number(env, count_at, int)
        if count > 1:
            port = _number(env, port_at, int, PORT)
            address = hosts[0] if not port_at and ":" in hosts[0] else f"{hosts[0]}:{port}"
            local = False
            device = None
            if "TORCHELASTIC_RUN_ID" in env:
                # torchrun itself listens at MASTER_PORT: another port follows from it.
                here = _number(env, "LOCAL_WORLD_SIZE", int, 1)
                local = here == count
                address = f"{LOOPBACK if local else hosts[0]}:{HIGH + port % 2**12}"
                device = _number(env, "LOCAL_RANK", int, 0) if here > 1 else None
            process = _number(env, process_at, int)
            return Launcher(name, address, count, process, local, env.get(SECRET, ""), device)
    sizes = [name for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if name in env]
    slurm = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID")
    has_slurm = all(name in env for name in slurm)
    # srun sets PMI_SIZE too: without mpi4py its own variables have to do.
    if sizes and _number(env, sizes[0], int) > 1 and (find_spec("mpi4py") or not has_slurm):
        return _from_mpi()
    if not has_slurm or _number(env, "SLURM_NTASKS", int) <= 1:
        return None
    # Process 0 is on the first of the nodes, as in 'node[001,007-015],host2', and the port follows
    # from the job.
    first = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", env["SLURM_STEP_NODELIST"])
    host = "".join(part or "" for part in first.groups()) if first else ""
    job, count, process = (
        _number(env, f"SLURM_{name}", int) for name in ("JOB_ID", "NTASKS", "PROCID")
    )
    address = f"{host}:{HIGH + job % 2**12}"
    return Launcher("srun", address, count, process, secret=env.get(SECRET, ""))


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


def _from_mpi() -> Launcher:
    """Ask MPI once for the numbers and an address; everything else goes through JAX."""
    if not find_spec("mpi4py"):
        raise missing("mpi4py", "A run under mpiexec", "mpi")
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]  (an extra)

    world = MPI.COMM_WORLD
    here = _padded(socket.gethostname(), 256)
    all_names = np.zeros((world.Get_size(), 256), np.uint8)
    world.Allgather(here, all_names)  # arrays only: nothing is unpickled
    local = bool((all_names == all_names[0]).all())
    port = np.array([free_port() if world.Get_rank() == 0 else 0])
    world.Bcast(port, root=0)
    secret = np.frombuffer(secrets.token_bytes(32), np.uint8).copy()
    world.Bcast(secret, root=0)
    host = LOOPBACK if local else bytes(all_names[0]).rstrip(b"\0").decode()
    numbers = world.Get_size(), world.Get_rank()
    return Launcher("mpiexec", f"{host}:{port[0]}", *numbers, local, bytes(secret).hex())


def free_port() -> int:
    """A port that is free at the moment."""
    # Another program may take it before JAX does, which has no way to be handed an open socket.
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def _join(launcher: Launcher, heartbeat: float, wait: float) -> None:
    host, _, port = launcher.coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(
            "coordinator must be an address and a port such as 'host:1234', but it is"
            f" {launcher.coordinator!r}."
        )
    numbers = launcher.processes, launcher.process
    bind = LOOPBACK if launcher.local else ""
    number = failure_detection.join(
        launcher.coordinator, *numbers, launcher.secret, heartbeat, bind, free_port, wait
    )
    coordinator = f"{host}:{number}"
    if launcher.process:
        # If JAX cannot reach its coordinator, its runtime aborts the process (LOG(FATAL) in C++),
        # and there is no error to catch: try the address first.
        failure_detection.connect(host, number, wait).close()
    try:
        jax.distributed.initialize(
            coordinator,
            *numbers,
            None if launcher.device is None else [launcher.device],
            # On Kubernetes JAX would ask the cluster's API for what the environment says.
            "deactivate" if launcher.name in {row[0] for row in CLUSTERS} else None,
            initialization_timeout=int(wait) + 1,
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
        raise failure_detection.unreachable(coordinator, first_line(error), wait) from error
    # gloo prints "Rank 0 is connected to ..." when it connects, which is at the first barrier
    # (https://github.com/jax-ml/jax/issues/32673), but standard output belongs to the user.
    sys.stdout.flush()
    output = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    try:
        barrier("found each other")
    finally:
        os.dup2(output, 1)
        os.close(output)
    failure_detection.left_start()


def _watch(heartbeat: float, wait: float) -> None:
    """Watch processes that something else has connected; process 0 says where it listens."""
    rows = share([socket.gethostname(), free_port(), secrets.token_hex(32)])
    host, port, secret = rows[0]
    local = all(row[0] == host for row in rows)
    address, bind = (f"{LOOPBACK}:{port}", LOOPBACK) if local else (f"{host}:{port}", "")
    numbers = jax.process_count(), jax.process_index()
    failure_detection.join(address, *numbers, secret, heartbeat, bind, free_port, wait)
    failure_detection.left_start()


def barrier(name: str) -> None:
    """Wait until all processes have called this."""
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
    """The values of all processes, in their order: a few numbers and words, as JSON. All processes
    call it together."""
    content = json.dumps(value).encode()
    longest = int(all_gather(np.array([len(content)], np.int32)).max())
    # process_allgather wants one shape everywhere, and JSON does not mind blanks at its end.
    rows = all_gather(np.frombuffer(content.ljust(longest), np.uint8))
    return [json.loads(bytes(row.astype(np.uint8))) for row in rows]


def check_same(fields: Mapping[str, object], failure: Exception | None = None) -> None:
    """Raise unless all processes have the same fields and none of them has failed.

    Every process must call it, even one that failed, or the others would wait for it; its own
    failure is raised there, and a LostError with the same sentence in all others.
    """
    # 32 bits of each: JAX makes 32-bit numbers of longer ones unless jax_enable_x64 is set.
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
        if (votes[:, column] != votes[0, column]).any():
            # All are here, since all have these votes. One sentence for all, or a supervisor that
            # reads it from each would take it for several failures.
            shown = share(short(value))
            first = int(np.flatnonzero(votes[:, column] != votes[0, column])[0])
            raise InputError(
                f"{name} differs between processes, but all processes of a run must have the same:"
                f" process 0 has {shown[0]}, and process {first} has {shown[first]}.",
                "Start every process with the same configuration and program.",
            )


def _padded(text: str, length: int = 500) -> np.ndarray:
    """Text as an array of one length, so that all processes can share it."""
    content = text.encode("utf-8", "replace")[:length]
    return np.frombuffer(content.ljust(length, b"\0"), np.uint8)
