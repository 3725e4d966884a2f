"""What is found out and checked before a run begins, without a step being made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.execute import loop
from decibo.measure.cost import MarkedMix
from decibo.problem.oracle import Oracle
from decibo.problem.problem import Functions, Problem


def one_of(tree: Any) -> Any:
    """The shapes of one agent's part."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)


def variables_of(functions: Functions, data: Any, core: Any) -> tuple[str, ...]:
    """The names of the method's variables, found without computing anything."""
    start = {
        name: jax.ShapeDtypeStruct((size.size,), size.dtype) for name, size in (("x", functions.x), ("y", functions.y))
    }
    names = lambda d, start: core.view(core.init(Oracle(functions, d), MarkedMix(), start))
    return tuple(jax.eval_shape(names, one_of(data), start))


def startable(method: Algorithm, variables: tuple[str, ...]) -> tuple[str, ...]:
    """The variables that a run can start from: all but those that the view computes from others."""
    own = variables if method.direction is None else method.direction.variables
    return tuple(name for name in variables if name in own)


def given_steps(method: Algorithm) -> dict[str, Any]:
    """The step sizes that an automatic method was given all the same."""
    given = {name: method.settings[name] for name in ("alpha", "gamma", "lam")}
    for name, value in given.items():
        if callable(value):
            raise InputError(
                f"{name} = a function of the step, with another step size left out",
                "automatic step sizes go with numbers only",
                "Give both alpha and gamma, or make it a number.",
            )
    return given


def flat_solution(problem: Problem, name: str, tree: Any) -> jax.Array:
    """A known x or y as a flat vector."""
    layout = problem.x_layout if name == "x" else problem.y_layout
    return layout.ravel(jax.tree.map(jnp.asarray, tree))


def targets_of(until: Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    """What to wait for, if it is recorded and finite."""
    targets = dict(until or {})
    for name, value in targets.items():
        if name not in names:
            raise InputError(
                f"until = {name!r}",
                f"only what is recorded can be waited for: {', '.join(names)}",
                "Add it to measures.",
            )
        if not np.isfinite(value):
            raise InputError(f"until[{name!r}] = {value!r}", "it must be a finite number", "Give 1e-8, for example.")
    return {name: float(value) for name, value in targets.items()}


def finite_at_start(functions: Any, data: Any, rows: dict[str, jax.Array], agents: np.ndarray) -> None:
    """Refuse a start where an objective of these agents is not a number."""
    for name, row in zip(("outer", "inner"), loop.values(functions, data, rows["x"], rows["y"]), strict=True):
        bad = np.flatnonzero(~np.isfinite(np.asarray(row)))
        if bad.size:
            raise InputError(
                f"{name} of agent {agents[bad[0]]} is {float(row[bad[0]])} at the start "
                f"({bad.size} of {len(row)} agents)",
                "both objectives must be finite where a run starts",
                "Check the data of this agent for NaN, or start elsewhere with start=.",
            )
