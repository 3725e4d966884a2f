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
def labels():
    sys.path.insert(0, FOLDER)
    yield importlib.import_module("label_cleaning")
    sys.path.remove(FOLDER)


@pytest.mark.slow
def test_harmful_text_loses_weight(text):
    size = replace(text.SMALL, width=16, length=32, megabytes=0.03, steps=120, rate_x=0.05)
    prose = b"the quick brown fox jumps over the lazy dog and runs home again. " * 500
    texts = {"train": prose * 3, "code": prose, "valid": prose[:4096], "test": prose[:4096]}
    data = text.owners(texts, size, 0)
    assert data["text"].shape[0] == len(text.SOURCES)
    found = text.find(size, "xla", data, texts["test"], 4.0, 0)
    weights = np.asarray(found.history["weights"])
    assert np.allclose(weights[0], 1 / 8)
    assert weights[-1][text.BAD].sum() < 0.25  # of 0.5
    assert found.history["test"][-1] < found.history["test"][0] - 1.0


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
    size = replace(text.SMALL, width=16, length=16)
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
