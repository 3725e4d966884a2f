"""The conformance check finds what it says it finds."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

import decibo
from decibo.algorithm.conformance import lands
from decibo.network.mixing import AGENTS, AgentMix, Mixing


class S(NamedTuple):
    x: jax.Array
    y: jax.Array


def init(oracle, mix, start):
    return S(start["x"], start["y"])


def good(oracle, mix, s, k, key):
    x, y = mix((s.x, s.y))
    return S(x - 0.1 * oracle.outer(s.x, s.y)[0], y - 0.1 * oracle.inner(s.x, s.y)[1])


def view(s):
    return s._asdict()


GOOD = decibo.Algorithm(init, good, view, name="mine")


def peeking(oracle, mix, s, k, key):
    return S(jax.lax.pmean(s.x, AGENTS), mix(s.y) - 0.1 * oracle.inner(s.x, s.y)[1])


def hiding(oracle, mix, s, k, key):
    """Exchanges in a loop of unknown length, which no count can see."""
    far = jax.lax.while_loop(
        lambda carry: carry[0] < k + 8, lambda carry: (carry[0] + 1, mix(carry[1])), (k, s.x)
    )[1]
    return S(
        far - 0.1 * oracle.outer(s.x, s.y)[0] + 0.1 * oracle.inner(s.x, s.y)[0],
        mix(s.y) - 0.1 * oracle.inner(s.x, s.y)[1],
    )


BAD = {
    "peeks": (replace(GOOD, step=peeking), r"looks at other agents by other means than mix"),
    "hides": (
        replace(GOOD, step=hiding),
        r"light cone: after 2 steps with 4 exchanges agent \d knows the data of agent 8",
    ),
    "changes types": (
        replace(GOOD, step=lambda o, mix, s, k, key: S(s.x.astype(jnp.float16), s.y)),
        r"stability: a step changes state\.x from float\d\d\[3\] to float16\[3\]",
    ),
    "changes structure": (
        replace(GOOD, step=lambda o, mix, s, k, key: (s.x, s.y)),
        r"stability: .*structure of the state",
    ),
    "wrong signature": (
        replace(GOOD, step=lambda o, mix, s: s),
        r"signature: step does not take 5 arguments",
    ),
    "no y": (
        replace(GOOD, view=lambda s: {"x": s.x}),
        r"signature: view\(state\) gives .*at least x and y",
    ),
    "wrong size": (
        replace(GOOD, view=lambda s: {"x": s.x, "y": s.x}),
        r"signature: view\(state\)\['y'\] has shape",
    ),
    "raises": (replace(GOOD, step=lambda o, mix, s, k, key: 1 / 0), r"raised ZeroDivisionError"),
}


def test_a_good_one_passes():
    passed = decibo.check_method(GOOD, landing=False)
    assert passed == [
        "signature",
        "stability",
        "compilation",
        "light cone",
        "relabelling",
        "agreement",
        "one agent",
    ]


@pytest.mark.parametrize("case", BAD)
def test_bad_ones_fail(case):
    algorithm, message = BAD[case]
    with pytest.raises(decibo.ConformanceError, match=message):
        decibo.check_method(algorithm, landing=False)


def test_only_algorithms_can_be_checked():
    with pytest.raises(decibo.InputError, match="Only an Algorithm can be checked"):
        decibo.check_method("ahead")  # type: ignore[arg-type]


def test_solve_rejects_what_looks_at_others_by_other_means():
    ours = decibo.Problem(
        lambda x, y, d: jnp.sum(y**2), lambda x, y, d: jnp.sum((y - x) ** 2), jnp.ones(3), 0.0, 0.0
    )
    with pytest.raises(decibo.InputError, match="by other means than mix"):
        decibo.solve(ours, decibo.ring(3), replace(GOOD, step=peeking), steps=3)


def test_weights_that_favour_agents_are_found(monkeypatch):
    import decibo.algorithm.conformance as module

    class Unfair(Mixing):
        def exchange(self, S, how, k=None, key=None):
            return S + jnp.arange(len(S)).reshape(-1, *[1] * (S.ndim - 1))

    module._steps.clear_cache()  # programs compiled with the fair mixer
    monkeypatch.setattr(
        module, "AgentMix", lambda mixing, k, key, reach: AgentMix(Unfair(), k, key, reach)
    )
    with pytest.raises(
        decibo.ConformanceError,
        match=r"(?s)relabelling: renaming the agents.*agreement: equal agents drift apart",
    ):
        decibo.check_method(GOOD, landing=False)
    module._steps.clear_cache()


def local_adam(oracle, mix, s, k, key):
    """Every agent divides by the size of its own directions, and by that it weighs agents
    unequally."""
    g_x, g_y = oracle.inner(s.x, s.y)
    f_x, _ = oracle.outer(s.x, s.y)
    m = 0.9 * s.m + 0.1 * (f_x + g_x)
    v = 0.99 * s.v + 0.01 * m**2
    x, y = mix((s.x, s.y))
    return A(x - 0.01 * m / (jnp.sqrt(v) + 1e-8), y - 0.1 * g_y, m, v)


class A(NamedTuple):
    x: jax.Array
    y: jax.Array
    m: jax.Array
    v: jax.Array


def test_a_local_adam_does_not_get_full_marks():
    start = lambda oracle, mix, start: A(start["x"], start["y"], 0 * start["x"], 0 * start["x"])
    adam = decibo.Algorithm(start, local_adam, lambda s: {"x": s.x, "y": s.y}, name="local Adam")
    assert len(decibo.check_method(adam, landing=False)) == 7
    with pytest.raises(
        decibo.ConformanceError,
        match=r"fails 1 of 8 checks:\n  landing: comes to rest at [\d.]+ times",
    ):
        decibo.check_method(adam)


def test_where_methods_land():
    """What the fixed points of these methods are known to be, found by trying."""
    exact = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    assert decibo.check_method(exact)[-1] == "landing: exact"
    passed, words = lands(decibo.ahead(alpha=0.02, gamma=0.1, lam=10.0))
    assert passed
    assert words.endswith("with half the step sizes")
    for method, reason in (
        (exact.replace(alpha=1e-4), "still on its way"),
        (exact.replace(alpha=5.0), "blow up"),
        (GOOD, "no settings that could be changed"),
    ):
        passed, words = lands(method)
        assert not passed
        assert reason in words
    assert lands(decibo.ahead_exact()) == (True, "exact")


def test_a_method_may_land_on_a_problem_of_its_own():
    passed, words = lands(
        decibo.methods.gt_gda(alpha=0.02, beta=0.05), decibo.problems.quadratic(5, bend=0.1)
    )
    assert not passed
    assert "known solution" in words
    one = decibo.methods.f2sa(alpha=0.05, gamma=0.1, lam=100.0)
    assert lands(one, decibo.problems.quadratic(1))[0]
