r"""What a run looks like from time to time, and whether that is good.

    (1)  failing   the squared mean direction of x grew more than 10 (1 + lag)^2 times, compared with 10 to 20 looks
                   before, and the outer objective did not fall; or one of them is not finite. What the inner level
                   still has to catch up, its lag (curvature.py), changes the direction without any harm
    (2)  stuck     since the last time asked the outer objective has risen, or neither it nor the direction has fallen
                   while xbar goes round in circles: what it got on is a small part of the way it went
    (3)  straight  the last two moves of xbar point the same way

All three are made of sums over agents, which consensus gives to every agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.execute import loop
from decibo.parallel.collectives import average
from decibo.parallel.placement import EVERYWHERE, SPLIT
from decibo.problem.oracle import Oracle

WINDOW, NOW, WORSE = 20, 3, 10.0  # looks that are compared, with the last few, and the growth that is a failure
RISEN, RESTING, FALLEN = 1e-2, 1e-3, 0.5  # of the outer objective, relatively, and of the squared direction
DIRECT, STRAIGHT = 0.3, 0.95  # part of the way, and a cosine


@dataclass
class Looks:
    """Squared directions and outer objectives of the last looks, and places of xbar since the last change."""

    rounding: float = 0.0  # of the largest squared direction: below, its ups and downs mean nothing
    largest: float = 0.0
    sizes: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    path: list[np.ndarray] = field(default_factory=list)
    earlier: tuple[float, float] | None = None

    def add(self, value: float, size: float) -> None:
        """One more look."""
        self.sizes, self.values = [*self.sizes[1 - WINDOW :], size], [*self.values[1 - WINDOW :], value]
        self.largest = np.fmax(self.largest, size) if np.isfinite(size) else self.largest

    def return_to(self, sizes: list[float], values: list[float]) -> None:
        """Go back to the looks of then."""
        self.sizes, self.values, self.path, self.earlier = sizes, values, [], None

    @property
    def at_rest(self) -> bool:
        """Whether all that is left of the direction is rounding."""
        return self.sizes[-1] < self.rounding * self.largest

    def failing(self, lag: float = 0.0) -> bool:
        """(1)."""
        if not np.isfinite(self.sizes[-1] + self.values[-1]):
            return True
        if len(self.sizes) < WINDOW // 2 + NOW or self.at_rest:
            return False
        falls = max(self.values[-NOW:]) < min(self.values[:-NOW])
        allowed = WORSE * (1 + lag) ** 2
        return max(self.sizes[-NOW:]) > allowed * max(self.sizes[: -WINDOW // 2]) and not falls

    def stuck(self) -> bool:
        """(2)."""
        size, value = max(self.sizes[-NOW:]), max(self.values[-NOW:])
        before, self.earlier = self.earlier, (size, value)
        way = np.linalg.norm(np.diff(self.path, axis=0), axis=1).sum()
        circles = np.linalg.norm(self.path[-1] - self.path[0]) <= DIRECT * way
        self.path = self.path[-3:]
        if before is None or self.at_rest:
            return False
        risen = value - before[1] > RISEN * abs(before[1])
        resting = value - before[1] >= -RESTING * abs(before[1]) and size >= FALLEN * before[0]
        return risen or bool(resting and circles)

    def straight(self) -> bool:
        """(3)."""
        if len(self.path) < 3:
            return False
        first, second = np.diff(self.path[-3:], axis=0)
        sizes = np.linalg.norm(first), np.linalg.norm(second)
        moves = min(sizes) > 1e-12 * (1 + np.linalg.norm(self.path[-1]))
        return bool(moves and first @ second > STRAIGHT * sizes[0] * sizes[1])


def direction_of(world: loop.World) -> Any:
    """The direction of a method that is a direction times a consensus strategy."""
    return world.core.direction


@partial(jax.jit, static_argnames="program")
def watch(program: loop.Program, world: loop.World, state: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The outer objective at (xbar, cbar) with c = (y + z)/2, the squared mean direction of x, and xbar.

    At the means, since mean_i f_i(x_i, c_i) may fall without end where the agents only drift apart.
    """

    def here(world: loop.World, state: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        direction, v = direction_of(world), state.variables
        x, c = average(v.x), average(v.y + v.z) / 2

        def one(d: Any, v: Any) -> tuple[jax.Array, jax.Array]:
            oracle = Oracle(program.functions, d)
            return oracle.outer_value(x, c), direction.at(oracle, v, jnp.int32(0)).x

        values, along = jax.vmap(one)(world.data, v)
        return average(values), jnp.sum(average(along) ** 2), x

    return loop.across(program.place, here, (loop.WORLD, SPLIT), EVERYWHERE)(world, state)
