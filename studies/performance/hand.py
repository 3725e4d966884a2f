"""What a careful user of jax would write for each table method: stacked rows, W as a matrix, one
jitted scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

THETA = 0.2
TAU = 0.4  # of lopa, and its weight of what is new


class Hand:
    """Gradients of all agents at once, and one step of each method as its paper prints it, in
    rows."""

    def __init__(self, problem: Any, W: Any, steps: dict[str, float]):
        self.f = jax.vmap(jax.grad(problem.outer, argnums=(0, 1)))
        self.g = jax.vmap(jax.grad(problem.inner, argnums=(0, 1)))
        inner = jax.grad(problem.inner, argnums=(0, 1))
        one = lambda x, y, v, d: jax.jvp(lambda y: inner(x, y, d), (y,), (v,))[1]
        self.products = jax.vmap(one)
        self.W = jnp.asarray(W, jnp.float32)
        self.a = steps["alpha"]
        self.b = steps["beta"]
        self.c = steps["gamma"]
        self.lam = steps["lam"]
        self.data = problem.data
        self.rows = jnp.zeros((len(W), problem.x_layout.size), jnp.float32)
        self.columns = jnp.zeros((len(W), problem.y_layout.size), jnp.float32)

    def penalty(self, x, y, z, D):
        f_x, f_y = self.f(x, y, D)
        g_x, g_y = self.g(x, y, D)
        h_x, h_y = self.g(x, z, D)
        return f_x + self.lam * (g_x - h_x), f_y + self.lam * g_y, h_y

    def symmetric(self, x, y, z, D):
        f_x, f_y = self.f(x, (y + z) / 2, D)
        g_x, g_y = self.g(x, y, D)
        h_x, h_y = self.g(x, z, D)
        return f_x + self.lam / 2 * (g_x - h_x), g_y + f_y / self.lam, h_y - f_y / self.lam

    def implicit(self, x, y, v, D):
        f_x, f_y = self.f(x, y, D)
        Jv, Hv = self.products(x, y, v, D)
        return f_x - Jv, self.g(x, y, D)[1], Hv - f_y

    # one step of each: (state, data) -> state

    def ahead(self, s, D):
        x, y, z = s
        dx, dy, dz = self.penalty(x, y, z, D)
        return self.W @ x - self.a * dx, self.W @ y - self.b * dy, self.W @ z - self.c * dz

    def ahead_exact(self, s, D):
        (x, y, z), past = s
        d = self.symmetric(x, y, z, D)
        return self.diffuse((x, y, z), past, d, (self.a, self.c, self.c))

    def sparkle_ed(self, s, D):
        (x, y, v), past, u = s
        dx, dy, dv = self.implicit(x, y, v, D)
        u = u + THETA * (dx - u)
        return *self.diffuse((x, y, v), past, (u, dy, dv), (self.a, self.b, self.c)), u

    def diffuse(self, s, past, d, h):  # exact diffusion with the memory psi of the last adaptation
        new = [s_ - h_ * d_ for s_, h_, d_ in zip(s, h, d, strict=True)]
        sent = [p + s_ - old for p, s_, old in zip(new, s, past, strict=True)]
        return tuple((q + self.W @ q) / 2 for q in sent), tuple(new)

    def sparkle_extra(self, s, D):
        (x, y, v), (qx, qy, qv), u = s  # q: the sum of (I - W) s / 2 so far
        dx, dy, dv = self.implicit(x, y, v, D)
        u = u + THETA * (dx - u)
        new = []
        sums = []
        for s_, q, d, h in ((x, qx, u, self.a), (y, qy, dy, self.b), (v, qv, dv, self.c)):
            half = (s_ + self.W @ s_) / 2
            q = q + s_ - half
            new.append(half - h * d - q)
            sums.append(q)
        return tuple(new), tuple(sums), u

    def sparkle_gt(self, s, D):
        (x, y, v), track, old, u = s
        dx, dy, dv = self.implicit(x, y, v, D)
        u = u + THETA * (dx - u)
        d = (u, dy, dv)
        track = tuple(self.W @ (t + n - o) for t, n, o in zip(track, d, old, strict=True))
        h = (self.a, self.b, self.c)
        return (
            tuple(self.W @ (s_ - k * t) for s_, k, t in zip((x, y, v), h, track, strict=True)),
            track,
            d,
            u,
        )

    def d_soba(self, s, D):
        x, y, v, u = s
        dx, dy, dv = self.implicit(x, y, v, D)
        new = self.W @ (x - self.a * u), self.W @ (y - self.b * dy), self.W @ (v - self.c * dv)
        return *new, u + THETA * (dx - u)  # x follows the old average

    def lopa(self, s, D):
        x, y, v, u = s
        dx, dy, dv = self.implicit(x, y, v, D)
        x = x + TAU * (self.W @ x - self.a * u - x)
        return x, y - self.b * dy, v - self.c * dv, u + TAU * (dx - u)

    def sldbo(self, s, D):
        return self.tracked(s, self.implicit(*s[0], D), (self.a, self.b, self.c))

    def penalty_tracking(self, s, D):
        return self.tracked(s, self.penalty(*s[0], D), (self.a, self.b, self.c))

    def gt_gda(self, s, D):
        dx, dy = self.f(*s[0], D)
        return self.tracked(s, (dx, -dy), (self.a, self.b))

    def tracked(self, s, d, h):  # gradient tracking
        own, track, old = s
        track = tuple(t + n - o for t, n, o in zip(track, d, old, strict=True))
        new = tuple(self.W @ v - k * t for v, k, t in zip(own, h, track, strict=True))
        return new, tuple(self.W @ t for t in track), d

    def dgda(self, s, D):
        x, y = s
        dx, dy = self.f(x, y, D)
        return self.W @ x - self.a * dx, self.W @ y + self.b * dy

    def ahead_minimax(self, s, D):
        x, y, z = s
        f_x, f_y = self.f(x, y, D)
        h_x, h_y = self.f(x, z, D)
        less = 1 - self.lam
        new_x = self.W @ x - self.a * (less * f_x + self.lam * h_x)
        return new_x, self.W @ y - self.b * less * f_y, self.W @ z + self.c * h_y

    def mdbo(self, s, D, N=10):
        (x, y), (tx, ty), (ux, uy) = s
        f_x, f_y = self.f(x, y, D)
        v = self.c * f_y
        v = jax.lax.fori_loop(
            0, N, lambda _, v: v - self.c * (self.products(x, y, v, D)[1] - f_y), v
        )
        new_x = ux + THETA * (f_x - self.products(x, y, v, D)[0] - ux)
        new_y = uy + THETA * (self.g(x, y, D)[1] - uy)
        tx = tx + new_x - ux
        ty = ty + new_y - uy
        return (
            (self.W @ x - self.a * tx, self.W @ y - self.b * ty),
            (self.W @ tx, self.W @ ty),
            (new_x, new_y),
        )

    def start(self, name: str) -> Any:
        x = self.rows
        y = self.columns
        three = (x, y, y)
        two = (x, y)
        return {
            "ahead": three,
            "ahead_exact": (three, three),
            "sparkle_ed": (three, three, x),
            "sparkle_extra": (three, three, x),
            "sparkle_gt": (three, three, three, x),
            "d_soba": (*three, x),
            "lopa": (*three, x),
            "sldbo": (three, three, three),
            "penalty_tracking": (three, three, three),
            "gt_gda": (two, two, two),
            "dgda": two,
            "ahead_minimax": three,
            "mdbo": (two, two, two),
        }[name]


METHODS = tuple(name for name in vars(Hand) if name in {
    "ahead", "ahead_exact", "ahead_minimax", "dgda", "gt_gda", "sldbo", "d_soba", "sparkle_gt",
    "sparkle_extra", "sparkle_ed", "lopa", "mdbo",
})  # fmt: skip


def hand_written(
    problem: Any, W: Any, steps: dict[str, float], name: str, length: int
) -> Callable[[], Any]:
    """A call that runs `length` steps and gives x."""
    hand = Hand(problem, W, steps)
    step = getattr(hand, name)

    @jax.jit
    def run(data: Any, state: Any) -> Any:
        return jax.lax.scan(lambda s, _: (step(s, data), None), state, None, length=length)[0]

    start = hand.start(name)
    return lambda: jax.tree.leaves(run(hand.data, start))[0]
