"""The same methods as the papers' scripts have them: a Python loop over agents, in numpy and with
PyTorch autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from studies.performance.cases import Case

THETA = 0.2
METHODS = ("ahead", "ahead_exact", "sparkle_ed", "d_soba", "sldbo")


def numpy_loop(case: Case, W: np.ndarray, name: str, length: int) -> Callable[[], Any]:
    """A call that runs `length` steps with derivatives written by hand."""
    m = len(W)
    data = {key: np.asarray(value) for key, value in case.problem.data.items()}
    agents = [{key: value[i] for key, value in data.items()} for i in range(m)]
    zeros = lambda size: np.zeros((m, size), np.float32)
    x = zeros(case.problem.x_layout.size)
    y = zeros(case.problem.y_layout.size)
    return lambda: _run(
        _Numpy(case, agents), W.astype(np.float32), name, case.steps, x, y, length, np.stack
    )


def torch_loop(case: Case, W: np.ndarray, name: str, length: int) -> Callable[[], Any]:
    """A call that runs `length` steps with autograd, agent by agent."""
    import torch

    m = len(W)
    data = {key: torch.tensor(np.asarray(value)) for key, value in case.problem.data.items()}
    agents = [{key: value[i] for key, value in data.items()} for i in range(m)]
    x, y = (
        torch.zeros(m, layout.size) for layout in (case.problem.x_layout, case.problem.y_layout)
    )
    weights = torch.tensor(W, dtype=torch.float32)
    return lambda: _run(
        _Torch(case, agents), weights, name, case.steps, x, y, length, torch.stack
    ).numpy()


class _Numpy:
    def __init__(self, case: Case, agents: list[dict[str, Any]]):
        self.case = case
        self.agents = agents

    def f(self, i, x, y):
        return self.case.outer(self.agents[i], x, y)

    def g(self, i, x, y):
        return self.case.inner(self.agents[i], x, y)

    def g_and_products(self, i, x, y, v):
        return self.g(i, x, y)[1], *self.case.products(self.agents[i], x, y, v)


class _Torch:
    def __init__(self, case: Case, agents: list[dict[str, Any]]):
        self.outer, self.inner = case.torch
        self.agents = agents

    def _gradient(self, function, i, x, y, keep=False):
        import torch

        x = x.detach().requires_grad_()
        y = y.detach().requires_grad_()
        value = function(x, y, self.agents[i])
        return torch.autograd.grad(
            value, (x, y), create_graph=keep, allow_unused=True, materialize_grads=True
        ), (x, y)

    def f(self, i, x, y):
        return self._gradient(self.outer, i, x, y)[0]

    def g(self, i, x, y):
        return self._gradient(self.inner, i, x, y)[0]

    def g_and_products(self, i, x, y, v):
        import torch

        (_, g_y), points = self._gradient(self.inner, i, x, y, keep=True)
        return g_y.detach(), *torch.autograd.grad(g_y, points, grad_outputs=v)


def _run(
    oracle: Any, W: Any, name: str, h: dict[str, float], x: Any, y: Any, length: int, stack: Any
) -> Any:
    a = h["alpha"]
    b = h["beta"]
    c = h["gamma"]
    lam = h["lam"]
    m = len(W)

    def penalty(x, y, z):
        out = []
        for i in range(m):
            f_x, f_y = oracle.f(i, x[i], y[i])
            g_x, g_y = oracle.g(i, x[i], y[i])
            h_x, h_y = oracle.g(i, x[i], z[i])
            out.append((f_x + lam * (g_x - h_x), f_y + lam * g_y, h_y))
        return [stack(rows) for rows in zip(*out, strict=True)]

    def symmetric(x, y, z):
        out = []
        for i in range(m):
            f_x, f_y = oracle.f(i, x[i], (y[i] + z[i]) / 2)
            g_x, g_y = oracle.g(i, x[i], y[i])
            h_x, h_y = oracle.g(i, x[i], z[i])
            out.append((f_x + lam / 2 * (g_x - h_x), g_y + f_y / lam, h_y - f_y / lam))
        return [stack(rows) for rows in zip(*out, strict=True)]

    def implicit(x, y, v):
        out = []
        for i in range(m):
            f_x, f_y = oracle.f(i, x[i], y[i])
            g_y, Jv, Hv = oracle.g_and_products(i, x[i], y[i], v[i])
            out.append((f_x - Jv, g_y, Hv - f_y))
        return [stack(rows) for rows in zip(*out, strict=True)]

    s = [x, y, y]
    u = 0 * x
    past = [x, y, y]
    track = [0 * x, 0 * y, 0 * y]
    old = [0 * x, 0 * y, 0 * y]
    for _ in range(length):
        if name == "ahead":
            s = [W @ v - k * d for v, k, d in zip(s, (a, b, c), penalty(*s), strict=True)]
        elif name == "sldbo":
            d = implicit(*s)
            track = [t + n - o for t, n, o in zip(track, d, old, strict=True)]
            s = [W @ v - k * t for v, k, t in zip(s, (a, b, c), track, strict=True)]
            old = d
            track = [W @ t for t in track]
        elif name == "d_soba":
            d_x, d_y, d_v = implicit(*s)
            u = u + THETA * (d_x - u)
            s = [W @ (v - k * d) for v, k, d in zip(s, (a, b, c), (u, d_y, d_v), strict=True)]
        else:  # exact diffusion
            d, k = (
                (symmetric(*s), (a, c, c)) if name == "ahead_exact" else (implicit(*s), (a, b, c))
            )
            if name == "sparkle_ed":
                u = u + THETA * (d[0] - u)
                d[0] = u
            new = [v - h_ * d_ for v, h_, d_ in zip(s, k, d, strict=True)]
            sent = [p + v - o for p, v, o in zip(new, s, past, strict=True)]
            s = [(q + W @ q) / 2 for q in sent]
            past = new
    return s[0]
