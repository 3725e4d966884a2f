"""Whether the gradients that decibo follows are those of the objectives, by finite differences.

    (1)  error = |difference - slope| / (|slope| + |gradient|/sqrt(size))

with the slope of the gradient along a direction of length 1 in x or in y (half of it random, half
of it the gradient) near (x0, y0), and the central difference of the values along it, as far as it
is not rounding. At points without a derivative (a kink) it means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import ConformanceError
from decibo.problem.problem import Functions, Oracle, Problem, check_is_problem
from decibo.programs import jitted
from decibo.pytree import Tree

# Roundings of a central difference, relative to the best that it can be in this precision, up to
# which a gradient counts as right.
ALLOWED = 5


def check_problem(problem: Problem) -> list[str]:
    """Check that objectives are what they seem, at the first agent's data; raises a
    ConformanceError that lists every failure.

    values           the same at the same point: no random numbers from outside
    outer in x, ...  the gradient of each objective in each variable is that of its values: no
                     stop_gradient or detach, no wrong gradient of your own

    Arguments that an objective ignores are found when the problem is made. Returns the names of the
    checks that passed.
    """
    check_is_problem(problem)
    found, again = _errors_of(problem), _errors_of(problem)
    failures = {}
    if not np.array_equal(found[1], again[1], equal_nan=True):
        failures["values"] = (
            "differ if they are computed twice at the same point. Is there dropout, or are other"
            " random numbers drawn inside?"
        )
    checks = ["values"]
    for variable, errors in zip(("x", "y"), found[0], strict=True):
        for objective, error in zip(("outer", "inner"), errors, strict=True):
            checks.append(f"{objective} in {variable}")
            if not error <= largest_error(problem.y_layout.dtype):
                failures[checks[-1]] = (
                    f"the gradient is not that of the values: they differ by {100 * error:.2g} %."
                    " Is there a stop_gradient, a detach, a gradient of your own, or a kink?"
                )
    if failures:
        listed = "".join(f"\n  {name}: {failure}" for name, failure in failures.items())
        raise ConformanceError(
            f"{problem.name} fails {len(failures)} of {len(checks)} checks:{listed}"
        )
    return checks


def _errors_of(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The errors (1) of outer and of inner, along a direction in x and one in y; and the values
    at that point."""
    random = np.random.default_rng(0)
    rows = [row[0] for row in problem.start_rows(1).values()]
    near = [
        row + 0.1 * (1 + np.linalg.norm(row)) * random.normal(size=row.shape) / row.size**0.5
        for row in map(np.asarray, rows)
    ]
    x, y = (jnp.asarray(there, row.dtype) for there, row in zip(near, rows, strict=True))
    along = jnp.asarray(random.normal(size=sum(row.size for row in rows)), rows[1].dtype)
    found = _errors(problem.functions, problem.local([0]), x, y, along)
    return np.asarray(found[0], float), np.asarray(found[1])


@jitted()
def _errors(
    functions: Functions, data: Tree, x: jax.Array, y: jax.Array, random: jax.Array
) -> tuple[jax.Array, jax.Array]:
    point = jnp.concatenate([x, y])

    def one(d: Tree, level: str, part: str) -> tuple[jax.Array, jax.Array]:
        oracle = Oracle(functions, d)
        mask = jnp.concatenate([jnp.full_like(x, part == "x"), jnp.full_like(y, part == "y")])
        gradient = jnp.concatenate(oracle.ask(level, x, y))
        value = lambda at: oracle.ask(f"{level}_value", *jnp.split(at, [x.size]))
        error = difference_error(value, mask * gradient, point, mask * random)
        return error, value(point)

    found = [
        [jax.vmap(lambda d, at=(level, part): one(d, *at))(data) for level in ("outer", "inner")]
        for part in ("x", "y")
    ]
    errors = jnp.array([[jnp.max(error) for error, _ in row] for row in found])
    return errors, jnp.array([[value for _, value in row] for row in found])


def difference_error(value: Callable, gradient: Any, point: Any, random: Any) -> Any:
    """(1) at a point, in arrays of JAX or numpy."""
    eps = float(jnp.finfo(point.dtype).eps)
    tiny = float(jnp.finfo(point.dtype).tiny)
    norm = lambda vector: (vector @ vector) ** 0.5
    # Along a random direction alone, the slope of many variables drowns in rounding.
    along = gradient / (norm(gradient) + tiny) + random / norm(random)
    along = along / norm(along)
    # The cube root of the type's rounding error is where a central difference is most accurate.
    e = eps ** (1 / 3) * (1 + norm(point))
    up = value(point + e * along)
    down = value(point - e * along)
    slope = gradient @ along
    wrong = abs((up - down) / (2 * e) - slope) - 8 * eps * (abs(up) + abs(down)) / (2 * e)
    size = norm(gradient) / point.size**0.5
    return (wrong + abs(wrong)) / 2 / (abs(slope) + size + tiny)


def largest_error(dtype: Any) -> float:
    """Up to which a gradient in this precision counts as right."""
    return ALLOWED * float(jnp.finfo(dtype).eps) ** (1 / 3)
