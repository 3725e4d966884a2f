"""Random heterogeneous quadratics in plain numpy, one step of AHEAD on them, and every quantity of the lemmas."""

from dataclasses import dataclass
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

    @classmethod
    def draw(cls, seed, m, n, r, condition=4.0, outer=1.0, coupling=0.5):
        """f_i any symmetric quadratic (nonconvex too), g_i strongly convex in y."""
        rng = np.random.default_rng(seed)
        F = rng.normal(size=(m, n + r, n + r))
        F = outer * (F + np.swapaxes(F, 1, 2)) / 2
        bases = np.linalg.qr(rng.normal(size=(m, r, r)))[0]
        H = (bases * np.exp(rng.uniform(0, np.log(condition), size=(m, 1, r)))) @ np.swapaxes(bases, 1, 2)
        J = coupling * rng.normal(size=(m, n, r))
        p, q, s = rng.normal(size=(m, n)), rng.normal(size=(m, r)), rng.normal(size=(m, r))
        lazy = rng.uniform(0.1, 0.45)
        ring = np.roll(np.eye(m), 1, axis=0)
        W = (1 - 2 * lazy) * np.eye(m) + lazy * (ring + ring.T) if m > 2 else np.full((m, m), 1 / m)
        return cls(F[:, :n, :n], F[:, :n, n:], F[:, n:, n:], p, q, H, J, s, W)

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

    def g_x(self, x, y):
        return np.einsum("ijk,ik->ij", self.J, y)

    def g_y(self, x, y):
        return np.einsum("ikj,ik->ij", self.J, x) + np.einsum("ijk,ik->ij", self.H, y) + self.s

    def everywhere(self, v):
        return np.broadcast_to(v, (self.m, len(v)))

    def ystar(self, x):
        return -np.linalg.solve(self.H.mean(0), self.J.mean(0).T @ x + self.s.mean(0))

    def ystar_lam(self, x, lam):
        left = self.A.mean(0) + lam * self.H.mean(0)
        right = self.B.mean(0).T @ x + self.q.mean(0) + lam * (self.J.mean(0).T @ x + self.s.mean(0))
        return -np.linalg.solve(left, right)

    def phi(self, x):
        y = self.ystar(x)
        P, B, A = self.P.mean(0), self.B.mean(0), self.A.mean(0)
        return float(x @ P @ x / 2 + x @ B @ y + y @ A @ y / 2 + self.p.mean(0) @ x + self.q.mean(0) @ y)

    @cached_property
    def response(self):
        return -np.linalg.solve(self.H.mean(0), self.J.mean(0).T)

    def grad_phi(self, x):
        X, Y = self.everywhere(x), self.everywhere(self.ystar(x))
        return self.f_x(X, Y).mean(0) + self.response.T @ self.f_y(X, Y).mean(0)

    def grad_pstar(self, x, lam):
        X, Y, Z = self.everywhere(x), self.everywhere(self.ystar_lam(x, lam)), self.everywhere(self.ystar(x))
        return (self.f_x(X, Y) + lam * (self.g_x(X, Y) - self.g_x(X, Z))).mean(0)

    @cached_property
    def phi_hessian(self):
        Y, B = self.response, self.B.mean(0)
        return self.P.mean(0) + B @ Y + Y.T @ B.T + Y.T @ self.A.mean(0) @ Y

    def curvatures(self):
        n = self.P.shape[1]
        F = np.block([[self.P, self.B], [np.swapaxes(self.B, 1, 2), self.A]])
        G = np.block([[np.zeros((self.m, n, n)), self.J], [np.swapaxes(self.J, 1, 2), self.H]])
        largest = lambda M: float(np.abs(np.linalg.eigvalsh(M)).max())
        return {"mu_g": float(np.linalg.eigvalsh(self.H).min()), "L_f1": largest(F), "L_g1": largest(G), "L_g2": 0.0}

    def constants(self, points):
        """Exact for the region made of these x."""
        C, b_f, b_g = 0.0, 0.0, 0.0
        for x in points:
            X, Y = self.everywhere(x), self.everywhere(self.ystar(x))
            C = max(C, float(np.linalg.norm(self.f_y(X, Y), axis=1).max()))
            spread = lambda G: square(G - G.mean(0)) / self.m
            b_f = max(b_f, spread(self.f_x(X, Y)), spread(self.f_y(X, Y)))
            b_g = max(b_g, spread(self.g_x(X, Y)), spread(self.g_y(X, Y)))
        return Constants(**self.curvatures(), C_fy=C, b_f=b_f**0.5, b_g=b_g**0.5)

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
        e_y, e_z = square(y.mean(0) - self.ystar_lam(xbar, lam)), square(z.mean(0) - self.ystar(xbar))
        return e_y, e_z, spread(x), spread(y), spread(z)

    def potential(self, d, x, y, z, lam):
        return 2 * self.phi(x.mean(0)) + float(np.dot(d, self.errors(x, y, z, lam)))
