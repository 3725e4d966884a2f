"""The examples with neural networks, in parts and in sizes that take seconds."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

FOLDER = str(Path(__file__).parent.parent / "examples")


@pytest.fixture(scope="module")
def text():
    sys.path.insert(0, FOLDER)
    yield importlib.import_module("text_sources")
    sys.path.remove(FOLDER)


@pytest.fixture(scope="module")
def searches(text):
    return importlib.import_module("studies.uses.text")


@pytest.fixture(scope="module")
def labels():
    sys.path.insert(0, FOLDER)
    yield importlib.import_module("label_cleaning")
    sys.path.remove(FOLDER)


@pytest.fixture(scope="module")
def data(text):
    prose = b"the quick brown fox jumps over the lazy dog and runs home again. " * 500
    parts = {"train": prose * 3, "code": prose, "valid": prose[:4096], "test": prose[:4096]}
    return text.owners({name: np.frombuffer(part, np.uint8) for name, part in parts.items()}, 32, 0)


@pytest.mark.slow
def test_harmful_text_loses_weight(text, data):
    size = text.Size(layers=1, width=16, heads=2, length=32)
    assert data["text"].shape[0] == text.COUNT
    weights, found = text.find(size, "xla", data, 120, 0, 8.0)
    assert np.allclose(found.history["weights"][0], 1 / 8)
    assert weights[text.GOOD == 0].sum() < 0.3  # of 0.5
    assert found.status.sound


@pytest.mark.slow
@pytest.mark.parametrize("name", ["after RegMix", "after DoGE", "after DoReMi"])
def test_other_searches_return_weights_and_training_with_them_helps(text, searches, data, name):
    size = text.Size(layers=1, width=16, heads=2, length=32)
    weights = searches.search(name, searches.SEARCHES[name][0][0], 200, size, "xla", data, 0)
    assert weights.shape == (text.COUNT,)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-4)
    losses = [
        text.tested(
            size, "xla", text.train(size, "xla", n, data["text"], weights, 0), data["held_out"]
        )
        for n in (0, 60)
    ]
    assert losses[1] < losses[0] - 1.0


def test_documentation_and_code_are_told_apart(text, tmp_path):
    source = tmp_path / "module.py"
    words = (
        "This sentence documents the module, and it is long enough to count as documentation of"
        " something."
    )
    source.write_text(f'"""{words}"""\n\ndef f(x):\n    """{words}"""\n    return x + 1\n')
    document, code = text.contents(source)
    assert document.count(words) == 2
    assert words not in code
    assert "return x + 1" in code
    source.write_text("def broken(:\n")
    assert text.contents(source) == ("", "")


def test_no_minibatch_has_a_longer_gradient_than_it_may(text):
    y = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
    # its gradient is y, of length 5
    half_square = lambda y: 0.5 * sum(jnp.sum(leaf**2) for leaf in y.values())
    slope = lambda longest, factor: jax.grad(
        lambda y: factor * half_square(text.bounded(longest, y))
    )(y)
    assert jax.tree.all(jax.tree.map(jnp.allclose, slope(10.0, 1.0), y))
    assert jax.tree.all(
        jax.tree.map(jnp.allclose, slope(2.5, 1.0), jax.tree.map(lambda leaf: leaf / 2, y))
    )
    assert not any(jnp.any(leaf) for leaf in jax.tree.leaves(slope(10.0, jnp.nan)))


def test_a_transformer_does_not_see_what_comes(text):
    size = text.Size(layers=1, width=16, heads=2, length=16)
    y = text.transformer(size, jax.random.key(0))
    page = np.random.default_rng(0).integers(0, 256, (1, 16)).astype(np.uint8)
    other = page.copy()
    other[0, 9:] = 7
    before, after = (text.scores(size, "xla", y, jnp.asarray(p)) for p in (page, other))
    np.testing.assert_allclose(before[0, :9], after[0, :9], atol=1e-6)
    assert not np.allclose(before[0, 9:], after[0, 9:], atol=1e-4)


@pytest.mark.parametrize("side", [8, 28])
def test_patches_make_a_convolution(labels, side):
    draw = np.random.default_rng(0)
    image = jnp.asarray(draw.normal(size=(2, side, side, 3)))
    weights = jnp.asarray(draw.normal(size=(27, 5)))
    expected = jax.lax.conv_general_dilated(
        image,
        weights.reshape(3, 3, 3, 5),
        (2, 2),
        ((0, 1), (0, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(labels.patches(image) @ weights, expected, atol=1e-10)


def test_the_area_counts_pairs(labels):
    draw = np.random.default_rng(0)
    trust = draw.random(40)
    wrong = draw.random(40) < 0.4
    assert labels.area(trust, wrong) == pytest.approx(
        np.mean(trust[~wrong][:, None] > trust[wrong])
    )


def test_wrong_labels_are_wrong(labels):
    size = replace(labels.DIGITS, training=50, checked=5)
    draw = np.random.default_rng(1)
    features = draw.random((500, 8, 8)).astype(np.float32)
    truth = draw.integers(0, 10, 500)
    data, right = labels.clients(features, truth, size, 3)
    share = np.mean(data["training"]["label"] != right)
    assert 0.3 < share < 0.5
    assert data["checked"]["label"].shape == (labels.CLIENTS, 5)
