"""Theorems A and B: every lemma on random non-quadratic problems, the bound along runs, stability,
the functions."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.problems.quadratic import quadratic_constants
from decibo.theory import Constants, ahead_exact_steps, fine_constants, start_errors
from helpers.bent import Bent, Enorm, errors, lemma5, norm, random_state, references, step
from helpers.quadratic_world import World

GOOD = {"mu_g": 1.0, "L_f1": 2.0, "L_g1": 3.0, "L_g2": 0.5, "C_fy": 4.0, "b_f": 0.0, "b_g": 0.0}
MAKE = {
    "path": decibo.networks.path,
    "ring": decibo.ring,
    "erdos_renyi": lambda m: decibo.networks.erdos_renyi(m, 0.6, seed=m),
}
NETWORKS = [decibo.networks.path(1), *(make(m) for make in MAKE.values() for m in (2, 3, 4, 6))]
networks = st.sampled_from(NETWORKS)
seeds = st.integers(0, 10**6)
lams = st.floats(-0.5, 3).map(lambda power: 10**power)
bends = st.fixed_dictionaries(
    {  # strongly convex: the smallest eigenvalue is at least 1 - 4 beta
        "seed": seeds,
        "beta": st.sampled_from([0.0, 0.1, 0.2]),
        "cond": st.sampled_from([1.0, 3.0]),
        "coupling": st.sampled_from([0.1, 1.0]),
    }
)


def at_most(left, right, rounding=1e-12):
    assert left <= right * (1 + 1e-12) + rounding


def one_row(world, seed, count, scale=1.0):
    """Points (x, y) at which all agents are, and their differences."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(count, world.n)), rng.normal(size=(count, world.dim))
    return (
        x,
        y,
        scale * rng.normal(size=(count, world.n)),
        scale * rng.normal(size=(count, world.dim)),
    )


# The lemmas, numbered as on the page


@given(bends, seeds, st.sampled_from([1e-3, 1.0]))
def test_lemma_0_what_may_be_put_for_the_constants(bend, seed, scale):
    world = Bent(**bend, m=3)
    c = world.constants()
    (x, _), (y, _), (dx, _), (dy, _) = one_row(world, seed, 2, scale)
    everywhere = world.everywhere
    y_1, w_1, grad_1, _ = world.solve(x)
    y_2, w_2, grad_2, _ = world.solve(x + dx)
    far = norm(dx)
    at_most(norm(w_1), c.V)
    at_most(norm(y_1 - y_2), c.L_ystar * far)
    at_most(norm(w_1 - w_2), c.L_wstar * far)
    at_most(norm(grad_1 - grad_2), c.L_Phi * far)
    D_1 = references(world, x, y_1, w_1)[2] + grad_1
    D_2 = references(world, x + dx, y_2, w_2)[2] + grad_2
    at_most(norm(D_1 - D_2, axis=1).max(), c.L_D * far)
    w = c.V * dy / norm(dy)
    near, away = (everywhere(x), everywhere(y)), (everywhere(x + dx), everywhere(y + dy))
    by_y = world.f_y(*away) + world.g_yy(*away) @ w - world.f_y(*near) - world.g_yy(*near) @ w
    by_x = world.f_x(*away) + world.g_xy(*away) @ w - world.f_x(*near) - world.g_xy(*near) @ w
    both = math.hypot(far, norm(dy))
    at_most(norm(by_y, axis=1).max(), c.M_y * both)
    at_most(norm(by_x, axis=1).max(), c.M_x * both)
    H = np.linalg.eigvalsh(world.g_yy(*near))
    at_most(c.mu_g, H.min())
    at_most(H.max(), c.L_yy)
    at_most(norm(world.g_xy(*near), 2, axis=(1, 2)).max(), c.L_xy)
    fixed = (everywhere(x), everywhere(y + dy))
    for matrix in (world.g_yy, world.g_xy):
        at_most(norm(matrix(*fixed) - matrix(*near), 2, axis=(1, 2)).max(), c.L_g2 * norm(dy))


@given(bends, seeds, lams)
def test_lemmas_1_and_2_the_change_of_variables_and_its_remainders(bend, seed, lam):
    world = Bent(**bend, m=2)
    c = world.constants()
    rng = np.random.default_rng(seed)
    x, y, z = (rng.normal(size=(2, 3)) for _ in range(3))
    middle, w = (y + z) / 2, lam * (y - z) / 2
    gamma = 0.2
    s, _ = step(world, np.eye(2), [x, y, z], [0 * x, 0 * y, 0 * z], lam, (1.0, gamma, gamma))
    nodes, weights = np.polynomial.legendre.leggauss(30)
    H_s = (
        sum(k * world.g_yy(x, middle + t * w / lam) for t, k in zip(nodes, weights, strict=True))
        / 2
    )
    J_s = (
        sum(k * world.g_xy(x, middle + t * w / lam) for t, k in zip(nodes, weights, strict=True))
        / 2
    )
    g_s = (world.g_y(x, y) + world.g_y(x, z)) / 2
    times = lambda M, v: np.einsum("ijk,ik->ij", M, v)
    size = 1 + lam
    np.testing.assert_allclose((s[1] + s[2]) / 2, middle - gamma * g_s, atol=1e-13 * size)
    np.testing.assert_allclose(
        lam * (s[1] - s[2]) / 2,
        w - gamma * (times(H_s, w) + world.f_y(x, middle)),
        atol=1e-13 * size,
    )
    np.testing.assert_allclose(x - s[0], world.f_x(x, middle) + times(J_s, w), atol=1e-13 * size)
    far = norm(w, axis=1) / lam
    eigenvalues = np.linalg.eigvalsh((H_s + np.swapaxes(H_s, 1, 2)) / 2)
    at_most(c.mu_g, eigenvalues.min())
    at_most(eigenvalues.max(), c.L_yy)
    assert np.all(norm(g_s - world.g_y(x, middle), axis=1) <= c.L_g2 * far**2 / 2 + 1e-12)
    for segment, matrix in ((H_s, world.g_yy), (J_s, world.g_xy)):
        gaps = norm(segment - matrix(x, middle), 2, axis=(1, 2))
        assert np.all(gaps <= c.L_g3 * far**2 / 6 + 1e-12)
        assert np.all(gaps <= c.L_g2 * far / 2 + 1e-12)  # without L_g3


@given(networks, seeds)
def test_lemma_3_exact_diffusion_contracts_in_one_norm(network, seed):
    m, W = network.agents, network.W
    E = Enorm(W)
    sigma = ahead_exact_steps(Constants(**GOOD), network).sigma
    rng = np.random.default_rng(seed)
    p, c = rng.normal(size=(m, 2)), rng.normal(size=(m, 2))
    c = c - c.mean(0)
    new_c = c - (np.eye(m) - W) / 2 @ (p + c)
    after = m * E(p + new_c, new_c) ** 2
    in_p, in_c = (E.Q.T @ v for v in (p, c))
    identity = np.sum((1 - E.u)[:, None] * in_p**2) + np.sum(
        ((1 - E.u) * E.weight)[:, None] * in_c**2
    )
    assert after == pytest.approx(identity, rel=1e-11, abs=1e-13)
    memory = m * E(0 * c, c) ** 2
    at_most(after, np.sum(p**2) + sigma**2 * memory)
    if m > 1:
        at_most(memory, sigma**2 / (1 - sigma**2) * np.sum(c**2))
    q = p - p.mean(0)
    new_c = c - (np.eye(m) - W) / 2 @ (q + c)
    at_most(E(q + new_c, new_c), sigma * E(q, c))


@given(bends, networks, lams, st.sampled_from([0.1, 0.5, 0.95]))
def test_lemma_4_w_stays_bounded(bend, network, lam, share):
    world = Bent(**bend, m=network.agents)
    c = world.constants()
    steps = ahead_exact_steps(c, network, gamma=share * 2 / c.L_yy, alpha=0.1)
    s = [np.zeros((world.m, 3))] * 3
    C = list(s)
    for _ in range(40):
        s, C = step(world, network.W, s, C, lam, (steps.alpha, steps.gamma, steps.gamma))
        w = lam * (s[1] - s[2]) / 2
        at_most(np.mean(np.sum(w**2, 1) ** 2) ** 0.25, steps.R(), 1e-12 * lam)


@given(
    bend=bends,
    network=networks,
    lam=lams,
    seed=seeds,
    share=st.sampled_from([0.05, 0.5, 0.95]),
    power=st.floats(-4, 0),
    size=st.floats(-3, 0.5).map(lambda k: 10**k),
    near=st.booleans(),
)
def test_lemma_5_the_five_inequalities(bend, network, lam, seed, share, power, size, near):
    world = Bent(**bend, m=network.agents)
    c = world.constants()
    steps = ahead_exact_steps(c, network, gamma=share * 2 / c.L_yy, alpha=10**power / c.L_Phi)
    s, C = random_state(world, c, lam, steps.alpha, steps.gamma, seed, size, near)
    rows, rounding = lemma5(world, network.W, steps, s, C, lam)
    for name, (left, right) in rows.items():
        assert left <= right + rounding, name


@given(st.floats(0, 0.99), seeds)
def test_lemma_6_sums_of_a_recursion(q, seed):
    rng = np.random.default_rng(seed)
    v = rng.exponential(size=30) * (rng.random(30) < 0.5)
    a = [rng.exponential()]
    for each in v[:-1]:
        a.append(q * a[-1] + each)
    at_most(norm(a), a[0] / math.sqrt(1 - q**2) + norm(v) / (1 - q))
    at_most(max(a), a[0] + v.max() / (1 - q))


# The theorems

CASES = [
    ("path", 1, 0, 1.0),
    ("ring", 4, 1, 30.0),
    pytest.param("path", 3, 2, 5.0, marks=pytest.mark.slow),
    pytest.param("erdos_renyi", 6, 3, 100.0, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "m", "seed", "lam"), CASES)
def test_theorem_b_along_runs(kind, m, seed, lam):
    """The bound, Lemma 4, and Propositions C and D, with constants and steps known before the
    run."""
    world = Bent(seed, m=m, cond=1.5, beta=0.05, coupling=0.3, spread=0.5)
    network = MAKE[kind](m)
    steps = ahead_exact_steps(world.constants(), network)
    c = steps.constants
    E = Enorm(network.W)
    s = [np.zeros((m, 3))] * 3
    C = list(s)
    seen = []
    for _ in range(400):
        guess = seen[-1]["y"] if seen else None
        seen.append(errors(world, E, s, C, lam, steps.alpha, steps.gamma, guess))
        s, C = step(world, network.W, s, C, lam, (steps.alpha, steps.gamma, steps.gamma))
    path = {
        name: np.array([now[name] for now in seen])
        for name in ("c", "w", "x", "gradient", "phi", "R")
    }
    start = {"e_c": path["c"][0], "e_w": path["w"][0], "e_x": path["x"][0]}
    fall = path["phi"][0] - world.phi_inf
    K = np.arange(1, 401)
    means = np.cumsum(path["gradient"] ** 2) / K
    bounds = np.array([steps.bound(k, lam, fall=fall, **start).total for k in K])
    assert np.all(means <= bounds)
    assert bounds[-1] < bounds[0] / 50  # it says something: most of it falls like 1/K
    assert path["R"].max() <= steps.R()
    F = steps.F(lam, path["R"].max())
    e = (
        c.M_x * (path["x"] + path["c"])
        + c.L_xy * path["w"]
        + c.L_g3 * c.V * path["R"] ** 2 / (6 * lam**2)
    )
    initial = steps.N * start["e_x"] + steps.L_G * start["e_c"] + c.L_xy * start["e_w"]
    assert e.max() <= 4 * (initial + F) + 2 * path["gradient"].max()  # Proposition C
    room = steps.alpha * steps.zeta / 2 * (steps.I_0(**start) + F * np.sqrt(K - 1)) ** 2
    assert np.all(path["phi"] - path["phi"][0] <= room)  # Proposition D


def spectral_radius(world, W, alpha, gamma, lam=1.0):
    """Of one step on (x, y, z) and memories that sum to zero; the problem has no linear terms."""
    m, n, r = world.J.shape
    basis = np.linalg.svd(np.eye(m) - 1 / m)[0][:, : m - 1]
    sizes = (n, r, r)
    free = [m * k for k in sizes] + [(m - 1) * k for k in sizes]
    columns = []
    for unit in np.eye(sum(free)):
        parts = np.split(unit, np.cumsum(free)[:-1])
        s = [part.reshape(m, k) for part, k in zip(parts[:3], sizes, strict=True)]
        C = [basis @ part.reshape(m - 1, k) for part, k in zip(parts[3:], sizes, strict=True)]
        s, C = step(world, W, s, C, lam, (alpha, gamma, gamma))
        columns.append(np.concatenate([p.ravel() for p in s] + [(basis.T @ p).ravel() for p in C]))
    return np.abs(np.linalg.eigvals(np.array(columns).T)).max()


def convex_quadratic(seed, m, condition, outer, coupling, curvature):
    """A World without linear terms whose Phi has at least this curvature, and its exact
    constants."""
    world = World.draw(seed, m, 2, 2, condition, outer, coupling)
    world = replace(world, p=0 * world.p, q=0 * world.q, s=0 * world.s)
    response = -np.linalg.solve(world.H.mean(0), world.J.mean(0).T)
    moves = np.vstack([np.eye(2), response])
    joined = lambda P: np.block([[P, world.B], [np.swapaxes(world.B, 1, 2), world.A]])
    low = np.linalg.eigvalsh(moves.T @ joined(world.P).mean(0) @ moves)[0]
    world = replace(world, P=world.P + max(0.0, curvature - low) * np.eye(2))
    F = joined(world.P)
    w = -np.linalg.solve(world.H.mean(0), F.mean(0)[2:] @ moves)
    H = np.linalg.eigvalsh(world.H)
    largest = lambda matrices: max(norm(matrix, 2) for matrix in matrices)
    return world, fine_constants(
        mu_g=H.min(),
        L_yy=H.max(),
        L_xy=largest(world.J),
        M_y=largest(F[:, 2:]),
        M_x=largest(F[:, :2]),
        V=0.0,
        L_ystar=norm(response, 2),
        L_wstar=norm(w, 2),
        L_Phi=norm(moves.T @ F.mean(0) @ moves, 2),
        L_D=largest(F[:, :2] @ moves + world.J @ w),
    )


@given(
    seeds,
    st.sampled_from([NETWORKS[0], *(make(m) for make in MAKE.values() for m in (2, 3))]),
    st.sampled_from([1.0, 2.0, 10.0]),
    st.sampled_from([0.1, 1.0]),
    st.sampled_from([0.1, 1.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([0.1, 0.5, 0.99]),
    lams,
)
def test_quadratics_are_stable_at_the_largest_alpha_of_theorem_b(
    seed, network, condition, outer, coupling, curvature, share, lam
):
    """Phi is convex, so that a spectral radius above 1 would contradict the theorem."""
    world, c = convex_quadratic(seed, network.agents, condition, outer, coupling, curvature)
    steps = ahead_exact_steps(c, network, gamma=share * 2 / c.L_yy, alpha=1.0)
    alpha = steps.largest_alpha
    assert replace(steps, alpha=alpha).holds
    assert not replace(steps, alpha=1.001 * alpha).holds
    assert spectral_radius(world, network.W, alpha, steps.gamma, lam) <= 1 + 1e-7


@given(st.floats(0.05, 1), st.floats(0.05, 1), st.floats(0.1, 100))
def test_proposition_e_unmatched_inner_steps(b, gamma, product):
    """g = (y - x)^2/2, f = 0: eigenvalues and the limit of alpha lam, from the method's own
    recursion."""
    none = lambda x, y: 0 * x
    world = SimpleNamespace(f_x=none, f_y=none, g_x=lambda x, y: x - y, g_y=lambda x, y: y - x)
    lam = 7.0

    def eigenvalues(product):
        rows = []
        for unit in np.eye(3):
            s = [np.full((1, 1), value) for value in unit]
            s, _ = step(world, np.eye(1), s, [0 * s[0]] * 3, lam, (product / lam, b, gamma))
            rows.append(np.concatenate(s).ravel())
        return np.linalg.eigvals(np.array(rows))

    mean, half = (b + gamma) / 2, (b - gamma) / 2
    root = np.sqrt(complex(half * (half + product)))
    proved = np.array([1, 1 - mean + root, 1 - mean - root])
    assert np.poly(eigenvalues(product)) == pytest.approx(np.poly(proved).real, abs=1e-9)
    if abs(half) > 0.01:
        limit = (
            2 * b * gamma / (b - gamma) if b > gamma else 2 * (b + gamma - b * gamma) / (gamma - b)
        )
        inside = lambda product: np.sort(np.abs(eigenvalues(product)))[1:]
        assert inside(0.999 * limit).max() <= 1 + 1e-9
        assert inside(1.001 * limit).max() > 1 + 1e-7


# The library


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "m"), [("path", 4), ("erdos_renyi", 6)])
def test_the_library_takes_the_steps_of_the_theorem(kind, m):
    """x, c, w and the memories after 30 steps of decibo.ahead_exact and of the recursion in
    numpy."""
    world = Bent(5, m=m)
    network = MAKE[kind](m)
    alpha, gamma, lam = 0.05, 0.3, 20.0
    s = [np.zeros((m, 3))] * 3
    C = list(s)
    for _ in range(30):
        s, C = step(world, network.W, s, C, lam, (alpha, gamma, gamma))
    method = decibo.ahead_exact(alpha=alpha, gamma=gamma, lam=lam)
    end = decibo.solve(world.problem(), network, method, steps=30, measures=["outer"])
    x, y, z = (np.asarray(v) for v in (end.agents.x, end.agents.y, end.agents.z))
    np.testing.assert_allclose(x, s[0], atol=1e-13)
    np.testing.assert_allclose((y + z) / 2, (s[1] + s[2]) / 2, atol=1e-13)
    np.testing.assert_allclose(lam * (y - z) / 2, lam * (s[1] - s[2]) / 2, atol=1e-13 * lam)
    np.testing.assert_allclose(np.asarray(end.agents.c), (s[1] + s[2]) / 2, atol=1e-13)
    memory, _ = end.state.memory[0]  # and what rounding left over
    for name, own in zip("xyz", C, strict=True):
        np.testing.assert_allclose(np.asarray(memory[name]), own, atol=1e-13)


@pytest.mark.parametrize("name", ["ahead_exact", "sparkle_ed"])
def test_bound_and_start_errors_along_a_run_of_the_library(name):
    problem = decibo.problems.quadratic(4, condition=2.0)
    network = decibo.networks.path(4)
    known = {
        name: value for name, value in quadratic_constants(problem).items() if "Phi" not in name
    }
    # C_fy counts where L_g2 > 0 only
    steps = ahead_exact_steps(Constants(**known, C_fy=0, b_f=0, b_g=0), network)
    e_c, e_w, e_x, phi = start_errors(problem, network, steps)
    fall = phi - float(decibo.reference(problem).phi(problem.solution["x"]))
    method = {
        "ahead_exact": decibo.ahead_exact(alpha=steps.alpha, gamma=steps.gamma, lam=3.0),
        "sparkle_ed": decibo.methods.sparkle_ed(
            alpha=steps.alpha, beta=steps.gamma, gamma=steps.gamma, theta=None
        ),
    }[name]
    run = decibo.solve(problem, network, method, steps=500, every=1, measures=["stationarity"])
    squares = run.history["stationarity"]
    for K in (1, 10, 100, 500):
        bound = steps.bound(K, 3.0, fall=fall, e_c=e_c, e_w=e_w, e_x=e_x)
        assert bound.floor == 0
        assert squares[:K].mean() <= bound.total


@pytest.mark.slow
def test_start_errors_twice():
    world = Bent(2, m=4)
    network = decibo.networks.path(4)
    steps = ahead_exact_steps(world.constants(), network)
    zero = np.zeros((4, 3))
    by_hand = errors(world, Enorm(network.W), [zero] * 3, [zero] * 3, 5.0, steps.alpha, steps.gamma)
    ours = start_errors(world.problem(), network, steps)
    assert ours == pytest.approx([by_hand[name] for name in ("c", "w", "x", "phi")], rel=1e-9)
    alone = Bent(2, m=1)
    by_hand = errors(
        alone, Enorm(np.eye(1)), [zero[:1]] * 3, [zero[:1]] * 3, 5.0, steps.alpha, steps.gamma
    )
    ours = start_errors(alone.problem(), None, steps)
    assert ours == pytest.approx([by_hand[name] for name in ("c", "w", "x", "phi")], rel=1e-9)


constant = st.floats(0.01, 100)


@given(constant, st.floats(1, 50), constant, constant, constant)
def test_one_agent_in_closed_form(mu_g, condition, L_f1, L_g2, C_fy):
    c = Constants(mu_g=mu_g, L_g1=condition * mu_g, L_f1=L_f1, L_g2=L_g2, C_fy=C_fy, b_f=0, b_g=0)
    steps = ahead_exact_steps(c, None)
    M = L_f1 + L_g2 * C_fy / mu_g
    k = c.L_ystar
    s = math.sqrt(1 + k**2)
    assert steps.gamma == pytest.approx(1 / c.L_g1)
    assert steps.alpha == pytest.approx(1 / (M * (s * (1 + k) + 2 * k**2 * (1 + k + s))), rel=1e-8)
    assert steps.alpha >= 1 / (M * (1 + k) ** 2 * (1 + 4 * k)) * (1 - 1e-8)
    assert steps.zeta <= 4 / 3
    assert steps.tau == pytest.approx(1)


@given(constant, st.floats(1, 50), constant, st.floats(0, 0.999))
def test_the_rule_in_closed_form(mu_g, condition, L_f1, rho):
    c = Constants(mu_g=mu_g, L_g1=condition * mu_g, L_f1=L_f1, L_g2=0, C_fy=1, b_f=0, b_g=0)
    steps = ahead_exact_steps(c, rho)
    k = c.L_ystar
    s = math.sqrt(1 + k**2)
    sigma = math.sqrt((1 + math.sqrt(rho)) / 2)
    chi = sigma / math.sqrt(1 - sigma**2)
    gamma = min(1 / c.L_g1, (1 - sigma) / mu_g)
    L_D = s * (1 + k) * L_f1
    G1 = (
        k
        * math.sqrt(1 + (chi * gamma * (mu_g + c.L_g1)) ** 2)
        * L_f1
        * (1 + k + s)
        / (gamma * mu_g)
    )
    N = (1 + k) ** 2 * L_f1
    G2 = N * chi * L_D / (1 - sigma)
    alpha = min(1 / (L_D + 2 * G1 + math.sqrt(2 * G2)), (1 - sigma) / (4 * sigma * N))
    assert (steps.gamma, steps.alpha) == pytest.approx((gamma, alpha), rel=1e-7)
    assert pytest.approx([G1, G2, N], rel=1e-7) == [steps.G1, steps.G2, steps.N]
    assert steps.zeta <= 16 / 5
    assert all(slack.holds for slack in steps.slacks.values())
    assert steps.largest_alpha >= steps.alpha


def test_sigma_comes_from_the_network_where_there_is_one():
    c = Constants(**GOOD)
    network = decibo.from_weights(np.array([[0.1, 0.9], [0.9, 0.1]]))  # eigenvalues 1 and -0.8
    assert ahead_exact_steps(c, network).sigma == pytest.approx(math.sqrt(0.1))
    assert ahead_exact_steps(c, network.rho).sigma == pytest.approx(math.sqrt(0.9))
    assert ahead_exact_steps(c, decibo.ring(1)).sigma == ahead_exact_steps(c, None).sigma == 0


def test_the_floor_and_what_it_needs():
    c = Constants(**GOOD)
    ring = decibo.ring(4)
    with_third = ahead_exact_steps(fine_constants(c, L_g3=1.0, C_f=2.0), ring)
    without = ahead_exact_steps(fine_constants(c, C_f=2.0), ring)
    assert with_third.R() == pytest.approx(2.0 * 4**0.25)
    assert with_third.F(10.0) == pytest.approx(100 * with_third.F(100.0))  # O(1/lam^2)
    assert without.F(1e4) == pytest.approx(10 * without.F(1e5), rel=1e-3)  # O(1/lam)
    assert without.F(10.0, R=0.0) == 0
    eps_c = 0.5 * 2.0**2 / (2 * 10.0**2)  # L_g2 = 0.5, R = 2, lam = 10; mu_g = 1, L_xy = 3, V = 4
    for steps, eps_w in (
        (with_third, 1.0 * 4 * 2.0**2 / (6 * 10.0**2)),
        (without, 0.5 * 4 * 2.0 / (2 * 10.0)),
    ):
        assert steps.F(10.0, R=2.0) == pytest.approx(
            steps.tau * (steps.L_G * eps_c + 3 * eps_w) + eps_w
        )
    assert (
        ahead_exact_steps(replace(fine_constants(c), L_g2=0.0), 0.5).bound(math.inf, 1.0).total == 0
    )
    with pytest.raises(decibo.InputError, match="C_f"):
        ahead_exact_steps(c, ring).F(10.0)
    with pytest.raises(decibo.InputError, match="number of agents"):
        ahead_exact_steps(fine_constants(c, C_f=2.0), 0.5).F(10.0)
    bound = with_third.bound(100, 10.0, fall=3.0, e_c=1.0, e_w=2.0, e_x=0.1)
    assert bound.start == pytest.approx(6 / (with_third.alpha * 100))
    square = (with_third.I_0(1.0, 2.0, 0.1) / 10 + with_third.F(10.0)) ** 2
    assert bound.total == pytest.approx(bound.start + with_third.zeta * square)


def test_steps_of_your_own():
    c = Constants(**GOOD)
    large = ahead_exact_steps(c, 0.5, alpha=1.0, gamma=0.1)
    assert not large.holds
    assert large.bound(10, 1.0, R=1.0).total == math.inf
    assert not ahead_exact_steps(c, 0.5, gamma=0.7).holds  # gamma L_g1 = 2.1
    ours = ahead_exact_steps(c, 0.5, gamma=0.1)
    between = replace(ours, alpha=(ours.alpha + ours.largest_alpha) / 2)
    assert between.holds  # outside the rows, inside the theorem
    assert not all(slack.holds for slack in between.slacks.values())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda c: fine_constants(c, L_q=1.0), "no constant L_q"),
        (lambda c: fine_constants(mu_g=1.0), "L_yy, L_xy, M_y, M_x, V must be given"),
        (lambda c: fine_constants(c, mu_g=5.0), "at most L_yy"),
        (lambda c: fine_constants(c, L_g3=-1.0), "L_g3"),
        (lambda c: ahead_exact_steps(c, 1.5), "rho"),
        (lambda c: ahead_exact_steps(c, 0.5, alpha=0.0), "alpha"),
        (lambda c: ahead_exact_steps(c, 0.5).bound(0, 1.0), "K must be"),
        (
            lambda c: ahead_exact_steps(fine_constants(c, M_x=0.0, M_y=0.0), 0.5),
            "no limit on alpha",
        ),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(decibo.InputError, match=words):
        make(Constants(**GOOD))
