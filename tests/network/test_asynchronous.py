"""Agents that do not wait: a numpy twin with mailboxes, lockstep as a special case, exactness, and
what is refused.

docs/explanation/asynchrony.md tests variables that travel apart.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, networks, prox

TEN = networks.random_regular(10, 4, seed=0)
PROBLEM = decibo.problems.quadratic()
FREE = decibo.methods.ahead_free(alpha=0.05, gamma=0.1)
HARD = {"speeds": {0: 0.1}, "delay": 3, "loss": 0.3}
DGD = decibo.compose(direction.single(), consensus.dgd(), x=0.1, y=0.1)
ROBUST = decibo.compose(direction.single(), consensus.robust_tracking(), x=0.2, y=0.2)
RING = decibo.ring(5)


def rows(network, method=ROBUST, steps=2000, **options):
    """Every agent's x, on one level."""
    options = {"steps": steps, "every": steps, "measures": ["outer"], **options}
    return np.asarray(decibo.solve(one_level(), network, method, **options).agents.x)


def minimiser(agents=range(5)):
    """Of the mean of (L_i/2) |x - b_i|^2 over these agents."""
    data = one_level().data
    L, b = (np.asarray(data[name])[list(agents)] for name in ("L", "b"))
    return L @ b / L.sum()


def outer(x, y, d):
    return d["L"] * jnp.sum((x - d["b"]) ** 2) / 2


def inner(x, y, d):
    return jnp.sum(y**2) / 2


def one_level():
    data = {"L": np.linspace(0.5, 2.0, 5), "b": np.arange(10.0).reshape(5, 2)}
    return decibo.Problem(outer, inner, data, np.zeros(2), np.zeros(1))


def twin(network, ticks, h, seed):
    """robust_tracking with a mailbox for each pair of neighbours; only what arrives when is taken
    from the network."""
    data, W, m = one_level().data, network.W, network.agents
    mixing = network.mixing()
    neighbours = np.asarray(mixing.neighbours)
    everyone = jnp.arange(m)
    arrivals = jax.jit(jax.vmap(mixing.arrivals, (0, None, None)))
    wakes = jax.jit(jax.vmap(mixing.awake, (0, None)))
    s = np.zeros((m, 2))
    p, c = s.copy(), s.copy()
    said = []  # what everybody had to say at each tick
    mailbox = {}  # (i, j) -> (tick, p_j, c_j)
    for k in range(ticks):
        said.append((p.copy(), c.copy()))
        key = jax.random.split(jax.random.fold_in(jax.random.key(seed), k))[0]
        new = s.copy(), p.copy(), c.copy()
        arrives, made = map(np.asarray, arrivals(everyone, k, jax.random.fold_in(key, 0)))
        awake = np.asarray(wakes(everyone, k))
        for i in range(m):
            for slot, j in enumerate(neighbours[:, i]):
                tick = made[i, slot]
                if j != i and arrives[i, slot] and tick > mailbox.get((i, j), (-1,))[0]:
                    mailbox[i, j] = tick, said[tick][0][j], said[tick][1][j]
            if not awake[i]:
                continue
            heard = [
                (W[i, j], *mail[1:]) for (receiver, j), mail in mailbox.items() if receiver == i
            ]
            own = 1 - sum(w for w, _, _ in heard)
            total = (
                own * c[i]
                + sum(w * their for w, _, their in heard)
                + data["L"][i] * (s[i] - data["b"][i])
            )
            new[0][i] = own * p[i] + sum(w * their for w, their, _ in heard)
            new[1][i] = new[0][i] - h * (total - c[i])
            new[2][i] = total
        s, p, c = new
    return s


def test_ticks_equal_numpy_with_a_mailbox_for_each_link():
    network = networks.asynchronous(RING, speeds=[1.0, 0.25, 1.0, 0.5, 1.0], delay=3, loss=0.3)
    np.testing.assert_allclose(
        rows(network, steps=12, seed=4), twin(network, 12, 0.2, seed=4), atol=1e-13
    )


def test_with_speed_one_delay_one_and_no_loss_it_is_lockstep():
    options = {"steps": 30, "start": decibo.random_start(3)}
    np.testing.assert_allclose(
        rows(networks.asynchronous(RING), **options), rows(RING, **options), atol=1e-13
    )


def test_a_straggler_delays_and_losses_do_not_move_the_answer():
    network = networks.asynchronous(TEN, **HARD)
    solution = decibo.solve(PROBLEM, network, FREE, steps=2000, every=400, measures=["rest"])
    assert jnp.max(jnp.abs(solution.agents.x - PROBLEM.solution["x"])) <= 1e-12
    assert solution.history["rest"][-1] <= 1e-12 < 1e-6 < solution.history["rest"][1]
    # agent 0 makes one step in ten
    assert (solution.cost.numbers, solution.cost.gradients) == (20.02, 2.73)


def test_relaying_is_exact_and_talks_at_every_tick():
    network = networks.asynchronous(RING, **HARD, relay=True)
    solution = decibo.solve(
        one_level(), network, ROBUST, steps=2000, every=2000, measures=["outer"]
    )
    np.testing.assert_allclose(solution.agents.x, np.broadcast_to(minimiser(), (5, 2)), atol=1e-12)
    assert (solution.cost.messages, solution.cost.gradients) == (1, 0.82)


def test_dgd_lands_off_as_it_does_in_lockstep():
    """In lockstep its agents rest where W x - x = h L (x - b)."""
    data = one_level().data
    still = np.eye(5) - RING.W + 0.1 * np.diag(data["L"])
    lockstep = np.abs(
        np.linalg.solve(still, 0.1 * data["L"][:, None] * data["b"]) - minimiser()
    ).max()
    off = np.abs(rows(networks.asynchronous(RING, **HARD), DGD) - minimiser()).max()
    assert 0.5 * lockstep < off < 4 * lockstep


def test_who_is_gone_is_left_out_after_the_patience_and_taken_back_when_heard():
    away = lambda first, back: networks.asynchronous(RING, away={3: (first, back)}, patience=20)
    others = [0, 1, 2, 4]
    np.testing.assert_allclose(rows(away(100, None))[others], [minimiser(others)] * 4, atol=1e-12)
    for first, back in ((100, 400), (0, 300)):  # back again, and joining late
        np.testing.assert_allclose(rows(away(first, back)), [minimiser()] * 5, atol=1e-12)
    # never heard of: left out from the start
    patient = networks.asynchronous(RING, away={3: (0, None)})
    np.testing.assert_allclose(rows(patient)[others], [minimiser(others)] * 4, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["exact_diffusion", "extra", "tracking", "atc_tracking", "push_pull"]
)
def test_strategies_that_need_lockstep_are_refused(name):
    method = decibo.compose(direction.single(), getattr(consensus, name)(), x=0.1, y=0.1)
    with pytest.raises(
        decibo.InputError, match=r"both ends of a link mix every message once.*robust_tracking\(\)"
    ):
        decibo.solve(one_level(), networks.asynchronous(RING), method)


def test_what_else_is_refused():
    ring = RING
    free = networks.asynchronous(ring)
    robust = lambda **maps: decibo.compose(
        direction.single(), consensus.robust_tracking(), x=0.1, y=0.1, prox=maps
    )
    refused = {
        "not just a direction": (
            networks.asynchronous(ring, relay=True),
            decibo.local_steps(robust(), 2),
        ),
        "is not a projection": (free, robust(x=prox.l1(0.1))),
        "needs all agents in lockstep": (free, decibo.ahead_exact()),
    }
    for words, (network, method) in refused.items():
        with pytest.raises(decibo.InputError, match=words):
            decibo.solve(one_level(), network, method)
    with pytest.raises(
        decibo.InputError, match="A network for each variable, such as x, needs all"
    ):
        networks.each({"x": free, "y": ring})
    for words, settings in {
        "one number for each of the 5 agents": {"speeds": [1.0, 0.5]},
        "The speed of agent 1 must be": {"speeds": {1: 2.0}},
        "'nobody' is named": {"speeds": {"nobody": 0.5}},
        "loss must be below 1": {"loss": 1.0},
        "delay must be a positive integer": {"delay": 0},
        "must be a pair": {"away": {1: 5}},
        "The end of": {"away": {1: (5, 5)}},
    }.items():
        with pytest.raises(decibo.InputError, match=words):
            networks.asynchronous(ring, **settings)
    for wrap in (
        lambda net: networks.failing(net, 0.1),
        lambda net: networks.chebyshev(net, 2),
        networks.asynchronous,
    ):
        with pytest.raises(decibo.InputError):
            wrap(free)


def test_a_sweep_runs_what_solve_runs():
    network = networks.asynchronous(RING, **HARD)
    runs = decibo.sweep(one_level(), network, [DGD], seeds=[3, 4], steps=9, measures=["outer"])
    alone = decibo.solve(one_level(), network, DGD, steps=9, seed=4, measures=["outer"])
    np.testing.assert_allclose(
        runs.history["outer"].reshape(2, -1)[1], alone.history["outer"], atol=1e-12
    )
