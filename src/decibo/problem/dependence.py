"""On what an objective depends, read off its trace before anything is computed: arguments that it
ignores, and parts of a gradient that stop_gradient leaves out.

An objective that ignores y, or calls a model with the model's own weights in its place, runs to its
end and means nothing. stop_gradient(w(y)) changes the gradient that decibo follows, and neither
level is then what was written down. Where a value cancels, as the largest score in softmax does,
nothing is wrong: what passes a maximum or a comparison does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters.partial_eval import dce_jaxpr

from decibo.errors import InputError, warn
from decibo.programs import subprograms
from decibo.pytree import Tree

Names = frozenset[str]  # of the arguments on which a value depends
# What passes these has no gradient, or one that cancels.
CUT = ("reduce_max", "reduce_min", "argmax", "argmin", "is_finite", "sign", "floor", "round")
LOOPS = ("scan", "while")
NOTHING: Names = frozenset()
STOPPED = (
    "What methods follow is then not the gradient of the values. Weights of samples may not depend"
    " on y: use an x for each sample, or losses of a fixed model."
)


def leaf_names(x: Tree, y: Tree) -> list[str]:
    """What the arguments are called: x or y, and the place in its tree."""
    return [
        name + jax.tree_util.keystr(path)
        for name, tree in (("x", x), ("y", y))
        for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


def check_traces(traces: Mapping[str, ClosedJaxpr], x: Tree, y: Tree) -> None:
    """`check_used`, and a warning of gradients that are stopped.

    traces   of outer and inner as functions of x, y and the data of one agent
    """
    leaves = leaf_names(x, y)
    used: dict[str, set[str]] = {}
    for name, closed in traces.items():
        kept, are_used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
        used[name] = set(compress(leaves, are_used))
        names = [frozenset({leaf[0]}) for leaf in leaves]
        names += [NOTHING] * (len(are_used) - len(leaves))
        if stopped := _stopped(kept, list(compress(names, are_used)))[1]:
            found = " and ".join(sorted(stopped))
            warn(f"{name} has a stop_gradient of something that depends on {found}. {STOPPED}")
    check_used(used, leaves)


def check_used(used: Mapping[str, set[str]], leaves: Sequence[str]) -> None:
    """Reject an inner objective without y, and warn of arguments that are ignored.

    used   the leaves on which outer and inner depend, of all of these
    """
    depends = lambda objective, variable: any(leaf[0] == variable for leaf in used[objective])
    if not depends("inner", "y"):
        raise InputError(
            "inner does not depend on y, but the inner level is its minimum over y.",
            "Did it use a model's own weights in place of y?",
        )
    apart = not depends("outer", "y") and not depends("inner", "x")  # two problems of one level
    if not depends("outer", "y") and not apart:
        warn(
            "outer does not depend on y, so that the inner level has no influence on x. Did it use"
            " a model's own weights in place of y?"
        )
    if depends("outer", "x") and not depends("inner", "x") and not apart:
        warn(
            "inner does not depend on x, so that y*(x) is the same for every x. For a problem with"
            " one level there is decibo.problems.single_level."
        )
    if unused := [leaf for leaf in leaves if leaf not in used["inner"] | used["outer"]]:
        warn(f"Neither outer nor inner depends on {', '.join(unused)}.")


def _stopped(jaxpr: Jaxpr, names: Sequence[Names]) -> tuple[list[Names], Names]:
    """On what each result depends, and on what depends that whose gradient is stopped."""
    found = dict(zip(jaxpr.invars, names, strict=True))
    of = lambda var: NOTHING if isinstance(var, Literal) else found.get(var, NOTHING)
    stopped = NOTHING
    for eqn in jaxpr.eqns:
        before = [of(var) for var in eqn.invars]
        union = NOTHING.union(*before)
        after = [union] * len(eqn.outvars)
        for inside in subprograms(eqn.params):
            # A call has its arguments in their places. Of a loop or a branch, any may be meant.
            is_call = len(inside.invars) == len(before) and eqn.primitive.name not in LOOPS
            results, more = _stopped(inside, before if is_call else [union] * len(inside.invars))
            after = results if is_call and len(results) == len(after) else after
            stopped |= more
        if eqn.primitive.name == "stop_gradient":
            stopped |= union
        for var, depends in zip(eqn.outvars, after, strict=True):
            is_number = jnp.issubdtype(getattr(var.aval, "dtype", bool), jnp.inexact)
            found[var] = depends if is_number and eqn.primitive.name not in CUT else NOTHING
    return [of(var) for var in jaxpr.outvars], stopped
