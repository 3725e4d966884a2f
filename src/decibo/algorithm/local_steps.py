r"""Several steps for each exchange: agents go K - 1 steps alone, as on a network without links,
then one together.

A step of the wrapped method is K steps of the method inside; W acts in the last of them only.

    (1)  K - 1 times:   s+ = the method's step with W = I
    (2)  once:          s+ = the method's step with W, its differences (W - I) s
                        multiplied by r = min(1, 4/(K + 2))

W = I is symmetric and doubly stochastic, so that (1), (2) is the method on a network that changes
from step to step, and what does not depend on W at a solution stays true. There s is the same at
all agents, and
* a tracked direction is 0: trackers stay where they are. tracking, atc_tracking and push_pull are
  exact for every K;
* the memory c_i = h d_i of EXTRA and exact diffusion undoes the agent's own direction, s - h d_i +
  c_i = s: exact too;
* dgd and atc do not rest at a solution, and the K steps that an agent goes its own way take them K
  times as far off.

Only EXTRA and exact diffusion ask for differences, and they add them up in c. While agents are
alone, c acts K times where it acted once. For curvatures much below 1/(K h), an eigenvalue 1 - 2 l
of W then changes s and c by

    (3)  s+ = (1 - l)(s + K c),   c+ = c - l (s + K c),      stable if and only if l < 4/(K + 2)

since the determinant is 1 - l and the trace 2 - l - l K. l may be anything from 0 to 1, and r l is
below 4/(K + 2): hence r. Step sizes need about the K-th part, as in all methods with local steps.

Sources: local steps with a memory that corrects them are those of Scaffold (Karimireddy et al.
2020), K-GT (Liu et al. 2024) and LED (Alghunaim 2024); these papers are cited from memory, and
their rules differ from (1), (2) in details.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from decibo.algorithm.algorithm import Algorithm, Count
from decibo.algorithm.compose import check_wrappable, wrapped
from decibo.capabilities import Need, require
from decibo.network.mixing import How, Mix, WrappedMix
from decibo.problem.problem import Oracle
from decibo.pytree import Tree
from decibo.validate import integer

T = TypeVar("T")


def local_steps(method: Algorithm, K: int) -> Algorithm:
    """The method with K steps for each exchange with the neighbours: the same messages pay for K
    times the gradients.

    A step of the result is K steps of the method, K - 1 of them alone; its cost says so, and
    functions of the step count all of them. Methods that are exact stay exact, with step sizes of
    about 1/K; dgd and atc land K times as far from the solution.
    """
    check_wrappable(method)
    count = Count(integer("K", K))
    giver = "local_steps, most of whose steps are without an exchange,"
    finds = method.needs & {Need.NETWORK_CONSTANTS}
    require(method.name, finds, (), giver, "Pass alpha and gamma.", method=True)
    sums = method.needs & {Need.FIXED_LINKS}
    other = "Wrap in the other order: compressed(local_steps(method, K), compressor)."
    require(method.name, sums, (), giver, other, method=True)
    step = Partial(_round, method.core.step, count)
    again = lambda method: local_steps(method, K)
    return wrapped(method, f"{K} local steps", again, method.init, step, method.view)


def _round(
    step: Partial, K: int, oracle: Oracle, mix: Mix, state: Tree, k: jax.Array, key: jax.Array
) -> Tree:
    keys = jax.random.split(key, K)

    def alone(state: Tree, now: tuple[jax.Array, jax.Array]) -> tuple[Tree, None]:
        j, key = now
        new = step(oracle, NoExchange(), state, k * K + j, key)
        # as between two steps
        return jax.tree.map(lambda old, leaf: leaf.astype(old.dtype), state, new), None

    state, _ = lax.scan(alone, state, (jnp.arange(K - 1), keys[:-1]))  # (1)
    return step(oracle, Damped(mix, min(1.0, 4 / (K + 2))), state, k * K + K - 1, keys[-1])  # (2)


class NoExchange(Mix):
    """A mix with W = I: nothing is sent."""

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        return jax.tree.map(jnp.zeros_like, tree) if how is How.DIFFERENCE else tree


class Damped(WrappedMix):
    """A mix whose differences, which strategies add up, are multiplied by r."""

    def __init__(self, mix: Mix, r: float):
        super().__init__(mix)
        self.r = r

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        received = self.mix.exchange(tree, how, bits)
        if how is How.DIFFERENCE:
            return jax.tree.map(lambda apart: self.r * apart, received)
        return received
