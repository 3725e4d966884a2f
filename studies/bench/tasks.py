"""The tasks of the benchmark: a name stands for a problem for every seed, and for how runs on it
are judged.

    judged by   "stationarity", |grad Phi(xbar)|^2, where Phi has no plateaus; "phi", Phi(xbar),
                where it has: far out on a plateau the gradient is small and the answer is bad
    targets     an easy and a hard one: fractions of |grad Phi|^2 at the start, or of Phi(x0) - the
                least Phi, by an exact solver for l2 selection, whose penalties have a prior so that
                a minimiser exists, and otherwise the lowest that any method reached with this seed;
                easier ones for minibatches, whose noise remains

Tasks of one family share their functions and shapes, and so the compiled programs of a method. The
small budget has a few of every kind, made of data that come with decibo or scikit-learn or are
drawn; the full one has all, a version with minibatches of each, and those whose files are found in
$DECIBO_DATA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import numpy as np

from decibo.data.dataset import Dataset
from decibo.data.heart_disease import heart_disease
from decibo.errors import InputError
from decibo.problem.problem import Problem
from decibo.problems.cleaning import hyper_cleaning
from decibo.problems.logistic import logistic_hyperparameters
from decibo.problems.quadratic import quadratic
from decibo.pytree import Tree
from decibo.validate import only_known
from studies.bench import material

HeldOut = tuple[np.ndarray, np.ndarray]  # features and labels that no agent has
Draw = Callable[[int], Dataset]  # the samples of a seed
BATCH = 5  # samples of each kind in a minibatch
AUC_SAMPLES = 569  # of the breast cancer data
# the hospital whose labels are often wrong in the task of trust; hospitals are sorted by name
BUDAPEST = 0
RING: tuple[str, ...] = ("ring",)
WIDE = ("ring", "exponential")
EVERY = ("ring", "exponential", "path", "complete")
RARE = np.linspace(0.02, 0.14, 10)  # shares of positives among the agents, where one in twelve is
PRIOR = 4.0  # of the log-penalties of l2 selection
QUARTER = np.linspace(0.05, 0.43, 10)


@dataclass(frozen=True)
class Task:
    """One task.

    make       (seed) the problem
    held_out   (seed) the test set, if there is one; `scores` gives a model's scores, if it is not
               linear
    networks   those of the small budget, and `more` those of the full one
    sampled    whether gradients are those of minibatches
    exact      whether the least Phi is found by an exact solver
    trained    whether the inner level has many minima: there is no y*(x), and models are
               retrained to be judged
    tables     the tables of data that it needs and that may be absent
    small      whether it belongs to the small budget
    """

    name: str
    about: str
    make: Callable[[int], Problem] = field(repr=False)
    judged: str = "phi"
    targets: tuple[float, float] = (0.1, 0.01)
    kind: str = ""
    family: str = ""
    steps: int = 400
    networks: tuple[str, ...] = RING
    more: tuple[str, ...] = RING
    held_out: Callable[[int], HeldOut] | None = field(default=None, repr=False)
    exact: bool = False
    scores: Callable[[Tree, jax.Array], jax.Array] | None = field(default=None, repr=False)
    sampled: bool = False
    trained: bool = False
    tables: tuple[str, ...] = ()
    small: bool = False

    def missing(self) -> list[str]:
        """The tables that it needs and that are not there."""
        return [name for name in self.tables if not material.at_hand(name)]


# Quadratics


def _quadratic(name: str, about: str, more: tuple[str, ...] = RING, **options: float) -> list[Task]:
    """A task, and its version with noise."""
    make = lambda seed: quadratic(n=8, r=16, seed=seed, **options)  # type: ignore[arg-type]
    family = "bent" if "bend" in options else "quadratic"
    plain = Task(
        name,
        about,
        make,
        "stationarity",
        (1e-3, 1e-6),
        "quadratics",
        family,
        more=more,
        small=family != "bent",
    )
    noisy = replace(
        plain,
        name=f"{name}-noise",
        about=f"{about}, with noise",
        make=lambda seed: replace(make(seed), sample=material.noisy, solution=None),
        targets=(0.1, 1e-3),
        kind="minibatches",
        family=f"{family}-noise",
        steps=200,
        more=RING,
        sampled=True,
        small=name == "quadratic",
    )
    return [plain, noisy]


# Selection of penalties


def selection(dataset: Draw, seed: int, batch: int | None = None, **options: object) -> Problem:
    """l2 selection with means over samples; all seeds have the same shapes, so that programs are
    compiled once."""
    data = dataset(seed)
    made = logistic_hyperparameters(
        data, loss="mean", scale=_length(data), seed=seed, batch=batch, **options
    )  # type: ignore[arg-type]
    return _padded(made, len(data.labels))


def _length(data: Dataset) -> float:
    """Of a row, about."""
    return float(np.sqrt(np.mean(data.features**2) * data.features.shape[1]))


def _padded(problem: Problem, samples: int) -> Problem:
    """The problem with samples of weight 0 added, up to so many for all agents together, whatever
    the seed."""
    agents = problem.agents or 1
    rows = -(-samples // agents)

    def wider(leaf: np.ndarray) -> np.ndarray:
        if leaf.ndim < 2 or leaf.shape[1] >= rows:
            return leaf
        return np.pad(leaf, [(0, 0), (0, rows - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))

    # of features, not of samples
    whole = ("curvature", "least", "expected", "prior")
    data = {
        name: part if name in whole else jax.tree.map(wider, part)
        for name, part in problem.data.items()
    }
    return replace(problem, data=data)


def _held(dataset: Draw, seed: int, scaled: bool = False) -> HeldOut:
    data = dataset(seed)
    unit = _length(data) if scaled else 1.0
    return np.asarray(data.test_features) / unit, np.asarray(data.test_labels)


def _l2(
    name: str, about: str, dataset: Draw, batch: int = BATCH, small: str = "", **options: object
) -> list[Task]:
    """A task of selection, and its version with minibatches; `small` names those of the small
    budget."""
    tables = () if name not in material.SOURCES else (name,)
    options = {"prior": PRIOR, **options}
    plain = Task(
        f"l2-{name}",
        f"l2 selection on {about}",
        partial(selection, dataset, **options),  # type: ignore[arg-type]
        kind="selection of penalties",
        family=f"l2-{name}",
        steps=600,
        held_out=partial(_held, dataset, scaled=True),
        exact=True,
        tables=tables,
        small="plain" in small,
    )
    return [
        plain,
        _batch(plain, partial(selection, dataset, batch=batch, **options), batch, "batch" in small),
    ]  # type: ignore[arg-type]


def _batch(plain: Task, make: Callable[[int], Problem], batch: int, small: bool = False) -> Task:
    """The version of a task with minibatches."""
    return replace(
        plain,
        name=f"{plain.name}-batch",
        about=f"{plain.about}, minibatches of {batch}",
        make=make,
        targets=(0.1, 0.03),
        kind="minibatches",
        family=f"{plain.family}-batch",
        networks=RING,
        more=RING,
        sampled=True,
        small=small,
    )


# Hyper-cleaning


def _linear(dataset: Draw, corruption: float, seed: int, batch: int | None = None) -> Problem:
    return hyper_cleaning(
        dataset(seed), corruption=corruption, training=60, validation=60, batch=batch, seed=seed
    )


def _network(dataset: Draw, corruption: float, seed: int, batch: int | None = None) -> Problem:
    return material.perceptron(dataset(seed), corruption, seed, batch)


def _clean(
    prefix: str,
    about: str,
    dataset: Draw,
    wrong: int,
    table: str = "",
    deep: bool = False,
    small: str = "",
) -> list[Task]:
    """Hyper-cleaning with so many percent of wrong labels, linear or with a network; also with
    minibatches."""
    make = partial(_network if deep else _linear, dataset, wrong / 100)
    words = "a network as classifier" if deep else ""
    plain = Task(
        f"{prefix}-{wrong}",
        ", ".join(filter(None, [f"hyper-cleaning of {about} with {wrong} % wrong labels", words])),
        make,
        kind="hyper-cleaning, networks" if deep else "hyper-cleaning",
        family=prefix,
        targets=(0.2, 0.05) if deep else (0.1, 0.01),
        steps=200 if deep else 400,
        more=WIDE if wrong == 30 and not table else RING,
        held_out=partial(_held, dataset),
        scores=material.perceptron_scores if deep else None,
        trained=deep,
        tables=(table,) if table else (),
        small="plain" in small,
    )
    sampled = _batch(plain, partial(make, batch=BATCH), BATCH, "batch" in small)
    return [plain, replace(sampled, targets=(0.2, 0.1)) if deep else sampled]


# Silo trust and the area under the ROC curve


def _heart(seed: int) -> Dataset:
    return heart_disease(seed)


def _trust(seed: int, batch: int | None = None) -> Problem:
    data = _heart(seed)
    return _padded(material.trust(data, BUDAPEST, seed, batch), len(data.labels))


def _area(dataset: Draw, ratios: np.ndarray | None, seed: int, batch: int | None = None) -> Problem:
    return _padded(material.area(dataset(seed), seed, ratios, batch), 2 * AUC_SAMPLES)


def _auc(
    name: str, about: str, dataset: Draw, ratios: np.ndarray | None, **more: object
) -> list[Task]:
    make = partial(_area, dataset, ratios)
    plain = Task(name, f"AUC of {about} by label, a minimax problem", make, kind="minimax")
    plain = replace(plain, **{"family": "auc", "steps": 600, **more})  # type: ignore[arg-type]
    return [plain, _batch(plain, partial(make, batch=BATCH), BATCH)]


_digits = partial(material.drawn, "digits", count=160)
_mnist = partial(material.drawn, "mnist", count=600)
_fashion = partial(material.drawn, "fashion", count=600)
_ijcnn1 = partial(material.drawn, "ijcnn1", count=600)
_a9a = partial(material.drawn, "a9a", count=1000)
_silos = Task(
    "trust-heart",
    f"which of four hospitals to trust, {100 * material.WRONG:.0f} % of the labels of one being"
    " wrong",
    _trust,
    kind="silo trust",
    family="trust-heart",
    steps=300,
    held_out=partial(_held, _heart),
    small=True,
)
ALL: tuple[Task, ...] = (
    *_quadratic("quadratic", "quadratics of condition 10, unequal agents", EVERY, condition=10.0),
    *_quadratic("quadratic-ill", "quadratics of condition 100, unequal agents", condition=100.0),
    *_quadratic(
        "quadratic-equal",
        "quadratics of condition 10, equal agents",
        condition=10.0,
        heterogeneity=0.0,
    ),
    *_quadratic(
        "quadratic-severe",
        "quadratics of condition 10, very unequal agents",
        condition=10.0,
        heterogeneity=4.0,
    ),
    *_quadratic(
        "bent", "quadratics of condition 10 with cosines in g", WIDE, condition=10.0, bend=0.05
    ),
    *_l2("digits", "digits 1 and 3, by label", _digits, 8, "plain batch", split="by_label"),
    *_l2("heart", "heart disease, four hospitals", _heart, split="by_group"),
    *_l2(
        "covtype",
        "data like covtype, ill-conditioned, one positive in twelve",
        material.covtype,
        split="by_label",
        ratios=RARE,
    ),
    *_l2("ijcnn1", "ijcnn1, by label", _ijcnn1, split="by_label", ratios=RARE),
    *_l2("mnist", "MNIST 1 and 3 in 7 x 7 pixels, by label", _mnist, split="by_label"),
    *_clean("cleaning", "digits 1 and 3", _digits, 10),
    *_clean("cleaning", "digits 1 and 3", _digits, 30, small="batch"),
    *_clean("cleaning", "digits 1 and 3", _digits, 50),
    *_clean("cleaning-mnist", "MNIST 1 and 3", _mnist, 10, "mnist"),
    *_clean("cleaning-mnist", "MNIST 1 and 3", _mnist, 30, "mnist"),
    *_clean("cleaning-mnist", "MNIST 1 and 3", _mnist, 50, "mnist"),
    *_clean("network", "digits 1 and 3", _digits, 10, deep=True),
    *_clean("network", "digits 1 and 3", _digits, 30, deep=True, small="plain"),
    *_clean("network", "digits 1 and 3", _digits, 50, deep=True),
    *_clean("network-fashion", "T-shirts and shirts", _fashion, 30, "fashion", deep=True),
    _silos,
    _batch(_silos, partial(_trust, batch=BATCH), BATCH),
    *_auc("auc", "breast cancer data", lambda seed: material.table("cancer"), None, more=WIDE),
    *_auc("auc-adult", "data like Adult", material.adult, QUARTER, small=True, steps=300),
    *_auc("auc-a9a", "a9a", _a9a, QUARTER, family="auc-a9a", tables=("a9a",)),
)
ALL = tuple(
    replace(task, networks=WIDE) if task.name == "quadratic" else task
    for task in sorted(ALL, key=lambda task: task.sampled)
)
TASKS: dict[str, Task] = {task.name: task for task in ALL}


def chosen(names: Sequence[str], small: bool) -> list[Task]:
    """The tasks of these names; without names all of the budget whose data are there."""
    if names:
        only_known("The benchmark", "task", names, TASKS)
        tasks = [TASKS[name] for name in dict.fromkeys(names)]
        lost = dict.fromkeys(material.SOURCES[name] for task in tasks for name in task.missing())
        if lost:
            raise InputError(
                f"The tasks need {', '.join(lost)}.",
                "Put them into the folder that $DECIBO_DATA names.",
            )
        return tasks
    return [task for task in ALL if (task.small if small else not task.missing())]
