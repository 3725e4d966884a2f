r"""Step sizes that nobody has to choose: how the agents find alpha and gamma of `ahead_exact` while
they run.

First gradients only, nothing is undone, and nothing is used that an agent could not know: its own
gradients, what its neighbours send, and two numbers about the network that everybody is told before
(`mix.reach`: its width, and u, half of what one exchange takes off the slowest disagreement).

Inner level: exact diffusion of y and z along moving averages of their directions, which is heavy
ball. Along an eigenvector of curvature l it is stable up to gamma l = 2 (2 - theta)/theta.

    (1)  a   = a + theta (d - a)                                           for y and z, with the
                                                                           same theta
    (2)  h   = (g_y(x, y + e w) - g_y(x, y))/e,   l = |h|,   w = h/l + noise, normalised
                                                                           at every PROBE-th step
    (3)  L   = max(l, FALL L)                                              a power iteration that
                                                                           runs along
    (4)  gamma = r SAFE (2 - theta)/theta/(the largest L of all agents),   at most GROW times it
    (5)  log r = log r - min(PACE, u) clip(log(D/(u M)), -1, 1),           sqrt(u)/2 <= r <= 1

The noise in (2), a fixed direction, is why a curvature is seen that grows where there was none. In
(5) M is by how much y and z have moved and D by how much what they exchange has, for y + z and y -
z, at the steps of (2): a disagreement in the slowest mode decays like u/(gamma l), so that the best
gamma is about sqrt(u kappa)/L for condition kappa; D is large against u M where disagreement
decides, so that gamma should fall, and small where the inner level itself does. All agents use the
same gamma, or exact diffusion would land elsewhere: the largest L, D and M travel by neighbours'
maxima, and everybody switches to what they have come to at a step that all know, once in `width`
steps. The memories are scaled with gamma.

Outer level: gradient tracking, where agents and coordinates may have different step sizes s without
harm, because t vanishes at the solution.

    (6)  t   = W t' + d - d'                                           ' = of the step before
    (7)  v   = v + 3/(k + 3) (t^2 - v),   q = t/sqrt(v), at most 1     the mean of t^2, step j with
                                                                       weight j^2
    (8)  c_T = sqrt|q| q m_T/max(q^2, m_T^2)                           for lags T = 1, 4, 16, 64,
                                                                       256
         then m_T = m_T + (q - m_T)/min(T, k + 1)                      the mean of the last T or so
    (9)  log s = log s + UP/(1 + k/CALM) B min_T c_T   if all c_T > 0  the last T steps point the
                                                                       same way
         log s = log s + DOWN min_T c_T/T              otherwise       no slower than an oscillation
                                                                       of period T
         and log s falls with log sqrt(v), where v falls               so that s/sqrt(v) never grows
                                                                       by itself
    (10) x   = W (x - s B q)
    (11) B   = (l/(average l of late))^-10, at most 1                  the brake: curvature must not
                                                                       run ahead

(7): with weights that grow like k^2 a past of large directions is forgotten, but only as fast as a
power of k, so that q dies out with t and what is left is gradient tracking with constant steps
s/sqrt(v). (8): where q decays like exp(-r k), m_T is q/(1 - r T) and c_T is sqrt|q| (1 - r T):
while x creeps, s grows, and once x comes to rest within T steps it does not. The root is a
compromise: with |q| in its place s freezes too early, with 1 it never does. (11): where x is a
logarithm of curvature (a penalty, say), y must be able to follow.

On minibatches t and l are noisy. What is noise alone must neither stop x nor let s fall, so there

    (12) a   = a + max(0.1, 1/(k + 1)) (t - a),   q = a/sqrt(v), at most 1, in place of t/sqrt(v)
    (13) c_T = sqrt|q| q m_T sqrt(T)/q^2, at most sqrt|q|                  where |m_T| < |q|, in (8)
    (14) B   = (L/(average L of late))^-10, at most 1                      in place of (11)

and the lag T = 1 is left out. (12): a tracked direction has the noise of d - d', which alternates,
so that every other step would look like an oscillation; its average does not. (13): the mean of T
samples of noise is smaller than one of them by sqrt(T), which says nothing against it. (14): l of a
minibatch is below L most of the time, and may be 0.

Sources: (1) Polyak 1964; (6) Nedic, Olshevsky & Shi 2017; (7) Adam's idea (Kingma & Ba 2015) with
the weights of Shamir & Zhang 2013; (9) per coordinate as in delta-bar-delta (Jacobs 1988) and Rprop
(Riedmiller & Braun 1993), here over several lags at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm import consensus
from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.direction import Direction
from decibo.algorithm.schedules import Rate, Schedule, Step, schedule
from decibo.measure.cost import sometimes
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector

# of the inner moving average: momentum 0.8 suits conditions from 1 to 10^4; less is slow, more is
# unsteady
THETA = 0.2
SAFE = 0.9  # of half the largest gamma that is stable: l is seen from below, and late
# r at the start: in the middle, on a logarithmic scale, of where it ends on most networks
FIRST = 0.3
PACE = 0.02  # change of log r in a step, where the network allows it
GROW = 1.05  # growth of gamma in a step: a smaller curvature may be that of an unlucky probe
PROBE = 4  # steps between two probes, each of which costs a gradient of g
STARTS = 10  # probes before the first step
NOISE = 0.1  # of the direction of a probe
GOLDEN = (5**0.5 - 1) / 2
FALL = 0.95  # of L from one probe to the next
LATE = 8  # probes that the average of l looks back
# the power of (11): a curvature that is a quarter ahead lets x move at a tenth of its speed
BRAKE = 10.0
CALM = 1000  # steps after which s grows at half of its first pace: late growth is more often chance
# of log s in a step at an oscillation of every step; one of period T is answered within T steps
DOWN = 0.5
TINY = 1e-3  # s at the start: too small to do harm, and soon left behind
LARGEST = 1.0  # of q: where t grows, no coordinate moves by more than s
RECENT = 0.3  # weight of the last step looked at in D and M


@jax.tree_util.register_static
@dataclass(frozen=True)
class Pace:
    """How the steps of x answer what is seen, on all data or on minibatches; part of the program,
    never traced.

    lags      T of (8)
    up        UP of (9): of log s in a step
    theta     weight of the newest t in (12); 1 is t itself
    sampled   whether (13) and (14) hold
    """

    lags: tuple[float, ...]
    up: float
    theta: float = 1.0
    sampled: bool = False


FULL = Pace((1.0, 4.0, 16.0, 64.0, 256.0), up=0.08)  # from TINY to 1 in 90 steps
# c_T of noisy q are smaller
SAMPLED = Pace((4.0, 16.0, 64.0, 256.0), up=0.1, theta=0.1, sampled=True)


class Plan(NamedTuple):
    """What is given: the direction, a step size that is not to be chosen, and whether gradients are
    noisy."""

    direction: Direction
    alpha: Schedule | None
    gamma: Schedule | None
    pace: Pace

    @property
    def theta(self) -> float:
        """A gamma that was given is meant without momentum."""
        return THETA if self.gamma is None else 1.0


class Inner(NamedTuple):
    """What an agent keeps for y and z.

    memory   of exact diffusion
    average  a of (1)
    sent     what its last exchange has changed
    along    w of (2)
    own      L of this agent, (3)
    level    the average of log l, or of log L on minibatches
    news     the largest L, D and M heard of since the last switch
    moves    D and M of this agent, squared: two numbers each, for y + z and y - z
    gamma    the same for all agents, as is
    share    r of (5)
    """

    memory: Tree
    average: dict[str, Vector]
    sent: dict[str, Vector]
    along: Vector
    own: jax.Array
    level: jax.Array
    news: Vector
    moves: Vector
    gamma: jax.Array
    share: jax.Array


class Outer(NamedTuple):
    """What an agent keeps for x: W t, d, v, one m_T for each lag, s, and a on minibatches; names as
    in (6)-(12)."""

    wt: Vector
    d: Vector
    v: Vector
    m: tuple[Vector, ...]
    s: Vector
    a: Vector | tuple[()]


class State(NamedTuple):
    """The state of one agent."""

    variables: Tree
    inner: Inner
    outer: Outer


def automatic(
    direction: Direction, alpha: Rate | None = None, gamma: Rate | None = None, pace: Pace = FULL
) -> Algorithm:
    """The algorithm that follows a penalty's direction in x, y and z, and finds the step sizes that
    are not given."""
    given = {"alpha": alpha, "gamma": gamma}
    plan = Plan(
        direction,
        *(None if rate is None else schedule(name, rate) for name, rate in given.items()),
        pace=pace,
    )
    return Algorithm(
        init=Partial(_init, plan),
        step=Partial(_step, plan),
        view=Partial(_view, direction),
        told=True,
        chosen=Partial(_chosen, plan),
        direction=direction,
        answer=direction.answer,
        bias=direction.bias,
        products=direction.products,
        sampled=None if pace.sampled else automatic(direction, alpha, gamma, SAMPLED),
    )


def _init(plan: Plan, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    variables = plan.direction.start(start)
    x, y = variables.x, variables.y
    dtype = y.dtype
    group = {"y": y, "z": variables.z}
    zeros = jax.tree.map(jnp.zeros_like, group)
    along = _noise(y)
    slope = oracle.inner(x, y)[1]
    look = lambda _, at: _probe(oracle, x, y, slope, at[1])
    own, along = lax.fori_loop(0, STARTS, look, (jnp.zeros((), dtype), along))
    largest = _everywhere(mix, own)
    inner = Inner(
        memory=consensus.exact_diffusion().start(group),
        average=zeros,
        sent=zeros,
        along=along,
        own=own,
        level=_log(own),
        news=jnp.zeros(5, dtype).at[0].set(own),
        moves=jnp.zeros(4, dtype),
        gamma=_given(plan.gamma, 0, FIRST * _most(plan.theta, largest)),
        share=jnp.asarray(FIRST, dtype),
    )
    outer = Outer(
        wt=jnp.zeros_like(x),
        d=jnp.zeros_like(x),
        v=jnp.zeros_like(x),
        m=tuple(jnp.zeros_like(x) for _ in plan.pace.lags),
        s=jnp.full_like(x, TINY),
        a=jnp.zeros_like(x) if plan.pace.theta < 1 else (),
    )
    return State(variables, inner, outer)


def _everywhere(mix: Mix, own: jax.Array) -> jax.Array:
    """The largest of all agents' numbers; without a loop where the width is known beforehand, as
    between sites."""
    width = mix.reach.width
    if isinstance(width, int):
        for _ in range(width):
            own = mix.largest(own)
        return own
    return lax.fori_loop(0, width, lambda _, most: mix.largest(most), own)


def _step(
    plan: Plan, oracle: Oracle, mix: Mix, state: State, k: jax.Array, key: jax.Array
) -> State:
    v = state.variables
    heard = RememberingOracle(oracle.functions, oracle.data, oracle)
    d = plan.direction.at(heard, v, k)
    inner, curvature = _looked(plan.pace, heard, v.x, v.y, state.inner, k)
    inner = _agreed(plan, mix, inner, k)
    own = {"y": v.y, "z": v.z}
    moved, inner = _inner_step(plan, mix, own, inner, {"y": d.y, "z": d.z}, k)
    brake = jnp.exp(-BRAKE * jnp.maximum(curvature - inner.level, 0))  # (11), (14)
    x, outer = _outer_step(plan, mix, v.x, state.outer, d.x, brake.astype(v.x.dtype), k)
    return State(type(v)(x=x, **moved), inner, outer)


@dataclass(frozen=True)
class RememberingOracle(Oracle):
    """An oracle that remembers where it was asked for g_y, and its answers: a probe needs one that
    the step needed."""

    wrapped: Oracle
    slopes: list[tuple[Vector, Vector]] = field(default_factory=list)

    def ask(self, question: str, *at: Vector) -> Any:
        answer = self.wrapped.ask(question, *at)
        if question == "inner":
            self.slopes.append((at[1], answer.y))
        return answer

    def slope(self, x: Vector, y: Vector) -> Vector:
        """g_y(x, y), computed once."""
        known = [slope for at, slope in self.slopes if at is y]
        return known[0] if known else self.wrapped.inner(x, y).y

    def on(self, data: Tree) -> Oracle:
        return self.wrapped.on(data)


def _looked(
    pace: Pace, oracle: RememberingOracle, x: Vector, y: Vector, inner: Inner, k: jax.Array
) -> tuple[Inner, jax.Array]:
    """With the curvature looked at, if it is time to; and the logarithm of what was seen last."""

    def look(at: tuple[Vector, Vector, Vector]) -> tuple[Vector, jax.Array, jax.Array, jax.Array]:
        seen, along = _probe(oracle.wrapped, *at, inner.along)
        own = jnp.maximum(seen, FALL * inner.own)  # (3)
        log = _log(own if pace.sampled else seen)
        along = _unit(along + NOISE * _noise(along))  # (2)
        return along, own, inner.level + (log - inner.level) / LATE, log

    kept = inner.along, inner.own, inner.level, _log(inner.own)
    at = x, y, oracle.slope(x, y)
    along, own, level, log = sometimes(1 / PROBE, k % PROBE == 0, look, lambda at: kept, at)
    return inner._replace(along=along, own=own, level=level), log


def _agreed(plan: Plan, mix: Mix, inner: Inner, k: jax.Array) -> Inner:
    """With the news of the neighbours; and, when these have come from everywhere, with another
    gamma."""
    if plan.gamma is not None:
        return inner._replace(gamma=_given(plan.gamma, k, inner.gamma))
    period = jnp.maximum(mix.reach.width, PROBE)

    def turn() -> Inner:
        own = jnp.concatenate([inner.own[None], inner.moves])
        return lax.cond(k > 0, lambda: _switched(plan, mix, inner, period), lambda: inner)._replace(
            news=own
        )

    inner = lax.cond(k % period == 0, turn, lambda: inner)
    return inner._replace(news=mix.largest(inner.news))


def _switched(plan: Plan, mix: Mix, inner: Inner, period: jax.Array) -> Inner:
    """With the gamma and r of (4) and (5), and memories that fit them."""
    dtype = inner.news.dtype
    tiny = jnp.finfo(dtype).tiny
    u = jnp.asarray(mix.reach.slow, dtype) / 2
    largest, d_plus, m_plus, d_minus, m_minus = inner.news
    # D^2/M^2
    ratio = (d_plus / jnp.maximum(m_plus, tiny) + d_minus / jnp.maximum(m_minus, tiny)) / 2
    lean = jnp.clip(jnp.log(jnp.maximum(ratio, tiny)) / 2 - jnp.log(u), -1, 1)
    least = jnp.minimum(jnp.sqrt(u) / 2, FIRST)
    share = jnp.clip(inner.share * jnp.exp(-period * jnp.minimum(PACE, u) * lean), least, 1)  # (5)
    # (4)
    gamma = jnp.minimum(
        share * _most(plan.theta, largest), inner.gamma * GROW ** period.astype(dtype)
    )
    memory = jax.tree.map(lambda c: gamma / inner.gamma * c, inner.memory)
    return inner._replace(gamma=gamma, share=share, memory=memory)


def _inner_step(
    plan: Plan, mix: Mix, own: dict[str, Vector], inner: Inner, d: dict[str, Vector], k: jax.Array
) -> tuple[dict[str, Vector], Inner]:
    """y and z after the step, and what is kept for the next."""
    average = {name: a + plan.theta * (d[name] - a) for name, a in inner.average.items()}  # (1)
    rates = dict.fromkeys(own, inner.gamma)
    moved, memory = consensus.exact_diffusion().step(
        mix, lambda s, h: s, own, inner.memory, average, rates
    )
    sent = jax.tree.map(jnp.subtract, memory[0], inner.memory[0])
    moves = lax.cond(
        k % PROBE == 0, _moves, lambda moves, *_: moves, inner.moves, sent, inner.sent, moved, own
    )
    return moved, inner._replace(memory=memory, average=average, sent=sent, moves=moves)


def _moves(
    moves: Vector,
    sent: dict[str, Vector],
    before: dict[str, Vector],
    moved: dict[str, Vector],
    own: dict[str, Vector],
) -> Vector:
    """D and M of (5), squared and averaged, with those of this step."""
    changed = jax.tree.map(jnp.subtract, sent, before)
    move = jax.tree.map(jnp.subtract, moved, own)
    pairs = [(each["y"] + each["z"], each["y"] - each["z"]) for each in (changed, move)]
    now = jnp.stack([jnp.sum(pairs[i][j] ** 2) for j in (0, 1) for i in (0, 1)])
    return moves + RECENT * (now - moves)


def _outer_step(
    plan: Plan, mix: Mix, x: Vector, outer: Outer, d: Vector, brake: jax.Array, k: jax.Array
) -> tuple[Vector, Outer]:
    """x after the step, and what is kept for the next."""
    t = outer.wt + d - outer.d  # (6)
    if plan.alpha is not None:
        x, wt = mix((x - plan.alpha(k) * t, t))
        return x, outer._replace(wt=wt, d=d)
    pace, tiny = plan.pace, jnp.finfo(x.dtype).tiny
    v = outer.v + (3 / (k + 3)).astype(x.dtype) * (t**2 - outer.v)
    followed, a = _averaged(pace, outer.a, t, k)  # (12)
    q = jnp.clip(followed / (jnp.sqrt(v) + tiny), -LARGEST, LARGEST)  # (7)
    root, size = jnp.sqrt(jnp.abs(q)), jnp.maximum(jnp.abs(q), tiny)
    c = [root * _agreement(pace, T, m, q, size) for T, m in zip(pace.lags, outer.m, strict=True)]
    m = tuple(
        m + (q - m) / jnp.minimum(T, k + 1).astype(x.dtype)
        for T, m in zip(pace.lags, outer.m, strict=True)
    )  # (8)
    least = reduce(jnp.minimum, c)
    down = reduce(jnp.minimum, (each / T for T, each in zip(pace.lags, c, strict=True)))
    up = (pace.up / (1 + k / CALM)).astype(x.dtype)
    change = jnp.where(least > 0, up * brake * least, DOWN * down)
    s = outer.s * jnp.exp(change) * jnp.sqrt(jnp.where(v < outer.v, v / outer.v, 1))  # (9)
    x, wt = mix((x - s * brake * q, t))  # (10)
    return x, Outer(wt, d, v, m, s, a)


def _averaged(
    pace: Pace, a: Vector | tuple[()], t: Vector, k: jax.Array
) -> tuple[Vector, Vector | tuple[()]]:
    """What q is made of, t or on minibatches its average, and what is kept of it."""
    if isinstance(a, tuple):
        return t, a
    a = a + jnp.maximum(pace.theta, 1 / (k + 1)).astype(t.dtype) * (t - a)
    return a, a


def _agreement(pace: Pace, lag: float, m: Vector, q: Vector, size: Vector) -> Vector:
    """q m/max(q^2, m^2): 1 if the mean of the last steps is q, -1 if it is -q; `size` is |q|,
    positive."""
    mean = jnp.abs(m)
    ratio = jnp.minimum(mean, size) / jnp.maximum(mean, size)
    if pace.sampled:
        ratio = jnp.where(mean < size, jnp.minimum(lag**0.5 * ratio, 1), ratio)  # (13)
    return jnp.sign(q) * jnp.sign(m) * ratio


def _probe(
    oracle: Oracle, x: Vector, y: Vector, slope: Vector, along: Vector
) -> tuple[jax.Array, Vector]:
    """l and h/l of (2), where g_y is `slope`; nothing and the old direction if it does not
    change."""
    e = jnp.sqrt(jnp.finfo(y.dtype).eps) * (1 + jnp.linalg.norm(y))
    h = (oracle.inner(x, y + e * along)[1] - slope) / e
    size = jnp.linalg.norm(h)
    seen = jnp.isfinite(size) & (size > 0)
    return jnp.where(seen, size, 0), jnp.where(seen, h / jnp.where(seen, size, 1), along)


def _most(theta: float, largest: jax.Array) -> jax.Array:
    """(4) with r = 1; where no curvature was seen at all, that of 1."""
    return SAFE * (2 - theta) / theta / jnp.where(largest > 0, largest, 1)


def _given(rate: Schedule | None, k: Step, otherwise: jax.Array) -> jax.Array:
    return otherwise if rate is None else jnp.asarray(rate(k), otherwise.dtype)


def _unit(vector: Vector) -> Vector:
    return vector / jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)


def _noise(like: Vector) -> Vector:
    """The fractions of 1, 2, ... times the golden ratio, less a half, normalised: spread evenly,
    none is 0, cheap."""
    turns = jnp.arange(1, like.size + 1, dtype=like.dtype) * GOLDEN
    return _unit(turns - jnp.floor(turns) - 0.5)


def _log(number: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(number, jnp.finfo(number.dtype).tiny))


def _view(direction: Direction, state: State) -> dict[str, Vector]:
    return direction.view(state.variables)


def _chosen(plan: Plan, state: State) -> dict[str, jax.Array]:
    """The step sizes that were not given: alpha as the median of s/sqrt(v) over the coordinates,
    and gamma."""
    found = {
        "alpha": jnp.median(state.outer.s / jnp.sqrt(state.outer.v)),
        "gamma": state.inner.gamma,
    }
    given = {"alpha": plan.alpha, "gamma": plan.gamma}
    return {name: value for name, value in found.items() if given[name] is None}
