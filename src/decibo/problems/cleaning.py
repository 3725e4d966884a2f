r"""Data hyper-cleaning: learn which training samples to trust.

    (1)  f_i(x, y) = mean over agent i's validation samples of CE(y; s, b)
    (2)  g_i(x, y) = mean over agent i's training samples j of sigma(x_j) CE(y; s_j, b_j)
                     +  ridge |y|^2 / 2

CE is the cross-entropy of the softmax of y's, with y of shape (features, classes). Labels of
validation samples are right; a share of the training labels is not. x holds one logit for each
training sample of ALL agents: each agent uses its own slice, and consensus carries the rest.
Descending Phi lowers sigma(x_j) where fitting (s_j, b_j) harms validation: in the end corrupted
samples weigh less than clean ones, which `hyper_cleaning_separation` measures.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.data.dataset import Dataset, check_dataset
from decibo.data.loaders import digits
from decibo.data.split import shards
from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.problems.logistic import Samples, chosen_sampler, splitter, two_pools, weighted
from decibo.validate import above, fraction, integer


def cross_entropy(y: jax.Array, samples: Samples) -> jax.Array:
    """CE of every sample, without overflow."""
    # XLA folds the transposition of the gradient into its product, which then takes three times as
    # long for agents side by side; the barrier keeps them apart.
    turned = jax.lax.optimization_barrier(y.T)
    scores = jnp.einsum("sp,cp->sc", samples["features"], turned)
    right = jnp.take_along_axis(scores, samples["labels"][:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - right


def _outer(x: jax.Array, y: jax.Array, d: dict[str, Samples]) -> jax.Array:
    return d["validation"]["weights"] @ cross_entropy(y, d["validation"])  # (1)


def _inner(x: jax.Array, y: jax.Array, d: dict[str, Samples]) -> jax.Array:
    samples = d["training"]
    trust = samples["weights"] * jax.nn.sigmoid(x[samples["index"]])
    # The ridge is private data like all else, so that one compiled program serves every value of
    # it.
    return trust @ cross_entropy(y, samples) + jnp.mean(samples["ridge"]) * jnp.sum(y**2) / 2  # (2)


def hyper_cleaning(
    dataset: Dataset | None = None,
    agents: int = 10,
    *,
    corruption: float = 0.3,
    ridge: float = 0.01,
    training: int = 200,
    validation: int = 200,
    split: str = "iid",
    ratios: ArrayLike | None = None,
    concentration: float = 0.5,
    batch: int | None = None,
    batches: int | None = None,
    seed: int = 0,
) -> Problem:
    """Hyper-cleaning; without a dataset on all ten of the bundled 8 x 8 digits.

    corruption             the share of training samples whose label is made wrong
    training, validation   samples of all agents together; x has `training` entries
    batch, batches         as for `logistic_hyperparameters`
    """
    data = check_dataset(dataset if dataset is not None else digits(None, None))
    agents = integer("agents", agents)
    ridge = above("ridge", ridge, 0.0)
    train, held_out = two_pools(data, training, validation, split, seed)
    deal = splitter(data, split, agents, ratios, concentration, seed)
    labels = np.maximum(data.labels, 0).astype(np.int32)  # -1 and +1 become 0 and 1
    classes = int(labels.max()) + 1
    # A share of the training labels is replaced by one of the other classes.
    share = fraction("corruption", corruption)
    rng = np.random.default_rng((seed, 8))
    wrong = np.zeros(len(train), dtype=bool)
    wrong[rng.choice(len(train), round(share * len(train)), replace=False)] = True
    shifts = rng.integers(1, classes, size=len(train))  # never 0: a wrong label is wrong
    noisy = np.where(wrong, (labels[train] + shifts) % classes, labels[train]).astype(np.int32)
    parts = deal(train)
    index = shards(np.arange(len(train)), wrong, parts)
    held = shards(data.features[held_out], labels[held_out], deal(held_out))
    samples = {
        "training": weighted(shards(data.features[train], noisy, parts), "mean"),
        "validation": weighted(held, "mean"),
    }
    samples["training"] |= {
        "index": index["features"].astype(np.int32),
        "corrupted": index["labels"],
        "ridge": np.full(index["weights"].shape, ridge),
    }
    start = np.zeros(len(train)), np.zeros((data.features.shape[1], classes))
    sample = chosen_sampler(batch, batches, samples)
    name = f"hyper-cleaning, {data.name}"
    return Problem(_outer, _inner, samples, *start, sample=sample, name=name)


def hyper_cleaning_mask(problem: Problem) -> np.ndarray:
    """Which training samples have a wrong label, in the order of x."""
    if problem.inner is not _inner:
        raise InputError(
            f"Only hyper_cleaning problems have a mask, but this is the problem {problem.name!r}."
        )
    samples = {name: np.asarray(value) for name, value in problem.data["training"].items()}
    mask = np.zeros(problem.x_layout.size, dtype=bool)
    real = samples["weights"] > 0
    mask[samples["index"][real]] = samples["corrupted"][real]
    return mask


def hyper_cleaning_separation(problem: Problem, x: ArrayLike) -> float:
    """The probability that a clean sample weighs more than a corrupted one: 0.5 is a guess, 1
    separates them."""
    mask = hyper_cleaning_mask(problem)
    clean = np.asarray(x)[~mask]
    wrong = np.asarray(x)[mask]
    if len(clean) == 0 or len(wrong) == 0:
        raise InputError(
            f"There must be correct and corrupted labels, but {len(wrong)} of {len(mask)} labels"
            " are corrupted.",
            "Change corruption.",
        )
    higher = (clean[:, None] > wrong).mean()
    return float(higher + (clean[:, None] == wrong).mean() / 2)
