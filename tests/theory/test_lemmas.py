"""Lemmas 1 to 6, the assembly of the proof and the descent of the potential, on random problems,
quadratic and not."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo.theory import Constants, bound, theorem1
from helpers.quadratic_world import Minimax, World, square
from studies.paper.corollaries import corollary1

worlds = st.builds(
    World.draw,
    seed=st.integers(0, 10**6),
    m=st.integers(1, 5),
    n=st.integers(1, 3),
    r=st.integers(1, 3),
    condition=st.sampled_from([1.0, 1.2, 4.0, 30.0]),
    outer=st.sampled_from([0.0, 0.02, 1.0, 5.0]),
    coupling=st.sampled_from([0.01, 0.5, 3.0]),
    bend=st.sampled_from([0.0, 0.2]),
)
shares = st.sampled_from([1e-3, 0.3, 0.999])


def points(world, seed, scale):
    rng = np.random.default_rng(seed)
    n, r = world.J.shape[1:]
    return tuple(scale * rng.normal(size=(world.m, size)) for size in (n, r, r))


def setting(world, seed, scale, above):
    """Points, constants within 1 of their mean, and a lam above Theorem 1's limit."""
    x, y, z = points(world, seed, scale)
    c = world.constants([x.mean(0)], radius=1.0)
    return x, y, z, c, above * max(2 * c.L_f1 / c.mu_g, 0.1)


common = {
    "world": worlds,
    "seed": st.integers(0, 99),
    "scale": st.sampled_from([0.0, 0.1, 3.0]),
    "above": st.sampled_from([1.0001, 2.0, 50.0]),
}


def at_most(left, right, scale=1.0):
    assert left <= right + 1e-11 * (abs(left) + abs(right) + scale)


@given(**common, share=shares)
def test_lemma_1_descent(world, seed, scale, above, share):
    x, y, z, c, lam = setting(world, seed, scale, above)
    H = world.directions(x, y, z, lam)[0].mean(0)
    alpha = share / max(2 * c.L, np.linalg.norm(H), 1e-9)  # the constants hold within 1 of the mean
    now = world.phi(x.mean(0))
    gradient = world.grad_phi(x.mean(0))
    after = world.phi(x.mean(0) - alpha * H)
    terms = square(gradient - H) / 2, -square(gradient) / 2, -square(H) / 4
    at_most(after, now + alpha * sum(terms), abs(now) + alpha * sum(map(abs, terms)))


@given(**common)
def test_lemma_2_penalty_gap_and_propositions(world, seed, scale, above):
    x, _, _, c, lam = setting(world, seed, scale, above)
    a = x.mean(0)
    b = x.mean(0) + 1.0
    at_most(np.linalg.norm(world.ystar(a) - world.ystar_lam(a, lam)), c.C_in / lam)
    at_most(np.linalg.norm(world.grad_phi(a) - world.grad_pstar(a, lam)), c.C_ou / lam, scale=lam)
    at_most(np.linalg.norm(world.phi_hessian_at(a), 2), c.L, scale=1e4)
    far = np.linalg.norm(a - b)
    at_most(np.linalg.norm(world.ystar(a) - world.ystar(b)), c.L_ystar * far)
    at_most(
        np.linalg.norm(world.ystar_lam(a, lam) - world.ystar_lam(b, lam)), c.L_ystar_lam(lam) * far
    )
    at = world.everywhere(a), world.everywhere(world.ystar(a))
    curvature = np.linalg.eigvalsh(world.A.mean(0) + lam * world.g_yy(*at).mean(0))
    at_most(c.mu_lam(lam), curvature[0])
    at_most(curvature[-1], c.L_lam(lam))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lemma_2_slopes_over_four_decades(seed):
    world = World.draw(seed, 3, 2, 2)
    x = np.array([0.4, -0.7])
    c = world.constants([x])
    lams = 10 * c.L_f1 / c.mu_g * np.logspace(0, 4, 9)
    inner = [np.linalg.norm(world.ystar(x) - world.ystar_lam(x, lam)) for lam in lams]
    outer = [np.linalg.norm(world.grad_phi(x) - world.grad_pstar(x, lam)) for lam in lams]
    assert np.all(inner <= c.C_in / lams)
    assert np.all(outer <= c.C_ou / lams)
    for gap in (inner, outer):
        assert np.polyfit(np.log(lams), np.log(gap), 1)[0] == pytest.approx(-1, abs=0.02)


@given(**common)
def test_lemma_3_gradient_approximation(world, seed, scale, above):
    x, y, z, c, lam = setting(world, seed, scale, above)
    e_y, e_z, c_x, c_y, c_z = world.errors(x, y, z, lam)
    H = world.directions(x, y, z, lam)[0].mean(0)
    U2 = c.U_lam(lam) ** 2
    G2 = (c.L_g1 * lam) ** 2
    right = 2 * c.C_ou**2 / lam**2 + 12 * U2 * (e_y + c_x + c_y) + 12 * G2 * (e_z + c_z)
    at_most(square(world.grad_phi(x.mean(0)) - H), right)


@given(**common, share=shares, move=st.sampled_from([1e-6, 1e-2]))
def test_lemma_4_inner_errors(world, seed, scale, above, share, move):
    x, y, z, c, lam = setting(world, seed, scale, above)
    gamma = share * min(2 / (c.mu_g + c.L_g1), (c.mu_g + c.L_g1) / (2 * c.mu_g * c.L_g1))
    alpha = move / c.L_lam(lam)
    after = world.errors(*world.step(x, y, z, alpha, 1e-3 / c.L_lam(lam), gamma, lam), lam)
    _, e_z, c_x, _, c_z = world.errors(x, y, z, lam)
    H = square(world.directions(x, y, z, lam)[0].mean(0))
    w = c.w_gamma
    right = (1 - 2 * w * gamma) * e_z + 2 * c.L_ystar**2 / (gamma * w) * alpha**2 * H
    at_most(after[1], right + 4 * c.L_g1**2 / w * gamma * (c_x + c_z))


@given(**common, share=shares, move=st.sampled_from([1e-6, 1e-2]))
def test_lemma_5_penalised_inner_errors(world, seed, scale, above, share, move):
    x, y, z, c, lam = setting(world, seed, scale, above)
    beta = share * min(1 / (lam * c.L_g1), 1 / (2 * c.L_lam(lam)) + 1 / (lam * c.mu_g))
    alpha = move / c.L_lam(lam)
    after = world.errors(*world.step(x, y, z, alpha, beta, 1e-3 / c.L_g1, lam), lam)
    e_y, _, c_x, c_y, _ = world.errors(x, y, z, lam)
    H = square(world.directions(x, y, z, lam)[0].mean(0))
    w = c.w_beta(lam)
    right = (1 - 2 * w * beta) * e_y + 2 * c.L_ystar_lam(lam) ** 2 / (beta * w) * alpha**2 * H
    at_most(after[0], right + 8 * c.U_lam(lam) ** 2 / w * beta * (c_x + c_y))


@given(**common, size=st.sampled_from([1e-4, 0.1, 10.0]))
def test_lemma_6_consensus_errors(world, seed, scale, above, size):
    x, y, z, c, lam = setting(world, seed, scale, above)
    alpha = size / c.L_lam(lam)
    beta = size / c.L_lam(lam)
    gamma = size / c.L_g1
    e_y, e_z, c_x, c_y, c_z = world.errors(x, y, z, lam)
    _, _, a_x, a_y, a_z = world.errors(*world.step(x, y, z, alpha, beta, gamma, lam), lam)
    gap = 1 - world.rho
    U2 = c.U_lam(lam) ** 2
    G2 = (c.L_g1 * lam) ** 2
    contraction = 1 - gap / 2
    right = contraction * c_x + 108 * alpha**2 / gap * (U2 * (c_x + c_y + e_y) + G2 * (c_z + e_z))
    at_most(a_x, right + alpha**2 / gap * (108 * c.C_in**2 * U2 / lam**2 + 6 * c.b_f**2))
    right = contraction * c_y + 72 * beta**2 * U2 / gap * (c_x + c_y + e_y + c.C_in**2 / lam**2)
    at_most(a_y, right + 12 * beta**2 / gap * (c.b_f**2 + lam**2 * c.b_g**2))
    right = contraction * c_z + 24 * c.L_g1**2 * gamma**2 / gap * (c_x + c_z + e_z)
    at_most(a_z, right + 6 * gamma**2 * c.b_g**2 / gap)


@given(**common, share=shares)
def test_potential_falls_from_any_point(world, seed, scale, above, share):
    x, y, z, c, lam = setting(world, seed, scale, above)
    t = theorem1(c, world.rho, lam)
    steps = {"beta": share * t.beta, "gamma": t.gamma}
    steps["alpha"] = share * min(t.alphas(**steps).values())
    d = c.d(world.rho, **steps, lam=lam)
    floor = bound(c, world.rho, **steps, lam=lam).floor
    now = world.potential(d, x, y, z, lam)
    after = world.potential(d, *world.step(x, y, z, **steps, lam=lam), lam)
    fall = -square(world.grad_phi(x.mean(0))) + floor
    assert after <= now + steps["alpha"] * fall + 1e-13 * (abs(now) + abs(after) + 1)


def test_the_terms_with_l_g2_are_needed():
    """f linear in y: then L and C_ou consist of terms with L_g2 only, and without them are below
    the truth."""
    for seed in range(20):
        world = World.draw(seed, 2, 2, 2, outer=0.0, bend=0.3)
        x = np.random.default_rng(seed).normal(size=2)
        c = world.constants([x])
        lam = 3.0
        gap = np.linalg.norm(world.grad_phi(x) - world.grad_pstar(x, lam))
        curvature = np.linalg.norm(world.phi_hessian_at(x), 2)
        without = replace(c, L_g2=0.0)
        assert without.L < 1e-3 < curvature <= c.L
        assert without.C_ou / lam < 1e-5 < gap <= c.C_ou / lam


minimax_worlds = st.builds(
    Minimax.draw,
    seed=st.integers(0, 10**6),
    m=st.integers(1, 5),
    n=st.integers(1, 3),
    r=st.integers(1, 3),
    condition=st.sampled_from([1.0, 4.0, 30.0]),
    coupling=st.sampled_from([0.01, 0.5, 3.0]),
    bend=st.sampled_from([0.0, 0.2]),
)
minimax = {
    "world": minimax_worlds,
    "seed": st.integers(0, 99),
    "scale": st.sampled_from([0.1, 3.0]),
    "lam": st.sampled_from([1.0, 1.0001, 1.1, 1.5, 2.0, 30.0]),
    "share": shares,
}


@given(**minimax)
def test_lemmas_3_5_and_6_for_minimax(world, seed, scale, lam, share):
    """With U_lam = (lam - 1) L_g1 for y, w_beta = (lam - 1) w_gamma and L_y*lam = L_y*; x changes
    with both parts."""
    x, y, z = points(world, seed, scale)
    c = world.constants([x.mean(0)])
    t = theorem1(c, 0.0, lam)
    steps = {
        "beta": share * min(list(t.betas.values())[:2]),
        "gamma": share * min(list(t.gammas.values())[:2]),
    }
    alpha = 1e-3 / c.L_g1
    e_y, e_z, c_x, c_y, c_z = world.errors(x, y, z, lam)
    mean = world.directions(x, y, z, lam)[0].mean(0)
    U2 = c.U_lam(lam) ** 2
    G2 = (lam * c.L_g1) ** 2
    at_most(
        square(world.grad_phi(x.mean(0)) - mean),
        2 * (U2 * (e_y + c_y) + G2 * (e_z + c_z) + (U2 + G2) * c_x),
    )
    after, _, a_x, a_y, _ = world.errors(*world.step(x, y, z, alpha, **steps, lam=lam), lam)
    if lam > 1:
        w = c.w_beta(lam) * steps["beta"]
        moved = 2 * c.L_ystar_lam(lam) ** 2 / w * alpha**2 * square(mean)
        at_most(after, (1 - 2 * w) * e_y + moved + 8 * U2 * steps["beta"] ** 2 / w * (c_x + c_y))
    gap = 1 - world.rho
    contraction = 1 - gap / 2
    right = contraction * c_x + 108 * alpha**2 / gap * (
        U2 * (c_y + e_y) + G2 * (c_z + e_z) + (U2 + G2) * c_x
    )
    at_most(a_x, right + 6 * alpha**2 / gap * c.b_f**2)
    right = contraction * c_y + 72 * steps["beta"] ** 2 * U2 / gap * (c_x + c_y + e_y)
    at_most(a_y, right + 6 * steps["beta"] ** 2 / gap * c.b_y2(lam))


@given(**minimax)
def test_potential_of_minimax_falls_from_any_point(world, seed, scale, lam, share):
    x, y, z = points(world, seed, scale)
    c = world.constants([x.mean(0)])
    t = theorem1(c, world.rho, lam)
    steps = {"beta": share * t.beta, "gamma": t.gamma}
    steps["alpha"] = 0.999 * min(t.alphas(**steps).values())
    d = c.d(world.rho, **steps, lam=lam)
    floor = bound(c, world.rho, **steps, lam=lam).floor
    now = world.potential(d, x, y, z, lam)
    after = world.potential(d, *world.step(x, y, z, **steps, lam=lam), lam)
    fall = -square(world.grad_phi(x.mean(0))) + floor
    assert after <= now + steps["alpha"] * fall + 1e-13 * (abs(now) + abs(after) + 1)


def assembly(c, rho, lam, alpha, beta, gamma, u_beta=None):
    """C_1 to C_6 of the proof over their leading terms, with D_1 to D_3 themselves, not their
    bounds p_i lam^2."""
    y2 = c.U_lam(lam) ** 2
    G2 = (c.L_g1 * lam) ** 2
    x2 = y2 + G2 if c.minimax else y2
    u = c.u_beta(lam) if u_beta is None else u_beta
    p_1 = (96 / u**2 + 48 * (c.L_g1 / c.w_gamma) ** 2 + 24) * c.L_g1**2
    p_2 = (96 / u**2 + 24) * c.L_g1**2
    y_term = 96 * y2 * c.U_over_w(lam) ** 2
    z_term = 48 * G2 * (c.L_g1 / c.w_gamma) ** 2
    gap = 1 - rho
    d_3, d_4, d_5 = (4 * p * alpha * lam**2 / gap for p in (p_1, p_2, c.p_3))
    X = 108 * alpha**2 * d_3 / gap
    Y = 72 * y2 * beta**2 * d_4 / gap
    Z = 24 * c.L_g1**2 * gamma**2 * d_5 / gap
    by_z = c.L_ystar * c.L_g1 * lam / (c.w_gamma * gamma)
    by_y = c.L_ystar_lam(lam) * c.U_over_w(lam) / beta
    return np.array(
        [
            0.5 - 24 * (by_z**2 + by_y**2) * alpha**2,
            (12 * y2 * alpha - y2 * X - Y) / (12 * y2 * alpha) if y2 else 1.0,
            (12 * G2 * alpha - G2 * X - Z) / (12 * G2 * alpha),
            (gap / 2 * d_3 - (y_term + z_term + 12 * x2) * alpha - x2 * X - Y - Z)
            / (gap / 2 * d_3),
            (gap / 2 * d_4 - (y_term + 12 * y2) * alpha - y2 * X - Y) / (gap / 2 * d_4),
            (gap / 2 * d_5 - (z_term + 12 * G2) * alpha - G2 * X - Z) / (gap / 2 * d_5),
        ]
    )


def drawn(rng, minimax, kappa=None):
    """Constants, rho, lam and shares of the bounds, with the corners kappa = 1, lam at its limit,
    rho = 0, share 1."""
    corner = lambda value, other: value if rng.random() < 0.3 else other
    L_g1 = kappa or corner(1.0, np.exp(rng.uniform(0, 7)))
    L_f1 = L_g1 if minimax else np.exp(rng.uniform(-7, 7))
    c = Constants(mu_g=1, L_f1=L_f1, L_g1=L_g1, L_g2=0, C_fy=1, b_f=1, b_g=1, minimax=minimax)
    above = np.exp(rng.uniform(-9, 7))
    lam = 1 + corner(0.0, above) if minimax else 2 * L_f1 * (1 + corner(1e-9, above))
    return (
        c,
        corner(0.0, rng.uniform(0, 0.999)),
        lam,
        [corner(1 - 1e-9, np.exp(rng.uniform(-9, 0))) for _ in "abc"],
    )


@pytest.mark.parametrize("minimax", [False, True])
def test_every_coefficient_of_the_assembly_is_nonnegative(minimax):
    """C_1 to C_6 >= 0 at any share of the bounds that `theorem1` has: errata 4, 5, 11, 12 and 13
    applied."""
    rng = np.random.default_rng(7)
    least = np.ones(6)
    for _ in range(2000):
        c, rho, lam, (one, two, three) = drawn(rng, minimax)
        t = theorem1(c, rho, lam)
        beta = two * min(t.betas.values())
        gamma = one * min(t.gammas.values())
        alpha = three * min(t.alphas(beta, gamma).values())
        least = np.minimum(least, assembly(c, rho, lam, alpha, beta, gamma))
    assert np.all(least >= 0)
    assert 0.02 <= least[0] < 0.03  # the conditions on alpha are used in full


def printed_steps(c, rho, lam, shares):
    """Shares of the printed bounds, with the printed u_beta = mu_g/(4 L_g1); errata 3 to 6
    applied."""
    u = c.mu_g / (4 * c.L_g1)
    p_1 = (96 / u**2 + 48 * (c.L_g1 / c.w_gamma) ** 2 + 24) * c.L_g1**2
    p_2 = (96 / u**2 + 24) * c.L_g1**2
    gap = 1 - rho
    ours = theorem1(c, rho, lam)
    gammas = dict(ours.gammas)
    gammas["(1-rho) sqrt p_1/(24 L_g1 sqrt p_3)"] = gap * (p_1 / c.p_3) ** 0.5 / (24 * c.L_g1)
    gamma = shares[0] * min(gammas.values())
    betas = list(ours.betas.values())[:2]
    betas += [
        gap / (10 * lam * p_2**0.5),
        gap * (p_1 / p_2) ** 0.5 / (48 * c.L_g1 * lam),
        gap / (32 * c.L_g1 * lam),
    ]
    beta = shares[1] * min(betas)
    alphas = [
        c.w_gamma * gamma / (10 * c.L_ystar * c.L_g1 * lam),
        c.mu_g**2 * beta / (160 * c.L_g1**2),
        gap / (12 * lam * p_1**0.5),
        gap * (c.p_3 / p_1) ** 0.5 / (32 * c.L_g1 * lam),
        gap / (54 * c.L_g1 * lam),
    ]
    return shares[2] * min(alphas), beta, gamma, u


@pytest.mark.parametrize("kappa", [1.0, 1.2, 1.5, 3.0])
def test_what_the_printed_u_beta_leaves_unproven(kappa):
    """Erratum 11: D_2 > p_2 lam^2 for every problem; near kappa = 1 the descent of V itself is
    unproven."""
    rng = np.random.default_rng(3)
    found = np.ones(6)
    for _ in range(1000):
        c, rho, lam, shares = drawn(rng, False, kappa)
        alpha, beta, gamma, u = printed_steps(c, rho, lam, shares)
        y2 = c.U_lam(lam) ** 2
        D_2 = 96 * y2 * c.U_over_w(lam) ** 2 + 12 * y2
        assert (96 / u**2 + 24) * c.L_g1**2 * lam**2 < D_2 <= c.p_2(lam) * lam**2 * (1 + 1e-12)
        found = np.minimum(found, assembly(c, rho, lam, alpha, beta, gamma, u))
    assert (found.min() < 0) == (kappa < 1.5)
    if kappa == 1:
        assert found[3:5] == pytest.approx([-0.086, -0.374], abs=0.01)


def test_printed_third_bound_on_alpha():
    """Erratum 12: it leaves C_1 < 0 at mu_g = L_g1, lam near 2 L_f1/mu_g; elsewhere it costs up to
    half of alpha."""
    c = Constants(mu_g=1, L_f1=1, L_g1=1, L_g2=0, C_fy=1, b_f=1, b_g=1)
    lam = 2.0001
    beta = 1e-3
    third = 24 * (c.U_lam(lam) * c.L_ystar_lam(lam) / (c.w_beta(lam) * beta)) ** 2
    printed = beta / 160
    ours = c.w_beta(lam) * beta / (10 * c.L_ystar_lam(lam) * c.U_lam(lam))
    second = 24 / 100  # its own condition at equality
    assert 0.5 - second - third * printed**2 == pytest.approx(-0.04, abs=1e-3)
    assert 0.5 - second - third * ours**2 == pytest.approx(0.02)
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(1000):
        c, rho, lam, _ = drawn(rng, False)
        t = theorem1(c, rho, lam)
        gains.append(t.alpha / min(t.alpha, c.mu_g**2 * t.beta / (160 * c.L_g1**2)))
    assert min(gains) == 1
    assert 1.9 < max(gains) < 2


def test_minimax_near_lam_one():
    """Erratum 13: one agent, f = -y^2/2, g = y^2/2. Lemma 5 with mu_lam = lam mu_g/2 fails for lam
    = 1.1."""
    lam = 1.1
    c = Constants(mu_g=1, L_f1=1, L_g1=1, L_g2=0, C_fy=1, b_f=0, b_g=0)
    beta = 1 / (lam * c.L_g1)
    contraction = (1 - beta * (lam - 1)) ** 2  # of |y - y*|^2 in one step
    printed = c.w_beta(lam)
    ours = replace(c, minimax=True).w_beta(lam)
    assert contraction > 1 - 2 * printed * beta
    assert contraction <= 1 - 2 * ours * beta


@pytest.mark.parametrize("kappa", [1.0, 2.0, 50.0])
def test_minimax_rule_has_no_jump_at_lam_one(kappa):
    c = Constants(mu_g=1, L_f1=kappa, L_g1=kappa, L_g2=0, C_fy=1, b_f=1, b_g=1, minimax=True)
    at_one = theorem1(c, 0.4, 1.0)
    near = theorem1(c, 0.4, 1.0001)
    for step in ("alpha", "beta", "gamma"):
        assert getattr(near, step) == pytest.approx(getattr(at_one, step), rel=3e-3)
    steps = {"alpha": at_one.alpha, "beta": at_one.beta, "gamma": at_one.gamma}
    assert bound(c, 0.4, **steps, lam=1.0001).floor == pytest.approx(
        bound(c, 0.4, **steps, lam=1.0).floor, rel=1e-3
    )
    assert at_one.admits(**steps)
    assert c.d(0.4, **steps, lam=1.0).d_1 == 0


def test_corollaries_need_phi_bounded_below():
    """Erratum 14: f = x, g = y^2/2 meets Assumptions 1 to 4, and |grad Phi| = 1 for ever whatever K
    is."""
    c = Constants(mu_g=1, L_f1=0, L_g1=1, L_g2=0, C_fy=0, b_f=0, b_g=0)
    for K in (10, 1000, 100_000):
        rule = corollary1(c, 0.0, K)
        assert rule.admitted
        fall = 2 * K * rule.alpha  # V = 2 x, and x falls by alpha in each step
        # no smaller for larger K
        assert bound(c, 0.0, **rule.settings, fall=fall, K=K).total == pytest.approx(2)


@pytest.mark.parametrize("kind", ["path", "ring"])
def test_erratum_15_ahead_descends_the_penalised_problem_with_halved_sums(kind):
    """A step of AHEAD is descent in x and y, ascent in z on (EQ-P-penalty) times m with 1/(4 alpha),
    1/(4 beta) and lam/(4 gamma) before the double sums. As printed, with 1/2, the consensus part is
    twice as large in every entry, so that the step has 2 W - I in place of W."""
    problem = decibo.problems.quadratic(4, 2, 3, seed=1, bend=0.3)
    network = {"path": decibo.networks.path, "ring": decibo.ring}[kind](4)
    W, lam = jnp.asarray(network.W), 3.0
    steps = {"alpha": 0.02, "beta": 0.05, "gamma": 0.1}
    rng = np.random.default_rng(0)
    now = {v: jnp.asarray(rng.normal(size=(4, size))) for v, size in (("x", 2), ("y", 3), ("z", 3))}

    def consensus(s):  # the double sum: every link is in it twice
        return jnp.sum(W * jnp.sum((s[:, None] - s[None]) ** 2, axis=2))

    def objectives(s):
        f, g = jax.vmap(problem.outer), jax.vmap(problem.inner)
        data = problem.data
        above = g(s["x"], s["y"], data) - g(s["x"], s["z"], data)
        return jnp.sum(f(s["x"], s["y"], data) + lam * above)

    def penalised(s, share):
        x, y, z = (consensus(s[v]) / h for v, h in zip("xyz", steps.values(), strict=True))
        return objectives(s) + share * (x + y - lam * z)

    def moved(share):
        slopes = jax.grad(penalised)(now, share)
        signed = {"x": -steps["alpha"], "y": -steps["beta"], "z": steps["gamma"] / lam}
        return {v: now[v] + h * slopes[v] for v, h in signed.items()}

    rows = [(v, lambda s, v=v: s.rows[v]) for v in "xyz"]
    method = decibo.ahead(**steps, lam=lam)
    run = decibo.solve(problem, network, method, steps=1, every=1, measures=rows, start=now)
    for v, after in moved(1 / 4).items():
        np.testing.assert_allclose(run.history[v][-1], after, rtol=1e-12, atol=1e-12)
    direction = {v: moved(0.0)[v] - now[v] for v in "xyz"}  # without the consensus part
    for v, after in moved(1 / 2).items():
        printed = (2 * W - jnp.eye(4)) @ now[v] + direction[v]
        np.testing.assert_allclose(after, printed, rtol=1e-12, atol=1e-12)
        assert np.abs(run.history[v][-1] - after).max() > 0.05
