"""K steps for each exchange: against numpy, where they land, and what they cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo import compression, consensus, direction, local_steps, rule
from helpers.twin import NETWORKS, as_rows, as_start, problem

K = 3
PROBLEM = problem("vector", 6)
QUADRATIC = decibo.problems.quadratic()


def diffused(alpha, beta, gamma, K, difference=0.01):
    """The recipe: the implicit direction by differences, K steps alone, then the mean of all."""
    along = direction.implicit(difference)
    return local_steps(decibo.compose(along, consensus.atc(), x=alpha, y=beta, v=gamma), K)


def descent(twin, s):
    d_x = [twin.f_x(i, x, y) for i, (x, y) in enumerate(zip(s["x"], s["y"], strict=True))]
    d_y = [twin.f_y(i, x, y) for i, (x, y) in enumerate(zip(s["x"], s["y"], strict=True))]
    return {"x": np.stack(d_x), "y": np.stack(d_y)}


def exact_diffusion(W):
    """p+ = s - h d, s+ = W~ (p+ + c), c+ = s+ - p+, with W~ = I when alone and a lazier W~ when
    together."""
    c = {}

    def step(s, d, together, h=0.05):
        I = np.eye(len(W))
        lazy = I + (W - I) / 2 * 4 / (K + 2) if together else I
        new = {}
        for name in s:
            p = s[name] - h * d[name]
            new[name] = lazy @ (p + c.get(name, 0))
            c[name] = new[name] - p
        return new

    return step


def tracking(W):
    past = {}

    def step(s, d, together, h=0.05):
        now = W if together else np.eye(len(W))
        t = {name: past["Wt"][name] + d[name] - past["d"][name] if past else d[name] for name in s}
        past.update(Wt={name: now @ t[name] for name in t}, d=d)
        return {name: now @ s[name] - h * t[name] for name in s}

    return step


@pytest.mark.parametrize("network", ["path", "ring"])
@pytest.mark.parametrize("strategy", [exact_diffusion, tracking])
def test_steps_equal_numpy(strategy, network):
    network = NETWORKS[network]()
    ours, twin = PROBLEM
    start = {name: twin.starts()[name] for name in ("x", "y")}
    plain = decibo.compose(
        direction.single(), getattr(consensus, strategy.__name__)(), x=0.05, y=0.05
    )
    options = {"steps": 2, "start": as_start(ours, start), "measures": ["outer"]}
    found = as_rows(ours, decibo.solve(ours, network, local_steps(plain, K), **options))
    step = strategy(network.W)
    s = start
    for k in range(2 * K):
        s = step(s, descent(twin, s), together=k % K == K - 1)
    for name, rows in s.items():
        np.testing.assert_allclose(found[name], rows, rtol=0, atol=1e-12, err_msg=name)


def by_differences(twin, i, x, y, v, e=0.02):
    size = e / (e + np.linalg.norm(v))
    Jv, Hv = (
        (g(i, x, y + size * v) - g(i, x, y - size * v)) / (2 * size) for g in (twin.g_x, twin.g_y)
    )
    return {"x": twin.f_x(i, x, y) - Jv, "y": twin.g_y(i, x, y), "v": Hv - twin.f_y(i, x, y)}


@pytest.mark.parametrize("network", ["ring", "complete"])
def test_implicit_steps_alone_equal_numpy(network):
    """Every agent goes K steps alone, and then all take means: of all on the complete network, as a
    server does."""
    network = decibo.complete(6) if network == "complete" else NETWORKS[network]()
    ours, twin = PROBLEM
    start = {name: twin.starts()["z" if name == "v" else name] for name in "xyv"}
    h = {"x": 0.05, "y": 0.03, "v": 0.1}
    s = start
    for _ in range(2):
        rows = []
        for i in range(6):
            own = {name: s[name][i] for name in s}
            for _ in range(K):
                d = by_differences(twin, i, **own)
                own = {name: own[name] - h[name] * d[name] for name in own}
            rows.append(own)
        s = {name: network.W @ np.stack([row[name] for row in rows]) for name in s}
    method = diffused(alpha=0.05, beta=0.03, gamma=0.1, K=K, difference=0.02)
    options = {"steps": 2, "start": as_start(ours, start), "measures": ["outer"]}
    end = decibo.solve(ours, network, method, **options)
    for name, row in as_rows(ours, end).items():
        np.testing.assert_allclose(row, s[name], rtol=0, atol=1e-12, err_msg=name)
    cost = end.cost
    assert (cost.outer_gradients, cost.inner_gradients, cost.messages) == (K, 3 * K, 1)
    assert cost.products == 0


@given(steps=st.integers(1, 50), w=st.floats(-0.999, 0.999))
def test_alone_or_not_the_memory_stays_bounded(steps, w):
    """(3) of local_steps.py, for every K and every eigenvalue of W, in the limit of small
    curvatures."""
    less = (1 - w) / 2 * min(1, 4 / (steps + 2))
    s, c = np.eye(2)
    apart = s + steps * c
    modes = np.linalg.eigvals(np.array([(1 - less) * apart, c - less * apart]))
    assert np.abs(modes).max() < 1


def lands(method, network, steps=1500):
    end = decibo.solve(
        QUADRATIC, network, method, steps=steps, measures=["distance_x"], every=steps
    )
    assert end.status == "done"
    return float(end.history["distance_x"][-1])


@pytest.mark.parametrize("strategy", ["exact_diffusion", "tracking"])
def test_exact_methods_stay_exact(strategy):
    plain = decibo.compose(
        direction.implicit(), getattr(consensus, strategy)(), x=0.01, y=0.02, v=0.02
    )
    wrapped = local_steps(plain, 10)
    for network in (decibo.ring(10), decibo.complete(10)):
        assert lands(wrapped, network) <= 1e-20


def test_without_a_gentler_memory_exact_diffusion_would_diverge(monkeypatch):
    """On a complete network, l = 1/2, twelve local steps are beyond l < 4/(K + 2)."""
    from decibo.algorithm import local_steps as module

    monkeypatch.setattr(
        module.Damped, "__init__", lambda self, mix, r: vars(self).update(mix=mix, r=1.0)
    )
    method = local_steps(
        decibo.compose(direction.implicit(), consensus.exact_diffusion(), x=0.01, y=0.02, v=0.02),
        12,
    )
    end = decibo.solve(
        QUADRATIC, decibo.complete(10), method, steps=1500, measures=["distance_x"], every=1500
    )
    assert end.status == "diverged" or end.history["distance_x"][-1] > 1


def test_the_floor_of_dgd_grows_with_the_steps_alone():
    """|xbar - x*|, which one step leaves O(h) off, is K times as large at the same h."""
    plain = decibo.compose(direction.implicit(), consensus.dgd(), x=0.005, y=0.01, v=0.01)
    one, four = (
        np.sqrt(lands(local_steps(plain, count), decibo.ring(10), 4000)) for count in (1, 4)
    )
    assert 3 < four / one < 5


def test_the_implicit_direction_is_exact_with_one_local_step_and_o_of_k_steps_off_with_more():
    """With a server: four times the local steps, or twice the step sizes, take it that much further
    off."""
    server = decibo.complete(10)
    made = lambda count, h: diffused(alpha=h, beta=2 * h, gamma=2 * h, K=count)
    assert lands(made(1, 0.05), server) <= 1e-20
    two, twice, eight = (
        np.sqrt(lands(made(*each), server)) for each in ((2, 0.01), (2, 0.02), (8, 0.01))
    )
    assert 1.8 < twice / two < 2.2
    assert 6 < eight / two < 9  # (K - 1) steps alone, 7 for 1


def test_a_step_costs_k_gradients_and_one_message():
    plain = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    ours, _ = PROBLEM
    costs = [
        decibo.solve(ours, decibo.ring(6), method, steps=1, measures=["outer"]).cost
        for method in (plain, local_steps(plain, 4))
    ]
    assert costs[1].gradients == 4 * costs[0].gradients
    assert (costs[1].messages, costs[1].numbers, costs[1].bytes) == (
        1,
        costs[0].numbers,
        costs[0].bytes,
    )


def test_functions_of_the_step_count_all_steps():
    """One step alone and one together with a step size of 1/(1 + k) are two steps of the method."""
    falling = lambda k: 0.1 / (1 + k)
    ours, _ = PROBLEM
    plain = decibo.compose(direction.single(), consensus.local(), x=falling, y=falling)
    one = decibo.solve(ours, decibo.ring(6), local_steps(plain, 2), steps=3, measures=["outer"])
    two = decibo.solve(ours, decibo.ring(6), plain, steps=6, measures=["outer"])
    np.testing.assert_allclose(one.agents.x, two.agents.x, rtol=0, atol=1e-14)


def test_it_wraps_and_is_wrapped():
    method = local_steps(decibo.methods.sldbo(alpha=rule.amsgrad(0.01), beta=0.02, gamma=0.02), 2)
    assert method.name == "sldbo + 2 local steps"
    assert method.replace(beta=0.01).name == method.name
    packed = compression.compressed(method, compression.top_k(0.5))
    assert (
        decibo.solve(
            *(QUADRATIC, decibo.ring(10), packed), steps=2, measures=["outer"]
        ).cost.messages
        == 1
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: local_steps(decibo.ahead_exact(), 2), "finds its step sizes itself"),
        (
            lambda: local_steps(decibo.ahead_exact(alpha=0.1, gamma=0.1), 0),
            "K must be a positive integer",
        ),
        (
            lambda: local_steps(
                compression.compressed(
                    decibo.ahead_exact(alpha=0.1, gamma=0.1), compression.top_k(0.5)
                ),
                2,
            ),
            "Wrap in the other order",
        ),
    ],
)
def test_mistakes_are_sentences(make, words):
    with pytest.raises(decibo.InputError, match=words):
        make()
