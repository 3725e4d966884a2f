"""The fingerprint of a run: the same for the same computation however it is written, another one
for another."""

import functools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.pytree import one_of
from decibo.run.fingerprint import PARTS, fingerprint, settings
from helpers.processes import printed

DATA = {"b": np.random.default_rng(0).normal(size=(4, 3))}
FACTOR = 2.0
VECTOR = np.array([2.0, 2.0, 2.0])


def inner(x, y, d):
    return 0.5 * ((y - x) ** 2).sum()


def outer(x, y, d):
    return 2.0 * ((y - d["b"]) ** 2).sum()


def of(outer=outer, method=None, sample=None):
    problem = decibo.Problem(outer, inner, DATA, np.zeros(3), np.zeros(3), sample=sample)
    method = (
        decibo.methods.sparkle_ed(alpha=0.05, beta=0.1, gamma=0.1) if method is None else method
    )
    return fingerprint(
        problem, decibo.ring(4), method, 0, ["outer"], problem.start_rows(4), one_of(problem.data)
    )


def changed(one, two):
    return [part for part in PARTS if one[part] != two[part]]


def scaled(factor, x, y, d):
    return factor * ((y - d["b"]) ** 2).sum()


def closed(factor):
    return lambda x, y, d: factor * ((y - d["b"]) ** 2).sum()


def default(factor):
    def function(x, y, d, factor=factor):
        return factor * ((y - d["b"]) ** 2).sum()

    return function


class Callable:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, y, d):
        return self.factor * ((y - d["b"]) ** 2).sum()


def global_(x, y, d):
    """With a constant of this module."""
    return FACTOR * ((y - d["b"]) ** 2).sum()


def array(x, y, d):
    return (VECTOR * (y - d["b"]) ** 2).sum()


WAYS = {
    "a closure": closed,
    "a default argument": default,
    "a partial": lambda factor: functools.partial(scaled, factor),
    "a Partial of JAX": lambda factor: jax.tree_util.Partial(scaled, factor),
    "a callable": Callable,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_objective_written_otherwise_is_the_same_and_another_constant_is_not(way):
    assert of(WAYS[way](2.0)) == of()
    assert changed(of(WAYS[way](2.0 + 1e-15)), of()) == ["outer", "step"]


def test_constants_of_a_module_and_of_jitted_functions_count(monkeypatch):
    before = of(global_), of(array), of(jax.jit(closed(2.0)))
    assert before[0] == of()
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    monkeypatch.setitem(globals(), "VECTOR", np.array([2.0, 2.0, np.nextafter(2.0, 3.0)]))
    # a lambda around each: JAX remembers what it traced for a function
    after = (
        of(lambda x, y, d: global_(x, y, d)),
        of(lambda x, y, d: array(x, y, d)),
        of(jax.jit(closed(3.0))),
    )
    for one, two in zip(before, after, strict=True):
        assert changed(one, two) == ["outer", "step"]


def test_a_derivative_of_ones_own_counts():
    def with_rule(factor):
        @jax.custom_jvp
        def square(v):
            return (v**2).sum()

        square.defjvp(
            lambda primals, tangents: (square(*primals), factor * (primals[0] * tangents[0]).sum())
        )
        return lambda x, y, d: square(y - d["b"])

    assert of(with_rule(2.0)) == of(with_rule(2.0))
    assert changed(of(with_rule(2.0)), of(with_rule(2.5))) == ["outer", "step"]


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        (
            decibo.schedules.polynomial(0.1, -1.0),
            decibo.schedules.polynomial(0.001, -1.0),
            "polynomial(0.001, -1.0",
        ),
        (decibo.schedules.growing(0.1, most=1.0), decibo.schedules.growing(0.1, most=2.0), "2.0)"),
        (lambda k: 0.1 / (1 + k), lambda k: 0.1 / (2 + k), "<lambda>"),
    ],
)
def test_the_numbers_of_a_schedule_count(one, two, words):
    method = lambda alpha: decibo.methods.sparkle_ed(alpha=alpha, beta=0.1, gamma=0.1)
    assert "step" in changed(of(method=method(one)), of(method=method(two)))
    assert words in of(method=method(two))["method"]


def test_how_minibatches_are_drawn_counts():
    half = lambda d, key: jax.tree.map(lambda leaf: leaf * 0.5, d)
    whole = lambda d, key: d
    noisy = lambda d, key: jax.tree.map(lambda leaf: leaf + jax.random.normal(key, leaf.shape), d)
    prints = [of(sample=sample)["sample"] for sample in (None, half, whole, noisy)]
    assert len(set(prints)) == 4
    assert prints[0] == "none"


def test_a_method_of_ones_own_counts():
    def step(factor):
        def function(oracle, mix, state, k, key):
            f_x, f_y = oracle.outer(state["x"], state["y"])
            return mix({"x": state["x"] - factor * f_x, "y": state["y"] - factor * f_y})

        return function

    own = lambda factor: decibo.Algorithm(
        lambda o, m, s: {"x": s["x"], "y": s["y"]}, step(factor), dict, name="own"
    )
    assert changed(of(method=own(0.1)), of(method=own(0.1))) == []
    assert changed(of(method=own(0.1)), of(method=own(0.2))) == ["step"]


def test_whatever_a_network_holds_counts():
    ring, failing = decibo.ring(4), decibo.networks.failing(decibo.ring(4), 0.5)
    each = lambda y: decibo.networks.each({"x": ring, "y": y})
    problem = decibo.problems.quadratic(4)
    of = lambda network: settings(problem, network, decibo.ahead_exact(), 0, {})["network"]
    networks = [
        ring,
        failing,
        replace(failing, rate=0.25),
        replace(failing, unreliable="agents"),
        decibo.networks.asynchronous(ring, delay=2),
        replace(decibo.networks.asynchronous(ring, delay=2), split=True),
        each(failing),
        each(replace(failing, rate=0.25)),
    ]
    checksums = {of(network).split()[-1] for network in networks}
    assert len(checksums) == len(networks)
    assert of(replace(ring, labels=tuple("abcd"))) == of(ring)


def test_a_key_among_the_constants():
    def noisy(seed):
        key = jax.random.key(seed)
        return lambda x, y, d: outer(x, y, d) + jax.random.normal(key) * jnp.sum(x)

    assert of(noisy(0)) == of(noisy(0))
    assert changed(of(noisy(0)), of(noisy(1))) == ["outer", "step"]


def varied(x, y, d):
    """An objective whose program has many kinds of equations in it."""
    return (
        jax.nn.logsumexp(jax.nn.relu(y) * VECTOR) + outer(x, y, d) + jnp.where(x > 0, x, 0.0).sum()
    )


def test_another_process_finds_the_same():
    """Nothing depends on addresses or on the order of sets, which differ from process to
    process."""
    assert json.loads(printed(__file__, PYTHONHASHSEED="7")) == of(varied, decibo.ahead_exact())


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    print(json.dumps(of(varied, decibo.ahead_exact())))
