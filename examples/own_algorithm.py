"""A method of your own in twenty lines, checked and compared with its relatives.

AHEAD with heavy-ball momentum on x. `check_method` looks for what a method must not do: let data
travel further than its messages, change the types of its state, or treat agents unequally; and it
says where the method lands.

    python examples/own_algorithm.py [--quick]
"""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

import decibo

Rate = decibo.schedules.Rate  # a positive number, or a function of the step
STEPS = 300 if "--quick" in sys.argv else 2000


class State(NamedTuple):
    """What an agent keeps between two steps."""

    x: jax.Array
    y: jax.Array
    z: jax.Array
    m: jax.Array  # momentum of x


def init(oracle, mix, start):
    return State(start["x"], start["y"], start["y"], jnp.zeros_like(start["x"]))


def step(alpha, gamma, lam, momentum, oracle, mix, s, k, key):
    f_x, f_y = oracle.outer(s.x, s.y)
    g_x, g_y = oracle.inner(s.x, s.y)
    h_x, h_y = oracle.inner(s.x, s.z)
    m = momentum * s.m + f_x + lam(k) * (g_x - h_x)
    x, y, z = mix((s.x, s.y, s.z))
    return State(x - alpha(k) * m, y - gamma(k) * (f_y / lam(k) + g_y), z - gamma(k) * h_y, m)


def view(s):
    return {"x": s.x, "y": s.y, "z": s.z}


@decibo.method
def heavy_ball(
    *, alpha: Rate, gamma: Rate, lam: Rate = 100.0, momentum: float = 0.5
) -> decibo.Algorithm:
    """AHEAD with heavy-ball momentum on x."""
    return decibo.Algorithm(init, Partial(step, alpha, gamma, lam, momentum), view)


def main():
    mine = heavy_ball(alpha=0.005, gamma=0.05, lam=100.0, momentum=0.8)
    print("passed:", ", ".join(decibo.check_method(mine)))

    problem = decibo.problems.quadratic()
    network = decibo.ring(10)
    print("\n|x - x*|^2 at step           0     ", f"{STEPS // 10:4d}   {STEPS:6d}   numbers sent")
    for method in (
        decibo.ahead(alpha=0.005, gamma=0.05, lam=100.0),
        mine,
        decibo.ahead_exact(alpha=0.005, gamma=0.05),
    ):
        end = decibo.solve(
            problem, network, method, steps=STEPS, every=STEPS // 10, measures=["distance_x"]
        )
        errors = end.history["distance_x"]
        print(
            f"{method.name:20s}   {errors[0]:.1e}   {errors[1]:.1e}   {errors[-1]:.1e}  "
            f" {end.cost.numbers}"
        )
    print(
        "Look at: momentum is faster but stops where AHEAD stops. Only ahead_exact continues to"
        " improve."
    )


if __name__ == "__main__":
    main()
