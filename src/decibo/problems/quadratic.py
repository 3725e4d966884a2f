r"""Heterogeneous quadratics of any size, with everything known in closed form.

    (1)  f_i(x, y) = x'P_i x/2 + x'B_i y + y'A_i y/2 + p_i'x + q_i'y
    (2)  g_i(x, y) = y'H_i y/2 + x'J_i y + s_i'y    [+ bend mean_k cos(u_ik'x + w_ik'y)]
    (3)  y*(x) = Y x + c,    Y = -H^-1 J',  c = -H^-1 s                (means over agents, bend = 0)
    (4)  Hessian of Phi = P + B Y + Y'B' + Y'A Y,    grad Phi(0) = p + B c + Y'(A c + q)

F_i = [[P_i, B_i], [B_i', A_i]] and H_i have their eigenvalues in [1/sqrt(condition),
sqrt(condition)], so each inner objective and Phi are strongly convex. In vectors and in J_i the
deviations of agents from a common one average to zero; F_i and H_i move from a common one towards
each agent's own by min(heterogeneity, 1), which keeps their eigenvalues where they are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.validate import at_least, integer

Array = np.ndarray


def outer(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    quadratic = x @ d["P"] @ x / 2 + x @ d["B"] @ y + y @ d["A"] @ y / 2
    return quadratic + d["p"] @ x + d["q"] @ y  # (1)


def inner(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return y @ d["H"] @ y / 2 + x @ d["J"] @ y + d["s"] @ y  # (2)


def bent_inner(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return inner(x, y, d) + d["bend"] * jnp.mean(jnp.cos(d["u"] @ x + d["w"] @ y))  # (2)


def inner_solution(x: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    H, J, s = (jnp.mean(d[name], axis=0) for name in "HJs")
    return -jnp.linalg.solve(H, J.T @ x + s)  # (3)


def quadratic(
    agents: int = 10,
    n: int = 3,
    r: int = 4,
    *,
    seed: int = 0,
    heterogeneity: float = 1.0,
    condition: float = 4.0,
    bend: float = 0.0,
) -> Problem:
    """A well-scaled problem with n outer and r inner variables; steps of 0.05 to 0.1 work.

    heterogeneity  0 makes all agents equal
    condition      of F_i and H_i: their eigenvalues lie in [1/sqrt(condition), sqrt(condition)]
    bend           > 0 makes g slightly non-quadratic; then no closed form or solution is attached
    """
    agents = integer("agents", agents)
    n = integer("n", n)
    r = integer("r", r)
    heterogeneity = at_least("heterogeneity", heterogeneity, 0.0)
    condition = at_least("condition", condition, 1.0)
    at_least("bend", bend, 0.0)
    if bend >= condition**-0.5:
        raise InputError(
            f"bend must be below 1/sqrt(condition) = {condition**-0.5:.3g}, or g is not strongly"
            f" convex in y, but it is {bend:g}."
        )
    rng = np.random.default_rng(integer("seed", seed, least=0))
    F = definite(rng, agents, n + r, heterogeneity, condition)
    data = {
        "P": F[:, :n, :n],
        "B": F[:, :n, n:],
        "A": F[:, n:, n:],
        "p": around(rng, agents, (n,), heterogeneity, 1.0),
        "q": around(rng, agents, (r,), heterogeneity, 1.0),
        "H": definite(rng, agents, r, heterogeneity, condition),
        "J": around(rng, agents, (n, r), heterogeneity, 0.5 / np.sqrt(n + r)),
        "s": around(rng, agents, (r,), heterogeneity, 1.0),
    }
    if bend > 0:
        rows = np.random.default_rng((seed, 1)).normal(size=(agents, 3, n + r))
        rows = rows / np.linalg.norm(rows, axis=2, keepdims=True)
        data |= {"bend": np.full(agents, bend), "u": rows[..., :n], "w": rows[..., n:]}
        return Problem(outer, bent_inner, data, np.zeros(n), np.zeros(r), name="bent quadratic")
    means = {name: value.mean(axis=0) for name, value in data.items()}
    known = {"solution": minimiser(means), "constants": _constants(data)}
    known |= {"inner_solution": inner_solution, "name": "quadratic"}
    return Problem(outer, inner, data, np.zeros(n), np.zeros(r), **known)


def phi_hessian(means: dict[str, Array]) -> Array:
    """The Hessian of Phi."""
    Y = -np.linalg.solve(means["H"], means["J"].T)  # (3)
    return means["P"] + means["B"] @ Y + Y.T @ means["B"].T + Y.T @ means["A"] @ Y  # (4)


def minimiser(means: dict[str, Array]) -> dict[str, Array]:
    """x* and y*, from the means over agents of the matrices in (1) and (2)."""
    H, J, s = (means[name] for name in "HJs")
    Y, c = -np.linalg.solve(H, J.T), -np.linalg.solve(H, s)  # (3)
    gradient = means["p"] + means["B"] @ c + Y.T @ (means["A"] @ c + means["q"])  # (4)
    x = -np.linalg.solve(phi_hessian(means), gradient)
    return {"x": x, "y": Y @ x + c}


def quadratic_constants(problem: Problem) -> dict[str, float]:
    """The exact mu_g, L_f1, L_g1, L_g2 of the paper's assumptions, and mu_Phi, L_Phi, of a
    `quadratic`."""
    if problem.outer is not outer or problem.inner is not inner:
        raise InputError(
            "Exact constants are known for quadratic(..., bend=0) only, but this is the problem"
            f" {problem.name!r}.",
            "decibo.theory.constants estimates those of other problems.",
        )
    return _constants({name: np.asarray(value, float) for name, value in problem.data.items()})


def _constants(data: dict[str, Array]) -> dict[str, float]:
    joint = lambda P, B, A: np.linalg.eigvalsh(np.block([[P, B], [np.swapaxes(B, 1, 2), A]]))
    means = {name: value.mean(axis=0) for name, value in data.items()}
    phi = np.linalg.eigvalsh(phi_hessian(means))
    return {
        "mu_g": float(np.linalg.eigvalsh(data["H"]).min()),
        "L_f1": float(np.abs(joint(data["P"], data["B"], data["A"])).max()),
        "L_g1": float(np.abs(joint(0 * data["P"], data["J"], data["H"])).max()),
        "L_g2": 0.0,
        "mu_Phi": float(phi[0]),
        "L_Phi": float(phi[-1]),
    }


def definite(
    rng: np.random.Generator, agents: int, size: int, heterogeneity: float, condition: float
) -> Array:
    """One symmetric matrix for each agent, with eigenvalues in [1/sqrt(condition),
    sqrt(condition)]."""
    span = 0.5 * np.log(condition)
    bases = np.linalg.qr(rng.normal(size=(agents + 1, size, size)))[0]
    values = np.exp(rng.uniform(-span, span, size=(agents + 1, 1, size)))
    matrices = (bases * values) @ np.swapaxes(bases, 1, 2)
    return matrices[0] + min(heterogeneity, 1.0) * (matrices[1:] - matrices[0])


def around(
    rng: np.random.Generator, agents: int, shape: tuple[int, ...], heterogeneity: float, size: float
) -> Array:
    """One array of about this size for each agent; their deviations from a common one average to
    zero."""
    common = rng.normal(size=shape)
    own = rng.normal(size=(agents, *shape))
    return size * (common + heterogeneity * (own - own.mean(axis=0)))
