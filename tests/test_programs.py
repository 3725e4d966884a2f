"""Compiled programs live as long as the functions that they were made of."""

import gc
import sys
import weakref
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.problem.problem import Functions
from decibo.programs import Weak, jitted, weak
from helpers.processes import printed

KINDS = {
    "a function": lambda f: f,
    "a partial": partial,
    "jitted": jax.jit,
    "a method": lambda f: Owner(f).call,
}


class Owner:
    def __init__(self, function):
        self.function = function

    def call(self, x):
        return self.function(x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_goes_with_its_function(kind):
    traced = []

    def run(function, name, x):
        traced.append(name)
        return function(x)

    call = jitted(static=2)(run)
    big = np.ones(3)
    function = KINDS[kind](lambda x: x + big)
    for _ in range(3):
        np.testing.assert_array_equal(call(function, "a", jnp.zeros(3)), big)
    assert traced == ["a"]
    assert call(function, "b", jnp.zeros(3)).shape == (3,)
    assert (traced, call.compiled()) == (["a", "b"], 2)
    gone = weakref.ref(getattr(function, "__self__", function))
    del function
    gc.collect()
    assert gone() is None
    assert call.programs == {}


def test_functions_inside_tuples_are_weak_and_what_is_compared_by_value_stays():
    f = lambda x: x
    batches = decibo.data.Batches(4)
    made = weak(Functions(f, f, batches, None, (1, 2), ()))  # type: ignore[arg-type]
    assert isinstance(made, Functions)
    assert made.outer == Weak(f) == made.inner
    assert made.sample is batches
    assert weak(made) == made
    assert hash(weak(made)) == hash(made)


def problem(number):
    large = np.full(10_000, float(number))

    def outer(x, y, d):
        return jnp.sum((y - d) ** 2) + jnp.sum(x**2) + 1e-9 * jnp.sum(jnp.asarray(large))

    def inner(x, y, d):
        return jnp.sum((y - x - d) ** 2)

    return decibo.Problem(outer, inner, jnp.arange(1.0, 4.0), jnp.zeros(2), jnp.zeros(2))


def test_objectives_that_were_solved_can_go_and_those_that_stay_are_not_compiled_again():
    """A hundred solves with new closures over 10 MB each once took a gigabyte."""
    solve = lambda ours: decibo.solve(
        ours, decibo.ring(3), steps=10, measures=["all"], progress=False
    )
    alive = []
    for number in range(3):
        ours = problem(number)
        alive.append(weakref.ref(ours.outer))
        solve(ours)
    again = decibo.Problem(ours.outer, ours.inner, ours.data, ours.x0, ours.y0)
    assert solve(again).cost.compiling < 0.05 * solve(problem(9)).cost.compiling
    gc.collect()
    assert [reference() is None for reference in alive] == [True, True, False]
    swept = decibo.sweep(
        problem(4),
        decibo.ring(3),
        decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0),
        seeds=2,
        steps=5,
    )
    assert len(swept) == 2


SOLVES = """
import gc
import jax, jax.numpy as jnp, numpy as np
import decibo

compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None)

def problem(number):
    large = np.random.default_rng(number).normal(size=1_250_000)  # 10 MB
    outer = lambda x, y, d: jnp.sum((y - d) ** 2) + jnp.sum(x**2) + 1e-9 * jnp.sum(jnp.asarray(large))
    inner = lambda x, y, d: jnp.sum((y - x - d) ** 2)
    return decibo.Problem(outer, inner, jnp.arange(1.0, 4.0), jnp.zeros(2), jnp.zeros(2))

def solve(ours):
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=20.0)
    decibo.solve(ours, decibo.ring(3), method, steps=10, measures=["all"], progress=False)
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

same = problem(0)
solve(same)
first = solve(problem(1))
most = max(solve(problem(number)) for number in range(2, 102))
compiled.clear()
solve(same)
print(most - first, len(compiled))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_hundred_solves_with_large_closures_stay_in_memory_and_the_same_one_compiles_nothing():
    grown, programs = map(float, printed("-c", SOLVES, timeout=1200).split())
    assert grown < 300
    assert programs == 0
