r"""Consensus strategies: how neighbours agree on a variable s that moves along d with step h.

W~ = (I + W)/2; P is the proximal map of the variable (the identity unless one is given); all
memories start at 0. With a rule (rule.py) in place of the step size, h d and h t stand for its move
h u along d or t.

dgd               combine, then adapt                                 sends s         lands O(h) off
    (1)  s+ = P(W s - h d)
atc               adapt, then combine                                 sends s         lands O(h) off
    (2)  s+ = P(W (s - h d))
tracking          gradient tracking                                   sends s, t      exact
    (3)  t  = W t' + d - d'                                           ' = of the step before
    (4)  s+ = P(W s - h t)
atc_tracking      gradient tracking, adapt then combine               sends s, t      exact
    (5)  t  = W (t' + d - d')
    (6)  s+ = P(W (s - h t))
extra             EXTRA, with P: PG-EXTRA                             sends s         exact
    (7)  e  = (W - I) s/2,  c+ = c + e                                so that W~ s = s + e
    (8)  s+ = P(s + e - h d + c+)
exact_diffusion   exact diffusion, with P: proximal exact diffusion   sends s         exact
    (9)  p  = s - h d
    (10) e  = (W - I)(p + c)/2                                        so that W~ (p + c) = p + c + e
    (11) c+ = c + e
    (12) s+ = P(p + c+)
push_pull         directed networks: A row-, B column-stochastic      sends s, t      exact
    (13) t  = B t' + d - d'
    (14) s+ = P(A s - h t)
local             no agreement at all: every agent for itself         sends nothing
    (15) s+ = P(s - h d)
relaxed           another strategy, part of the way                   as that one
    (20) s+ = s + w (s' - s)                                          s' what that one would do
robust_tracking   gradient tracking by totals                         sends p, c      exact, also
                                                                      without waiting
    (16) q  = W c + d - c,  c+ = c + q                                c may start anywhere
    (17) s+ = P(W p)
    (18) p+ = s+ - h q                                                p starts at s

(9)-(12) are the usual p+ = s - h d, s+ = W~ (p+ + s - p) with c = s - p. (7), (8) are the usual
two-term recursion s'' = (I + W) s' - W~ s - h (d' - d), s' = W s - h d. In a strategy s, d and h
are trees with one entry for each variable, so that one `mix` is one message to every neighbour.

The memory c of EXTRA and exact diffusion must sum to 0 over the agents: they come to rest where the
mean of h d is the mean of c. It is a sum of as many terms as there are steps, so rounding would
make its mean walk away, without end. Two things prevent that: e is found from differences between
agents, which vanish as they agree, and what the sum c + e rounds away is kept and added at the next
step (Kahan 1965):

    (19) t = e + o,  c+ = c + t,  o+ = t - (c+ - c)                   o = 0 but for rounding

robust_tracking has no such sum to keep. At rest q = 0, so that (I - W) c = d, and the sum of d over
the agents is 0 whatever c was before: an agent may be slow, restart from an old checkpoint or lose
its memory, and messages may be late or lost. q is local and 0 only at rest, so that an agent can
watch it. Its price: the direction is a step old. With curvature L the mean over the agents follows
l^2 - l + h L = 0, stable for h L < 1 where the others have 2; above that it need not blow up but
circles. Where a projection is active, q is not 0 at rest and c grows by it at every step; in
lockstep q is then the same at all agents and every proximal map is exact, without waiting only
projections are.

Sources: Nedic & Ozdaglar 2009 (1); Chen & Sayed 2012 (2); Nedic, Olshevsky & Shi 2017 and Qu & Li
2018 (3)-(6); Shi, Ling, Wu & Yin 2015 (7)-(8); Yuan, Ying, Zhao & Sayed 2019 (9)-(12); Pu, Shi, Xu
& Nedic 2021 and Xin & Khan 2018 (13)-(14); Pu 2020, R-Push-Pull, made for noisy links: the
cumulative gradient is tracked, (16)-(18).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.schedules import Scalar, unless_traced
from decibo.capabilities import Need, Needs
from decibo.network.mixing import Mix
from decibo.pytree import Tree, Vector
from decibo.validate import fraction

__all__ = [
    "Consensus",
    "atc",
    "atc_tracking",
    "dgd",
    "exact_diffusion",
    "extra",
    "local",
    "push_pull",
    "robust_tracking",
    "tracking",
]

Group = dict[str, Vector]  # one entry for each variable that agrees by this strategy
Rates = dict[str, Scalar]
Pair = tuple[Group, Group]
Proxes = Callable[[Group, Rates], Group]
tree_map = jax.tree.map
SYMMETRIC = frozenset({Need.SYMMETRIC_WEIGHTS})  # of a strategy that need not be in lockstep


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Consensus:
    """A strategy: `start(s)` creates its memory, `step(mix, prox, s, memory, d, h)` returns the new
    (s, memory).

    follow        `follow(mix, memory, d)` comes before the step and returns the direction that the
                  step follows, with the memory for it: a tracked one, or by default d itself
    needs         of the network: symmetric weights, agents in lockstep
    needs_linear  whether it is exact only with rules that are linear and the same at all agents
    exact         whether it comes to rest where the directions of all agents sum to 0, whatever
                  each of them is
    rest          `rest(s, memory)`: by how much the variables will still move, for strategies that
                  know
    """

    start: Callable[[Group], Tree]
    step: Callable[..., tuple[Group, Tree]]
    name: str = field(metadata={"static": True})
    needs: Needs = field(
        default=frozenset({Need.SYMMETRIC_WEIGHTS, Need.LOCKSTEP}), metadata={"static": True}
    )
    follow: Callable[..., tuple[Group, Tree]] = field(default_factory=lambda: Partial(_own))
    needs_linear: bool = field(default=False, metadata={"static": True})
    exact: bool = field(default=True, metadata={"static": True})
    rest: Callable[[Group, Tree], Group] | None = None


def dgd() -> Consensus:
    """Distributed gradient descent: one vector sent; lands O(h) off if the agents differ."""
    return Consensus(Partial(_nothing), Partial(_dgd), "dgd", exact=False, needs=SYMMETRIC)


def atc() -> Consensus:
    """Adapt, then combine (diffusion): one vector sent; lands O(h) off if the agents differ."""
    return Consensus(Partial(_nothing), Partial(_atc), "atc", exact=False, needs=SYMMETRIC)


def tracking() -> Consensus:
    """Gradient tracking: two vectors sent; exact."""
    return Consensus(Partial(_two_zeros), Partial(_tracking), "tracking", follow=Partial(_tracked))


def atc_tracking() -> Consensus:
    """Gradient tracking in adapt-then-combine form: two vectors sent, one after the other;
    exact."""
    return Consensus(
        Partial(_two_zeros), Partial(_atc), "atc_tracking", follow=Partial(_tracked_and_mixed)
    )


def extra() -> Consensus:
    """EXTRA: one vector sent; exact."""
    return Consensus(Partial(_two_zeros), Partial(_extra), "extra", needs_linear=True)


def exact_diffusion() -> Consensus:
    """Exact diffusion: one vector sent; exact."""
    return Consensus(
        Partial(_two_zeros), Partial(_exact_diffusion), "exact_diffusion", needs_linear=True
    )


def push_pull() -> Consensus:
    """Push-pull: two vectors sent; exact on directed networks."""
    follow = Partial(_tracked)
    return Consensus(
        Partial(_two_zeros),
        Partial(_push_pull),
        "push_pull",
        needs=frozenset({Need.LOCKSTEP}),
        follow=follow,
    )


def local() -> Consensus:
    """No exchange: for variables that are an agent's own, as in a personalised inner level."""
    return Consensus(Partial(_nothing), Partial(_local), "local", needs=frozenset(), exact=False)


def relaxed(strategy: Consensus, weight: float) -> Consensus:
    """The strategy with only a part of each move, as LoPA and MDBO have it; lands where it does.
    What the strategy follows, such as a tracked direction, is mixed in full.

    weight   the part, at most 1, and the same for all variables that agree by this strategy
    """
    # Not in __all__: `compose` tells strategies apart by name, and a name with a number in it would
    # be compiled again for every number.
    step = Partial(_relaxed, strategy.step, unless_traced(fraction, "weight", weight, zero=False))
    return replace(strategy, step=step, name=f"relaxed {strategy.name}")


def robust_tracking() -> Consensus:
    """Gradient tracking by totals: two vectors sent; exact, also if agents do not wait and messages
    are late or lost.

    Steps must have h L < 1, where the other exact strategies allow 2.
    """
    follow = Partial(_totals)
    return Consensus(
        Partial(_start_robust),
        Partial(_robust),
        "robust_tracking",
        follow=follow,
        needs=SYMMETRIC,
        rest=Partial(_left),
    )


def _nothing(s: Group) -> tuple[()]:
    return ()


def _zeros(s: Group) -> Group:
    return tree_map(jnp.zeros_like, s)


def _two_zeros(s: Group) -> tuple[Group, Group]:
    return _zeros(s), _zeros(s)


def _add(memory: Pair, e: Group) -> Pair:
    """The memory c with e added, and what rounding left over."""
    c, over = memory
    t = tree_map(jnp.add, e, over)
    new = tree_map(jnp.add, c, t)
    return new, tree_map(lambda t, new, c: t - (new - c), t, new, c)  # (19)


def _own(mix: Mix, memory: Tree, d: Group) -> tuple[Group, Tree]:
    return d, memory


def _tracked(mix: Mix, memory: Pair, d: Group) -> tuple[Group, Pair]:
    wt, d_old = memory
    t = tree_map(lambda wt, d, old: wt + d - old, wt, d, d_old)  # (3), (13)
    return t, (t, d)


def _tracked_and_mixed(mix: Mix, memory: Pair, d: Group) -> tuple[Group, Pair]:
    t_old, d_old = memory
    t = mix(tree_map(lambda t, d, old: t + d - old, t_old, d, d_old))  # (5)
    return t, (t, d)


def _dgd(
    mix: Mix, prox: Proxes, s: Group, memory: tuple[()], d: Group, h: Rates
) -> tuple[Group, tuple[()]]:
    return prox(tree_map(lambda ws, h, d: ws - h * d, mix(s), h, d), h), memory  # (1)


def _atc(mix: Mix, prox: Proxes, s: Group, memory: Tree, d: Group, h: Rates) -> tuple[Group, Tree]:
    return prox(mix(tree_map(lambda s, h, d: s - h * d, s, h, d)), h), memory  # (2), (6)


def _tracking(
    mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates
) -> tuple[Group, Pair]:
    t, d_old = memory
    ws, wt = mix((s, t))
    return prox(tree_map(lambda ws, h, d: ws - h * d, ws, h, d), h), (wt, d_old)  # (4)


def _extra(
    mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates
) -> tuple[Group, Pair]:
    e = tree_map(lambda apart: apart / 2, mix.difference(s))
    memory = _add(memory, e)  # (7)
    # (8)
    return prox(tree_map(lambda s, e, h, d, c: s + e - h * d + c, s, e, h, d, memory[0]), h), memory


def _exact_diffusion(
    mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates
) -> tuple[Group, Pair]:
    p = tree_map(lambda s, h, d: s - h * d, s, h, d)  # (9)
    apart = mix.difference(tree_map(jnp.add, p, memory[0]))
    memory = _add(memory, tree_map(lambda apart: apart / 2, apart))  # (10), (11)
    return prox(tree_map(jnp.add, p, memory[0]), h), memory  # (12)


def _push_pull(
    mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates
) -> tuple[Group, Pair]:
    t, d_old = memory
    return prox(tree_map(lambda a, h, d: a - h * d, mix(s), h, d), h), (mix.push(t), d_old)  # (14)


def _local(
    mix: Mix, prox: Proxes, s: Group, memory: tuple[()], d: Group, h: Rates
) -> tuple[Group, tuple[()]]:
    return prox(tree_map(lambda s, h, d: s - h * d, s, h, d), h), memory  # (15)


def _relaxed(
    step: Callable[..., tuple[Group, Tree]],
    weight: Scalar,
    mix: Mix,
    prox: Proxes,
    s: Group,
    memory: Tree,
    d: Group,
    h: Rates,
) -> tuple[Group, Tree]:
    moved, memory = step(mix, prox, s, memory, d, h)
    return tree_map(lambda s, new: s + weight * (new - s), s, moved), memory  # (20)


def _start_robust(s: Group) -> Pair:
    return s, _zeros(s)


def _totals(mix: Mix, memory: Pair, d: Group) -> tuple[Group, Pair]:
    p, c = memory
    apart_p, apart_c = mix.difference((p, c))
    q = tree_map(jnp.add, apart_c, d)  # (16)
    return q, (tree_map(jnp.add, p, apart_p), tree_map(jnp.add, c, q))


def _robust(
    mix: Mix, prox: Proxes, s: Group, memory: Pair, q: Group, h: Rates
) -> tuple[Group, Pair]:
    wp, c = memory
    s = prox(wp, h)  # (17)
    return s, (tree_map(lambda s, h, q: s - h * q, s, h, q), c)  # (18)


def _left(s: Group, memory: Pair) -> Group:
    return tree_map(jnp.subtract, s, memory[0])  # h q of (18)
