"""Estimators against numpy with the same draws, what they do to bias and variance, and where they
land."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, estimator, rule
from decibo.capabilities import Need
from decibo.data import Batches
from decibo.measure.cost import examine
from decibo.problem.problem import Oracle
from decibo.pytree import one_of
from helpers import twin as twins

AGENTS, BATCHES, SEED = 4, 5, 3
A, B, C, P = 0.05, 0.2, 0.15, 0.3


def finite_sum(agents=AGENTS):
    """Every agent has BATCHES samples, each with f and g as in helpers.twin, and its objectives are
    means over them."""
    twin = twins.make(agents * BATCHES, 3, 4)
    data = {
        name: leaf.reshape(agents, BATCHES, *leaf.shape[1:]) for name, leaf in twin.data.items()
    }
    mean = lambda one: lambda x, y, d: jnp.mean(jax.vmap(one, (None, None, 0))(x, y, d))
    functions = mean(twins.outer), mean(twins.inner)
    return decibo.Problem(*functions, data, np.zeros(3), np.zeros(4), sample=Batches(BATCHES)), twin


def D(twin, i, j, s):
    """The implicit direction of agent i on its batch j, or on all of them."""
    if j is None:
        return sum(D(twin, i, j, s) for j in range(BATCHES)) / BATCHES
    x, y, v = s[:3], s[3:7], s[7:]
    i = i * BATCHES + j
    return np.concatenate(
        [
            twin.f_x(i, x, y) - twin.J(i, x, y, v),
            twin.g_y(i, x, y),
            twin.H(i, x, y, v) - twin.f_y(i, x, y),
        ]
    )


def drawn(k, i):
    """The batch that agent i draws at step k."""
    _, agents = jax.random.split(jax.random.fold_in(jax.random.key(SEED), k))
    return int(jax.random.bits(jax.random.fold_in(agents, i), (), jnp.uint32)) % BATCHES


def heads(k):
    return k == 0 or bool(jax.random.bernoulli(jax.random.fold_in(jax.random.key(0), k), P))


# Each is made once for an agent and called with (D, s, k, j) of step 0, 1, 2, ...; D(j, s) is its
# direction on batch j.


def by_minibatch():
    return lambda D, s, k, j: D(j, s)


def by_storm(a):
    past = {}

    def at(D, s, k, j):
        d = D(j, s) if k == 0 else D(j, s) + (1 - a(k)) * (past["d"] - D(j, past["s"]))
        past.update(s=s, d=d)
        return d

    return at


def by_recursion(due):
    past = {}

    def at(D, s, k, j):
        d = D(None, s) if due(k) else past["d"] + D(j, s) - D(j, past["s"])
        past.update(s=s, d=d)
        return d

    return at


def by_table():
    table = np.zeros((BATCHES, 11))

    def at(D, s, k, j):
        d = D(j, s) - table[j] + table.mean(axis=0)
        table[j] = D(j, s)
        return d

    return at


def by_snapshot(due):
    last = {}

    def at(D, s, k, j):
        if due(k):
            last["d"] = D(None, s)
        return last["d"]

    return at


falling = decibo.schedules.polynomial(1.0, -0.5)
TWINS = {
    "minibatch": (estimator.minibatch(), by_minibatch),
    "storm": (estimator.storm(0.4), lambda: by_storm(lambda k: 0.4)),
    "storm, falling": (estimator.storm(falling), lambda: by_storm(falling)),
    "page": (estimator.page(P), lambda: by_recursion(heads)),
    "sarah": (estimator.sarah(3), lambda: by_recursion(lambda k: k % 3 == 0)),
    "saga": (estimator.saga(), by_table),
    "snapshot": (estimator.snapshot(P), lambda: by_snapshot(heads)),
}


def tracked(D, W, h, hands, steps, normalise=False):
    """Gradient tracking from 0, agent by agent."""
    agents = len(W)
    s = np.zeros((agents, len(h)))
    t = np.zeros_like(s)
    old = np.zeros_like(s)
    for k in range(steps):
        d = np.stack(
            [
                hands[i](lambda j, s, i=i: D(i, j, s), s[i].copy(), k, drawn(k, i))
                for i in range(agents)
            ]
        )
        t = W @ t + d - old
        old = d
        u = np.stack([_unit(row) for row in t]) if normalise else t
        s = W @ s - h * u
    return s


def _unit(row):
    """x, y and the third variable, each divided by its norm where it has one."""
    return np.concatenate(
        [part / (np.linalg.norm(part) or 1.0) for part in (row[:3], row[3:7], row[7:])]
    )


def found_by(problem, network, method, third, steps):
    solution = decibo.solve(
        problem, network, method, steps=steps, every=steps, measures=["outer"], seed=SEED
    )
    rows = twins.as_rows(problem, solution)
    return np.hstack([rows["x"], rows["y"], rows[third]])


STEPS = 9
H = np.array([A] * 3 + [B] * 4 + [C] * 4)


@pytest.mark.parametrize("name", TWINS)
def test_equals_numpy_with_the_same_draws(name):
    """Implicit direction x gradient tracking."""
    ours, by_hand = TWINS[name]
    problem, twin = finite_sum()
    network = decibo.networks.path(AGENTS)
    method = decibo.compose(
        direction.implicit(), consensus.tracking(), estimator=ours, x=A, y=B, v=C
    )
    wanted = tracked(partial(D, twin), network.W, H, [by_hand() for _ in range(AGENTS)], STEPS)
    np.testing.assert_allclose(
        found_by(problem, network, method, "v", STEPS), wanted, rtol=1e-11, atol=1e-13
    )
    assert len({drawn(k, i) for k in range(STEPS) for i in range(AGENTS)}) == BATCHES
    assert 1 < sum(heads(k) for k in range(STEPS)) < STEPS  # both branches were met


NAMED = {
    "saba": (decibo.methods.saba(alpha=A, beta=B, gamma=C), by_table),
    "srba": (
        decibo.methods.srba(alpha=A, beta=B, gamma=C, period=3),
        lambda: by_recursion(lambda k: k % 3 == 0),
    ),
    "snapshot": (
        decibo.compose(
            direction.implicit(),
            consensus.tracking(),
            estimator=estimator.snapshot(P),
            x=A,
            y=B,
            v=C,
        ),
        lambda: by_snapshot(heads),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_on_one_agent_the_named_methods_are_the_plain_recursions(name):
    """s - h d, without a network; on several agents they are what is tested above."""
    method, by_hand = NAMED[name]
    problem, twin = finite_sum(1)
    s = np.zeros(11)
    hand = by_hand()
    for k in range(STEPS):
        s = s - H * hand(lambda j, s: D(twin, 0, j, s), s.copy(), k, drawn(k, 0))
    np.testing.assert_allclose(
        found_by(problem, decibo.complete(1), method, "v", STEPS)[0], s, rtol=1e-11, atol=1e-13
    )
    kinds = {"saba": "saga", "srba": "sarah", "snapshot": "snapshot"}
    assert method.core.step.args[0].estimator.name.startswith(kinds[name])
    assert method.core.step.args[0].strategies[0][0].name == "tracking"


def test_normalised_storm_equals_numpy():
    """The penalty with STORM; every variable of every agent is divided by the norm of what it
    tracks."""
    problem, twin = finite_sum()
    lam = 5.0

    def along(i, j, s):
        x, y, z = s[:3], s[3:7], s[7:]
        i = i * BATCHES + j
        d_x = twin.f_x(i, x, y) + lam * (twin.g_x(i, x, y) - twin.g_x(i, x, z))
        return np.concatenate([d_x, twin.f_y(i, x, y) + lam * twin.g_y(i, x, y), twin.g_y(i, x, z)])

    network = decibo.networks.path(AGENTS)
    method = decibo.compose(
        direction.penalty(lam),
        consensus.tracking(),
        estimator=estimator.storm(0.4),
        x=rule.normalised(A),
        y=rule.normalised(B),
        z=rule.normalised(C),
    )
    hands = [by_storm(lambda k: 0.4) for _ in range(AGENTS)]
    wanted = tracked(along, network.W, H, hands, STEPS, normalise=True)
    np.testing.assert_allclose(
        found_by(problem, network, method, "z", STEPS), wanted, rtol=1e-10, atol=1e-12
    )


@cache
def one_agent():
    """The oracle of one agent, two points, and a key for each batch."""
    problem, _ = finite_sum()
    oracle = Oracle(problem.functions, jax.tree.map(lambda leaf: leaf[0], problem.data))
    random = np.random.default_rng(1)
    point = lambda: direction.Implicit(
        *(jnp.asarray(random.normal(size=size)) for size in (3, 4, 4))
    )
    keys = {}
    for seed in range(200):
        keys.setdefault(int(problem.sample.draw(jax.random.key(seed))), jax.random.key(seed))
    assert sorted(keys) == list(range(BATCHES))
    return oracle, point(), point(), list(keys.values())


def over_all_batches(which, memory, k):
    """Mean and variance of the estimate, all batches being equally likely."""
    oracle, s, _, keys = one_agent()
    at = jax.vmap(
        lambda key: which.at(direction.implicit(), oracle, s, memory, jnp.int32(k), key)[0]
    )
    found = np.concatenate(jax.jit(at)(jnp.stack(keys)), axis=1)
    return found.mean(axis=0), found.var(axis=0).sum()


def filled(table, oracle, s, keys):
    """The table after steps at one point."""
    saga = jax.jit(
        lambda table, key: estimator.saga().at(
            direction.implicit(), oracle, s, table, jnp.int32(0), key
        )[1]
    )
    for key in keys:
        table = saga(table, key)
    return table


def test_the_expected_direction_is_as_the_equations_say():
    oracle, s, before, keys = one_agent()
    along = direction.implicit()
    flat = lambda d: np.concatenate(d)
    here, there = flat(along.at(oracle, s, 0)), flat(along.at(oracle, before, 0))
    # what is remembered is off by 0.5
    d = jax.tree.map(lambda v: v + 0.5, along.at(oracle, before, 0))
    past = estimator.Past(before, d)
    # some entries, found elsewhere
    table = filled(estimator.saga().start(oracle, s), oracle, before, keys[:3])
    cases = {
        "minibatch": (estimator.minibatch(), (), here),
        "saga": (estimator.saga(), table, here),
        "storm": (estimator.storm(0.4), past, here + 0.6 * 0.5),
        "sarah": (estimator.sarah(10), past, here + 0.5),
    }
    noise = {}
    for name, (which, memory, wanted) in cases.items():
        mean, noise[name] = over_all_batches(which, memory, 1)
        np.testing.assert_allclose(mean, wanted, atol=1e-13, err_msg=name)
    assert not np.allclose(here, there)  # or this would say nothing
    assert min(noise.values()) > 1e-2


@pytest.mark.slow
def test_the_noise_vanishes_with_the_move_but_that_of_minibatches_stays():
    """At the point where the memories were found, and near it."""
    oracle, s, _, keys = one_agent()
    along = direction.implicit()
    table = estimator.saga().start(oracle, s)
    _, plain = over_all_batches(estimator.minibatch(), (), 1)
    assert plain > 0.1
    for move in (0.0, 1e-3):
        near = jax.tree.map(lambda v, move=move: v + move, s)
        table = filled(table, oracle, near, keys)
        past = estimator.Past(near, along.at(oracle, near, 0))
        for which, memory in (
            (estimator.saga(), table),
            (estimator.page(0.5), past),
            (estimator.storm(1e-9), past),
        ):
            mean, noise = over_all_batches(which, memory, _not_due(0.5))
            assert noise <= 10 * move**2 * plain + 1e-17
            np.testing.assert_allclose(mean, np.concatenate(along.at(oracle, s, 0)), atol=1e-12)


def _not_due(p):
    return next(k for k in range(1, 100) if not estimator.Due(p)(k))


def test_a_fair_coin_that_all_agents_share():
    flips = jax.vmap(estimator.Due(0.2))(jnp.arange(4000))
    assert flips[0]
    assert abs(float(flips.mean()) - 0.2) < 0.02  # three standard deviations
    assert (flips != jax.vmap(estimator.Due(0.2, seed=1))(jnp.arange(4000))).any()
    assert (
        jax.vmap(estimator.Due(0.25, period=4))(jnp.arange(8)).tolist() == [True, *[False] * 3] * 2
    )


BASE = decibo.ahead_exact(alpha=0.05, gamma=0.15, lam=20.0)


@pytest.mark.parametrize("name", ["page", "sarah", "snapshot"])
def test_full_gradients_are_not_computed_when_they_are_not_due(name):
    """Because all agents share the coin, a choice stays a choice when all of them are computed
    together."""
    problem, _ = finite_sum()
    method = decibo.compose(
        direction.single(), consensus.local(), estimator=TWINS[name][0], x=A, y=A
    )
    start = {"x": jnp.zeros((AGENTS, 3)), "y": jnp.zeros((AGENTS, 4))}
    state = jax.vmap(lambda d, s: method.init(Oracle(problem.functions, d), None, s))(
        problem.data, start
    )
    keys = jax.random.split(jax.random.key(0), AGENTS)
    one = lambda d, s, k, key: method.step(Oracle(problem.functions, d), None, s, k, key)
    for own_coins in (False, True):
        k = jnp.arange(AGENTS) if own_coins else jnp.int32(1)
        program = jax.make_jaxpr(jax.vmap(one, (0, 0, 0 if own_coins else None, 0)))(
            problem.data, state, k, keys
        )
        assert ("cond[" in str(program)) != own_coins


def landed(problem, network, method, steps=2000):
    run = decibo.solve(
        problem, network, method, steps=steps, every=steps // 100, measures=["stationarity"]
    )
    return run.history["stationarity"]


@pytest.mark.parametrize("network", ["ring", "path"])
def test_constant_steps_reach_the_solution_where_minibatches_stay_at_their_floor(network):
    """|grad Phi| below 1e-8 on a finite sum of quadratics, for which ahead_exact has no bias."""
    problem, _ = finite_sum()
    problem = replace(problem, inner=_straight)
    network = getattr(decibo.networks, network)(AGENTS)
    assert landed(problem, network, decibo.minibatch(BASE))[-20:].min() > 1e-6
    for which in (estimator.saga(), estimator.page(0.2), estimator.snapshot(0.5)):
        assert landed(problem, network, decibo.with_estimator(BASE, which))[-1] < 1e-16, which.name


def _straight(x, y, d):
    one = lambda d: 0.5 * y @ d["H"] @ y - x @ d["J"] @ y + d["e"] @ y
    return jnp.mean(jax.vmap(one)(d))


def test_saga_reaches_the_solution_of_a_logistic_problem():
    random = np.random.default_rng(0)
    features = random.normal(size=(AGENTS, 40, 3))
    labels = np.sign(features @ [1.0, -1.0, 0.5] + random.normal(size=(AGENTS, 40)))
    loss = lambda y, d: jnp.mean(jax.nn.softplus(-d["labels"] * (d["features"] @ y)))
    inner = lambda x, y, d: (
        loss(y, {name: leaf[::2] for name, leaf in d.items()}) + 0.5 * jnp.sum(jnp.exp(x) * y**2)
    )
    outer = lambda x, y, d: (
        loss(y, {name: leaf[1::2] for name, leaf in d.items()}) + 0.05 * jnp.sum(x**2)
    )
    data = {"features": features, "labels": labels}
    problem = decibo.Problem(outer, inner, data, np.zeros(3), np.zeros(3), sample=Batches(10))
    method = decibo.methods.sparkle_ed(alpha=0.5, beta=0.4, gamma=0.4, theta=None)
    assert (
        landed(problem, decibo.ring(AGENTS), decibo.with_estimator(method, estimator.saga()))[-1]
        < 1e-16
    )
    assert landed(problem, decibo.ring(AGENTS), decibo.minibatch(method))[-20:].min() > 1e-6


@pytest.mark.slow
def test_with_a_falling_weight_storms_error_falls_like_one_over_k():
    problem, _ = finite_sum()
    problem = replace(problem, inner=_straight)
    storm = lambda a: decibo.with_estimator(BASE, estimator.storm(a))
    constant = landed(problem, decibo.ring(AGENTS), storm(lambda k: 0.1), steps=8_000)
    falling = landed(
        problem, decibo.ring(AGENTS), storm(decibo.schedules.polynomial(1.0, -1.0)), steps=8_000
    )
    assert 0.5 < constant[-10:].mean() / constant[20:30].mean() < 2  # its floor
    assert falling[-10:].mean() < 0.4 * falling[20:30].mean()  # at a quarter of the steps
    assert falling[-10:].mean() < 0.01 * constant[-10:].mean()


def test_costs_are_what_a_step_is_expected_to_compute():
    problem, _ = finite_sum()
    gradients = np.array([1.0, 2.0])  # of f and g, for one direction
    share = 1 / BATCHES
    for which, full, small in (
        (estimator.minibatch(), 0, 1),
        (estimator.storm(0.1), 0, 2),
        (estimator.page(0.1), 0.1, 0.9 * 2),
        (estimator.sarah(4), 0.25, 0.75 * 2),
        (estimator.saga(), 0, 1),
        (estimator.snapshot(0.1), 0.1, 0),
    ):
        method = decibo.with_estimator(BASE, which)
        cost = costs(problem, method)
        found = [cost.outer_gradients, cost.inner_gradients]
        np.testing.assert_allclose(found, (full + small) * gradients, rtol=1e-9, err_msg=which.name)
        np.testing.assert_allclose(
            cost.work, 3 * (full + small * share), rtol=1e-9, err_msg=which.name
        )
    plain = costs(problem, BASE)
    assert (plain.gradients, plain.share, plain.work) == (3, 1, 3)
    batched = costs(problem, decibo.minibatch(BASE))
    assert (batched.gradients, batched.share, batched.work) == (3, 0.2, pytest.approx(0.6))


def costs(problem, method):
    return examine(
        problem.functions, one_of(problem.data), one_of(problem.start_rows(AGENTS)), method.core
    ).cost


def test_without_an_estimator_the_program_is_the_same():
    """No additional state, no random number."""
    problem, _ = finite_sum()
    rates = {"x": A, "y": B, "v": C}
    plain = decibo.compose(direction.implicit(), consensus.tracking(), **rates)
    assert plain.core.step.args[0].estimator is None
    state = plain.init(
        Oracle(problem.functions, problem.data), None, {"x": jnp.zeros(3), "y": jnp.zeros(4)}
    )
    # variables, and two memories of tracking for each
    assert len(jax.tree.leaves(state)) == 3 + 3 * 2
    one = jax.tree.map(lambda leaf: leaf[0], problem.data)
    step = lambda s, k, key: plain.step(
        Oracle(problem.functions, one), lambda tree: tree, s, k, key
    )
    program = str(jax.make_jaxpr(step)(state, jnp.int32(0), jax.random.key(0)))
    assert "random_" not in program
    assert "cond" not in program


def test_a_wrapped_method_keeps_its_settings_and_conforms():
    method = decibo.with_estimator(BASE, estimator.page(0.1))
    assert repr(method) == "ahead_exact + page(0.1)(alpha=0.05, gamma=0.15, lam=20)"
    assert method.replace(alpha=0.1).core.step.args[0].estimator.name == "page(0.1)"
    assert method.needs == {
        Need.SYMMETRIC_WEIGHTS, Need.LOCKSTEP, Need.MINIBATCHES, Need.FULL_DATA
    }  # fmt: skip
    assert method.theory.theorem is None
    composed = decibo.compose(
        direction.single(), consensus.dgd(), estimator=estimator.saga(), x=A, y=A
    )
    assert composed.name == "single x dgd + saga"
    assert composed.needs == {Need.SYMMETRIC_WEIGHTS, Need.MINIBATCHES, Need.NUMBERED_BATCHES}
    skipped = decibo.with_estimator(BASE, estimator.snapshot(0.5))
    assert Need.MINIBATCHES not in skipped.needs


def test_bad_estimators():
    problem, _ = finite_sum()
    ring = decibo.ring(AGENTS)
    saga = decibo.with_estimator(BASE, estimator.saga())
    with pytest.raises(decibo.InputError, match=r"saga remembers what it found.*Batches"):
        decibo.solve(replace(problem, sample=None), ring, saga, steps=1)
    with pytest.raises(
        decibo.InputError, match=r"saga remembers what it found.*fixed list.*Batches\(count\)"
    ):
        decibo.solve(replace(problem, sample=lambda d, key: d), ring, saga, steps=1)
    with pytest.raises(
        decibo.InputError, match=r"Batches\(2\) cuts.*data\['C'\] has 5 samples.*divides 5"
    ):
        replace(problem, sample=Batches(2))
    summed = replace(
        problem, inner=lambda x, y, d: BATCHES * problem.inner(x, y, d) + jnp.sum(d["b"] ** 2)
    )
    with pytest.raises(
        decibo.InputError, match=r"mean of an objective over the 5 batches.*inner of agent 0.*on av"
    ):
        decibo.solve(summed, ring, saga, steps=1)
    with pytest.raises(
        decibo.InputError, match=r"bome is not just a direction.*minibatch\(method\)"
    ):
        decibo.with_estimator(decibo.methods.bome(alpha=0.1, gamma=0.1), estimator.saga())
    with pytest.raises(decibo.InputError, match=r"has the estimator saga already"):
        decibo.with_estimator(saga, estimator.saga())
    for call in (
        lambda: decibo.with_estimator(BASE, "saga"),  # type: ignore[arg-type]
        lambda: decibo.compose(direction.single(), consensus.dgd(), estimator=0.5, x=A, y=A),  # type: ignore[arg-type]
    ):
        with pytest.raises(decibo.InputError, match=r"must be one of decibo\.estimator"):
            call()
    for p in (0.0, 1.5, "half"):
        with pytest.raises(decibo.InputError, match=r"p must be"):
            estimator.page(p)
        with pytest.raises(decibo.InputError, match=r"p must be"):
            estimator.snapshot(p)
    with pytest.raises(decibo.InputError, match=r"period must be"):
        estimator.sarah(0)
    with pytest.raises(decibo.InputError, match=r"a must be"):
        estimator.storm(-0.1)
    with pytest.raises(decibo.InputError, match=r"count must be"):
        Batches(0)
    with pytest.raises(decibo.InputError, match=r"take must be"):
        Batches(2, take=3)  # type: ignore[arg-type]


def test_batches_by_hand():
    """Leaves with different numbers of samples, and one that is none."""
    data = {
        "train": np.arange(AGENTS * 12.0).reshape(AGENTS, 12),
        "test": np.ones((AGENTS, 4)),
        "id": np.arange(AGENTS),
    }
    take = lambda d, j: (
        d | {"train": d["train"].reshape(4, 3)[j], "test": d["test"].reshape(2, 2)[j % 2]}
    )
    one = jax.tree.map(lambda leaf: leaf[1], data)
    batch = Batches(4, take=take).batch(one, 2)
    assert batch["train"].tolist() == [18, 19, 20]
    outer = lambda x, y, d: jnp.mean(d["test"]) * jnp.sum((x - y) ** 2)
    inner = lambda x, y, d: jnp.mean((y - x - d["train"]) ** 2)
    problem = decibo.Problem(outer, inner, data, 0.0, 0.0, sample=Batches(4, take=take))
    method = decibo.with_estimator(BASE, estimator.saga())
    assert decibo.solve(problem, decibo.ring(AGENTS), method, steps=5).status == decibo.Status.done
    with pytest.raises(
        decibo.InputError, match=r"data\['id'\] has one number for each agent.*take="
    ):
        replace(problem, sample=Batches(4))
