"""Run in two processes with checkpoints: records all that leaves the process besides the compiled
program's messages.

python tests/parallel/_sent.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from jax.experimental import multihost_utils

import decibo
from decibo.parallel import failure_detection, hub

folder = Path(sys.argv[1])
sent: list[tuple[str, bytes]] = []
gather = multihost_utils.process_allgather


def process_allgather(values: np.ndarray, *rest: object, **more: object) -> np.ndarray:
    """As JAX's, but written down, under the name of the function of decibo's that wanted it."""
    frame = sys._getframe(1)
    while frame.f_code.co_name == "all_gather" or "decibo" not in frame.f_globals["__name__"]:
        frame = frame.f_back
    sent.append((frame.f_code.co_name, np.asarray(values).tobytes()))
    return gather(values, *rest, **more)


def send(line: object, message: dict[str, object]) -> None:
    """As the hub's, but written down."""
    sent.append((next(iter(message)), json.dumps(message).encode()))
    original(line, message)


original = failure_detection.send
failure_detection.send = send
multihost_utils.process_allgather = process_allgather
me = decibo.init_distributed()
secret = {agent: np.random.default_rng([agent, 7]).normal(size=3) for agent in range(4)}


def data(agent: int) -> dict[str, np.ndarray]:
    return {"b": secret[agent]}


problem = decibo.Problem(
    lambda x, y, d: 0.5 * ((y - d["b"]) ** 2).sum(),
    lambda x, y, d: 0.5 * ((y - x) ** 2).sum(),
    data,
    np.zeros(3),
    np.zeros(3),
    agents=4,
)
method = decibo.methods.sldbo(alpha=0.02, beta=0.1, gamma=0.1)
decibo.solve(
    problem,
    decibo.ring(4),
    method,
    steps=20,
    checkpoint=decibo.Checkpoints(folder / "kept", every=10),
)
names = sorted({name for name, _ in sent})
content = b"".join(payload for _, payload in sent)
rows = [np.asarray(row, kind) for row in secret.values() for kind in (np.float32, np.float64)]
leaked = sum(number.tobytes() in content for row in rows for number in row)
(folder / f"{me}.json").write_text(
    json.dumps({"names": names, "leaked": leaked, "bytes": len(content)})
)
assert hub.describe(me).endswith("(agents 0 to 1)" if me == 0 else "(agents 2 to 3)")
