"""Noise in messages: the recursion and the noise against numpy, where it lands, what eps claims,
what is refused."""

import jax
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, methods, privacy
from decibo.algorithm.schedules import polynomial
from decibo.silo import Job, Site
from helpers.twin import NETWORKS, as_rows, problem

A, B, C = 0.05, 0.03, 0.1
STEPS = 30
NOISE = lambda k: 0.3 * (1 + k) ** 0.1
COUPLING = polynomial(0.8, -0.5)
OURS, TWIN = problem("vector", 6)
QUIET = 1e-30


def method(**options):
    return methods.ldp_dsbo(
        **{"alpha": A, "beta": B, "gamma": C, "noise": NOISE, "coupling": COUPLING} | options
    )


def implicit(i, x, y, v, twin=TWIN):
    return {
        "x": twin.f_x(i, x, y) - twin.J(i, x, y, v),
        "y": twin.g_y(i, x, y),
        "v": twin.H(i, x, y, v) - twin.f_y(i, x, y),
    }


def clipped(d, clip):
    return (
        d
        if clip is None
        else {name: row * min(1, clip / max(np.abs(row).sum(), 1e-300)) for name, row in d.items()}
    )


def alone(i, W, heard, clip=None, twin=TWIN):
    """The variables of agent i at every step, found from what its neighbours sent and its own
    data."""
    h = {"x": A, "y": B, "v": C}
    s = {name: np.zeros(heard[0][name].shape[1]) for name in h}
    path = [s]
    for k, p in enumerate(heard):
        d = clipped(implicit(i, s["x"], s["y"], s["v"], twin), clip)
        pull = {
            name: sum(W[i, j] * (p[name][j] - s[name]) for j in range(len(W)) if j != i)
            for name in s
        }
        s = {name: s[name] + 0.8 * (1 + k) ** -0.5 * pull[name] - h[name] * d[name] for name in s}
        path.append(s)
    return path


PATH = NETWORKS["path"]()


@pytest.fixture(scope="module")
def heard():
    """What the agents of a path say."""
    sent = privacy.messages(OURS, PATH, method(), steps=STEPS)
    return [{name: np.asarray(rows) for name, rows in step[0].items()} for step in sent]


@pytest.fixture(scope="module")
def paths(heard):
    """What they are at while they say it."""
    return [alone(i, PATH.W, heard) for i in range(6)]


def test_steps_equal_numpy(paths):
    """Neighbours hear s + n, while an agent's own s has nothing of its n."""
    end = as_rows(OURS, decibo.solve(OURS, PATH, method(), steps=STEPS, measures=["outer"]))
    for i, path in enumerate(paths):
        for name, row in path[-1].items():
            np.testing.assert_allclose(end[name][i], row, rtol=0, atol=1e-12)


def test_the_noise_is_laplaces_and_everybodys_own(heard, paths):
    rows = lambda k: np.stack(
        [np.concatenate([heard[k][n][i] - paths[i][k][n] for n in "xyv"]) for i in range(6)]
    )
    noise = np.stack([rows(k) / NOISE(k) for k in range(STEPS)])  # step, agent, number
    assert np.abs(noise).mean() == pytest.approx(1, abs=0.07)  # of 1,980
    assert noise.mean() == pytest.approx(0, abs=0.1)
    assert (noise**2).mean() == pytest.approx(2, abs=0.4)
    for axis in range(3):  # no two agents, steps or numbers share theirs
        flat = np.moveaxis(noise, axis, 0).reshape(noise.shape[axis], -1)
        assert np.abs(np.corrcoef(flat) - np.eye(len(flat))).max() < 0.5


def test_gaussian_noise_has_the_deviation_that_is_asked_for():
    drawn = consensus.faded(1.0, kind="gaussian").fading.draw(jax.random.key(0), (4000,), float)
    assert drawn.std() == pytest.approx(1, abs=0.04)
    assert (drawn**4).mean() == pytest.approx(3, abs=0.4)  # Laplace's has 24


def test_variables_may_have_noise_of_their_own():
    """Two strategies of one kind with other numbers are two messages."""
    strategies = {"x": consensus.faded(5.0), "y": consensus.faded(0.01), "v": consensus.local()}
    both = decibo.compose(direction.implicit(), strategies, x=A, y=B, v=C)
    (x, y), *_ = privacy.messages(OURS, decibo.ring(6), both, steps=1)
    assert np.abs(x["x"]).mean() > 1 > 0.1 > np.abs(y["y"]).mean()


QUADRATIC = decibo.problems.quadratic(agents=5)
FIVE = decibo.ring(5)


def ends(steps, noise, coupling, power):
    """|xbar - x*| at the end."""
    fall = lambda size: polynomial(size, power, delay=10.0)
    by = method(alpha=fall(0.1), beta=fall(0.3), gamma=fall(0.3), noise=noise, coupling=coupling)
    end = decibo.solve(QUADRATIC, FIVE, by, steps=steps, every=steps, measures=["distance_x"])
    return float(np.sqrt(end.history["distance_x"][-1]))


def test_it_comes_as_near_as_step_over_coupling():
    """k^-0.9/k^-0.6: ten times the steps halve the error."""
    errors = [ends(steps, QUIET, polynomial(1.0, -0.6, delay=10.0), -0.9) for steps in (500, 5000)]
    assert 0.45 < errors[1] / errors[0] < 0.55


def test_faded_messages_let_less_noise_in():
    """With the same steps and noise, a coupling that does not fall keeps shaking."""
    faded = ends(5000, 0.5, polynomial(1.0, -0.6, delay=10.0), -0.9)
    assert ends(5000, 0.5, polynomial(1.0, 0.0), -0.9) > 2 * faded


def test_others_is_what_the_diagonal_leaves():
    """For all kernels, hubs, and links that fail: the diagonal of I - W."""
    key = jax.random.key(3)
    star = decibo.networks.star(9)
    kinds = [decibo.ring(7).mixing(kernel) for kernel in ("dense", "circulant")]
    kinds += [star.mixing("sparse"), decibo.networks.failing(decibo.ring(7), 0.4).mixing()]
    for mixing in kinds:
        agents = 9 if mixing is kinds[2] else 7
        left = -np.diagonal(mixing.difference(np.eye(agents), 2, key))
        np.testing.assert_allclose(mixing.others(2, key), left, atol=1e-15)
    assert kinds[2].hubs.shape[0]


# eps


def test_eps_is_the_sum_of_what_other_data_may_change():
    """Agent 0 gets other data, and the messages stay as they are: its variables move by at most
    D_k, (3)."""
    network, clip = PATH, 0.4
    sent = privacy.messages(OURS, network, method(clip=clip), steps=STEPS)
    heard = [{name: np.asarray(rows) for name, rows in step[0].items()} for step in sent]
    other = problem("vector", 6)[1]
    other.data = {name: np.roll(-3 * rows, 1, axis=0) for name, rows in other.data.items()}
    one, two = (alone(0, network.W, heard, clip, twin) for twin in (TWIN, other))
    eps, far = 0.0, 0.0
    for name, h in (("x", A), ("y", B), ("v", C)):
        D = 0.0
        for k in range(STEPS):
            apart = np.abs(one[k][name] - two[k][name]).sum()
            assert apart <= D + 1e-12
            far = max(far, apart / D if D else 0)
            eps += D / NOISE(k)
            D = (1 - 0.8 * (1 + k) ** -0.5 * (1 - network.W[0, 0])) * D + 2 * clip * h
    assert far > 0.5  # the bound is not idle
    least = 1 - network.W.diagonal().max()
    # the ends of a path hear least, so that theirs is the largest
    assert least == pytest.approx(1 - network.W[0, 0])
    assert privacy.epsilon(method(clip=clip), network, STEPS) == pytest.approx(eps, rel=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
def test_eps_counts_the_size_of_noise_and_steps_whatever_their_sign_becomes(sign):
    """Only the first value of a schedule is checked, and noise of scale -b is noise of scale b."""
    turned = lambda size: lambda k: size * (1 if k < 2 else sign)
    by = method(clip=0.4, noise=turned(0.3), alpha=turned(A), beta=turned(B), gamma=turned(C))
    assert privacy.epsilon(by, PATH, 6) == privacy.epsilon(method(clip=0.4, noise=0.3), PATH, 6) > 0
    without = method(clip=0.4, noise=lambda k: 0.3 * (k < 4))
    assert np.isfinite(privacy.epsilon(without, PATH, 4))
    assert privacy.epsilon(without, PATH, 5) == np.inf


@pytest.mark.parametrize(
    ("by", "network", "words"),
    [
        (method(), FIVE, "no bound"),
        (method(clip=1.0, kind="gaussian"), FIVE, "not Laplace"),
        (methods.sldbo(alpha=A, beta=B, gamma=C), FIVE, "without noise"),
        (decibo.local_steps(method(clip=1.0), 2), FIVE, "not just a direction"),
        (method(clip=1.0, alpha=decibo.rule.adam(0.1)), FIVE, "further than its step size"),
        (method(clip=1.0), decibo.networks.failing(FIVE, 0.1), "fixed links"),
    ],
)
def test_eps_is_refused_where_it_is_not_known(by, network, words):
    with pytest.raises(decibo.InputError, match=words):
        privacy.epsilon(by, network, 10)


# What is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": 0.0}, "noise must be a positive"),
        ({"coupling": 1.5}, "coupling must be at most 1, but it begins with 1.5"),
        ({"coupling": -0.1}, "coupling must be a positive"),
        ({"kind": "normal"}, "kind must be one of laplace, gaussian"),
        ({"clip": 0.0}, "clip must be a positive"),
    ],
)
def test_bad_numbers_are_refused(options, words):
    with pytest.raises(decibo.InputError, match=words):
        method(**options)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (decibo.networks.asynchronous(FIVE), "needs all agents in lockstep"),
        (decibo.networks.chebyshev(FIVE, 2), "exchanges several"),
        (decibo.networks.directed_ring(5), "doubly stochastic"),
    ],
)
def test_networks_on_which_it_cannot_work_are_refused(network, words):
    with pytest.raises(decibo.InputError, match=words):
        decibo.solve(QUADRATIC, network, method(), steps=1)


def test_wrappers_and_sites_refuse_noise():
    with pytest.raises(decibo.InputError, match="what a compressor makes"):
        decibo.compression.compressed(method(), decibo.compression.top_k(0.5))
    with pytest.raises(decibo.InputError, match="masks would lead it elsewhere"):
        privacy.masked(method(), 1.0)
    sites = tuple(Site(name) for name in "abcde")
    for mode in ("lockstep", "free"):
        with pytest.raises(decibo.InputError, match="every site could subtract it"):
            Job(sites, QUADRATIC, FIVE, method(), mode=mode)
