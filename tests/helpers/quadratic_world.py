"""Random heterogeneous problems in plain numpy, one step of AHEAD on them, and every quantity of
the lemmas.

    f_i = x'P_i x/2 + x'B_i y + y'A_i y/2 + p_i'x + q_i'y
    g_i = y'H_i y/2 + x'J_i y + s_i'y + bend sum_j cos(u_ij'x + v_ij'y + t_ij)

With bend = 0 everything is quadratic; otherwise L_g2 > 0, y*(x) comes from Newton's method, and the
constants are still known in closed form: the angle of a cosine is unknown, so it counts with both
signs.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from decibo.theory import Constants


def square(v):
    return float(np.sum(np.asarray(v) ** 2))


@dataclass
class World:
    P: np.ndarray
    B: np.ndarray
    A: np.ndarray
    p: np.ndarray
    q: np.ndarray
    H: np.ndarray
    J: np.ndarray
    s: np.ndarray
    W: np.ndarray
    u: np.ndarray
    v: np.ndarray
    t: np.ndarray
    bend: float = 0.0

    @classmethod
    def draw(cls, seed, m, n, r, condition=4.0, outer=1.0, coupling=0.5, bend=0.0):
        """f_i any symmetric quadratic (nonconvex too), g_i strongly convex in y if bend < 1/3."""
        rng = np.random.default_rng(seed)
        F = rng.normal(size=(m, n + r, n + r))
        F = outer * (F + np.swapaxes(F, 1, 2)) / 2
        bases = np.linalg.qr(rng.normal(size=(m, r, r)))[0]
        H = (bases * np.exp(rng.uniform(0, np.log(condition), size=(m, 1, r)))) @ np.swapaxes(
            bases, 1, 2
        )
        J = coupling * rng.normal(size=(m, n, r))
        p, q, s = rng.normal(size=(m, n)), rng.normal(size=(m, r)), rng.normal(size=(m, r))
        lazy = rng.uniform(0.1, 0.45)
        ring = np.roll(np.eye(m), 1, axis=0)
        W = (1 - 2 * lazy) * np.eye(m) + lazy * (ring + ring.T) if m > 2 else np.full((m, m), 1 / m)
        rows = rng.normal(size=(m, 3, n + r))
        rows = rows / np.linalg.norm(rows, axis=2, keepdims=True)
        cosines = rows[..., :n], rows[..., n:], rng.uniform(0, 2 * np.pi, size=(m, 3)), bend
        return cls(F[:, :n, :n], F[:, :n, n:], F[:, n:, n:], p, q, H, J, s, W, *cosines)

    @property
    def m(self):
        return len(self.p)

    @cached_property
    def rho(self):
        return float(np.linalg.norm(self.W - 1 / self.m, 2) ** 2)

    # gradients of every agent at its own point (rows)
    def f_x(self, x, y):
        return np.einsum("ijk,ik->ij", self.P, x) + np.einsum("ijk,ik->ij", self.B, y) + self.p

    def f_y(self, x, y):
        return np.einsum("ikj,ik->ij", self.B, x) + np.einsum("ijk,ik->ij", self.A, y) + self.q

    def angle(self, x, y):
        return np.einsum("ijk,ik->ij", self.u, x) + np.einsum("ijk,ik->ij", self.v, y) + self.t

    def g_x(self, x, y):
        pull = self.bend * np.sin(self.angle(x, y))
        return np.einsum("ijk,ik->ij", self.J, y) - np.einsum("ijk,ij->ik", self.u, pull)

    def g_y(self, x, y):
        pull = self.bend * np.sin(self.angle(x, y))
        linear = np.einsum("ikj,ik->ij", self.J, x) + np.einsum("ijk,ik->ij", self.H, y) + self.s
        return linear - np.einsum("ijk,ij->ik", self.v, pull)

    def g_yy(self, x, y):
        return self.H - np.einsum(
            "ijk,ij,ijl->ikl", self.v, self.bend * np.cos(self.angle(x, y)), self.v
        )

    def g_xy(self, x, y):
        return self.J - np.einsum(
            "ijk,ij,ijl->ikl", self.u, self.bend * np.cos(self.angle(x, y)), self.v
        )

    def everywhere(self, v):
        return np.broadcast_to(v, (self.m, len(v)))

    def _root(self, x, outer, inner):
        """Where the mean of outer f_y + inner g_y is zero, by Newton's method."""
        X = self.everywhere(x)
        y = np.zeros(self.H.shape[1])
        for _ in range(60):
            Y = self.everywhere(y)
            move = np.linalg.solve(
                outer * self.A.mean(0) + inner * self.g_yy(X, Y).mean(0),
                outer * self.f_y(X, Y).mean(0) + inner * self.g_y(X, Y).mean(0),
            )
            y = y - move
            if np.linalg.norm(move) <= 1e-15 * (1 + np.linalg.norm(y)):
                break
        return y

    def ystar(self, x):
        return self._root(x, 0.0, 1.0)

    def ystar_lam(self, x, lam):
        return self._root(x, 1.0, lam)

    def phi(self, x):
        y = self.ystar(x)
        P, B, A = self.P.mean(0), self.B.mean(0), self.A.mean(0)
        return float(
            x @ P @ x / 2 + x @ B @ y + y @ A @ y / 2 + self.p.mean(0) @ x + self.q.mean(0) @ y
        )

    @cached_property
    def response(self):
        """The derivative of y*(x), the same everywhere if bend = 0."""
        return self.response_at(np.zeros(self.P.shape[1]))

    def response_at(self, x):
        """The derivative of y*(x)."""
        X, Y = self.everywhere(x), self.everywhere(self.ystar(x))
        return -np.linalg.solve(self.g_yy(X, Y).mean(0), self.g_xy(X, Y).mean(0).T)

    def grad_phi(self, x):
        X, Y = self.everywhere(x), self.everywhere(self.ystar(x))
        return self.f_x(X, Y).mean(0) + self.response_at(x).T @ self.f_y(X, Y).mean(0)

    def grad_pstar(self, x, lam):
        X, Y, Z = (
            self.everywhere(x),
            self.everywhere(self.ystar_lam(x, lam)),
            self.everywhere(self.ystar(x)),
        )
        return (self.f_x(X, Y) + lam * (self.g_x(X, Y) - self.g_x(X, Z))).mean(0)

    @cached_property
    def phi_hessian(self):
        """The Hessian of Phi if bend = 0."""
        Y, B = self.response, self.B.mean(0)
        return self.P.mean(0) + B @ Y + Y.T @ B.T + Y.T @ self.A.mean(0) @ Y

    def phi_hessian_at(self, x, h=1e-4):
        """The Hessian of Phi, by central differences of grad Phi."""
        return np.array(
            [(self.grad_phi(x + e) - self.grad_phi(x - e)) / (2 * h) for e in h * np.eye(len(x))]
        )

    def curvatures(self):
        n = self.P.shape[1]
        F = np.block([[self.P, self.B], [np.swapaxes(self.B, 1, 2), self.A]])
        G = np.block([[np.zeros((self.m, n, n)), self.J], [np.swapaxes(self.J, 1, 2), self.H]])
        rows = np.concatenate([self.u, self.v], axis=2)  # unit vectors: |D3 g_i| <= bend |rows_i|^2
        norms = lambda M: np.linalg.norm(M, 2, axis=(1, 2))
        return {
            "mu_g": float(
                (np.linalg.eigvalsh(self.H)[:, 0] - self.bend * norms(self.v) ** 2).min()
            ),
            "L_f1": float(norms(F).max()),
            "L_g1": float((norms(G) + self.bend * norms(rows) ** 2).max()),
            "L_g2": float(self.bend * (norms(rows) ** 2).max()),
        }

    def constants(self, points, radius=0.0):
        """For the region made of these x; C_fy also within the radius around them (f_y at y* is
        Lipschitz in x)."""
        curvatures = self.curvatures()
        C, b_f, b_g = 0.0, 0.0, 0.0
        for x in points:
            X, Y = self.everywhere(x), self.everywhere(self.ystar(x))
            C = max(C, float(np.linalg.norm(self.f_y(X, Y), axis=1).max()))
            spread = lambda G: square(G - G.mean(0)) / self.m
            b_f = max(b_f, spread(self.f_x(X, Y)), spread(self.f_y(X, Y)))
            b_g = max(b_g, spread(self.g_x(X, Y)), spread(self.g_y(X, Y)))
        C += radius * curvatures["L_f1"] * np.hypot(1, curvatures["L_g1"] / curvatures["mu_g"])
        return Constants(**curvatures, C_fy=C, b_f=b_f**0.5, b_g=b_g**0.5)

    def directions(self, x, y, z, lam):
        H_x = self.f_x(x, y) + lam * (self.g_x(x, y) - self.g_x(x, z))
        return H_x, self.f_y(x, y) + lam * self.g_y(x, y), self.g_y(x, z)

    def step(self, x, y, z, alpha, beta, gamma, lam):
        H_x, H_y, H_z = self.directions(x, y, z, lam)
        return self.W @ x - alpha * H_x, self.W @ y - beta * H_y, self.W @ z - gamma * H_z

    def errors(self, x, y, z, lam):
        """|ybar - y*(xbar;lam)|^2, |zbar - y*(xbar)|^2, and the three consensus errors over m."""
        xbar = x.mean(0)
        spread = lambda v: square(v - v.mean(0)) / self.m
        e_y, e_z = (
            square(y.mean(0) - self.ystar_lam(xbar, lam)),
            square(z.mean(0) - self.ystar(xbar)),
        )
        return e_y, e_z, spread(x), spread(y), spread(z)

    def potential(self, d, x, y, z, lam):
        return 2 * self.phi(x.mean(0)) + float(np.dot(d, self.errors(x, y, z, lam)))


class Minimax(World):
    """The same with g_i = -f_i, f_i = x'P_i x/2 + p_i'x - (y'H_i y/2 + x'J_i y + s_i'y + bend sum_j
    cos ...)."""

    def f_x(self, x, y):
        return np.einsum("ijk,ik->ij", self.P, x) + self.p - super().g_x(x, y)

    def f_y(self, x, y):
        return -self.g_y(x, y)

    def ystar_lam(self, x, lam):
        return self.ystar(x)

    def phi(self, x):
        y = self.ystar(x)
        X, Y = self.everywhere(x), self.everywhere(y)
        g = y @ self.H.mean(0) @ y / 2 + x @ self.J.mean(0) @ y + self.s.mean(0) @ y
        g += self.bend * np.cos(self.angle(X, Y)).sum(1).mean()
        return float(x @ self.P.mean(0) @ x / 2 + self.p.mean(0) @ x - g)

    def grad_phi(self, x):
        return self.f_x(self.everywhere(x), self.everywhere(self.ystar(x))).mean(0)

    def curvatures(self):
        F = np.block([[self.P, -self.J], [-np.swapaxes(self.J, 1, 2), -self.H]])
        rows = np.concatenate([self.u, self.v], axis=2)
        norms = lambda M: np.linalg.norm(M, 2, axis=(1, 2))
        both = float((norms(F) + self.bend * norms(rows) ** 2).max())
        return super().curvatures() | {"L_f1": both, "L_g1": both}

    def constants(self, points, radius=0.0):
        """g = -f: the heterogeneity of both is that of f."""
        c = super().constants(points, radius)
        return replace(c, minimax=True, b_g=c.b_f)

    def directions(self, x, y, z, lam):
        H_x = lam * self.f_x(x, z) - (lam - 1) * self.f_x(x, y)
        return H_x, (lam - 1) * self.g_y(x, y), self.g_y(x, z)
