r"""Estimators: from which samples an agent finds its direction.

D(s) is the direction at the variables s on all of the agent's data, D(s; xi) the same on a
minibatch xi. All gradients in one D(s; xi) are taken on the SAME xi: then the noise of two nearly
equal gradients cancels in their difference, and lam does not enter the variance. s' and d' are of
the step before, D' is the direction with the lam of the step before.

minibatch                             [Robbins & Monro 1951]
    (1)  d = D(s; xi)
storm                                 [Cutkosky & Orabona 2019]
    (2)  d = D(s; xi) + (1 - a) (d' - D'(s'; xi))                       a = 1 at step 0
page, sarah                           [Li et al. 2021; Nguyen et al. 2017, SPIDER: Fang et al. 2018]
    (3)  d = D(s)                                                       if full gradients are due
         d = d' + D(s; xi) - D'(s'; xi)                                 otherwise
saga: B batches, a table T of what was last found on each, and its mean m, all 0 at the start
                                                    [Defazio, Bach & Lacoste-Julien 2014; SABA:
                                                    Dagreou et al. 2022]
    (4)  d  = D(s; j) - T_j + m                                         j drawn from 1, ..., B
    (5)  m+ = m + (D(s; j) - T_j)/B,   T_j+ = D(s; j)
snapshot                                            [skipped derivatives, as in S3LDBO 2026]
    (6)  d = D(s)                                                       if full gradients are due
         d = d'                                                         otherwise

Full gradients are due at step 0 and then with probability p, or at every `period`-th step. The coin
is a function of the step alone, the same for all agents: a synchronous network is as slow as its
slowest agent, so that agents with coins of their own would nearly always wait for somebody's full
gradients; and a simulation would compute them at every step. Minibatches are every agent's own.

(2), (3), (4) and (6) follow D(s) without error once the variables come to rest, so that constant
step sizes reach the solution; (2) only as a goes to 0. That needs D to be linear in the gradients
of f and g, as all directions of `decibo.direction` are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from decibo.algorithm.direction import Direction
from decibo.algorithm.schedules import Rate, Schedule, Step, schedule
from decibo.capabilities import Need, Needs
from decibo.measure.cost import sometimes
from decibo.problem.problem import Oracle
from decibo.pytree import Tree
from decibo.validate import fraction, integer
from decibo.validate import seed as check_seed

IN = "promise_in_bounds"
BOTH = frozenset({Need.MINIBATCHES, Need.FULL_DATA})
NUMBERED = frozenset({Need.MINIBATCHES, Need.NUMBERED_BATCHES})
__all__ = ["Estimator", "minibatch", "page", "saga", "sarah", "snapshot", "storm"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Estimator:
    """An estimator: `start(oracle, s)` creates its memory; `at(direction, oracle, s, memory, k,
    key)` returns d and the new memory.

    needs   of the problem: minibatches, a fixed list of them, gradients on all data
    """

    start: Callable[[Oracle, Tree], Tree]
    at: Callable[..., tuple[Tree, Tree]]
    name: str = field(metadata={"static": True})
    needs: Needs = field(default=frozenset({Need.MINIBATCHES}), metadata={"static": True})


class Past(NamedTuple):
    """The variables and the direction of the step before."""

    s: Tree
    d: Tree


class BatchTable(NamedTuple):
    """The direction last found on each batch, and their mean.

    What a step finds is written into the table at the next one, before it is read: a table that is
    read and then written in one step would be copied as a whole.
    """

    rows: Tree
    mean: Tree
    j: jax.Array  # the batch of the step before
    found: Tree  # and the direction on it


@jax.tree_util.register_static
@dataclass(frozen=True)
class Due:
    """Steps with full gradients: step 0, and then every `period`-th or, without one, with a
    probability."""

    probability: float
    period: int | None = None
    seed: int = 0

    def __call__(self, k: Step) -> jax.Array:
        if self.period is not None:
            return jnp.asarray(k) % self.period == 0
        coin = jax.random.fold_in(jax.random.key(self.seed), k)
        return (jnp.asarray(k) == 0) | jax.random.bernoulli(coin, self.probability)


def minibatch() -> Estimator:
    """The direction on a minibatch: unbiased, with a variance that stays."""
    return Estimator(Partial(_nothing), Partial(_minibatch), "minibatch")


def storm(a: Rate) -> Estimator:
    """STORM: a moving average that corrects what it remembers; two directions on one minibatch.

    a   weight of what is new: smaller means less noise and a longer memory;
        schedules.polynomial(1.0, -1.0) makes the noise vanish like 1/k
    """
    return Estimator(Partial(_past), Partial(_storm, schedule("a", a)), "storm")


def page(p: float, *, seed: int = 0) -> Estimator:
    """PAGE: full gradients with probability p, else what changes since the step before, found on a
    minibatch.

    p      of full gradients; about the share of the data that a minibatch sees makes both cost the
           same
    seed   of the coin, which all agents share
    """
    due = Due(fraction("p", p, zero=False), seed=check_seed(seed))
    return Estimator(Partial(_past), Partial(_recursive, due), f"page({due.probability:g})", BOTH)


def sarah(period: int) -> Estimator:
    """SARAH or SPIDER: `page` with full gradients at every `period`-th step."""
    period = integer("period", period)
    return Estimator(
        Partial(_past), Partial(_recursive, Due(1 / period, period)), f"sarah({period})", BOTH
    )


def saga() -> Estimator:
    """SAGA: a table of the directions last found on every batch; one direction on one batch, never
    full gradients.

    The problem must have a fixed list of batches. The table holds as many directions as there are
    batches.
    """
    return Estimator(Partial(_empty_table), Partial(_saga), "saga", NUMBERED)


def snapshot(p: float, *, seed: int = 0) -> Estimator:
    """Skipped derivatives: full gradients with probability p, else those of the last time.

    p      of full gradients
    seed   of the coin, which all agents share
    """
    due = Due(fraction("p", p, zero=False), seed=check_seed(seed))
    return Estimator(
        Partial(_zero),
        Partial(_snapshot, due),
        f"snapshot({due.probability:g})",
        frozenset({Need.FULL_DATA}),
    )


def _nothing(oracle: Oracle, s: Tree) -> tuple[()]:
    return ()


def _zero(oracle: Oracle, s: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, s)


def _past(oracle: Oracle, s: Tree) -> Past:
    return Past(s, _zero(oracle, s))


def _empty_table(oracle: Oracle, s: Tree) -> BatchTable:
    batches = oracle.batches
    rows = jax.tree.map(lambda v: jnp.zeros((batches.count, *v.shape), v.dtype), s)
    return BatchTable(rows, _zero(oracle, s), jnp.int32(0), _zero(oracle, s))


def _before(k: Step) -> jax.Array:
    return jnp.maximum(jnp.asarray(k) - 1, 0)


def _minibatch(
    direction: Direction, oracle: Oracle, s: Tree, memory: tuple[()], k: Step, key: jax.Array
) -> tuple[Tree, tuple[()]]:
    return direction.at(oracle.sampled(key), s, k), memory  # (1)


def _storm(
    a: Schedule, direction: Direction, oracle: Oracle, s: Tree, past: Past, k: Step, key: jax.Array
) -> tuple[Tree, Past]:
    xi = oracle.sampled(key)
    keep = jnp.where(jnp.asarray(k) == 0, 0.0, 1 - a(k))
    new = direction.at(xi, s, k)
    old = direction.at(xi, past.s, _before(k))
    d = jax.tree.map(lambda new, d, old: new + keep * (d - old), new, past.d, old)  # (2)
    return d, Past(s, d)


def _recursive(
    due: Due, direction: Direction, oracle: Oracle, s: Tree, past: Past, k: Step, key: jax.Array
) -> tuple[Tree, Past]:
    def change(past: Past) -> Tree:
        xi = oracle.sampled(key)
        new = direction.at(xi, s, k)
        old = direction.at(xi, past.s, _before(k))
        return jax.tree.map(lambda d, new, old: d + (new - old), past.d, new, old)

    # (3)
    d = sometimes(due.probability, due(k), lambda past: direction.at(oracle, s, k), change, past)
    return d, Past(s, d)


def _saga(
    direction: Direction, oracle: Oracle, s: Tree, table: BatchTable, k: Step, key: jax.Array
) -> tuple[Tree, BatchTable]:
    batches = oracle.batches
    j = batches.draw(key)
    # (5)
    rows = jax.tree.map(
        lambda rows, found: rows.at[table.j].set(found, mode=IN), table.rows, table.found
    )
    found = direction.at(oracle.batch(j), s, k)
    change = jax.tree.map(lambda found, rows: found - rows.at[j].get(mode=IN), found, rows)
    d = jax.tree.map(jnp.add, change, table.mean)  # (4)
    # (5)
    mean = jax.tree.map(lambda mean, change: mean + change / batches.count, table.mean, change)
    return d, BatchTable(rows, mean, j, found)


def _snapshot(
    due: Due, direction: Direction, oracle: Oracle, s: Tree, d: Tree, k: Step, key: jax.Array
) -> tuple[Tree, Tree]:
    # (6)
    d = sometimes(due.probability, due(k), lambda d: direction.at(oracle, s, k), lambda d: d, d)
    return d, d
