"""Under Ray: the script of the page on clusters, with two workers of which one is killed."""

import importlib.util
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import decibo
from helpers.processes import printed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
KILLED = """
import os, pathlib, signal

def fall(step, measures):
    import jax
    mark = pathlib.Path({mark!r})
    if jax.process_index() == 1 and step >= 250 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_starts_workers_and_starts_them_again(tmp_path):
    """The result is that of a simulation in one process."""
    script = next(
        block
        for block in re.findall(r"```python no-run\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "JaxTrainer(" in block
    )
    mark = tmp_path / "killed"
    changed = script.replace("/shared", str(tmp_path)).replace(
        "steps=500,", "steps=500, every=50, callbacks=[fall],"
    )
    assert changed.count(str(tmp_path)) == 2
    assert changed.count("callbacks") == 1
    file = tmp_path / "script.py"
    file.write_text(KILLED.format(mark=str(mark)) + changed)
    printed(file, JAX_ENABLE_X64="true")
    assert mark.exists()
    with jax.enable_x64(True):
        alone = decibo.solve(
            decibo.problems.quadratic(),
            decibo.ring(10),
            decibo.ahead_exact(alpha=0.05, gamma=0.1),
            steps=500,
            progress=False,
        )
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), alone.x, rtol=0, atol=1e-12)
