"""A small heterogeneous problem twice: for decibo, and in plain numpy with derivatives written by
hand.

f_i(x, y) = |y - b_i|^2 / 2 + x' C_i x / 2 + x' D_i y
g_i(x, y) = y' H_i y / 2 - x' J_i y + e_i' y + bend sum cos(y)
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import decibo

BEND = 0.1


@dataclass
class Twin:
    """The numpy side: every agent's derivatives as functions of flat vectors."""

    m: int
    n: int
    r: int
    data: dict[str, np.ndarray]

    def f_x(self, i, x, y):
        return self.data["C"][i] @ x + self.data["D"][i] @ y

    def f_y(self, i, x, y):
        return y - self.data["b"][i] + self.data["D"][i].T @ x

    def g_x(self, i, x, y):
        return -self.data["J"][i] @ y

    def g_y(self, i, x, y):
        return (
            self.data["H"][i] @ y - self.data["J"][i].T @ x + self.data["e"][i] - BEND * np.sin(y)
        )

    def H(self, i, x, y, v):
        return self.data["H"][i] @ v - BEND * np.cos(y) * v

    def J(self, i, x, y, v):
        return -self.data["J"][i] @ v

    def starts(self):
        random = np.random.default_rng(7)
        return {
            name: random.normal(size=(self.m, size))
            for name, size in (("x", self.n), ("y", self.r), ("z", self.r))
        }


def _flat(tree):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def outer(x, y, d):
    x, y = _flat(x), _flat(y)
    return 0.5 * jnp.sum((y - d["b"]) ** 2) + 0.5 * x @ d["C"] @ x + x @ d["D"] @ y


def inner(x, y, d):
    x, y = _flat(x), _flat(y)
    return 0.5 * y @ d["H"] @ y - x @ d["J"] @ y + d["e"] @ y + BEND * jnp.sum(jnp.cos(y))


def make(m: int, n: int, r: int, seed: int = 0) -> Twin:
    random = np.random.default_rng(seed)
    spd = lambda size: np.stack(
        [np.eye(size) + 0.2 * (a @ a.T) / size for a in random.normal(size=(m, size, size))]
    )
    data = {
        "C": spd(n),
        "H": spd(r),
        "D": 0.3 * random.normal(size=(m, n, r)),
        "J": 0.5 * random.normal(size=(m, n, r)),
    }
    data |= {"b": random.normal(size=(m, r)), "e": random.normal(size=(m, r))}
    return Twin(m, n, r, data)


SHAPES = {
    "scalar": (0.0, 0.0),
    "vector": (np.zeros(3), np.zeros(4)),
    "nested": (
        {"a": np.zeros(2), "b": {"c": 0.0}},
        {"u": np.zeros((2, 2)), "w": (np.zeros(3), 0.0)},
    ),
}


def problem(shape: str, m: int) -> tuple[decibo.Problem, Twin]:
    x0, y0 = SHAPES[shape]
    size = lambda tree: sum(np.size(leaf) for leaf in jax.tree.leaves(tree))
    twin = make(m, size(x0), size(y0))
    return decibo.Problem(outer, inner, twin.data, x0, y0), twin


def as_start(problem: decibo.Problem, rows: dict[str, np.ndarray]) -> dict:
    layouts = {"x": problem.x_layout}
    return {
        name: layouts.get(name, problem.y_layout).unravel_agents(jnp.asarray(row))
        for name, row in rows.items()
    }


def as_rows(problem: decibo.Problem, solution: decibo.Solution) -> dict[str, np.ndarray]:
    layouts = {"x": problem.x_layout}
    return {
        name: np.asarray(layouts.get(name, problem.y_layout).ravel_agents(tree))
        for name, tree in vars(solution.agents).items()
    }


NETWORKS = {
    "path": lambda: decibo.networks.path(6),
    "ring": lambda: decibo.ring(6),
    "star": lambda: decibo.networks.star(6),
    "erdos_renyi": lambda: decibo.networks.erdos_renyi(6, 0.5, seed=1),
}
