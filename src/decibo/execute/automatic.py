r"""Step sizes that nobody has to choose, for `ahead_exact`.

    (1)  gamma = 1/L_g,   alpha = 1/(2 L_Phi)      curvatures as in curvature.py, agreed by max-consensus; for gamma the
                                                   geometric mean of L_g now and the largest so far: y may come back
    (2)  x rests for the first steps (alpha is all but 0), until y and z have found y*(x0)
    (3)  the curvatures are estimated again, from where the last estimate ended, each time 1.6 times as far
    (4)  alpha grows by 1.5 while xbar moves straight on and the inner level keeps up, |mean g_y| falling: the curvature
         ahead is smaller than any agent's own
    (5)  if xbar's direction grows tenfold while the outer objective does not fall, or a number stops being finite:
         back to a state of before, alpha/2 after (4) and alpha/4 otherwise, which is then the most that alpha may be,
         for a while; if that happens again at once, gamma/2 as well
    (6)  if the outer objective has risen since the last estimate, or it and the direction have not fallen: alpha/4,
         and the second time, if |mean g_y| has not fallen either and (4) is not to blame, gamma/4 as well, since steps
         that are too large may also go round in circles

When a step size h changes, the memory c of exact diffusion, which is h times a gradient at rest, changes with it.
Everything is judged by sums and maxima over agents, which consensus gives to every agent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.execute import loop
from decibo.execute.curvature import Curvature, agree_on_largest, guess, local_curvature
from decibo.problem.oracle import Oracle

if TYPE_CHECKING:
    from decibo.execute.solve import Run

REST = 1e-30  # an alpha with which x does not move
LOOKS = 200  # how often a run is looked at
GROWTH, STRAIGHT = 1.5, 0.95
FURTHER, MANY, FEW = 1.6, 20, 5  # estimates: how far apart, power iterations of the first two, of the later ones
MOST = 30.0  # times 1/(2 L_Phi): what alpha may grow to
WINDOW, NOW, WORSE = 20, 3, 10.0  # looks that are compared, with the last few, and the growth that is a failure
ROUNDING = 1e-20  # of the largest squared direction: below, its ups and downs mean nothing (more in float32)
GIVE_UP = 30  # failures


class Tuner:
    """What the host knows about a run whose step sizes it chooses."""

    def __init__(self, steps: int, given: dict[str, Any]):
        self.look = max(5, steps // LOOKS)
        self.rest = min(max(self.look, steps // 25), 400)
        self.given = given  # numbers that the user chose, or None
        self.notes: list[str] = []
        self.failures = 0
        self.boost = 1.0
        self.next = self.rest
        self.caps = {"alpha": np.inf, "gamma": np.inf}
        self.last_failure = -(10**9)
        self.largest = 0.0
        self.seen: Curvature | None = None
        self.settled = False
        # the direction of x, the outer objective and the direction of c at the last estimate
        self.earlier: tuple[float, float, float] | None = None
        self.inner_rests = self.circled = False
        self._forget()

    def _forget(self) -> None:
        """Begin a new record of looks: squared directions, outer objectives, places of xbar."""
        self.sizes: list[float] = []
        self.values: list[float] = []
        self.trail: list[np.ndarray] = []
        self.inner: list[float] = []

    def begin(self, run: Run) -> None:
        """(1), (2): the inner step from the start, and x at rest."""
        self.older = self.newer = run.state
        eps = float(jnp.finfo(run.problem.y_layout.dtype).eps)
        self.rounding = max(ROUNDING, 100 * (eps * float(self.given["lam"])) ** 2)
        inner, _, exchanges = self._curvature(run)
        self.steepest = inner
        gamma = self.given["gamma"] or 1 / max(inner, 1e-12)
        run.method = run.method.replace(alpha=self.given["alpha"] or REST, gamma=gamma)
        run.world = run.world._replace(core=run.method.core)
        self.notes.append(f"curvatures agreed in {exchanges} exchanges; x rests for {self.rest} steps")

    def after(self, run: Run) -> None:
        """Look at a run that is still finite, and change what has to be changed."""
        value, size, inner, center = _watch(run.program, run.world, run.state)
        self.values.append(float(value))
        self.sizes.append(float(size))
        if self._failing():
            return self.fail(run, f"|direction of x|^2 grew to {self.sizes[-1]:.3g}")
        self.largest = max(self.largest, self.sizes[-1])
        if len(self.sizes) % (WINDOW // 2) == 0:
            self.older, self.newer = self.newer, run.state
        if run.k < self.rest:
            return None
        self.trail = [*self.trail[-3:], np.asarray(center, dtype=np.float64)]
        self.inner = [*self.inner[-3:], float(inner)]
        if run.k >= self.next:
            self.next = int(FURTHER * self.next) + 1
            if self._stuck():
                return self.fail(run, "no progress", circles=True)  # (6)
            self._estimate(run)  # (3)
        elif self._straight() and self.boost < MOST and GROWTH * run.method.settings["alpha"] <= self.caps["alpha"]:
            self.boost *= GROWTH
            self._set(run, alpha=GROWTH * run.method.settings["alpha"])  # (4)
            self.trail, self.inner = self.trail[-1:], self.inner[-1:]
        return None

    def fail(self, run: Run, why: str, circles: bool = False) -> None:
        """(5), (6): smaller steps from an earlier state."""
        self.failures += 1
        again, self.last_failure = run.k - self.last_failure <= 4 * self.look, run.k
        old = run.method.settings
        grown, less = self.boost > 1, 4 if circles or self.boost <= 1 else 2
        inner = (
            4
            if circles and self.circled and self.inner_rests and not grown
            else 2
            if again or run.k <= self.rest
            else 1
        )
        alpha, gamma = max(old["alpha"] / less, REST), old["gamma"] / inner
        self.boost, self.earlier = max(1.0, self.boost / less), None
        run.state = self.newer = self.older
        self.circled = self.circled or circles
        self._forget()
        self.caps = {"alpha": alpha if alpha > REST else np.inf, "gamma": gamma}
        self._set(run, alpha=alpha, gamma=gamma)
        self.notes.append(f"step {run.k}: {why}; back to an earlier state with alpha {alpha:.3g}, gamma {gamma:.3g}")

    @property
    def gave_up(self) -> bool:
        """Whether nothing more can be hoped for."""
        return self.failures >= GIVE_UP

    def report(self, run: Run) -> str:
        """What was chosen, in a sentence or two."""
        s = run.method.settings
        chosen = f"Step sizes chosen automatically: alpha={s['alpha']:.3g}, gamma={s['gamma']:.3g}, lam={s['lam']:g}."
        restarts = f" {self.failures} restarts." if self.failures else ""
        return " " + chosen + restarts

    def _failing(self) -> bool:
        """(5)."""
        if not np.isfinite(self.sizes[-1] + self.values[-1]):
            return True
        if len(self.sizes) < WINDOW // 2 or self.sizes[-1] < self.rounding * self.largest:
            return False
        before, now = self.sizes[-WINDOW:-NOW], self.sizes[-NOW:]
        falls = max(self.values[-NOW:]) < min(self.values[-WINDOW:-NOW])
        return max(now) > WORSE * max(before) and not falls

    def _stuck(self) -> bool:
        """(6)."""
        size, value, inner = max(self.sizes[-NOW:]), max(self.values[-NOW:]), max(self.inner)
        before, self.earlier = self.earlier, (size, value, inner)
        self.inner_rests = before is not None and inner >= 0.5 * before[2]
        if before is None or size < self.rounding * self.largest:
            return False
        risen, resting = value > before[1] + 1e-2 * abs(before[1]), value >= before[1] - 1e-3 * abs(before[1])
        return risen or (resting and size >= 0.5 * before[0])

    def _straight(self) -> bool:
        if len(self.trail) < 4 or self.inner[-1] > 0.9 * max(self.inner[:-1]):
            return False
        moves = np.diff(self.trail, axis=0)
        sizes = np.linalg.norm(moves, axis=1)
        if sizes.min() <= 1e-12 * (1 + np.linalg.norm(self.trail[-1])):
            return False
        return bool(
            min(moves[0] @ moves[1] / sizes[0] / sizes[1], moves[1] @ moves[2] / sizes[1] / sizes[2]) > STRAIGHT
        )

    def _estimate(self, run: Run) -> None:
        inner, outer, _ = self._curvature(run)
        old = run.method.settings
        if run.k - self.last_failure > run.k // 4:  # alpha's limit is tried again after a while
            self.caps["alpha"] *= 2
        self.steepest = max(self.steepest, inner)
        gamma = min(1 / max(np.sqrt(inner * self.steepest), 1e-12), self.caps["gamma"])
        alpha = min(0.5 * self.boost / max(outer, 1e-12), self.caps["alpha"])
        if old["alpha"] > REST:
            alpha = min(alpha, 4 * old["alpha"])
        self._set(run, alpha=alpha, gamma=gamma)
        self.notes.append(f"step {run.k}: L_g {inner:.3g}, L_Phi {outer:.3g}: alpha {alpha:.3g}, gamma {gamma:.3g}")

    def _curvature(self, run: Run) -> tuple[float, float, int]:
        rows = loop.rows_of(run.program, run.world, run.state)
        points = rows["x"], (rows["y"] + rows["z"]) / 2
        before = guess(*points) if self.seen is None else self.seen
        powers = FEW if self.settled else MANY
        self.settled = self.seen is not None
        self.seen = seen = local_curvature(run.program.functions, run.world.data, *points, before, powers)
        inner, exchanges = agree_on_largest(run.network.edges, np.asarray(seen.inner))
        outer, _ = agree_on_largest(run.network.edges, np.asarray(seen.outer))
        return float(inner[0]), float(outer[0]), exchanges

    def _set(self, run: Run, **steps: float) -> None:
        """New step sizes, and memories that fit them."""
        chosen = {name: float(self.given[name] or value) for name, value in steps.items()}
        old = run.method.settings
        run.method = run.method.replace(**chosen)
        run.world = run.world._replace(core=run.method.core)
        new = run.method.settings
        inner = new["gamma"] / old["gamma"]
        ratio = {"x": new["alpha"] / old["alpha"], "y": inner, "z": inner}
        run.state = _scaled(run.state, ratio)


@jax.jit
def _scaled(state: Any, ratio: dict[str, Any]) -> Any:
    (memory,) = state.memory
    return state._replace(memory=({name: (ratio[name] * c).astype(c.dtype) for name, c in memory.items()},))


@partial(jax.jit, static_argnames="program")
def _watch(program: loop.Program, world: loop.World, state: Any) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """mean_i f_i(x_i, c_i) with c = (y + z)/2, the squared mean directions of x and of c, and xbar."""
    _, step, _ = world.core
    direction = step.args[0].direction

    def one(d: Any, v: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        oracle = Oracle(program.functions, d)
        along = direction.at(oracle, v, jnp.int32(0))
        return oracle.outer_value(v.x, (v.y + v.z) / 2), along.x, (along.y + along.z) / 2

    values, outer, inner = jax.vmap(one)(world.data, state.variables)
    square = lambda rows: jnp.sum(jnp.mean(rows, axis=0) ** 2)
    return jnp.mean(values), square(outer), square(inner), jnp.mean(state.variables.x, axis=0)
