"""Agents with different numbers of samples: what is padded weighs nothing, on one process and on
several."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.data import samples
from decibo.errors import InputError
from helpers.processes import printed

SIZES = (3, 7, 5)


def load(agent):
    random = np.random.default_rng(agent)
    a, b = random.normal(size=(SIZES[agent], 2)), random.normal(size=SIZES[agent])
    return {"training": samples(a=a, b=b), "validation": samples(a=a[:2], b=b[:2])}


def error(y, d):
    return d["weights"] @ (d["a"] @ y - d["b"]) ** 2 / jnp.sum(d["weights"])


def outer(x, y, d):
    return error(y, d["validation"])


def inner(x, y, d):
    return error(y, d["training"]) + jnp.exp(x) * jnp.sum(y**2)


def problem(data=load):
    return decibo.Problem(outer, inner, data, 0.0, np.zeros(2), agents=3)


def test_padding_weighs_nothing():
    stacked = problem().local(range(3))
    assert jax.tree.map(jnp.shape, stacked["training"]) == {
        "a": (3, 7, 2),
        "b": (3, 7),
        "weights": (3, 7),
    }
    assert stacked["validation"]["weights"].shape == (3, 2)  # nothing to pad
    y = np.array([0.3, -0.7])
    for agent in range(3):
        own = load(agent)["training"].arrays
        d = jax.tree.map(lambda leaf, agent=agent: leaf[agent], stacked)
        np.testing.assert_allclose(
            error(y, d["training"]), np.mean((own["a"] @ y - own["b"]) ** 2), rtol=1e-12
        )


def test_weights_of_ones_own_are_kept():
    part = samples(a=np.arange(2.0), weights=[0.25, 0.75]).padded(3)
    assert part["weights"].tolist() == [0.25, 0.75, 0.0]


def test_unequal_shapes_are_refused_with_the_helper_that_pads():
    plain = lambda agent: load(agent)["training"].arrays
    unequal = decibo.Problem(lambda x, y, d: x, lambda x, y, d: y**2, plain, 0.0, 0.0, agents=3)
    with pytest.raises(
        InputError, match=r"data\(0\) has .* and data\(1\) has .*decibo\.data\.samples"
    ):
        decibo.solve(unequal, decibo.ring(3), steps=1)
    with pytest.raises(InputError, match=r"data\(1\) has a: \(samples, 3"):
        problem(lambda agent: samples(a=np.ones((2, 2 + agent)))).local(range(2))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "nothing"),
        ({"a": 1.0}, "a: None"),
        ({"a": [1, 2], "b": [1]}, "a: 2, b: 1"),
        ({"a": []}, "at least one sample"),
    ],
)
def test_samples_have_one_row_each(arrays, words):
    with pytest.raises(InputError, match=words):
        samples(**arrays)


SCRIPT = """
import json, sys
sys.path.insert(0, {folder!r})
import decibo
me = decibo.init_distributed()
import jax
jax.config.update("jax_enable_x64", True)
import test_samples as case
method = decibo.ahead_exact(alpha=0.1, gamma=0.1)
plain = lambda agent: case.load(agent)["training"].arrays
try:
    decibo.solve(case.problem(plain), decibo.ring(3), method, steps=50, measures=["outer"])
    said = {{"error": "none"}}
except decibo.InputError as error:
    said = {{"error": str(error)}}
end = decibo.solve(case.problem(), decibo.ring(3), method, steps=50, measures=["outer"])
said |= {{"x": float(end.x), "y": end.y.tolist()}}
if me == 0:
    print(json.dumps(said))
"""


@pytest.mark.slow
def test_two_processes_say_the_same_as_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    words = ["-m", "decibo", "launch", "-n", "2", "--", "python", script]
    said = json.loads(printed(*words, timeout=120).splitlines()[-1])
    assert "decibo.data.samples" in said["error"]
    end = decibo.solve(
        problem(),
        decibo.ring(3),
        decibo.ahead_exact(alpha=0.1, gamma=0.1),
        steps=50,
        progress=False,
    )
    np.testing.assert_allclose(said["x"], end.x, rtol=1e-9)
    np.testing.assert_allclose(said["y"], end.y, rtol=1e-9)
