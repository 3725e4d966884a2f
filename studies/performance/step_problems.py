"""The problems on which automatic step sizes are judged: 41 that the rule was chosen on, and 12 of a
seed each that it was not."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import decibo

Q, N = decibo.problems, decibo.networks
ring, path, complete = decibo.ring, N.path, N.complete


class Case(NamedTuple):
    problem: object
    network: object
    steps: int = 2000
    unit: float = 1.0  # alpha of the grid = unit * 10^(-4 .. 2)
    L: float | None = None  # else the largest curvature of an agent at the start


def P(f, g, data, n, r, x0=None, y0=None, **k):
    return decibo.Problem(
        f,
        g,
        data,
        np.zeros(n) if x0 is None else np.asarray(x0, float),
        np.zeros(r) if y0 is None else np.asarray(y0, float),
        **k,
    )


def net(m, kind=ring):
    return kind(m)


def scaled(p, f=1.0, g=1.0, x=1.0, y=1.0):
    F, G = p.outer, p.inner
    return replace(
        p,
        outer=lambda a, b, d: f * F(a * x, b * y, d),
        inner=lambda a, b, d: g * G(a * x, b * y, d),
        inner_solution=None,
        solution=None,
        constants=None,
    )


def rnd(seed):
    return np.random.default_rng(seed)


def slow(h, m=1, n=2):
    """(a) of the referee: slow inner directions, Phi has condition 1."""
    H = np.array([1.0, h]) if n == 2 else np.logspace(np.log10(h), 0, n)
    t = 1 + 0.1 * rnd(0).normal(size=(m, n)) * (m > 1)
    return P(
        lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2),
        lambda x, y, d: 0.5 * jnp.sum(H * (y - x) ** 2),
        {"t": t},
        n,
        n,
    )


def ill(kappa, m=10, n=5, r=20, fs=1.0, gs=1.0, xs=1.0, seed=0):
    R = rnd(seed)
    U, _ = np.linalg.qr(R.normal(size=(r, r)))
    H = (U * np.logspace(-np.log10(kappa), 0, r)) @ U.T
    d = {
        "b": 0.05 * R.normal(size=(m, r)) @ H,
        "J": (R.normal(size=(n, r)) * 0.1 + 0.05 * R.normal(size=(m, n, r))) @ H * 5,
        "t": R.normal(size=(m, r)),
    }
    f = lambda x, y, d: fs * (0.5 * jnp.sum((y - d["t"]) ** 2) / r + 0.05 * jnp.sum((x * xs) ** 2))
    g = lambda x, y, d: gs * (0.5 * y @ H @ y - y @ d["b"] - (x * xs) @ d["J"] @ y)
    return P(f, g, d, n, r)


def rosen(m=5):
    a = 0.1 * rnd(0).normal(size=(m, 2))
    a -= a.mean(0)
    f = lambda x, y, d: (1 - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2 + d["a"] @ y
    return P(
        f,
        lambda x, y, d: 0.5 * jnp.sum((y - x) ** 2),
        {"a": a},
        2,
        2,
        x0=[-1.2, 1.0],
        y0=[-1.2, 1.0],
    )


def follow(f, m=1, x0=(0.0,), H=None, curve=None, seed=0, spread=0.0):
    """y* = x (curvature H), any outer f(y) + linear terms of agents that sum to 0."""
    n = len(x0)
    H = np.ones(n) if H is None else np.asarray(H)
    a = spread * rnd(seed).normal(size=(m, n))
    a -= a.mean(0)
    h = np.ones(m) if curve is None else np.asarray(curve)
    return P(
        lambda x, y, d: f(x, y) + d["a"] @ y,
        lambda x, y, d: 0.5 * d["h"] * jnp.sum(H * (y - x) ** 2),
        {"a": a, "h": h},
        n,
        n,
        x0=x0,
        y0=x0,
    )


def quartic(ridge, m=1, x0=(2.0, -1.0)):
    f = lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2)
    g = lambda x, y, d: 0.25 * jnp.sum((y - x) ** 4) + 0.5 * ridge * jnp.sum((y - x) ** 2)
    return P(
        f,
        g,
        {"t": np.zeros((m, 2)) + 0.1 * rnd(1).normal(size=(m, 2)) * (m > 1)},
        2,
        2,
        x0=x0,
        y0=x0,
    )


def logreg(m, n, samples, seed=0, batch=None, dtype=np.float64, share=False):
    R = rnd(seed)
    w = R.normal(size=n)
    A = R.normal(size=(m, 2, samples, n)) + 0.3 * R.normal(size=(m, 1, 1, n))
    B = np.sign(A @ w + R.normal(size=(m, 2, samples)))
    loss = lambda y, a, b: jnp.mean(jax.nn.softplus(-b * (a @ y)))
    f = lambda x, y, d: loss(y, d["a"][1], d["b"][1])
    g = lambda x, y, d: (
        loss(y, d["a"][0], d["b"][0])
        + (0.5 * jnp.exp(x[0]) * jnp.sum(y * y) if share else 0.5 * jnp.sum(jnp.exp(x) * y * y))
    )
    sample = None
    if batch:

        def sample(d, key):
            i = jax.random.randint(key, (batch,), 0, samples)
            return {"a": d["a"][:, i], "b": d["b"][:, i]}

    nx = 1 if share else n
    data = {"a": A.astype(dtype), "b": B.astype(dtype)}
    return decibo.Problem(f, g, data, np.full(nx, -1.0, dtype), np.zeros(n, dtype), sample=sample)


def noisy(seed=0, scale=0.5):
    p = Q.quadratic(seed=seed)
    s = lambda d, key: d | {n: d[n] + scale * jax.random.normal(key, d[n].shape) for n in "pqs"}
    return decibo.Problem(p.outer, p.inner, p.data, p.x0, p.y0, sample=s)


def rotated(cond, m=5, n=6, seed=0):
    R = rnd(seed)
    U, _ = np.linalg.qr(R.normal(size=(n, n)))
    A = (U * np.logspace(0, np.log10(cond), n)) @ U.T
    t = R.normal(size=(m, n))
    return P(
        lambda x, y, d: 0.5 * (y - d["t"]) @ A @ (y - d["t"]) / cond**0.5,
        lambda x, y, d: 0.5 * jnp.sum((y - x) ** 2),
        {"t": t},
        n,
        n,
    )


def coupling(cond, m=5, n=5, seed=0):
    R = rnd(seed)
    U, _ = np.linalg.qr(R.normal(size=(n, n)))
    V, _ = np.linalg.qr(R.normal(size=(n, n)))
    J = (U * np.logspace(-np.log10(cond), 0, n)) @ V.T * 10
    t = R.normal(size=(m, n))
    return P(
        lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2),
        lambda x, y, d: 0.5 * jnp.sum((y - J @ x) ** 2),
        {"t": t},
        n,
        n,
    )


def growing(seed, top=1e-8, m=10, n=5):
    b = rnd(seed).normal(size=(m, n))
    f = lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2) + top * jnp.sum(jnp.exp(x))
    g = lambda x, y, d: 0.5 * jnp.sum(jnp.exp(x) * (y - d["b"]) ** 2) + 0.5 * jnp.sum(y**2)
    return P(f, g, {"b": b, "t": np.tile(b.mean(0), (m, 1))}, n, n)


def curved(m=3):
    """curvature of g grows from 1 to 1e4 along the way of x."""
    f = lambda x, y, d: 0.5 * jnp.sum((y - 3) ** 2)
    g = lambda x, y, d: (
        0.5 * (1 + 1e4 * jax.nn.sigmoid(4 * (x[0] - 1.5))) * (y[0] - x[0]) ** 2
        + 0.5 * (y[1] - x[1]) ** 2
    )
    return P(f, g, {"q": np.zeros((m, 1))}, 2, 2)


def cubic():
    return P(
        lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2),
        lambda x, y, d: 0.5 * jnp.sum((y - x**3) ** 2),
        {"t": np.ones((3, 1)) + np.array([[0.1], [-0.1], [0]])},
        1,
        1,
        x0=[3.0],
        y0=[27.0],
    )


def hetero(m=10, n=4, seed=0):
    R = rnd(seed)
    h = np.logspace(0, 3, m)
    t = R.normal(size=(m, n))
    return P(
        lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2),
        lambda x, y, d: 0.5 * d["h"] * jnp.sum((y - x - d["t"]) ** 2),
        {"t": t, "h": h},
        n,
        n,
    )


def nonneg(m=6, n=8, seed=3, ridge=1e-2):
    """hyper-representation like: ridge regression with exp(x) penalties, few samples: H varies 1e2."""
    R = rnd(seed)
    A = R.normal(size=(m, 12, n)) * np.logspace(-1, 0, n)
    w = R.normal(size=n)
    b = A @ w + 0.3 * R.normal(size=(m, 12))
    A2 = R.normal(size=(m, 12, n)) * np.logspace(-1, 0, n)
    b2 = A2 @ w
    f = lambda x, y, d: 0.5 * jnp.mean((d["A2"] @ y - d["b2"]) ** 2)
    g = lambda x, y, d: (
        0.5 * jnp.mean((d["A"] @ y - d["b"]) ** 2) + 0.5 * jnp.sum((jnp.exp(x) + ridge) * y * y)
    )
    return P(f, g, {"A": A, "b": b, "A2": A2, "b2": b2}, n, n, x0=np.full(n, -2.0))


def tanh_net(m=4, seed=0):
    """non-convex outer: y feeds a tanh unit, x shifts the inner targets."""
    R = rnd(seed)
    V = R.normal(size=(6, 6)) / 6**0.5 * 2
    t = np.tanh(R.normal(size=(m, 6)))
    return P(
        lambda x, y, d: 0.5 * jnp.sum((jnp.tanh(V @ y) - d["t"]) ** 2) + 0.01 * jnp.sum(x * x),
        lambda x, y, d: 0.5 * jnp.sum(np.logspace(-2, 0, 6) * (y - x) ** 2),
        {"t": t},
        6,
        6,
        x0=np.full(6, 0.5),
    )


quad = Q.quadratic
sq = lambda x, y: 0.5 * jnp.sum((y - 1) ** 2)
CASES = {
    # the referee's 24, rebuilt
    "x scaled 1e-3..1e3": lambda: Case(
        scaled(quad(), x=np.logspace(-3, 3, 3)), ring(10), unit=1e-4
    ),
    "slow h 1e-4.., ring 5": lambda: Case(slow(1e-4, 5, 5), ring(5)),
    "rosenbrock": lambda: Case(rosen(), ring(5), 4000, unit=1e-2),
    "plateau exp(-8)": lambda: Case(
        follow(lambda x, y: 1 - jnp.exp(-0.5 * jnp.sum((y - 4) ** 2)), 3, (0.0, 4.0), spread=0.0),
        ring(3),
        unit=10.0,
    ),
    "saddle 1e-6": lambda: Case(
        follow(
            lambda x, y: 0.25 * y[0] ** 4 - 0.5 * y[0] ** 2 + 0.5 * y[1] ** 2,
            3,
            (1e-6, 1.0),
            spread=0.1,
        ),
        ring(3),
    ),
    "minibatch logistic": lambda: Case(logreg(6, 8, 60, batch=10), ring(6), unit=10.0),
    "rotated 1e4": lambda: Case(rotated(1e4), ring(5), unit=1e-1),
    "quartic .01": lambda: Case(quartic(0.01), ring(1), L=1.0),
    "curvature to 1e4": lambda: Case(curved(), ring(3), unit=1e-1, L=1e4),
    "float32 logistic": lambda: Case(logreg(6, 8, 60, dtype=np.float32), ring(6), unit=100.0),
    "one agent quadratic": lambda: Case(quad(agents=1), ring(1)),
    "path of 40": lambda: Case(quad(agents=40), path(40), 4000),
    "agents L 1..1000": lambda: Case(hetero(), ring(10)),
    "f x 1e6": lambda: Case(scaled(quad(), f=1e6), ring(10), unit=1e-6),
    "f x 1e-6": lambda: Case(scaled(quad(), f=1e-6), ring(10), unit=1e6),
    "x* 1e4 away": lambda: Case(
        follow(lambda x, y: 0.5 * jnp.sum((y - 1e4) ** 2), 3, (0.0, 0.0), spread=1.0), ring(3)
    ),
    "wiggly sin(8x)": lambda: Case(
        follow(
            lambda x, y: 0.5 * jnp.sum((y - 1) ** 2) + 0.3 * jnp.sum(jnp.sin(8 * y)),
            3,
            (3.0, -2.0),
            spread=0.1,
        ),
        ring(3),
        unit=0.1,
    ),
    "coupling 1e3": lambda: Case(coupling(1e3), ring(5), unit=0.1),
    "sharp sqrt": lambda: Case(
        follow(lambda x, y: jnp.sum(jnp.sqrt((y - 0.3) ** 2 + 1e-6)), 3, (2.0, -1.0), spread=0.0),
        ring(3),
        unit=1e-2,
    ),
    "drift exp(x)": lambda: Case(
        follow(lambda x, y: jnp.sum(jnp.exp(y)), 3, (-0.5, -0.3), spread=0.0), ring(3), unit=0.1
    ),
    "inner 100, path 10": lambda: Case(quad(agents=10, condition=100.0), path(10)),
    "start at solution": lambda: Case(follow(sq, 3, (1.0, 1.0), spread=0.0), ring(3)),
    "minibatch quadratic": lambda: Case(noisy(), ring(10), unit=0.1),
    "y* = x^3": lambda: Case(cubic(), ring(3), unit=1e-2),
    # ill-conditioned, scaled, long paths
    "ill 1e3": lambda: Case(ill(1e3), ring(10), 3000),
    "ill 30 f x 1e4": lambda: Case(ill(30.0, fs=1e4), ring(10), 3000, unit=1e-4),
    "ill 30 g x 1e-4": lambda: Case(ill(30.0, gs=1e-4), ring(10), 3000),
    "ill 30 x in 1e-3": lambda: Case(ill(30.0, xs=1e3), ring(10), 3000, unit=1e-6),
    "ill 30 path 30": lambda: Case(ill(30.0, m=30), path(30), 3000),
    "digits": lambda: Case(
        Q.logistic_hyperparameters(
            decibo.data.digits(), 10, split="by_label", loss="mean", scale=16.0
        ),
        N.erdos_renyi(10, 0.4, seed=0),
        2000,
        unit=100.0,
    ),
    # own
    "slow h .01": lambda: Case(slow(0.01), ring(1), 4000),
    "slow h .003": lambda: Case(slow(0.003), ring(1), 4000),
    "slow h .001": lambda: Case(slow(0.001), ring(1), 4000),
    "slow 1e-3.., complete 5": lambda: Case(slow(1e-3, 5, 5), complete(5), 4000),
    "quartic .1 ring 4": lambda: Case(quartic(0.1, 4), ring(4), L=1.0),
    "quartic 1e-4": lambda: Case(quartic(1e-4), ring(1), L=1.0),
    "growing curvature": lambda: Case(growing(0), ring(10), unit=10.0),
    "ridge exp(x)": lambda: Case(nonneg(), ring(6), 3000, unit=10.0),
    "tanh, inner 100": lambda: Case(tanh_net(), ring(4), 3000),
    "minimax": lambda: Case(Q.minimax("quadratic"), ring(10)),
    "path 20": lambda: Case(quad(agents=20), path(20), 4000),
}


def chain(seed, m=4, n=6):
    """An inner level of springs, condition about 400."""
    H = 2.005 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    t = rnd(seed).normal(size=(m, n))
    return P(
        lambda x, y, d: 0.5 * jnp.sum((y - d["t"]) ** 2) + 0.01 * jnp.sum(x * x),
        lambda x, y, d: 0.5 * y @ H @ y - x @ y,
        {"t": t},
        n,
        n,
    )


def weights(seed, m=4, samples=15, n=4):
    """Data cleaning: x weighs samples, a third of which have wrong signs."""
    R = rnd(seed)
    A, A2 = R.normal(size=(2, m, samples, n))
    w = R.normal(size=n)
    flip = np.where(R.random((m, samples)) < 1 / 3, -1, 1)
    own = np.eye(m * samples).reshape(m, samples, m * samples)
    data = {"a": A, "b": flip * np.sign(A @ w), "a2": A2, "b2": np.sign(A2 @ w), "own": own}
    return P(
        lambda x, y, d: jnp.mean(jax.nn.softplus(-d["b2"] * (d["a2"] @ y))),
        lambda x, y, d: (
            jnp.mean(jax.nn.sigmoid(d["own"] @ x) * jax.nn.softplus(-d["b"] * (d["a"] @ y)))
            + 0.05 * jnp.sum(y * y)
        ),
        data,
        m * samples,
        n,
    )


def bent(f, g, seed, m, n=4, x0=0.0, dtype=np.float64):
    """Any outer f(y, t) and inner g(y, x, b), agents with t and b of their own."""
    R = rnd(seed)
    data = {
        "t": R.normal(size=(m, n)).astype(dtype),
        "b": 0.3 * R.normal(size=(m, n)).astype(dtype),
    }
    return P(
        lambda x, y, d: f(y, d["t"]) + 0.01 * jnp.sum(x * x),
        lambda x, y, d: g(y, x, d["b"]),
        data,
        n,
        n,
        np.full(n, x0, dtype),
        np.zeros(n, dtype),
    )


half = lambda v: 0.5 * jnp.sum(v * v)
near = lambda y, x, b: half(y - x - b)
OWN = {
    "springs": lambda seed: Case(chain(seed), ring(4), 3000),
    "cleaning": lambda seed: Case(weights(seed), ring(4), 3000, unit=10.0),
    "log cosh, quartic": lambda seed: Case(
        bent(
            lambda y, t: jnp.sum(jnp.log(jnp.cosh(y - t))),
            lambda y, x, b: half(y - x - b) + 0.1 * jnp.sum(y**4),
            seed,
            6,
        ),
        ring(6),
    ),
    "hinge": lambda seed: Case(
        bent(lambda y, t: half(y - t) + jnp.sum(jax.nn.softplus(20 * (y - 0.5))), near, seed, 5),
        ring(5),
        unit=0.1,
    ),
    "waves": lambda seed: Case(
        bent(lambda y, t: 0.1 * half(y - t) + jnp.sum(jnp.cos(3 * y)), near, seed, 8),
        N.erdos_renyi(8, 0.4, seed=seed),
    ),
    "exponential inner": lambda seed: Case(
        bent(
            lambda y, t: half(y - t),
            lambda y, x, b: jnp.sum(jnp.exp(y - x - b) - y) + 0.05 * half(y),
            seed,
            5,
        ),
        ring(5),
    ),
    "x squared in the curvature": lambda seed: Case(
        bent(
            lambda y, t: half(y - t),
            lambda y, x, b: 0.5 * jnp.sum((1 + x * x) * y * y) - jnp.sum((1 + b) * y),
            seed,
            6,
            x0=2.0,
        ),
        N.star(6),
    ),
    "absolute values": lambda seed: Case(
        bent(lambda y, t: jnp.sum(jnp.sqrt((y - t) ** 2 + 1e-4)), near, seed, 6),
        N.star(6),
        unit=0.1,
    ),
    "largest": lambda seed: Case(
        bent(lambda y, t: jax.nn.logsumexp(5 * (y - t)) + half(y), near, seed, 12), path(12), 3000
    ),
    "path of 15": lambda seed: Case(quad(agents=15, seed=seed), path(15), 3000),
    "x 1e-2 to 1e2, path": lambda seed: Case(
        scaled(quad(agents=8, seed=seed), x=np.array([0.01, 1.0, 100.0])), path(8), 3000
    ),
    "float32": lambda seed: Case(
        bent(lambda y, t: half(y - t), near, seed, 5, dtype=np.float32), ring(5)
    ),
}
