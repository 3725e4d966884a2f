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

STEPS = 150
EPS = np.finfo(float).eps


def noise(size):
    """The fixed direction in every probe."""
    return unit(np.modf(np.arange(1, size + 1) * (np.sqrt(5) - 1) / 2)[0] - 0.5)


def unit(v):
    return v / max(np.linalg.norm(v), np.finfo(float).tiny)


def most(L):
    """(4) with r = 1."""
    return rule.SAFE * (2 - rule.THETA) / (rule.THETA * (3 - 2 * rule.THETA)) / L


class Coordinate:
    """A step size of one agent and one coordinate: equations (8)-(11) and (14), one after
    another."""

    def __init__(self):
        self.longest, self.largest = rule.START, 0.0
        self.average = self.changed = self.square = 0.0
        self.forget()

    def forget(self):
        self.s, self.n, self.T, self.p, self.before, self.runs, self.sign = None, 0, 0, 0, 0, 0, 0

    def cut(self, p, minibatches):
        ratio = p / (np.sqrt(self.square) if minibatches else self.before)
        if not minibatches:
            return max((1 + ratio) ** -rule.CUT, rule.MOST)
        power = rule.CUT / (2 * max(self.runs, 1))
        return max((1 + ratio) ** -power * max(ratio / rule.BIG, 1) ** -rule.CUT, rule.MOST)

    def move(self, k, t, e, d, v, lag, B, minibatches):
        """s B t; `lag` is None while x stands still."""
        self.largest = max(self.largest, abs(t), abs(d))
        if minibatches:
            self.average += max(rule.AVERAGE, 1 / (k + 1)) * (t - self.average)
            self.changed += max(rule.AVERAGE, 1 / (k + 1)) * (e - self.changed)
            recent = max(rule.AVERAGE / 2, 3 / (k + 3))
            self.square += recent * (self.average**2 - self.square)
            t, e = self.average, self.changed
        if lag is None:
            self.forget()
            self.s = self.longest / abs(t)
            return 0.0
        if t * self.sign < 0:
            self.T, self.n, self.before, self.p = self.n, 0, self.p, 0.0
            self.runs += 1
        self.n += 1
        A = np.clip(1 - 2 * abs(e) / (v * abs(t)), 0 if minibatches else -1, 1)  # (9)
        if A > 0:
            A *= B if abs(t) > rule.ROUNDING * np.sqrt(k + 1) * EPS * self.largest else 0
        if minibatches:
            A /= max(self.runs, 1)
        P = max(self.T, lag)
        grow = 1 + A / P if self.n > P else 1
        self.s *= grow  # (10)
        new = max(self.p, abs(t))
        if self.before > 0:
            self.s *= self.cut(new, minibatches) / self.cut(self.p, minibatches)  # (11)
        self.p = new
        self.s = min(self.s, self.longest * grow / abs(t))
        self.longest = max(self.longest, self.s * abs(t))
        self.sign = np.sign(t)
        return self.s * B * t


class Agent:
    """One agent of the twin, each quantity under the name that it has in the header."""

    def __init__(self, twin, i, x, c, w, lam):
        self.lam = lam
        self.twin, self.i, self.x, self.c, self.w = twin, i, x, c, w
        self.v, self.scale = noise(c.size), 1 + np.linalg.norm(c)
        for look in range(rule.STARTS):
            self.l, along = self.probe(c)
            self.v = self.v if look < 2 else along
            far = max(np.linalg.norm(c), np.linalg.norm(twin.g_y(i, x, c)) / self.l)
            self.scale = 2.0 ** np.ceil(np.log2(far))
        self.L = self.l
        self.level = np.log(self.l)
        self.a = {"c": 0 * c, "w": 0 * c}
        self.memory = {"c": 0 * c, "w": 0 * c}
        self.sent = {"c": 0 * c, "w": 0 * c}
        self.moves = np.zeros(4)
        self.t = self.d = self.e = self.pushed = 0 * x
        self.lag, self.size = None, 0.0
        self.once = self.twice = 0 * c
        self.coordinates = [Coordinate() for _ in x]

    def probe(self, y):
        e = np.sqrt(EPS) * self.scale
        g = lambda y: self.twin.g_y(self.i, self.x, y)
        h = (g(y + e * self.v) - g(y)) / e  # (2)
        return np.linalg.norm(h), unit(h)

    def direction(self):
        twin, i = self.twin, self.i
        lam = self.lam or np.linalg.norm(self.w) / (np.cbrt(EPS) * self.scale)
        y, z = self.c + self.w / lam, self.c - self.w / lam
        self.y, self.scale = y, max(self.scale, np.linalg.norm(self.c))
        g_y, h_y = twin.g_y(i, self.x, y), twin.g_y(i, self.x, z)
        self.secant = np.linalg.norm(g_y - h_y) / np.linalg.norm(y - z)
        return {
            "c": (g_y + h_y) / 2,
            "w": lam / 2 * (g_y - h_y) + twin.f_y(i, self.x, self.c),
            "x": twin.f_x(i, self.x, self.c)
            + lam / 2 * (twin.g_x(i, self.x, y) - twin.g_x(i, self.x, z)),
        }

    def look(self, k, minibatches):
        """(2), (3); the curvature that the brake sees."""
        if k % rule.PROBE == 0:
            self.l, along = self.probe(self.y)
            self.v = unit(along + rule.NOISE * noise(self.c.size))
            self.L = max(self.l, rule.FALL * self.L)
            seen = self.L if minibatches else self.l
            self.level += (np.log(seen) - self.level) / rule.LATE
        else:
            seen = self.L
        self.L = max(self.L, self.secant)
        self.B = min(1.0, (seen / np.exp(self.level)) ** -rule.BRAKE)  # (12)

    def settle(self, k, w, rate, minibatches):
        """(6); `w` from before the step, whose own move is in D and M already."""
        move = np.sqrt(self.moves[3])
        if minibatches:
            self.once = self.once + 2 / (k + 2) * (w - self.once)
            self.twice = self.twice + 2 / (k + 2) * (self.once - self.twice)
            w, move = self.once, 2 / (k + 2) * np.linalg.norm(self.once - self.twice)
        self.size = max(self.size, np.linalg.norm(w))
        if self.lag is None and k >= rule.LEAST and k * move <= rule.SETTLED * self.size:
            self.lag = (k + 0.5) / 2 * rate


def twin_run(twin, network, starts, lam, *, minibatches):
    W = np.asarray(network.W)
    neighbours = [np.flatnonzero(row) for row in W]
    u = (1 - np.sort(np.linalg.eigvalsh(W))[-2]) / 2
    b = (1 - np.sqrt(u)) / (1 + np.sqrt(u))
    v = u / (1 - (1 - u) * b)
    period = max(network.width, rule.PROBE)
    agents = [Agent(twin, i, *(starts[name][i] for name in "xcw"), lam) for i in range(len(W))]
    r = rule.FIRST
    gamma = r * most(max(agent.L for agent in agents))
    news = [np.append(agent.L, agent.moves) for agent in agents]
    for k in range(STEPS):
        directions = [agent.direction() for agent in agents]
        for agent in agents:
            agent.look(k, minibatches)
        if k % period == 0:
            if k:
                largest, *numbers = np.max(news, axis=0)  # everybody has the same
                assert np.ptp(news, axis=0).max() == 0, "not everybody has heard"
                lean = -1.0  # nothing had moved at step 0, when the first news set out
                if numbers[1] > 0:
                    ratio = np.sqrt((numbers[0] / numbers[1] + numbers[2] / numbers[3]) / 2)
                    lean = np.clip(np.log(ratio / u), -1, 1)
                least = min(np.sqrt(u) / 2, rule.FIRST)
                r = np.clip(r * np.exp(-period * min(rule.PACE, u) * lean), least, 1)  # (5)
                before = gamma
                gamma = r * most(largest)  # (4)
                for agent in agents:
                    agent.memory = {n: gamma / before * c for n, c in agent.memory.items()}
            news = [np.append(agent.L, agent.moves) for agent in agents]
        news = [np.max([news[j] for j in near], axis=0) for near in neighbours]
        was = [(agent.c, agent.w, dict(agent.sent)) for agent in agents]
        for name in "cw":
            sent = []
            for agent, d in zip(agents, directions, strict=True):
                capped = min(1.0, most(agent.L) / gamma) * d[name]
                agent.a[name] = agent.a[name] + rule.THETA * (capped - agent.a[name])  # (1)
                along = agent.a[name] + rule.THETA * (capped - agent.a[name])
                sent.append(getattr(agent, name) - gamma * along + agent.memory[name])
            for agent, own, other in zip(agents, sent, W @ np.array(sent), strict=True):
                agent.sent[name] = (other - own) / 2
                agent.memory[name] = agent.memory[name] + agent.sent[name]
                setattr(agent, name, own + agent.sent[name])
        for agent, (c, w, sent) in zip(agents, was, strict=True):
            if k % rule.PROBE == 0:
                changed = [np.sum((agent.sent[n] - sent[n]) ** 2) for n in "cw"]
                moved = [np.sum((agent.c - c) ** 2), np.sum((agent.w - w) ** 2)]
                now = np.array([changed[0], moved[0], changed[1], moved[1]])
                agent.moves = agent.moves + rule.RECENT * (now - agent.moves)
            agent.settle(k, w, gamma / r, minibatches)
        Q, T = [], []
        for agent, d in zip(agents, directions, strict=True):
            agent.t = agent.t + agent.e + d["x"] - agent.d  # (7)
            agent.d = d["x"]
            lag = None if agent.lag is None else max(rule.LEAST, agent.lag * r / gamma)
            move = [
                each.move(k, *of_one, v, lag, agent.B, minibatches)
                for each, *of_one in zip(agent.coordinates, agent.t, agent.e, agent.d, strict=True)
            ]
            Q.append(agent.x - move)
            T.append(agent.t)
        sent = [np.array(Q) + b * np.array([agent.pushed for agent in agents])]
        sent.append(np.array(T) + b * np.array([agent.e for agent in agents]))
        apart = [(W @ each - each) / 2 for each in sent]
        for i, agent in enumerate(agents):
            agent.pushed = b * agent.pushed + apart[0][i]
            agent.e = b * agent.e + apart[1][i]
            agent.x = Q[i] + agent.pushed
    return agents, gamma


@pytest.mark.parametrize("minibatches", [False, True], ids=["all data", "minibatches"])
@pytest.mark.parametrize(("network", "lam"), [("path", None), ("ring", 20.0)])
def test_the_recursion_is_the_one_in_the_header(network, lam, minibatches):
    network = NETWORKS[network]()
    task, twin = problem("vector", network.agents)
    starts = {to: twin.starts()[name] for name, to in (("x", "x"), ("y", "c"), ("z", "w"))}
    agents, gamma = twin_run(twin, network, starts, lam, minibatches=minibatches)
    assert all(agent.lag is not None for agent in agents), "x has not moved"
    method = decibo.ahead_exact(lam=lam)
    if minibatches:  # a minibatch of all data
        task, method = replace(task, sample=lambda d, key: d), decibo.minibatch(method)
    end = decibo.solve(
        task, network, method, steps=STEPS, start=as_start(task, starts), progress=False
    )
    for name in "xcw":
        ours = np.asarray(getattr(end.agents, name)).reshape(network.agents, -1)
        np.testing.assert_allclose(
            ours, [getattr(agent, name) for agent in agents], rtol=1e-6, atol=1e-8
        )
    np.testing.assert_allclose(end.state.inner.gamma, gamma, rtol=1e-6)
    found = [[np.log(each.s) for each in agent.coordinates] for agent in agents]
    np.testing.assert_allclose(end.state.outer.s, found, atol=1e-5)


@pytest.mark.parametrize("wrong", [1, 2, 3, 5, 10])
def test_one_mode_stays_below_twice_the_cube_of_the_error_of_the_lag(wrong):
    """x follows w, which follows c, which follows x, each by 1/(wrong times the lag that was
    measured)."""
    lag = 10
    coordinate, x, c, w, largest = Coordinate(), 1.0, 1.0, 1.0, 0.0
    coordinate.s = 1e-6
    coordinate.longest = np.inf
    for k in range(60_000):
        largest = max(largest, abs(x))
        x -= coordinate.move(k, w, 0.0, 0.0, 1.0, lag, 1.0, False)
        c += (x - c) / (wrong * lag)
        w += (c - w) / (wrong * lag)
        if abs(x) + abs(w) < 1e-9:
            break
    assert abs(x) < 1e-8
    assert largest < 2 * wrong**3


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


MILLION = 2.0**20  # so that multiplying by it does not round


@pytest.mark.parametrize("of", ["f", "g", "y"])
@pytest.mark.parametrize("unit", [MILLION, 1 / MILLION])
def test_the_same_steps_and_solution_in_any_units_of_f_g_and_y(of, unit):
    """Up to rounding, of which a probe, a difference of gradients, has the root. s, a step along
    the gradient of Phi, falls with f; gamma with the curvature of g."""
    plain = decibo.problems.quadratic(5, seed=0)
    unit = {"f": 1.0, "g": 1.0, "y": 1.0} | {of: unit}
    task = decibo.Problem(
        lambda x, y, d: unit["f"] * plain.outer(x, unit["y"] * y, d),
        lambda x, y, d: unit["g"] * plain.inner(x, unit["y"] * y, d),
        plain.data,
        plain.x0,
        plain.y0,
    )
    np.testing.assert_allclose(solved(task, decibo.ring(5), 1500).x, plain.solution["x"], atol=1e-7)
    ours, theirs = (solved(each, decibo.ring(5), 300) for each in (task, plain))  # x moves
    close = {"rtol": 10 * np.sqrt(EPS), "atol": 10 * np.sqrt(EPS)}
    np.testing.assert_allclose(ours.x, theirs.x, **close)
    s, gamma = ours.state.outer.s, ours.state.inner.gamma
    np.testing.assert_allclose(s + np.log(unit["f"]), theirs.state.outer.s, **close)
    curvature = unit["g"] * unit["y"] ** 2
    np.testing.assert_allclose(gamma * curvature, theirs.state.inner.gamma, **close)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_same_solution_in_any_units_of_x(unit):
    """The first move of x is 1e-3 in any units, so that it may take longer."""
    plain = decibo.problems.quadratic(5, seed=0)
    task = decibo.Problem(
        lambda x, y, d: plain.outer(unit * x, y, d),
        lambda x, y, d: plain.inner(unit * x, y, d),
        plain.data,
        plain.x0,
        plain.y0,
    )
    end = solved(task, decibo.ring(5), 3000)
    np.testing.assert_allclose(unit * end.x, plain.solution["x"], atol=1e-7)


def test_a_curvature_that_grows_a_million_times():
    b = np.random.default_rng(0).normal(size=(5, 3))
    outer = lambda x, y, d: 0.5 * jnp.sum((x - 14) ** 2) + 0.5 * jnp.sum((y - d) ** 2)
    inner = lambda x, y, d: 0.5 * jnp.sum(jnp.exp(x) * (y - d) ** 2) + 0.5 * jnp.sum(y**2)
    end = solved(decibo.Problem(outer, inner, b, np.zeros(3), np.zeros(3)), decibo.ring(5), 9000)
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
    for method, minibatches in ((sent, False), (decibo.minibatch(sent).replace(lam=50.0), True)):
        end = solved(task, decibo.ring(10), 8, method)
        assert "alpha=" in end.message  # what they have found is read from inside
        kept = jax.tree.leaves(end.state, is_leaf=lambda node: isinstance(node, rule.Outer))
        (outer,) = (node for node in kept if isinstance(node, rule.Outer))
        assert isinstance(outer.noise, rule.Noise) == minibatches


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
    with pytest.raises(decibo.InputError, match="finds its step sizes itself"):
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


HELLO = decibo.Problem(
    lambda x, y, d: jnp.sum((y - d) ** 2),
    lambda x, y, d: jnp.sum((y - x) ** 2) + 0.5 * jnp.sum((y + d) ** 2),
    np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [2.0, 3.0]]),
    np.zeros(2),
    np.zeros(2),
)


@pytest.mark.parametrize(
    "task",
    [lambda: HELLO, lambda: decibo.problems.logistic_hyperparameters(agents=4)],
    ids=["readme", "logistic"],
)
def test_a_longer_run_is_not_a_worse_one(task):
    phi = decibo.solve(
        task(), decibo.ring(4), steps=2000, every=10, measures=["phi"], progress=False
    ).history["phi"]
    best = np.minimum.accumulate(phi)
    assert np.max(phi - best) <= 0.05 * (phi[0] - best[-1])
    assert best[-1] < phi[0] / 4


@pytest.mark.parametrize("goes_back", [True, False])
def test_who_runs_into_a_wall_goes_back_and_says_so(goes_back, monkeypatch):
    """y_1 is so large in f that the lag of y_2, a thousand steps, is not seen: x_2 comes back from
    afar and runs into an exponential."""
    if not goes_back:
        monkeypatch.setattr(rule, "FAR", np.inf)
    curvature = np.array([1, 1e-3])
    task = decibo.Problem(
        lambda x, y, d: 1e4 * (y[0] - 1) ** 2 + jnp.exp(2 * y[1]) + y[1] ** 2 / 20,
        lambda x, y, d: jnp.sum(curvature * (y - x) ** 2) / 2,
        np.zeros(3),
        np.zeros(2),
        np.zeros(2),
    )
    end = solved(task, decibo.ring(3), 6000)
    slope = abs(2 * np.exp(2 * end.x[1]) + end.x[1] / 10)  # of Phi, where y* = x
    assert (slope < 1e-2) == (end.status == "failed") == goes_back
    assert ("went back" in end.message) == goes_back


def test_local_steps_are_refused():
    with pytest.raises(decibo.InputError, match="without an exchange"):
        decibo.local_steps(decibo.ahead_exact(), 3)


def test_what_it_costs():
    cost = solved(decibo.problems.quadratic(5, n=3, r=4), decibo.ring(5), 5).cost
    assert (cost.outer_gradients, cost.inner_gradients) == (1, 2 + 1 / rule.PROBE)
    assert cost.numbers == 2 * 3 + 2 * 4 + 7
