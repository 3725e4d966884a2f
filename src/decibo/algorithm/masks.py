r"""Masks: random numbers that neighbours add to their directions, one end of a link + and the other -.

    (1)  b_i = sum over the neighbours j of  sign(j - i) r_ij,     r_ij drawn once for each link and variable
    (2)  d_i + b_i  in place of d_i, at every step

The masks of all agents sum to 0. An exact strategy rests where the sum of all directions is 0, so that it lands where
it did before, with the same stable steps; only a transient of size h |b| is added, and of the digits of d those that
|b| is larger. What an agent sends no longer shows its direction to anybody who does not know all its masks. It still
shows how the direction changes from step to step: docs/explanation/privacy.md says what is protected and what is not.

dgd and atc rest where each agent's own direction is balanced by its neighbours, and there a mask counts: they are
refused. After Gade & Vaidya's function sharing; ours is the use with these strategies and with two levels.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.algorithm.compose import MASK, check_wrappable, recipe_of, wrapped
from decibo.errors import InputError
from decibo.network.directed import DirectedNetwork
from decibo.network.network import Network
from decibo.validate import positive

SEED = 0x6D61736B  # tells the keys of masks from all others that a run makes of its seed


def masked(method: Algorithm, scale: float) -> Algorithm:
    """The method with masks on its directions: neighbours add the same random numbers with opposite signs.

    For exact strategies, which land where they would without. In a simulation both ends of a link draw from the seed of
    the run; between real owners they need a secret that the two share, such as one from a key exchange.

    scale   the deviation of one mask; make it many times the size of a gradient, say 100 times
    """
    check_wrappable(method)
    scale = positive("scale", scale)
    recipe = recipe_of(method)
    if recipe is None:
        given = "Pass alpha and gamma." if method.told else "Mask first, and wrap it after that."
        raise InputError(
            f"{method.name} is not just a direction times a consensus strategy, so that there is nothing to mask.",
            given,
        )
    for strategy, names in recipe.strategies:
        if not strategy.exact:
            raise InputError(
                f"{method.name} agrees on {', '.join(names)} by {strategy.name}, which comes to rest where every "
                "agent's own direction is balanced by its neighbours: masks would lead it elsewhere.",
                "Use an exact strategy: exact_diffusion, extra, tracking, atc_tracking, push_pull or robust_tracking.",
            )
    again = lambda method: masked(method, scale)
    parts = method.init, method.step, method.view
    return wrapped(method, f"masks of {scale:g}", again, *parts, masks=scale, rest=method.rest)


def masks_of(
    network: Network | DirectedNetwork, method: Algorithm, start: Mapping[str, jax.Array], seed: int
) -> dict[str, jax.Array]:
    """The masks of all agents, as rows of the start; none if the method has none."""
    if not method.masks or method.direction is None:
        return {}
    edges = np.unique(np.sort(network.edges, axis=1), axis=0)
    key = jax.random.fold_in(jax.random.key(seed), SEED)
    rows: dict[str, jax.Array] = {}
    for number, name in enumerate(method.direction.variables):
        like = start["x" if name == "x" else "y"]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, number), jnp.arange(len(edges)))
        r = method.masks * _normal(keys, like)
        rows[MASK + name] = jnp.zeros_like(like).at[edges[:, 0]].add(r).at[edges[:, 1]].add(-r)  # (1)
    return rows


def _normal(keys: jax.Array, like: jax.Array) -> jax.Array:
    """A row for each key, of the shape and type of an agent's."""
    return jax.vmap(lambda key: jax.random.normal(key, like.shape[1:], like.dtype))(keys)
