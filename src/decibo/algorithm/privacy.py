r"""What leaves an agent; masks, random numbers added to directions, at one end of a link +, at the
other -.

    (1)  b_i = sum over the neighbours j of  sign(j - i) r_ij,     r_ij drawn once for each link and
                                                                   variable
    (2)  d_i + b_i  in place of d_i, at every step

The masks of all agents sum to 0. An exact strategy rests where the sum of all directions is 0, so
that it lands where it did before, with the same stable steps. What is added is a transient of size
h |b|, and as many digits of d are lost to rounding as |b| is larger. What an agent sends no longer
shows its direction to anybody who does not know all its masks. It still shows how the direction
changes: docs/explanation/privacy.md says what is protected and what is not.

dgd and atc rest where each agent's own direction is balanced by its neighbours, and there a mask
counts: they are refused. After Gade & Vaidya's function sharing; ours is the use with these
strategies and with two levels.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.algorithm.compose import MASK, check_wrappable, recipe_of, wrapped
from decibo.capabilities import Need, require
from decibo.errors import InputError
from decibo.formatting import listed
from decibo.network.directed import DirectedNetwork
from decibo.network.mixing import AGENTS, AgentMix, How, Mixing
from decibo.network.network import Network
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.programs import jitted
from decibo.pytree import Tree
from decibo.validate import integer, only_known, positive
from decibo.validate import seed as check_seed

__all__ = ["masked", "messages"]

T = TypeVar("T")
SEED = 0x6D61736B  # tells the keys of masks from all others that a run makes of its seed


def masked(method: Algorithm, scale: float | Mapping[str, float]) -> Algorithm:
    """The method with masks on its directions: neighbours add the same random numbers with opposite
    signs.

    For exact strategies, which land where they would without. In a simulation both ends of a link
    draw from the seed of the run; between real owners (`decibo.silo`) from a secret that the two
    agree on when the run begins.

    scale   the deviation of one mask, many times the size of a gradient, say 100 times: one number,
            or one for each variable, {"x": 1.0, "y": 50.0, "z": 50.0}. At first a mask moves its
            variable by about the step times scale
    """
    check_wrappable(method)
    recipe = recipe_of(method)
    if recipe is None:
        finds = Need.NETWORK_CONSTANTS in method.needs
        given = "Pass alpha and gamma." if finds else "Mask first, and wrap it after that."
        raise InputError(
            f"{method.name} is not just a direction times a consensus strategy, so that there is"
            " nothing to mask.",
            given,
        )
    for strategy, names in recipe.strategies:
        if not strategy.exact:
            raise InputError(
                f"{method.name} agrees on {', '.join(names)} by {strategy.name}, which comes to"
                " rest where every agent's own direction is balanced by its neighbours: masks"
                " would lead it elsewhere.",
                "Use an exact strategy: exact_diffusion, extra, tracking, atc_tracking, push_pull"
                " or robust_tracking.",
            )
    variables = recipe.direction.variables
    scales = dict(scale) if isinstance(scale, Mapping) else dict.fromkeys(variables, scale)
    only_known(method.name, "variable", scales, variables)
    if not scales:
        raise InputError(
            "Masks need a scale, but none is given: nothing would be masked.",
            "Pass one number for all.",
        )
    masks = {name: positive(f"The scale of {name}", value) for name, value in scales.items()}
    again = lambda method: masked(method, scale)
    return wrapped(
        method, "masks", again, method.init, method.step, method.view, masks=masks,
        rest=method.rest, needs=method.needs | {Need.ALL_NEIGHBOURS},
    )  # fmt: skip


def masks_of(
    network: Network | DirectedNetwork, method: Algorithm, start: Mapping[str, jax.Array], seed: int
) -> dict[str, jax.Array]:
    """The masks of all agents, as rows of the start; none if the method has none."""
    if not method.masks:
        return {}
    edges = np.unique(np.sort(network.edges, axis=1), axis=0)
    _warn_of_leaves(np.bincount(edges.ravel(), minlength=network.agents))
    key = jax.random.fold_in(jax.random.key(seed), SEED)
    rows: dict[str, jax.Array] = {}
    for number, (name, scale) in enumerate(sorted(method.masks.items())):
        like = start["x" if name == "x" else "y"]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(
            jax.random.fold_in(key, number), jnp.arange(len(edges))
        )
        draw = lambda key, like=like: jax.random.normal(key, like.shape[1:], like.dtype)
        r = scale * jax.vmap(draw)(keys)
        # (1)
        rows[MASK + name] = jnp.zeros_like(like).at[edges[:, 0]].add(r).at[edges[:, 1]].add(-r)
    return rows


def _warn_of_leaves(degrees: np.ndarray) -> None:
    leaves = np.flatnonzero(degrees == 1)
    if len(leaves):
        who = (
            f"Agent {leaves[0]} has"
            if len(leaves) == 1
            else f"Agents {listed([str(leaf) for leaf in leaves])} have"
        )
        whose = "its" if len(leaves) == 1 else "their"
        warnings.warn(
            f"{who} a single neighbour, who knows all {whose} masks: they hide nothing from it."
            " Give every agent two neighbours or more.",
            stacklevel=5,
        )


def messages(
    problem: Problem,
    network: Network | DirectedNetwork,
    method: Algorithm,
    *,
    steps: int = 2,
    seed: int = 0,
) -> list[list[Tree]]:
    """What every agent sends to its neighbours: for each step a list of messages, whose rows are
    those of the agents.

    The numbers are those that `decibo.solve` sends with the same arguments.
    """
    check_wrappable(method)
    problem.check_agents(network.agents)
    lists = "A list of messages"
    require(lists, {Need.LOCKSTEP}, network.gives, network, "Use the network inside it.")
    finds = method.needs & {Need.NETWORK_CONSTANTS}
    require(method.name, finds, (), lists.lower(), "Pass alpha and gamma.", method=True)
    key = jax.random.key(check_seed(seed))
    start = problem.start_rows(network.agents)
    start = start | masks_of(network, method, start, seed)
    data = problem.local(range(network.agents))
    mixing = network.mixing()
    one = lambda d, s: method.core.init(Oracle(problem.functions, d), AgentMix(mixing, 0, key), s)
    state = jax.vmap(one, axis_name=AGENTS)(data, start)
    every: list[list[Tree]] = []
    for k in range(integer("steps", steps)):
        # What the mix has noted must be results of the step: from a loop inside it, tracers would
        # escape.
        try:
            sent, state = _listened(
                problem.functions, method.core, mixing, data, key, state, jnp.int32(k)
            )
        except jax.errors.UnexpectedTracerError as error:
            raise InputError(
                f"{method.name} sends messages in a loop of its own, which cannot be listed."
            ) from error
        every.append(sent)
    return every


@jitted()
def _listened(
    functions: Functions,
    core: Core,
    mixing: Mixing,
    data: Tree,
    key: jax.Array,
    state: Tree,
    k: jax.Array,
) -> tuple[list[Tree], Tree]:
    """A step, with the keys that it has in the loop, and what is sent in it."""
    network_key, agent_key = jax.random.split(jax.random.fold_in(key, k))
    agents = jnp.arange(jax.tree.leaves(state)[0].shape[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(agent_key, agents)

    def one(d: Tree, s: Tree, key: jax.Array) -> tuple[list[Tree], Tree]:
        mix = RecordingMix(mixing, k, network_key)
        new = core.step(Oracle(functions, d), mix, s, k, key)
        return mix.sent, jax.tree.map(lambda old, leaf: leaf.astype(old.dtype), s, new)

    return jax.vmap(one, axis_name=AGENTS)(data, state, keys)


@dataclass(frozen=True, eq=False)
class RecordingMix(AgentMix):
    """A mix that remembers what is sent."""

    sent: list[Tree] = field(default_factory=list)

    def exchange(self, tree: T, how: How, bits: int | None = None) -> T:
        self.sent.append(tree)
        return super().exchange(tree, how, bits)
