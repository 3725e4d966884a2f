"""Parameters of flax, equinox and haiku as they are: the blocks of the page make y0 and scores, and
steps keep them."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import decibo

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "deep_learning.md"
BLOCKS = re.findall(r"^```python no-run\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
LIBRARIES = {"flax.linen": "import flax.linen", "flax.nnx": "from flax import nnx", "equinox": "import equinox",
             "haiku": "import haiku"}  # fmt: skip
AGENTS, IMAGES = 2, 12


def shown(line):
    """y0 and scores of the block that begins with this line."""
    (block,) = [each for each in BLOCKS if each.startswith(line)]
    names = {"jax": jax, "jnp": jnp}
    exec(compile(block, str(PAGE), "exec"), names)  # as a reader would paste it
    return names["y0"], names["scores"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_of_models_keeps_its_parameters(library):
    pytest.importorskip(library)
    y0, scores = shown(LIBRARIES[library])

    def loss(x, y, d):
        return jnp.mean(
            optax.softmax_cross_entropy_with_integer_labels(scores(y, d["images"]), d["digits"])
        )

    def inner(x, y, d):
        return loss(x, y, d) + jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))

    random = np.random.default_rng(0)
    data = {"images": random.normal(size=(AGENTS, IMAGES, 64)).astype(np.float32),
            "digits": random.integers(10, size=(AGENTS, IMAGES))}  # fmt: skip
    problem = decibo.Problem(loss, inner, data, np.float32(-5.0), y0)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.05, lam=10.0)
    end = decibo.solve(problem, decibo.complete(AGENTS), method, steps=20, measures=["inner"])
    assert jax.tree.structure(end.y) == jax.tree.structure(y0)
    assert [leaf.dtype for leaf in jax.tree.leaves(end.y)] == [
        leaf.dtype for leaf in jax.tree.leaves(y0)
    ]
    assert end.history["inner"][-1] < end.history["inner"][0]
    assert scores(end.y, data["images"][0]).shape == (IMAGES, 10)
