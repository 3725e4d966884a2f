"""Constants: a second transcription, the exact values of quadratics, estimates, and bad input."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.problems.quadratic import quadratic
from decibo.theory import Constants, bound, constants, theorem1
from helpers import paper_formulas as paper
from helpers.quadratic_world import World

GOOD = {"mu_g": 1.0, "L_f1": 2.0, "L_g1": 3.0, "L_g2": 0.5, "C_fy": 4.0, "b_f": 1.0, "b_g": 2.0}
size = st.floats(0.01, 100)
some = st.fixed_dictionaries(dict.fromkeys(GOOD, size) | {"over": st.floats(1, 50)}).map(
    lambda v: (
        {name: v[name] for name in GOOD} | {"L_g1": v["mu_g"] * v["over"]},
        v["L_f1"] / v["mu_g"] * 2 * (1 + v["over"] / 10),
    )
)


def base(values):
    return {name: values[name] for name in ("mu_g", "L_f1", "L_g1", "L_g2", "C_fy")}


@given(some)
def test_every_constant_twice(case):
    values, lam = case
    c = Constants(**values)
    s = paper.symbols(**base(values), lam=lam)
    ours = {
        "U_lam^2": c.U_lam(lam) ** 2,
        "L_lam": c.L_lam(lam),
        "mu_lam": c.mu_lam(lam),
        "L_y": c.L_ystar,
        "L_ylam": c.L_ystar_lam(lam),
        "L": c.L,
        "w_gamma": c.w_gamma,
        "w_beta": c.w_beta(lam),
        "C_in": c.C_in,
        "C_ou": c.C_ou,
        "u_beta": c.u_beta(lam),
        "p1": c.p_1(lam),
        "p2": c.p_2(lam),
        "p3": c.p_3,
        "kappa": c.kappa,
    }
    assert ours == pytest.approx(s, rel=1e-12)


@given(some, st.floats(0, 0.99))
def test_every_rule_twice(case, rho):
    values, lam = case
    c = Constants(**values)
    t = theorem1(c, rho, lam)
    gammas, betas, alphas = paper.limits(
        **base(values), rho=rho, lam=lam, beta=t.beta, gamma=t.gamma
    )
    assert sorted(t.gammas.values()) == pytest.approx(sorted(gammas), rel=1e-12)
    assert sorted(t.betas.values()) == pytest.approx(sorted(betas), rel=1e-12)
    assert sorted(t.alphas(t.beta, t.gamma).values()) == pytest.approx(sorted(alphas), rel=1e-12)
    steps = {"alpha": t.alpha, "beta": t.beta, "gamma": t.gamma, "lam": lam}
    C, B = paper.errors(**values, rho=rho, **steps)
    b = bound(c, rho, **steps, fall=3.0, K=10)
    assert (b.penalty, b.heterogeneity) == pytest.approx((C, B), rel=1e-12)
    assert b.initial == pytest.approx(3.0 / (10 * t.alpha))
    assert b.total == b.initial + b.floor
    assert tuple(c.d(rho, **steps)) == pytest.approx(
        paper.weights(**base(values), rho=rho, **steps), rel=1e-12
    )


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 3),
    r=st.integers(1, 3),
    outer=st.sampled_from([0.1, 1.0, 10.0]),
    coupling=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_true_lipschitz_constants_never_exceed_the_formulas(seed, n, r, outer, coupling):
    world = World.draw(seed, 3, n, r, outer=outer, coupling=coupling)
    c = world.constants([np.zeros(n)])
    lam = 2.1 * c.L_f1 / c.mu_g
    assert np.linalg.norm(world.phi_hessian, 2) <= c.L * (1 + 1e-12)
    assert np.linalg.norm(world.response, 2) <= c.L_ystar * (1 + 1e-12)
    mixed = world.B.mean(0).T + lam * world.J.mean(0).T
    slope = np.linalg.solve(world.A.mean(0) + lam * world.H.mean(0), mixed)
    assert np.linalg.norm(slope, 2) <= c.L_ystar_lam(lam) * (1 + 1e-12)


def printed_l(c):
    """L = (L_f1 + (L_f1 + C_fy) L_g2/mu_g + C_fy L_g2^2/mu_g^2)(1 + L_y*), as the paper prints
    it."""
    inside = c.L_f1 + (c.L_f1 + c.C_fy) * c.L_g2 / c.mu_g + c.C_fy * c.L_g2**2 / c.mu_g**2
    return inside * (1 + c.L_ystar)


def test_printed_l_is_too_small():
    """Erratum 6: f = (x + y)^2 a/2, g = (y - k x)^2/2 has Phi'' = a (1 + k)^2 = 3, and the printed
    L is below it."""
    k = 9.0
    a = 0.03
    L_g1 = 1 + k**2  # Hessian of g: [[k^2, -k], [-k, 1]]
    c = Constants(mu_g=1, L_f1=2 * a, L_g1=L_g1, L_g2=0, C_fy=1, b_f=0, b_g=0)
    assert a * (1 + k) ** 2 <= c.L
    assert pytest.approx((1 + c.L_ystar) * printed_l(c)) == c.L
    # with J alone (no x in g beyond the coupling) the printed value is below the truth
    L_g1 = (1 + np.sqrt(1 + 4 * k**2)) / 2  # [[0, -k], [-k, 1]]
    c = Constants(mu_g=1, L_f1=2 * a, L_g1=L_g1, L_g2=0, C_fy=1, b_f=0, b_g=0)
    assert printed_l(c) < a * (1 + k) ** 2 <= c.L


def test_exact_for_quadratics():
    world = World.draw(4, 3, 2, 3)
    like = quadratic(agents=3, n=2, r=3)
    problem = decibo.Problem(
        like.outer, like.inner, {k: getattr(world, k) for k in like.data}, like.x0, like.y0
    )
    x = np.array([[0.3, -1.0], [0.0, 2.0]])
    estimate = constants(problem, x)
    truth = world.constants(x)
    assert not estimate.estimated
    for name in GOOD:
        assert getattr(estimate, name) == pytest.approx(getattr(truth, name), rel=1e-10), name


@cache
def ridge(weight):
    """g = weight y^2/2 + cos(a x + b y), so that |D3 g| = |sin| |(a, b)|^3."""

    def inner(x, y, d):
        return weight * y**2 / 2 + jnp.cos(d["a"] * x + d["b"] * y)

    data = {"a": np.array([0.0, 0.6]), "b": np.array([0.5, 0.8])}
    return decibo.Problem(lambda x, y, d: (y - d["a"]) ** 2 / 2, inner, data, 0.0, 0.0)


def test_estimates_of_a_bent_problem():
    estimate = constants(ridge(3.0), jnp.linspace(-4, 4, 9), samples=9)
    assert estimate.estimated
    assert 0.95 <= estimate.L_g2 <= 1.0  # agent 1 has |(a, b)| = 1
    assert 3 - 0.64 - 0.25 <= estimate.mu_g <= 3 - 0.64 + 0.05
    assert estimate.L_f1 == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("bend", [1e-5, 1e-4])
def test_a_small_bend_is_noticed_in_single_precision(bend):
    with jax.enable_x64(False):
        assert not constants(quadratic(3, 2, 2)).estimated
        estimate = constants(quadratic(3, 2, 2, bend=bend))
        assert jnp.zeros(1).dtype == jnp.float32
    assert estimate.estimated
    assert 0.1 * bend < estimate.L_g2 < bend


@pytest.mark.slow
def test_quadratics_in_pieces_and_in_powers():
    """Third derivatives alone would call Huber's function quadratic; y**2.0 has none that JAX can
    form at y = 0."""
    data = {"a": np.array([0.0, 1.0])}
    huber = lambda x, y, d: jnp.sum(jnp.where(jnp.abs(y) < 1, y**2, 2 * jnp.abs(y) - 1)) + x**2
    power = lambda x, y, d: jnp.sum((y - d["a"]) ** 2.0) / 2 + 0 * x
    start = jnp.zeros(2)
    square = lambda x, y, d: jnp.sum((y - d["a"]) ** 2) / 2 + 0 * x
    assert constants(decibo.Problem(huber, square, data, 0.0, start), radius=3.0).estimated
    assert not constants(
        decibo.Problem(lambda x, y, d: jnp.sum(y**2.0), power, data, 0.0, start)
    ).estimated


def test_constants_of_a_problem_that_is_not_minimax():
    with pytest.raises(decibo.InputError, match="minimax case is g = -f"):
        constants(ridge(3.0), jnp.linspace(-4, 4, 9), samples=9, minimax=True)


def test_not_strongly_convex_says_where():
    with pytest.raises(
        decibo.InputError, match=r"agent 1 has the eigenvalue -0\.\d+ at x = \[.*\], y = \["
    ):
        constants(ridge(0.5), jnp.zeros(1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mu_g": 5.0}, "mu_g <= L_g1"),
        ({"mu_g": 0.0}, "strong convexity"),
        ({"L_f1": -1.0}, "L_f1 must be a finite number of at least 0, but it is -1.0"),
        ({"C_fy": float("nan")}, "C_fy must be .* but it is nan"),
        ({"L_g2": float("inf")}, "finite"),
        ({"minimax": True}, "g = -f, so .* the same Lipschitz constant, but L_f1 = 2 and L_g1 = 3"),
    ],
)
def test_contradictory_constants_are_rejected(change, said):
    with pytest.raises(decibo.InputError, match=said):
        Constants(**(GOOD | change))


@pytest.mark.parametrize("rho", [1.0, -0.1, float("nan"), 2])
def test_rho_of_a_disconnected_network_is_rejected(rho):
    with pytest.raises(decibo.InputError, match="rho"):
        theorem1(Constants(**GOOD), rho, 10.0)


def test_small_lam_and_invalid_steps_are_rejected():
    with pytest.raises(decibo.InputError, match=r"lam > 2 L_f1/mu_g = 4"):
        theorem1(Constants(**GOOD), 0.5, 4.0)
    t = theorem1(Constants(**GOOD), 0.5, 4.01)
    with pytest.raises(decibo.InputError, match="alpha"):
        t.slacks(-1.0, 1.0, 1.0)
    with pytest.raises(decibo.InputError, match="stacked along a first axis"):
        constants(quadratic(agents=2, n=2, r=2), jnp.zeros((4, 3)))
    with pytest.raises(decibo.InputError, match="lam >= 1"):
        theorem1(Constants(**(GOOD | {"L_f1": 3.0}), minimax=True), 0.5, 0.9)
