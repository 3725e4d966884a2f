r"""Samples in silos as a two-level problem: what the agents hold, and what they minimise.

Every silo deals its samples into K parts. K models leave one part out each, and one more, the answer, leaves out none:

    (1)  l(s, t)     = log(1 + e^s) - t s   |   log sum_c e^(s_c) - s_t   |   (s - t)^2 / 2
    (2)  pen_j       = exp(common + own_j)
    (3)  g_i(x, y)   = sum_k [ (m/N_k) sum over silo i's samples outside part k of l
                             + sum_j pen_j |y_kj|^2 + r |b_k|^2 ]
    (4)  f_i(x, y)   = (m/N) sum_k [ sum over silo i's samples in part k of l(model k) ]
                       + (sum_j own_j^2 + (common + 5)^2 / 4) / (2 N)

N counts the samples of all silos and N_k those outside part k, so that the means over the m silos are the pooled losses
however unequal the silos are. The end of (4) expects log-penalties within 1 of each other and within 2 of
-5: it settles what the validation samples leave open, and fades as they become many. The r in (3) keeps the inner
level strongly convex. Runs start at common = -3, where penalties are large, the inner level is fast, and x comes down
from there.

What silos tell each other before a run: how many samples they have, the sums of their features (and targets), and the
sums of squares about the common mean. They are averaged along the links of the network; no sample is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo import networks
from decibo.data.split import by_group
from decibo.errors import InputError, first_line
from decibo.measure.measures import Snapshot
from decibo.network.network import Network
from decibo.parallel.collectives import average
from decibo.problem.problem import Objective, Oracle, Problem
from decibo.validate import one_of

START = -3.0  # of the common log-penalty
INTERCEPT = 1e-4  # r
AGREED = 1e-26  # of the squared disagreement may be left
# Tables are padded to multiples of so many features and powers of 2 samples, at least so many in all, so that one
# compiled program serves many shapes: compiling takes longer than most fits.
FEATURES = 8
SAMPLES = 256

Tree = dict[str, jax.Array]
Networks = str | Network | Callable[[int], Network]


class Scale(NamedTuple):
    """Means and deviations of columns over all silos."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return (table - self.mean) / self.deviation


def members(groups: ArrayLike | None, samples: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The names of the silos, and the rows of each; all rows are one silo if nothing is said."""
    if groups is None:
        return np.zeros(1, dtype=int), [np.arange(samples)]
    groups = np.asarray(groups)
    if groups.shape != (samples,):
        raise InputError(
            f"groups must name one silo for each of the {samples} samples, but its shape is {groups.shape}.",
        )
    return np.unique(groups), by_group(groups)


def network_of(network: Networks, silos: int) -> Network:
    """The network between the silos: by its name, by a function of their number, or as it is."""
    if isinstance(network, str):
        network = getattr(networks, one_of("network", network, _by_size()))
    try:
        result = network(silos) if callable(network) else network
    except TypeError as error:
        raise InputError(f"network({silos}) raised TypeError: {first_line(error)}.") from error
    if not isinstance(result, Network):
        raise InputError(
            f"network must be a name, a decibo.Network or a function from the number of silos to one, but it is "
            f"{network!r}.",
            "Pass 'ring', for example.",
        )
    if result.agents != silos:
        raise InputError(f"Every silo is one agent, but there are {silos} silos and {result.agents} agents.")
    return result


def _by_size() -> list[str]:
    """Names of the undirected networks that a number of agents describes."""
    functions = {name: inspect.signature(getattr(networks, name)) for name in networks.__all__}
    required = lambda signature: [p.name for p in signature.parameters.values() if p.default is p.empty]
    return [
        name
        for name, signature in functions.items()
        if required(signature) == ["agents"] and signature.return_annotation in ("Network", Network)
    ]


def agreed_mean(network: Network, rows: np.ndarray) -> np.ndarray:
    """The mean of the silos' rows as every silo knows it after mixing with its neighbours often enough."""
    if network.agents == 1:
        return rows[0]
    mixes = int(np.ceil(np.log(AGREED) / np.log(max(network.rho, AGREED))))
    return (np.linalg.matrix_power(network.W, mixes) @ rows)[0]


def agreed_scale(network: Network, parts: list[np.ndarray], table: np.ndarray) -> Scale:
    """Means and deviations of the columns of all silos, from sums of each; a constant column keeps deviation 1."""
    sums = np.stack([np.append(table[part].sum(axis=0), len(part)) for part in parts])
    total = agreed_mean(network, sums)
    mean = total[:-1] / total[-1]
    squares = np.stack([((table[part] - mean) ** 2).sum(axis=0) for part in parts])
    deviation = np.sqrt(agreed_mean(network, squares) / total[-1])
    flat = deviation <= 1e-10 * (1 + np.abs(mean))  # what rounding leaves of a constant
    return Scale(mean, np.where(flat, 1.0, deviation))


def dealt(parts: list[np.ndarray], labels: np.ndarray | None, k: int, random: np.random.RandomState) -> np.ndarray:
    """Which of k parts every sample validates: each silo deals its own samples, class by class, after shuffling.

    Every silo begins with a part of its own, so that silos of a sample or two validate as well.
    """
    fold = np.zeros(sum(map(len, parts)), dtype=int)
    for part in parts:
        order = random.permutation(part)
        if labels is not None:
            order = order[np.argsort(labels[order], kind="stable")]
        fold[order] = (np.arange(len(order)) + random.randint(k)) % k
    return fold


def stacked(
    features: np.ndarray,
    targets: np.ndarray,
    parts: list[np.ndarray],
    fold: np.ndarray,
    k: int,
    size: int | None = None,
) -> dict[str, np.ndarray]:
    """The silos' data with a leading axis of silos; padding, to `size` samples, is zero and weighs nothing."""
    m = len(parts)
    samples = len(fold)
    size = size or 1 << (max(SAMPLES // m, *map(len, parts)) - 1).bit_length()
    index = np.zeros((m, size), dtype=int)
    real = np.zeros((m, size), dtype=bool)
    for row, part in enumerate(parts):
        index[row, : len(part)] = part
        real[row, : len(part)] = True
    # (m, k + 1, size): the last model leaves out no samples
    left_out = (fold[index][:, None] == np.arange(k + 1)[:, None]) & real[:, None]
    trained = real[:, None] & ~left_out
    counts = np.maximum(trained.sum(axis=(0, 2)), 1)
    wide = np.pad(features, ((0, 0), (0, -features.shape[1] % FEATURES)))
    return {
        "features": wide[index] * real[..., None],
        "targets": targets[index] * real[..., None],
        "training": trained * (m / counts)[:, None],
        "validation": left_out * (m / samples),
        "prior": np.full(m, 0.5 / samples),
    }


def penalties(x: Tree) -> jax.Array:
    """The penalty of each feature, (2)."""
    return jnp.exp(x["common"] + x["own"])  # (2)


def scores(y: Tree, d: Tree) -> jax.Array:
    """What every model says of every sample: (models, samples, columns)."""
    return jnp.einsum("np,kpc->knc", d["features"], y["coef"]) + y["intercept"][:, None, :]


def log_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """(1) for classes: t is 0 or 1 if there is one column, otherwise one-hot."""
    normaliser = jax.nn.softplus(s[..., 0]) if s.shape[-1] == 1 else jax.nn.logsumexp(s, axis=-1)
    return normaliser - jnp.sum(t * s, axis=-1)  # (1)


def squared_loss(s: jax.Array, t: jax.Array) -> jax.Array:
    """(1) for numbers."""
    return 0.5 * jnp.sum((s - t) ** 2, axis=-1)  # (1)


def _levels(loss: Callable[[jax.Array, jax.Array], jax.Array]) -> tuple[Objective, Objective]:
    """Both objectives of a silo with this loss: (4) and (3)."""

    def outer(x: Tree, y: Tree, d: Tree) -> jax.Array:
        fit = jnp.sum(d["validation"] * loss(scores(y, d), d["targets"]))
        prior = jnp.sum(x["own"] ** 2) + (x["common"] + 5) ** 2 / 4
        return fit + d["prior"] * prior  # (4)

    def inner(x: Tree, y: Tree, d: Tree) -> jax.Array:
        fit = jnp.sum(d["training"] * loss(scores(y, d), d["targets"]))
        size = jnp.sum(penalties(x)[:, None] * y["coef"] ** 2) + INTERCEPT * jnp.sum(y["intercept"] ** 2)
        return fit + size  # (3)

    return outer, inner


# Made once: compiled programs belong to these functions, and serve every fit of the same shapes.
LOSSES = {"log": _levels(log_loss), "squared": _levels(squared_loss)}


def problem_of(data: dict[str, np.ndarray], loss: str, name: str = "silos") -> Problem:
    """The two levels for stacked data, with their start."""
    models = data["training"].shape[1]
    width = data["features"].shape[2]
    columns = data["targets"].shape[2]
    x0 = {"common": np.asarray(START), "own": np.zeros(width)}
    y0 = {"coef": np.zeros((models, width, columns)), "intercept": np.zeros((models, columns))}
    return Problem(*LOSSES[loss], data, x0, y0, name=name)


def residual(s: Snapshot) -> jax.Array:
    """How far the silos are from a fixed point, by first gradients only.

    The largest entry of the mean direction of x, of the mean of g_y at the answer for y*(x), and of the differences
    between the silos' x and answers.
    """
    rows = s.rows
    own = lambda d, x, y: Oracle(s.functions, d).inner(x, y)[1]
    inner = average(jax.vmap(own)(s.here, s.local["x"], s.local[s.answer]))
    moves = [jnp.max(jnp.abs(mean)) for mean in (s.mean_direction.x, inner)]
    apart = [jnp.max(jnp.abs(row - jnp.mean(row, axis=0))) for row in (rows["x"], rows[s.answer])]
    return jnp.max(jnp.stack([*moves, *apart]))
