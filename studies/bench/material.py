r"""What the tasks are made of: tables of data by name, and problems that only the benchmark has.

Tables are small, so that a reference can be solved at every record: digits 1 and 3 in 4 x 4 pixels,
MNIST 1 and 3 and Fashion-MNIST's T-shirts (0) and shirts (6) in 7 x 7, each pixel the mean of a
square. Two are drawn from a seed and look like data that would have to be downloaded:

    (1)  covtype   6 numbers whose covariance has condition 10^4, 4 + 6 indicators of which most are
                   rare, and one positive in twelve
    (2)  adult     30 indicators of 8 attributes, the first value of each the commonest, and one
                   positive in four

A table is read from bench-NAME.npz in $DECIBO_DATA if that exists, for machines without
scikit-learn: `pack` writes these files. The problems:

    (3)  noisy       quadratics; a sample adds noise to the linear terms of f and g
    (4)  perceptron  hyper-cleaning where y holds the weights of a network with one hidden layer of
                     tanh
    (5)  trust       hyper-cleaning where all training samples of a silo share one weight
                     sigma(x_i), and the labels of one silo are often wrong
    (6)  area        the minimax problem of the area under the ROC curve, with minibatches
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.data.dataset import Dataset
from decibo.data.loaders import breast_cancer, digits, find, idx, libsvm, mnist
from decibo.errors import InputError
from decibo.files import check_writable
from decibo.problem.problem import Problem
from decibo.problems.cleaning import hyper_cleaning
from decibo.problems.logistic import Samples
from decibo.problems.minimax import minimax_auc
from decibo.pytree import Tree

NOISE = 0.3  # (3): the standard deviation
HIDDEN = 4  # (4)
WRONG = 0.4  # (5): the share of wrong labels in one silo
FASHION = "fashion-mnist/train-images-idx3-ubyte.gz"
DEBIAN = Path("/usr/share/datasets")  # where Debian's package dataset-fashion-mnist puts its files
# the file of a table
SOURCES = {"ijcnn1": "ijcnn1", "a9a": "a9a", "mnist": "mnist.npz", "fashion": FASHION}


# Tables


def at_hand(name: str) -> bool:
    """Whether a table is available without a download."""
    source = SOURCES.get(name)
    return source is None or find(_packed(name)) is not None or _found(source) is not None


@cache
def table(name: str) -> Dataset:
    """A table by its name: digits, cancer, ijcnn1, a9a, mnist or fashion."""
    packed = find(_packed(name))
    if packed is not None:
        with np.load(packed, allow_pickle=False) as arrays:
            return Dataset(
                arrays["features"],
                arrays["labels"],
                arrays["test"],
                arrays["test_labels"],
                name,
                "packed",
            )
    return _LOADERS[name]()


def pack(folder: Path, names: Iterable[str] = ()) -> list[Path]:
    """Write all tables that are at hand as files that numpy alone can read."""
    written = []
    check_writable(folder).mkdir(parents=True, exist_ok=True)
    for name in names or [each for each in _LOADERS if at_hand(each)]:
        data = table(name)
        target = folder / _packed(name)
        np.savez_compressed(
            target,
            features=data.features,
            labels=data.labels,
            test=data.test_features,
            test_labels=data.test_labels,
        )
        written.append(target)
    return written


def _packed(name: str) -> str:
    return f"bench-{name}.npz"


def _found(source: str) -> Path | None:
    """A file in $DECIBO_DATA or the cache, or where Debian has it."""
    return find(source) or next((path for path in [DEBIAN / source] if path.is_file()), None)


def _path(name: str) -> Path:
    found = _found(SOURCES[name])
    if found is None:
        raise InputError(
            f"The task needs {SOURCES[name]}.", "Put it into the folder that $DECIBO_DATA names."
        )
    return found


def _pooled(data: Dataset, side: int, square: int) -> Dataset:
    """Images in fewer pixels, each the mean of a square."""
    small = side // square

    def fewer(rows: np.ndarray) -> np.ndarray:
        return (
            rows.reshape(-1, small, square, small, square)
            .mean(axis=(2, 4))
            .reshape(-1, small * small)
        )

    return replace(data, features=fewer(data.features), test_features=fewer(data.test_features))


_LOADERS: dict[str, Callable[[], Dataset]] = {
    "digits": lambda: _pooled(digits(), 8, 2),
    "cancer": breast_cancer,
    "ijcnn1": lambda: libsvm(_path("ijcnn1")),
    "a9a": lambda: libsvm(_path("a9a")),
    "mnist": lambda: _pooled(mnist(folder=_path("mnist").parent), 28, 4),
    "fashion": lambda: _pooled(idx(_path("fashion").parent, 0, 6), 28, 4),
}


def drawn(name: str, seed: int, count: int) -> Dataset:
    """So many samples of a table to train and validate on, and as many others as a test set, drawn
    by the seed."""
    data = table(name)
    order = np.random.default_rng((seed, 17)).permutation(len(data.labels))
    used = order[:count]
    held = order[count : 2 * count]
    rows = data.features
    tests = {"test_features": rows[held], "test_labels": data.labels[held]}
    return replace(data, features=rows[used], labels=data.labels[used], **tests)


def covtype(seed: int, count: int = 600) -> Dataset:
    """(1)."""
    rng = np.random.default_rng((seed, 53))
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    numbers = rng.normal(size=(2 * count, 6)) * np.geomspace(1, 1e-2, 6) @ basis
    features = np.hstack([numbers, *(_indicators(rng, 2 * count, size) for size in (4, 6))])
    return _labelled(rng, features, 1 / 12, "like covtype")


def adult(seed: int, count: int = 480) -> Dataset:
    """(2)."""
    rng = np.random.default_rng((seed, 59))
    features = np.hstack([_indicators(rng, 2 * count, size) for size in (6, 5, 4, 4, 3, 3, 3, 2)])
    return _labelled(rng, features, 1 / 4, "like Adult")


def _indicators(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Indicators of an attribute whose k-th value has a share like 1/k^2."""
    shares = 1.0 / np.arange(1, size + 1) ** 2
    return np.eye(size)[rng.choice(size, count, p=shares / shares.sum())]


def _labelled(
    rng: np.random.Generator, features: np.ndarray, positives: float, name: str
) -> Dataset:
    """Labels by a linear score of standardised features with noise: the highest are positive. Half
    of it is a test."""
    spread = features.std(axis=0)
    scores = (features / np.where(spread > 0, spread, 1)) @ rng.normal(size=features.shape[1])
    scores += 0.5 * scores.std() * rng.normal(size=len(scores))
    labels = np.where(scores > np.quantile(scores, 1 - positives), 1.0, -1.0)
    half = len(labels) // 2
    return Dataset(features[:half], labels[:half], features[half:], labels[half:], name, "drawn")


# Problems


def noisy(d: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
    """(3): a sample of one agent's functions."""
    keys = jax.random.split(key, 3)
    return d | {
        name: d[name] + NOISE * jax.random.normal(k, d[name].shape)
        for name, k in zip("pqs", keys, strict=True)
    }


def perceptron_scores(y: Tree, features: jax.Array) -> jax.Array:
    """The scores of both classes."""
    return jnp.tanh(features @ y["in"] + y["bias"]) @ y["out"] + y["ends"]


def _entropy(y: Tree, samples: Samples) -> jax.Array:
    logs = jax.nn.log_softmax(perceptron_scores(y, samples["features"]))
    return -jnp.take_along_axis(logs, samples["labels"][:, None], axis=1)[:, 0]


def _perceptron_outer(x: jax.Array, y: Tree, d: dict[str, Samples]) -> jax.Array:
    return d["validation"]["weights"] @ _entropy(y, d["validation"])


def _perceptron_inner(x: jax.Array, y: Tree, d: dict[str, Samples]) -> jax.Array:
    samples = d["training"]
    trust = samples["weights"] * jax.nn.sigmoid(x[samples["index"]])
    size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return trust @ _entropy(y, samples) + jnp.mean(samples["ridge"]) * size / 2


def perceptron(data: Dataset, corruption: float, seed: int, batch: int | None = None) -> Problem:
    """(4): its inner level has many minima, so that there is no y*(x)."""
    linear = hyper_cleaning(
        data, corruption=corruption, training=60, validation=60, batch=batch, seed=seed
    )
    features = data.features.shape[1]
    rng = np.random.default_rng((seed, 61))
    y0 = {
        "in": rng.normal(size=(features, HIDDEN)) * 2 / np.sqrt(features),
        "bias": np.zeros(HIDDEN),
        "out": rng.normal(size=(HIDDEN, 2)) / np.sqrt(HIDDEN),
        "ends": np.zeros(2),
    }
    return replace(
        linear,
        outer=_perceptron_outer,
        inner=_perceptron_inner,
        y0=y0,
        name=f"{linear.name}, perceptron",
    )


def trust(data: Dataset, silo: int, seed: int, batch: int | None = None) -> Problem:
    """(5): which silos to trust; the labels of the silo of this number are wrong with a probability
    of WRONG."""
    half = len(data.labels) // 2
    made = hyper_cleaning(
        data,
        corruption=0.0,
        training=half,
        validation=half,
        split="by_group",
        batch=batch,
        seed=seed,
    )
    training = {name: np.array(leaf) for name, leaf in made.data["training"].items()}
    rng = np.random.default_rng((seed, 67))
    wrong = rng.uniform(size=training["labels"].shape[1]) < WRONG
    training["labels"][silo] = np.where(
        wrong, 1 - training["labels"][silo], training["labels"][silo]
    )
    silos = len(training["index"])
    training["index"] = np.broadcast_to(np.arange(silos)[:, None], training["index"].shape).astype(
        np.int32
    )
    return replace(
        made, data={**made.data, "training": training}, x0=np.zeros(silos), name="silo trust"
    )


def area(
    data: Dataset, seed: int, ratios: ArrayLike | None = None, batch: int | None = None
) -> Problem:
    """(6): every agent has as many samples as the others, but another share of positives."""
    made = minimax_auc(data, seed=seed, split="by_label", ratios=ratios)
    return made if batch is None else replace(made, sample=_of_area(batch))


@cache
def _of_area(batch: int) -> Callable[[dict[str, jax.Array], jax.Array], dict[str, jax.Array]]:
    """So many samples of an agent, reweighted so that gradients are unbiased; f is linear in the
    weights."""

    def sample(d: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        size = d["weights"].shape[0]
        rows = jax.random.randint(key, (batch,), 0, size)
        taken = {name: d[name][rows] for name in ("features", "labels", "weights")}
        return d | taken | {"weights": taken["weights"] * (size / batch)}

    return sample
