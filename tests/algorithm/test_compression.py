"""Minibatches and compressed messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import decibo
from decibo.algorithm.compression import Compressor
from helpers.twin import problem

RING = decibo.ring(10)
VECTORS = arrays(np.float64, 20, elements=st.floats(-5, 5, width=32))


def applied(compressor):
    """What a vector becomes, by a program that is compiled once for all examples."""
    return jax.jit(lambda s: compressor.apply(s, jax.random.key(0)))


TOP_K = applied(decibo.compression.top_k(0.1))
QUANTISE = applied(decibo.compression.quantise(8))
RANDOM_K = applied(decibo.compression.random_k(0.25))
LARGEST = {count: applied(decibo.compression.top_k(count / 20)) for count in (1, 7, 20)}


@given(VECTORS)
def test_compressors_lose_only_part(s):
    """|s - Q(s)|^2 <= (1 - delta) |s|^2, which error feedback needs; top-k keeps the largest."""
    total = np.sum(s**2)
    assert np.sum((s - TOP_K(s)) ** 2) <= 0.9 * total + 1e-12
    assert np.sum((s - QUANTISE(s)) ** 2) <= 0.01 * total + 1e-12
    kept = np.asarray(RANDOM_K(s))
    assert np.sum(kept != 0) <= 5
    assert set(kept[kept != 0].tolist()) <= set(s.tolist())


@given(
    arrays(
        np.float64, 20, elements=st.sampled_from([-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 5e-324, np.inf])
    )
)
def test_the_largest_entries_are_those_of_a_stable_sort(s):
    """Also with equal entries, of which the first are kept."""
    for count, apply in LARGEST.items():
        kept = np.zeros_like(s)
        first = np.argsort(-np.abs(s), kind="stable")[:count]
        kept[first] = s[first]
        np.testing.assert_array_equal(apply(s), kept)


def test_bits_are_what_is_sent():
    assert decibo.compression.top_k(0.1).bits(1000, 32) == 100 * (32 + 10)  # values and places
    assert decibo.compression.random_k(0.1).bits(1000, 32) == 100 * 32 + 64  # values and a seed
    assert decibo.compression.quantise(4).bits(1000, 32) == 4000 + 32  # levels and the maximum
    ours, _ = problem("vector", 10)
    method = decibo.ahead(alpha=0.01, gamma=0.05, lam=5.0)
    cost = decibo.solve(
        ours, RING, decibo.compression.compressed(method, decibo.compression.quantise(8)), steps=2
    ).cost
    # 3 vectors: 3, 4 and 4 numbers of a byte, and their maxima
    assert cost.bytes == 3 * 8 + 2 * 4 + 3 * 1 + 2 * 0
    assert cost.numbers == 11


def test_messages_in_sixteen_bits_stay_exact():
    quadratic = decibo.problems.quadratic(10, seed=3)
    method = decibo.methods.sldbo(alpha=0.03, beta=0.05, gamma=0.05)
    short = decibo.compression.compressed(method, decibo.compression.rounded("bfloat16"))
    run = decibo.solve(quadratic, RING, short, steps=2500, every=2500, measures=["distance_x"])
    size = float(np.sum(np.asarray(quadratic.solution["x"]) ** 2))
    assert run.history["distance_x"][-1] < 1e-18 * size
    assert run.cost.bytes == decibo.solve(quadratic, RING, method, steps=1).cost.bytes / 4
    assert "rounded(bfloat16)" in repr(short.replace(alpha=0.2))


def test_nothing_lost_is_nothing_changed():
    ours, _ = problem("vector", 10)
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=5.0)
    whole = decibo.compression.compressed(method, decibo.compression.top_k(1.0))
    one, two = (decibo.solve(ours, RING, each, steps=50) for each in (method, whole))
    np.testing.assert_allclose(one.agents.x, two.agents.x, atol=1e-12)


def test_top_ten_percent_reaches_the_uncompressed_solution():
    quadratic = decibo.problems.quadratic(n=20, r=30)
    method = decibo.compression.compressed(
        decibo.methods.sldbo(alpha=0.05, beta=0.1, gamma=0.1),
        decibo.compression.top_k(0.1),
        eta=0.3,
    )
    solution = decibo.solve(
        quadratic, RING, method, steps=5000, every=5000, measures=["stationarity", "distance_x"]
    )
    assert solution.history["stationarity"][-1] <= 1e-18
    assert solution.history["distance_x"][-1] <= 1e-18
    assert solution.cost.bytes < 0.15 * solution.cost.numbers * 8


@pytest.mark.parametrize(
    "compressor",
    [decibo.compression.quantise(6), decibo.compression.random_k(0.5)],
    ids=["quantise", "random_k"],
)
def test_other_compressors_reach_it_too(compressor):
    quadratic = decibo.problems.quadratic()
    method = decibo.compression.compressed(
        decibo.methods.sldbo(alpha=0.05, beta=0.1, gamma=0.1), compressor, eta=0.3
    )
    solution = decibo.solve(
        quadratic, RING, method, steps=5000, every=5000, measures=["stationarity"]
    )
    assert solution.history["stationarity"][-1] <= 1e-18


def test_compressed_methods_conform_and_keep_their_settings():
    method = decibo.compression.compressed(
        decibo.ahead_exact(alpha=0.02, gamma=0.05), decibo.compression.top_k(0.5)
    )
    assert "relabelling" in decibo.check_method(method, landing=False)
    assert method.replace(alpha=0.1).settings["alpha"] == 0.1
    assert repr(method) == "ahead_exact + top_k(0.5)(alpha=0.02, gamma=0.05, lam=100)"


def test_bad_compression():
    method = decibo.ahead(alpha=0.01, gamma=0.05, lam=5.0)
    for fraction in (0.0, -0.1, 1.5, float("nan"), "half", True):
        with pytest.raises(decibo.InputError, match=r"fraction must be .*above 0 and at most 1"):
            decibo.compression.top_k(fraction)
    for bits in (1, 17, 2.5, True):
        with pytest.raises(decibo.InputError, match=r"bits must be .*2 to 16"):
            decibo.compression.quantise(bits)
    for eta in (0.0, 1.5, float("nan")):
        with pytest.raises(decibo.InputError, match=r"eta must be .*above 0 and at most 1"):
            decibo.compression.compressed(method, decibo.compression.top_k(0.1), eta=eta)
    with pytest.raises(decibo.InputError, match=r"compressor must be .* it is 0.1"):
        decibo.compression.compressed(method, 0.1)  # type: ignore[arg-type]
    assert isinstance(decibo.compression.top_k(1), Compressor)


def noisy(size):
    """A quadratic whose agents hold samples, and a way to draw some of them."""
    random = np.random.default_rng(0)
    data = {"a": random.normal(size=(10, 40, 3)), "b": random.normal(size=(10, 40, 3)) + 1}

    def sample(d, key):
        places = jax.random.randint(key, (size,), 0, 40)
        return {name: leaf[places] for name, leaf in d.items()}

    outer = lambda x, y, d: (
        0.5 * jnp.mean(jnp.sum((y - d["b"]) ** 2, axis=1)) + 0.05 * jnp.sum(x**2)
    )
    inner = lambda x, y, d: 0.5 * jnp.mean(jnp.sum((y - x - d["a"]) ** 2, axis=1))
    return decibo.Problem(outer, inner, data, jnp.zeros(3), jnp.zeros(3), sample=sample)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda h: decibo.ahead(alpha=h, gamma=h, lam=10.0), marks=pytest.mark.slow),
        lambda h: decibo.ahead_exact(alpha=h, gamma=h, lam=10.0),
        pytest.param(
            lambda h: decibo.methods.d_soba(alpha=h, beta=h, gamma=h), marks=pytest.mark.slow
        ),
        pytest.param(
            lambda h: decibo.methods.sldbo(alpha=h, beta=h, gamma=h), marks=pytest.mark.slow
        ),
    ],
    ids=["ahead", "ahead_exact", "d_soba", "sldbo"],
)
def test_minibatches_reach_a_neighbourhood_that_shrinks_with_the_step(make):
    ours = noisy(4)
    floors = []
    for h in (0.05, 0.01):
        method = decibo.minibatch(make(h))
        history = decibo.solve(
            ours, RING, method, steps=6000, every=10, measures=["stationarity"]
        ).history["stationarity"]
        assert history[0] > 50 * history[-300:].mean()
        floors.append(history[-300:].mean())
    assert floors[1] < 0.45 * floors[0]


def test_minibatches_need_to_know_how_to_draw_one_and_depend_on_the_seed():
    method = decibo.minibatch(decibo.ahead(alpha=0.01, gamma=0.05, lam=5.0))
    ours, _ = problem("vector", 10)
    with pytest.raises(decibo.InputError, match=r"draws minibatches and needs a function.*sample"):
        decibo.solve(ours, RING, method, steps=5)
    runs = [decibo.solve(noisy(4), RING, method, steps=5, seed=seed).x for seed in (0, 0, 1)]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()
