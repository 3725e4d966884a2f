"""decibo demo: four hospitals learn one model together, and no record leaves its hospital.

What each hospital achieves alone, what they achieve together, and what all records in one place
would give, on the same patients; then what happens if one hospital swaps sick and healthy by
mistake. A hospital alone is the same problem with no patients in the other three, so that one
compiled program serves all runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import decibo
from decibo.cli import terminal
from decibo.cli.solving import code_of, interruptible, is_first
from decibo.data.dataset import Dataset
from decibo.data.split import by_group, shards
from decibo.formatting import format_bytes, format_seconds
from decibo.measure.measures import Snapshot
from decibo.parallel.collectives import average
from decibo.report import check_target, report, write_run
from decibo.sklearn import silos
from decibo.sklearn.trust import trust_problem

STEPS = 2000
SPLITS = (43, *range(1, 10))  # the first one is FLamby's
TOGETHER = "together, with decibo"
POOLED = "all records in one place, if allowed"
FOLDS = 4
# patients of a hospital, padding included: one shape, and one compiled program, for all runs
SIZE = 256
TRUST_STEPS = 1000
# Means of five seeds, from flamby/results of https://github.com/owkin/FLamby (edacf54), for the
# split of seed 43.
PUBLISHED = {
    "FedAvg": 0.748,
    "FedProx": 0.748,
    "Scaffold": 0.748,
    "FedAdam": 0.779,
    "Cyclic": 0.785,
    "pooled": 0.795,
}


class Trial(NamedTuple):
    """A model of one or all hospitals, judged on new patients."""

    problem: decibo.Problem
    solution: decibo.Solution
    accuracy: float


def demo(out: Path, as_json: bool) -> int:
    """Both tables, and the page."""
    splits = [decibo.data.heart_disease(seed) for seed in SPLITS]
    data = splits[0]
    groups, counts = np.unique(data.silos(), return_counts=True)
    names = [str(name) for name in groups]
    network = decibo.ring(len(names))
    choices = {f"{names[k]} alone": [names[k]] for k in np.argsort(-counts)} | {TOGETHER: names}
    folders = {
        label: check_target(out / label.replace(", ", "-").replace(" ", "_")) for label in choices
    }
    visible = is_first() and not as_json
    if visible:
        _introduce(data)
    first: dict[str, Trial] = {}
    scores: dict[str, list[float]] = {}
    with interruptible():
        for label, chosen in choices.items():
            if label == TOGETHER:
                scores[POOLED] = [pooled(split) for split in splits]
                _show(visible, POOLED, len(data.labels), scores[POOLED])
            trials = [learn(split, network, chosen) for split in splits]
            first[label] = trials[0]
            write_run(folders[label], trials[0].solution, trials[0].problem, network, label=label)
            scores[label] = [trial.accuracy for trial in trials]
            _show(visible, label, int(np.isin(data.silos(), chosen).sum()), scores[label])
        if visible:
            _compare(scores, first[TOGETHER].solution)
        trusts = {name: trust(data, network, name) for name in names}
    if is_first():
        page = report(list(reversed(folders.values())), out / "report.html")
        if as_json:
            _as_json(scores, first, trusts, folders, page)
        else:
            _show_trust(names, trusts)
            _close(page)
    return max(code_of(trial.solution.status) for trial in first.values())


# Alone, together, pooled


def learn(data: Dataset, network: decibo.Network, chosen: Sequence[str]) -> Trial:
    """The model of the chosen hospitals, as `SiloLogisticRegression` learns it; the others have no
    patients."""
    names = np.unique(data.silos())
    rows = [
        np.flatnonzero(data.silos() == name) if name in chosen else np.zeros(0, int)
        for name in names
    ]
    kept = np.concatenate(rows)
    starts = np.cumsum([0, *map(len, rows)])
    parts = [np.arange(a, b) for a, b in pairwise(starts)]
    features = data.features[kept]
    sick = (data.labels[kept] > 0).astype(float)
    census = silos.alone(names, parts)
    scale = silos.agreed_scale(census, features)
    fold = silos.dealt(census, sick, FOLDS, seed=0)
    stacked = silos.stacked(census, scale(features), sick[:, None], fold, FOLDS, SIZE)
    new = shards(scale(data.test_features), data.test_labels > 0, by_group(data.silos(test=True)))
    width = stacked["features"].shape[2] - new["features"].shape[2]
    stacked["new_features"] = np.pad(new["features"], ((0, 0), (0, 0), (0, width)))
    stacked["new_targets"] = new["labels"][..., None].astype(float)
    stacked["new"] = new["weights"] * len(names) / len(data.test_labels)
    problem = silos.problem_of(census, stacked, "log", name="heart disease in four hospitals")
    solution = decibo.solve(
        problem,
        network,
        decibo.ahead_exact(),
        steps=STEPS,
        every=10,
        measures=[error_on_new_patients, loss_on_new_patients, silos.residual],
        until={"residual": 1e-3},
        progress=False,
    )
    return Trial(problem, solution, 1 - float(solution.history["error_on_new_patients"][-1]))


def pooled(data: Dataset) -> float:
    """The accuracy of scikit-learn's `LogisticRegressionCV` on the records of all hospitals in one
    place."""
    from sklearn.linear_model import LogisticRegressionCV

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about defaults of scikit-learn's own
        model = LogisticRegressionCV(solver="newton-cholesky").fit(data.features, data.labels)
    return float(model.score(data.test_features, data.test_labels))


def loss_on_new_patients(s: Snapshot) -> jax.Array:
    """The mean log-loss of the common model on the test patients of all hospitals."""
    own = lambda d: d["new"] @ silos.log_loss(_predicted(s, d), d["new_targets"])
    return average(jax.vmap(own)(s.here))


def error_on_new_patients(s: Snapshot) -> jax.Array:
    """The share of the test patients of all hospitals that the common model gets wrong."""
    own = lambda d: (
        d["new"] @ ((_predicted(s, d) > 0) != (d["new_targets"] > 0))[:, 0].astype(d["new"].dtype)
    )
    return average(jax.vmap(own)(s.here))


def _predicted(s: Snapshot, d: dict[str, jax.Array]) -> jax.Array:
    """Scores of a hospital's test patients by the answer, the last of the models."""
    return d["new_features"] @ s.y["coef"][-1] + s.y["intercept"][-1]


# Which hospital harms


def trust(data: Dataset, network: decibo.Network, swapped: str) -> dict[str, float]:
    """Swap sick and healthy in half of a hospital's records, and learn how much to trust each
    hospital.

    The other half of all records, whose labels are right, judges, as in `SiloTrust.fit(...,
    checked=...)`.
    """
    names = np.unique(data.silos())
    checked = np.zeros(len(data.labels), dtype=bool)
    for rows in by_group(data.silos()):
        checked[np.random.default_rng(0).permutation(rows)[1::2]] = True
    labels = np.where((data.silos() == swapped) & ~checked, -data.labels, data.labels)
    census = silos.alone(names, by_group(data.silos()))
    scale = silos.agreed_scale(census, data.features)
    problem = trust_problem(
        census, scale(data.features), (labels > 0).astype(float)[:, None], checked
    )
    learned = decibo.solve(
        problem,
        network,
        decibo.ahead_exact(),
        steps=TRUST_STEPS,
        measures=["outer"],
        progress=False,
    )
    features = scale(data.test_features)
    sick = (
        features @ np.asarray(learned.y["coef"])[0, : features.shape[1], 0]
        + float(learned.y["intercept"][0, 0])
        > 0
    )
    right = float(np.mean(sick == (data.test_labels > 0)))
    weights = {
        str(name): float(weight)
        for name, weight in zip(names, jax.nn.sigmoid(learned.x), strict=True)
    }
    equal = learn(replace(data, **_rows(data, labels, ~checked)), network, names.tolist())
    return {"equal trust": equal.accuracy, "learned trust": right, **weights}


def _rows(data: Dataset, labels: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Some of the training records, with other labels."""
    return {"features": data.features[rows], "labels": labels[rows], "groups": data.silos()[rows]}


# What is shown


def _introduce(data: Dataset) -> None:
    terminal.say(
        "Who has heart disease? Four hospitals want one model from the records of all,",
        f"and no record may leave its hospital. {len(data.labels)} patients to learn from, "
        f"{len(data.test_labels)} new.",
        "",
    )
    print(f"{'':38}{'patients':>9}{'correct on the 254 new ones':>31}")
    print(f"{'':38}{'':>9}{'this split':>12}{f'mean of {len(SPLITS)} splits':>19}", flush=True)


def _show(visible: bool, label: str, patients: int, shares: list[float]) -> None:
    """A line as soon as it is known."""
    if visible:
        print(f"{label:38}{patients:9}{shares[0]:12.3f}{_mean(shares):>19}", flush=True)


def _mean(values: Sequence[float] | np.ndarray) -> str:
    """A mean with its standard error."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def _compare(scores: dict[str, list[float]], solution: decibo.Solution) -> None:
    terminal.say(
        "",
        "Published by FLamby (NeurIPS 2022) for this split, means of five seeds:",
        f"{_listed(PUBLISHED)}.",
        "A share of 254 patients has a standard error of 0.025. Together minus one place, "
        f"over {len(SPLITS)} splits: {_mean(np.subtract(scores[TOGETHER], scores[POOLED]))}.",
        f"No step size was chosen by hand: {solution.steps} steps,"
        f" {format_seconds(solution.cost.seconds)}. In a step a hospital sends"
        f" {format_bytes(solution.cost.bytes)} to each neighbour, and never a record.",
        "",
    )


def _listed(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:.3f}" for name, share in shares.items())


def _show_trust(names: Sequence[str], trusts: dict[str, dict[str, float]]) -> None:
    terminal.say(
        "If one hospital swaps sick and healthy by mistake, the outer level can tell:",
        "x is the trust in each hospital, judged on records that were checked.",
    )
    print(f"{'':12}{'correct on new':>17}{'learned trust in':>24}")
    print(f"{'swapped in':12}{'equal':>8}{'learned':>9}" + "".join(f"{name:>12}" for name in names))
    for swapped, row in trusts.items():
        weights = "".join(f"{row[name]:12.2f}" for name in names)
        print(f"{swapped:12}{row['equal trust']:8.3f}{row['learned trust']:9.3f}{weights}")


def _as_json(
    scores: dict[str, list[float]],
    trials: dict[str, Trial],
    trusts: dict[str, dict[str, float]],
    folders: dict[str, Path],
    page: Path,
) -> None:
    runs = {
        label: terminal.run_as_dict(trial.solution, folders[label])
        for label, trial in trials.items()
    }
    terminal.print_json(
        {
            "splits": SPLITS,
            "accuracy": scores,
            "published": {"by": "FLamby, NeurIPS 2022, means of five seeds", "accuracy": PUBLISHED},
            "swapped": trusts,
            "runs": runs,
            "page": page,
        }
    )


def _close(page: Path) -> None:
    terminal.say(
        "",
        f"Open {terminal.path_of(page)} in a browser: curves, network, costs.",
        "Next: docs/how-to/owners.md has your own tables, docs/tutorial.md your own problem.",
    )
