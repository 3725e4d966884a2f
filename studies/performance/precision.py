"""How far rounding lets lam grow: the error of both penalties' hypergradients in float32, float16
and bfloat16.

    python -m studies.performance.precision [--seeds 10]

Weights x of five data sources, logistic regression as inner level, loss on held-out samples as
outer level. y and z are where the penalties put them, found in double precision; the direction of x
is then computed with everything (x, y, z, data, activations) in the shorter type, as a model does
that casts its float32 weights. The error is |d_x - grad Phi| / |grad Phi|, the median over the
seeds.

    penalty             bias O(1/lam)      d_x = f_x(y) + lam (g_x(y) - g_x(z))
    symmetric_penalty   bias O(1/lam^2)    d_x = f_x(c) + (lam/2) (g_x(y) - g_x(z)),   c = (y + z)/2

In both, a rounding error u of a gradient counts lam times, so that the best lam balances 1/lam or
1/lam^2 with lam u.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.direction import Direction, penalty, symmetric_penalty
from decibo.problem.problem import Functions, Oracle
from decibo.pytree import Layout

SOURCES, SAMPLES, FEATURES = 5, 200, 20
LAMS = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 10000.0)
TYPES = {
    "float64": jnp.float64,
    "float32": jnp.float32,
    "float16": jnp.float16,
    "bfloat16": jnp.bfloat16,
}


def losses(y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    """The logistic loss of every sample."""
    return jax.nn.softplus(-d["labels"] * (d["features"] @ y))


def outer(x: jax.Array, y: jax.Array, d: dict[str, dict[str, jax.Array]]) -> jax.Array:
    """The mean loss on held-out samples."""
    return jnp.mean(losses(y, d["held_out"]))


def inner(x: jax.Array, y: jax.Array, d: dict[str, dict[str, jax.Array]]) -> jax.Array:
    """The loss on the sources, weighted by x, and a ridge."""
    each = jnp.mean(losses(y, d["training"]).reshape(SOURCES, SAMPLES), axis=1)
    return jax.nn.sigmoid(x) @ each + 0.05 * jnp.sum(y**2)


def draw(seed: int) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
    """Sources of which each labels by a rule of its own, held-out samples, and weights x."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=FEATURES)
    features = random.normal(size=((SOURCES + 1) * SAMPLES, FEATURES))
    rules = truth + np.linspace(0, 2, SOURCES + 1)[:, None] * random.normal(
        size=(SOURCES + 1, FEATURES)
    )
    labels = np.sign(
        np.einsum("sif,sf->si", features.reshape(SOURCES + 1, SAMPLES, FEATURES), rules)
    ).ravel()
    part = lambda rows: {"features": features[rows], "labels": labels[rows]}
    return {
        "held_out": part(slice(SAMPLES)),
        "training": part(slice(SAMPLES, None)),
    }, random.normal(size=SOURCES)


@jax.jit
def minimise(x: jax.Array, d: dict, y: jax.Array, weight: float, pull: jax.Array) -> jax.Array:
    """The minimiser over y of g + weight f + pull'y, by Newton's method from y."""
    value = lambda y: inner(x, y, d) + weight * outer(x, y, d) + pull @ y
    step = lambda _, y: y - jnp.linalg.solve(jax.hessian(value)(y), jax.grad(value)(y))
    return jax.lax.fori_loop(0, 10, step, y)


def points(
    x: jax.Array, d: dict, lam: float, symmetric: bool, solved: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Where the penalty puts y and z."""
    nothing = jnp.zeros_like(solved)
    if not symmetric:
        return minimise(x, d, solved, 1 / lam, nothing), solved
    y = z = solved
    for _ in range(12):
        pull = pulled(x, (y + z) / 2, d) / lam
        y = minimise(x, d, y, 0.0, pull)
        z = minimise(x, d, z, 0.0, -pull)
    return y, z


@jax.jit
def pulled(x: jax.Array, c: jax.Array, d: dict) -> jax.Array:
    """f_y(x, c)."""
    return jax.grad(outer, argnums=1)(x, c, d)


@jax.jit
def hypergradient(x: jax.Array, y: jax.Array, d: dict) -> jax.Array:
    """grad Phi(x) by the implicit function theorem, y being y*(x)."""
    H = jax.hessian(inner, argnums=1)(x, y, d)
    J = jax.jacobian(jax.grad(inner, argnums=0), argnums=1)(x, y, d)
    f_x, f_y = jax.grad(outer, argnums=(0, 1))(x, y, d)
    return f_x - J @ jnp.linalg.solve(H, f_y)


def direction(
    x: jax.Array, y: jax.Array, z: jax.Array, d: dict, lam: float, symmetric: bool, dtype: type
) -> np.ndarray:
    """d_x as the library computes it, everything in this type."""
    x, y, z = (value.astype(dtype) for value in (x, y, z))
    short = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), d)
    along = symmetric_penalty(lam) if symmetric else penalty(lam)
    return np.asarray(_direction(along, short, {"x": x, "y": y, "z": z}), np.float64)


@jax.jit
def _direction(along: Direction, d: dict, start: dict[str, jax.Array]) -> jax.Array:
    oracle = Oracle(
        Functions(outer, inner, None, None, Layout.of(start["x"]), Layout.of(start["y"])), d
    )
    return along.at(oracle, along.start(start), jnp.int32(0)).x


def errors(seed: int) -> dict[tuple[str, str, float], float]:
    """The relative error of d_x for each penalty, type and lam."""
    data, weights = draw(seed)
    d = jax.tree.map(jnp.asarray, data)
    x = jnp.asarray(weights)
    solved = minimise(x, d, jnp.zeros(FEATURES), 0.0, jnp.zeros(FEATURES))
    exact = np.asarray(hypergradient(x, solved, d))
    found = {}
    for symmetric, name in ((False, "penalty"), (True, "symmetric_penalty")):
        for lam in LAMS:
            y, z = points(x, d, lam, symmetric, solved)
            for kind, dtype in TYPES.items():
                away = direction(x, y, z, d, lam, symmetric, dtype) - exact
                found[name, kind, lam] = float(np.linalg.norm(away) / np.linalg.norm(exact))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    runs = [errors(seed) for seed in range(options.seeds)]
    print("| penalty, type | " + " | ".join(f"lam {lam:g}" for lam in LAMS) + " |")
    print("|---|" + "---|" * len(LAMS))
    for name in ("penalty", "symmetric_penalty"):
        for kind in TYPES:
            row = [float(np.median([run[name, kind, lam] for run in runs])) for lam in LAMS]
            best = min(row)
            cells = [f"**{value:.1g}**" if value == best else f"{value:.1g}" for value in row]
            print(f"| {name}, {kind} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
