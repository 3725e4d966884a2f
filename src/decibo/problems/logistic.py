r"""Hyper-parameters of l2-regularised logistic regression. [paper, section VI-B, eq. hyper-opt]

    (1)  phi(y; b, s) = log(1 + exp(-b s'y))
    (2)  f_i(x, y) = sum over agent i's validation samples of phi(y; b, s)
    (3)  g_i(x, y) = sum over agent i's training samples of phi(y; b, s)  +  y' diag(e^x) y

x holds one regularisation exponent for each feature (eta in the paper), y the weights of the
classifier. The regulariser stands in every agent's g_i, as printed. With loss="mean" sums over
samples become means.

The curvature of (3) moves by orders of magnitude with x. `scaled` measures y in units in which it
cannot (see `decibo.rescaled`), and `floor` keeps penalties away from 0, so that a minimiser exists:

    (4)  y_j = v_j / sqrt(c_j (1 + floor) + e^x_j),   e^x_j -> e^x_j + floor c_j  in (3)
    (5)  c_j = sum_s s_j^2/8, the mean over agents: half the diagonal of the loss's Hessian at 0

One penalty for each feature overfits unless a prior or many validation samples hold it. Chosen by
four folds, without a prior, it was worse on new samples than ONE penalty from a grid on all of six
tables (log-loss + 0.7 % heart disease, 3.8 % covtype, 5.7 % ijcnn1, 9.6 % MNIST, 12 % a9a, 48 %
digits), although validation improved by 2 to 83 %; with a prior of deviation 1 on own log-penalties
it was between -0.8 and +0.6 %. To fit a model, use `decibo.sklearn.SiloLogisticRegression`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.data.dataset import Dataset, check_dataset
from decibo.data.loaders import digits
from decibo.data.split import Parts, by_group, by_label, dirichlet, iid, shards
from decibo.data.stream import Batches
from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.problem.rescaled import rescaled
from decibo.validate import above, at_least, flag, integer, one_of

if TYPE_CHECKING:
    from jaxtyping import Float

Samples = dict[str, jax.Array]  # features, labels and weights of one agent's samples
Sampler = Callable[[dict[str, Samples], jax.Array], dict[str, Samples]] | Batches
KINDS = ("training", "validation")  # of samples; what else an agent has stays whole
SPLITS = ("iid", "by_label", "dirichlet", "by_group")


def logistic_loss(y: jax.Array, samples: Samples) -> jax.Array:
    """The weighted sum of (1), without overflow."""
    margins = samples["labels"] * (samples["features"] @ y)
    return samples["weights"] @ jax.nn.softplus(-margins)  # (1)


def _outer(x: jax.Array, y: jax.Array, d: dict[str, Samples]) -> jax.Array:
    return logistic_loss(y, d["validation"])  # (2)


def _outer_prior(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    far = x - d["expected"]
    return _outer(x, y, d) + d["prior"] * far @ far  # type: ignore[arg-type]


def _inner(x: jax.Array, y: jax.Array, d: dict[str, Samples]) -> jax.Array:
    return logistic_loss(y, d["training"]) + y @ (jnp.exp(x) * y)  # (3)


def _inner_floor(x: jax.Array, y: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return _inner(x, y, d) + y @ (d["least"] * y)  # type: ignore[arg-type]


def _unit(x: jax.Array, d: dict[str, jax.Array]) -> jax.Array:
    return jax.lax.rsqrt(d["curvature"] + d["least"] + jnp.exp(x))  # (4)


def logistic_hyperparameters(
    dataset: Dataset | None = None,
    agents: int = 10,
    *,
    split: str = "iid",
    ratios: ArrayLike | None = None,
    concentration: float = 0.5,
    loss: str = "sum",
    training: int | None = None,
    validation: int | None = None,
    scale: float = 1.0,
    scaled: bool = False,
    floor: float = 0.0,
    prior: float = 0.0,
    batch: int | None = None,
    batches: int | None = None,
    seed: int = 0,
) -> Problem:
    """The paper's regression; without a dataset on the bundled 8 x 8 digits, 1 against 3.

    Without a prior, one penalty for each feature overfits: see the module for by how much.

    split       "iid"; "by_label" with `ratios` of positives; "dirichlet" with `concentration`;
                "by_group" makes each silo of the dataset an agent, whatever `agents` is
    ratios      one for each agent; from 0.1 to 0.9 by default
    training    how many samples all agents have together, and validation likewise; by default half
                of the dataset each
    scale       features are divided by it (not those of the test set: the sign of s'y does not
                change)
    scaled      whether y is measured in units in which its curvature stays: the same Phi and x,
                and solutions in the units of the paper
    floor       what penalties have at least, in units of the features' own curvature; 0.01 is
                usual, 0 the paper's
    prior       how far log-penalties are expected from a twentieth of the features' own curvature,
                as strongly as one validation sample counts: then Phi has a minimiser; 4 is usual, 0
                the paper's, which has none
    batch       samples of each kind in a minibatch, drawn with replacement, for stochastic methods
    batches     instead of that: the number of batches into which the samples are divided once, as
                `saba` needs them
    """
    data = signed(dataset if dataset is not None else digits())
    parts = two_pools(data, training, validation, split, seed)
    one_of("loss", loss, ("sum", "mean"))
    above("scale", scale, 0.0)
    deal = splitter(data, split, integer("agents", agents), ratios, concentration, seed)
    stacked = {
        kind: weighted(shards(data.features[pool] / scale, data.labels[pool], deal(pool)), loss)
        for kind, pool in zip(KINDS, parts, strict=True)
    }
    n = data.features.shape[1]
    sample = chosen_sampler(batch, batches, stacked)
    outer = _outer
    inner = _inner
    if any([flag("scaled", scaled), at_least("floor", floor, 0.0), at_least("prior", prior, 0.0)]):
        samples = stacked["training"]
        own = np.einsum("ms,msn->mn", samples["weights"], samples["features"] ** 2) / 8
        c = np.maximum(own.mean(axis=0), 1e-3 * own.mean())  # (5), exchanged once
        each = lambda row: np.tile(row, (len(own), 1))
        stacked |= {"curvature": each(c), "least": each(floor * c)}  # type: ignore[dict-item]
        inner = _inner_floor
        if prior:
            one = stacked["validation"]["weights"].max() / len(own)
            stacked["expected"] = each(np.log(c / 20))  # type: ignore[assignment]
            stacked["prior"] = np.full(len(own), one / (2 * prior**2))  # type: ignore[assignment]
            outer = _outer_prior
    name = f"logistic, {data.name}"
    problem = Problem(outer, inner, stacked, np.zeros(n), np.zeros(n), sample=sample, name=name)
    return rescaled(problem, _unit) if scaled else problem  # type: ignore[arg-type]


def accuracy(y: ArrayLike, features: ArrayLike, labels: ArrayLike) -> Float[jax.Array, ""]:
    """The share of samples classified correctly, by weights y of shape (features,) or (features,
    classes)."""
    weights = jnp.asarray(y)
    scores = jnp.asarray(features) @ weights
    truth = jnp.asarray(labels)
    if weights.ndim == 1:
        return jnp.mean((scores > 0) == (truth > 0))
    return jnp.mean(jnp.argmax(scores, axis=-1) == jnp.maximum(truth, 0))  # -1 is class 0


def signed(dataset: Dataset) -> Dataset:
    """The dataset, if its labels are +1 and -1."""
    check_dataset(dataset)
    if not np.isin(dataset.labels, (-1.0, 1.0)).all():
        raise InputError(
            f"The labels must be +1 and -1, but those of {dataset.name} are not.",
            "Choose two classes.",
        )
    return dataset


def two_pools(
    dataset: Dataset, training: int | None, validation: int | None, split: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint random samples to train and to validate on; with split="by_group" the same share of
    every silo."""
    seed = integer("seed", seed, least=0)
    samples = len(dataset.labels)
    first = integer("training", samples // 2 if training is None else training)
    rest = samples - first
    second = integer("validation", min(rest, max(first, 1)) if validation is None else validation)
    if first + second > samples:
        raise InputError(
            f"training and validation must not exceed the {samples} samples of the dataset"
            f" together, but they are {first} and {second}."
        )
    order = np.random.default_rng((seed, 7)).permutation(samples)
    if split == "by_group":  # dealt so that every stretch has its share of every silo
        place = np.empty(samples)
        for rows in by_group(dataset.silos()[order]):
            place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
        order = order[np.argsort(place, kind="stable")]
    return order[:first], order[first : first + second]


def splitter(
    dataset: Dataset,
    split: str,
    agents: int,
    ratios: ArrayLike | None,
    concentration: float,
    seed: int,
) -> Callable[[np.ndarray], Parts]:
    """What deals the rows of a pool to the agents, by one of the named splits."""
    one_of("split", split, SPLITS)
    if ratios is not None and split != "by_label":
        raise InputError(f"ratios belong to split='by_label', but split is {split!r}.")
    if split == "by_group":
        silos = dataset.silos()
        return lambda rows: by_group(silos[rows])
    labels = dataset.labels
    if split == "by_label":
        shares = np.linspace(0.1, 0.9, agents) if ratios is None else ratios
        return lambda rows: by_label(labels[rows], agents, shares, seed=seed)
    if split == "dirichlet":
        return lambda rows: dirichlet(labels[rows], agents, concentration, seed=seed)
    return lambda rows: iid(labels[rows], agents, seed=seed)


def weighted(samples: dict[str, np.ndarray], loss: str) -> dict[str, np.ndarray]:
    """Sums become means by weights 1/size, so that both are the same function of the data."""
    if loss == "mean":
        samples["weights"] = samples["weights"] / samples["weights"].sum(axis=1, keepdims=True)
    return samples


def chosen_sampler(
    batch: int | None, batches: int | None, stacked: dict[str, dict[str, np.ndarray]]
) -> Sampler | None:
    """Minibatches of so many samples, one of so many fixed batches, or none."""
    if batches is None:
        return None if batch is None else sampler(integer("batch", batch))
    if batch is not None:
        raise InputError(
            "Minibatches are drawn afresh (batch) or from a fixed list (batches), but batch is"
            f" {batch!r} and batches {batches!r}.",
            "Leave one of them out.",
        )
    most = min(samples["weights"].shape[1] for samples in stacked.values())
    return divided(integer("batches", batches, most=most))


@cache
def divided(count: int) -> Batches:
    """The samples of each kind dealt out to `count` batches, whose mean loss is that of all
    samples."""
    return Batches(count, take=partial(_dealt, count))


def _dealt(count: int, d: dict[str, Samples], j: jax.Array) -> dict[str, Samples]:
    """Samples j, j + count, j + 2 count, ...; where the last one is missing, one of weight 0 stands
    in."""

    def part(samples: Samples) -> Samples:
        size = samples["weights"].shape[0]
        rows = j + count * jnp.arange(-(-size // count))
        taken = {name: value[jnp.minimum(rows, size - 1)] for name, value in samples.items()}
        return taken | {"weights": jnp.where(rows < size, count * taken["weights"], 0)}

    return d | {kind: part(d[kind]) for kind in KINDS}


@cache
def sampler(batch: int) -> Callable[[dict[str, Samples], jax.Array], dict[str, Samples]]:
    """A function (d, key) -> `batch` samples of each kind, reweighted so that gradients are
    unbiased."""

    def pick(samples: Samples, key: jax.Array) -> Samples:
        size = samples["weights"].shape[0]
        index = jax.random.randint(key, (batch,), 0, size)
        drawn = {name: value[index] for name, value in samples.items()}
        return drawn | {"weights": drawn["weights"] * (size / batch)}

    def sample(d: dict[str, Samples], key: jax.Array) -> dict[str, Samples]:
        keys = jax.random.split(key, len(KINDS))
        return d | {kind: pick(d[kind], k) for kind, k in zip(KINDS, keys, strict=True)}

    return sample
