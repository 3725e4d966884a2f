r"""Step sizes that nobody has to choose, for the symmetric penalty with exact diffusion (`ahead_exact`).

    (1)  gamma = 1/(4 L_g),   alpha = 1/(10 L_Phi)   to begin with; curvatures as in curvature.py, agreed by
                                                     max-consensus. A quicker inner level leaves alpha less room
    (2)  alpha is all but 0 for the first steps, until y and z have found y*(x0)
    (3)  the curvatures are estimated again, from where the last estimate ended, at steps that grow by a factor of 1.6,
         and the steps follow: gamma uses the geometric mean of L_g now and the largest so far, since y may come back
    (4)  every other check measures the lag of the inner level (curvature.py), and answers:

             lag                            then
             above 3, not falling           gamma doubles, up to 1.2/L_g; once there alpha halves
             unchanged by that halving      alpha doubles again: x was not the cause
             below 1/2, or below 3 and      alpha grows on trial while xbar moves straight on, twofold at first and by
             falling                        the square root after each alpha that was too large, since the curvature
                                            ahead may be smaller than any agent's own

    (5)  if the run is failing (monitor.py): back to an earlier state, before the last trial if that is recent. If a
         trial is to blame, alpha becomes what failed over the square root of its growth; otherwise, or again soon,
         alpha/2 or the alpha of then; the third time in a row gamma/2 as well. For a while alpha may not exceed this
    (6)  if the run is stuck (monitor.py): the same with alpha/4 in place of alpha/2

When a step size h changes, the memory c of exact diffusion, which is h times a gradient at rest, changes with it.
Every decision uses sums and maxima over agents only, which consensus provides to every agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from decibo.automatic import monitor
from decibo.automatic.controller import Agents, RunState, Variables
from decibo.automatic.curvature import Curvature, Directions, guess, lag, local_curvature
from decibo.automatic.monitor import WINDOW, Monitor
from decibo.errors import InputError
from decibo.formatting import plural
from decibo.measure.measures import Direction
from decibo.parallel.collectives import across, maximum
from decibo.parallel.placement import EVERYWHERE, SPLIT, Placement
from decibo.problem.problem import Functions
from decibo.pytree import Tree
from decibo.validate import positive

REST = 1e-30  # an alpha with which x does not move
CHECKS = 200  # of a run
LAG_EVERY = 2  # checks between two measurements of the lag
INNER = 0.25  # gamma L_g to begin with
QUICKEST = 1.2  # the largest gamma L_g
OUTER = 0.1  # alpha L_Phi to begin with
MOST = 6.0  # the largest alpha L_Phi
LATE = 3.0  # a lag that is answered by smaller steps of x or larger ones of y
EARLY = 0.5  # a lag that leaves room for a larger alpha
PATIENCE = 8  # checks between two answers to a lag
USE = 0.7  # half the alpha must reduce a lag to this part, or it was of no use
GROWTH = 2.0  # of alpha in the first trial
LEAST = 1.1  # of alpha in the smallest trial
FURTHER = 1.6  # how far apart estimates are
MANY = 20  # power iterations of the first two estimates
FEW = 5  # of the later ones
SAVED = 6  # states to return to
GIVE_UP = 30  # failures
ROUNDING = 1e-20  # of the largest squared direction (more in float32)
NEVER = -(10**9)  # a step before all others


class Saved(NamedTuple):
    """A state to return to, with the step sizes and the checks of then."""

    step: int
    agents: Tree
    alpha: float
    gamma: float
    sizes: np.ndarray
    values: np.ndarray


class StepsState(NamedTuple):
    """What the controller remembers between chunks."""

    interval: int  # steps between two checks
    rest: int  # steps during which x rests
    estimate_at: int  # the step of the next estimate
    estimates: int
    curvature: Curvature  # the last estimate of every agent
    inner_now: float  # the last estimate of L_g
    inner_largest: float
    outer: float  # alpha L_Phi
    inner: float  # gamma L_g
    growth: float  # of alpha in the next trial
    cap: float  # the most that alpha may be
    lag: float
    lag_at_halving: float  # when alpha was last halved for it; 0 if that is settled
    lag_limit: float  # above which a lag is answered
    failures: int
    failures_in_a_row: int
    last_failure: int  # the steps of the last failure, trial and answer
    last_trial: int
    last_answer: int
    checks: int
    monitor: Monitor
    saved: tuple[Saved, ...]  # always as many; the last one repeated while there are fewer
    saved_count: int


@dataclass(frozen=True)
class AutomaticSteps:
    """The controller that chooses alpha and gamma; a number that is given stays."""

    alpha: float | None
    gamma: float | None
    lam: float

    @property
    def settings(self) -> dict[str, float | None]:
        """The settings that it chooses, each with the number it must keep or None."""
        return {"alpha": self.alpha, "gamma": self.gamma}

    def init(self, agents: Agents, run: RunState, steps: int) -> RunState:
        """(1), (2): gamma from the curvature at the start, and x at rest."""
        interval = max(5, steps // CHECKS)
        rest = min(max(interval, steps // 25), 400)
        eps = float(jnp.finfo(agents.functions.y.dtype).eps)
        v = run.agents.variables
        curvature, inner, _ = _estimated(agents, v, (v.y, v.x), estimates=0)
        gamma = self.gamma or INNER / inner
        start = Saved(0, run.agents, REST, gamma, monitor.EMPTY, monitor.EMPTY)
        state = StepsState(
            interval=interval,
            rest=rest,
            estimate_at=rest,
            estimates=1,
            curvature=curvature,
            inner_now=inner,
            inner_largest=inner,
            outer=OUTER,
            inner=INNER,
            growth=GROWTH,
            cap=np.inf,
            lag=0.0,
            lag_at_halving=0.0,
            lag_limit=LATE,
            failures=0,
            failures_in_a_row=0,
            last_failure=NEVER,
            last_trial=NEVER,
            last_answer=NEVER,
            checks=0,
            monitor=Monitor(rounding=max(ROUNDING, 100 * (eps * self.lam) ** 2)),
            saved=(start,) * SAVED,
            saved_count=1,
        )
        return run._replace(settings={"alpha": self.alpha or REST, "gamma": gamma}, controller=state)

    def interval(self, run: RunState) -> int:
        """The number of steps between two checks."""
        return run.controller.interval

    def update(self, agents: Agents, run: RunState) -> RunState:
        """Check a run that is still finite, and change what has to be changed."""
        value, size, center = monitor.observe(agents, run.agents.variables)
        s: StepsState = run.controller
        s = s._replace(monitor=s.monitor.add(value, size))
        if s.monitor.failing(s.lag):
            return self._return(_with(run, s))
        s = s._replace(checks=s.checks + 1)
        if s.checks % (WINDOW // 2) == 0:
            s = _save(run, s)
        if run.step < s.rest:
            return _with(run, s)
        s = s._replace(monitor=s.monitor.move(center))
        if run.step >= s.estimate_at:
            stuck, asked = s.monitor.stuck()
            s = s._replace(estimate_at=int(FURTHER * s.estimate_at) + 1, monitor=asked)
            run = _with(run, s)
            return self._return(run, less=4) if stuck else self._estimate(agents, run)  # (6)
        if s.checks % LAG_EVERY == 0 and not s.monitor.at_rest:
            return self._balance(agents, _with(run, s))
        return _with(run, s)

    def on_nonfinite(self, agents: Agents, run: RunState) -> RunState | None:
        """(5), unless it has happened too often."""
        return None if run.controller.failures >= GIVE_UP else self._return(run)

    def troubled(self, run: RunState) -> bool:
        """Whether the run had to return to an earlier state more than once."""
        return run.controller.failures > 1

    def summary(self, run: RunState) -> str:
        """What was chosen, and how often the run had to return to an earlier state."""
        alpha = run.settings["alpha"]
        gamma = run.settings["gamma"]
        failures = run.controller.failures
        restarts = f" {plural(failures, 'restart')}." if failures else ""
        return f"Step sizes chosen automatically: alpha={alpha:.3g}, gamma={gamma:.3g}, lam={self.lam:g}.{restarts}"

    def _return(self, run: RunState, less: float = 2) -> RunState:
        """(5), (6): an earlier state, and smaller steps."""
        s: StepsState = run.controller
        again = run.step - s.last_failure <= WINDOW * s.interval
        in_a_row = s.failures_in_a_row + 1 if again else 1
        tried = s.last_trial > s.last_failure
        earlier = _earlier(run.step, s, in_a_row)
        target = earlier[-1]
        old_alpha = run.settings["alpha"]
        old_gamma = run.settings["gamma"]
        if tried and in_a_row == 1:
            alpha = old_alpha / s.growth**0.5
        else:
            alpha = max(min(target.alpha if target.alpha > REST else np.inf, old_alpha / less), REST)
        gamma = min(target.gamma, old_gamma) / (2 if in_a_row > 2 or run.step <= s.rest else 1)
        s = s._replace(
            failures=s.failures + 1,
            failures_in_a_row=in_a_row,
            last_failure=run.step,
            growth=max(s.growth**0.5, LEAST) if tried else s.growth,
            outer=s.outer * alpha / old_alpha,
            inner=s.inner * gamma / old_gamma,
            cap=alpha if alpha > REST else np.inf,
            monitor=s.monitor.return_to(target.sizes, target.values),
            **_padded(earlier),
        )
        return self._set(run._replace(agents=target.agents, controller=s), alpha=alpha, gamma=gamma)

    def _balance(self, agents: Agents, run: RunState) -> RunState:
        """(4)."""
        s: StepsState = run.controller
        before = s.lag
        late = float(
            _lag(agents.functions, agents.placement, agents.data, agents.direction, run.agents.variables, self.lam)
        )
        s = s._replace(lag=late)
        run = _with(run, s)
        waited = run.step - s.last_answer >= PATIENCE * s.interval
        if waited and USE * s.lag_at_halving < late <= s.lag_at_halving:
            return self._undo_halving(run)
        if late > s.lag_limit and late >= before and waited:
            return self._answer(run)
        if (late < EARLY or (late < min(before, LATE) and waited)) and s.monitor.straight():
            return self._try(run, s.growth * run.settings["alpha"])
        return run

    def _answer(self, run: RunState) -> RunState:
        """The inner level is too slow: make it quicker, or else wait for it."""
        s: StepsState = run.controller._replace(last_answer=run.step)
        gamma = 2 * run.settings["gamma"]
        if gamma * s.inner_now <= QUICKEST and not self.gamma:
            return self._set(_with(run, s._replace(inner=2 * s.inner)), gamma=gamma)
        s = s._replace(outer=s.outer / 2, growth=max(s.growth**0.5, LEAST), lag_at_halving=s.lag)
        return self._set(_with(run, s), alpha=run.settings["alpha"] / 2)

    def _undo_halving(self, run: RunState) -> RunState:
        """Half the alpha has left the lag about what it was: x is not why the inner level is late."""
        s: StepsState = run.controller
        s = s._replace(lag_at_halving=0.0, lag_limit=max(LATE, 1.2 * s.lag), last_answer=run.step, outer=2 * s.outer)
        return self._set(_with(run, s), alpha=2 * run.settings["alpha"])

    def _try(self, run: RunState, alpha: float) -> RunState:
        """A larger alpha, and a state to return to."""
        s: StepsState = run.controller
        if alpha > s.cap or s.outer >= MOST:
            return run
        s = _save(run, s)
        s = s._replace(
            last_trial=run.step,
            last_answer=run.step,
            outer=s.growth * s.outer,
            monitor=s.monitor._replace(path=s.monitor.path[-1:]),
        )
        return self._set(_with(run, s), alpha=alpha)

    def _estimate(self, agents: Agents, run: RunState) -> RunState:
        """(3)."""
        s: StepsState = run.controller
        along = s.curvature.along_y, s.curvature.along_x
        curvature, inner, outer = _estimated(agents, run.agents.variables, along, s.estimates)
        old = run.settings["alpha"]
        cap = 2 * s.cap if run.step - s.last_failure > run.step // 4 else s.cap  # tried again after a while
        largest = max(s.inner_largest, inner)
        gamma = min(s.inner / np.sqrt(inner * largest), QUICKEST / inner)
        alpha = min(s.outer / outer, cap)
        if old > REST:
            alpha = min(alpha, (s.growth**2 if s.lag < EARLY else 1) * old)
        s = s._replace(
            curvature=curvature,
            estimates=s.estimates + 1,
            inner_now=inner,
            inner_largest=largest,
            cap=cap,
            outer=alpha * outer,
        )
        return self._set(_with(run, s), alpha=alpha, gamma=gamma)

    def _set(self, run: RunState, **steps: float) -> RunState:
        """New step sizes, and memories of exact diffusion that fit them."""
        new = run.settings | {name: float(self.settings[name] or value) for name, value in steps.items()}
        inner = new["gamma"] / run.settings["gamma"]
        ratios = {"x": new["alpha"] / run.settings["alpha"], "y": inner, "z": inner}
        return run._replace(settings=new, agents=_scaled(run.agents, ratios))


def automatic_steps(alpha: object, gamma: object, lam: object) -> AutomaticSteps | None:
    """The controller of a method with these settings; None if both step sizes are given."""
    if alpha is not None and gamma is not None:
        return None
    numbers: dict[str, float | None] = {}
    for name, value in {"alpha": alpha, "gamma": gamma, "lam": lam}.items():
        if callable(value):
            raise InputError(
                f"{name} must be a number where another step size is left out, but it is a function of the step.",
                "Pass both alpha and gamma, or a number.",
            )
        numbers[name] = None if value is None else positive(name, value)
    return AutomaticSteps(numbers["alpha"], numbers["gamma"], numbers["lam"] or 0.0)


def _with(run: RunState, state: StepsState) -> RunState:
    return run._replace(controller=state)


def _save(run: RunState, s: StepsState) -> StepsState:
    """With this state among those to return to, the oldest dropped if there are too many."""
    saved = s.saved[: s.saved_count]
    if run.step <= saved[-1].step:
        return s
    checks = s.monitor
    here = Saved(run.step, run.agents, run.settings["alpha"], run.settings["gamma"], checks.sizes, checks.values)
    return s._replace(**_padded((*saved[1 - SAVED :], here)))


def _earlier(step: int, s: StepsState, in_a_row: int) -> tuple[Saved, ...]:
    """States from before the last trial, or old enough; from before the last failure's if that has failed again."""
    saved = s.saved[: s.saved_count]
    before = max(s.last_trial, step - WINDOW // 2 * s.interval)
    failed = saved[-1].step if in_a_row > 1 else step
    return tuple(each for each in saved if each.step <= before and each.step < failed) or saved[:1]


def _padded(saved: tuple[Saved, ...]) -> dict[str, Any]:
    """The saved states as a tuple of fixed length, so that the structure of a run's state never changes."""
    return {"saved": (*saved, *saved[-1:] * (SAVED - len(saved))), "saved_count": len(saved)}


def _estimated(agents: Agents, at: Variables, along: Directions, estimates: int) -> tuple[Curvature, float, float]:
    """Every agent's estimates, and the largest L_g and L_Phi among them."""
    powers = MANY if estimates < 2 else FEW
    curvature, inner, outer = _curvature(
        agents.functions, agents.placement, agents.data, at, along, estimates == 0, powers
    )
    return curvature, max(float(inner), 1e-12), max(float(outer), 1e-12)


@partial(jax.jit, static_argnames=("functions", "placement"))
def _curvature(
    functions: Functions,
    placement: Placement | None,
    data: Tree,
    at: Variables,
    along: Directions,
    fresh: bool,
    powers: int,
) -> tuple[Curvature, jax.Array, jax.Array]:
    """Every agent's estimates, and the largest of them, which max-consensus gives to every agent.

    From where the one before ended; if this is a fresh one, `along` only says what a direction looks like.
    """

    def here(data: Tree, at: Variables, along: Directions, fresh: Any, powers: Any) -> Any:
        points = at.x, (at.y + at.z) / 2
        first = [jnp.where(fresh, new, old) for new, old in zip(guess(*points), along, strict=True)]
        estimates = local_curvature(functions, data, *points, first, powers)
        largest = lambda values: maximum(jnp.max(jnp.where(jnp.isfinite(values), values, 0)))
        return estimates, largest(estimates.inner), largest(estimates.outer)

    outs = (SPLIT, EVERYWHERE, EVERYWHERE)
    ins = (SPLIT, SPLIT, SPLIT, EVERYWHERE, EVERYWHERE)
    return across(placement, here, ins, outs)(data, at, along, fresh, powers)


@partial(jax.jit, static_argnames=("functions", "placement"))
def _lag(
    functions: Functions, placement: Placement | None, data: Tree, direction: Direction, at: Variables, lam: float
) -> jax.Array:
    here = lambda data, direction, at, lam: lag(functions, data, at, direction, lam)
    return across(placement, here, (SPLIT, EVERYWHERE, SPLIT, EVERYWHERE), EVERYWHERE)(data, direction, at, lam)


@jax.jit
def _scaled(state: Any, ratio: dict[str, Any]) -> Any:
    (memory,) = state.memory
    scaled = [{name: (ratio[name] * c).astype(c.dtype) for name, c in part.items()} for part in memory]
    return state._replace(memory=(tuple(scaled),))
