r"""What all sites record together, by exchanges with neighbours at every record (collectives.py).

    (1)  mean_outer, mean_inner   the means over all sites of f_i(x_i, y_i) and g_i(x_i, y_i)
    (2)  residual                 max of |mean of the directions of x|, |mean of g_y|, |x_i - mean
                                  x|, |y_i - mean y|: how far the sites are from a fixed point, all
                                  of them together, by first gradients only

All sites get the same bits, so that all of them end at the same step when a target is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Core
from decibo.measure.measures import Snapshot
from decibo.problem.problem import Functions, Oracle
from decibo.programs import jitted
from decibo.pytree import Tree
from decibo.run.run import Ended, missed
from decibo.run.solution import Status
from decibo.silo.collectives import Collectives
from decibo.silo.job import RESIDUAL
from decibo.silo.site_run import SiteRun

MEANS = ("mean_outer", "mean_inner")


@jitted()
def _own(
    functions: Functions, core: Core, data: Tree, state: Tree, k: jax.Array
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """The objectives of a site; and x, the answer and where its own data would move them."""
    rows = core.view(state)
    x = rows["x"]
    y = rows[core.answer]
    oracle = Oracle(functions, jax.tree.map(lambda leaf: leaf[0], data))
    values = {"mean_outer": oracle.outer_value(x, y), "mean_inner": oracle.inner_value(x, y)}
    if core.direction is None:
        return values, {}
    stacked = {name: row[None] for name, row in rows.items()}
    here = Snapshot(functions, data, stacked, k, {}, core.direction, core.answer)
    moves = {"outer": here.mean_direction.x, "inner": oracle.inner(x, y).y}
    return values, {"x": x, "y": y, **moves}


@dataclass(eq=False)
class NetworkMeasures:
    """The measures of all sites, as one of them finds them with the others.

    mean   x and y on average over the sites, at the last record
    """

    site: SiteRun
    collectives: Collectives
    mean: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return self.site.job.together

    def __call__(self, state: Tree, step: int) -> dict[str, float]:
        """Those of this step, which all sites call together."""
        agent = self.site.agent
        core = agent.inputs.core
        values, points = _own(agent.functions, core, self.site.rows, state, jnp.int32(step))
        own = {name: np.atleast_1d(values[name]) for name in MEANS if name in self.names}
        if RESIDUAL in self.names:
            own |= {name: np.asarray(row) for name, row in points.items()}
        total = self.collectives.sum(np.concatenate(list(own.values())).astype(np.float64))
        ends = np.cumsum([row.size for row in own.values()])
        parts = np.split(total / len(self.collectives.names), ends[:-1])
        mean = dict(zip(own, parts, strict=True))
        found = {name: float(mean[name][0]) for name in own.keys() & set(MEANS)}
        if RESIDUAL in self.names:
            largest = lambda row: float(np.abs(row).max(initial=0))
            apart = max(largest(np.asarray(own[name], float) - mean[name]) for name in ("x", "y"))
            furthest = float(self.collectives.maximum(np.array([apart]))[0])
            found[RESIDUAL] = max(largest(mean["outer"]), largest(mean["inner"]), furthest)  # (2)
            self.mean = {name: mean[name] for name in ("x", "y")}
        return found

    def ended(self, history: Mapping[str, np.ndarray]) -> Ended | None:
        """Whether the last record has reached all targets, which an earlier one had missed."""
        targets = dict(self.site.job.until or {})
        here = all(history[name][-1] <= value for name, value in targets.items())
        if not targets or not here or not missed(dict(history), targets):
            return None
        goals = " and ".join(f"{name} <= {value:g}" for name, value in targets.items())
        return Ended(Status.converged, f"Reached {goals} at step {history['step'][-1]}.")
