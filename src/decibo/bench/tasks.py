"""The tasks of the benchmark: a name stands for a problem for every seed, and for how runs on it are judged.

    judged by   "stationarity", |grad Phi(xbar)|^2, where Phi has no plateaus;
                "phi", Phi(xbar), where it has: far out on a plateau the gradient is small and the answer is bad
    targets     an easy and a hard one: fractions of |grad Phi|^2 at the start, or of Phi(x0) - the lowest Phi that any
                entrant reached with this seed

Tasks of one family share their functions and shapes, and so the compiled programs of a method. The small ones use
data that come with decibo or scikit-learn; those of the full budget look for files in $DECIBO_DATA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial

import jax
import numpy as np

from decibo.data.dataset import Dataset
from decibo.data.heart_disease import heart_disease
from decibo.data.loaders import digits, find, libsvm, mnist
from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.problems.cleaning import hyper_cleaning
from decibo.problems.logistic import logistic_hyperparameters
from decibo.problems.minimax import minimax
from decibo.problems.quadratic import quadratic
from decibo.validate import only_known

Held = tuple[np.ndarray, np.ndarray]  # features and labels that no agent has
FEW = 600  # samples of a large data set that a seed draws
AUC_SAMPLES = 569  # of the breast cancer data


@dataclass(frozen=True)
class Task:
    """One task.

    make       (seed) the problem
    held_out   (seed) the test set, if there is one
    networks   those of the small budget; the full one has all
    sampled    whether gradients are those of minibatches
    files      the data files that it needs, in $DECIBO_DATA
    """

    name: str
    about: str
    make: Callable[[int], Problem] = field(repr=False)
    judged: str = "stationarity"
    targets: tuple[float, float] = (1e-3, 1e-6)
    family: str = ""
    steps: int = 600
    networks: tuple[str, ...] = ("ring",)
    held_out: Callable[[int], Held] | None = field(default=None, repr=False)
    sampled: bool = False
    files: tuple[str, ...] = ()

    @property
    def small(self) -> bool:
        """Whether it belongs to the small budget: it needs no files."""
        return not self.files


def _quadratic(name: str, about: str, networks: tuple[str, ...] = ("ring",), **dials: float) -> Task:
    make = lambda seed: quadratic(n=8, r=16, seed=seed, **dials)  # type: ignore[arg-type]
    return Task(name, about, make, family="bent" if "bend" in dials else "quadratic", networks=networks, steps=400)


def _selection(dataset: Callable[[int], Dataset], seed: int, batch: int | None = None, **options: object) -> Problem:
    """l2 selection with means over samples; all seeds have the same shapes, so that programs are compiled once."""
    data = dataset(seed)
    scale = float(np.sqrt(np.mean(data.features**2) * data.features.shape[1]))  # rows of length about 1
    made = logistic_hyperparameters(data, loss="mean", scale=scale, seed=seed, batch=batch, **options)  # type: ignore[arg-type]
    return _padded(made, len(data.labels))


def _padded(problem: Problem, samples: int) -> Problem:
    """The problem with samples of weight 0 added, up to so many for all agents together, whatever the seed."""
    agents = problem.agents or 1
    rows = -(-samples // agents)

    def wider(leaf: np.ndarray) -> np.ndarray:
        if leaf.ndim < 2 or leaf.shape[1] >= rows:
            return leaf
        return np.pad(leaf, [(0, 0), (0, rows - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))

    return replace(problem, data=jax.tree.map(wider, problem.data))


def _auc(seed: int) -> Problem:
    """Every agent has as many patients as the others, but another share of sick ones."""
    return _padded(minimax("auc", seed=seed, split="by_label"), 2 * AUC_SAMPLES)


def _digits(seed: int) -> Dataset:
    """Digits 1 and 3 in 4 x 4 pixels, each the mean of four."""
    data = digits()
    squares = data.features.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    return _sampled(replace(data, features=squares, test_features=squares[:1], test_labels=data.labels[:1]), seed, 160)


def _sampled(dataset: Dataset, seed: int, count: int) -> Dataset:
    """So many samples to train and validate on, and the next as a test set, drawn by the seed."""
    order = np.random.default_rng((seed, 17)).permutation(len(dataset.labels))
    used = order[:count]
    held = order[count : 2 * count]
    features = dataset.features
    return replace(
        dataset,
        features=features[used],
        labels=dataset.labels[used],
        test_features=features[held],
        test_labels=dataset.labels[held],
    )


@cache
def _file(name: str) -> Dataset:
    path = find(name)
    if path is None:
        raise InputError(f"The task needs the file {name}.", "Put it into the folder that $DECIBO_DATA names.")
    return libsvm(path)


@cache
def _mnist() -> Dataset:
    return mnist()


def _large(name: str, seed: int) -> Dataset:
    """A draw from a large data set: ijcnn1, or MNIST 1 against 3."""
    return _sampled(_mnist() if name == "mnist.npz" else _file(name), seed, FEW)


def _held(dataset: Callable[[int], Dataset], seed: int) -> Held:
    data = dataset(seed)
    return np.asarray(data.test_features), np.asarray(data.test_labels)


def _l2(name: str, about: str, dataset: Callable[[int], Dataset], **options: object) -> Task:
    sampled = "batch" in options
    return Task(
        name,
        about,
        partial(_selection, dataset, **options),  # type: ignore[arg-type]
        judged="phi",
        targets=(0.1, 0.03) if sampled else (0.1, 0.01),
        family=name,
        held_out=partial(_held, dataset),
        sampled=sampled,
    )


def _clean(corruption: float, batch: int | None = None) -> Task:
    make = lambda seed: hyper_cleaning(
        _digits(seed), corruption=corruption, training=60, validation=60, batch=batch, seed=seed
    )
    return Task(
        f"cleaning-{100 * corruption:.0f}" + ("-batch" if batch else ""),
        f"hyper-cleaning of digits 1 and 3 with {100 * corruption:.0f} % wrong labels"
        + (f", minibatches of {batch}" if batch else ""),
        make,
        judged="phi",
        targets=(0.1, 0.03) if batch else (0.1, 0.01),
        family="cleaning" + ("-batch" if batch else ""),
        held_out=partial(_held, _digits),
        sampled=bool(batch),
        steps=400,
    )


def _heart(seed: int) -> Dataset:
    return heart_disease(seed)


WIDE = ("ring", "exponential")
ALL = (
    _quadratic("quadratic", "quadratics of condition 10, unequal agents", WIDE, condition=10.0),
    _quadratic("quadratic-ill", "quadratics of condition 100, unequal agents", condition=100.0),
    _quadratic("quadratic-equal", "quadratics of condition 10, equal agents", condition=10.0, heterogeneity=0.0),
    _quadratic(
        "quadratic-severe", "quadratics of condition 10, very unequal agents", condition=10.0, heterogeneity=4.0
    ),
    _quadratic("bent", "quadratics of condition 10 with cosines in g", condition=10.0, bend=0.05),
    _l2("l2-digits", "l2 selection on digits 1 and 3, by label", _digits, split="by_label"),
    _l2("l2-heart", "l2 selection on heart disease, four hospitals", _heart, split="by_group"),
    _clean(0.1),
    _clean(0.3),
    _clean(0.5),
    Task(
        "auc",
        "AUC of breast cancer data by label, a minimax problem",
        _auc,
        judged="phi",
        targets=(0.1, 0.01),
        family="auc",
    ),
    _l2("l2-digits-batch", "l2 selection on digits, minibatches of 8", _digits, split="by_label", batch=8),
    _clean(0.3, batch=5),
    replace(_l2("l2-ijcnn1", "l2 selection on ijcnn1", partial(_large, "ijcnn1"), split="by_label"), files=("ijcnn1",)),
    replace(
        _l2("l2-mnist", "l2 selection on MNIST 1 and 3", partial(_large, "mnist.npz"), split="by_label"),
        files=("mnist.npz",),
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in ALL}


def chosen(names: list[str] | None, small: bool) -> list[Task]:
    """The tasks of these names; without names all of the budget whose files are there."""
    if names:
        only_known("The benchmark", "task", names, TASKS)
        tasks = [TASKS[name] for name in dict.fromkeys(names)]
        lost = [file for task in tasks for file in task.files if find(file) is None]
        if lost:
            raise InputError(f"The tasks need {', '.join(lost)}.", "Put them into the folder that $DECIBO_DATA names.")
        return tasks
    return [task for task in ALL if task.small or (not small and all(find(file) for file in task.files))]
