"""Step sizes that the agents find: the recursion against numpy, where it lands, and what it can
cope with."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.algorithm import automatic as rule
from helpers.twin import NETWORKS, as_start, problem
from studies.bench.material import noisy

STEPS = 30
LAM = 20.0


def noise(size):
    """The fixed direction in every probe."""
    return unit(np.modf(np.arange(1, size + 1) * (np.sqrt(5) - 1) / 2)[0] - 0.5)


def unit(v):
    return v / max(np.linalg.norm(v), np.finfo(float).tiny)


class Agent:
    """One agent of the twin: equations (1)-(14), one after another, each quantity under its own
    name."""

    def __init__(self, twin, i, x, y, z, pace):
        self.pace = pace
        self.twin, self.i, self.x, self.y, self.z = twin, i, x, y, z
        self.w = noise(y.size)
        for _ in range(rule.STARTS):
            self.l, self.w = self.probe()
        self.L = self.l
        self.level = np.log(self.l)
        self.a = {"y": 0 * y, "z": 0 * y}
        self.c = {"y": 0 * y, "z": 0 * y}
        self.e = {"y": 0 * y, "z": 0 * y}
        self.moves = np.zeros(4)
        self.t = self.wt = self.d = self.v = self.average = 0 * x
        self.m = dict.fromkeys(pace.lags, 0 * x)
        self.s = 0 * x + rule.TINY

    def probe(self):
        e = np.sqrt(np.finfo(float).eps) * (1 + np.linalg.norm(self.y))
        g = lambda y: self.twin.g_y(self.i, self.x, y)
        h = (g(self.y + e * self.w) - g(self.y)) / e
        return np.linalg.norm(h), unit(h)

    def direction(self):
        twin, i = self.twin, self.i
        middle = (self.y + self.z) / 2
        f_y = twin.f_y(i, self.x, middle)
        return {
            "y": twin.g_y(i, self.x, self.y) + f_y / LAM,
            "z": twin.g_y(i, self.x, self.z) - f_y / LAM,
            "x": (
                twin.f_x(i, self.x, middle)
                + LAM / 2 * (twin.g_x(i, self.x, self.y) - twin.g_x(i, self.x, self.z))
            ),
        }

    def look(self):
        self.l, along = self.probe()
        self.w = unit(along + rule.NOISE * noise(self.y.size))  # (2)
        self.L = max(self.l, rule.FALL * self.L)  # (3)
        self.level += (np.log(self.L if self.pace.sampled else self.l) - self.level) / rule.LATE

    def x_step(self, d, k, seen):
        """What x would be before it is mixed."""
        t = self.wt + d - self.d  # (6)
        before = self.v
        self.v = self.v + 3 / (k + 3) * (t**2 - self.v)
        self.average = self.average + max(self.pace.theta, 1 / (k + 1)) * (
            t - self.average
        )  # (12), t itself if theta is 1
        q = np.clip(self.average / np.sqrt(self.v), -rule.LARGEST, rule.LARGEST)  # (7)
        brake = min(1.0, (np.exp(seen) / np.exp(self.level)) ** -rule.BRAKE)  # (11), (14)
        c = {T: np.sqrt(abs(q)) * q * m / np.maximum(q**2, m**2) for T, m in self.m.items()}
        if self.pace.sampled:
            for T, m in self.m.items():
                for j in np.flatnonzero(abs(m) < abs(q)):
                    c[T][j] = np.sqrt(abs(q[j])) * np.clip(np.sqrt(T) * m[j] / q[j], -1, 1)  # (13)
        self.m = {T: m + (q - m) / min(T, k + 1) for T, m in self.m.items()}  # (8)
        for j in range(q.size):
            now = {T: c[T][j] for T in c}
            if min(now.values()) > 0:
                # (9)
                self.s[j] *= np.exp(self.pace.up / (1 + k / rule.CALM) * brake * min(now.values()))
            else:
                self.s[j] *= np.exp(rule.DOWN * min(now[T] / T for T in now))
            if self.v[j] < before[j]:
                self.s[j] *= np.sqrt(self.v[j] / before[j])
        self.t, self.d = t, d
        return self.x - self.s * brake * q


def twin_run(twin, network, starts, pace):
    W = np.asarray(network.W)
    neighbours = [np.flatnonzero(row) for row in W]
    u = (1 - np.sort(np.linalg.eigvalsh(W))[-2]) / 2 if len(W) > 1 else 0.5
    period = max(network.width, rule.PROBE)
    agents = [Agent(twin, i, *(starts[name][i] for name in "xyz"), pace) for i in range(len(W))]
    most = lambda L: rule.SAFE * (2 - rule.THETA) / rule.THETA / L
    r = rule.FIRST
    gamma = r * most(max(agent.L for agent in agents))
    news = [np.append(agent.L, agent.moves) for agent in agents]
    for k in range(STEPS):
        directions = [agent.direction() for agent in agents]
        seen = []
        for agent in agents:
            if k % rule.PROBE == 0:
                agent.look()
            seen.append(np.log(agent.l if k % rule.PROBE == 0 and not pace.sampled else agent.L))
        if k % period == 0:
            if k:
                largest, *numbers = np.max(news, axis=0)  # everybody has the same
                assert np.ptp(news, axis=0).max() == 0, "not everybody has heard"
                lean = -1.0  # nothing had moved at step 0, when the first news set out
                if numbers[1] > 0:
                    ratio = np.sqrt((numbers[0] / numbers[1] + numbers[2] / numbers[3]) / 2)
                    lean = np.clip(np.log(ratio / u), -1, 1)
                # (5)
                r = np.clip(
                    r * np.exp(-period * min(rule.PACE, u) * lean),
                    min(np.sqrt(u) / 2, rule.FIRST),
                    1,
                )
                before = gamma
                gamma = min(r * most(largest), gamma * rule.GROW**period)  # (4)
                for agent in agents:
                    agent.c = {name: gamma / before * c for name, c in agent.c.items()}
            news = [np.append(agent.L, agent.moves) for agent in agents]
        news = [np.max([news[j] for j in near], axis=0) for near in neighbours]
        before = [{"y": agent.y, "z": agent.z} for agent in agents]
        e_before = [dict(agent.e) for agent in agents]
        for name in "yz":
            sent = []
            for agent, d in zip(agents, directions, strict=True):
                agent.a[name] = agent.a[name] + rule.THETA * (d[name] - agent.a[name])  # (1)
                sent.append(getattr(agent, name) - gamma * agent.a[name] + agent.c[name])
            mixed = W @ np.array(sent)
            for agent, own, other in zip(agents, sent, mixed, strict=True):
                agent.e[name] = (other - own) / 2
                agent.c[name] = agent.c[name] + agent.e[name]
                new = own + agent.e[name]
                setattr(agent, name, new)
        moved = [
            agent.x_step(d["x"], k, s) for agent, d, s in zip(agents, directions, seen, strict=True)
        ]
        X, T = W @ np.array(moved), W @ np.array([agent.t for agent in agents])
        for agent, x, wt, old, e_old in zip(agents, X, T, before, e_before, strict=True):
            agent.x, agent.wt = x, wt  # (10)
            change = {name: agent.e[name] - e_old[name] for name in "yz"}
            move = {name: getattr(agent, name) - old[name] for name in "yz"}
            now = [
                np.sum(f(change) ** 2) if j == 0 else np.sum(f(move) ** 2)
                for f in PAIRS
                for j in (0, 1)
            ]
            if k % rule.PROBE == 0:
                agent.moves = agent.moves + rule.RECENT * (np.array(now) - agent.moves)
    return agents, gamma


PAIRS = (lambda v: v["y"] + v["z"], lambda v: v["y"] - v["z"])


@pytest.mark.parametrize("pace", [rule.FULL, rule.SAMPLED], ids=["all data", "minibatches"])
@pytest.mark.parametrize("network", ["path", "ring"])
def test_the_recursion_is_the_one_in_the_header(network, pace):
    network = NETWORKS[network]()
    task, twin = problem("vector", network.agents)
    starts = twin.starts()
    agents, gamma = twin_run(twin, network, starts, pace)
    method = decibo.ahead_exact(lam=LAM)
    if pace.sampled:  # a minibatch of all data
        task, method = replace(task, sample=lambda d, key: d), decibo.minibatch(method)
    end = decibo.solve(
        task, network, method, steps=STEPS, start=as_start(task, starts), progress=False
    )
    for name in "xyz":
        ours = np.asarray(getattr(end.agents, name)).reshape(network.agents, -1)
        np.testing.assert_allclose(
            ours, [getattr(agent, name) for agent in agents], rtol=1e-6, atol=1e-8
        )
    np.testing.assert_allclose(end.state.inner.gamma, gamma, rtol=1e-6)
    np.testing.assert_allclose(end.state.outer.s, [agent.s for agent in agents], rtol=1e-5)


def solved(task, network, steps=2000, method=None, **options):
    return decibo.solve(task, network, method, steps=steps, every=steps, progress=False, **options)


@pytest.mark.parametrize(
    "network", [decibo.ring(10), decibo.networks.path(10), decibo.networks.star(10)], ids=str
)
def test_exact_on_unequal_agents(network):
    task = decibo.problems.quadratic(10, heterogeneity=2.0, seed=1)
    end = solved(task, network, 3000, measures=["stationarity", "consensus_x"])
    assert end.status == "done"
    assert end.history["stationarity"][-1] < 1e-14
    assert end.history["consensus_x"][-1] < 1e-14
    assert "Step sizes found by the agents: alpha=" in end.message


@pytest.mark.slow
def test_an_ill_conditioned_inner_level():
    end = solved(
        decibo.problems.quadratic(10, condition=1e3, seed=0),
        decibo.ring(10),
        3000,
        measures=["stationarity"],
    )
    assert end.history["stationarity"][-1] < 1e-20


@pytest.mark.parametrize(("f", "g"), [(1e4, 1.0), (1e-4, 1.0), (1.0, 1e4), (1.0, 1e-4)])
def test_units_do_not_matter(f, g):
    plain = decibo.problems.quadratic(5, seed=0)
    task = decibo.Problem(
        lambda x, y, d: f * plain.outer(x, y, d),
        lambda x, y, d: g * plain.inner(x, y, d),
        plain.data,
        plain.x0,
        plain.y0,
    )
    end = solved(task, decibo.ring(5), 1500)
    np.testing.assert_allclose(end.x, plain.solution["x"], atol=1e-7)


def test_a_curvature_that_grows_a_million_times():
    b = np.random.default_rng(0).normal(size=(5, 3))
    outer = lambda x, y, d: 0.5 * jnp.sum((x - 14) ** 2) + 0.5 * jnp.sum((y - d) ** 2)
    inner = lambda x, y, d: 0.5 * jnp.sum(jnp.exp(x) * (y - d) ** 2) + 0.5 * jnp.sum(y**2)
    end = solved(decibo.Problem(outer, inner, b, np.zeros(3), np.zeros(3)), decibo.ring(5), 3000)
    assert end.status == "done"
    # where the curvature is a million times what it was
    np.testing.assert_allclose(end.x, 14, atol=1e-3)
    np.testing.assert_allclose(end.y, b.mean(0), atol=1e-3)


def test_single_precision():
    plain = decibo.problems.quadratic(5, seed=0)
    less = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)
    task = decibo.Problem(
        plain.outer, plain.inner, less(plain.data), less(plain.x0), less(plain.y0)
    )
    end = solved(task, decibo.ring(5), 1500)
    assert end.x.dtype == np.float32
    np.testing.assert_allclose(end.x, plain.solution["x"], atol=2e-4)


def test_minibatches_come_close_and_do_not_stall():
    task = decibo.problems.logistic_hyperparameters(agents=5, loss="mean", scale=16.0, batch=10)
    end = solved(
        task, decibo.ring(5), 1500, decibo.minibatch(decibo.ahead_exact()), measures=["phi"]
    )
    assert end.status == "done"
    assert end.history["phi"][-1] < end.history["phi"][0] / 4


@pytest.mark.slow
@pytest.mark.parametrize("network", [decibo.ring(10), decibo.networks.path(10)], ids=str)
def test_noise_alone_neither_stops_x_nor_lets_its_steps_fall(network):
    task = replace(
        decibo.problems.quadratic(n=8, r=16, condition=10.0, seed=0), sample=noisy, solution=None
    )
    end = solved(
        task, network, 400, decibo.minibatch(decibo.ahead_exact()), measures=["stationarity"]
    )
    assert end.history["stationarity"][-1] < 1e-3 * end.history["stationarity"][0]


def test_minibatches_without_curvature_do_not_stop_x():
    """Every other minibatch or so has no samples of the inner level."""
    target = np.arange(4.0)
    task = decibo.Problem(
        lambda x, y, d: jnp.sum((y - 1) ** 2),
        lambda x, y, d: jnp.sum(d["seen"]) * jnp.sum((y - x - d["target"]) ** 2),
        {"seen": np.ones((4, 1)), "target": target},
        0.0,
        0.0,
        sample=lambda d, key: d | {"seen": 2 * jax.random.bernoulli(key, 0.5, (1,)).astype(float)},
    )
    end = solved(task, decibo.ring(4), 1500, decibo.minibatch(decibo.ahead_exact()))
    solution = 1 - target.mean()
    assert abs(end.x - solution) < abs(solution) / 5  # x starts at 0


@pytest.mark.slow
def test_what_is_wrapped_first_keeps_the_rule_for_minibatches():
    task = replace(decibo.problems.quadratic(seed=0), sample=noisy, solution=None)
    sent = decibo.compression.compressed(decibo.ahead_exact(), decibo.compression.rounded())
    for method, pace in (
        (sent, rule.FULL),
        (decibo.minibatch(sent).replace(lam=50.0), rule.SAMPLED),
    ):
        end = solved(task, decibo.ring(10), 8, method)
        assert "alpha=" in end.message  # what they have found is read from inside
        kept = jax.tree.leaves(end.state, is_leaf=lambda node: isinstance(node, rule.Outer))
        (outer,) = (node for node in kept if isinstance(node, rule.Outer))
        assert len(outer.m) == len(pace.lags)


def test_a_kernel_without_second_derivatives():
    @jax.custom_vjp
    def square(y):
        return jnp.sum(y**2)

    square.defvjp(lambda y: (square(y), y), lambda y, seed: (_first_derivative_only(2 * y) * seed,))
    inner = lambda x, y, d: square(y - d * x) / 2
    outer = lambda x, y, d: jnp.sum((y - d) ** 2) / 2 + jnp.sum(x**2) / 20
    task = decibo.Problem(outer, inner, np.array([0.5, 1.0, 1.5]), np.zeros(1), np.zeros(1))
    end = solved(task, decibo.networks.path(3), 1500)
    np.testing.assert_allclose(end.x, [1 / 1.1], atol=1e-6)  # y* = x; mean d = 1


@jax.custom_jvp
def _first_derivative_only(y):
    return y


@_first_derivative_only.defjvp
def _refuse(primals, tangents):
    raise NotImplementedError("This kernel has no second derivatives.")


def test_one_step_size_may_be_given():
    task = decibo.problems.quadratic(5, seed=0)
    for method, found in (
        (decibo.ahead_exact(alpha=0.05), "gamma"),
        (decibo.ahead_exact(gamma=0.1), "alpha"),
    ):
        end = solved(task, decibo.ring(5), 2000, method, measures=["stationarity"])
        assert end.history["stationarity"][-1] < 1e-16
        assert f"found by the agents: {found}=" in end.message


@pytest.mark.slow
def test_links_that_fail_and_several_rounds():
    task = decibo.problems.quadratic(6, seed=0)
    failing = decibo.networks.failing(decibo.ring(6), 0.3)
    for network in (failing, decibo.networks.chebyshev(decibo.networks.path(6), 3)):
        end = solved(task, network, 2500, measures=["stationarity"])
        assert end.history["stationarity"][-1] < 1e-12
    # all have the same, although links fail
    assert np.ptp(solved(task, failing, 600).state.inner.gamma) == 0


def test_sweeps_take_methods_that_find_their_steps():
    task = decibo.problems.quadratic(5, seed=0)
    found = decibo.sweep(
        task,
        decibo.ring(5),
        decibo.ahead_exact(),
        {"lam": [10.0, 100.0]},
        steps=500,
        progress=False,
    )
    alone = solved(task, decibo.ring(5), 500, decibo.ahead_exact(lam=100.0))
    assert [str(status) for status in found.status] == ["done", "done"]
    np.testing.assert_allclose(found.history["outer"][1, -1], alone.history["outer"][-1], rtol=1e-9)


def test_a_network_for_each_variable_is_refused():
    ring = decibo.ring(5)
    with pytest.raises(decibo.InputError, match="finds its step sizes over one network"):
        decibo.solve(
            decibo.problems.quadratic(5), {"x": ring, "y": ring, "z": decibo.complete(5)}, steps=5
        )


def test_it_stays_where_it_has_come_to():
    """A rule that lets the step of x grow at rest would throw it out again and again."""
    task = decibo.problems.quadratic(10, heterogeneity=2.0, seed=1)
    end = decibo.solve(
        task,
        decibo.networks.star(10),
        steps=9000,
        every=1000,
        measures=["stationarity"],
        progress=False,
    )
    reached = int(np.argmax(end.history["stationarity"] < 1e-20))
    assert 0 < reached < 6
    assert max(end.history["stationarity"][reached:]) < 1e-20


def test_local_steps_are_refused():
    with pytest.raises(decibo.InputError, match="from what neighbours send at every step"):
        decibo.local_steps(decibo.ahead_exact(), 3)


def test_what_it_costs():
    cost = solved(decibo.problems.quadratic(5, n=3, r=4), decibo.ring(5), 5).cost
    assert (cost.outer_gradients, cost.inner_gradients) == (1, 2 + 1 / rule.PROBE)
    assert cost.numbers == 2 * 3 + 2 * 4 + 5
