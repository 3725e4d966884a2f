"""Every method that is a direction times a consensus strategy against numpy, agent by agent.

Directions and strategies are transcribed once each, in the form in which the literature prints
them: EXTRA with two terms, exact diffusion with its intermediate point p, tracking with t+ = W t +
d+ - d.
"""

import networkx
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, methods
from decibo.algorithm.direction import penalty_p
from decibo.network.directed import directed_ring, from_digraph
from helpers.twin import NETWORKS, as_rows, as_start, problem

A, B, C, LAM, THETA = 0.05, 0.03, 0.1, 5.0, 0.3
STEPS = 4


# Directions of agent i at its own variables s = {"x": ..., "y": ..., ...}


def penalty(twin, i, s):
    x, y, z = s["x"], s["y"], s["z"]
    return {
        "x": twin.f_x(i, x, y) + LAM * (twin.g_x(i, x, y) - twin.g_x(i, x, z)),
        "y": twin.f_y(i, x, y) + LAM * twin.g_y(i, x, y),
        "z": twin.g_y(i, x, z),
    }


def symmetric_penalty(twin, i, s):
    x, y, z = s["x"], s["y"], s["z"]
    half = (y + z) / 2
    return {
        "x": twin.f_x(i, x, half) + LAM / 2 * (twin.g_x(i, x, y) - twin.g_x(i, x, z)),
        "y": twin.g_y(i, x, y) + twin.f_y(i, x, half) / LAM,
        "z": twin.g_y(i, x, z) - twin.f_y(i, x, half) / LAM,
    }


def centred_penalty(twin, i, s):
    """The symmetric penalty at y = c + w/lam, z = c - w/lam: half the sum, and lam/2 times the
    difference."""
    d = symmetric_penalty(
        twin, i, {"x": s["x"], "y": s["c"] + s["w"] / LAM, "z": s["c"] - s["w"] / LAM}
    )
    return {"x": d["x"], "c": (d["y"] + d["z"]) / 2, "w": LAM * (d["y"] - d["z"]) / 2}


def second_order(twin, i, s):
    """F2SA-2: f and g at both ends."""
    x, y, z = s["x"], s["y"], s["z"]
    return {
        "x": (
            (twin.f_x(i, x, y) + twin.f_x(i, x, z)) / 2
            + LAM / 2 * (twin.g_x(i, x, y) - twin.g_x(i, x, z))
        ),
        "y": twin.g_y(i, x, y) + twin.f_y(i, x, y) / LAM,
        "z": twin.g_y(i, x, z) - twin.f_y(i, x, z) / LAM,
    }


def fourth_order(twin, i, s):
    """F2SA-4: the five-point difference (8 (F_1 - F_-1) - (F_2 - F_-2))/12 of F_j = j f_x + lam g_x
    at y_j."""
    x = s["x"]
    points = {1: s["y"], -1: s["z"], 2: s["y2"], -2: s["z2"]}
    F = {j: j * twin.f_x(i, x, y) + LAM * twin.g_x(i, x, y) for j, y in points.items()}
    d = {j: twin.g_y(i, x, y) + j * twin.f_y(i, x, y) / LAM for j, y in points.items()}
    d_x = (8 * (F[1] - F[-1]) - (F[2] - F[-2])) / 12
    return {"x": d_x, "y": d[1], "z": d[-1], "y2": d[2], "z2": d[-2]}


def implicit(twin, i, s):
    x, y, v = s["x"], s["y"], s["v"]
    return {
        "x": twin.f_x(i, x, y) - twin.J(i, x, y, v),
        "y": twin.g_y(i, x, y),
        "v": twin.H(i, x, y, v) - twin.f_y(i, x, y),
    }


def implicit_with_ridge(twin, i, s, mu=0.3):
    d = implicit(twin, i, s)
    return d | {"y": d["y"] + mu * s["y"], "v": d["v"] + mu * s["v"]}


def implicit_by_differences(twin, i, s, e=1e-2):
    x, y, v = s["x"], s["y"], s["v"]
    size = e / (e + np.linalg.norm(v))
    Jv, Hv = (
        (g(i, x, y + size * v) - g(i, x, y - size * v)) / (2 * size) for g in (twin.g_x, twin.g_y)
    )
    return {"x": twin.f_x(i, x, y) - Jv, "y": twin.g_y(i, x, y), "v": Hv - twin.f_y(i, x, y)}


def minimax(twin, i, s):
    return {"x": twin.f_x(i, s["x"], s["y"]), "y": -twin.f_y(i, s["x"], s["y"])}


def minimax_penalty(twin, i, s):
    """The penalty direction with g = -f."""
    x, y, z = s["x"], s["y"], s["z"]
    return {
        "x": twin.f_x(i, x, y) - LAM * (twin.f_x(i, x, y) - twin.f_x(i, x, z)),
        "y": twin.f_y(i, x, y) - LAM * twin.f_y(i, x, y),
        "z": -twin.f_y(i, x, z),
    }


def moreau(twin, i, s):
    """c = LAM, g1 = 0.5."""
    x, y, t = s["x"], s["y"], s["t"]
    return {
        "x": twin.f_x(i, x, y) / LAM + twin.g_x(i, x, y) - twin.g_x(i, x, t),
        "y": twin.f_y(i, x, y) / LAM + twin.g_y(i, x, y) - (y - t) / 0.5,
        "t": twin.g_y(i, x, t) + (t - y) / 0.5,
    }


def descent(twin, i, s):
    return {"x": twin.f_x(i, s["x"], s["y"]), "y": twin.f_y(i, s["x"], s["y"])}


# Strategies: made for one variable with its step h, then called with (s, d) of step 0, 1, 2, ...


def mixed(W, s):
    return np.stack([sum(W[i, j] * s[j] for j in range(len(s))) for i in range(len(s))])


def lazy(W):
    return (np.eye(len(W)) + W) / 2


def dgd(W, h):
    return lambda s, d: mixed(W, s) - h * d


def atc(W, h):
    return lambda s, d: mixed(W, s - h * d)


def tracking(W, h):
    past = {}

    def step(s, d):
        past["t"] = mixed(W, past["t"]) + d - past["d"] if past else d
        past["d"] = d
        return mixed(W, s) - h * past["t"]

    return step


def atc_tracking(W, h):
    past = {}

    def step(s, d):
        past["t"] = mixed(W, past["t"] + d - past["d"]) if past else mixed(W, d)
        past["d"] = d
        return mixed(W, s - h * past["t"])

    return step


def extra(W, h):
    past = {}

    def step(s, d):
        if not past:
            past.update(s=s, d=d)
            return mixed(W, s) - h * d
        new = 2 * mixed(lazy(W), s) - mixed(lazy(W), past["s"]) - h * (d - past["d"])
        past.update(s=s, d=d)
        return new

    return step


def exact_diffusion(W, h):
    past = {}

    def step(s, d):
        p = s - h * d
        new = mixed(lazy(W), p + s - past.get("p", s))
        past["p"] = p
        return new

    return step


def push_pull(matrices, h):
    pull, push = matrices
    past = {}

    def step(s, d):
        past["t"] = mixed(push, past["t"]) + d - past["d"] if past else d
        past["d"] = d
        return mixed(pull, s) - h * past["t"]

    return step


def late(strategy):
    """The strategy along the direction of the step before, 0 at first."""

    def make(W, h):
        step, past = strategy(W, h), {}

        def moved(s, d):
            old = past.get("d", np.zeros_like(d))
            past["d"] = d
            return step(s, old)

        return moved

    return make


def lopa_x(track, tau):
    """(11), (12): x+ = (1 - tau) x + tau (W x - h u), and u mixes in full."""

    def make(W, h):
        past = {}

        def step(s, m):
            u, m_old = past.get("u", np.zeros_like(m)), past.get("m", np.zeros_like(m))
            past.update(u=mixed(W, u) + m - m_old if track else m, m=m)
            return (1 - tau) * s + tau * (mixed(W, s) - h * u)

        return step

    return make


def robust_tracking(W, h):
    past = {}

    def step(s, d):
        c = past.get("c", np.zeros_like(s))
        total = mixed(W, c) + d
        new = mixed(W, past.get("p", s))
        past.update(p=new - h * (total - c), c=total)
        return new

    return step


def local(W, h):
    return lambda s, d: s - h * d


def twin_run(twin, W, start, direction, strategies, steps, theta=None, radius=None):
    """All agents, step by step; theta averages the direction of x, radius bounds v."""
    s = {name: start[name].copy() for name in strategies}
    if radius is not None:
        s["v"] = ball(s["v"], radius)
    move = {name: strategy(W, steps[name]) for name, strategy in strategies.items()}
    average = np.zeros_like(s["x"])
    for _ in range(STEPS):
        own = [direction(twin, i, {name: row[i] for name, row in s.items()}) for i in range(twin.m)]
        d = {name: np.stack([each[name] for each in own]) for name in s}
        if theta is not None:
            d["x"] = average = (1 - theta) * average + theta * d["x"]
        s = {name: move[name](s[name], d[name]) for name in s}
        if radius is not None:
            s["v"] = ball(s["v"], radius)
    return s


def ball(rows, radius):
    return np.stack([row * min(1, radius / np.linalg.norm(row)) for row in rows])


FOUR = ("x", "y", "z", "y2", "z2")
XYZ, XYV = {"x": A, "y": B, "z": C}, {"x": A, "y": B, "v": C}
XYT = {"x": A, "y": B, "t": C}
three = {"alpha": A, "beta": B, "gamma": C}
envelope = three | {"c": LAM, "proximity": 0.5}
every = lambda strategy, names: dict.fromkeys(names, strategy)

TABLE = {
    "ahead": (methods.ahead(**three, lam=LAM), penalty, every(dgd, "xyz"), XYZ, {}),
    "ahead matched": (
        methods.ahead(alpha=A, gamma=C, lam=LAM),
        penalty,
        every(dgd, "xyz"),
        {"x": A, "y": C / LAM, "z": C},
        {},
    ),
    "ahead_exact": (
        methods.ahead_exact(alpha=A, gamma=C, lam=LAM),
        symmetric_penalty,
        every(exact_diffusion, "xyz"),
        {"x": A, "y": C, "z": C},
        {},
    ),
    "ahead_free": (
        methods.ahead_free(alpha=A, gamma=C, lam=LAM),
        centred_penalty,
        every(robust_tracking, "xcw"),
        {"x": A, "c": C, "w": C},
        {},
    ),
    "order 2 x dgd": (
        decibo.compose(penalty_p(LAM), consensus.dgd(), **XYZ),
        second_order,
        every(dgd, "xyz"),
        XYZ,
        {},
    ),
    "order 4 x exact diffusion": (
        decibo.compose(penalty_p(LAM, 4), consensus.exact_diffusion(), **XYZ, y2=B, z2=A),
        fourth_order,
        every(exact_diffusion, FOUR),
        XYZ | {"y2": B, "z2": A},
        {},
    ),
    "ahead_minimax": (
        methods.ahead_minimax(**three, lam=LAM),
        minimax_penalty,
        every(dgd, "xyz"),
        XYZ,
        {},
    ),
    "dgda": (methods.dgda(alpha=A, beta=B), minimax, every(dgd, "xy"), {"x": A, "y": B}, {}),
    "gt_gda": (
        methods.gt_gda(alpha=A, beta=B),
        minimax,
        every(tracking, "xy"),
        {"x": A, "y": B},
        {},
    ),
    "fab": (methods.fab(**three, lam=LAM), penalty, every(tracking, "xyz"), XYZ, {}),
    "moreau": (methods.moreau(**envelope), moreau, every(tracking, "xyt"), XYT, {}),
    "moreau without tracking": (
        methods.moreau(**envelope, tracking=False),
        moreau,
        every(dgd, "xyt"),
        XYT,
        {},
    ),
    "implicit with a ridge, local y": (
        decibo.compose(
            direction.implicit(ridge=0.3),
            {"x": consensus.tracking(), "y": consensus.local(), "v": consensus.local()},
            **XYV,
        ),
        implicit_with_ridge,
        {"x": tracking, "y": local, "v": local},
        XYV,
        {},
    ),
    "sldbo": (methods.sldbo(**three), implicit, every(tracking, "xyv"), XYV, {}),
    "sldbo in a ball": (
        methods.sldbo(**three, radius=0.7),
        implicit,
        every(tracking, "xyv"),
        XYV,
        {"radius": 0.7},
    ),
    "d_soba": (
        methods.d_soba(**three, theta=THETA),
        implicit,
        {"x": late(atc), "y": atc, "v": atc},
        XYV,
        {"theta": THETA},
    ),
    "d_soba by differences": (
        methods.d_soba(**three, theta=None, difference=1e-2),
        implicit_by_differences,
        every(atc, "xyv"),
        XYV,
        {},
    ),
    "sparkle_gt": (
        methods.sparkle_gt(**three, theta=THETA),
        implicit,
        every(atc_tracking, "xyv"),
        XYV,
        {"theta": THETA},
    ),
    "sparkle_extra": (
        methods.sparkle_extra(**three, theta=THETA),
        implicit,
        every(extra, "xyv"),
        XYV,
        {"theta": THETA},
    ),
    "sparkle_ed": (
        methods.sparkle_ed(**three, theta=THETA),
        implicit,
        every(exact_diffusion, "xyv"),
        XYV,
        {"theta": THETA},
    ),
    "lopa": (
        methods.lopa(**three, theta=THETA, tau=0.7),
        implicit,
        {"x": lopa_x(False, 0.7), "y": local, "v": local},
        XYV,
        {"theta": THETA},
    ),
    "lopa with tracking": (
        methods.lopa(**three, theta=THETA, tau=0.7, tracking=True),
        implicit,
        {"x": lopa_x(True, 0.7), "y": local, "v": local},
        XYV,
        {"theta": THETA},
    ),
    "dgd": (methods.dgd(alpha=A), descent, every(dgd, "xy"), {"x": A, "y": A}, {}),
    "gradient_tracking": (
        methods.gradient_tracking(alpha=A),
        descent,
        every(tracking, "xy"),
        {"x": A, "y": A},
        {},
    ),
    "extra": (methods.extra(alpha=A), descent, every(extra, "xy"), {"x": A, "y": A}, {}),
    "exact_diffusion": (
        methods.exact_diffusion(alpha=A),
        descent,
        every(exact_diffusion, "xy"),
        {"x": A, "y": A},
        {},
    ),
}


def agree(network, weights, method, direction, strategies, steps, options):
    ours, twin = problem("vector", network.agents)
    drawn = twin.starts()
    drawn |= {
        "c": drawn["y"],
        "w": drawn["z"],
        "v": drawn["z"],
        "t": drawn["z"],
        "y2": drawn["y"] - drawn["z"],
        "z2": 2 * drawn["z"],
    }
    start = {name: drawn[name] for name in strategies}
    solution = decibo.solve(
        ours, network, method, steps=STEPS, start=as_start(ours, start), measures=["outer"]
    )
    expected = twin_run(twin, weights, start, direction, strategies, steps, **options)
    found = as_rows(ours, solution)
    if "w" in found:  # c answers for y
        np.testing.assert_array_equal(found.pop("y"), found["c"])
    elif "c" in found:  # what penalties on both sides of y*(x) show beside their variables
        half = (found["y"] + found["z"]) / 2
        center = (8 * half - found["y2"] - found["z2"]) / 6 if "y2" in found else half
        np.testing.assert_allclose(found.pop("c"), center, atol=1e-13)
    assert set(found) == set(expected)
    for name, rows in expected.items():
        np.testing.assert_allclose(found[name], rows, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("network", ["path", "ring", "star"])
@pytest.mark.parametrize("row", TABLE)
def test_steps_equal_numpy(row, network):
    network = NETWORKS[network]()
    agree(network, network.W, *TABLE[row])


def lopsided():
    """A ring with two arrows more, so that no two agents hear or tell alike."""
    graph = networkx.DiGraph(
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 2), (4, 1)]
    )
    return from_digraph(graph)


@pytest.mark.parametrize(
    "network", [directed_ring(6), lopsided()], ids=["directed ring", "lopsided"]
)
def test_fab_on_a_directed_network(network):
    method, direction, _, steps, options = TABLE["fab"]
    agree(
        network, (network.A, network.B), method, direction, every(push_pull, "xyz"), steps, options
    )


@pytest.mark.parametrize("row", TABLE)
def test_conforms(row):
    assert "light cone" in decibo.check_method(TABLE[row][0], landing=False)


COSTS = {  # (f, g, H, J, numbers) in terms of n and r
    "ahead": lambda n, r: (1, 2, 0, 0, n + 2 * r),
    "ahead_exact": lambda n, r: (1, 2, 0, 0, n + 2 * r),
    "ahead_free": lambda n, r: (1, 2, 0, 0, 2 * n + 4 * r),
    "order 2 x dgd": lambda n, r: (2, 2, 0, 0, n + 2 * r),
    "order 4 x exact diffusion": lambda n, r: (4, 4, 0, 0, n + 4 * r),
    "ahead_minimax": lambda n, r: (2, 0, 0, 0, n + 2 * r),
    "dgda": lambda n, r: (1, 0, 0, 0, n + r),
    "gt_gda": lambda n, r: (1, 0, 0, 0, 2 * n + 2 * r),
    "fab": lambda n, r: (1, 2, 0, 0, 2 * n + 4 * r),
    "moreau": lambda n, r: (1, 2, 0, 0, 2 * n + 4 * r),
    "moreau without tracking": lambda n, r: (1, 2, 0, 0, n + 2 * r),
    "implicit with a ridge, local y": lambda n, r: (1, 1, 1, 1, 2 * n),
    "sldbo": lambda n, r: (1, 1, 1, 1, 2 * n + 4 * r),
    "d_soba": lambda n, r: (1, 1, 1, 1, n + 2 * r),
    "d_soba by differences": lambda n, r: (1, 3, 0, 0, n + 2 * r),
    "sparkle_gt": lambda n, r: (1, 1, 1, 1, 2 * n + 4 * r),
    "sparkle_extra": lambda n, r: (1, 1, 1, 1, n + 2 * r),
    "sparkle_ed": lambda n, r: (1, 1, 1, 1, n + 2 * r),
    "lopa": lambda n, r: (1, 1, 1, 1, n),
    "lopa with tracking": lambda n, r: (1, 1, 1, 1, 2 * n),
    "dgd": lambda n, r: (1, 0, 0, 0, n + r),
    "gradient_tracking": lambda n, r: (1, 0, 0, 0, 2 * n + 2 * r),
    "extra": lambda n, r: (1, 0, 0, 0, n + r),
    "exact_diffusion": lambda n, r: (1, 0, 0, 0, n + r),
}


@pytest.mark.parametrize("row", COSTS)
def test_a_step_costs_what_the_docstring_says(row):
    ours, twin = problem("vector", 6)
    cost = decibo.solve(ours, decibo.ring(6), TABLE[row][0], steps=1, measures=["outer"]).cost
    found = (
        cost.outer_gradients,
        cost.inner_gradients,
        cost.hessian_products,
        cost.jacobian_products,
        cost.numbers,
    )
    assert found == COSTS[row](twin.n, twin.r)
    assert cost.calls == cost.hessian_products  # H v and J v in one
