"""Rules against numpy, where they land, and what is refused.

The numpy side writes each recursion as the literature prints it: heavy ball with s - s', Adam with
its two averages. A rule is made for one variable and then called with the direction of all agents,
one row each, of step 0, 1, 2, ...
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo import consensus, direction, prox, rule
from helpers.twin import NETWORKS, as_rows, as_start, problem

STEPS = 5
falling = lambda k: 0.1 / (1 + 0.5 * k)


def length(rows):
    return np.linalg.norm(rows, axis=1, keepdims=True)


def heavy_ball(h, b):
    """As printed: s+ = s - (1 - b) h d + b (s - s'); the move is s - s+ and the last one is
    remembered."""
    past = {}

    def move(d, k):
        past["move"] = (1 - b) * h * d + b * past.get("move", 0)
        return past["move"]

    return move


def nesterov(h, b):
    """PyTorch's form, with lr = (1 - b) h: buffer = b buffer + d, step by lr (d + b buffer)."""
    past = {}

    def move(d, k):
        past["m"] = b * past.get("m", 0) + d
        return (1 - b) * h * (d + b * past["m"])

    return move


def normalised(h):
    return lambda d, k: h(k) * d / length(d)


def adagrad_norm(h, initial):
    past = {"squares": initial**2}

    def move(d, k):
        past["squares"] = past["squares"] + length(d) ** 2
        return h * d / np.sqrt(past["squares"])

    return move


def adam(h, b1, b2, eps, keep_largest):
    past = {"m": 0, "v": 0, "largest": 0}

    def move(d, k):
        past["m"] = b1 * past["m"] + (1 - b1) * d
        past["v"] = b2 * past["v"] + (1 - b2) * d**2
        m = past["m"] / (1 - b1 ** (k + 1))
        v = past["v"] / (1 - b2 ** (k + 1))
        past["largest"] = np.maximum(past["largest"], v)
        return h * m / (np.sqrt(past["largest"] if keep_largest else v) + eps)

    return move


RULES = {
    "constant": (rule.constant(0.05), lambda: lambda d, k: 0.05 * d),
    "heavy_ball": (rule.heavy_ball(0.1, 0.6), lambda: heavy_ball(0.1, 0.6)),
    "nesterov": (rule.nesterov(0.1, 0.6), lambda: nesterov(0.1, 0.6)),
    "normalised": (rule.normalised(falling), lambda: normalised(falling)),
    "adagrad_norm": (rule.adagrad_norm(0.3, 0.2), lambda: adagrad_norm(0.3, 0.2)),
    "adam": (rule.adam(0.05, 0.8, 0.9, 1e-3), lambda: adam(0.05, 0.8, 0.9, 1e-3, False)),
    "amsgrad": (rule.amsgrad(0.05, 0.8, 0.9, 1e-3), lambda: adam(0.05, 0.8, 0.9, 1e-3, True)),
}
PROBLEM = problem("vector", 6)


def follow(name, W, move):
    """A strategy in numpy, which moves by `move` along what it follows."""
    past = {}

    def tracked(d):
        past["t"] = W @ past["t"] + d - past["d"] if past else d
        past["d"] = d
        return past["t"]

    def dgd(s, d, k):
        return W @ s - move(d, k)

    def atc(s, d, k):
        return W @ (s - move(d, k))

    def tracking(s, d, k):
        return W @ s - move(tracked(d), k)

    def atc_tracking(s, d, k):
        past["t"] = W @ (past["t"] + d - past["d"]) if past else W @ d
        past["d"] = d
        return W @ (s - move(past["t"], k))

    def exact_diffusion(s, d, k):
        p = s - move(d, k)
        new = (W + np.eye(len(W))) / 2 @ (p + s - past.get("p", s))
        past["p"] = p
        return new

    def extra(s, d, k):
        lazy = (W + np.eye(len(W))) / 2
        h_d = move(d, k)
        new = 2 * lazy @ s - lazy @ past["s"] - h_d + past["h_d"] if past else W @ s - h_d
        past.update(s=s, h_d=h_d)
        return new

    return locals()[name]


def directions(twin, s):
    d_x = [
        twin.f_x(i, x, y) - twin.J(i, x, y, v)
        for i, (x, y, v) in enumerate(zip(*s.values(), strict=True))
    ]
    d_y = [twin.g_y(i, x, y) for i, (x, y) in enumerate(zip(s["x"], s["y"], strict=True))]
    d_v = [
        twin.H(i, x, y, v) - twin.f_y(i, x, y)
        for i, (x, y, v) in enumerate(zip(s["x"], s["y"], s["v"], strict=True))
    ]
    return {"x": np.stack(d_x), "y": np.stack(d_y), "v": np.stack(d_v)}


def drawn(twin):
    start = twin.starts()
    return {"x": start["x"], "y": start["y"], "v": start["z"]}


def equal(ours, network, method, start, expected):
    solution = decibo.solve(
        ours, network, method, steps=STEPS, start=as_start(ours, start), measures=["outer"]
    )
    for name, rows in as_rows(ours, solution).items():
        np.testing.assert_allclose(rows, expected[name], rtol=0, atol=1e-10, err_msg=name)


FAR = {"x": "adam", "y": "adagrad_norm", "v": "normalised"}
TABLE = {  # every rule with some strategy, every strategy with three rules
    "tracking": {"x": "amsgrad", "y": "adagrad_norm", "v": "normalised"},
    "atc_tracking": {"x": "adagrad_norm", "y": "nesterov", "v": "amsgrad"},
    "dgd": {"x": "amsgrad", "y": "heavy_ball", "v": "adam"},
    "atc": FAR,
    "exact_diffusion": {"x": "heavy_ball", "y": "nesterov", "v": "constant"},
    "extra": {"x": "nesterov", "y": "constant", "v": "heavy_ball"},
}


@pytest.mark.parametrize("strategy", TABLE)
def test_steps_equal_numpy(strategy):
    made = {name: RULES[kind][0] for name, kind in TABLE[strategy].items()}
    method = decibo.compose(direction.implicit(), getattr(consensus, strategy)(), **made)
    for network in (NETWORKS["path"](), NETWORKS["ring"]()):
        ours, twin = PROBLEM
        s = start = drawn(twin)
        step = {
            name: follow(strategy, network.W, RULES[kind][1]())
            for name, kind in TABLE[strategy].items()
        }
        for k in range(STEPS):
            d = directions(twin, s)
            s = {name: step[name](s[name], d[name], k) for name in s}
        equal(ours, network, method, start, s)


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_alone_equals_numpy(kind):
    """Many steps, directions of very different sizes, one of them 0."""
    made, in_numpy = RULES[kind]
    rows = (
        np.random.default_rng(3).normal(size=(12, 1, 4)) * 10.0 ** np.arange(-6, 6)[:, None, None]
    )
    rows[4] = 0.0
    move = in_numpy()
    s = jnp.zeros(4)
    memory = made.start(s)
    for k, d in enumerate(rows):
        memory, u, h = made.step(memory, s, jnp.asarray(d[0]), jnp.int32(k))
        with np.errstate(invalid="ignore"):
            expected = np.nan_to_num(move(d, k))
        np.testing.assert_allclose(h * u, expected[0], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("network", ["path", "ring"])
def test_the_joint_rule_equals_numpy(network):
    """S-TFBO's three accumulators, on tracked directions."""
    network = NETWORKS[network]()
    ours, twin = PROBLEM
    start = drawn(twin)
    s = start
    squares = dict.fromkeys("xyv", 0.1**2)
    past = {}
    for _ in range(STEPS):
        d = directions(twin, s)
        t = {
            name: network.W @ past["t"][name] + d[name] - past["d"][name] if past else d[name]
            for name in d
        }
        squares = {name: squares[name] + length(t[name]) ** 2 for name in t}
        a, b, c = (np.sqrt(squares[name]) for name in "xyv")
        h = {"x": 0.4 / (a * np.maximum(b, c)), "y": 0.4 / b, "v": 0.4 / np.maximum(b, c)}
        s = {name: network.W @ s[name] - h[name] * t[name] for name in s}
        past.update(t=t, d=d)
    equal(ours, network, s_tfbo(0.4, 0.1), start, s)


def s_tfbo(step=1.0, initial=0.0):
    """The recipe: the joint rule on tracked directions."""
    return decibo.compose(
        direction.implicit(), consensus.tracking(), rule=rule.tuning_free(step, initial)
    )


def test_one_agent_with_the_joint_rule_is_s_tfbo():
    """As it was read: y -= g_y/b, v -= (H v - f_y)/max(b, c), x -= d_x/(a max(b, c))."""
    ours, twin = problem("vector", 1)
    s = {name: rows[:1] for name, rows in drawn(twin).items()}
    start = s
    a = b = c = 0.0
    for _ in range(STEPS):
        d = directions(twin, s)
        a, b, c = (
            np.sqrt(past**2 + np.sum(d[name] ** 2)) for past, name in ((a, "x"), (b, "y"), (c, "v"))
        )
        h = {"x": 1 / (a * max(b, c)), "y": 1 / b, "v": 1 / max(b, c)}
        s = {name: s[name] - h[name] * d[name] for name in s}
    equal(ours, decibo.complete(1), s_tfbo(), start, s)


@pytest.mark.parametrize("network", ["path", "ring"])
def test_adam_on_x_equals_numpy(network):
    network = NETWORKS[network]()
    ours, twin = PROBLEM
    s = start = drawn(twin)
    moves = {
        "x": adam(0.05, 0.8, 0.9, 1e-3, False),
        "y": lambda d, k: 0.1 * d,
        "v": lambda d, k: 0.2 * d,
    }
    step = {name: follow("tracking", network.W, move) for name, move in moves.items()}
    for k in range(STEPS):
        d = directions(twin, s)
        s = {name: step[name](s[name], d[name], k) for name in s}
    method = decibo.compose(
        direction.implicit(), consensus.tracking(), x=rule.adam(0.05, 0.8, 0.9, 1e-3), y=0.1, v=0.2
    )
    equal(ours, network, method, start, s)


@pytest.mark.parametrize("network", ["path", "ring"])
def test_adagrad_norm_of_the_tracked_penalty_equals_numpy(network):
    """AdaGrad-norm on the tracked directions of the penalty, one length for each agent and
    variable."""
    network = NETWORKS[network]()
    ours, twin = PROBLEM
    s = start = twin.starts()
    lam = 5.0
    step = {name: follow("tracking", network.W, adagrad_norm(0.3, 0.2)) for name in s}
    for k in range(STEPS):
        rows = lambda gradient, y, x=s["x"]: np.stack(
            [gradient(i, x[i], y[i]) for i in range(twin.m)]
        )
        d = {
            "x": rows(twin.f_x, s["y"]) + lam * (rows(twin.g_x, s["y"]) - rows(twin.g_x, s["z"])),
            "y": rows(twin.f_y, s["y"]) + lam * rows(twin.g_y, s["y"]),
            "z": rows(twin.g_y, s["z"]),
        }
        s = {name: step[name](s[name], d[name], k) for name in s}
    equal(
        ours,
        network,
        decibo.compose(
            direction.penalty(lam),
            consensus.tracking(),
            **dict.fromkeys("xyz", rule.adagrad_norm(0.3, 0.2)),
        ),
        start,
        s,
    )


# optax


def test_optax_rules_are_ours():
    optax = pytest.importorskip("optax")
    ours, twin = PROBLEM
    theirs = {
        "x": optax.adam(0.05, 0.8, 0.9, 1e-3),
        "y": optax.sgd(0.4 * 0.1, momentum=0.6),
        "v": optax.sgd(0.4 * 0.1, momentum=0.6, nesterov=True),
    }
    mine = {"x": RULES["adam"][0], "y": RULES["heavy_ball"][0], "v": RULES["nesterov"][0]}
    ends = []
    for steps in (theirs, mine):
        method = decibo.compose(direction.implicit(), consensus.tracking(), **steps)
        end = decibo.solve(
            ours, decibo.ring(6), method, steps=STEPS, start=as_start(ours, drawn(twin))
        )
        ends.append(as_rows(ours, end))
    for name in theirs:
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=0, atol=1e-12, err_msg=name)
    assert "alpha=optax(...)" in repr(
        decibo.methods.sldbo(alpha=optax.amsgrad(0.1), beta=0.1, gamma=0.1)
    )


def test_a_transformation_of_optax_goes_with_exact_diffusion_only_if_declared_linear():
    optax = pytest.importorskip("optax")
    plain = optax.sgd(0.05, momentum=0.5)
    with pytest.raises(decibo.InputError, match="tracking"):
        decibo.methods.sparkle_ed(alpha=plain, beta=0.1, gamma=0.1)
    decibo.methods.sparkle_ed(alpha=rule.from_optax(plain, linear=True), beta=0.1, gamma=0.1)


# Where rules land: |x - x*| and |y - y*| on a heterogeneous quadratic


QUADRATIC = decibo.problems.quadratic()
RING = decibo.ring(10)


def lands(method, steps=4000, network=RING):
    """The larger of the two after many steps."""
    end = decibo.solve(
        QUADRATIC, network, method, steps=steps, measures=["distance_x", "distance_y"], every=steps
    )
    assert end.status == "done"
    return float(np.sqrt(max(end.history["distance_x"][-1], end.history["distance_y"][-1])))


HEAVY, AHEAD = rule.heavy_ball(0.2, 0.8), rule.nesterov(0.1, 0.8)
OWN, LARGEST = rule.adagrad_norm(1.0), rule.amsgrad(0.03)
EXACT = {
    "tracking": {"x": LARGEST, "y": OWN, "v": HEAVY},
    "atc_tracking": {"x": OWN, "y": HEAVY, "v": LARGEST},
    "push_pull": {"x": OWN, "y": LARGEST, "v": 0.03},
    "exact_diffusion": {"x": HEAVY, "y": AHEAD, "v": AHEAD},
    "extra": {"x": AHEAD, "y": HEAVY, "v": HEAVY},
}


@pytest.mark.parametrize("strategy", EXACT)
def test_exact_rules_land_on_the_solution(strategy):
    network = decibo.networks.directed_exponential(10) if strategy == "push_pull" else RING
    method = decibo.compose(direction.implicit(), getattr(consensus, strategy)(), **EXACT[strategy])
    assert lands(method, network=network) <= 1e-10


def test_the_joint_rule_is_exact_with_tracking():
    assert lands(s_tfbo(), steps=10_000) <= 1e-10


def test_momentum_of_ahead_exact_is_exact_and_matched():
    """With the same momentum for y and z the steps are those of the implicit method."""
    lam = 10.0
    method = decibo.ahead_exact(alpha=0.05, gamma=0.3, lam=lam, momentum=0.8)
    assert lands(method) <= 1e-10
    inner = rule.heavy_ball(0.3, 0.8)
    implicit = decibo.compose(
        direction.implicit(), consensus.exact_diffusion(), x=0.05, y=inner, v=inner
    )
    ends = [
        decibo.solve(QUADRATIC, RING, each, steps=50, measures=["distance_x", "distance_y"]).agents
        for each in (method, implicit)
    ]
    one, two = ends
    for gap in (one.x - two.x, (one.y + one.z) / 2 - two.y, lam * (one.y - one.z) / 2 + two.v):
        assert np.abs(gap).max() < 1e-12


@pytest.mark.parametrize("kind", ["adam", "normalised"])
def test_rules_that_hover_reach_the_solution_as_their_step_falls(kind):
    """They end within a multiple of the step."""
    step = lambda power: decibo.schedules.polynomial(0.2, power, delay=50.0)
    method = lambda power: decibo.compose(
        direction.implicit(), consensus.tracking(), x=getattr(rule, kind)(step(power)), y=0.1, v=0.1
    )
    ends = [lands(method(power), steps=1000) for power in (0.0, -1.0, -2.0)]
    assert ends[0] > 2 * ends[1] > 4 * ends[2]


def test_steps_of_its_own_lead_dgd_further_away():
    """dgd with amsgrad rests where the preconditioned directions cancel: a smaller step does not
    help."""
    make = lambda x, h: decibo.compose(direction.implicit(), consensus.dgd(), x=x, y=h, v=h)
    own = [lands(make(rule.amsgrad(h), h)) for h in (0.04, 0.02)]
    plain = [lands(make(h, h)) for h in (0.04, 0.02)]
    assert plain[1] < 0.6 * plain[0]
    assert own[1] > 0.8 * own[0] > 3 * plain[0]


# How far momentum allows to go


@given(
    b=st.floats(0, 0.97),
    w=st.floats(-0.3, 1.0),
    a=st.floats(1e-3, 1.0),
    ahead=st.booleans(),
    share=st.floats(0.05, 0.99),
)
def test_momentum_is_stable_with_exact_diffusion_up_to_the_stated_step(b, w, a, ahead, share):
    """One mode of a quadratic: curvature a L with L = 1, eigenvalue w of W. The limits are those of
    a single agent."""
    h = share * 2 * (1 + b) / ((1 - b) * (1 + 2 * b if ahead else 1))
    s, c, m = np.eye(3)
    m = b * m + (1 - b) * a * s
    u = b * m + (1 - b) * a * s if ahead else m
    p = s - h * u
    e = (w - 1) * (p + c) / 2
    modes = np.linalg.eigvals(np.array([p + c + e, c + e, m]))
    assert np.abs(modes).max() <= 1 + 1e-7  # c alone is at rest where w = 1


def test_beyond_the_stated_step_momentum_diverges():
    centers = np.random.default_rng(0).normal(size=(10, 1))
    one_level = decibo.problems.single_level(
        lambda x, d: 0.5 * jnp.sum((x - d) ** 2), centers, np.ones(1)
    )
    for make, limit in ((rule.heavy_ball, 2 * 1.8 / 0.2), (rule.nesterov, 2 * 1.8 / (0.2 * 2.6))):
        for share, diverges in ((0.98, False), (1.02, True)):
            method = decibo.methods.exact_diffusion(alpha=make(share * limit, 0.8))
            end = decibo.solve(
                one_level, RING, method, steps=600, measures=["consensus_x"], every=600
            )
            assert (float(np.abs(end.x).max()) > 10) == diverges


# Refused, before any work


@pytest.mark.parametrize("kind", ["normalised", "adagrad_norm", "adam", "amsgrad"])
@pytest.mark.parametrize("method", ["sparkle_ed", "sparkle_extra"])
def test_steps_of_its_own_are_refused_where_they_would_land_elsewhere(kind, method):
    with pytest.raises(decibo.InputError, match="every agent has steps of its own") as error:
        getattr(decibo.methods, method)(alpha=RULES[kind][0], beta=0.1, gamma=0.1)
    assert "tracking()" in error.value.remedy


def test_what_would_have_happened_otherwise():
    """The reason for the refusal: with exact diffusion such a rule comes to rest far from the
    solution."""
    undeclared = rule.Rule(LARGEST.start, LARGEST.step, "undeclared", linear=True)
    method = decibo.compose(
        direction.implicit(), consensus.exact_diffusion(), x=undeclared, y=0.1, v=0.1
    )
    assert lands(method) > 1e-2


@pytest.mark.parametrize(
    ("made", "map_", "fits"),
    [
        (rule.adam(0.1), prox.box(0, 1), True),
        (rule.adam(0.1), prox.l1(0.1), True),
        (rule.adam(0.1), prox.ball(1.0), False),
        (rule.adam(0.1), prox.simplex(), False),
        (rule.adam(0.1), lambda u: u, False),
        (rule.adagrad_norm(0.1), prox.ball(1.0), True),
        (rule.heavy_ball(0.1), lambda u: u, True),
        (
            rule.Rule(rule.constant(1.0).start, rule.constant(1.0).step, "hidden", sizes="hidden"),
            prox.l1(0.1),
            False,
        ),
    ],
)
def test_proximal_maps_that_a_rule_would_falsify_are_refused(made, map_, fits):
    make = lambda: decibo.compose(
        direction.implicit(), consensus.tracking(), prox={"x": map_}, x=made, y=0.1, v=0.1
    )
    if fits:
        make()
    else:
        with pytest.raises(decibo.InputError, match="proximal map"):
            make()


def test_a_proximal_map_gets_the_rules_own_step():
    """With l1 on x and y the fixed point is that of proximal gradient descent, whatever the
    rule."""
    ends = []
    for steps in ({"x": 0.05, "y": 0.1}, {"x": LARGEST, "y": OWN}):
        maps = {"x": prox.l1(0.3), "y": prox.l1(0.1)}
        method = decibo.compose(
            direction.implicit(), consensus.tracking(), prox=maps, **steps, v=0.1
        )
        end = decibo.solve(QUADRATIC, RING, method, steps=6000, measures=["distance_x"], every=6000)
        ends.append(np.concatenate([end.x, end.y]))
    assert np.count_nonzero(ends[0]) < ends[0].size  # the penalty is at work
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rule.heavy_ball(0.1, 1.0), "momentum must be below 1"),
        (lambda: rule.adagrad_norm(0.0), "step must be a positive"),
        (lambda: rule.adagrad_norm(1.0, -1.0), "initial must be"),
        (lambda: rule.adam(0.1, b2=-0.1), "b2 must be"),
        (lambda: rule.adam(-0.1), "step must be a positive"),
        (lambda: rule.from_optax(0.1), "init and update"),
        (lambda: decibo.ahead(alpha=0.1, gamma=rule.adam(0.1), lam=10.0), "Pass beta"),
        (lambda: decibo.ahead_exact(momentum=0.9), "Pass alpha and gamma"),
        (
            lambda: decibo.ahead_exact(alpha=rule.heavy_ball(0.1)),
            "alpha must be a number or a function",
        ),
        (lambda: decibo.ahead(alpha=0.1, gamma=0.1, lam=rule.adam(0.1)), "lam must be"),
        (lambda: decibo.methods.f2sa(alpha=rule.adam(0.1), gamma=0.1, lam=10.0), "alpha must be"),
        (
            lambda: decibo.methods.sldbo(alpha=rule.tuning_free(), beta=0.1, gamma=0.1),
            "for all variables together",
        ),
        (
            lambda: decibo.compose(
                direction.penalty(10.0), consensus.dgd(), rule=rule.tuning_free()
            ),
            "for the variables x, y, v",
        ),
        (
            lambda: decibo.compose(direction.implicit(), consensus.dgd(), rule=rule.adam(0.1)),
            "one rule for all",
        ),
        (
            lambda: decibo.compose(
                direction.implicit(), consensus.dgd(), rule=rule.tuning_free(), x=0.1
            ),
            "there are no step sizes",
        ),
    ],
)
def test_mistakes_are_sentences(make, words):
    with pytest.raises(decibo.InputError, match=words):
        make()


# Numbers stay numbers


def test_numbers_of_a_rule_change_without_compiling_again():
    make = lambda h, b: decibo.methods.sldbo(
        alpha=rule.adam(h, b), beta=rule.heavy_ball(h, b), gamma=0.1
    )
    kinds = [jax.tree.structure(make(h, b).core) for h, b in ((0.1, 0.9), (0.2, 0.5))]
    assert kinds[0] == kinds[1]
    grid = {"alpha": [rule.adam(0.05, 0.5), rule.adam(0.1, 0.8)]}
    options = {"steps": 50, "every": 50, "measures": ["distance_x"]}
    swept = decibo.sweep(QUADRATIC, RING, make(0.1, 0.9), grid, **options)
    assert swept.batches == (2,)
    for run, alpha in enumerate(grid["alpha"]):
        alone = decibo.solve(QUADRATIC, RING, make(0.1, 0.9).replace(alpha=alpha), **options)
        np.testing.assert_allclose(
            swept.history["distance_x"][run], alone.history["distance_x"], rtol=1e-10
        )


def test_rules_run_in_single_precision():
    method = decibo.methods.sldbo(
        alpha=rule.amsgrad(0.05), beta=rule.nesterov(0.1), gamma=rule.adagrad_norm(0.5)
    )
    ours, _ = PROBLEM
    single = lambda tree: jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)
    ours = decibo.Problem(
        ours.outer, ours.inner, single(ours.data), single(ours.x0), single(ours.y0)
    )
    end = decibo.solve(ours, decibo.ring(6), method, steps=20, measures=["consensus_x"])
    assert {leaf.dtype for leaf in jax.tree.leaves(end.state)} == {jnp.dtype("float32")}
