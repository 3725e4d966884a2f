"""C2DFB against a loop over agents in numpy, where neighbours read each other's hats in full."""

import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.algorithm.c2dfb import KeepLargest, c2dfb
from decibo.problems.quadratic import quadratic
from helpers.twin import NETWORKS, as_rows, as_start, problem

ALPHA, BETA, GAMMA, LAM, C, K, KEEP = 0.05, 0.02, 0.1, 5.0, 0.4, 3, 0.3
METHOD = c2dfb(alpha=ALPHA, beta=BETA, gamma=GAMMA, lam=LAM, c=C, K=K, keep=KEEP)


def apart(W, rows):
    """L s = (W - I) s."""
    return np.stack(
        [sum(W[i, j] * (rows[j] - rows[i]) for j in range(len(rows))) for i in range(len(rows))]
    )


def largest(rows, keep):
    out = np.zeros_like(rows)
    for i, row in enumerate(rows):
        places = np.argsort(-np.abs(row))[: int(np.ceil(keep * len(row)))]
        out[i, places] = row[places]
    return out


class Loop:
    """One inner loop: its variable, its tracker, and what neighbours know of both."""

    def __init__(self, gradient, h, x, d):
        self.gradient, self.h, self.d, self.s = gradient, h, d, gradient(x, d)
        self.d_hat, self.s_hat = np.zeros_like(d), np.zeros_like(d)

    def run(self, W, old_x, x, keep):
        self.s = self.s + self.gradient(x, self.d) - self.gradient(old_x, self.d)
        for _ in range(K):
            d = self.d + C * apart(W, self.d_hat) - self.h * self.s
            s = self.s + C * apart(W, self.s_hat) + self.gradient(x, d) - self.gradient(x, self.d)
            self.d_hat = self.d_hat + largest(d - self.d_hat, keep)
            self.s_hat = self.s_hat + largest(s - self.s_hat, keep)
            self.d, self.s = d, s


@pytest.mark.parametrize("network", ["path", "ring", "star"])
@pytest.mark.parametrize("keep", [KEEP, 1.0])
def test_three_steps_equal_numpy(network, keep):
    network = NETWORKS[network]()
    ours, twin = problem("nested", network.agents)
    start, agents, W = twin.starts(), range(twin.m), network.W
    method = METHOD.replace(keep=keep)
    solution = decibo.solve(
        ours, network, method, steps=3, start=as_start(ours, start), measures=["outer"]
    )
    x = start["x"]
    F_y = lambda x, y: np.stack(
        [twin.f_y(i, x[i], y[i]) + LAM * twin.g_y(i, x[i], y[i]) for i in agents]
    )
    F_z = lambda x, z: np.stack([twin.g_y(i, x[i], z[i]) for i in agents])
    u = lambda x, y, z: np.stack(
        [
            twin.f_x(i, x[i], y[i]) + LAM * (twin.g_x(i, x[i], y[i]) - twin.g_x(i, x[i], z[i]))
            for i in agents
        ]
    )
    y, z = Loop(F_y, BETA, x, start["y"]), Loop(F_z, GAMMA, x, start["z"])
    at = u(x, y.d, z.d)
    t = at.copy()
    for _ in range(3):
        old, x = x, x + C * apart(W, x) - ALPHA * t
        for each in (y, z):
            each.run(W, old, x, keep)
        new = u(x, y.d, z.d)
        t, at = t + C * apart(W, t) + new - at, new
    for name, row in (("x", x), ("y", y.d), ("z", z.d)):
        np.testing.assert_allclose(as_rows(ours, solution)[name], row, rtol=0, atol=1e-10)
    cost, count = solution.cost, int(np.ceil(keep * twin.r))
    assert (cost.outer_gradients, cost.inner_gradients, cost.products) == (K + 1, 2 * K + 2, 0)
    assert cost.messages == K + 1
    places = 3 if count < twin.r else 0  # 8 entries: a place takes 3 bits
    assert cost.bytes == 8 * 2 * twin.n + K * int(np.ceil(4 * count * (64 + places) / 8))


def test_conforms():
    assert "light cone" in decibo.check_method(METHOD, landing=False)


def test_the_compressor_keeps_the_largest_entries():
    s = jnp.array([0.1, -3.0, 2.0, 0.0, 1.0])
    np.testing.assert_array_equal(KeepLargest(0.4)(s), [0.0, -3.0, 2.0, 0.0, 0.0])
    np.testing.assert_array_equal(KeepLargest(1.0)(s), s)
    assert [KeepLargest(keep).count(5) for keep in (0.01, 0.5, 1.0)] == [1, 3, 5]
    assert KeepLargest(0.4).bits(s) == 2 * (64 + 3)
    assert KeepLargest(1.0).bits(s) == 5 * 64


@pytest.mark.slow
def test_compression_does_not_change_where_it_lands():
    ours, network = quadratic(10), decibo.ring(10)
    reached = {}
    for lam, keep in ((10.0, 1.0), (10.0, 0.5), (100.0, 0.5)):
        method = c2dfb(alpha=0.1, gamma=0.1, lam=lam, keep=keep, K=5)
        solution = decibo.solve(
            ours, network, method, steps=1500, every=10**6, measures=["stationarity"]
        )
        reached[lam, keep] = np.sqrt(solution.history["stationarity"][-1])
    assert abs(reached[10.0, 1.0] - reached[10.0, 0.5]) < 1e-6
    assert 5 < reached[10.0, 0.5] / reached[100.0, 0.5] < 15  # the penalty's O(1/lam)


@pytest.mark.parametrize("keep", [0.0, -0.5, 1.5, "half"])
def test_bad_shares_are_rejected(keep):
    with pytest.raises(decibo.InputError, match="keep"):
        METHOD.replace(keep=keep)
