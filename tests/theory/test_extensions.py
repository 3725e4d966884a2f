"""The extensions of Theorem B: noise, changing steps, and agents that are not convex; numbered as
on the page."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import decibo
from decibo.theory import ahead_exact_steps
from helpers.bent import Bent, Enorm, directions, errors, norm, random_state, references, step

NAMES = ("f_x", "f_y", "g_x", "g_y", "g_yy", "g_xy")
seeds = st.integers(0, 10**6)
lams = st.floats(-0.5, 3).map(lambda power: 10**power)
networks = st.sampled_from(
    [
        decibo.networks.path(1),
        decibo.networks.path(2),
        decibo.networks.path(3),
        decibo.ring(3),
        decibo.ring(4),
    ]
)


def at_most(left, right, rounding=1e-11):
    assert left <= right * (1 + 1e-11) + rounding


class Sampled(Bent):
    """Agents whose objectives are means over samples, each of them an objective of `Bent`."""

    def __init__(self, seed, m, samples, **options):
        super().__init__(seed, m=m * samples, **options)
        self.m, self.samples = m, samples

    def each(self, name, x, y):
        """A derivative of every sample, (agents, samples, ...)."""
        rows = getattr(Bent, name)(
            self, np.repeat(x, self.samples, axis=0), np.repeat(y, self.samples, axis=0)
        )
        return rows.reshape(self.m, self.samples, *rows.shape[1:])

    def f(self, x, y):
        return self.each("f", x, y).mean(1)

    def f_x(self, x, y):
        return self.each("f_x", x, y).mean(1)

    def f_y(self, x, y):
        return self.each("f_y", x, y).mean(1)

    def g_x(self, x, y):
        return self.each("g_x", x, y).mean(1)

    def g_y(self, x, y):
        return self.each("g_y", x, y).mean(1)

    def g_yy(self, x, y):
        return self.each("g_yy", x, y).mean(1)

    def g_xy(self, x, y):
        return self.each("g_xy", x, y).mean(1)

    def constants(self, **finer):
        """Those of every sample, hence of the means too."""
        self.m *= self.samples
        c = super().constants(**finer)
        self.m //= self.samples
        return c

    def drawn(self, choice):
        """The derivatives on one sample for each agent."""
        pick = lambda name: lambda x, y: self.each(name, x, y)[np.arange(self.m), choice]
        return SimpleNamespace(**{name: pick(name) for name in NAMES})

    def choices(self):
        return [
            np.array(choice) for choice in itertools.product(range(self.samples), repeat=self.m)
        ]


def spread(rows):
    """sqrt of the mean over agents of the variance over samples, rows (agents, samples, ...)."""
    return math.sqrt(np.mean(np.sum((rows - rows.mean(1, keepdims=True)) ** 2, axis=-1)))


def noise(world, s, lam):
    """s_c, s_w and s_x at a state: every agent's directions on each of its samples."""
    rows = [directions(world.drawn(np.full(world.m, k)), *s, lam) for k in range(world.samples)]
    d_x, d_y, d_z = (np.stack(part, axis=1) for part in zip(*rows, strict=True))
    return spread((d_y + d_z) / 2), spread(lam * (d_y - d_z) / 2), spread(d_x)


@given(seeds, st.integers(1, 3), lams, st.floats(0.1, 10))
def test_proposition_f_common_samples(seed, m, lam, size):
    """The variance on common samples is bounded by that of SOBA's directions, whatever lam is;
    others grow with lam."""
    world = Sampled(seed, m, 4, beta=0.2)
    rng = np.random.default_rng(seed)
    x, c, w = rng.normal(size=(m, 3)), rng.normal(size=(m, 3)), size * rng.normal(size=(m, 3))
    y, z = c + w / lam, c - w / lam
    s_c, s_w, s_x = noise(world, [x, y, z], lam)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    along = lambda name: sum(
        k / 2 * spread(np.einsum("isjk,ik->isj", world.each(name, x, c + t * w / lam), w))
        for t, k in zip(nodes, weights, strict=True)
    )
    rounding = 1e-11 * (1 + lam)
    at_most(s_c, (spread(world.each("g_y", x, y)) + spread(world.each("g_y", x, z))) / 2, rounding)
    at_most(s_w, along("g_yy") + spread(world.each("f_y", x, c)), rounding)
    at_most(s_x, along("g_xy") + spread(world.each("f_x", x, c)), rounding)
    gap = spread(world.each("f_x", x, c)) ** 2
    apart = (
        lam**2 / 4 * (spread(world.each("g_x", x, y)) ** 2 + spread(world.each("g_x", x, z)) ** 2)
    )
    f_x, of_y, of_z = world.each("f_x", x, c), world.each("g_x", x, y), world.each("g_x", x, z)
    triples = itertools.product(range(4), repeat=3)
    independent = np.stack(
        [f_x[:, i] + lam / 2 * (of_y[:, j] - of_z[:, k]) for i, j, k in triples], axis=1
    )
    assert spread(independent) ** 2 == pytest.approx(gap + apart)


state = {
    "seed": seeds,
    "network": networks,
    "lam": lams,
    "share": st.sampled_from([0.05, 0.5, 0.95]),
    "power": st.floats(-8, 0),
    "size": st.floats(-9, 0.5).map(lambda k: 10**k),
    "near": st.booleans(),
    "falls": st.tuples(st.sampled_from([1.0, 0.9, 0.3]), st.sampled_from([1.0, 0.9, 0.3])),
}


@given(**state)
@example(1, decibo.ring(4), 1000.0, 0.5, -6.0, 1e-8, True, (1.0, 1.0))  # nothing but noise
def test_lemma_7_one_step_with_noise_and_falling_steps(
    seed, network, lam, share, power, size, near, falls
):
    """(N1) to (N4), the expectation over every choice of samples."""
    m = network.agents
    world = Sampled(seed, m, 2, beta=0.2, spread=0.5)
    c = world.constants()
    steps = ahead_exact_steps(c, network, gamma=share * 2 / c.L_yy, alpha=10**power / c.L_Phi)
    alpha, gamma, sigma, chi = steps.alpha, steps.gamma, steps.sigma, steps.chi
    later = alpha * falls[0], gamma * falls[1]
    s, C = random_state(world, c, lam, alpha, gamma, seed, size, near)
    E = Enorm(network.W)
    now = errors(world, E, s, C, lam, alpha, gamma)
    then = []
    for choice in world.choices():
        after = step(world.drawn(choice), network.W, s, C, lam, (alpha, gamma, gamma))
        then.append(errors(world, E, *after, lam, *later, now["y"]))
    mean = lambda name, power: np.mean([each[name] ** power for each in then])
    s_c, s_w, s_x = noise(world, s, lam)
    middle = s[0].mean(0) - alpha * directions(world, *s, lam)[0].mean(0)
    b_c, b_w, b_x = (
        norm(part) / math.sqrt(m) for part in references(world, middle, *world.solve(middle)[:2])
    )
    s_bar = s_x / math.sqrt(m)
    e_c, e_w, e_x, d = (now[name] for name in "cwxd")
    eps_c = c.L_g2 * now["R"] ** 2 / (2 * lam**2)
    eps_w = c.L_g3 * c.V * now["R"] ** 2 / (6 * lam**2)
    e = c.M_x * (e_x + e_c) + c.L_xy * e_w + eps_w
    fallen = [old - new for old, new in zip((alpha, gamma), later, strict=True)]
    rounding = 1e-11 * (1 + lam * norm(s[1])) ** 2
    X = steps.q * e_c + gamma * (c.L_xy * e_x + eps_c) + alpha * steps.Lambda_c * d
    beta = alpha * steps.Lambda_c * s_bar + chi * fallen[1] * b_c
    # (N1)
    at_most(
        mean("c", 2),
        (X + beta) ** 2 + (gamma * s_c + alpha * steps.Lambda_c * s_bar) ** 2,
        rounding,
    )
    X = steps.q * e_w + gamma * (c.M_y * (e_x + e_c) + eps_w) + alpha * steps.Lambda_w * d
    beta = alpha * steps.Lambda_w * s_bar + chi * fallen[1] * b_w
    # (N2)
    at_most(
        mean("w", 2),
        (X + beta) ** 2 + (gamma * s_w + alpha * steps.Lambda_w * s_bar) ** 2,
        rounding,
    )
    X = sigma * (e_x + alpha * e) + alpha**2 * chi * c.L_D * d
    beta = alpha**2 * chi * c.L_D * s_bar + chi * fallen[0] * b_x
    right = (X + beta) ** 2 + (sigma * alpha * s_x + alpha**2 * chi * c.L_D * s_bar) ** 2
    at_most(mean("x", 2), right * (1 + 1e-6), 1e-26 * (1 + alpha * lam) ** 2)  # (N3)
    fall = (alpha / 2) * (now["gradient"] ** 2 + (1 - alpha * c.L_Phi) * d**2 - e**2)
    at_most(mean("phi", 1), now["phi"] - fall + c.L_Phi * alpha**2 * s_bar**2 / 2, rounding)  # (N4)


@pytest.mark.slow
@given(seeds, st.floats(-3, 0), st.sampled_from([0.01, 1.0]))
def test_lemma_7_where_the_derivative_of_y_star_is_lipschitz(seed, power, size):
    """One agent: the mean of what the noise of x does to y* is of second order in alpha."""
    world = Sampled(seed, 1, 4, beta=0.2)
    c = world.constants()
    # the mean over 4 samples
    a, b = norm(world.a.reshape(-1, 3), 2) / 2, norm(world.b.reshape(-1, 3), 2) / 2
    network = decibo.networks.path(1)
    steps = ahead_exact_steps(c, network, gamma=0.5 / c.L_yy, alpha=10**power / c.L_Phi)
    s, C = random_state(world, c, 30.0, steps.alpha, steps.gamma, seed, size, True)
    now = errors(world, Enorm(network.W), s, C, 30.0, steps.alpha, steps.gamma)
    then = []
    for choice in world.choices():
        after = step(
            world.drawn(choice), network.W, s, C, 30.0, (steps.alpha, steps.gamma, steps.gamma)
        )
        then.append(
            errors(world, Enorm(network.W), *after, 30.0, steps.alpha, steps.gamma)["c"] ** 2
        )
    s_c, _, s_x = noise(world, s, 30.0)
    # Lipschitz constant of the derivative of y*
    bent = world.beta * c.s * (a * b + a**2 * c.L_ystar) / c.mu_g
    X = (
        steps.q * now["c"]
        + steps.gamma * c.L_g2 * now["R"] ** 2 / (2 * 30.0**2)
        + steps.alpha * c.L_ystar * now["d"]
    )
    beta = bent * (steps.alpha * s_x) ** 2 / 2
    at_most(
        np.mean(then), (X + beta) ** 2 + (steps.gamma * s_c + steps.alpha * c.L_ystar * s_x) ** 2
    )


@pytest.mark.slow
@given(seeds, networks, lams, st.sampled_from([0.9, 0.3]), st.sampled_from([0.9, 0.3]))
def test_memories_that_are_scaled_with_the_steps_need_no_more(seed, network, lam, less, lesser):
    """C times h+/h after a step: (I1) to (I3) with the references of the new steps, from the
    references themselves."""
    world = Bent(seed, m=network.agents, beta=0.2)
    c = world.constants()
    steps = ahead_exact_steps(c, network, gamma=0.5 / c.L_yy, alpha=1e-6 / c.L_Phi)
    alpha, gamma = steps.alpha, steps.gamma
    s, C = random_state(world, c, lam, alpha, gamma, seed, 1e-8, near=True)
    E = Enorm(network.W)
    now = errors(world, E, s, C, lam, alpha, gamma)
    s, C = step(world, network.W, s, C, lam, (alpha, gamma, gamma))
    then = errors(
        world, E, s, [C[0] * less, C[1] * lesser, C[2] * lesser], lam, alpha * less, gamma * lesser
    )
    eps_c = c.L_g2 * now["R"] ** 2 / (2 * lam**2)
    eps_w = c.L_g3 * c.V * now["R"] ** 2 / (6 * lam**2)
    e = c.M_x * (now["x"] + now["c"]) + c.L_xy * now["w"] + eps_w
    d, rounding = now["d"], 1e-13 * (1 + lam)
    at_most(
        then["c"],
        steps.q * now["c"] + gamma * (c.L_xy * now["x"] + eps_c) + alpha * steps.Lambda_c * d,
        rounding,
    )
    by_w = gamma * (c.M_y * (now["x"] + now["c"]) + eps_w)
    at_most(then["w"], steps.q * now["w"] + by_w + alpha * steps.Lambda_w * d, rounding)
    at_most(
        then["x"], steps.sigma * (now["x"] + alpha * e) + alpha**2 * steps.chi * c.L_D * d, 1e-13
    )


@given(seeds, st.floats(0, 1), st.floats(0, 1))
def test_lemma_8_weighted_sums(seed, a, b):
    """The recursion of Lemma 8 with falling steps, at equality."""
    rng = np.random.default_rng(seed)
    K = 40
    k = 1 + np.arange(K)
    p = rng.uniform(0.01, 1) * k ** -min(a, b)
    weight = rng.uniform(0.01, 1) * k ** -max(a, b)  # weight/p does not grow
    v = rng.exponential(size=K) * (rng.random(K) < 0.5)
    noise = rng.exponential(size=K) * (rng.random(K) < 0.5)
    A = [rng.exponential()]
    for each in range(K - 1):
        A.append(math.sqrt(((1 - p[each]) * A[-1] + v[each]) ** 2 + noise[each] ** 2))
    total = lambda values: math.sqrt(np.sum(weight * values**2))
    right = math.sqrt(weight[0] / p[0]) * A[0] + total(v / p + noise / np.sqrt(p))
    at_most(total(np.array(A)), right)


def noisy_path(world, network, alphas, gammas, lam, choices):
    """The errors, the largest noise and the heterogeneity along one run."""
    s = [np.zeros((world.m, 3))] * 3
    C = list(s)
    E = Enorm(network.W)
    seen = []
    for k, choice in enumerate(choices):
        now = errors(world, E, s, C, lam, alphas[k], gammas[k], seen[-1]["y"] if seen else None)
        x = s[0].mean(0)
        rest = references(world, x, *world.solve(x, now["y"])[:2])
        seen.append(
            now
            | {
                "noise": noise(world, s, lam),
                "b": [norm(part) / math.sqrt(world.m) for part in rest],
            }
        )
        h = (alphas[k], gammas[k], gammas[k])
        s, C = step(world.drawn(choice), network.W, s, C, lam, h)
    return seen


def noise_terms(first, alphas, gammas, s, b):
    """The three terms of Z-bar, and the noise of (N4) over alpha_k, with nothing assumed of the
    derivatives of y* and w*; (8) of the page."""
    c, sigma, chi, m = first.constants, first.sigma, first.chi, first.agents
    s_c, s_w, s_x = s
    s_bar = s_x / math.sqrt(m)
    later = np.append(alphas[1:], alphas[-1]), np.append(gammas[1:], gammas[-1])
    p = 1 - np.maximum(1 - gammas * c.mu_g, sigma)
    of = lambda beta, own, noise, gain: gain * ((beta + own) / p + (noise + beta) / np.sqrt(p))
    in_c = of(
        alphas * first.Lambda_c * s_bar, chi * (gammas - later[1]) * b[0], gammas * s_c, first.L_G
    )
    in_w = of(
        alphas * first.Lambda_w * s_bar, chi * (gammas - later[1]) * b[1], gammas * s_w, c.L_xy
    )
    beta = alphas**2 * chi * c.L_D * s_bar
    gap = 1 - sigma
    in_x = first.N * (
        (beta + chi * (alphas - later[0]) * b[2]) / gap
        + (sigma * alphas * s_x + beta) / math.sqrt(gap)
    )
    return (in_c, in_w, in_x), c.L_Phi * alphas * s_bar**2


CASES = [
    ("path", 1, (0.6, 0.4)),
    ("path", 3, (0.6, 0.4)),
    ("ring", 4, (0.0, 0.0)),
    ("ring", 4, (0.5, 0.5)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "m", "power"), CASES)
def test_theorem_g_along_runs(kind, m, power):
    """The mean over runs of the weighted mean of |grad Phi|^2 against the bound; the noise is
    measured."""
    network = {"path": decibo.networks.path, "ring": decibo.ring}[kind](m)
    world = Sampled(3, m, 3, cond=1.5, beta=0.05, coupling=0.3, spread=0.5)
    first = ahead_exact_steps(world.constants(), network)
    K, lam = 30, 30.0
    k = 1.0 + np.arange(K)
    alphas, gammas = first.alpha * k ** -power[0], first.gamma * k ** -power[1]
    rng = np.random.default_rng(0)
    runs = [
        noisy_path(world, network, alphas, gammas, lam, rng.integers(0, 3, (K, m)))
        for _ in range(4)
    ]
    of = lambda name: np.array([[now[name] for now in run] for run in runs])
    s, b = of("noise").max((0, 1)), of("b").max((0, 1))
    A = alphas.sum()
    Z, last = noise_terms(first, alphas, gammas, s, b)
    c = first.constants
    start = runs[0][0]
    p = 1 - first.q
    I_0 = first.N * start["x"] / math.sqrt(1 - first.sigma) + (
        first.L_G * start["c"] + c.L_xy * start["w"]
    ) / math.sqrt(p)
    F = first.F(lam, of("R").max())
    # three norms added, (12): that of the sum would be smaller where steps fall
    Z_bar = sum(math.sqrt(np.sum(alphas * z**2) / A) for z in Z)
    inside = math.sqrt(alphas[0] / A) * I_0 + F + Z_bar
    bound = (
        2 * (start["phi"] - world.phi_inf) / A + first.zeta * inside**2 + np.sum(alphas * last) / A
    )
    mean = np.mean(np.sum(alphas * of("gradient") ** 2, axis=1) / A)
    assert mean <= bound
    # something moves
    assert np.mean(of("gradient")[:, -5:] ** 2) < np.mean(of("gradient")[:, 0] ** 2)


class Indefinite(Bent):
    """Agents whose g_i are not convex in y, with a mean that is strongly convex."""

    def __init__(self, seed, m, tilt, **options):
        super().__init__(seed, m=m, **options)
        signs = np.where(np.arange(m) < m // 2, -1.0, 1.0)
        self.H = self.H + tilt * (signs - signs.mean())[:, None, None] * np.eye(self.dim)

    def constants(self, R=0.0):
        """mu_g of the mean, M_y for |w| <= R, and the others of every agent."""
        each, H = self.H, self.H.mean(0)
        self.H = np.broadcast_to(H, each.shape)
        c = super().constants()  # only mu_g and L_yy depend on H_i themselves
        self.H = each
        a = [norm(rows, 2) for rows in self.a]
        return replace(
            c,
            mu_g=np.linalg.eigvalsh(H)[0] - self.beta * np.mean(np.square(a)),
            L_yy=max(norm(each[i], 2) + self.beta * a[i] ** 2 for i in range(self.m)),
            M_y=c.M_y * max(1.0, R / c.V),
        )


def split(E, S, C):
    """The mean, and the rest in the E-norm."""
    return norm(S.mean(0)), E(S - S.mean(0), C)


def inner_errors(world, E, s, C, lam, gamma):
    """(m, v) of c and of w."""
    x, y, z = s
    ystar, wstar = world.solve(x.mean(0))[:2]
    rest_c, rest_w, _ = references(world, x.mean(0), ystar, wstar)
    in_c = split(E, (y + z) / 2 - ystar, (C[1] + C[2]) / 2 - gamma * rest_c)
    return in_c, split(E, lam * (y - z) / 2 - wstar, lam * (C[1] - C[2]) / 2 - gamma * rest_w)


tilted = {
    "m": st.sampled_from([2, 3, 4]),
    "tilt": st.sampled_from([2.5, 4.0]),
    "beta": st.sampled_from([0.0, 0.1]),
}


@given(
    **tilted,
    seed=seeds,
    lam=lams,
    share=st.sampled_from([0.05, 0.9]),
    size=st.sampled_from([0.01, 1.0]),
)
def test_lemma_9_only_the_mean_is_convex(m, tilt, beta, seed, lam, share, size):
    world = Indefinite(seed, m, tilt, beta=beta)
    assert np.linalg.eigvalsh(world.H)[:, 0].min() < 0
    c = world.constants()
    network = decibo.networks.path(m)
    gamma = share * 2 / (c.mu_g + c.L_yy)
    steps = ahead_exact_steps(c, network, gamma=gamma, alpha=0.1 / c.L_Phi)
    alpha, sigma, chi = steps.alpha, steps.sigma, steps.chi
    s, C = random_state(world, c, lam, alpha, gamma, seed, size, near=True)
    w = lam * (s[1] - s[2]) / 2
    R = norm(w, axis=1).max()
    c = world.constants(R)
    E = Enorm(network.W)
    now = errors(world, E, s, C, lam, alpha, gamma)
    (m_c, v_c), (m_w, v_w) = inner_errors(world, E, s, C, lam, gamma)
    (n_c, u_c), (n_w, u_w) = inner_errors(
        world, E, *step(world, network.W, s, C, lam, (alpha, gamma, gamma)), lam, gamma
    )
    d, L = now["d"], c.L_yy
    i_c = c.L_xy * now["x"] + c.L_g2 * R**2 / (2 * lam**2)
    i_w = c.M_y * (now["x"] + now["c"]) + c.L_g3 * R**3 / (6 * lam**2)
    rounding = 1e-11 * (1 + lam * norm(s[1]))
    for (mean, rest), (m_k, v_k), i, of_mean, of_rest in (
        ((n_c, u_c), (m_c, v_c), i_c, c.L_ystar, c.L_xy + L * c.L_ystar),
        ((n_w, u_w), (m_w, v_w), i_w, c.L_wstar, c.M_y * c.s + L * c.L_wstar),
    ):
        at_most(
            mean, (1 - gamma * c.mu_g) * m_k + gamma * (L * v_k + i) + alpha * of_mean * d, rounding
        )
        at_most(
            rest,
            sigma * ((1 + gamma * L) * v_k + gamma * (L * m_k + i))
            + alpha * chi * gamma * of_rest * d,
            rounding,
        )


@given(seeds, st.floats(0.01, 0.999), st.floats(1, 100), st.floats(0.01, 1))
def test_lemma_10_sums_of_two_coupled_recursions(seed, sigma, kappa, share):
    """S_a <= 2 m_0' + 3 kappa v_0' + (3/mu) S_i + ... for the recursions of Lemma 9 at equality; mu
    = 1."""
    rng = np.random.default_rng(seed)
    L = kappa
    gamma = share * min(2 / (1 + L), (1 - sigma) / (4 * sigma * L**2))
    i, d = (rng.exponential(size=60) * (rng.random(60) < 0.5) for _ in "id")
    of_mean, of_rest = rng.exponential(size=2)  # alpha L_y, alpha chi (ell + L L_y)
    m, v = [rng.exponential()], [rng.exponential()]
    for k in range(59):
        both = m[-1], v[-1]
        m.append((1 - gamma) * both[0] + gamma * (L * both[1] + i[k]) + of_mean * d[k])
        v.append(
            sigma * ((1 + gamma * L) * both[1] + gamma * (L * both[0] + i[k]))
            + gamma * of_rest * d[k]
        )
    start = 2 * m[0] / math.sqrt(gamma) + 3 * kappa * v[0] / math.sqrt(0.75 * (1 - sigma))
    moved = 2 / gamma * (of_mean + 2 * gamma**2 * L * of_rest / (1 - sigma))
    at_most(norm(np.hypot(m, v)), start + 3 * norm(i) + moved * norm(d))


@given(**state)
@example(1, decibo.ring(4), 1000.0, 0.5, -6.0, 1e-8, True, (1.0, 1.0))  # nothing but noise
def test_lemma_11_noise_of_the_mean_and_of_the_rest(
    seed, network, lam, share, power, size, near, falls
):
    """(N5) and (N6): the mean has the noise over sqrt(m); the rest forgets it at the speed of the
    network."""
    m = network.agents
    world = Sampled(seed, m, 2, beta=0.2, spread=0.5)
    c = world.constants()
    gamma = share * 2 / (c.mu_g + c.L_yy)
    steps = ahead_exact_steps(c, network, gamma=gamma, alpha=10**power / c.L_Phi)
    alpha, sigma, chi, L = steps.alpha, steps.sigma, steps.chi, c.L_yy
    later = gamma * falls[1]
    s, C = random_state(world, c, lam, alpha, gamma, seed, size, near)
    E = Enorm(network.W)
    now = errors(world, E, s, C, lam, alpha, gamma)
    before = inner_errors(world, E, s, C, lam, gamma)
    after = []
    for choice in world.choices():
        new = step(world.drawn(choice), network.W, s, C, lam, (alpha, gamma, gamma))
        after.append(inner_errors(world, E, *new, lam, later))
    after = np.mean(np.square(after), axis=0)  # over choices: (c, w) times (mean, rest)
    s_c, s_w, s_x = noise(world, s, lam)
    middle = s[0].mean(0) - alpha * directions(world, *s, lam)[0].mean(0)
    b_c, b_w, _ = (
        norm(part) / math.sqrt(m) for part in references(world, middle, *world.solve(middle)[:2])
    )
    s_bar, d = s_x / math.sqrt(m), now["d"]
    i_c = c.L_xy * now["x"] + c.L_g2 * now["R"] ** 2 / (2 * lam**2)
    i_w = c.M_y * (now["x"] + now["c"]) + c.L_g3 * c.V * now["R"] ** 2 / (6 * lam**2)
    rounding = 1e-12 * (1 + lam * norm(s[1])) ** 2
    for (m_k, v_k), (mean, rest), i, own, of_rest, noisy, b in (
        (before[0], after[0], i_c, c.L_ystar, c.L_xy + L * c.L_ystar, s_c, b_c),
        (before[1], after[1], i_w, c.L_wstar, c.M_y * c.s + L * c.L_wstar, s_w, b_w),
    ):
        X = (1 - gamma * c.mu_g) * m_k + gamma * (L * v_k + i) + alpha * own * (d + s_bar)
        # (N5)
        at_most(mean, X**2 + (gamma * noisy / math.sqrt(m) + alpha * own * s_bar) ** 2, rounding)
        X = sigma * (
            (1 + gamma * L) * v_k + gamma * (L * m_k + i)
        ) + alpha * chi * gamma * of_rest * (d + s_bar)
        X += chi * (gamma - later) * b
        # (N6)
        at_most(
            rest,
            X**2 + (sigma * gamma * noisy + alpha * chi * gamma * of_rest * s_bar) ** 2,
            rounding,
        )


@given(seeds, st.floats(0.01, 0.999), st.floats(1, 100), st.floats(0, 1), st.floats(0, 1))
def test_lemma_12_sums_with_noise_and_falling_steps(seed, sigma, kappa, a, b):
    """Lemma 10 with weights, at equality; mu = 1."""
    rng = np.random.default_rng(seed)
    K, L = 60, kappa
    k = 1.0 + np.arange(K)
    gamma = (
        rng.uniform(0.01, 1) * min(2 / (1 + L), (1 - sigma) / (4 * sigma * L**2)) * k ** -min(a, b)
    )
    alpha = rng.exponential() * k ** -max(a, b)
    some = lambda: rng.exponential(size=K) * (rng.random(K) < 0.5)
    i, d, noise_m, noise_v, beta_m, beta_v = (some() * gamma**h for h in (0, 0, 1, 1, 1, 1))
    of_mean, of_rest = rng.exponential(size=2)
    m, v = [rng.exponential()], [rng.exponential()]
    for j in range(K - 1):
        inner, g = (m[-1], v[-1]), gamma[j]
        X = (1 - g) * inner[0] + g * (L * inner[1] + i[j]) + alpha[j] * of_mean * d[j] + beta_m[j]
        Y = (
            sigma * ((1 + g * L) * inner[1] + g * (L * inner[0] + i[j]))
            + alpha[j] * g * of_rest * d[j]
            + beta_v[j]
        )
        m.append(math.hypot(X, noise_m[j]))
        v.append(math.hypot(Y, noise_v[j]))
    total = lambda values: math.sqrt(np.sum(alpha * values**2))
    p = 0.75 * (1 - sigma)
    mean = (
        math.sqrt(alpha[0] / gamma[0]) * m[0]
        + total(beta_m / gamma)
        + total(noise_m / np.sqrt(gamma))
    )
    rest = math.sqrt(alpha[0] / p) * v[0] + total(beta_v) / p + total(noise_v) / math.sqrt(p)
    moved = 2 * alpha[0] / gamma[0] * (of_mean + 2 * gamma[0] ** 2 * L * of_rest / (1 - sigma))
    at_most(total(np.hypot(m, v)), 2 * mean + 3 * kappa * rest + 3 * total(i) + moved * total(d))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "m"), [("path", 3), ("ring", 4)])
def test_theorem_h_along_runs(kind, m):
    """A run with the steps of Theorem H, R measured: the bound holds, and |grad Phi| falls."""
    network = {"path": decibo.networks.path, "ring": decibo.ring}[kind](m)
    world = Indefinite(
        1, m, 1.5, cond=1.2, beta=0.02, coupling=0.2, spread=0.3, w1=0.1, w2=0.05, rho=1.0
    )
    assert np.linalg.eigvalsh(world.H)[:, 0].min() < -0.2
    R, lam, K = 2.0, 30.0, 300
    c = world.constants(R)
    gamma, alpha, parts = theorem_h_steps(c, network)
    s = [np.ones((m, 3))] * 3
    C = [0 * v for v in s]
    E = Enorm(network.W)
    (m_c, v_c), (m_w, v_w) = inner_errors(world, E, s, C, lam, gamma)
    seen = []
    for _ in range(K):
        seen.append(errors(world, E, s, C, lam, alpha, gamma, seen[-1]["y"] if seen else None))
        assert norm(lam * (s[1] - s[2]) / 2, axis=1).max() <= R
        s, C = step(world, network.W, s, C, lam, (alpha, gamma, gamma))
    gradients = np.array([now["gradient"] for now in seen])
    start = lambda m_0, v_0: (
        2 * m_0 / math.sqrt(gamma * c.mu_g)
        + 3 * c.L_yy / c.mu_g * v_0 / math.sqrt(0.75 * parts["gap"])
    )
    I_0 = parts["N"] * seen[0]["x"] / math.sqrt(1 - parts["sigma"] ** 2)
    I_0 += parts["L_G"] * start(m_c, v_c) + c.L_xy * start(m_w, v_w)
    eps_c, eps_w, eps_x = (
        k / lam**2 for k in (c.L_g2 * R**2 / 2, c.L_g3 * R**3 / 6, c.L_g3 * c.V * R**2 / 6)
    )
    F = 3 / c.mu_g * (parts["L_G"] * eps_c + c.L_xy * eps_w) + eps_x
    bound = (
        2 * (seen[0]["phi"] - world.phi_inf) / (alpha * K)
        + parts["zeta"] * (I_0 / math.sqrt(K) + F) ** 2
    )
    assert np.mean(gradients**2) <= bound
    assert gradients[-1] < gradients[0]


def theorem_h_steps(c, network):
    """The largest gamma of (C) and the alpha of Theorem B's rule with the constants of Theorem
    H."""
    first = ahead_exact_steps(c, network, gamma=1e-3, alpha=1e-3)
    sigma, chi, L, gap = first.sigma, first.chi, c.L_yy, 1 - first.sigma
    gamma = min(2 / (c.mu_g + L), c.mu_g * gap / (4 * sigma * L**2))
    L_G = c.M_x + 3 * c.L_xy * c.M_y / c.mu_g
    N = L_G * (1 + 3 * c.L_xy / c.mu_g)
    moved = lambda own, rest: 2 / (gamma * c.mu_g) * (own + 2 * gamma**2 * L * chi * rest / gap)
    G1 = L_G * moved(c.L_ystar, c.L_xy + L * c.L_ystar) + c.L_xy * moved(
        c.L_wstar, c.M_y * c.s + L * c.L_wstar
    )
    G2 = N * chi * c.L_D / gap
    alpha = min(1 / (c.L_Phi + 2 * G1 + math.sqrt(2 * G2)), gap / (4 * sigma * N))
    nu = alpha * N * sigma / gap
    xi = (alpha * G1 + alpha**2 * G2) / (1 - nu)
    room = 1 - alpha * c.L_Phi
    zeta = room / ((room - xi**2) * (1 - nu) ** 2)
    assert nu <= 0.25
    assert zeta <= 3.2 * (1 + 1e-9)
    return gamma, alpha, {"sigma": sigma, "gap": gap, "L_G": L_G, "N": N, "zeta": zeta}


def test_gamma_depends_on_the_network_if_only_the_mean_is_convex():
    """Half of a ring curved by -1, half by 3: what converges with gamma = 1/L_yy on 4 agents
    diverges on 8."""

    def radius(m, gamma, low):
        network = decibo.ring(m)
        h = np.where(np.arange(m) < m // 2, low, 2 - low)
        U = (np.eye(m) - network.W) / 2
        I = np.eye(m)
        P = I - gamma * np.diag(h)
        basis = np.linalg.svd(I - 1 / m)[0][:, : m - 1]
        top = np.hstack([(I - U) @ P, (I - U) @ basis])
        return np.abs(
            np.linalg.eigvals(
                np.vstack([top, np.hstack([-basis.T @ U @ P, basis.T @ (I - U) @ basis])])
            )
        ).max()

    assert radius(4, 1 / 3, -1.0) < 1 < radius(8, 1 / 3, -1.0)
    assert all(
        radius(m, 1 / 1.8, 0.2) < 1 for m in (4, 8, 32)
    )  # every agent convex: gamma = 1/L_yy whatever the network
    for m in (8, 16, 32):
        sigma = ahead_exact_steps(Bent(0).constants(), decibo.ring(m), gamma=0.1, alpha=0.1).sigma
        assert radius(m, (1 - sigma) / (4 * sigma * 9), -1.0) < 1  # (C)
