r"""Consensus strategies: how neighbours agree on a variable s that moves along d with step h.

W~ = (I + W)/2; P is the proximal map of the variable (the identity unless one is given); all memories start at 0.
With a rule (rule.py) in place of the step size, h d and h t stand for its move h u along d or t.

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

(9)-(12) are the usual p+ = s - h d, s+ = W~ (p+ + s - p) with c = s - p. (7), (8) are the usual two-term recursion
s'' = (I + W) s' - W~ s - h (d' - d), s' = W s - h d. In a strategy s, d and h are trees with one entry for each
variable, so that one `mix` is one message to every neighbour.

The memory c of EXTRA and exact diffusion must sum to 0 over the agents: they come to rest where the mean of h d is the
mean of c. It is a sum of as many terms as there are steps, so rounding would make its mean walk away, without end. Two
things prevent that: e is found from differences between agents, which vanish as they agree, and what the sum c + e
rounds away is kept and added at the next step (Kahan 1965):

    (16) t = e + o,  c+ = c + t,  o+ = t - (c+ - c)                   o = 0 but for rounding

Sources: Nedic & Ozdaglar 2009 (1); Chen & Sayed 2012 (2); Nedic, Olshevsky & Shi 2017 and Qu & Li 2018 (3)-(6);
Shi, Ling, Wu & Yin 2015 (7)-(8); Yuan, Ying, Zhao & Sayed 2019 (9)-(12); Pu, Shi, Xu & Nedic 2021 and Xin & Khan
2018 (13)-(14).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.schedules import Scalar
from decibo.network.mixing import Mix
from decibo.pytree import Tree, Vector

__all__ = ["Consensus", "atc", "atc_tracking", "dgd", "exact_diffusion", "extra", "local", "push_pull", "tracking"]

Group = dict[str, Vector]  # one entry for each variable that agrees by this strategy
Rates = dict[str, Scalar]
Pair = tuple[Group, Group]
Proxes = Callable[[Group, Rates], Group]
tree_map = jax.tree.map


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Consensus:
    """A strategy: `start(s)` creates its memory, `step(mix, prox, s, memory, d, h)` returns the new (s, memory).

    follow        `follow(mix, memory, d)` comes before the step and returns the direction that the step follows, with
                  the memory for it: a tracked one, or by default d itself
    directed      whether it is exact on a directed network; the others need W doubly stochastic
    needs_linear  whether it is exact only with rules that are linear and the same at all agents
    """

    start: Callable[[Group], Tree]
    step: Callable[..., tuple[Group, Tree]]
    name: str = field(metadata={"static": True})
    directed: bool = field(default=False, metadata={"static": True})
    follow: Callable[..., tuple[Group, Tree]] = field(default_factory=lambda: Partial(_own))
    needs_linear: bool = field(default=False, metadata={"static": True})


def dgd() -> Consensus:
    """Distributed gradient descent: one vector sent; lands O(h) off if the agents differ."""
    return Consensus(Partial(_nothing), Partial(_dgd), "dgd")


def atc() -> Consensus:
    """Adapt, then combine (diffusion): one vector sent; lands O(h) off if the agents differ."""
    return Consensus(Partial(_nothing), Partial(_atc), "atc")


def tracking() -> Consensus:
    """Gradient tracking: two vectors sent; exact."""
    return Consensus(Partial(_two_zeros), Partial(_tracking), "tracking", follow=Partial(_tracked))


def atc_tracking() -> Consensus:
    """Gradient tracking in adapt-then-combine form: two vectors sent, one after the other; exact."""
    return Consensus(Partial(_two_zeros), Partial(_atc), "atc_tracking", follow=Partial(_tracked_and_mixed))


def extra() -> Consensus:
    """EXTRA: one vector sent; exact."""
    return Consensus(Partial(_two_zeros), Partial(_extra), "extra", needs_linear=True)


def exact_diffusion() -> Consensus:
    """Exact diffusion: one vector sent; exact."""
    return Consensus(Partial(_two_zeros), Partial(_exact_diffusion), "exact_diffusion", needs_linear=True)


def push_pull() -> Consensus:
    """Push-pull: two vectors sent; exact on directed networks."""
    follow = Partial(_tracked)
    return Consensus(Partial(_two_zeros), Partial(_push_pull), "push_pull", directed=True, follow=follow)


def local() -> Consensus:
    """No exchange: for variables that are an agent's own, as in a personalised inner level."""
    return Consensus(Partial(_nothing), Partial(_local), "local", directed=True)


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
    return new, tree_map(lambda t, new, c: t - (new - c), t, new, c)  # (16)


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


def _dgd(mix: Mix, prox: Proxes, s: Group, memory: tuple[()], d: Group, h: Rates) -> tuple[Group, tuple[()]]:
    return prox(tree_map(lambda ws, h, d: ws - h * d, mix(s), h, d), h), memory  # (1)


def _atc(mix: Mix, prox: Proxes, s: Group, memory: Tree, d: Group, h: Rates) -> tuple[Group, Tree]:
    return prox(mix(tree_map(lambda s, h, d: s - h * d, s, h, d)), h), memory  # (2), (6)


def _tracking(mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates) -> tuple[Group, Pair]:
    t, d_old = memory
    ws, wt = mix((s, t))
    return prox(tree_map(lambda ws, h, d: ws - h * d, ws, h, d), h), (wt, d_old)  # (4)


def _extra(mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates) -> tuple[Group, Pair]:
    e = tree_map(lambda apart: apart / 2, mix.difference(s))
    memory = _add(memory, e)  # (7)
    return prox(tree_map(lambda s, e, h, d, c: s + e - h * d + c, s, e, h, d, memory[0]), h), memory  # (8)


def _exact_diffusion(mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates) -> tuple[Group, Pair]:
    p = tree_map(lambda s, h, d: s - h * d, s, h, d)  # (9)
    apart = mix.difference(tree_map(jnp.add, p, memory[0]))
    memory = _add(memory, tree_map(lambda apart: apart / 2, apart))  # (10), (11)
    return prox(tree_map(jnp.add, p, memory[0]), h), memory  # (12)


def _push_pull(mix: Mix, prox: Proxes, s: Group, memory: Pair, d: Group, h: Rates) -> tuple[Group, Pair]:
    t, d_old = memory
    return prox(tree_map(lambda a, h, d: a - h * d, mix(s), h, d), h), (mix.push(t), d_old)  # (14)


def _local(mix: Mix, prox: Proxes, s: Group, memory: tuple[()], d: Group, h: Rates) -> tuple[Group, tuple[()]]:
    return prox(tree_map(lambda s, h, d: s - h * d, s, h, d), h), memory  # (15)
