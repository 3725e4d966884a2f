"""Non-quadratic problems in plain numpy whose constants are known in closed form, and ahead_exact
on them, by hand.

g_i = y'H_i y/2 + y'(J_i'x + s_i) + beta sum_j cos(a_ij'y + b_ij'x + t_ij)
f_i = sum_j psi(p_ij'x + q_ij'y + r_ij) + rho |x - o_i|^2/2,     psi(t) = w1 sqrt(1 + t^2) + w2 sin t

f_y is bounded and Phi is not convex. Rows belong to agents, as in `quadratic_world`, whose `World`
the functions below accept too.
"""

import jax.numpy as jnp
import numpy as np

import decibo
from decibo.theory import fine_constants

norm = np.linalg.norm


def largest(matrices):
    return max(norm(matrix, 2) for matrix in matrices)


class Bent:
    def __init__(
        self,
        seed,
        m=4,
        n=3,
        r=3,
        cond=2.0,
        beta=0.1,
        w1=0.3,
        w2=0.3,
        rho=0.1,
        spread=1.0,
        coupling=0.5,
    ):
        rng = np.random.default_rng(seed)
        unit = lambda v: v / norm(v, axis=2, keepdims=True)
        common = lambda *shape: rng.normal(size=shape) + spread * rng.normal(size=(m, *shape))
        bases = np.linalg.qr(rng.normal(size=(m, r, r)))[0]
        values = np.exp(rng.uniform(0, np.log(cond), (m, 1, r)))
        inside = unit(rng.normal(size=(m, 4, n + r)))
        outside = unit(rng.normal(size=(m, 4, n + r)))
        self.data = {
            "H": (bases * values) @ np.swapaxes(bases, 1, 2),
            "J": coupling * common(n, r),
            "s": common(r),
            "b": inside[..., :n],
            "a": inside[..., n:],
            "t": rng.uniform(0, 6, (m, 4)),
            "p": outside[..., :n],
            "q": outside[..., n:],
            "r": 2 * common(4),
            "o": common(n),
        }
        vars(self).update(self.data)
        self.beta, self.w1, self.w2, self.rho = beta, w1, w2, rho
        self.m, self.n, self.dim = m, n, r
        self.phi_inf = 4 * (w1 - w2)  # psi >= w1 - w2

    # derivatives of every agent at its own point
    def angle(self, x, y):
        return np.einsum("ijk,ik->ij", self.a, y) + np.einsum("ijk,ik->ij", self.b, x) + self.t

    def g_y(self, x, y):
        linear = np.einsum("ijk,ik->ij", self.H, y) + np.einsum("ikj,ik->ij", self.J, x) + self.s
        return linear - self.beta * np.einsum("ijk,ij->ik", self.a, np.sin(self.angle(x, y)))

    def g_x(self, x, y):
        return np.einsum("ijk,ik->ij", self.J, y) - self.beta * np.einsum(
            "ijk,ij->ik", self.b, np.sin(self.angle(x, y))
        )

    def g_yy(self, x, y):
        return self.H - self.beta * np.einsum(
            "ijk,ij,ijl->ikl", self.a, np.cos(self.angle(x, y)), self.a
        )

    def g_xy(self, x, y):
        return self.J - self.beta * np.einsum(
            "ijk,ij,ijl->ikl", self.b, np.cos(self.angle(x, y)), self.a
        )

    def psi(self, x, y):
        at = np.einsum("ijk,ik->ij", self.p, x) + np.einsum("ijk,ik->ij", self.q, y) + self.r
        root = np.sqrt(1 + at**2)
        return self.w1 * root + self.w2 * np.sin(at), self.w1 * at / root + self.w2 * np.cos(at)

    def f(self, x, y):
        return self.psi(x, y)[0].sum(1) + self.rho / 2 * np.sum((x - self.o) ** 2, 1)

    def f_x(self, x, y):
        return np.einsum("ijk,ij->ik", self.p, self.psi(x, y)[1]) + self.rho * (x - self.o)

    def f_y(self, x, y):
        return np.einsum("ijk,ij->ik", self.q, self.psi(x, y)[1])

    def constants(self, **finer):
        """Rigorous everywhere: |psi'| and |psi''| are at most w1 + w2, |cos| and |sin| at most
        1."""
        each = range(self.m)
        a, b, p, q = ([norm(rows, 2) for rows in part] for part in (self.a, self.b, self.p, self.q))
        both = [norm(np.hstack([self.a[i], self.b[i]]), 2) for i in each]
        outer = [norm(np.hstack([self.p[i], self.q[i]]), 2) for i in each]
        longest = [norm(self.a[i], axis=1).max() for i in each]
        bend, k = self.beta, self.w1 + self.w2
        slope = max(k * norm(self.q[i], axis=1).sum() for i in each)
        mean_mu = np.linalg.eigvalsh(self.H.mean(0))[0] - bend * np.mean(np.square(a))
        mean_xy = norm(self.J.mean(0), 2) + bend * np.mean(np.multiply(a, b))
        V = slope / mean_mu
        M_y = max(k * q[i] * outer[i] + bend * V * longest[i] * a[i] * both[i] for i in each)
        M_x = max(
            k * p[i] * outer[i] + self.rho + bend * V * longest[i] * b[i] * both[i] for i in each
        )
        return fine_constants(
            mu_g=min(np.linalg.eigvalsh(self.H[i])[0] - bend * a[i] ** 2 for i in each),
            L_yy=max(np.linalg.eigvalsh(self.H[i])[-1] + bend * a[i] ** 2 for i in each),
            L_xy=max(norm(self.J[i], 2) + bend * a[i] * b[i] for i in each),
            M_y=M_y,
            M_x=M_x,
            V=V,
            L_g2=max(bend * longest[i] * a[i] * max(a[i], b[i]) for i in each),
            L_g3=max(bend * longest[i] ** 2 * a[i] * max(a[i], b[i]) for i in each),
            C_f=slope,
            **(
                {
                    "L_ystar": mean_xy / mean_mu,
                    "L_wstar": M_y * np.hypot(1, mean_xy / mean_mu) / mean_mu,
                }
                | finer
            ),
        )

    def everywhere(self, v):
        return np.broadcast_to(v, (self.m, len(v)))

    def solve(self, x, y=None):
        """y*(x), w*(x), grad Phi(x) and Phi(x), by Newton's method."""
        X = self.everywhere(x)
        y = np.zeros(self.dim) if y is None else y
        for _ in range(50):
            slope = self.g_y(X, self.everywhere(y)).mean(0)
            if norm(slope) < 1e-14:
                break
            y = y - np.linalg.solve(self.g_yy(X, self.everywhere(y)).mean(0), slope)
        Y = self.everywhere(y)
        w = -np.linalg.solve(self.g_yy(X, Y).mean(0), self.f_y(X, Y).mean(0))
        return (
            y,
            w,
            self.f_x(X, Y).mean(0) + self.g_xy(X, Y).mean(0) @ w,
            float(self.f(X, Y).mean()),
        )

    def problem(self):
        """The same for the library."""
        beta, w1, w2, rho = self.beta, self.w1, self.w2, self.rho

        def outer(x, y, d):
            at = d["p"] @ x + d["q"] @ y + d["r"]
            return jnp.sum(w1 * jnp.sqrt(1 + at**2) + w2 * jnp.sin(at)) + rho / 2 * jnp.sum(
                (x - d["o"]) ** 2
            )

        def inner(x, y, d):
            bent = beta * jnp.sum(jnp.cos(d["a"] @ y + d["b"] @ x + d["t"]))
            return y @ d["H"] @ y / 2 + y @ (d["J"].T @ x + d["s"]) + bent

        return decibo.Problem(outer, inner, self.data, np.zeros(self.n), np.zeros(self.dim))


def directions(world, x, y, z, lam):
    c = (y + z) / 2
    f_x, f_y = world.f_x(x, c), world.f_y(x, c)
    return (
        f_x + lam / 2 * (world.g_x(x, y) - world.g_x(x, z)),
        world.g_y(x, y) + f_y / lam,
        world.g_y(x, z) - f_y / lam,
    )


def step(world, W, s, C, lam, h):
    """One step of ahead_exact: s = [x, y, z], their memories C and step sizes h."""
    U = (np.eye(len(W)) - W) / 2
    P = [v - size * d for v, size, d in zip(s, h, directions(world, *s, lam), strict=True)]
    C = [c - U @ (p + c) for p, c in zip(P, C, strict=True)]
    return [p + c for p, c in zip(P, C, strict=True)], C


class Enorm:
    """sqrt((|S|^2 + C'(U^+ - I)C)/m) for arrays with one row for each agent."""

    def __init__(self, W):
        self.m = len(W)
        self.u, self.Q = np.linalg.eigh((np.eye(self.m) - W) / 2)
        self.weight = np.where(self.u > 1e-12, 1 / np.maximum(self.u, 1e-12) - 1, 0.0)

    def __call__(self, S, C):
        return float(
            np.sqrt((np.sum(S**2) + np.sum(self.weight[:, None] * (self.Q.T @ C) ** 2)) / self.m)
        )


def references(world, x, y, w):
    """What the memories of c and w, over gamma, and of x, over alpha, are compared with; at (x,
    y*(x), w*(x))."""
    X, Y = world.everywhere(x), world.everywhere(y)
    D = world.f_x(X, Y) + world.g_xy(X, Y) @ w
    return world.g_y(X, Y), world.g_yy(X, Y) @ w + world.f_y(X, Y), D - D.mean(0)


def errors(world, E, s, C, lam, alpha, gamma, guess=None):
    """Everything that Lemma 5 speaks of, at a state."""
    x, y, z = s
    c, w = (y + z) / 2, lam * (y - z) / 2
    xbar = x.mean(0)
    ystar, wstar, gradient, phi = world.solve(xbar, guess)
    rest_c, rest_w, rest_x = references(world, xbar, ystar, wstar)
    mean = directions(world, x, y, z, lam)[0].mean(0)
    return {
        "c": E(c - ystar, (C[1] + C[2]) / 2 - gamma * rest_c),
        "w": E(w - wstar, lam * (C[1] - C[2]) / 2 - gamma * rest_w),
        "x": E(x - xbar, C[0] - alpha * rest_x),
        "d": norm(mean),
        "off": norm(mean - gradient),
        "gradient": norm(gradient),
        "phi": phi,
        "R": float(np.mean(np.sum(w**2, 1) ** 2) ** 0.25),
        "y": ystar,
    }


def random_state(world, c, lam, alpha, gamma, seed, size, near):
    """x, y, z and memories that sum to zero, at about this distance from the references; w near w*
    or anywhere."""
    rng = np.random.default_rng(seed)
    rows = lambda k: size * rng.normal(size=(world.m, k))
    x = rng.normal(size=world.n) + rows(world.n)
    ystar, wstar = world.solve(x.mean(0))[:2]
    middle = ystar + size * rng.normal(size=world.dim) + rows(world.dim)
    w = wstar + rows(world.dim) if near else c.V * rng.normal(size=(world.m, world.dim))
    rest = references(world, x.mean(0), ystar, wstar)
    C_c, C_w, C_x = (
        h * (at + rows(at.shape[1])) for h, at in zip((gamma, gamma, alpha), rest, strict=True)
    )
    C_c, C_w, C_x = (part - part.mean(0) for part in (C_c, C_w, C_x))
    return [x, middle + w / lam, middle - w / lam], [C_x, C_c + C_w / lam, C_c - C_w / lam]


def lemma5(world, W, steps, s, C, lam):
    """(left, right) of (I1) to (I5) at a state, and what rounding may add."""
    c, alpha, gamma = steps.constants, steps.alpha, steps.gamma
    E = Enorm(W)
    now = errors(world, E, s, C, lam, alpha, gamma)
    then = errors(world, E, *step(world, W, s, C, lam, (alpha, gamma, gamma)), lam, alpha, gamma)
    eps_c = c.L_g2 * now["R"] ** 2 / (2 * lam**2)
    eps_w = c.L_g3 * c.V * now["R"] ** 2 / (6 * lam**2)
    e_c, e_w, e_x, d = (now[name] for name in "cwxd")
    e = c.M_x * (e_x + e_c) + c.L_xy * e_w + eps_w
    fall = (alpha / 2) * (now["gradient"] ** 2 + (1 - alpha * c.L_Phi) * d**2 - e**2)
    rows = {
        "I1": (
            then["c"],
            steps.q * e_c + gamma * (c.L_xy * e_x + eps_c) + alpha * steps.Lambda_c * d,
        ),
        "I2": (
            then["w"],
            steps.q * e_w + gamma * (c.M_y * (e_x + e_c) + eps_w) + alpha * steps.Lambda_w * d,
        ),
        "I3": (then["x"], steps.sigma * (e_x + alpha * e) + alpha**2 * steps.chi * c.L_D * d),
        "I4": (now["off"], e),
        "I5": (then["phi"], now["phi"] - fall),
    }
    return rows, 1e-12 * (1 + lam * norm(s[1]) + abs(now["phi"]))
