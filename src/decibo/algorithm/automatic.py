r"""Step sizes that nobody has to choose: how the agents find alpha and gamma of `ahead_exact` while
they run.

First gradients only, and nothing is used that an agent could not know: its own gradients, what its
neighbours send, and two numbers about the network that everybody is told before
(`mix.reach`: its width, and u, half of what one exchange takes off the slowest disagreement).
' = of the step before; s, t, n, T, p and p' are per agent and coordinate of x.

Inner level: exact diffusion of c and w with the same gamma, along Nesterov averages.

    (1)  a   = a + theta (d - a),   then along a + theta (d - a)
    (2)  h   = (g_y(x, y + e v) - g_y(x, y))/e,   v = h/|h| + noise, normalised: a power iteration
    (3)  L   = max(|h|, FALL L, |g_y(x, y) - g_y(x, z)|/|y - z|)           y, z = c +- w/lam
    (4)  gamma = r SAFE (2 - theta)/(theta (3 - 2 theta))/(the largest L of all agents)
    (5)  log r = log r - min(PACE, u) clip(log(D/(u M)), -1, 1),           sqrt(u)/2 <= r <= 1

Outer level: gradient tracking, where agents and coordinates may have different step sizes s without
harm, because t vanishes at the solution; with Nesterov averages of what neighbours change.

    (6)  x stands still until k |w - w'| <= SETTLED (largest |w|), k >= LEAST: hold. The lag of w is
         then k*/2, k* = k + 1/2; from then on  l = max(LEAST, (k*/2) (L now)/(L then))
    (7)  t   = t' + e' + d - d',   e = b e' + (W - I)/2 (t + b e'),   b = (1 - sqrt u)/(1 + sqrt u)
         x   = q + o,   q = x' - s B t,   o = b o' + (W - I)/2 (q + b o')
    (8)  n   = steps since t changed its sign; T the length of the run before, 0 at first
    (9)  A   = clip(1 - 2 |e'|/(v |t|), -1, 1),   v = u/(1 - (1 - u) b)    agree
               if positive B A, and 0 where |t| < ROUNDING sqrt(k) eps (largest |t|, |d| so far)
    (10) s   = s (1 + A/P) once n > P = max(T, l)                          grow, e-fold per lag
               s |t| <= (1 + A/P) of the longest move so far, START at first
    (11) s   = s max((1 + p/p')^-CUT, MOST) in all during a run            cut, as half-waves grow
               p the largest |t| of this run so far, p' that of the run before
    (12) B   = (h/(average |h| of late))^-BRAKE, at most 1                 curvature must not grow
               h the |h| of this step; at steps without a probe L          too fast

(1) is stable up to gamma l = 2 (2 - theta)/(theta (3 - 2 theta)) for curvature l, and resonates
with x less than heavy ball. An agent whose L has grown beyond what gamma allows scales its own d_c
and d_w down until all have switched. The noise in (2), a fixed direction, is why a curvature is
seen that grows where there was none. In (5) M is by how much c and w have moved and D by how much
what they exchange has: a disagreement in the slowest mode decays like u/(gamma l), so that the best
gamma is about sqrt(u kappa)/L for condition kappa; D is large against u M where disagreement
decides, and small where the inner level itself does. All agents use the same gamma, or exact
diffusion would land elsewhere: the largest L, D and M travel by neighbours' maxima, and everybody
switches to what they have come to at a step that all know, once in `width` steps.

(6): at a fixed x the slowest mode of w is 1 - exp(-k/tau), of which k |w - w'|/|w| falls to .3 at
k = 2.06 tau: the lag of the inner level is measured, not guessed. (7): with W in place of the
averages a disagreement decays by u a step at most, with them by about sqrt(u). (9): if t is the
slowest disagreement alone, |e'| = v |t|, and s shrinks. (10): while s grows e-fold in a lag, c and
w can follow x. Far beyond the limit of stability, with two equal lags, a half-wave grows by 6.13 at
most whatever s is; (11) takes off more than a half-wave adds, and T slows growth down where the lag
was measured too short. This is an argument for one mode of a quadratic, not a proof; a recursion of
that mode, in the tests, stays below twice the cube of the error of the lag.

Should all this not be enough:

    (13) M > FAR F: all agents go back to the start, with l/MOST in place of l

M is the largest |t| of all since the last switch, F that until 2 LEAST steps after the hold, for
what the first move does to t. Who sees numbers of that size, or a direction that is not finite,
stands still until all know. The place where M was smallest is worse than the start: t vanishes
there because w has not yet followed x.

On minibatches what is noise alone must neither stop x nor let s fall, so there

    (14) t in (8)-(11) and in q is its average with weight AVERAGE, and e' in (9) alike; w in (6) is
         averaged twice; (12) takes L; p' is the root mean square of the average, step j with weight
         j^2 but no longer ago than about 2/AVERAGE; CUT is divided by twice the number of runs, but
         what exceeds BIG cuts in full; A is divided by that number, and not below 0

With CUT not halved s falls like one over the number of runs where all is noise, and x creeps; as it
is, about like its root. If p' remembered the way to the solution, s would not fall at first.

Sources: (1) Nesterov 1983; (7) Nedic, Olshevsky & Shi 2017; (10), (11) per coordinate as in
delta-bar-delta (Jacobs 1988) and Rprop (Riedmiller & Braun 1993); (14) Kesten 1958.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm import consensus
from decibo.algorithm.algorithm import Algorithm, Theory
from decibo.algorithm.direction import Direction
from decibo.algorithm.schedules import Rate, Schedule, Step, schedule
from decibo.capabilities import BY_DEFAULT, Need
from decibo.measure.cost import sometimes
from decibo.network.mixing import Mix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree, Vector

THETA = 0.1  # of the inner averages
SAFE = 0.9  # of half the largest gamma that is stable: L is seen from below, and late
FIRST = 0.3  # r at the start
PACE = 0.02  # change of log r in a step, where the network allows it
PROBE = 4  # steps between two probes, each of which costs a gradient of g
STARTS = 10  # probes before the first step
NOISE = 0.1  # of the direction of a probe
GOLDEN = (5**0.5 - 1) / 2
FALL = 0.95  # of L from one probe to the next
LATE = 8  # probes that the average of (12) looks back
RECENT = 0.3  # weight of the last step looked at in D and M
SETTLED = 0.3  # of (6)
LEAST = 10  # steps of the hold, and of a lag
START = 1e-3  # the first move of a coordinate of x
# the power of (12): a curvature that is a quarter ahead lets x move at a tenth of its speed
BRAKE = 10.0
ROUNDING = 10.0
CUT = 1.5
MOST = 0.1  # the most that (11) cuts during a run
AVERAGE = 0.1
BIG = 3.0
FAR = 1e3

RETURNS = "returns"  # what is asked of a state besides step sizes


class Plan(NamedTuple):
    """What is given: the direction, and a step size that is not to be chosen."""

    direction: Direction
    alpha: Schedule | None
    gamma: Schedule | None

    @property
    def theta(self) -> float:
        """A gamma that was given is meant without momentum."""
        return THETA if self.gamma is None else 1.0

    @property
    def guarded(self) -> bool:
        """What was given cannot be lowered."""
        return self.alpha is None and self.gamma is None


class Inner(NamedTuple):
    """What an agent keeps for c and w.

    memory   of exact diffusion
    average  a of (1)
    sent     what its last exchange has changed
    along    v of (2)
    own      L of this agent, (3)
    level    the average of log |h|, or of log L on minibatches
    news     the largest L, D and M of (5), M and F of (13) heard of since the last switch
    moves    D and M of (5) of this agent, squared: two numbers each, for c and w
    tops     M and F of (13) of this agent
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
    tops: Vector
    gamma: jax.Array
    share: jax.Array


class Outer(NamedTuple):
    """What an agent keeps for x; names as in (6)-(11).

    moved, changed   o and e: what neighbours have changed of x and t
    s        its logarithm, which has no units that could overflow
    peak, last   p and p'
    longest  the longest move of each coordinate so far
    largest  the largest |t|, |d| so far
    lag      k*/2 of (6) times 1/L; 0 while x stands still
    size     the largest |w| so far
    noise    on minibatches, what (14) asks for besides
    """

    moved: Vector
    changed: Vector
    t: Vector
    d: Vector
    s: Vector
    sign: Vector
    n: Vector
    T: Vector
    peak: Vector
    last: Vector
    longest: Vector
    largest: Vector
    lag: jax.Array
    size: jax.Array
    noise: Tree = ()


class Noise(NamedTuple):
    """Averages of t, of e', of t^2, of w, and of that average; the number of runs."""

    t: Vector
    changed: Vector
    square: Vector
    w: Vector
    again: Vector
    runs: Vector


class Kept(NamedTuple):
    """What (13) goes back to.

    x, c, size, own, largest   of the start; the L of this agent and the largest of all
    first     F
    since     the step at which the agents began, or began again
    returns   how often they have gone back
    """

    x: Vector
    c: Vector
    size: jax.Array
    own: jax.Array
    largest: jax.Array
    first: jax.Array
    since: jax.Array
    returns: jax.Array


class State(NamedTuple):
    """The state of one agent."""

    variables: Tree
    inner: Inner
    outer: Outer
    kept: Kept


def automatic(
    direction: Direction,
    alpha: Rate | None = None,
    gamma: Rate | None = None,
    *,
    noisy: bool = False,
) -> Algorithm:
    """The algorithm that follows a centred penalty's direction in x, c and w, and finds the step
    sizes that are not given."""
    given = {"alpha": alpha, "gamma": gamma}
    rates = (None if rate is None else schedule(name, rate) for name, rate in given.items())
    plan = Plan(direction, *rates)
    return Algorithm(
        init=Partial(_init_noisy if noisy else _init, plan),
        step=Partial(_step, plan),
        view=Partial(_view, direction),
        needs=BY_DEFAULT - {Need.ONE_NETWORK} | {Need.NETWORK_CONSTANTS},
        chosen=Partial(_chosen, plan),
        direction=direction,
        answer=direction.answer,
        theory=Theory(direction.bias),
        sampled=None if noisy else automatic(direction, alpha, gamma, noisy=True),
    )


def _init(plan: Plan, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    variables = plan.direction.start(start)
    x, c = variables.x, variables.c
    slope = oracle.inner(x, c).y

    def look(
        i: int, at: tuple[jax.Array, Vector, jax.Array]
    ) -> tuple[jax.Array, Vector, jax.Array]:
        """y0 is often 0: a step along the gradient says what is far for y. It is all that is kept
        of the first two looks, which are over a distance that knows no units; and as a power of
        two, so that their rounding is not kept either."""
        seen, along = _probe(oracle, x, c, slope, at[1], at[2])
        far = jnp.linalg.norm(slope) / jnp.where(seen > 0, seen, jnp.inf)
        _, power = jnp.frexp(jnp.maximum(jnp.linalg.norm(c), far))
        return seen, jnp.where(i < 2, at[1], along), jnp.ldexp(jnp.ones_like(far), power)

    none = jnp.zeros((), c.dtype)
    own, along, scale = lax.fori_loop(0, STARTS, look, (none, _noise(c), 1 + jnp.linalg.norm(c)))
    kept = Kept(x, c, scale, own, _everywhere(mix, own), none, none, none)
    return State(*_begun(plan, variables, along, kept), kept)


def _begun(
    plan: Plan, variables: Tree, along: Vector, kept: Kept, noise: Tree = ()
) -> tuple[Tree, Inner, Outer]:
    """What an agent has before its first step, and when it begins again."""
    x, c = kept.x, kept.c
    zeros = {"c": jnp.zeros_like(c), "w": jnp.zeros_like(c)}
    inner = Inner(
        memory=consensus.exact_diffusion().start(zeros),
        average=zeros,
        sent=zeros,
        along=along,
        own=kept.own,
        level=_log(kept.own),
        news=jnp.zeros(7, c.dtype).at[0].set(kept.largest),
        moves=jnp.zeros(4, c.dtype),
        tops=jnp.zeros(2, c.dtype),
        gamma=_given(plan.gamma, 0, FIRST * _most(plan.theta, kept.largest)),
        share=jnp.asarray(FIRST, c.dtype),
    )
    zero, none = jnp.zeros_like(x), jnp.zeros((), x.dtype)
    outer = Outer(*(zero,) * 12, lag=none, size=none, noise=jax.tree.map(jnp.zeros_like, noise))
    variables = variables._replace(x=x, c=c, size=kept.size)
    return variables, inner, outer._replace(longest=zero + START)


def _back(plan: Plan, state: State, k: jax.Array) -> State:
    """Back at the start, if that is what the news say; (13)."""
    v, inner, outer, kept = state
    M, F = inner.news[5:]
    kept = kept._replace(first=jnp.maximum(kept.first, F))
    lost = _far(M, kept)
    kept = kept._replace(since=jnp.where(lost, k, kept.since), returns=kept.returns + lost)
    again = _begun(plan, v._replace(w=jnp.zeros_like(v.w)), inner.along, kept, outer.noise)
    start, now = State(*again, kept), State(v, inner, outer, kept)
    return jax.tree.map(lambda new, old: jnp.where(lost, new, old), start, now)


def _far(M: jax.Array, kept: Kept) -> jax.Array:
    return (kept.first > 0) & (kept.first < M / FAR)


def _init_noisy(plan: Plan, oracle: Oracle, mix: Mix, start: dict[str, Vector]) -> State:
    state = _init(plan, oracle, mix, start)
    x, w = jnp.zeros_like(state.variables.x), jnp.zeros_like(state.variables.w)
    return state._replace(outer=state.outer._replace(noise=Noise(x, x, x, w, w, x)))


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
    if plan.guarded:
        told = (k % _period(mix) == 0) & (k > 0)
        state = lax.cond(told, lambda: _back(plan, state, k), lambda: state)
    v, inner, outer, kept = state
    asked = RememberingOracle(oracle.functions, oracle.data, oracle)
    d = plan.direction.at(asked, v, k)
    # Where nothing is known yet, what is not finite must end the run.
    finite = (kept.first == 0) | _finite((d.x, d.c, d.w))
    here = kept._replace(first=jnp.maximum(kept.first, inner.tops[1]))
    well = finite & ~_far(inner.tops[0], here) if plan.guarded else True
    d = d._replace(
        x=jnp.where(well, d.x, outer.d), c=jnp.where(well, d.c, 0), w=jnp.where(well, d.w, 0)
    )
    noisy = isinstance(outer.noise, Noise)
    inner, curvature = _looked(asked, v.x, d.size, inner, k, noisy=noisy)
    inner = _agreed(plan, mix, inner, k)
    own = {"c": v.c, "w": v.w}
    moved, inner = _inner_step(plan, mix, own, inner, {"c": d.c, "w": d.w}, k)
    brake = jnp.exp(-BRAKE * jnp.maximum(curvature - inner.level, 0)).astype(v.x.dtype)  # (12)
    brake = jnp.where(well, brake, 0)
    if plan.alpha is None:
        outer = _lagged(outer, v.w, inner, kept, k)
    pace = inner.gamma / inner.share
    x, outer = _outer_step(plan, mix, v.x, outer, d.x, pace, brake, k)
    hold = 2 * outer.lag / pace * MOST**kept.returns
    young = (outer.lag == 0) | (k - kept.since <= hold + 2 * LEAST)
    top = jnp.where(finite, jnp.max(jnp.abs(outer.t)), jnp.finfo(v.c.dtype).max)
    tops = jnp.stack([top, jnp.where(finite & young, top, 0)]).astype(v.c.dtype)
    inner = inner._replace(tops=jnp.maximum(inner.tops, tops))
    return State(d._replace(x=x, **moved), inner, outer, kept)


def _period(mix: Mix) -> jax.Array:
    return jnp.maximum(mix.reach.width, PROBE)


def _finite(tree: Tree) -> jax.Array:
    """Whether numbers are finite, and so are their squares."""
    leaves = [
        jnp.all(jnp.abs(leaf) < jnp.finfo(leaf.dtype).max ** 0.4) for leaf in jax.tree.leaves(tree)
    ]
    return jnp.all(jnp.stack(leaves))


@dataclass(frozen=True)
class RememberingOracle(Oracle):
    """An oracle that remembers where it was asked for g_y, and its answers: probe and secant need
    those of the step."""

    wrapped: Oracle
    slopes: list[tuple[Vector, Vector]] = field(default_factory=list)

    def ask(self, question: str, *at: Vector) -> Any:
        answer = self.wrapped.ask(question, *at)
        if question == "inner":
            self.slopes.append((at[1], answer.y))
        return answer

    def on(self, data: Tree) -> Oracle:
        return self.wrapped.on(data)


def _looked(
    oracle: RememberingOracle,
    x: Vector,
    scale: jax.Array,
    inner: Inner,
    k: jax.Array,
    *,
    noisy: bool,
) -> tuple[Inner, jax.Array]:
    """With the curvature looked at, if it is time to; and the logarithm of what was seen last."""
    (y, slope), (z, other) = oracle.slopes

    def look(_: None) -> tuple[Vector, jax.Array, jax.Array, jax.Array]:
        seen, along = _probe(oracle.wrapped, x, y, slope, inner.along, scale)
        own = jnp.maximum(seen, FALL * inner.own)  # (3)
        log = _log(own if noisy else seen)
        along = _unit(along + NOISE * _noise(along))  # (2)
        return along, own, inner.level + (log - inner.level) / LATE, log

    kept = inner.along, inner.own, inner.level, _log(inner.own)
    along, own, level, log = sometimes(1 / PROBE, k % PROBE == 0, look, lambda _: kept, None)
    # A pair that is too close shows rounding in place of curvature.
    apart = jnp.linalg.norm(y - z)
    far = apart > 1e-2 * jnp.sqrt(jnp.finfo(y.dtype).eps) * scale
    secant = jnp.linalg.norm(slope - other) / jnp.where(far, apart, 1)
    own = jnp.where(far & jnp.isfinite(secant), jnp.maximum(own, secant), own)
    return inner._replace(along=along, own=own, level=level), log


def _agreed(plan: Plan, mix: Mix, inner: Inner, k: jax.Array) -> Inner:
    """With the news of the neighbours; and, when these have come from everywhere, with another
    gamma."""
    if plan.gamma is not None:
        return inner._replace(gamma=_given(plan.gamma, k, inner.gamma))
    period = _period(mix)

    def turn() -> Inner:
        news = jnp.concatenate([inner.own[None], inner.moves, inner.tops])
        new = lax.cond(k > 0, lambda: _switched(plan, mix, inner, period), lambda: inner)
        return new._replace(news=news, tops=jnp.zeros_like(inner.tops))

    inner = lax.cond(k % period == 0, turn, lambda: inner)
    return inner._replace(news=mix.largest(inner.news))


def _switched(plan: Plan, mix: Mix, inner: Inner, period: jax.Array) -> Inner:
    """With the gamma and r of (4) and (5), and memories that fit them."""
    dtype = inner.news.dtype
    tiny = jnp.finfo(dtype).tiny
    u = jnp.asarray(mix.reach.slow, dtype) / 2
    largest, d_c, m_c, d_w, m_w, *_ = inner.news
    ratio = (d_c / jnp.maximum(m_c, tiny) + d_w / jnp.maximum(m_w, tiny)) / 2  # D^2/M^2
    lean = jnp.clip(jnp.log(jnp.maximum(ratio, tiny)) / 2 - jnp.log(u), -1, 1)
    least = jnp.minimum(jnp.sqrt(u) / 2, FIRST)
    share = jnp.clip(inner.share * jnp.exp(-period * jnp.minimum(PACE, u) * lean), least, 1)  # (5)
    gamma = share * _most(plan.theta, largest)  # (4)
    memory = jax.tree.map(lambda c: gamma / inner.gamma * c, inner.memory)
    return inner._replace(gamma=gamma, share=share, memory=memory)


def _inner_step(
    plan: Plan, mix: Mix, own: dict[str, Vector], inner: Inner, d: dict[str, Vector], k: jax.Array
) -> tuple[dict[str, Vector], Inner]:
    """c and w after the step, and what is kept for the next."""
    theta = plan.theta
    if plan.gamma is None:
        cap = jnp.minimum(1, _most(theta, inner.own) / inner.gamma)
        d = {name: cap * each for name, each in d.items()}
    average = {name: a + theta * (d[name] - a) for name, a in inner.average.items()}  # (1)
    along = {name: a + theta * (d[name] - a) for name, a in average.items()}
    rates = dict.fromkeys(own, inner.gamma)
    moved, memory = consensus.exact_diffusion().step(
        mix, lambda s, h: s, own, inner.memory, along, rates
    )
    sent = jax.tree.map(jnp.subtract, memory[0], inner.memory[0])

    def moves() -> Vector:
        """D and M of (5), squared and averaged, with those of this step."""
        changed = jax.tree.map(jnp.subtract, sent, inner.sent)
        move = jax.tree.map(jnp.subtract, moved, own)
        now = jnp.stack([jnp.sum(each[name] ** 2) for name in own for each in (changed, move)])
        return inner.moves + RECENT * (now - inner.moves)

    moves = lax.cond(k % PROBE == 0, moves, lambda: inner.moves)
    return moved, inner._replace(memory=memory, average=average, sent=sent, moves=moves)


def _lagged(outer: Outer, w: Vector, inner: Inner, kept: Kept, k: jax.Array) -> Outer:
    """With the lag, once w has settled at the first x; (6)."""
    noise, k = outer.noise, k - kept.since
    move, tiny = jnp.sqrt(inner.moves[3]), jnp.finfo(w.dtype).tiny
    if isinstance(noise, Noise):
        weight = (2 / (k + 2)).astype(w.dtype)
        w = noise.w + weight * (w - noise.w)
        again = noise.again + weight * (w - noise.again)
        noise = noise._replace(w=w, again=again)
        move = weight * jnp.linalg.norm(w - again)
    size = jnp.maximum(outer.size, jnp.linalg.norm(w))
    settled = (k * move <= SETTLED * jnp.maximum(size, tiny)) & (k >= LEAST) & (outer.lag == 0)
    lag = (k + 0.5) / 2 * inner.gamma / inner.share * MOST**-kept.returns
    lag = jnp.where(settled, lag, outer.lag)
    return outer._replace(noise=noise, size=size, lag=lag.astype(outer.lag.dtype))


def _outer_step(
    plan: Plan,
    mix: Mix,
    x: Vector,
    outer: Outer,
    d: Vector,
    pace: jax.Array,
    brake: jax.Array,
    k: jax.Array,
) -> tuple[Vector, Outer]:
    """x after the step, and what is kept for the next."""
    t = outer.t + outer.changed + d - outer.d  # (7)
    u = jnp.clip(jnp.asarray(mix.reach.slow, x.dtype), 1e-8, 1) / 2
    b = (1 - jnp.sqrt(u)) / (1 + jnp.sqrt(u))
    if plan.alpha is None:
        move, outer = _found(outer, t, d, u / (1 - (1 - u) * b), pace, brake, k)
    else:
        move = plan.alpha(k) * t
    q = x - move
    moved, changed = mix.difference((q + b * outer.moved, t + b * outer.changed))
    moved, changed = b * outer.moved + moved / 2, b * outer.changed + changed / 2
    return q + moved, outer._replace(moved=moved, changed=changed, t=t, d=d)


def _found(
    outer: Outer,
    t: Vector,
    d: Vector,
    slowest: jax.Array,
    pace: jax.Array,
    brake: jax.Array,
    k: jax.Array,
) -> tuple[Vector, Outer]:
    """s B t, and what is kept of (8)-(11)."""
    info, dtype = jnp.finfo(t.dtype), t.dtype
    largest = jnp.maximum(outer.largest, jnp.maximum(jnp.abs(t), jnp.abs(d)))
    noise, noisy = outer.noise, isinstance(outer.noise, Noise)
    changed, square, least = outer.changed, t, -1.0
    if noisy:  # (14)
        weight = jnp.maximum(AVERAGE, 1 / (k + 1)).astype(dtype)
        t = noise.t + weight * (t - noise.t)
        changed = noise.changed + weight * (changed - noise.changed)
        recent = jnp.maximum(AVERAGE / 2, 3 / (k + 3)).astype(dtype)
        square = noise.square + recent * (t**2 - noise.square)
        least = 0.0
    size = jnp.abs(t)
    still = outer.lag == 0
    lag = jnp.maximum(outer.lag / pace, LEAST)

    # (8)
    turned = t * outer.sign < 0
    T = jnp.where(turned, outer.n, outer.T)
    n = jnp.where(turned, 0, outer.n) + 1
    last = jnp.where(turned, outer.peak, outer.last)
    before = jnp.where(turned, 0, outer.peak)
    peak = jnp.maximum(before, size)

    # (9), (10)
    A = jnp.clip(1 - 2 * jnp.abs(changed) / jnp.maximum(slowest * size, info.tiny), least, 1)
    rounding = ROUNDING * jnp.sqrt(k + 1.0).astype(dtype) * info.eps * largest
    A = jnp.where(A > 0, A * brake * (size > rounding), A)
    P = jnp.maximum(T, lag)
    power, against = CUT, last
    if noisy:
        runs = jnp.where(still, 0, noise.runs + turned)
        many = jnp.maximum(runs, 1)
        A, power, against = A / many, CUT / (2 * many), jnp.sqrt(square)
        noise = Noise(t, changed, square, noise.w, noise.again, runs)
    up = jnp.log1p(jnp.where(n > P, A / P, 0))

    # (11)

    def cut(p: Vector) -> Vector:
        ratio = p / jnp.maximum(against, info.tiny)
        far = CUT * jnp.log(jnp.maximum(ratio, BIG) / BIG) if noisy else 0
        return jnp.maximum(-power * jnp.log1p(ratio) - far, jnp.log(MOST))

    s = outer.s + up + jnp.where(last > 0, cut(peak) - cut(before), 0)
    floor = jnp.maximum(size, jnp.maximum(ROUNDING * info.eps * largest, info.tiny**0.5))
    most = jnp.log(outer.longest) - jnp.log(floor)
    # While x stands still nothing is remembered.
    s = jnp.where(still, most, jnp.minimum(s, most + up))
    move = jnp.where(still, 0, jnp.exp(s))
    n, T, peak, last = (jnp.where(still, 0, each) for each in (n, T, peak, last))
    return brake * move * t, outer._replace(
        s=s,
        sign=jnp.where(still | (t == 0), outer.sign * ~still, jnp.sign(t)),
        n=n,
        T=T,
        peak=peak,
        last=last,
        longest=jnp.maximum(outer.longest, move * size),
        largest=largest,
        noise=noise,
    )


def _probe(
    oracle: Oracle, x: Vector, y: Vector, slope: Vector, along: Vector, scale: jax.Array
) -> tuple[jax.Array, Vector]:
    """|h| and h/|h| of (2), where g_y is `slope`; nothing and the old direction if it does not
    change. `scale` is that of y."""
    e = jnp.sqrt(jnp.finfo(y.dtype).eps) * jnp.where(scale > 0, scale, 1)
    h = (oracle.inner(x, y + e * along).y - slope) / e
    size = jnp.linalg.norm(h)
    seen = jnp.isfinite(size) & (size > 0)
    return jnp.where(seen, size, 0), jnp.where(seen, h / jnp.where(seen, size, 1), along)


def _most(theta: float, largest: jax.Array) -> jax.Array:
    """(4) with r = 1; where no curvature was seen at all, that of 1."""
    limit = (2 - theta) / (theta * (3 - 2 * theta))
    return SAFE * limit / jnp.where(largest > 0, largest, 1)


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
    """The step sizes that were not given: alpha as the median of s over the coordinates, 0 while x
    stands still; and gamma. And how often the agents have gone back."""
    alpha = jnp.where(state.outer.lag > 0, jnp.exp(jnp.median(state.outer.s)), 0)
    found = {"alpha": alpha, "gamma": state.inner.gamma}
    given = {"alpha": plan.alpha, "gamma": plan.gamma}
    left = {name: value for name, value in found.items() if given[name] is None}
    return left | {RETURNS: state.kept.returns}
