r"""Samples in silos as a two-level problem: what the agents hold, and what they minimise.

Samples fall into K parts by what is in them, whoever holds them. K models leave one part out each,
and one more, the answer, leaves out none:

    (1)  l(s, t)     = the loss of scores s; losses.py
    (2)  pen_j       = exp(common + spread own_b(j)), b(j) the block of feature j, its own if none
    (3)  g_i(x, y)   = sum_k [ (m/N_k) sum over silo i's samples outside part k of l
                             + sum_j pen_j |y_kj|^2 + r |b_k|^2 ]
    (4)  f_i(x, y)   = (m/N) sum_k [ sum over silo i's samples in part k of l(model k) ]
                       + (sum_b own_b^2 + (common + 5)^2 / 16) / (2 N)

N is the weight of the samples of all silos and N_k of those outside part k, so that the means over
the m silos are the pooled losses however unequal the silos are. The end of (4) expects
log-penalties within `spread` of each other and within 4 of -5: it settles what the validation
samples leave open, and fades as they become many. The r in (3) keeps the inner level strongly
convex. Runs start at common = -3, where penalties are large, the inner level is fast, and x comes
down from there.

What silos tell each other before a run: their names, how many samples they have in each part, their
classes, the sums of their features (and targets), and the sums of squares about the common mean. No
sample is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

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
from decibo.parallel.placement import place_agents
from decibo.parallel.processes import share
from decibo.problem.problem import Objective, Oracle, Problem
from decibo.silo.estimators import SiteFit
from decibo.sklearn import losses
from decibo.sklearn.losses import Loss
from decibo.validate import one_of

START = -3.0  # of the common log-penalty
INTERCEPT = 1e-4  # r
# Tables are padded to multiples of so many features and powers of 2 samples, at least so many in
# all, so that one compiled program serves many shapes: compiling takes longer than most fits.
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


@dataclass(frozen=True, eq=False)
class Census:
    """All silos, and the samples of those in this process.

    names   of all silos, in the order of the agents
    parts   the rows of each silo of this process
    first   the number of the first of these
    sizes   how many samples each of all silos has
    share   what this process has -> what each process has
    """

    names: np.ndarray
    parts: list[np.ndarray]
    first: int
    sizes: list[int]
    share: Callable[[Any], list[Any]]

    @property
    def count(self) -> int:
        """How many silos there are."""
        return len(self.names)

    @property
    def samples(self) -> int:
        """How many samples all of them have."""
        return sum(self.sizes)

    @property
    def size(self) -> int:
        """How many samples the tables of silos that are stacked have, with padding."""
        return 1 << (max(SAMPLES // self.count, *self.sizes) - 1).bit_length()

    def weight(self, weights: np.ndarray) -> float:
        """The weight of the samples of all silos."""
        return float(self.total([weights[part].sum() for part in self.parts]))

    def total(self, rows: ArrayLike) -> np.ndarray:
        """The sum over all silos of what each of this process's silos has; bit for bit the same on
        any processes."""
        return np.sum(
            [row for process in self.share(np.asarray(rows).tolist()) for row in process], axis=0
        )


@dataclass(frozen=True, eq=False)
class SiteCensus(Census):
    """All silos, of which one is in this process, a site."""

    site: SiteFit

    @staticmethod
    def of(site: SiteFit) -> SiteCensus:
        all_sites = site.fit.collectives
        parts = [np.arange(site.rows)]
        names = np.array(all_sites.names)
        return SiteCensus(names, parts, all_sites.number, [site.rows], all_sites.share, site)

    @property
    def samples(self) -> int:
        return self.site.everybody

    @property
    def size(self) -> int:
        return self.site.rows  # nothing is padded

    def total(self, rows: ArrayLike) -> np.ndarray:
        return self.site.fit.collectives.total(np.asarray(rows)[0])


class FitData(NamedTuple):
    """The samples of this process's silos: standardised, with a last column of ones."""

    census: Census
    rows: np.ndarray
    targets: np.ndarray
    fold: np.ndarray
    weights: np.ndarray | None
    loss: Loss

    def weighed(self) -> np.ndarray:
        return np.ones(len(self.rows)) if self.weights is None else self.weights


def alone(names: np.ndarray, parts: list[np.ndarray]) -> Census:
    """All silos are in this process."""
    return Census(names, parts, 0, [len(part) for part in parts], lambda value: [value])


def census(groups: ArrayLike | None, samples: int) -> Census:
    """Who has which samples; all rows of a process are one silo if nothing is said.

    In a run of several processes each passes the samples of its own silos, and all call this
    together.
    """
    if groups is None:
        names = np.array([jax.process_index()])
        parts = [np.arange(samples)]
    else:
        groups = np.asarray(groups)
        if groups.shape != (samples,):
            raise InputError(
                f"groups must name one silo for each of the {samples} samples, but its shape is"
                f" {groups.shape}."
            )
        names = np.unique(groups)
        parts = by_group(groups)
    if jax.process_count() == 1:
        return alone(names, parts)
    everyone = share([names.tolist(), [len(part) for part in parts]])
    listed = [name for theirs, _ in everyone for name in theirs]
    doubled = next((name for name in listed if listed.count(name) > 1), None)
    if doubled is not None:
        raise InputError(
            f"Silo {doubled!r} is in several processes, but in such a run each process passes the"
            " samples of its own silos only."
        )
    counts = [len(theirs) for theirs, _ in everyone]
    placement = place_agents(len(listed))
    wanted = (
        counts
        if placement is None
        else [len(placement.own(process)) for process in range(len(everyone))]
    )
    if counts != wanted:
        raise InputError(
            f"The processes have {counts} silos, but {len(listed)} on {len(everyone)} processes"
            f" must be {wanted}.",
            "Start one process for each silo.",
        )
    sizes = [size for _, theirs in everyone for size in theirs]
    return Census(np.array(listed), parts, sum(counts[: jax.process_index()]), sizes, share)


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
            "network must be a name, a decibo.Network or a function from the number of silos to"
            f" one, but it is {network!r}.",
            "Pass 'ring', for example.",
        )
    if result.agents != silos:
        raise InputError(
            f"Every silo is one agent, but there are {silos} silos and {result.agents} agents."
        )
    return result


def _by_size() -> list[str]:
    """Names of the undirected networks that a number of agents describes."""
    functions = {name: inspect.signature(getattr(networks, name)) for name in networks.__all__}
    required = lambda signature: [
        p.name for p in signature.parameters.values() if p.default is p.empty
    ]
    return [
        name
        for name, signature in functions.items()
        if required(signature) == ["agents"] and signature.return_annotation in ("Network", Network)
    ]


def agreed_scale(silos: Census, table: np.ndarray, weights: np.ndarray | None = None) -> Scale:
    """Means and deviations of the columns of all silos, from sums of each; a constant column keeps
    deviation 1."""
    v = np.ones((len(table), 1)) if weights is None else weights[:, None]
    count = silos.samples if weights is None else silos.weight(weights)
    mean = silos.total([(v * table)[part].sum(axis=0) for part in silos.parts]) / count
    far = v * (table - mean) ** 2
    deviation = np.sqrt(silos.total([far[part].sum(axis=0) for part in silos.parts]) / count)
    flat = deviation <= 1e-10 * (1 + np.abs(mean))  # what rounding leaves of a constant
    return Scale(mean, np.where(flat, 1.0, deviation))


def agreed_classes(silos: Census, labels: np.ndarray) -> np.ndarray:
    """The classes of all silos, sorted."""
    own = np.unique(labels)
    everyone = silos.share(own.tolist())
    return (
        own if len(everyone) == 1 else np.unique([label for theirs in everyone for label in theirs])
    )


def dealt(silos: Census, rows: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Which of k parts every sample validates: drawn by what is in its row, features standardised
    and targets, so that a sample is in the same part whoever holds it.

    Samples of a silo that are equal go round the parts.
    """
    fold = np.zeros(len(rows), dtype=int)
    # sums of other silos in another order differ in the last digits
    rounded = np.round(rows, 6) + 0.0
    key = np.int64(seed).tobytes()
    for part in silos.parts:
        seen: dict[bytes, int] = {}
        for row in part:
            drawn = blake2b(rounded[row].tobytes(), key=key, digest_size=8).digest()
            fold[row] = (int.from_bytes(drawn, "little") + seen.get(drawn, 0)) % k
            seen[drawn] = seen.get(drawn, 0) + 1
    return fold


def stacked(
    silos: Census,
    features: np.ndarray,
    targets: np.ndarray,
    fold: np.ndarray,
    k: int,
    size: int | None = None,
    *,
    spread: float = 1.0,
    weights: np.ndarray | None = None,
    blocks: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The data of this process's silos, with a leading axis; padding, to `size` samples, is zero
    and weighs nothing."""
    m = silos.count
    size = size or silos.size
    index = np.zeros((len(silos.parts), size), dtype=int)
    weight = np.zeros(index.shape)
    for row, part in enumerate(silos.parts):
        index[row, : len(part)] = part
        weight[row, : len(part)] = 1.0 if weights is None else weights[part]
    # (silos, k + 1, size): the last model leaves out no samples
    out = fold[index][:, None] == np.arange(k + 1)[:, None]
    trained = weight[:, None] * ~out
    counts = np.maximum(silos.total(trained.sum(axis=2)), 1)
    whole = silos.samples if weights is None else silos.weight(weights)
    wide = np.pad(features, ((0, 0), (0, -features.shape[1] % FEATURES)))
    block = np.arange(wide.shape[1])
    if blocks is not None:
        block[: len(blocks)] = np.unique(blocks, return_inverse=True)[1]
    each = lambda value: np.repeat(np.asarray(value)[None], len(silos.parts), axis=0)
    return {
        "features": wide[index] * (weight > 0)[..., None],
        "targets": targets[index] * (weight > 0)[..., None],
        "training": trained * (m / counts)[:, None],
        "validation": weight[:, None] * out * (m / whole),
        "prior": each(0.5 / whole),
        "spread": each(float(spread)),
        "block": each(block),
    }


def models_of(y: Tree, p: int) -> np.ndarray:
    """(models, p features and the intercept, columns), without padding."""
    coef = np.asarray(y["coef"], float)[:, :p]
    return np.concatenate([coef, np.asarray(y["intercept"], float)[:, None]], axis=1)


def penalties(x: Tree, d: Tree) -> jax.Array:
    """The penalty of each feature, (2)."""
    return jnp.exp(x["common"] + d["spread"] * x["own"][d["block"]])  # (2)


def scores(y: Tree, d: Tree) -> jax.Array:
    """What every model says of every sample: (models, samples, columns)."""
    return jnp.einsum("np,kpc->knc", d["features"], y["coef"]) + y["intercept"][:, None, :]


@cache  # compiled programs belong to these functions, and serve every fit of the same shapes
def levels(loss: Loss) -> tuple[Objective, Objective]:
    """Both objectives of a silo with this loss: (4) and (3)."""
    summed = losses.summed(loss)

    def outer(x: Tree, y: Tree, d: Tree) -> jax.Array:
        fit = summed(scores(y, d), d["targets"], d["validation"])
        prior = jnp.sum(x["own"] ** 2) + (x["common"] + 5) ** 2 / 16
        return fit + d["prior"] * prior  # (4)

    def inner(x: Tree, y: Tree, d: Tree) -> jax.Array:
        fit = summed(scores(y, d), d["targets"], d["training"])
        size = jnp.sum(penalties(x, d)[:, None] * y["coef"] ** 2) + INTERCEPT * jnp.sum(
            y["intercept"] ** 2
        )
        return fit + size  # (3)

    return outer, inner


def problem_of(
    silos: Census, data: dict[str, np.ndarray], loss: Loss, name: str = "silos"
) -> Problem:
    """The two levels for the data of this process's silos, with their start."""
    models = data["training"].shape[1]
    width = data["features"].shape[2]
    columns = data["targets"].shape[2]
    x0 = {"common": np.asarray(START), "own": np.zeros(width)}
    y0 = {"coef": np.zeros((models, width, columns)), "intercept": np.zeros((models, columns))}
    if len(silos.parts) == silos.count:
        return Problem(*levels(loss), data, x0, y0, name=name)
    own = lambda agent: {key: leaf[agent - silos.first] for key, leaf in data.items()}
    return Problem(*levels(loss), own, x0, y0, agents=silos.count, name=name)


def residual(s: Snapshot) -> jax.Array:
    """How far the silos are from a fixed point, by first gradients only.

    The largest entry of the mean direction of x, of the mean of g_y at the answer for y*(x), and of
    the differences between the silos' x and answers.
    """
    rows = s.rows
    own = lambda d, x, y: Oracle(s.functions, d).inner(x, y)[1]
    inner = average(jax.vmap(own)(s.here, s.local["x"], s.local[s.answer]))
    moves = [jnp.max(jnp.abs(mean)) for mean in (s.mean_direction.x, inner)]
    apart = [jnp.max(jnp.abs(row - jnp.mean(row, axis=0))) for row in (rows["x"], rows[s.answer])]
    return jnp.max(jnp.stack([*moves, *apart]))
