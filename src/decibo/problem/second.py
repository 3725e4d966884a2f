"""Whether an inner objective has second derivatives: found once, by tracing, before anything is
compiled.

Some objectives have first gradients only: kernels whose backward pass is written by hand and cannot
be differentiated again (fused attention, a `jax.custom_vjp` around a call of the host), and
gradients that come from outside JAX (`Problem(inner_gradient=...)`). Methods that follow first
gradients alone, such as `ahead_exact`, solve such problems. Methods with products H v and J v, and
the exact reference, cannot: `require_products` says so in one sentence.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

from decibo.problem.problem import FIRST_GRADIENTS, Functions, NoSecondDerivativesError, Oracle
from decibo.pytree import Tree

PROBES = 64  # how many answers are remembered


def why_no_products(functions: Functions, data: Tree) -> str:
    """Why there are no products with second derivatives of the inner objective; empty if there are.

    data   that of one agent, or its shapes
    """
    leaves, treedef = jax.tree.flatten(data)
    return _probed(
        functions, treedef, tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    )


def require_products(
    what: str, functions: Functions, data: Tree, remedy: str = FIRST_GRADIENTS
) -> None:
    """Reject an inner objective without second derivatives, on behalf of `what`, which needs
    them."""
    reason = why_no_products(functions, data)
    if reason:
        raise NoSecondDerivativesError(what, reason, remedy)


@lru_cache(maxsize=PROBES)
def _probed(functions: Functions, treedef: Any, shapes: tuple[jax.ShapeDtypeStruct, ...]) -> str:
    x, y = (
        jax.ShapeDtypeStruct((layout.size,), layout.dtype) for layout in (functions.x, functions.y)
    )
    products = lambda d, x, y, v: Oracle(functions, d).products(x, y, v)
    # Mapped over agents, as it will be: without that, JAX notices a missing derivative only when it
    # compiles.
    agents = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), (shapes, x, y)
    )
    try:
        jax.eval_shape(
            jax.vmap(products), jax.tree.unflatten(treedef, agents[0]), *agents[1:], agents[2]
        )
    except NoSecondDerivativesError as error:
        return error.reason
    return ""
