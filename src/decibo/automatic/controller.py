r"""Step sizes that nobody has to choose, for `ahead_exact`.

    (1)  gamma = 1/(4 L_g),   alpha = 1/(10 L_Phi)   to begin with; curvatures as in curvature.py, agreed by
                                                     max-consensus. A quicker inner level leaves alpha less room
    (2)  x rests for the first steps (alpha is all but 0), until y and z have found y*(x0)
    (3)  the curvatures are estimated again, from where the last estimate ended, each time 1.6 times as far, and the
         steps follow them: gamma the geometric mean of L_g now and the largest so far, since y may come back
    (4)  every other look measures how far the inner level lags behind (curvature.py). Above 3 and not falling: gamma
         doubles, up to 1.2/L_g, and once there alpha halves, which is taken back if the lag stays as it was. Below
         1/2, or below 3 and falling, while xbar moves straight on: alpha grows on trial, twofold at first, by the
         square root after each alpha that was too large; the curvature ahead may be smaller than any agent's own
    (5)  if the run is failing (looks.py): back to a state of before, and of before the last trial if that is recent.
         If a trial is to blame, alpha becomes what failed over the square root of its growth; otherwise, or again
         soon, alpha/2 or the alpha of then; the third time in a row gamma/2 as well. This is the most that alpha may
         be, for a while
    (6)  if the run is stuck (looks.py): the same with alpha/4 in place of alpha/2

When a step size h changes, the memory c of exact diffusion, which is h times a gradient at rest, changes with it.
Everything is judged by sums and maxima over agents, which consensus gives to every agent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.automatic.curvature import Curvature, Directions, agree_on_largest, guess, lag, local_curvature
from decibo.automatic.monitor import WINDOW, Looks, direction_of, watch
from decibo.execute import loop
from decibo.parallel.collectives import maximum
from decibo.parallel.placement import EVERYWHERE, SPLIT

if TYPE_CHECKING:
    from decibo.execute.run import Run

REST = 1e-30  # an alpha with which x does not move
LOOKS, CHECK = 200, 2  # how often a run is looked at, and every how many looks its lag is measured
INNER, QUICKEST = 0.25, 1.2  # gamma L_g to begin with, and the largest
OUTER, MOST = 0.1, 6.0  # alpha L_Phi to begin with, and the largest
LATE, EARLY, PATIENCE = 3.0, 0.5, 8  # lags, and the looks between two answers to them
USE = 0.7  # half the alpha must bring a lag down to this part, or it was of no use
GROWTH, LEAST = 2.0, 1.1  # of alpha in the first trial, and in the smallest
FURTHER, MANY, FEW = 1.6, 20, 5  # estimates: how far apart, power iterations of the first two, of the later ones
KEPT, GIVE_UP = 6, 30  # states that are kept, failures
ROUNDING = 1e-20  # of the largest squared direction (more in float32)


class Kept(NamedTuple):
    """A state to go back to, the steps of then, and the looks up to there."""

    k: int
    state: Any
    alpha: float
    gamma: float
    sizes: list[float]
    values: list[float]


class Tuner:
    """What the host knows about a run whose step sizes it chooses."""

    def __init__(self, steps: int, given: dict[str, Any]):
        self.look = max(5, steps // LOOKS)
        self.rest = min(max(self.look, steps // 25), 400)
        self.given = given  # numbers that the user chose, or None
        self.notes: list[str] = []
        self.failures = self.row = self.count = 0
        self.next = self.rest  # the step of the next estimate
        self.last_failure = self.last_trial = self.last_answer = -(10**9)
        self.outer, self.inner, self.growth = OUTER, INNER, GROWTH  # alpha L_Phi, gamma L_g, the next trial
        self.cap = np.inf  # the most that alpha may be
        self.late = self.blamed = 0.0  # the lag, and what it was when alpha was made smaller for it
        self.limit = LATE
        self.looks = Looks()
        self.seen: Curvature | None = None
        self.settled = False

    def begin(self, run: Run) -> None:
        """(1), (2): the inner step from the start, and x at rest."""
        eps = float(jnp.finfo(run.problem.y_layout.dtype).eps)
        self.looks.rounding = max(ROUNDING, 100 * (eps * float(self.given["lam"])) ** 2)
        inner, _, exchanges = self._curvature(run)
        self.steepest = self.now = inner
        gamma = self.given["gamma"] or self.inner / inner
        run.method = run.method.replace(alpha=self.given["alpha"] or REST, gamma=gamma)
        run.world = run.world._replace(core=run.method.core)
        self.kept = [Kept(0, run.state, REST, gamma, [], [])]
        self.notes.append(f"curvatures agreed in {exchanges} exchanges; x rests for {self.rest} steps")

    def after(self, run: Run) -> None:
        """Look at a run that is still finite, and change what has to be changed."""
        value, size, center = watch(run.program, run.world, run.state)
        self.looks.add(float(value), float(size))
        if self.looks.failing(self.late):
            return self.fail(run, f"|direction of x|^2 grew to {float(size):.3g}")
        self.count += 1
        if self.count % (WINDOW // 2) == 0:
            self._keep(run)
        if run.k < self.rest:
            return None
        self.looks.path.append(np.asarray(center, dtype=np.float64))
        if run.k >= self.next:
            self.next = int(FURTHER * self.next) + 1
            if self.looks.stuck():
                return self.fail(run, "no progress", less=4)  # (6)
            self._estimate(run)
        elif self.count % CHECK == 0 and not self.looks.at_rest:
            self._balance(run)
        return None

    def fail(self, run: Run, why: str, less: float = 2) -> None:
        """(5), (6): an earlier state, and smaller steps."""
        self.failures += 1
        self.row = self.row + 1 if run.k - self.last_failure <= WINDOW * self.look else 1
        tried = self.last_trial > self.last_failure
        good, old = self._back(run.k), run.method.settings
        run.state = good.state
        self.looks.return_to(good.sizes, good.values)
        halfway, held = tried and self.row == 1, good.alpha if good.alpha > REST else np.inf
        alpha = old["alpha"] / self.growth**0.5 if halfway else max(min(held, old["alpha"] / less), REST)
        gamma = min(good.gamma, old["gamma"]) / (2 if self.row > 2 or run.k <= self.rest else 1)
        self.growth = max(self.growth**0.5, LEAST) if tried else self.growth
        self.outer, self.inner = self.outer * alpha / old["alpha"], self.inner * gamma / old["gamma"]
        self.cap, self.last_failure = alpha if alpha > REST else np.inf, run.k
        self._set(run, alpha=alpha, gamma=gamma)
        self.notes.append(f"step {run.k}: {why}; back to step {good.k} with alpha {alpha:.3g}, gamma {gamma:.3g}")

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

    def _keep(self, run: Run) -> None:
        if run.k > self.kept[-1].k:
            steps, looks = run.method.settings, self.looks
            here = Kept(run.k, run.state, steps["alpha"], steps["gamma"], looks.sizes, looks.values)
            self.kept = [*self.kept[1 - KEPT :], here]

    def _back(self, k: int) -> Kept:
        """The newest state from before the last trial, or old enough; an earlier one if that has failed already."""
        before = max(self.last_trial, k - WINDOW // 2 * self.look)
        failed = self.kept[-1].k if self.row > 1 else k
        self.kept = [kept for kept in self.kept if kept.k <= before and kept.k < failed] or self.kept[:1]
        return self.kept[-1]

    def _balance(self, run: Run) -> None:
        """(4)."""
        before = self.late
        self.late = late = float(_lag(run.program, run.world, run.state, float(self.given["lam"])))
        waited = run.k - self.last_answer >= PATIENCE * self.look
        if waited and USE * self.blamed < late <= self.blamed:
            self._acquit(run)
        elif late > self.limit and late >= before and waited:
            self._answer(run)
        elif (late < EARLY or (late < min(before, LATE) and waited)) and self.looks.straight():
            self._try(run, self.growth * run.method.settings["alpha"])

    def _answer(self, run: Run) -> None:
        """The inner level is too slow: make it quicker, or else wait for it."""
        s, self.last_answer = run.method.settings, run.k
        if 2 * s["gamma"] * self.now <= QUICKEST and not self.given["gamma"]:
            self.inner *= 2
            self._set(run, gamma=2 * s["gamma"])
        else:
            self.outer, self.growth, self.blamed = self.outer / 2, max(self.growth**0.5, LEAST), self.late
            self._set(run, alpha=s["alpha"] / 2)
        s = run.method.settings
        self.notes.append(f"step {run.k}: lag {self.late:.2g}: alpha {s['alpha']:.3g}, gamma {s['gamma']:.3g}")

    def _acquit(self, run: Run) -> None:
        """Half the alpha, and the lag is about what it was: x is not why the inner level is late. Take it back."""
        self.blamed, self.limit, self.last_answer = 0.0, max(LATE, 1.2 * self.late), run.k
        self.outer *= 2
        self._set(run, alpha=2 * run.method.settings["alpha"])

    def _try(self, run: Run, alpha: float) -> None:
        """A larger alpha, and a state to go back to."""
        if alpha <= self.cap and self.outer < MOST:
            self._keep(run)
            self.last_trial = self.last_answer = run.k
            self.outer, self.looks.path = self.growth * self.outer, self.looks.path[-1:]
            self._set(run, alpha=alpha)

    def _estimate(self, run: Run) -> None:
        """(3)."""
        inner, outer, _ = self._curvature(run)
        old = run.method.settings["alpha"]
        if run.k - self.last_failure > run.k // 4:  # a limit is tried again after a while
            self.cap *= 2
        self.steepest, self.now = max(self.steepest, inner), inner
        gamma = min(self.inner / np.sqrt(inner * self.steepest), QUICKEST / inner)
        alpha = min(self.outer / outer, self.cap)
        if old > REST:
            alpha = min(alpha, (self.growth**2 if self.late < EARLY else 1) * old)
        self.outer = alpha * outer
        self._set(run, alpha=alpha, gamma=gamma)
        self.notes.append(f"step {run.k}: L_g {inner:.3g}, L_Phi {outer:.3g}: alpha {alpha:.3g}, gamma {gamma:.3g}")

    def _curvature(self, run: Run) -> tuple[float, float, int]:
        powers = FEW if self.settled else MANY
        self.settled = self.seen is not None
        v = run.state.variables
        along = (v.y, v.x) if self.seen is None else (self.seen.along_y, self.seen.along_x)
        seen = _curvature(run.program, run.world, run.state, along, self.seen is None, powers)
        self.seen, inner, outer = seen
        # On one device all estimates are at hand, and the exchanges of max-consensus can be counted.
        exchanges = 0 if run.place else agree_on_largest(run.network.edges, np.asarray(seen[0].inner))[1]
        return max(float(inner), 1e-12), max(float(outer), 1e-12), exchanges

    def _set(self, run: Run, **steps: float) -> None:
        """New step sizes, and memories that fit them."""
        chosen = {name: float(self.given[name] or value) for name, value in steps.items()}
        old = run.method.settings
        run.method = run.method.replace(**chosen)
        run.world = run.world._replace(core=run.method.core)
        new = run.method.settings
        inner = new["gamma"] / old["gamma"]
        run.state = _scaled(run.state, {"x": new["alpha"] / old["alpha"], "y": inner, "z": inner})


@partial(jax.jit, static_argnames="program")
def _curvature(
    program: loop.Program, world: loop.World, state: Any, along: Directions, fresh: bool, powers: int
) -> tuple[Curvature, jax.Array, jax.Array]:
    """Every agent's estimates, and the largest of them, which max-consensus gives to every agent.

    From where the one before ended; if this is a fresh one, `along` only says what a direction looks like.
    """

    def here(world: loop.World, state: Any, along: Directions, fresh: Any, powers: Any) -> Any:
        v = state.variables
        points = v.x, (v.y + v.z) / 2
        first = [jnp.where(fresh, new, old) for new, old in zip(guess(*points), along, strict=True)]
        seen = local_curvature(program.functions, world.data, *points, first, powers)
        largest = lambda values: maximum(jnp.max(jnp.where(jnp.isfinite(values), values, 0)))
        return seen, largest(seen.inner), largest(seen.outer)

    outs = (SPLIT, EVERYWHERE, EVERYWHERE)
    ins = (loop.WORLD, SPLIT, SPLIT, EVERYWHERE, EVERYWHERE)
    return loop.across(program.place, here, ins, outs)(world, state, along, fresh, powers)


@partial(jax.jit, static_argnames="program")
def _lag(program: loop.Program, world: loop.World, state: Any, lam: float) -> jax.Array:
    def here(world: loop.World, state: Any, lam: Any) -> jax.Array:
        return lag(program.functions, world.data, state.variables, direction_of(world), lam)

    return loop.across(program.place, here, (loop.WORLD, SPLIT, EVERYWHERE), EVERYWHERE)(world, state, lam)


@jax.jit
def _scaled(state: Any, ratio: dict[str, Any]) -> Any:
    (memory,) = state.memory
    return state._replace(memory=({name: (ratio[name] * c).astype(c.dtype) for name, c in memory.items()},))
