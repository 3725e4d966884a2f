r"""How a run is doing, from records taken at regular checks.

    (1)  failing   the squared mean direction of x grew more than 10 (1 + lag)^2 times, compared with 10 to 20 checks
                   before, and the outer objective did not fall; or one of them is not finite. What the inner level
                   still has to catch up, its lag (curvature.py), changes the direction without any harm
    (2)  stuck     since this was last asked, the outer objective has risen, or neither it nor the direction has fallen
                   while xbar moves in circles: its net displacement is a small part of the length of its path
    (3)  straight  the last two moves of xbar point the same way

All three use sums over agents only, which consensus provides to every agent.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.automatic.controller import Agents, Variables
from decibo.measure.measures import Direction
from decibo.parallel.collectives import across, average
from decibo.parallel.placement import EVERYWHERE, SPLIT, Placement
from decibo.problem.problem import Functions, Oracle
from decibo.pytree import Tree

WINDOW = 20  # checks that are compared
NOW = 3  # the last few of them
WORSE = 10.0  # growth of the squared direction that is a failure
RISEN = 1e-2  # relative increase of the outer objective
RESTING = 1e-3  # relative decrease of the outer objective
FALLEN = 0.5  # of the squared direction
DIRECT = 0.3  # displacement as a part of the path
STRAIGHT = 0.95  # cosine of two moves
EMPTY = np.zeros(0)


class Monitor(NamedTuple):
    """Squared directions and outer objectives of the last checks, and points of xbar since the last change.

    rounding   part of the largest squared direction below which its changes mean nothing
    earlier    size and value when `stuck` was last asked; NaN before
    """

    rounding: float = 0.0
    largest: float = 0.0
    sizes: np.ndarray = EMPTY
    values: np.ndarray = EMPTY
    path: np.ndarray = EMPTY
    earlier: np.ndarray = np.full(2, np.nan)

    def add(self, value: float, size: float) -> Monitor:
        """With one more check."""
        return self._replace(
            sizes=np.append(self.sizes[1 - WINDOW :], size),
            values=np.append(self.values[1 - WINDOW :], value),
            largest=float(np.fmax(self.largest, size)) if np.isfinite(size) else self.largest,
        )

    def move(self, point: np.ndarray) -> Monitor:
        """With one more point of xbar."""
        path = self.path.reshape(-1, point.size)
        return self._replace(path=np.concatenate([path, point.reshape(1, -1)]))

    def return_to(self, sizes: np.ndarray, values: np.ndarray) -> Monitor:
        """Back to the checks of an earlier state."""
        return self._replace(sizes=sizes, values=values, path=EMPTY, earlier=np.full(2, np.nan))

    @property
    def at_rest(self) -> bool:
        """Whether all that is left of the direction is rounding."""
        return bool(self.sizes[-1] < self.rounding * self.largest)

    def failing(self, lag: float = 0.0) -> bool:
        """(1)."""
        if not np.isfinite(self.sizes[-1] + self.values[-1]):
            return True
        if len(self.sizes) < WINDOW // 2 + NOW or self.at_rest:
            return False
        falls = max(self.values[-NOW:]) < min(self.values[:-NOW])
        allowed = WORSE * (1 + lag) ** 2
        return bool(max(self.sizes[-NOW:]) > allowed * max(self.sizes[: -WINDOW // 2]) and not falls)

    def stuck(self) -> tuple[bool, Monitor]:
        """(2), and the monitor to ask next time."""
        size = max(self.sizes[-NOW:])
        value = max(self.values[-NOW:])
        asked = self._replace(earlier=np.array([size, value]), path=self.path[-3:])
        size_before, value_before = self.earlier
        if math.isnan(value_before) or self.at_rest:
            return False, asked
        length = np.linalg.norm(np.diff(self.path, axis=0), axis=1).sum()
        circles = np.linalg.norm(self.path[-1] - self.path[0]) <= DIRECT * length
        change = value - value_before
        risen = change > RISEN * abs(value_before)
        resting = change >= -RESTING * abs(value_before) and size >= FALLEN * size_before
        return bool(risen or (resting and circles)), asked

    def straight(self) -> bool:
        """(3)."""
        if len(self.path) < 3:
            return False
        first, second = np.diff(self.path[-3:], axis=0)
        sizes = np.linalg.norm(first), np.linalg.norm(second)
        moves = min(sizes) > 1e-12 * (1 + np.linalg.norm(self.path[-1]))
        return bool(moves and first @ second > STRAIGHT * sizes[0] * sizes[1])


def observe(agents: Agents, at: Variables) -> tuple[float, float, np.ndarray]:
    """The outer objective at (xbar, cbar) with c = (y + z)/2, the squared mean direction of x, and xbar.

    At the means, since mean_i f_i(x_i, c_i) may fall without end where the agents only drift apart.
    """
    value, size, center = _observe(agents.functions, agents.placement, agents.data, agents.direction, at)
    return float(value), float(size), np.asarray(center, dtype=np.float64)


@partial(jax.jit, static_argnames=("functions", "placement"))
def _observe(
    functions: Functions, placement: Placement | None, data: Tree, direction: Direction, at: Variables
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def here(data: Tree, direction: Direction, at: Variables) -> tuple[jax.Array, jax.Array, jax.Array]:
        x = average(at.x)
        c = average(at.y + at.z) / 2

        def one(d: Tree, v: Variables) -> tuple[jax.Array, jax.Array]:
            oracle = Oracle(functions, d)
            return oracle.outer_value(x, c), direction.at(oracle, v, jnp.int32(0)).x

        values, along = jax.vmap(one)(data, at)
        return average(values), jnp.sum(average(along) ** 2), x

    return across(placement, here, (SPLIT, EVERYWHERE, SPLIT), EVERYWHERE)(data, direction, at)
