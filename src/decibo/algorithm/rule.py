r"""Rules: how far to go along a direction. Wherever a step size is asked for, a rule may stand in
its place.

A rule turns the direction d of a variable, at step k, into a move h u: u has the shape of d, and h
is a number or, where every entry has a step of its own, a vector. |.| is the Euclidean norm; all
memories start at 0.

constant        a number, or a function of the step
    (1)  u  = d,   h = step(k)
heavy_ball      a moving average of directions                          [Polyak 1964]
    (2)  m+ = b m + (1 - b) d
    (3)  u  = m+,   h = step(k)
nesterov        the same, looking ahead                           [Nesterov 1983; in this form
                                                                  Sutskever et al. 2013]
    (4)  u  = b m+ + (1 - b) d,   h = step(k)                           m+ as in (2)
normalised      moves of given length
    (5)  u  = d,   h = step(k)/|d|
adagrad_norm    divided by the length of all directions so far          [Ward, Wu & Bottou 2020]
    (6)  b+ = sqrt(b^2 + |d|^2)
    (7)  u  = d,   h = step(k)/b+
adam            every entry divided by its recent size                  [Kingma & Ba 2015]
    (8)  m+ = b1 m + (1 - b1) d,   v+ = b2 v + (1 - b2) d^2
    (9)  u  = m+/(1 - b1^(k+1)),   h = step(k)/(sqrt(w) + eps),   w = v+/(1 - b2^(k+1))
amsgrad         the same with a size that never falls                   [Reddi, Kale & Kumar 2018]
    (10) w+ = max(w, v+/(1 - b2^(k+1)))                                 in place of the w of (9)
tuning_free     one rule for x, y and v together                        [S-TFBO: Yang et al. 2025]
    (11) a+ = sqrt(a^2 + |d_x|^2),   b+ = sqrt(b^2 + |d_y|^2),   c+ = sqrt(c^2 + |d_v|^2),
         e  = max(b+, c+)
    (12) u  = d,   h_x = step/(a+ e),   h_y = step/b+,   h_v = step/e

The direction is the one that the consensus strategy follows. For strategies that track gradients it
is the tracked one, t of (3), (5) and (13) in consensus.py, for all others the agent's own.

What a rule does to exactness (docs/explanation/rules.md):
* A linear rule, u -> d and the same h at all agents, keeps every strategy's promise: constant,
  heavy_ball, nesterov.
* Any other rule has steps of its own at every agent. A tracked direction is 0 at rest, and so is
  every multiple of it: tracking stays exact. EXTRA and exact diffusion come to rest where the
  h_i u_i cancel, which is not where the d_i do: `compose` refuses the pair. dgd and atc, which are
  not exact anyway, then miss by more than O(h).
* adam and normalised do not come to rest with a constant step: they end within O(step) of the
  solution, and reach it with a step that falls. amsgrad and adagrad_norm come to rest.

heavy_ball in this form leaves `step` its meaning: the moves add up to those of (1), and step L may
grow to 2 (1 + b)/(1 - b). It is the usual s+ = s - h d + b (s - s') with h = (1 - b) step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.schedules import Rate, Scalar, Schedule, Step, number, schedule, unless_traced
from decibo.errors import InputError
from decibo.formatting import format_setting
from decibo.pytree import Tree, Vector
from decibo.validate import above, at_least

__all__ = [
    "Rule",
    "adagrad_norm",
    "adam",
    "amsgrad",
    "constant",
    "from_optax",
    "heavy_ball",
    "nesterov",
    "normalised",
    "tuning_free",
]

EACH = "each"  # the name of rules of single variables put together
Group = dict[str, Vector]
Move = tuple[Tree, Vector, Scalar]  # the new memory, u and h


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rule:
    """A rule: `start(s)` creates its memory, `step(memory, s, d, k)` returns the new memory, u and
    h.

    linear      whether u and h depend on the directions linearly, in the same way at all agents,
                with u = d at rest
    sizes       what h is, "one" number, one for each of the "entries" of s, or 1 because the steps
                are "hidden" in u. It is also the h of the proximal map, prox(s, h), so that only
                some maps suit the latter two
    joint       whether it is one rule for several variables: s, d, u and h are then dictionaries
    variables   the variables of a joint rule; none if it takes any
    """

    start: Callable[[Tree], Tree]
    step: Callable[[Tree, Tree, Tree, Step], tuple[Tree, Tree, Tree]]
    name: str = field(metadata={"static": True})
    linear: bool = field(default=False, metadata={"static": True})
    sizes: str = field(default="one", metadata={"static": True})
    joint: bool = field(default=False, metadata={"static": True})
    variables: tuple[str, ...] = field(default=(), metadata={"static": True})

    def __repr__(self) -> str:
        held = self.step.args if isinstance(self.step, Partial) else ()
        return (
            f"{self.name}({', '.join(format_setting(number(part), literal=True) for part in held)})"
        )


@runtime_checkable
class Transformation(Protocol):
    """What optax calls a GradientTransformation; optax itself is not needed."""

    init: Callable[..., Any]
    update: Callable[..., Any]


# what users pass for the step size of a variable
StepSize: TypeAlias = float | Schedule | Rule | Transformation


def constant(step: Rate) -> Rule:
    """The step size itself: a number, or a function of the step."""
    return Rule(
        Partial(_nothing), Partial(_constant, schedule("step", step)), "constant", linear=True
    )


def heavy_ball(step: Rate, momentum: float = 0.9) -> Rule:
    """Momentum: follow a moving average of directions. Exact with every exact strategy.

    step       the step size; with momentum b, up to 2 (1 + b)/((1 - b) L) is stable
    momentum   the weight of the past, at least 0 and below 1
    """
    held = schedule("step", step), below_one("momentum", momentum)
    return Rule(Partial(_zeros), Partial(_heavy_ball, *held), "heavy_ball", linear=True)


def nesterov(step: Rate, momentum: float = 0.9) -> Rule:
    """Momentum that looks ahead, as Nesterov's does. Exact with every exact strategy.

    step       the step size; with momentum b, up to 2 (1 + b)/((1 - b) (1 + 2 b) L) is stable
    momentum   the weight of the past, at least 0 and below 1
    """
    held = schedule("step", step), below_one("momentum", momentum)
    return Rule(Partial(_zeros), Partial(_nesterov, *held), "nesterov", linear=True)


def normalised(step: Rate) -> Rule:
    """Moves of length `step`. With tracking it ends within O(step) of the solution, and reaches it
    if the step falls.

    step   the length of a move, normally a function of the step that falls
    """
    return Rule(Partial(_nothing), Partial(_normalised, schedule("step", step)), "normalised")


def adagrad_norm(step: Rate, initial: float = 0.0) -> Rule:
    """The step divided by the length of all directions so far. Exact with tracking.

    step      the length of the first move, if initial is 0
    initial   a length that counts as if it had been there before the first step
    """
    held = schedule("step", step), _not_negative("initial", initial)
    return Rule(Partial(_zero), Partial(_adagrad_norm, *held), "adagrad_norm")


def adam(step: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    """Adam: every entry has a step of its own. Exact with tracking only as far as the step falls.

    With a constant step it ends within O(step) of the solution.

    step     the step size of every entry
    b1, b2   the weights of the past in the averages of directions and of their squares
    eps      added to the root of the latter
    """
    return Rule(
        Partial(_zeros_of_two),
        Partial(_adam, *_moments(step, b1, b2, eps)),
        "adam",
        sizes="entries",
    )


def amsgrad(step: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    """Adam with a size that never falls. Exact with tracking.

    step     the step size of every entry
    b1, b2   the weights of the past in the averages of directions and of their squares
    eps      added to the root of the latter
    """
    return Rule(
        Partial(_zeros_of_three),
        Partial(_amsgrad, *_moments(step, b1, b2, eps)),
        "amsgrad",
        sizes="entries",
    )


def tuning_free(step: float = 1.0, initial: float = 0.0) -> Rule:
    """S-TFBO's joint rule for the implicit direction: `compose(..., rule=tuning_free())`. Exact
    with tracking.

    step      all steps are multiplied by it
    initial   what a, b and c start with; if 0, the first moves have the length of the step
    """
    held = _above("step", step), _not_negative("initial", initial)
    step_of = Partial(_tuning_free, *held)
    return Rule(
        Partial(_zero_for_each), step_of, "tuning_free", joint=True, variables=("x", "y", "v")
    )


def from_optax(transformation: Transformation, *, linear: bool = False) -> Rule:
    """An optax GradientTransformation as a rule: `x=optax.adam(0.03)` is short for
    `x=from_optax(optax.adam(0.03))`.

    It sees a variable as one flat vector, and the agent's own. Its numbers are part of the program:
    other ones are compiled again.

    linear   whether it is linear, as `optax.sgd(0.1, momentum=0.9)` is: only then may it go with
             EXTRA and exact diffusion
    """
    if not isinstance(transformation, Transformation):
        raise InputError(
            f"An optax transformation has init and update, but this is {transformation!r}."
        )
    step = Partial(_optax, _Update(transformation.update))
    return Rule(
        Partial(_OptaxStart(transformation.init)), step, "optax", linear=linear, sizes="hidden"
    )


def as_rule(name: str, value: StepSize) -> Rule:
    """What a user passes for the step size of a variable, as a rule for one variable."""
    if isinstance(value, Transformation):
        return from_optax(value)
    if not isinstance(value, Rule):
        return Rule(
            Partial(_nothing), Partial(_constant, schedule(name, value)), "constant", linear=True
        )
    if value.joint:
        raise InputError(
            f"{value} is for all variables together, but it was passed for {name}.", "Pass rule=..."
        )
    return value


def is_rule(value: object) -> bool:
    """Whether the value is more than a step size: a rule, or what can be turned into one."""
    return isinstance(value, Rule | Transformation)


def plain(name: str, value: StepSize | None) -> Rate | None:
    """The value, if it is a step size and not a rule."""
    if isinstance(value, Rule | Transformation):
        raise InputError(
            f"{name} must be a number or a function of the step here, but it is {value!r}."
        )
    return value


def together(rules: Mapping[str, Rule]) -> Rule:
    """One rule for each variable as one joint rule."""
    each = dict(rules)
    return Rule(Partial(_start_each, each), Partial(_step_each, each), EACH, joint=True)


def _start_each(rules: dict[str, Rule], s: Group) -> dict[str, Tree]:
    return {name: rule.start(s[name]) for name, rule in rules.items()}


def _step_each(
    rules: dict[str, Rule], memory: dict[str, Tree], s: Group, d: Group, k: Step
) -> tuple[Tree, ...]:
    moves = {name: rule.step(memory[name], s[name], d[name], k) for name, rule in rules.items()}
    return tuple({name: move[part] for name, move in moves.items()} for part in range(3))


def _nothing(s: Vector) -> tuple[()]:
    return ()


def _zeros(s: Vector) -> Vector:
    return jnp.zeros_like(s)


def _zero(s: Vector) -> jax.Array:
    return jnp.zeros((), s.dtype)


def _zero_for_each(s: Group) -> dict[str, jax.Array]:
    return jax.tree.map(_zero, s)


class Moments(NamedTuple):
    """What Adam remembers."""

    m: Vector  # the average of directions
    v: Vector  # the average of their squares


class Largest(NamedTuple):
    """What AMSGrad remembers."""

    m: Vector
    v: Vector
    w: Vector  # the largest v so far


def _zeros_of_two(s: Vector) -> Moments:
    return Moments(_zeros(s), _zeros(s))


def _zeros_of_three(s: Vector) -> Largest:
    return Largest(_zeros(s), _zeros(s), _zeros(s))


def _constant(step: Schedule, memory: tuple[()], s: Vector, d: Vector, k: Step) -> Move:
    return memory, d, step(k)  # (1)


def _heavy_ball(step: Schedule, b: Scalar, m: Vector, s: Vector, d: Vector, k: Step) -> Move:
    m = _averaged(b, m, d)  # (2)
    return m, m, step(k)  # (3)


def _nesterov(step: Schedule, b: Scalar, m: Vector, s: Vector, d: Vector, k: Step) -> Move:
    m = _averaged(b, m, d)
    return m, _averaged(b, m, d), step(k)  # (4)


def _normalised(step: Schedule, memory: tuple[()], s: Vector, d: Vector, k: Step) -> Move:
    return memory, d, _ratio(step(k), jnp.linalg.norm(d))  # (5)


def _adagrad_norm(
    step: Schedule, initial: Scalar, b: jax.Array, s: Vector, d: Vector, k: Step
) -> Move:
    b = jnp.hypot(b, jnp.linalg.norm(d))  # (6)
    return b, d, _ratio(step(k), jnp.hypot(b, initial))  # (7)


def _adam(
    step: Schedule,
    b1: Scalar,
    b2: Scalar,
    eps: Scalar,
    past: Moments,
    s: Vector,
    d: Vector,
    k: Step,
) -> Move:
    m = _averaged(b1, past.m, d)
    v = _averaged(b2, past.v, d * d)  # (8)
    h = step(k) / (jnp.sqrt(_unbiased(b2, v, k)) + eps)
    return Moments(m, v), _unbiased(b1, m, k), h  # (9)


def _amsgrad(
    step: Schedule,
    b1: Scalar,
    b2: Scalar,
    eps: Scalar,
    past: Largest,
    s: Vector,
    d: Vector,
    k: Step,
) -> Move:
    m = _averaged(b1, past.m, d)
    v = _averaged(b2, past.v, d * d)
    w = jnp.maximum(past.w, _unbiased(b2, v, k))  # (10)
    return Largest(m, v, w), _unbiased(b1, m, k), step(k) / (jnp.sqrt(w) + eps)


def _tuning_free(
    step: Scalar, initial: Scalar, past: dict[str, jax.Array], s: Group, d: Group, k: Step
) -> Tree:
    lengths = {name: jnp.hypot(past[name], jnp.linalg.norm(d[name])) for name in d}
    a, b, c = (jnp.hypot(lengths[name], initial) for name in ("x", "y", "v"))
    e = jnp.maximum(b, c)  # (11)
    # (12)
    return lengths, d, {"x": _ratio(step, a * e), "y": _ratio(step, b), "v": _ratio(step, e)}


def _averaged(b: Scalar, m: Vector, d: Vector) -> Vector:
    return b * m + (1 - b) * d


def _unbiased(b: Scalar, m: Vector, k: Step) -> Vector:
    """An average that started at 0, divided by the sum of its weights."""
    return m / jnp.asarray(1 - b ** (k + 1), m.dtype)


def _ratio(step: Scalar, length: jax.Array) -> jax.Array:
    """step/length, and 0 where there is nothing to divide by, because then there is nowhere to
    go."""
    # The inner where, too: jax_debug_nans would stop at 0/0 in the branch that is not taken.
    return jnp.where(length > 0, step / jnp.where(length > 0, length, 1), 0).astype(length.dtype)


@dataclass(frozen=True)
class _OptaxStart:
    init: Callable[..., Any]

    def __call__(self, s: Vector) -> Tree:
        return jax.tree.map(jnp.asarray, self.init(s))


@dataclass(frozen=True)
@jax.tree_util.register_static
class _Update:
    update: Callable[..., Any]

    def __repr__(self) -> str:
        return "..."


def _optax(
    transformation: _Update, memory: Tree, s: Vector, d: Vector, k: Step
) -> tuple[Tree, Vector, float]:
    update, memory = transformation.update(d, memory, s)
    return memory, -update, 1.0


def _moments(
    step: Rate, b1: Scalar, b2: Scalar, eps: Scalar
) -> tuple[Schedule, Scalar, Scalar, Scalar]:
    return schedule("step", step), below_one("b1", b1), below_one("b2", b2), _above("eps", eps)


def below_one(name: str, value: Scalar) -> Scalar:
    """The value, if it is a weight of the past: at least 0 and below 1."""
    value = _not_negative(name, value)
    if not isinstance(value, jax.Array) and value >= 1:
        raise InputError(
            f"{name} must be below 1, but it is {value:g}.",
            "It is the weight of the past: 0.9 is usual.",
        )
    return value


def _not_negative(name: str, value: Scalar) -> Scalar:
    return unless_traced(at_least, name, value, 0.0)


def _above(name: str, value: Scalar) -> Scalar:
    return unless_traced(above, name, value, 0.0)
