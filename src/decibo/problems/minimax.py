r"""Minimax problems: the inner objective is minus the outer one. [paper, section III-C]

    min over x  max over y  mean_i f_i(x, y),     g_i = -f_i,     f strongly concave in y

kind="quadratic"     known answer, any size:
    (1)  f_i = x'P_i x/2 - x'J_i y - y'H_i y/2 + p_i'x - s_i'y,     y*(x) = -H^-1 (J'x + s)
kind="auc"           maximise the area under the ROC curve by its square-loss saddle form (Ying et
                     al., 2016):
    (2)  f_i = mean over agent i's samples of  (1-p) (u - a)^2 [b=1] + p (u - c)^2 [b=-1]
               - p (1-p) y^2 + 2 (1 + y) (p u [b=-1] - (1-p) u [b=1])  +  ridge |w|^2 / 2,
         u = w's,  x = (w, a, c)
         p is the share of positives in all data, and y is one number
kind="perturbation"  a classifier w that withstands the worst common shift y of the features:
    (3)  f_i = mean log(1 + exp(-b (s + y)'w)) + ridge |w|^2 / 2 - rho |y|^2 / 2 strongly concave in
         y while |w|^2 < 4 rho; the reference says so if a run leaves that region
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from decibo.data.dataset import Dataset
from decibo.data.loaders import breast_cancer
from decibo.data.split import shards
from decibo.problem.problem import Problem
from decibo.problems.logistic import signed, splitter, weighted
from decibo.problems.quadratic import around, definite, inner_solution, minimiser, outer
from decibo.pytree import Tree
from decibo.validate import above, at_least, integer, one_of, only_known

Data = dict[str, jax.Array]


@dataclass(frozen=True)
class Minus:
    """g = -f; two with the same f are equal, so that compiled programs are shared."""

    objective: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, d: Data) -> jax.Array:
        return -self.objective(x, y, d)


def minimax(kind: str = "quadratic", **options: Any) -> Problem:
    """A minimax problem of the named kind; its options are those of `minimax_<kind>`."""
    factory = KINDS[one_of("kind", kind, KINDS)]
    only_known(f"minimax(kind={kind!r})", "option", options, inspect.signature(factory).parameters)
    return factory(**options)


def minimax_quadratic(
    agents: int = 10,
    n: int = 3,
    r: int = 4,
    *,
    seed: int = 0,
    heterogeneity: float = 1.0,
    condition: float = 4.0,
) -> Problem:
    """A quadratic saddle point (1) that is known, well scaled: eigenvalues within sqrt(condition)
    of 1."""
    agents = integer("agents", agents)
    n = integer("n", n)
    r = integer("r", r)
    unequal = at_least("heterogeneity", heterogeneity, 0.0)
    ratio = at_least("condition", condition, 1.0)
    rng = np.random.default_rng((integer("seed", seed, least=0), 2))
    data = {
        "P": definite(rng, agents, n, unequal, ratio),
        "H": definite(rng, agents, r, unequal, ratio),
        "J": -around(rng, agents, (n, r), unequal, 0.5 / np.sqrt(n + r)),
        "p": around(rng, agents, (n,), unequal, 1.0),
        "s": -around(rng, agents, (r,), unequal, 1.0),
    }
    # (1) is the outer objective of `quadratic`, whose inner one has the same y* as minus (1)
    data |= {"B": -data["J"], "A": -data["H"], "q": -data["s"]}
    answer = minimiser({name: value.mean(axis=0) for name, value in data.items()})
    known = {"inner_solution": inner_solution, "solution": answer}
    start = np.zeros(n), np.zeros(r)
    objectives = outer, Minus(outer)
    return Problem(*objectives, data, *start, **known, name="minimax quadratic")


def _auc(x: dict[str, jax.Array], y: jax.Array, d: Data) -> jax.Array:
    u = d["features"] @ x["w"]
    p = d["positives"]
    up = d["labels"] > 0
    square = jnp.where(up, (1 - p) * (u - x["a"]) ** 2, p * (u - x["c"]) ** 2)
    linear = 2 * (1 + y) * jnp.where(up, -(1 - p) * u, p * u)
    size = jnp.sum(d["weights"])
    ridge = d["ridge"] * x["w"] @ x["w"] / 2
    return d["weights"] @ (square + linear) - size * p * (1 - p) * y**2 + ridge  # (2)


def minimax_auc(
    dataset: Dataset | None = None,
    agents: int = 10,
    *,
    ridge: float = 0.01,
    split: str = "iid",
    ratios: ArrayLike | None = None,
    concentration: float = 0.5,
    seed: int = 0,
) -> Problem:
    """The area under the ROC curve as a saddle point (2); without a dataset on the bundled breast
    cancer data."""
    data, name = _samples(dataset, agents, ridge, split, ratios, concentration, seed)
    total = data["weights"].sum()
    # the mean over agents is the mean over all samples
    data["weights"] = data["weights"] * (agents / total)
    positives = float(((data["labels"] > 0) * data["weights"]).sum() / agents)
    data["positives"] = np.full(agents, positives)
    x0 = {"w": np.zeros(data["features"].shape[2]), "a": 0.0, "c": 0.0}
    return Problem(_auc, Minus(_auc), data, x0, 0.0, name=f"minimax auc, {name}")


def _perturbation(x: jax.Array, y: jax.Array, d: Data) -> jax.Array:
    margins = d["labels"] * ((d["features"] + y) @ x)
    loss = d["weights"] @ jax.nn.softplus(-margins)
    return loss + d["ridge"] * x @ x / 2 - d["rho"] * y @ y / 2  # (3)


def minimax_perturbation(
    dataset: Dataset | None = None,
    agents: int = 10,
    *,
    rho: float = 10.0,
    ridge: float = 0.01,
    split: str = "iid",
    ratios: ArrayLike | None = None,
    concentration: float = 0.5,
    seed: int = 0,
) -> Problem:
    """A classifier against the worst shift of all features (3); without a dataset on the breast
    cancer data."""
    data, name = _samples(dataset, agents, ridge, split, ratios, concentration, seed)
    data = weighted(data, "mean")
    data["rho"] = np.full(agents, above("rho", rho, 0.0))
    zero = np.zeros(data["features"].shape[2])
    return Problem(
        _perturbation, Minus(_perturbation), data, zero, zero, name=f"minimax perturbation, {name}"
    )


KINDS = {"quadratic": minimax_quadratic, "auc": minimax_auc, "perturbation": minimax_perturbation}


def _samples(
    dataset: Dataset | None,
    agents: int,
    ridge: float,
    split: str,
    ratios: ArrayLike | None,
    concentration: float,
    seed: int,
) -> tuple[dict[str, np.ndarray], str]:
    """The agents' samples and the ridge, and the name of the dataset."""
    dataset = signed(dataset if dataset is not None else breast_cancer())
    deal = splitter(dataset, split, integer("agents", agents), ratios, concentration, seed)
    samples = shards(dataset.features, dataset.labels, deal(np.arange(len(dataset.labels))))
    return samples | {"ridge": np.full(agents, at_least("ridge", ridge, 0.0))}, dataset.name
