"""Bad input is refused before any work, with the value, the rule and the remedy."""

import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from helpers.twin import problem

pytestmark = pytest.mark.quick

METHOD = decibo.ahead(alpha=0.02, beta=0.01, gamma=0.05, lam=5.0)
DATA = np.ones((4, 2))
X, Y = np.zeros(2), np.zeros(2)


def f(x, y, d):
    return jnp.sum((y - d) ** 2)


def g(x, y, d):
    return jnp.sum((y - x) ** 2)


def make(outer=f, inner=g, data=DATA, x0=X, y0=Y, **more):
    return decibo.Problem(outer, inner, data, x0, y0, **more)


def raising(x, y, d):
    raise TypeError("no such thing")


PROBLEMS = {
    "outer not scalar": (
        lambda: make(outer=lambda x, y, d: y),
        r"one floating-point number, but outer returns float64\[2\].*Sum or average",
    ),
    "inner not scalar": (
        lambda: make(inner=lambda x, y, d: (jnp.sum(y), 1.0)),
        r"one floating-point number, but inner returns ",
    ),
    "outer an integer": (
        lambda: make(outer=lambda x, y, d: 1),
        r"one floating-point number, but outer returns ",
    ),
    "outer raises": (
        lambda: make(outer=raising),
        r"outer\(x0, y0, data of one agent\) raised TypeError: no such thing",
    ),
    "wrong shapes": (
        lambda: make(outer=lambda x, y, d: jnp.zeros(3) @ y),
        r"outer.*raised TypeError.*without its leading axis",
    ),
    "outer no function": (
        lambda: make(outer=3.0),
        r"outer must be a function \(x, y, d\), but it is 3\.0",
    ),
    "x0 integer": (
        lambda: make(x0=np.zeros(2, int)),
        r"x0 must be floating-point.*a leaf of type int64.*0\.0 instead of 0",
    ),
    "y0 with a function, as equinox modules have": (
        lambda: make(y0={"a": jnp.zeros(2), "activation": jnp.tanh}),
        r"leaves of y0 must be arrays.*the function.*equinox\.partition",
    ),
    "y0 integer": (lambda: make(y0={"a": 0}), r"y0 must be floating-point.*a leaf of type int64"),
    "x0 empty": (lambda: make(x0={}), r"x0 must hold at least one number, but it is \{\}"),
    "x0 NaN": (lambda: make(x0=np.array([np.nan, 0.0])), r"x0 must be finite"),
    "x0 a word": (lambda: make(x0="zero"), r"x0"),
    "different agents": (
        lambda: make(data={"a": np.ones((4, 2)), "b": np.ones(3)}),
        r"same leading axis.*4 of data\['a'\], 3 of data\['b'\].*Reshape",
    ),
    "no leading axis": (
        lambda: make(data={"a": np.ones((4, 2)), "b": 1.0}),
        r"leading axis.*data\['b'\] is 1\.0",
    ),
    "no data": (lambda: make(data=None), r"at least one array.*it is None.*arange"),
    "no agents": (lambda: make(data=np.ones((0, 2))), r"at least one agent.*length 0"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_problems(case):
    build, message = PROBLEMS[case]
    with pytest.raises(decibo.InputError, match=message):
        build()


SOLVES = {
    "agents of network and data": (
        {"network": decibo.ring(5)},
        r"data is for 4 agents, but the network has 5.*network of 4 agents",
    ),
    "steps zero": ({"steps": 0}, r"steps must be a positive integer, but it is 0"),
    "steps a fraction": ({"steps": 10.5}, r"steps must be a positive integer, but it is 10\.5"),
    "steps true": ({"steps": True}, r"steps must be a positive integer, but it is True"),
    "every negative": ({"every": -1}, r"every must be a positive integer, but it is -1"),
    "unknown measure": (
        {"measures": ["outer", "outre"]},
        r"no measure 'outre' here. Available are outer, inner, gap.*Did you mean 'outer'",
    ),
    "measure of a missing variable": (
        {"measures": ["consensus_v"]},
        r"no measure 'consensus_v'.*consensus_z",
    ),
    "no known solution": ({"measures": ["distance_x"]}, r"measure 'distance_x'"),
    "measure of another kind": (
        {"measures": [3]},
        r"must be a name or a function of a snapshot, but it is 3",
    ),
    "measure named step": ({"measures": [("step", jnp.sum)]}, r"called 'step'"),
    "until of something not recorded": (
        {"until": {"phi": 1.0}},
        r"until names 'phi', but a run can only wait for what it records.*Add it",
    ),
    "until NaN": (
        {"until": {"outer": float("nan")}},
        r"until\['outer'\] must be a finite number, but it is nan",
    ),
    "start of the wrong shape": (
        {"start": {"x": np.zeros((3, 2))}},
        r"start\['x'\] must have one point for each of the 4 agents.*\(4, 2\).*has \(3, 2\).*Stack",
    ),
    "start of the wrong structure": (
        {"start": {"x": {"a": np.zeros((4, 2))}}},
        r"start\['x'\] must have one point",
    ),
    "start of an unknown variable": ({"start": {"w": np.zeros((4, 2))}}, r"no variable w.*x, y, z"),
    "start NaN": ({"start": {"x": np.full((4, 2), np.nan)}}, r"start\['x'\] must be finite"),
    "start a number": ({"start": 3.0}, r"start must be a dictionary.*it is 3\.0"),
    "network of another kind": (
        {"network": "ring"},
        r"network must be a decibo network such as decibo\.ring.*it is 'ring'",
    ),
    "method of another kind": (
        {"method": "ahead"},
        r"method must be a decibo method such as decibo\.ahead.*it is 'ahead'",
    ),
    "problem of another kind": ({"problem": 1}, r"problem must be a decibo problem.*it is 1"),
    "directed network": (
        {"network": decibo.networks.directed_ring(4)},
        r"ahead needs symmetric, doubly stochastic weights.*push_pull",
    ),
}


@pytest.mark.parametrize("case", SOLVES)
def test_solves(case):
    options, message = SOLVES[case]
    options = {
        "problem": make(),
        "network": decibo.ring(4),
        "method": METHOD,
        "steps": 10,
        **options,
    }
    with pytest.raises(decibo.InputError, match=message):
        decibo.solve(
            options.pop("problem"), options.pop("network"), options.pop("method"), **options
        )


def test_objectives_not_finite_at_the_start():
    data = DATA.copy()
    data[2, 0] = np.nan
    with pytest.raises(
        decibo.InputError,
        match=r"outer of agent 2 is nan there \(1 of 4 agents\).*data of this agent",
    ):
        decibo.solve(make(data=data), decibo.ring(4), METHOD, steps=10)
    with pytest.raises(decibo.InputError, match=r"inner of agent 0 is inf there"):
        decibo.solve(
            make(inner=lambda x, y, d: jnp.sum(1 / y + x)), decibo.ring(4), METHOD, steps=10
        )


def test_data_functions_with_unequal_shapes():
    private = decibo.Problem(f, g, lambda agent: np.ones(2 + (agent == 3)), X, Y)
    with pytest.raises(
        decibo.InputError, match=r"data\(0\) has \(2,\) and data\(3\) has \(3,\).*data\.samples"
    ):
        decibo.solve(private, decibo.ring(4), METHOD, steps=10)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), {"x": "far"}])
def test_random_start_scales(scale):
    with pytest.raises(decibo.InputError, match="scale of"):
        decibo.random_start(0, scale)


def test_composition():
    direction, consensus = decibo.direction.penalty(1.0), decibo.consensus.dgd()
    with pytest.raises(
        decibo.InputError, match=r"'penalty' moves x, y, z, but the step sizes are for x, y\."
    ):
        decibo.compose(direction, consensus, x=0.1, y=0.1)
    with pytest.raises(decibo.InputError, match=r"moves x, y, z, but the strategies are for x\."):
        decibo.compose(direction, {"x": consensus}, x=0.1, y=0.1, z=0.1)
    with pytest.raises(
        decibo.InputError, match=r"moves x, y, z, but there is a proximal map for v"
    ):
        decibo.compose(direction, consensus, prox={"v": decibo.prox.ball(1.0)}, x=0.1, y=0.1, z=0.1)
    with pytest.raises(decibo.InputError, match=r"z must be .*-0\.1"):
        decibo.compose(direction, consensus, x=0.1, y=0.1, z=-0.1)


def test_a_projection_that_changes_shapes():
    cut = decibo.compose(
        decibo.direction.penalty(1.0),
        decibo.consensus.dgd(),
        prox={"x": lambda s: s[:1]},
        x=0.1,
        y=0.1,
        z=0.1,
    )
    ours, _ = problem("vector", 4)
    with pytest.raises(
        decibo.InputError, match=r"must keep the shape .*that of x turns \(3,\) into \(1,\)"
    ):
        decibo.solve(ours, decibo.ring(4), cut, steps=3)


def test_a_penalty_that_is_too_small_is_warned_of_where_the_constants_are_known():
    quadratic, ring = decibo.problems.quadratic(), decibo.ring(10)
    with pytest.warns(
        UserWarning, match=r"lam = 2 is below 2 L_f1/mu_g = 7\.\d+.*Raise lam, or use ahead_exact"
    ):
        decibo.solve(quadratic, ring, decibo.ahead(alpha=0.01, gamma=0.05, lam=2.0), steps=2)
    decibo.solve(quadratic, ring, decibo.ahead(alpha=0.01, gamma=0.05, lam=10.0), steps=2)


def test_methods_that_need_a_fixed_network():
    varying = decibo.networks.failing(decibo.ring(10), 0.3)
    method = decibo.compression.compressed(
        decibo.ahead(alpha=0.01, gamma=0.05, lam=10.0), decibo.compression.top_k(0.5)
    )
    with pytest.raises(decibo.InputError, match=r"failing links.*fixed network"):
        decibo.solve(decibo.problems.quadratic(), varying, method, steps=2)
