"""Write checkpoints one after another in a child, kill it at a random moment, look at what is left;
many times."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from decibo.run import checkpoint_files
from decibo.run.lock import hold


def write(folder: Path, step: int) -> None:
    rows = {"a": np.full((6, 20_000), float(step)), "b": np.arange(6) + step}
    with hold(folder) as lock:
        checkpoint_files.write(
            folder,
            step,
            np.arange(6),
            rows,
            {"step": np.array([step])},
            {"fingerprint": {"run": "a"}, "software": {}, "plan": {}},
            lock=lock,
            leader=True,
            barrier=lambda _: None,
            keep=2,
        )


def forever(folder: Path, first: int) -> None:
    for step in range(first, 10**7):
        write(folder, step)


def drafts(folder: Path, before: set[Path]) -> set[Path]:
    """Checkpoints that are being written, or were when their writer was killed."""
    new = set(folder.iterdir()) - before
    return {path for path in new if path.name.startswith(checkpoint_files.WRITING)}


def main() -> None:
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    write(folder, 1)
    drawn, middle, unusable, last = random.Random(0), 0, 0, 1
    for _ in range(kills):
        before = set(folder.iterdir())
        child = os.fork()
        if child == 0:
            forever(folder, last + 1)
        # On a busy machine a child may need long until it begins; and drafts of those that were
        # killed before stay until a later one is complete.
        deadline = time.monotonic() + 10
        while not drafts(folder, before) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05 * drawn.random())
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the child failed before it was killed"
        middle += bool(drafts(folder, before))
        try:
            saved = checkpoint_files.newest(folder, lambda saved: saved)
            assert saved is not None
            rows = saved.rows(np.arange(6))
            good = (
                saved.step >= last
                and (rows["a"] == saved.step).all()
                and rows["b"][0] == saved.step
            )
            good = good and saved.shared()["step"] == [saved.step]
            last = saved.step
        except Exception:
            good = False
        unusable += not good
    print(
        json.dumps({"kills": kills, "in the middle": middle, "unusable": unusable, "steps": last})
    )


if __name__ == "__main__":
    main()
