"""A small run in which one process fails at a chosen stage.

python tests/parallel/_failing.py STAGE VICTIM FOLDER [PORT PROCESSES PROCESS [guest]]

Writes the time of the failure to FOLDER/event. With a port, the processes find each other by
arguments; a guest's are connected by JAX before decibo is asked.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path

stage, victim, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
by_hand = [int(word) for word in sys.argv[4:7]]
number = by_hand[2] if by_hand else int(os.environ["DECIBO_PROCESS"])


def at(place: str) -> bool:
    """Whether this process is to fail here; notes when it does."""
    if stage != place or number != victim or (folder / "event").exists():
        return False
    (folder / "event").write_text(str(time.time()))
    return True


if at("import"):
    raise KeyError("import")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import decibo  # noqa: E402

if by_hand:
    host = f"127.0.0.1:{by_hand[0]}"
    if "guest" in sys.argv[7:]:
        jax.distributed.initialize(host, by_hand[1], by_hand[2])
        assert decibo.init_distributed(heartbeat=6) == number
    else:
        run = {"coordinator": host, "processes": by_hand[1], "process": by_hand[2]}
        decibo.init_distributed(**run, heartbeat=6)
else:
    decibo.init_distributed()


def data(agent: int) -> dict[str, np.ndarray]:
    if at("loading"):
        raise KeyError("label")
    if at("kill while loading"):
        os.kill(os.getpid(), signal.SIGKILL)
    if at("freeze while loading"):
        os.kill(os.getpid(), signal.SIGSTOP)
    at("nan in data")
    spoilt = stage == "nan in data" and number == victim
    return {"b": np.full(3, np.nan if spoilt else float(agent))}


def outer(x: jax.Array, y: jax.Array, d: dict) -> jax.Array:
    if at("objective"):
        raise ZeroDivisionError("objective")
    return 0.5 * ((y - d["b"]) ** 2).sum()


def inner(x: jax.Array, y: jax.Array, d: dict) -> jax.Array:
    return 0.5 * ((y - x) ** 2).sum()


def spread(snapshot: decibo.Snapshot) -> jax.Array:
    if at("measure"):
        raise ValueError("measure")
    return jnp.zeros(())


def full(handle: int) -> None:
    """What a full disk does at the latest when a file is flushed to it."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def progress(step: int, steps: int, latest: dict) -> None:
    time.sleep(0.05)
    if step < 30:
        return
    if at("callback"):
        raise RuntimeError("callback")
    if at("full disk"):
        os.fsync = full
    for name in ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGTERM"):
        if at(name):
            os.kill(os.getpid(), getattr(signal, name))
    if at("sys.exit"):
        sys.exit(5)
    if at("os._exit"):
        os._exit(5)


if at("before the run"):
    raise LookupError("before")
problem = decibo.Problem(outer, inner, data, np.zeros(3), np.zeros(3), agents=8)
solution = decibo.solve(
    problem,
    decibo.ring(8),
    decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1),
    steps=200 if not at("other arguments") else 201,
    every=5,
    measures=["consensus_x", spread],
    progress=progress,
    checkpoint=decibo.Checkpoints(folder / "checkpoints", every=20),
)
if at("finishing"):
    raise KeyError("finishing")
print(solution.status)
